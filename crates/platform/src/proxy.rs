//! TCP connections, through an HTTP proxy where one is set. OCM's addon-manager sets `HTTPS_PROXY` and `NO_PROXY` in
//! the pods of clusters that can reach the hub only this way (ocm, `pkg/addon/templateagent/decorator.go`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt};

use crate::errors::explain;

/// The variables that name the proxy and the addresses that need none; lower case works too.
const PROXY: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The proxy cannot be used. Its URL may contain a password, so the error does not show it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the proxy that {0} names cannot be used; write http://[USER:PASSWORD@]HOST:PORT")]
pub struct ProxyError(&'static str);

/// What `*` in `NO_PROXY` means; the matcher takes it for all names only.
const ALL: &str = "*,0.0.0.0/0,::/0";

/// Stands for a proxy that cannot be used: connections through it are refused.
const UNUSABLE: &str = "http://unusable.invalid";

/// Makes TCP connections for HTTPS, which a proxy tunnels (`CONNECT`, RFC 9110 section 9.3.6).
#[derive(Debug, Clone)]
pub struct Dialer {
    tcp: HttpConnector,
    proxies: Arc<Matcher>,
    refused: Option<ProxyError>,
}

impl Dialer {
    /// Connects as `HTTPS_PROXY` and `NO_PROXY` require.
    #[must_use]
    pub fn from_env() -> Self {
        Self::new(first(PROXY).as_deref().unwrap_or_default(), &first(NO_PROXY).unwrap_or_default(), PROXY[0])
    }

    /// Connects through the proxy of a kubeconfig, if there is one. kube reads `HTTPS_PROXY` if the kubeconfig names
    /// none; then `NO_PROXY` applies too.
    #[must_use]
    pub fn of_kubeconfig(proxy: Option<&Uri>) -> Self {
        let Some(proxy) = proxy else { return Self::new("", "", PROXY[0]) };
        let is_from_env = first(PROXY).and_then(|text| text.parse::<Uri>().ok()).is_some_and(|uri| uri == *proxy);
        if is_from_env { Self::from_env() } else { Self::new(&proxy.to_string(), "", "proxy-url of the kubeconfig") }
    }

    /// Whether a connection to `to` would need a proxy that cannot be used.
    pub fn check(&self, to: &Uri) -> Result<(), ProxyError> {
        let refused = self.refused.clone().filter(|_| self.proxies.intercept(to).is_some());
        refused.map_or(Ok(()), Err)
    }

    /// The proxy that `HTTPS_PROXY` names, if a connection to `to` needs it and this dialer follows the environment.
    pub(crate) fn proxy_of_env(&self, to: &Uri) -> Result<Option<Uri>, ProxyError> {
        self.check(to)?;
        Ok(self.proxies.intercept(to).and(first(PROXY)).and_then(|proxy| proxy.parse().ok()))
    }

    fn new(proxy: &str, no_proxy: &str, named_by: &'static str) -> Self {
        // Go's programs, OCM's among them, read `*.example.com` as `.example.com` (golang.org/x/net/http/httpproxy).
        let no_proxy: Vec<_> =
            no_proxy.split(',').map(|name| host_of(name.trim()).replace("*.", ".").replace('*', ALL)).collect();
        let any = Matcher::builder().https(proxy).build();
        let used = any.intercept(&Uri::from_static("https://hub.invalid"));
        let is_usable = proxy.is_empty() || used.is_some_and(|proxy| is_usable(proxy.uri()));
        let refused = (!is_usable).then_some(ProxyError(named_by));
        let proxy = if is_usable { proxy } else { UNUSABLE };
        let proxies = Matcher::builder().https(proxy).no(no_proxy.join(",")).build();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false); // the scheme is https
        tcp.set_nodelay(true);
        Self { tcp, proxies: Arc::new(proxies), refused }
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let tcp = self.tcp.clone();
        if let Err(error) = self.check(&to) {
            return Box::pin(async move { Err(error.into()) });
        }
        match self.proxies.intercept(&to) {
            None => Box::pin(async move { Ok(tcp.oneshot(to).await?) }),
            Some(proxy) => Box::pin(async move {
                let host = proxy.uri().authority().map(ToString::to_string).unwrap_or_default();
                let connected = tunnel(tcp, &proxy).oneshot(to).await;
                connected.map_err(|error| format!("the proxy {host} did not connect: {}", explain(&error)).into())
            }),
        }
    }
}

