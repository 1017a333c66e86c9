//! Whether a caller may have what it asks for: its standing, and the route that its path and method lead to.

use std::sync::Arc;

use http::Method;

use super::authz::{NotAnIdentity, Peer};
use super::path::SafePath;
use crate::registry::{NotRegistered, Registry};
use crate::timestamp::Timestamp;
use crate::trust::Route;

/// Why a connection's holder may not ask for anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStanding {
    /// The gateway has no configuration in effect.
    #[error("nobody is trusted at the moment")]
    NothingInEffect,
    /// The certificate is nobody's identity.
    #[error(transparent)]
    NotAnIdentity(#[from] NotAnIdentity),
    /// The addon is not registered on the cluster.
    #[error("{} has no standing: {cause}", peer.identity)]
    NotRegistered {
        /// Whose certificate it is.
        peer: Arc<Peer>,
        /// What the registry says.
        cause: NotRegistered,
    },
    /// The holder may have another certificate, and not use this one.
    #[error("the certificate of {} is revoked: it begins at {}, and those that begin before {before} are revoked", peer.identity, peer.not_before)]
    Revoked {
        /// Whose certificate it is.
        peer: Arc<Peer>,
        /// Certificates that begin before this time are revoked.
        before: Timestamp,
    },
}

impl NoStanding {
    /// Whether asking again may help: the registry is not complete yet, and nothing was refused.
    #[must_use]
    pub fn is_not_ready(&self) -> bool {
        matches!(self, Self::NotRegistered { cause: NotRegistered::NotReady, .. })
    }

    /// CamelCase name for the audit log.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NothingInEffect => "NotConfigured",
            Self::NotAnIdentity(cause) => cause.reason(),
            Self::NotRegistered { cause, .. } => cause.reason(),
            Self::Revoked { .. } => "CertificateRevoked",
        }
    }

    /// Whose certificate it is, if it is an identity.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        match self {
            Self::NotRegistered { peer, .. } | Self::Revoked { peer, .. } => Some(peer),
            Self::NothingInEffect | Self::NotAnIdentity(_) => None,
        }
    }
}

/// Whether the addon is registered on the cluster and the certificate is not revoked (invariants I8, I15).
///
/// # Errors
/// [`NoStanding::NotRegistered`] and [`NoStanding::Revoked`].
pub fn standing(peer: &Arc<Peer>, registry: &Registry) -> Result<(), NoStanding> {
    let cluster = &peer.identity.cluster;
    let addon = &peer.identity.addon;
    if let Err(cause) = registry.check(cluster, addon) {
        return Err(NoStanding::NotRegistered { peer: Arc::clone(peer), cause });
    }
    match registry.revoked_before(cluster, addon) {
        Some(before) if peer.not_before < before => Err(NoStanding::Revoked { peer: Arc::clone(peer), before }),
        _ => Ok(()),
    }
}

/// Why a request below `/addons/` goes to no backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAccess {
    /// The path names an addon that is not the caller's.
    #[error("the path belongs to the addon {0:?}, not to the caller's")]
    AnotherAddOn(String),
    /// No route of the addon is a prefix of the path.
    #[error("no route of the addon matches the path")]
    NoRoute,
    /// The route has other methods; these.
    #[error("the method is not one of {0}")]
    Method(String),
}

/// The route of `/addons/<addon>/…` for the caller, and the path that its backend is asked for.
///
/// # Errors
/// [`NoAccess`]: the first rule that is broken.
pub fn route<'p>(peer: &'p Peer, method: &Method, path: &SafePath<'_>) -> Result<(&'p Route, String), NoAccess> {
    let asked = path.segments().get(1).copied().unwrap_or_default().to_owned();
    if asked != peer.identity.addon.as_str() {
        return Err(NoAccess::AnotherAddOn(asked));
    }
    let (route, rest) = path.route(2, &peer.signer.routes).ok_or(NoAccess::NoRoute)?;
    if !route.methods.contains(method.as_str()) {
        return Err(NoAccess::Method(route.methods.iter().cloned().collect::<Vec<_>>().join(", ")));
    }
    Ok((route, rest))
}
