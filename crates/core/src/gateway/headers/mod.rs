//! Decides which headers of requests and responses cross the gateway. Pure functions; [`rules`] has the table.

pub mod answer;
pub mod rules;

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use ring::digest;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName, X509Name};

use super::route::RouteName;
use crate::identity::PeerIdentity;

/// Headers that apply to one connection only (RFC 9110 section 7.6.1).
static HOP_BY_HOP: [HeaderName; 9] = [
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

/// Removes headers that apply to one connection only, including those that `Connection` lists.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    strip(headers, |name| HOP_BY_HOP.contains(name));
}

/// Removes the same from the head of a response, except `Trailer`: HTTP/1.1 sends only trailers that it has announced.
pub fn strip_answer(headers: &mut HeaderMap) {
    strip(headers, |name| name != TRAILER && HOP_BY_HOP.contains(name));
}

/// Removes what the trailers of a response may not have: a length, too, which would be the second one (RFC 9110 section
/// 6.5.1).
pub fn strip_answer_trailers(trailers: &mut HeaderMap) {
    strip(trailers, |name| name == CONTENT_LENGTH || HOP_BY_HOP.contains(name));
    answer::trim(trailers);
}

/// Removes the headers of a client's request that must not reach the backend, or of its trailers: those of the
/// connection, and those that claim an identity or override the method or the path.
pub fn strip_request(headers: &mut HeaderMap) {
    strip(headers, |name| rules::is_removed(name.as_str())); // the rules have those of HOP_BY_HOP too
}

/// Removes the headers that `Connection` lists, and those that `is_removed` names.
fn strip(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed = listed.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok());
    let removed: Vec<HeaderName> = listed.chain(headers.keys().filter(|name| is_removed(name)).cloned()).collect();
    for name in removed {
        headers.remove(name);
    }
}

/// The headers that identify the client to a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityHeaders(Vec<(HeaderName, HeaderValue)>);

/// The content of these headers.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionHeaders<'n> {
    /// Cluster, addon and agent.
    pub identity: &'n PeerIdentity,
    /// The common name.
    pub user: &'n str,
    /// The organizations.
    pub groups: &'n [String],
    /// The AddOnSigner.
    pub signer: &'n str,
}

impl IdentityHeaders {
    /// The headers of the aggregation layer, of RFC 9440, of Envoy, and our own, made once for each connection.
    ///
    /// # Errors
    /// A header cannot have a name or the subject. That does not happen, because conventions are printable ASCII.
    pub fn new(
        named: &ConnectionHeaders<'_>,
        der: &[u8],
        certificate: &X509Certificate<'_>,
    ) -> Result<Self, InvalidHeaderValue> {
        let ConnectionHeaders { identity, user, groups, signer } = *named;
        let mut headers = Self::default();
        headers.add("x-remote-user", user)?;
        for group in groups {
            headers.add("x-remote-group", group)?;
        }
        // RFC 9440 section 2.1: base64 between colons.
        headers.add("client-cert", &format!(":{}:", data_encoding::BASE64.encode(der)))?;
        headers.add("x-forwarded-client-cert", &forwarded_client_cert(der, certificate))?;
        headers.add("x-addon-signer-cluster", identity.cluster.as_str())?;
        headers.add("x-addon-signer-addon", identity.addon.as_str())?;
        headers.add("x-addon-signer-agent", identity.agent.as_str())?;
        headers.add("x-addon-signer-signer", signer)?;
        Ok(headers)
    }

    fn add(&mut self, name: &'static str, value: &str) -> Result<(), InvalidHeaderValue> {
        self.0.push((own(name), HeaderValue::from_str(value)?));
        Ok(())
    }

    /// Adds them, and the route, to a request from which [`strip_request`] has removed the client's.
    ///
    /// # Errors
    /// A header cannot have the name of the route. Kubernetes has no such names.
    pub fn set(&self, route: &RouteName, headers: &mut HeaderMap) -> Result<(), InvalidHeaderValue> {
        for (name, value) in &self.0 {
            headers.append(name.clone(), value.clone());
        }
        let route = [&route.namespace, "/", &route.name].concat(); // as it is displayed, but quicker
        headers.insert(own("x-addon-signer-route"), HeaderValue::try_from(route)?);
        Ok(())
    }
}

/// The name of a header that only the gateway may set: [`strip_request`] must remove it from a client's request.
fn own(name: &'static str) -> HeaderName {
    debug_assert!(rules::is_removed(name), "a client could set {name}");
    HeaderName::from_static(name)
}

/// One element of Envoy's header (Envoy, "x-forwarded-client-cert"): the SHA-256 of the certificate, its subject as RFC
/// 2253 writes it, its DNS names.
fn forwarded_client_cert(der: &[u8], certificate: &X509Certificate<'_>) -> String {
    let hash = data_encoding::HEXLOWER.encode(digest::digest(&digest::SHA256, der).as_ref());
    let subject = rfc2253(certificate.subject()).replace('\\', "\\\\").replace('"', "\\\"");
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(format!(";DNS={name}")),
        _ => None,
    });
    format!("Hash={hash};Subject=\"{subject}\"{}", names.collect::<String>())
}

/// The last part first, parts of one set joined by `+`.
fn rfc2253(name: &X509Name<'_>) -> String {
    let parts: Vec<&RelativeDistinguishedName<'_>> = name.iter().collect();
    let part = |part: &&RelativeDistinguishedName<'_>| part.iter().map(attribute).collect::<Vec<_>>().join("+");
    parts.iter().rev().map(part).collect::<Vec<_>>().join(",")
}

