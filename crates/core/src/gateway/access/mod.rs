//! Decides whether a caller may send a request: checks its eligibility, and finds the route of its path and method.

use std::sync::Arc;

use http::Method;

use super::authz::{NotAnIdentity, Peer};
use super::host::Host;
use super::path::{PathBelow, PathError, SafePath};
use super::permits::NoPermit;
use super::route::{Backend, Route, RouteName, RouteTable};
use crate::identity::{AddOnName, ClusterName, PeerIdentity};
use crate::registry::{NotRegistered, Registry};
use crate::timestamp::Timestamp;

/// Why the holder of a client certificate may not send requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotEligible {
    /// The gateway has no configuration in effect.
    #[error("the gateway has no configuration in effect, so it trusts nobody")]
    NothingInEffect,
    /// The certificate is no identity.
    #[error(transparent)]
    NotAnIdentity(#[from] NotAnIdentity),
    /// The addon is not registered on the cluster.
    #[error("{} is not eligible: {cause}", peer.identity)]
    NotRegistered {
        /// The holder of the certificate.
        peer: Arc<Peer>,
        /// Why the addon is not eligible.
        cause: NotRegistered,
    },
    /// The certificate is revoked. The holder may get another one.
    #[error("the certificate of {} is revoked: it begins at {}, earlier than {before}", peer.identity, peer.not_before)]
    Revoked {
        /// The holder of the certificate.
        peer: Arc<Peer>,
        /// Certificates that begin before this time are revoked.
        before: Timestamp,
    },
    /// The certificate was issued for a ManagedClusterAddOn or a ManagedCluster that has been deleted and recreated
    /// since. The holder may get another one.
    #[error(
        "the certificate of {} begins at {}, before its ManagedClusterAddOn or ManagedCluster was created at {created}",
        peer.identity, peer.not_before
    )]
    OlderThanAddOn {
        /// The holder of the certificate.
        peer: Arc<Peer>,
        /// When the younger of the two was created.
        created: Timestamp,
    },
    /// The addon, or the cluster, has all the connections that it may have.
    #[error("{}", has_all(peer, *whose))]
    TooManyConnections {
        /// The holder of the certificate.
        peer: Arc<Peer>,
        /// Whose limit is reached, and how many it allows.
        whose: NoPermit,
    },
}

impl NotEligible {
    /// Whether the hub does not know which addons are registered. In that case nothing was refused, and the caller may
    /// try again.
    #[must_use]
    pub fn is_not_ready(&self) -> bool {
        matches!(self, Self::NotRegistered { cause, .. } if cause.is_unknown())
    }

    /// The CamelCase name for the audit log.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NothingInEffect => "NotConfigured",
            Self::NotAnIdentity(cause) => cause.reason(),
            Self::NotRegistered { cause, .. } => cause.reason(),
            Self::Revoked { .. } => "CertificateRevoked",
            Self::OlderThanAddOn { .. } => "CertificateOlderThanAddOn",
            Self::TooManyConnections { whose: NoPermit::AddOn(_), .. } => "TooManyConnections",
            Self::TooManyConnections { whose: NoPermit::Cluster(_), .. } => "TooManyConnectionsOfCluster",
        }
    }

    /// The holder of the certificate, if the certificate is an identity.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Self::NotRegistered { peer, .. }
            | Self::Revoked { peer, .. }
            | Self::OlderThanAddOn { peer, .. }
            | Self::TooManyConnections { peer, .. } => Some(peer),
            Self::NothingInEffect | Self::NotAnIdentity(_) => None,
        }
    }
}

fn has_all(peer: &Peer, whose: NoPermit) -> String {
    let PeerIdentity { cluster, addon, .. } = &peer.identity;
    match whose {
        NoPermit::AddOn(max) => format!("{cluster}/{addon} already has {max} connections"),
        NoPermit::Cluster(max) => format!("the addons of {cluster} already have {max} connections"),
    }
}

/// Checks that the addon is registered on the cluster and the certificate is not revoked (invariants I8, I15).
///
/// # Errors
/// [`NotEligible::NotRegistered`], [`NotEligible::Revoked`] and [`NotEligible::OlderThanAddOn`].
pub fn eligibility(peer: &Arc<Peer>, registry: &Registry) -> Result<(), NotEligible> {
    let cluster = &peer.identity.cluster;
    let addon = &peer.identity.addon;
    if let Err(cause) = registry.check(cluster, addon) {
        return Err(NotEligible::NotRegistered { peer: Arc::clone(peer), cause });
    }
    if let Some(before) = registry.revoked_before(cluster, addon).filter(|before| peer.not_before < *before) {
        return Err(NotEligible::Revoked { peer: Arc::clone(peer), before });
    }
    match registry.valid_from(cluster, addon) {
        Some(created) if peer.not_before < created => {
            Err(NotEligible::OlderThanAddOn { peer: Arc::clone(peer), created })
        }
        _ => Ok(()),
    }
}

