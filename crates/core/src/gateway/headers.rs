//! Decides which headers of requests and responses cross the gateway. Pure functions.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::authz::Peer;

/// Headers that apply to one connection only (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers that tell a backend who the caller is, so only the gateway may set them. In the names of these and of
/// [`OVERRIDES`] everything except letters and digits counts as `-`: CGI and WSGI map `-` and `_` to the same variable,
/// PHP also `.` and others.
const IDENTITY: [&str; 5] = ["client-cert", "client-cert-chain", "x-forwarded-client-cert", "forwarded", "x-real-ip"];
const IDENTITY_PREFIXES: [&str; 3] = ["x-remote-", "x-addon-signer-", "x-forwarded-"];

/// Headers that make some backends and frameworks use a different method, path, scheme or host than the request line.
/// The gateway checked the method and path of the request line, so only those may count.
const OVERRIDES: [&str; 17] = [
    "x-http-method-override", // Rails, Symfony, Express' method-override, Google's APIs
    "x-http-method",          // Microsoft's OData
    "x-method-override",
    "x-method",
    "x-original-method", // nginx' auth_request, Traefik's and oauth2-proxy's convention
    "x-original-url",    // IIS, Symfony, Zend
    "x-original-uri",
    "x-original-path",
    "x-original-host",
    "x-rewrite-url", // IIS
    "x-rewrite-uri",
    "x-rewrite-path",
    "x-request-uri",
    "x-envoy-original-path",
    "x-envoy-original-method",
    "x-script-name", // the prefix of a WSGI application
    "x-host",
];

/// Removes headers that apply to one connection only, including those that `Connection` lists.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<HeaderName> =
        listed.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Removes the headers of a client's request that must not reach the backend: those of the connection, and those that
/// claim an identity or override the method or the path. hyper sets the length of the body again, and `Host` will be
/// the backend's.
pub fn strip_request(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    let claims: Vec<HeaderName> = headers.keys().filter(|name| claims(name)).cloned().collect();
    for name in claims.iter().chain([&HOST, &CONTENT_LENGTH, &EXPECT, &FORWARDED]) {
        headers.remove(name);
    }
}

fn claims(name: &HeaderName) -> bool {
    let name = name.as_str().replace(|byte: char| !byte.is_ascii_alphanumeric(), "-");
    let name = name.as_str();
    IDENTITY.contains(&name)
        || OVERRIDES.contains(&name)
        || IDENTITY_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Sets the headers that carry the caller's identity: those of the aggregation layer, that of RFC 9440, and our own.
///
/// # Errors
/// A header cannot have the name. That does not happen, because conventions are printable ASCII.
pub fn set_identity(headers: &mut HeaderMap, peer: &Peer) -> Result<(), InvalidHeaderValue> {
    set(headers, "x-remote-user", &peer.user)?;
    for group in &peer.groups {
        headers.append("x-remote-group", HeaderValue::from_str(group)?);
    }
    set(headers, "client-cert", &peer.client_cert)?;
    set(headers, "x-addon-signer-cluster", peer.identity.cluster.as_str())?;
    set(headers, "x-addon-signer-addon", peer.identity.addon.as_str())?;
    set(headers, "x-addon-signer-agent", peer.identity.agent.as_str())?;
    set(headers, "x-addon-signer-signer", &peer.signer.name)
}

/// Sets a header that only the gateway may set: [`strip_request`] must remove it from a client's request.
fn set(headers: &mut HeaderMap, name: &'static str, value: &str) -> Result<(), InvalidHeaderValue> {
    let name = HeaderName::from_static(name);
    debug_assert!(claims(&name), "a client could set {name}");
    headers.insert(name, HeaderValue::from_str(value)?);
    Ok(())
}

/// Sets the headers that say where the request came from.
///
/// # Errors
/// As for [`set_identity`], none in practice.
pub fn set_forwarded(
    headers: &mut HeaderMap,
    client: IpAddr,
    host: Option<HeaderValue>,
) -> Result<(), InvalidHeaderValue> {
    set(headers, "x-forwarded-for", &client.to_string())?;
    set(headers, "x-forwarded-proto", "https")?;
    if let Some(host) = host {
        headers.insert("x-forwarded-host", host);
    }
    Ok(())
}

/// Whether `host`, with or without a port, is one of the gateway's names. A client can write anything there, and
/// backends build links from it.
pub fn is_one_of(host: &HeaderValue, names: &[String]) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = port.map_or(host, |(name, _)| name);
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_claim_an_identity_are_stripped_in_any_spelling() {
        let mut headers = HeaderMap::new();
        for name in [
            "X-Remote-User",
            "x_remote_user",
            "X-Remote_Group",
            "X-Remote-Extra-Scopes",
            "x-remote-uid",
            "Client-Cert",
            "client_cert",
            "Client-Cert-Chain",
            "X-Addon-Signer-Cluster",
            "x_addon_signer_agent",
            "X-Forwarded-Client-Cert",
            "x_forwarded_client_cert",
            "X.Remote.User",
            "x~remote+group",
            "client!cert",
            "x.addon-signer_cluster",
            "x.forwarded.for",
            "x'real`ip",
            "X-Forwarded-For",
            "Forwarded",
            "X-Real-IP",
            "Host",
            "Content-Length",
            "Expect",
        ] {
            headers.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("x"));
        }
        headers.insert("x-request-id", HeaderValue::from_static("kept"));
        headers.insert("authorization", HeaderValue::from_static("kept"));
        strip_request(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["authorization", "x-request-id"]);
    }

    #[test]
    fn method_and_path_overrides_are_stripped_in_any_spelling() {
        let mut headers = HeaderMap::new();
        for name in [
            "X-HTTP-Method-Override",
            "x_http_method_override",
            "X-HTTP-Method",
            "X-Method-Override",
            "X-Method_Override",
            "X-Original-Method",
            "X-Original-URL",
            "x_original_url",
            "X-Original-URI",
            "X-Rewrite-URL",
            "X-Envoy-Original-Path",
            "X-Script-Name",
            "X-Forwarded-Prefix",
            "X-Forwarded-Uri",
            "X-Forwarded-Path",
            "X-Forwarded-Method",
            "x_forwarded_prefix",
            "X.HTTP.Method.Override",
            "x|original^url",
        ] {
            headers.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("/admin"));
        }
        headers.insert("x-original", HeaderValue::from_static("kept"));
        strip_request(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-original"]);
    }

    #[test]
    fn only_a_name_of_the_gateway_is_passed_on_as_its_host() {
        let names = ["gateway.example", "192.0.2.7", "2001:db8::7"].map(str::to_owned);
        for (host, is_ours) in [
            ("gateway.example", true),
            ("Gateway.Example:8443", true),
            ("192.0.2.7:8443", true),
            ("[2001:db8::7]:8443", true),
            ("[2001:db8::7]", true),
            ("evil.example", false),
            ("gateway.example.evil.example", false),
            ("gateway.example:8443@evil.example", false),
            ("evil.example/gateway.example", false),
            ("", false),
        ] {
            assert_eq!(is_one_of(&HeaderValue::from_static(host), &names), is_ours, "{host}");
        }
    }

    #[test]
    fn hop_by_hop_and_connection_listed_headers_are_stripped() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static("keep-alive, X-Secret"));
        headers.append(CONNECTION, HeaderValue::from_static("x-other"));
        for name in ["x-secret", "x-other", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        headers.insert("content-type", HeaderValue::from_static("kept"));
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["content-type"]);
    }
}
