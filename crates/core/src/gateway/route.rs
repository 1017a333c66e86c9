//! A route that is in effect: which requests of which agents go to which backend, within which limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use rustls_pki_types::CertificateDer;

use super::host::Host;
use super::path::PathPattern;
use crate::identity::{AddOnName, ClusterName};
use crate::timestamp::Timestamp;

/// The name of an AddOnRoute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteName {
    /// `metadata.namespace`, which is also the backend's.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Display for RouteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The protocol that a backend speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 or HTTP/2 over TLS, whichever the backend chooses (ALPN, RFC 7301).
    Https,
    /// HTTP/2 without TLS (RFC 9113 section 3.3, "prior knowledge").
    H2c,
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/1.1 over TLS: `kubernetes.io/wss` means that, because WebSockets begin with HTTP/1.1.
    Wss,
}

impl Protocol {
    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::H2 | Self::Wss)
    }

    /// Whether only HTTP/2 is spoken.
    #[must_use]
    pub fn is_h2(self) -> bool {
        matches!(self, Self::H2c | Self::H2)
    }
}

/// As AddOnRoutes write it.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Https | Self::Wss => "HTTPS",
            Self::H2c => "H2C",
            Self::H2 => "H2",
        })
    }
}

/// How a backend that speaks TLS proves its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendTls {
    /// The CA certificates of which one must have signed the backend's.
    pub anchors: BackendAnchors,
    /// The name that the backend's certificate must have.
    pub server_name: String,
    /// Whether the gateway shows its client certificate.
    pub client_certificate: bool,
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// The value of `Host` or `:authority`, such as `receive.observability.svc:19291`.
    pub authority: String,
    /// The addresses to connect to: one of them for each connection, in turn.
    pub addresses: Vec<SocketAddr>,
    /// Whether the administrator has named the address (`--backend-addresses`), so that it may be one that the
    /// endpoints of a Service may not have.
    pub is_by_address: bool,
    /// The protocol.
    pub protocol: Protocol,
    /// Present exactly if the protocol is one over TLS.
    pub tls: Option<BackendTls>,
}

/// What requests of a route may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteLimits {
    /// The largest request body, in bytes.
    pub max_body: u64,
    /// The longest time to connect to the backend, TLS included.
    pub connect: Duration,
    /// The longest time until the backend's response begins. It starts again with each piece of the request.
    pub first_byte: Duration,
    /// The longest time between two pieces of a body or of an upgraded connection.
    pub idle: Duration,
    /// The most requests at a time of one addon on one cluster.
    pub requests_per_identity: Option<usize>,
}

/// The clusters whose agents may send requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clusters {
    /// All clusters.
    All,
    /// Those with these names.
    Names(BTreeSet<ClusterName>),
    /// Those in these ManagedClusterSets.
    Sets(BTreeSet<String>),
}

impl Clusters {
    /// Whether agents of the cluster may come. `set` is the ManagedClusterSet of the cluster.
    #[must_use]
    pub fn admit(&self, cluster: &ClusterName, set: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) => names.contains(cluster),
            Self::Sets(sets) => set.is_some_and(|set| sets.contains(set)),
        }
    }
}

/// One path of an AddOnRoute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The AddOnRoute.
    pub name: RouteName,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// The addons whose agents may send requests. This and the next two are shared by all paths of the AddOnRoute: it
    /// may name a thousand clusters.
    pub addons: Arc<BTreeSet<AddOnName>>,
    /// The clusters whose agents may send requests.
    pub clusters: Arc<Clusters>,
    /// The names at which the route is; empty for all names of the gateway that the signer's agents may use.
    pub hostnames: Arc<BTreeSet<Host>>,
    /// The paths.
    pub path: PathPattern,
    /// The allowed methods, in upper case.
    pub methods: BTreeSet<String>,
    /// Whether a DELETE may have content.
    pub delete_with_content: bool,
    /// Where requests go, or why they go nowhere: one sentence for the caller, without a period.
    pub backend: Result<Arc<Backend>, String>,
    /// What requests may take.
    pub limits: RouteLimits,
}

impl Route {
    /// Whether requests of either route may be taken for requests of the other: they go to the same backend, and may do
    /// the same there.
    fn is_interchangeable_with(&self, other: &Self) -> bool {
        self.name == other.name
            && self.methods == other.methods
            && self.delete_with_content == other.delete_with_content
            && !self.path.names_cluster()
            && !other.path.names_cluster()
    }

    /// Whether requests that match this route as written pass, although some backend could take them for requests of
    /// `other`: a younger route of another namespace must not stop an older one, wherever both lead (`docs/paths.md`,
    /// rule 2).
    pub(super) fn need_not_heed(&self, other: &Self) -> bool {
        self.is_interchangeable_with(other) || self.is_older_of_others(other)
    }

    /// Whether it is older than a route of another namespace.
    pub(super) fn is_older_of_others(&self, other: &Self) -> bool {
        self.name.namespace != other.name.namespace && (self.created, &self.name) < (other.created, &other.name)
    }

    /// What decides between routes for the same request: the longer path, then the older AddOnRoute, then its name.
    pub(super) fn precedence(&self) -> impl Ord + use<'_> {
        (std::cmp::Reverse(self.path.length()), self.created, &self.name)
    }
}

