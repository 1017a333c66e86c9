//! The table of request headers: which of the client's the gateway removes, which it sets, and why.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use http::header::HeaderMap;

/// What the gateway does with a header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The client's is removed.
    Removed,
    /// The client's is removed, and the gateway sets its own.
    Set,
    /// The client's is passed on.
    Passed,
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderRule {
    /// In lower case; a `*` at the end stands for any end.
    pub name: &'static str,
    /// What happens.
    pub treatment: Treatment,
    /// Why.
    pub why: &'static str,
}

const fn removed(name: &'static str, why: &'static str) -> HeaderRule {
    HeaderRule { name, treatment: Treatment::Removed, why }
}

const fn set(name: &'static str, why: &'static str) -> HeaderRule {
    HeaderRule { name, treatment: Treatment::Set, why }
}

const fn passed(name: &'static str, why: &'static str) -> HeaderRule {
    HeaderRule { name, treatment: Treatment::Passed, why }
}

/// A name that the owner of a backend may want to set.
const fn login(name: &'static str) -> HeaderRule {
    removed(name, LOGIN)
}

const IDENTITY: &str = "an identity, as Kubernetes' aggregation layer writes it";
const CERTIFICATE: &str = "the client's certificate (RFC 9440)";
const PROXY: &str = "an identity or an address by convention of proxies";
const LOGIN: &str = "a login name by convention of proxies; no route can set it yet";
const FORWARDED_CERTIFICATE: &str = "a client certificate by convention of proxies";
const ADDRESS: &str = "a client's address by convention of proxies";
const METHOD: &str = "some backends use it instead of the method, which the gateway has checked";
const PATH: &str = "some backends use it instead of the path, which the gateway has checked";
const HOST: &str = "some backends use it instead of the host, which the gateway has checked";
const CGI: &str = "a variable of CGI (RFC 3875 section 4.1), which some servers take from headers";
const HOP: &str = "of one connection only (RFC 9110 section 7.6.1)";
const CREDENTIAL: &str = "a credential of the addon's own, which the gateway does not look at";
const TRACE: &str = "trace context (W3C, Zipkin), which claims nothing";

