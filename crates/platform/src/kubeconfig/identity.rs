//! Why a client certificate and its key cannot be used. kube names neither the field nor the cause.

use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::{KeyError, PrivateKey};
use data_encoding::BASE64;
use kube::config::AuthInfo;
use ring::rand::SystemRandom;
use secrecy::ExposeSecret;
use zeroize::Zeroizing;

use super::Fault;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What is wrong with them, if it is known. kube reads only text that begins with PEM.
pub(super) fn fault(user: &AuthInfo, at: &str) -> Option<Fault> {
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

/// Checks one of the two, which stands in the kubeconfig in Base64, or else in a file.
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