/// All routes in effect, and which AddOnSigners' agents may use which name of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// Whether it has all routes that exist.
    is_complete: bool,
    routes: BTreeMap<String, BTreeMap<AddOnName, Vec<Arc<Route>>>>,
    /// The host names that only some agents may use, with the AddOnSigners of these agents.
    reserved: BTreeMap<Host, BTreeSet<String>>,
}

impl RouteTable {
    /// A complete table without routes, for these AddOnSigners. The default one is not complete yet.
    pub fn of_signers<'s>(signers: impl IntoIterator<Item = &'s str>) -> Self {
        let routes = signers.into_iter().map(|signer| (signer.to_owned(), BTreeMap::new())).collect();
        Self { is_complete: true, routes, ..Self::default() }
    }

    /// Whether it has all routes that exist.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Notes that some routes of an AddOnSigner were not read yet.
    pub fn forget(&mut self, signer: &str) {
        self.routes.remove(signer);
    }

    /// Whether it has all routes of an AddOnSigner. It has none yet when only the CA of a new AddOnSigner is known.
    #[must_use]
    pub fn knows(&self, signer: &str) -> bool {
        self.routes.contains_key(signer)
    }

    /// Adds a route of an AddOnSigner, for each of its addons.
    pub fn add(&mut self, signer: &str, route: &Arc<Route>) {
        for addon in &*route.addons {
            let known = self.routes.entry(signer.to_owned()).or_default().entry(addon.clone()).or_default();
            let at = known.partition_point(|other| other.precedence() <= route.precedence());
            known.insert(at, Arc::clone(route));
        }
    }

    /// Reserves a host name for the agents of an AddOnSigner. Several may share it.
    pub fn reserve_host(&mut self, hostname: &Host, signer: &str) {
        self.reserved.entry(hostname.clone()).or_default().insert(signer.to_owned());
    }

    /// Whether agents of the AddOnSigner may use a host name of the gateway.
    #[must_use]
    pub fn may_use(&self, hostname: &Host, signer: &str) -> bool {
        self.reserved.get(hostname).is_none_or(|signers| signers.contains(signer))
    }

    /// The routes of an addon of an AddOnSigner; of two for the same request, the first one decides.
    #[must_use]
    pub fn of(&self, signer: &str, addon: &AddOnName) -> &[Arc<Route>] {
        self.routes.get(signer).and_then(|addons| addons.get(addon)).map_or(&[], Vec::as_slice)
    }

    /// The AddOnRoutes that have a path in it.
    pub fn names(&self) -> impl Iterator<Item = &RouteName> {
        self.routes.values().flat_map(BTreeMap::values).flatten().map(|route| &route.name)
    }

    /// The addons that have routes, with the AddOnRoute of each path.
    pub fn of_addons(&self) -> impl Iterator<Item = (&AddOnName, &RouteName)> {
        let addons = self.routes.values().flatten();
        addons.flat_map(|(addon, routes)| routes.iter().map(move |route| (addon, &route.name)))
    }

    /// The backend of each AddOnRoute in it that has one.
    #[must_use]
    pub fn backends_by_name(&self) -> BTreeMap<RouteName, Arc<Backend>> {
        let routes = self.routes.values().flat_map(BTreeMap::values).flatten();
        routes.filter_map(|route| Some((route.name.clone(), Arc::clone(route.backend.as_ref().ok()?)))).collect()
    }

    /// All backends.
    pub fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        let routes = self.routes.values().flat_map(BTreeMap::values).flatten();
        routes.filter_map(|route| route.backend.as_ref().ok())
    }
}

/// The CA certificates of which one must have signed a backend's. Owners of AddOnRoutes choose their size, and each
/// request compares backends: so copies share them, and only their digests are compared.
#[derive(Debug, Clone)]
pub struct BackendAnchors {
    certificates: Arc<[CertificateDer<'static>]>,
    digest: Vec<u8>,
}

impl From<Vec<CertificateDer<'static>>> for BackendAnchors {
    fn from(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut digest = Context::new(&SHA256);
        for certificate in &certificates {
            digest.update(&certificate.len().to_be_bytes());
            digest.update(certificate);
        }
        Self { certificates: certificates.into(), digest: digest.finish().as_ref().to_vec() }
    }
}

impl Default for BackendAnchors {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl PartialEq for BackendAnchors {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for BackendAnchors {}

impl Deref for BackendAnchors {
    type Target = [CertificateDer<'static>];

    fn deref(&self) -> &Self::Target {
        &self.certificates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(certificates: &[&[u8]]) -> BackendAnchors {
        certificates.iter().map(|der| CertificateDer::from(der.to_vec())).collect::<Vec<_>>().into()
    }

    #[test]
    fn anchors_are_the_same_if_their_certificates_are() {
        assert_eq!(mk(&[b"a", b"b"]), mk(&[b"a", b"b"]));
        for other in [mk(&[b"ab"]), mk(&[b"b", b"a"]), mk(&[b"a"]), BackendAnchors::default()] {
            assert_ne!(mk(&[b"a", b"b"]), other);
        }
    }
}