/// Why a request reaches no backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccess {
    /// The request is for a host name that is none of the gateway's, or not one for this addon.
    #[error("the host {0:?} is not a name of the gateway that the caller's addon may use")]
    Host(String),
    /// There is nothing at that path of the gateway's own.
    #[error("there is nothing at that path")]
    NotFound,
    /// The path names an addon that is not the caller's.
    #[error("the path belongs to the addon {0:?}, not to the caller's addon")]
    AnotherAddOn(String),
    /// The routes are not known yet. This is not a refusal; ask again later.
    #[error("the hub has not read its AddOnRoutes yet")]
    NotReady,
    /// No route of the addon is a prefix of the path.
    #[error("no route of the addon matches the path")]
    NoRoute,
    /// The path is ambiguous, or its normal form belongs to another route.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The segment `{cluster}` of the route names another cluster.
    #[error("the path belongs to another cluster (route {0})")]
    AnotherCluster(RouteName),
    /// The route is not for the caller's cluster.
    #[error("the route {0} is not for the caller's cluster")]
    ClusterNotAdmitted(RouteName),
    /// The route allows only these methods.
    #[error("the method is not one of {0}")]
    Method(String),
    /// The method has no use for content.
    #[error("a {0} with content is not passed on")]
    Content(Method),
    /// The backend of the route cannot be reached now.
    #[error("the route {route} has no backend: {cause}")]
    NoBackend {
        /// The route.
        route: RouteName,
        /// Why, in one sentence without a period.
        cause: String,
    },
}

/// The connection to the backend that a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestConnection {
    /// Any free one; others may use it afterwards.
    Shared,
    /// A new one, which ends with the request.
    Own,
}

/// Checks whether a request may have the content that it has. Backends ignore content where HTTP gives it no meaning,
/// and some then read it as the next request on that connection (RFC 9110 sections 9.3.1, 9.3.2, 9.3.5): one written by
/// the caller, with identity headers of its choice.
///
/// # Errors
/// [`NoAccess::Content`]: it has content, and is not a POST, PUT, PATCH or DELETE that may have it.
pub fn content(method: &Method, has_content: bool, deletes_with_content: bool) -> Result<RequestConnection, NoAccess> {
    match *method {
        Method::POST | Method::PUT | Method::PATCH => Ok(RequestConnection::Shared),
        _ if !has_content => Ok(RequestConnection::Shared),
        Method::DELETE if deletes_with_content => Ok(RequestConnection::Own),
        _ => Err(NoAccess::Content(method.clone())),
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestTarget {
    /// `/v1/whoami`.
    WhoAmI,
    /// `/v1/bundle`.
    Bundle,
    /// A backend: the path after this many segments.
    Backend(usize),
}

/// What a path asks for. gRPC's clients cannot put anything before a path, so every path that is not the gateway's own
/// belongs to the caller's own addon.
///
/// # Errors
/// [`NoAccess::NotFound`] for a path that names no addon, [`NoAccess::AnotherAddOn`].
pub fn target(own: &AddOnName, path: &SafePath<'_>) -> Result<RequestTarget, NoAccess> {
    let segments: Vec<&str> = path.segments().take(3).collect();
    match segments.as_slice() {
        ["v1", "whoami"] => Ok(RequestTarget::WhoAmI),
        ["v1", "bundle"] => Ok(RequestTarget::Bundle),
        ["addons"] => Err(NoAccess::NotFound),
        ["addons", addon, ..] if *addon == own.as_str() => Ok(RequestTarget::Backend(2)),
        ["addons", addon, ..] => Err(NoAccess::AnotherAddOn((*addon).to_owned())),
        _ => Ok(RequestTarget::Backend(0)),
    }
}

/// Checks the method of a request for one of the gateway's own paths.
///
/// # Errors
/// [`NoAccess::Method`].
pub fn read_only(method: &Method) -> Result<(), NoAccess> {
    let is_read_only = [Method::GET, Method::HEAD].contains(method);
    is_read_only.then_some(()).ok_or_else(|| NoAccess::Method("GET, HEAD".to_owned()))
}

/// The host of a request. `authority` is that of HTTP/2 or the header `Host`; never
/// the TLS server name, because a connection may be for several names.
///
/// # Errors
/// [`NoAccess::Host`]: there is none, or it is not a name of the gateway that agents of the signer may use.
pub fn host(authority: &str, names: &[Host], table: &RouteTable, signer: &str) -> Result<Host, NoAccess> {
    let ours = Host::of_authority(authority).filter(|host| names.contains(host) && table.may_use(host, signer));
    ours.ok_or_else(|| NoAccess::Host(authority.to_owned()))
}

/// The facts about a client that decide the route of its request.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'c> {
    /// The AddOnSigner whose CA signed the caller's certificate.
    pub signer: &'c str,
    /// The addon.
    pub addon: &'c AddOnName,
    /// The cluster.
    pub cluster: &'c ClusterName,
    /// The ManagedClusterSet of the cluster.
    pub cluster_set: Option<&'c str>,
}

/// The facts about a request that decide its route.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'c> {
    /// Its sender.
    pub caller: Caller<'c>,
    /// What [`host`] has returned.
    pub host: &'c Host,
    /// The method.
    pub method: &'c Method,
    /// The path that the backend gets.
    pub path: PathBelow<'c>,
}