/// Every header that the gateway does not simply pass on, and others that a reader may expect here. In the names of
/// those that are removed or set, everything except letters and digits counts as `-`: CGI, WSGI and nginx map `-` and
/// `_` to the same variable, PHP also `.` and others. A leading `HTTP_` does not count: CGI's variables have it, so
/// programs that know these look for a header of that name too.
pub static REQUEST_HEADERS: &[HeaderRule] = &[
    set("x-remote-user", IDENTITY),
    set("x-remote-group", IDENTITY),
    removed("x-remote-*", IDENTITY),
    set("client-cert", CERTIFICATE),
    removed("client-cert-chain", CERTIFICATE),
    set("x-forwarded-client-cert", "the client's certificate, as Envoy writes it: Hash, Subject, DNS"),
    set("x-addon-signer-cluster", "the cluster of the client"),
    set("x-addon-signer-addon", "the addon of the client"),
    set("x-addon-signer-agent", "the agent of the client"),
    set("x-addon-signer-signer", "the AddOnSigner whose CA signed the certificate"),
    set("x-addon-signer-route", "the AddOnRoute that brought the request, as namespace/name"),
    removed("x-addon-signer-*", "kept for more of them"),
    set("x-forwarded-for", "the client's address"),
    set("x-forwarded-proto", "https"),
    set("x-forwarded-host", "the host name that the client called"),
    removed("x-forwarded-*", PROXY),
    removed("x-forwarded", PROXY),
    removed("forwarded", PROXY),
    removed("forwarded-for", ADDRESS),
    removed("x-real-ip", ADDRESS),
    removed("client-ip", ADDRESS),
    removed("x-client-ip", ADDRESS),
    removed("x-cluster-client-ip", ADDRESS),
    removed("true-client-ip", ADDRESS),
    removed("x-originating-ip", ADDRESS),
    removed("x-original-forwarded-for", ADDRESS), // ingress-nginx
    removed("x-proxyuser-ip", ADDRESS),           // Google
    removed("proxy-client-ip", ADDRESS),          // WebLogic
    removed("cf-connecting-*", ADDRESS),          // Cloudflare
    removed("cf-pseudo-ipv4", ADDRESS),
    removed("fastly-client-ip", ADDRESS),
    removed("fly-client-ip", ADDRESS),
    removed("do-connecting-ip", ADDRESS), // DigitalOcean
    removed("x-azure-clientip", ADDRESS),
    removed("x-azure-socketip", ADDRESS),
    removed("x-appengine-*", PROXY),
    removed("wl-proxy-*", PROXY), // WebLogic: address and certificate
    removed("proxy", "CGI makes HTTP_PROXY of it, which some programs take for their own proxy (CVE-2016-5385)"),
    removed("ssl-client-*", FORWARDED_CERTIFICATE), // ingress-nginx, Apache
    removed("x-ssl-*", FORWARDED_CERTIFICATE),      // HAProxy's and nginx' examples
    removed("tls-client-*", FORWARDED_CERTIFICATE),
    removed("x-tls-client-*", FORWARDED_CERTIFICATE),
    removed("x-client-cert*", FORWARDED_CERTIFICATE), // Puppet, Google's load balancers
    removed("x-client-verify", FORWARDED_CERTIFICATE),
    removed("x-client-dn", FORWARDED_CERTIFICATE),
    removed("x-client-s-dn", FORWARDED_CERTIFICATE),
    removed("x-cert", FORWARDED_CERTIFICATE),
    removed("ssl-cert", FORWARDED_CERTIFICATE),
    removed("ssl-verify", FORWARDED_CERTIFICATE),
    removed("x-client-cn", FORWARDED_CERTIFICATE),
    removed("x-amzn-mtls-*", FORWARDED_CERTIFICATE),
    removed("x-arr-clientcert", FORWARDED_CERTIFICATE), // Azure
    removed("cf-client-cert-*", FORWARDED_CERTIFICATE),
    removed("l5d-client-id", FORWARDED_CERTIFICATE), // Linkerd
    login("remote-*"),                               // Authelia; of Remote-User CGI makes HTTP_REMOTE_USER
    login("x-webauth-*"),                            // Grafana, Gitea
    login("x-auth-request-*"),                       // oauth2-proxy
    login("x-auth-user"),
    login("x-auth-username"),
    login("x-auth-email"),
    login("x-auth-groups"),
    login("x-auth-roles"),
    login("x-auth-couchdb-*"),
    login("x-authenticated-*"), // Kong
    login("x-consumer-*"),
    login("x-credential-*"),
    login("x-user"),
    login("x-username"),
    login("x-user-id"), // OpenStack's services
    login("x-user-name"),
    login("x-user-email"),
    login("x-user-groups"),
    login("x-user-roles"),
    login("x-userinfo"), // APISIX, Kong
    login("x-id-token"),
    login("x-jwt-assertion"), // WSO2
    login("x-email"),
    login("x-groups"),
    login("x-roles"),
    login("x-identity-status"),
    login("x-proxy-*"), // OpenSearch
    login("x-sso-*"),   // Nexus
    login("x-authentik-*"),
    login("x-pomerium-*"),
    login("x-vouch-*"),
    login("tailscale-user-*"),
    login("kubeflow-userid"),
    login("kubeflow-groups"),
    login("x-rh-identity"),           // Red Hat
    login("x-endpoint-api-userinfo"), // Google's API gateways
    login("x-apigateway-api-userinfo"),
    login("x-goog-authenticated-user-*"),
    login("x-goog-iap-jwt-assertion"),
    login("x-amzn-oidc-*"),
    login("x-ms-client-principal*"),
    login("cf-access-authenticated-user-*"),
    login("cf-access-jwt-assertion"),
    login("oidc-*"),   // mod_auth_openidc
    login("mellon-*"), // mod_auth_mellon
    login("shib-*"),   // Shibboleth
    login("sm-user*"), // SiteMinder
    login("iv-user*"), // WebSEAL
    login("iv-groups"),
    login("iv-creds*"),
    login("oam-*"),                            // Oracle
    removed("x-http-method-override", METHOD), // Rails, Symfony, Express' method-override, Google's APIs
    removed("x-http-method", METHOD),          // Microsoft's OData
    removed("x-method-override", METHOD),
    removed("x-method", METHOD),
    removed("x-original-method", METHOD), // nginx' auth_request, Traefik's and oauth2-proxy's convention
    removed("x-original-url", PATH),      // IIS, Symfony, Zend
    removed("x-original-uri", PATH),
    removed("x-original-path", PATH),
    removed("x-original-host", HOST),
    removed("x-rewrite-url", PATH), // IIS
    removed("x-rewrite-uri", PATH),
    removed("x-rewrite-path", PATH),
    removed("x-request-uri", PATH),
    removed("x-envoy-*", "what Envoy tells its backends, such as the original path"),
    removed("x-script-name", PATH), // the prefix of a WSGI application
    removed("x-accel-mapping", "Rack maps the paths of files with it that it lets a proxy send"),
    removed("x-sendfile-type", "Rack lets a proxy send files if it says so"),
    removed("script-name", CGI), // gunicorn takes the prefix of the application from it
    removed("path-info", CGI),
    removed("path-translated", CGI),
    removed("query-string", CGI),
    removed("request-method", CGI),
    removed("request-scheme", CGI),
    removed("request-uri", CGI),
    removed("script-filename", CGI),
    removed("script-url", CGI),
    removed("document-root", CGI),
    removed("document-uri", CGI),
    removed("server-name", CGI),
    removed("server-port*", CGI),
    removed("server-protocol", CGI),
    removed("server-software", CGI),
    removed("gateway-interface", CGI),
    removed("auth-type", CGI),
    removed("auth-user", CGI),
    removed("auth-password", CGI),
    removed("https", CGI),
    removed("redirect-*", CGI), // Apache
    removed("x-host", HOST),
    set("host", "the backend's own name"),
    set("content-length", "the length of what is passed on"),
    removed("expect", "the gateway answers it"),
    removed("connection", "of one connection only; set anew for HTTP/1.1, as the request needs it"),
    removed("proxy-connection", HOP),
    removed("keep-alive", HOP),
    removed("proxy-authenticate", HOP),
    removed("proxy-authorization", HOP),
    removed("te", "of one connection only; `trailers` alone is set again"),
    removed("trailer", "of one connection only; set again, because HTTP/1.1 sends only announced trailers"),
    removed("transfer-encoding", HOP),
    removed("upgrade", "of one connection only; set again for a protocol that is passed on, such as websocket"),
    passed("x-scope-orgid", "the agent's choice of a tenant (Mimir, Loki), which the gateway does not check"),
    passed("authorization", CREDENTIAL),
    passed("cookie", CREDENTIAL),
    passed("traceparent", TRACE),
    passed("tracestate", TRACE),
    passed("baggage", TRACE),
    passed("b3", TRACE),
    passed("grpc-timeout", "the deadline of a gRPC request"),
    passed("impersonate-user", "honored by an aggregated API server only for clients with the right to impersonate"),
];

