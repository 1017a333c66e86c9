//! What is checked before kube sees it, because kube would panic, or name no field.

use data_encoding::BASE64;
use http::{HeaderValue, Uri};
use kube::config::{AuthInfo, Cluster};
use ring::rand::SystemRandom;
use rustls_pki_types::ServerName;
use secrecy::ExposeSecret;
use zeroize::Zeroizing;

use super::{Fault, Plugins};
use crate::credentials::check_token;
use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::{KeyError, PrivateKey};

/// A longer address would leave no space for paths in a URL, which `http` limits to 64 KiB.
const LONGEST_SERVER: usize = 1024;

/// Checks a cluster. Returns its address and its proxy, and replaces the proxy by one that kube can read: without one
/// kube reads `HTTPS_PROXY`, and fails on a value that it cannot parse even where `NO_PROXY` applies.
pub(super) fn cluster(field: &str, cluster: &mut Cluster) -> Result<(Uri, Option<Uri>), Fault> {
    for text in [
        &mut cluster.server,
        &mut cluster.certificate_authority,
        &mut cluster.certificate_authority_data,
        &mut cluster.proxy_url,
        &mut cluster.tls_server_name,
    ] {
        unset_if_empty(text);
    }
    let server = server(cluster.server.as_deref()).map_err(|cause| Fault::new(format!("{field}.server"), cause))?;
    if let Some(name) = &cluster.tls_server_name {
        let refused = |_| Fault::new(format!("{field}.tls-server-name"), "it is neither a DNS name nor an address");
        ServerName::try_from(name.as_str()).map_err(refused)?;
    }
    let refused = |_| Fault::new(format!("{field}.proxy-url"), "it is no URL; write http://[USER:PASSWORD@]HOST:PORT");
    let proxy = cluster.proxy_url.as_ref().map(|proxy| proxy.parse::<Uri>().map_err(refused)).transpose()?;
    cluster.proxy_url.get_or_insert_with(|| server.to_string());
    Ok((server, proxy))
}

/// kube panics at the first request to an address without scheme or host.
fn server(text: Option<&str>) -> Result<Uri, &'static str> {
    let text = text.ok_or("it is missing")?;
    let uri: Uri = text.parse().map_err(|_| "it is no URL such as https://hub.example:6443")?;
    if !matches!(uri.scheme_str(), Some("https" | "http")) {
        return Err("it begins with neither https:// nor http://");
    }
    let authority = uri.authority().map(|it| (it.as_str(), it.host())).unwrap_or_default();
    let port = authority.0.strip_prefix(authority.1).ok_or("it has a user name or password")?;
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    match () {
        () if authority.1.is_empty() => Err("it has no host"),
        () if !is_port => Err("its port is no number up to 65535"),
        () if uri.query().is_some() => Err("it has a query"),
        () if text.len() > LONGEST_SERVER => Err("it is longer than 1024 bytes"),
        () => Ok(uri),
    }
}

/// Checks a user.
pub(super) fn user(field: &str, user: &mut AuthInfo, plugins: Plugins) -> Result<(), Fault> {
    for text in [
        &mut user.token_file,
        &mut user.client_certificate,
        &mut user.client_certificate_data,
        &mut user.client_key,
        &mut user.impersonate,
        &mut user.impersonate_uid,
    ] {
        unset_if_empty(text);
    }
    for secret in [&mut user.token, &mut user.client_key_data] {
        *secret = secret.take().filter(|text| !text.expose_secret().is_empty());
    }
    let at = |name: &str| format!("{field}.{name}");
    if user.auth_provider.is_some() {
        let cause = "authentication providers are not supported; use exec, as current versions of kubectl do";
        return Err(Fault::new(at("auth-provider"), cause));
    }
    if user.exec.is_some() && plugins == Plugins::Refuse {
        let cause = "a program would print the credentials, which needs --allow-credential-plugins";
        return Err(Fault::new(at("exec"), cause));
    }
    if user.exec.as_ref().is_some_and(|exec| exec.command.as_ref().is_none_or(String::is_empty)) {
        return Err(Fault::new(at("exec.command"), "it is missing"));
    }
    if let Some(token) = &user.token {
        check_token(token.expose_secret()).map_err(|cause| Fault::new(at("token"), cause))?;
    }
    let groups = user.impersonate_groups.iter().flatten().map(|group| ("as-groups", group));
    let extra =
        user.impersonate_user_extra.iter().flat_map(|all| all.values().flatten()).map(|it| ("as-user-extra", it));
    let named =
        user.impersonate.iter().map(|it| ("as", it)).chain(user.impersonate_uid.iter().map(|it| ("as-uid", it)));
    for (name, text) in named.chain(groups).chain(extra) {
        HeaderValue::from_str(text).map_err(|_| Fault::new(at(name), "it has a character that no header may have"))?;
    }
    Ok(())
}

/// As with kubectl, an empty text counts as none.
fn unset_if_empty(text: &mut Option<String>) {
    *text = text.take().filter(|text| !text.is_empty());
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What is wrong with a client certificate and its key, if it is known: kube names neither the field nor the cause. It
/// reads only text that begins with PEM.
pub(super) fn pair(user: &AuthInfo, at: &str) -> Option<Fault> {
    let key = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    check(at, "client-key", key, user.client_key.as_deref(), |text| {
        match PrivateKey::from_pem(text, &SystemRandom::new()) {
            Err(KeyError::NotPem) => Err("it has no private key in PEM".to_owned()),
            read => read.map(drop).map_err(|error| error.to_string()),
        }
    })
    .and_then(|()| {
        let certificate = user.client_certificate_data.as_deref();
        check(at, "client-certificate", certificate, user.client_certificate.as_deref(), |text| {
            pem::certificates(text).map(drop).map_err(|error| error.to_string())
        })
    })
    .err()
}

/// Checks one of the two, which is in the kubeconfig in Base64, or else in a file.
fn check(
    at: &str,
    name: &str,
    data: Option<&str>,
    file: Option<&str>,
    read: impl Fn(&[u8]) -> Result<(), String>,
) -> Result<(), Fault> {
    let (field, text) = match (data, file) {
        (Some(data), _) => {
            let decoded = BASE64.decode(data.as_bytes()).map_err(|_| "it is not Base64".to_owned());
            (format!("{at}.{name}-data"), decoded)
        }
        (None, Some(file)) => {
            let text = std::fs::read(file).map_err(|error| format!("{file} cannot be read: {error}"));
            (format!("{at}.{name}"), text)
        }
        (None, None) => (format!("{at}.{name}"), Err("it is missing".to_owned())),
    };
    let checked = text.map(Zeroizing::new).and_then(|text| {
        read(&text)?;
        let has_mark = text.starts_with(BYTE_ORDER_MARK);
        if has_mark { Err("it begins with a byte order mark: save it without one".to_owned()) } else { Ok(()) }
    });
    checked.map_err(|cause| Fault::new(field, cause))
}
