//! Decides whether a caller may send a request: checks its standing, and finds the route of its path and method.

use std::sync::Arc;

use http::Method;

use super::authz::{NotAnIdentity, Peer};
use super::path::{PathError, SafePath};
use super::slots::NoSlot;
use crate::identity::PeerIdentity;
use crate::registry::{NotRegistered, Registry};
use crate::timestamp::Timestamp;
use crate::trust::Route;

/// Why the holder of a client certificate may not send requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStanding {
    /// The gateway has no configuration in effect.
    #[error("the gateway has no configuration in effect, so it trusts nobody")]
    NothingInEffect,
    /// The certificate is nobody's identity.
    #[error(transparent)]
    NotAnIdentity(#[from] NotAnIdentity),
    /// The addon is not registered on the cluster.
    #[error("{} has no standing: {cause}", peer.identity)]
    NotRegistered {
        /// The holder of the certificate.
        peer: Arc<Peer>,
        /// Why the addon has no standing.
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
    /// The certificate was issued for a ManagedClusterAddOn that has been deleted and recreated since. The holder may
    /// get another one.
    #[error(
        "the certificate of {} begins at {}, before its ManagedClusterAddOn was created at {created}",
        peer.identity, peer.not_before
    )]
    OlderThanAddOn {
        /// The holder of the certificate.
        peer: Arc<Peer>,
        /// When the ManagedClusterAddOn was created.
        created: Timestamp,
    },
    /// The addon, or the cluster, has all the connections that it may have.
    #[error("{}", has_all(peer, *whose))]
    TooManyConnections {
        /// The holder of the certificate.
        peer: Arc<Peer>,
        /// Whose limit is reached, and how many it allows.
        whose: NoSlot,
    },
}

impl NoStanding {
    /// Whether the hub does not know who is registered. In that case nothing was refused, and the caller may try again.
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
            Self::TooManyConnections { whose: NoSlot::AddOn(_), .. } => "TooManyConnections",
            Self::TooManyConnections { whose: NoSlot::Cluster(_), .. } => "TooManyConnectionsOfCluster",
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

fn has_all(peer: &Peer, whose: NoSlot) -> String {
    let PeerIdentity { cluster, addon, .. } = &peer.identity;
    match whose {
        NoSlot::AddOn(max) => format!("{cluster}/{addon} already has {max} connections"),
        NoSlot::Cluster(max) => format!("the addons of {cluster} already have {max} connections"),
    }
}

/// Checks that the addon is registered on the cluster and the certificate is not revoked (invariants I8, I15).
///
/// # Errors
/// [`NoStanding::NotRegistered`], [`NoStanding::Revoked`] and [`NoStanding::OlderThanAddOn`].
pub fn standing(peer: &Arc<Peer>, registry: &Registry) -> Result<(), NoStanding> {
    let cluster = &peer.identity.cluster;
    let addon = &peer.identity.addon;
    if let Err(cause) = registry.check(cluster, addon) {
        return Err(NoStanding::NotRegistered { peer: Arc::clone(peer), cause });
    }
    if let Some(before) = registry.revoked_before(cluster, addon).filter(|before| peer.not_before < *before) {
        return Err(NoStanding::Revoked { peer: Arc::clone(peer), before });
    }
    match registry.valid_from(cluster, addon) {
        Some(created) if peer.not_before < created => {
            Err(NoStanding::OlderThanAddOn { peer: Arc::clone(peer), created })
        }
        _ => Ok(()),
    }
}

/// Why a request below `/addons/` reaches no backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccess {
    /// The path names an addon that is not the caller's.
    #[error("the path belongs to the addon {0:?}, not to the caller's addon")]
    AnotherAddOn(String),
    /// No route of the addon is a prefix of the path.
    #[error("no route of the addon matches the path")]
    NoRoute,
    /// The backend could see the path below another route.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The route allows only these methods.
    #[error("the method is not one of {0}")]
    Method(String),
    /// The method has no use for content.
    #[error("a {0} with content is not passed on")]
    Content(Method),
}

/// The connection to the backend that a call gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallConnection {
    /// Any free one; others may use it afterwards.
    Shared,
    /// A new one, which ends with the call.
    Own,
}

/// Checks whether a call may have the content that it has. Backends ignore content where HTTP gives it no meaning, and
/// some then read it as the next request on that connection (RFC 9110 sections 9.3.1, 9.3.2, 9.3.5): one written by the
/// caller, with identity headers of its choice.
///
/// # Errors
/// [`NoAccess::Content`]: it has content, and is not a POST, PUT, PATCH or DELETE that may have it.
pub fn content(method: &Method, has_content: bool, deletes_with_content: bool) -> Result<CallConnection, NoAccess> {
    match *method {
        Method::POST | Method::PUT | Method::PATCH => Ok(CallConnection::Shared),
        _ if !has_content => Ok(CallConnection::Shared),
        Method::DELETE if deletes_with_content => Ok(CallConnection::Own),
        _ => Err(NoAccess::Content(method.clone())),
    }
}

/// The caller's route for `/addons/<addon>/…`, and the path that goes to its backend.
///
/// # Errors
/// The [`NoAccess`] of the first broken rule.
pub fn route<'p>(peer: &'p Peer, method: &Method, path: &SafePath<'_>) -> Result<(&'p Route, String), NoAccess> {
    let asked = path.segments().get(1).copied().unwrap_or_default().to_owned();
    if asked != peer.identity.addon.as_str() {
        return Err(NoAccess::AnotherAddOn(asked));
    }
    let (route, rest) = path.route(2, &peer.signer.routes)?.ok_or(NoAccess::NoRoute)?;
    if !route.methods.contains(method.as_str()) {
        return Err(NoAccess::Method(route.methods.iter().cloned().collect::<Vec<_>>().join(", ")));
    }
    Ok((route, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_that_have_a_use_for_content_may_have_it() {
        for method in ["POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"] {
            let method: Method = method.parse().unwrap();
            let has_use = ["POST", "PUT", "PATCH"].contains(&method.as_str());
            for deletes in [false, true] {
                assert_eq!(content(&method, false, deletes), Ok(CallConnection::Shared), "{method}");
                let expected = match method {
                    _ if has_use => Ok(CallConnection::Shared),
                    Method::DELETE if deletes => Ok(CallConnection::Own),
                    _ => Err(NoAccess::Content(method.clone())),
                };
                assert_eq!(content(&method, true, deletes), expected, "{method}");
            }
        }
    }
}