/// A certificate that is an identity has only these kinds.
fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let kind = match attribute.attr_type().to_id_string().as_str() {
        "2.5.4.3" => "CN".to_owned(),
        "2.5.4.10" => "O".to_owned(),
        "2.5.4.11" => "OU".to_owned(),
        other => other.to_owned(),
    };
    let value = attribute.as_str().unwrap_or_default();
    let escaped = value.chars().map(|char| match char {
        ',' | '+' | '"' | '\\' | '<' | '>' | ';' => format!("\\{char}"),
        plain => plain.to_string(),
    });
    format!("{kind}={}", escaped.collect::<String>())
}

/// The value of the header with the address from which a connection's requests come.
#[must_use]
pub fn forwarded_for(client: IpAddr) -> HeaderValue {
    // An address is a header's value, so the alternative, which is RFC 7239's, does not happen.
    HeaderValue::try_from(client.to_string()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// Sets the headers with the origin of the request, [`forwarded_for`], and with the host that it is for.
pub fn set_forwarded(headers: &mut HeaderMap, client: HeaderValue, host: HeaderValue) {
    headers.insert(own("x-forwarded-for"), client);
    headers.insert(own("x-forwarded-proto"), HeaderValue::from_static("https"));
    headers.insert(own("x-forwarded-host"), host);
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

    /// The headers that the products read, according to their documentation.
    const IDENTITIES: &[&str] = &[
        "Remote-User",
        "Remote-Groups",
        "Remote-Email",
        "X-WebAuth-User",
        "X-Auth-Request-User",
        "X-Auth-Request-Preferred-Username",
        "X-Forwarded-User",
        "X-Forwarded-Tls-Client-Cert-Info",
        "X-Forwarded",
        "X-User",
        "X-User-Id",
        "X-Auth-CouchDB-UserName",
        "X-Authenticated-Userid",
        "X-Consumer-Username",
        "X-Proxy-Roles",
        "X-Goog-Authenticated-User-Email",
        "X-MS-CLIENT-PRINCIPAL",
        "X-MS-CLIENT-PRINCIPAL-NAME",
        "X-Amzn-Oidc-Identity",
        "Cf-Access-Authenticated-User-Email",
        "Tailscale-User-Login",
        "Kubeflow-Userid",
        "X-Rh-Identity",
        "OIDC_CLAIM_sub",
        "SM_USER",
        "iv-user",
        "X-SSL-Client-Verify",
        "X-SSL-Cert",
        "SSL-Client-Cert",
        "ssl-client-subject-dn",
        "X-Client-Cert",
        "X-Client-Certificate",
        "X-Client-Verify",
        "X-Client-DN",
        "X-Amzn-Mtls-Clientcert-Leaf",
        "X-ARR-ClientCert",
        "WL-Proxy-Client-Cert",
        "L5d-Client-Id",
        "CF-Connecting-IP",
        "CF-Connecting-IPv6",
        "Client-IP",
        "Proxy",
    ];

    #[test]
    fn headers_that_other_proxies_set_are_stripped_as_folded() {
        for name in IDENTITIES {
            for between in ["-", "_", "."] {
                let name = name.to_uppercase().replace(['-', '_'], between);
                for name in [format!("HTTP{between}{name}"), name] {
                    let mut headers = HeaderMap::new();
                    headers.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("root"));
                    strip_request(&mut headers);
                    assert!(headers.is_empty(), "{name}");
                }
            }
        }
    }

    #[test]
    fn headers_that_only_resemble_an_identity_are_passed_on() {
        for name in [
            "x-auth-token",
            "x-auth-key",
            "x-user-agent",
            "x-client-version",
            "x-client-request-id",
            "x-ms-version",
            "x-amz-date",
            "x-goog-api-key",
            "x-vault-token",
            "cf-access-client-id",
            "http-referer",
            "http2-settings",
            "proxying",
            "remote",
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("kept"));
            strip_request(&mut headers);
            assert_eq!(headers.len(), 1, "{name}");
        }
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
            "SCRIPT_NAME",
            "Path-Info",
            "HTTP_REQUEST_URI",
            "X-Accel-Mapping",
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

    #[test]
    fn each_header_is_treated_as_its_row_says() {
        for rule in rules::REQUEST_HEADERS {
            let name = rule.name.replace('*', "x");
            for spelling in [name.clone(), name.to_uppercase(), name.replace('-', "_")] {
                let mut headers = HeaderMap::new();
                headers.insert(spelling.parse::<HeaderName>().unwrap(), HeaderValue::from_static("x"));
                strip_request(&mut headers);
                let is_passed = rule.treatment == rules::Treatment::Passed;
                assert_eq!(headers.is_empty(), !is_passed, "{spelling}");
            }
        }
    }

    #[test]
    fn the_header_of_envoy_has_the_subject_as_openssl_writes_it() {
        let mut params = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "o,1");
        params.distinguished_name.push(rcgen::DnType::CommonName, "cn \"x\"");
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der()).unwrap();
        let header = forwarded_client_cert(certificate.der(), &parsed);
        let (hash, rest) = header.split_once(';').unwrap();
        assert_eq!(hash.len(), "Hash=".len() + 64);
        assert_eq!(rest, r#"Subject="CN=cn \\\"x\\\",O=o\\,1";DNS=a.example"#);
    }
}