/// Whether the client's header of this name is removed.
pub(super) fn is_removed(name: &str) -> bool {
    // Names of headers have lower case already.
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return is_listed(name);
    }
    is_listed(&name.replace(|byte: char| !byte.is_ascii_alphanumeric(), "-"))
}

fn is_listed(name: &str) -> bool {
    let name = name.strip_prefix("http-").unwrap_or(name);
    REMOVED.names.contains(name) || REMOVED.prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// What the table removes, arranged for lookups, which happen for each header of each request.
struct Removed {
    names: BTreeSet<&'static str>,
    prefixes: Vec<&'static str>,
}

static REMOVED: LazyLock<Removed> = LazyLock::new(|| {
    let names = REQUEST_HEADERS.iter().filter(|rule| rule.treatment != Treatment::Passed).map(|rule| rule.name);
    Removed { prefixes: names.clone().filter_map(|name| name.strip_suffix('*')).collect(), names: names.collect() }
});

/// The trace that a request belongs to: the trace-id of the one valid `traceparent`, 32 hexadecimal digits
/// (<https://www.w3.org/TR/trace-context/#traceparent-header>).
#[must_use]
pub fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all("traceparent").iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let mut parts = field.to_str().ok()?.split('-'); // what is no text is not valid
    let [version, trace, parent, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    // Later versions may have more parts; ff is none (section 3.2.2.1).
    let is_known = version != "ff" && (version != "00" || parts.next().is_none());
    let is_hex = |part: &str| part.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let is_hex = [(version, 2), (trace, 32), (parent, 16), (flags, 2)]
        .iter()
        .all(|(part, length)| part.len() == *length && is_hex(part));
    let is_set = [trace, parent].iter().all(|id| id.bytes().any(|digit| digit != b'0'));
    (is_known && is_hex && is_set).then_some(trace)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn mk_headers(fields: &[&str]) -> HeaderMap {
        let name = http::HeaderName::from_static("traceparent");
        fields.iter().map(|field| (name.clone(), HeaderValue::from_str(field).unwrap())).collect()
    }

    #[test]
    fn a_trace_is_read_from_a_valid_header_only() {
        let read = |field: &str| trace_id(&mk_headers(&[field])).map(str::to_owned);
        let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
        assert_eq!(read(&valid), Some(TRACE.to_owned()));
        assert_eq!(read(&format!("cc-{TRACE}-00f067aa0ba902b7-01-what")), Some(TRACE.to_owned()));
        for wrong in [
            String::new(),
            TRACE.to_owned(),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-what"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}0-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
        ] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
        assert_eq!(trace_id(&mk_headers(&[&valid, &valid])), None, "nobody knows which one");
        assert_eq!(trace_id(&HeaderMap::new()), None);
    }
}