impl RequestHead<'_> {
    /// The routes of its host and addon, the longest path first.
    fn routes<'t>(&self, table: &'t RouteTable) -> impl Iterator<Item = &'t Arc<Route>> + use<'t, '_> {
        let known = table.of(self.caller.signer, self.caller.addon);
        known.iter().filter(|route| route.hostnames.is_empty() || route.hostnames.contains(self.host))
    }

    /// The route that decides about the request, if any does: of those with the longest path that matches, the first
    /// that admits the caller's cluster, else the first. A path that names another cluster in its `{cluster}` takes no
    /// request from an older route of another namespace (`docs/paths.md`, rule 3).
    #[must_use]
    pub fn decided_by<'t>(&self, table: &'t RouteTable) -> Option<&'t Arc<Route>> {
        let RequestHead { caller: Caller { cluster, cluster_set, .. }, path, .. } = *self;
        let has_older = |route: &Route| {
            let mut others = self.routes(table);
            others.any(|other| other.is_older_of_others(route) && other.path.matches(path))
        };
        let decides =
            |route: &&Arc<Route>| route.path.matches(path) && (route.path.is_for(cluster, path) || !has_older(route));
        let longest = self.routes(table).find(decides)?.path.length();
        let all = || self.routes(table).filter(|route| route.path.length() == longest).filter(decides);
        let admits =
            |route: &&Arc<Route>| route.clusters.admit(cluster, cluster_set) && route.path.is_for(cluster, path);
        all().find(admits).or_else(|| all().next())
    }

    /// Whether the normal form of the path belongs to a route other than the one that decides: rule 2 of
    /// `docs/paths.md`.
    fn is_of_another(&self, decides: Option<&Route>, table: &RouteTable) -> bool {
        let Caller { cluster, cluster_set, .. } = self.caller;
        // A route of another namespace that is for other clusters gets no request of this one.
        let may_get = |other: &Route| {
            let is_of_others = decides.is_some_and(|route| route.name.namespace != other.name.namespace);
            !is_of_others || other.clusters.admit(cluster, cluster_set)
        };
        let length = decides.map_or(0, |route| route.path.length());
        let mut as_long = self.routes(table).take_while(|route| route.path.length() >= length);
        as_long.any(|other| {
            other.path.is_alike(self.path)
                && !other.path.matches(self.path)
                && may_get(other)
                && decides.is_none_or(|route| !route.need_not_heed(other))
        })
    }
}

/// The route of a request. Host and addon choose the routes, then the longest path decides, and only then whether the
/// cluster and the method are allowed: a request that a route refuses never reaches the backend of a shorter path.
///
/// # Errors
/// The [`NoAccess`] of the first broken rule.
pub fn route<'t>(table: &'t RouteTable, head: &RequestHead<'_>) -> Result<&'t Arc<Route>, NoAccess> {
    let RequestHead { caller: Caller { cluster, cluster_set, .. }, method, path, .. } = *head;
    if !table.knows(head.caller.signer) {
        return Err(NoAccess::NotReady);
    }
    let decides = head.decided_by(table);
    if head.is_of_another(decides.map(|route| &**route), table) {
        return Err(PathError::Route.into());
    }
    let route = decides.ok_or(NoAccess::NoRoute)?;
    if !route.path.is_for(cluster, path) {
        return Err(NoAccess::AnotherCluster(route.name.clone()));
    }
    if !route.clusters.admit(cluster, cluster_set) {
        return Err(NoAccess::ClusterNotAdmitted(route.name.clone()));
    }
    if !route.methods.contains(method.as_str()) {
        return Err(NoAccess::Method(route.methods.iter().cloned().collect::<Vec<_>>().join(", ")));
    }
    Ok(route)
}

/// The backend of a route, which has an address.
///
/// # Errors
/// [`NoAccess::NoBackend`].
pub fn backend(route: &Route) -> Result<&Arc<Backend>, NoAccess> {
    let no_backend = |cause: &str| NoAccess::NoBackend { route: route.name.clone(), cause: cause.to_owned() };
    let backend = route.backend.as_ref().map_err(|cause| no_backend(cause))?;
    if backend.addresses.is_empty() {
        return Err(no_backend("the Service has no ready endpoints"));
    }
    Ok(backend)
}

#[cfg(test)]
mod tests;