/// Whether this is the URL of an HTTP proxy with nothing but host and port, which errors name. A missing or wrong
/// character in a URL can move a part of the password there.
fn is_usable(uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else { return false };
    let end = authority.as_str().strip_prefix(authority.host());
    let port = end.and_then(|end| end.strip_prefix(':'));
    let is_whole = end == Some("") || port.is_some_and(|port| port.parse::<u16>().is_ok());
    uri.scheme_str() == Some("http") && is_whole && !authority.host().contains(['@', '%'])
}

/// An entry of `NO_PROXY` without brackets and port, which the matcher does not know.
fn host_of(entry: &str) -> &str {
    let parts = entry.rsplit_once(':').filter(|(host, _)| host.ends_with(']') || !host.contains(':'));
    let host = parts.filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(entry, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn tunnel(tcp: HttpConnector, proxy: &Intercept) -> Tunnel<HttpConnector> {
    let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
    match proxy.basic_auth() {
        Some(password) => tunnel.with_auth(password.clone()),
        None => tunnel,
    }
}

fn first(names: [&str; 2]) -> Option<String> {
    names.into_iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_an_http_proxy_can_be_used_and_its_password_is_hidden() {
        let hub = Uri::from_static("https://hub.example:6443");
        for good in ["", "http://proxy:3128", "http://user:secret@proxy:3128/", "proxy:3128"] {
            assert!(Dialer::new(good, "", "HTTPS_PROXY").check(&hub).is_ok(), "{good}");
        }
        for bad in [
            "https://user:secret@proxy",
            "socks5://secret",
            "ftp://secret",
            "::",
            "http://",
            "http://user:se@cret@proxy:3128",
            "http://user:secret",
            "user:secret",
            "http://user%3Asecret%40proxy:3128",
            "http://user:secret@proxy:secret",
            "http:/user:secret@proxy:3128",
            "http://user:se/cret@proxy",
            "http://user:#secret@proxy:3128",
            "http://user:se cret@proxy:3128",
        ] {
            let error = Dialer::new(bad, "", "HTTPS_PROXY").check(&hub).unwrap_err().to_string();
            assert!(error.contains("HTTPS_PROXY"), "{bad}: {error}");
            assert!(!error.contains("secret"), "{bad}: {error}");
            assert_eq!(Dialer::new(bad, ".example", "HTTPS_PROXY").check(&hub), Ok(()), "{bad}: it is not used");
        }
    }

    #[test]
    fn no_proxy_knows_a_star_brackets_and_ports() {
        let is_direct = |no_proxy: &str, to: &str| {
            Dialer::new("http://proxy:3128", no_proxy, "HTTPS_PROXY").proxies.intercept(&to.parse().unwrap()).is_none()
        };
        let all = ["https://10.0.0.1:6443", "https://[::1]:6443", "https://hub.example"];
        for (no_proxy, expected) in [
            ("*", [true, true, true]),
            ("a.example, *", [true, true, true]),
            ("[::1]", [false, true, false]),
            ("[::1]:6443", [false, true, false]),
            ("::1", [false, true, false]),
            ("10.0.0.1:6443", [true, false, false]),
            ("hub.example:443", [false, false, true]),
            ("*.example", [false, false, true]),
            ("::2,10.0.0.2", [false, false, false]),
        ] {
            assert_eq!(all.map(|to| is_direct(no_proxy, to)), expected, "{no_proxy}");
        }
    }

    #[tokio::test]
    async fn a_proxy_is_asked_for_a_tunnel_and_not_for_what_needs_none() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dialer = Dialer::new(&format!("http://user:pw@{address}"), "127.0.0.1", "HTTPS_PROXY");
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let (mut direct, _) = listener.accept().await.unwrap();
            direct.write_all(b"direct").await.unwrap();
            String::from_utf8(head).unwrap()
        });
        dialer.clone().oneshot("https://hub.invalid".parse().unwrap()).await.unwrap();
        let direct = dialer.oneshot(format!("https://{address}").parse().unwrap()).await.unwrap();
        let mut bytes = [0; 6];
        direct.into_inner().read_exact(&mut bytes).await.unwrap();
        let head = asked.await.unwrap();
        assert!(head.starts_with("CONNECT hub.invalid:443 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("Proxy-Authorization: Basic dXNlcjpwdw==\r\n"), "{head}");
        assert_eq!(&bytes, b"direct");
    }
}
