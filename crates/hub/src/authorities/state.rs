//! The present knowledge of one lineage of authorities.

use std::sync::Arc;

use crate::authorities::stored::StoredLineage;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::lineage::{Lineage, State, WaitsFor};
use addon_signer_core::gateway::replicas::TrustInEffect;

/// A lineage that can be used.
#[derive(Debug)]
pub struct ReadyLineage {
    /// The lineage as it is persisted, with the key that signs.
    pub stored: StoredLineage,
    /// The anchors of its authorities themselves: each verifies what it has signed.
    pub bundle: Bundle,
    /// What is published for others to trust.
    pub anchors: Bundle,
    /// What its rotation waits for.
    pub waiting: Option<WaitsFor>,
    /// Why the requested rollback is not done.
    pub not_rolled_back: Option<String>,
    /// The state of authorities from outside; `None` if the hub makes them.
    pub outside: Option<OutsideReport>,
}

/// The state of authorities from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutsideReport {
    /// Why an authority is not used, in one sentence without a period.
    pub refused: Option<String>,
    /// The CSR of the next authority, in PEM.
    pub request: Option<String>,
    /// The root that agents trust although no administrator has named it, as a sentence.
    pub unnamed_root: Option<String>,
}

impl ReadyLineage {
    /// The authorities and their states.
    pub fn lineage(&self) -> &Lineage {
        &self.stored.lineage
    }

    /// What the first certificate of an AddOnSigner's first authority waits for: its anchor is trusted before its key
    /// signs (invariant I5). Later authorities were Next, and have become Active on the same evidence. Gateways that
    /// start later read what they must trust before they serve; if the hub waited for them, one that cannot start would
    /// stop all issuing.
    pub(crate) fn first_waits_for(&self, in_effect: &TrustInEffect) -> Option<WaitsFor> {
        let active = self.lineage().active()?;
        // A rotation may have begun before the first certificate; an authority that was Active before is now Old.
        let had_another = self.lineage().members().iter().any(|member| member.state == State::Old);
        let is_first = !had_another && active.leaves_expire.is_none() && !active.forced;
        if is_first { in_effect.has(active.authority.id()).err() } else { None }
    }
}

/// The present knowledge of a lineage.
#[derive(Debug, Clone)]
pub enum LineageState {
    /// Nothing has been read yet.
    Starting,
    /// There is no lineage, and the hub may not create one: it may not sign, or has no free permit. So no certificates
    /// exist.
    Absent,
    /// The lineage can sign.
    Ready(Arc<ReadyLineage>),
    /// The lineage must not sign. What was trusted remains trusted.
    Broken {
        /// The reason for conditions, in CamelCase.
        reason: &'static str,
        /// The message for conditions, one sentence.
        message: String,
        /// The lineage as it was read before.
        last: Option<Arc<ReadyLineage>>,
        /// The CSR of the next authority, in PEM.
        request: Option<String>,
    },
}

impl LineageState {
    /// The lineage, if it may sign.
    pub fn ready(&self) -> Option<&Arc<ReadyLineage>> {
        match self {
            Self::Ready(ready) => Some(ready),
            Self::Starting | Self::Absent | Self::Broken { .. } => None,
        }
    }

    /// Why it must not sign.
    pub fn problem(&self) -> Option<&String> {
        match self {
            Self::Broken { message, .. } => Some(message),
            Self::Starting | Self::Absent | Self::Ready(_) => None,
        }
    }

    /// The CSR of the next authority, in PEM.
    pub fn request(&self) -> Option<&String> {
        match self {
            Self::Ready(ready) => ready.outside.as_ref()?.request.as_ref(),
            Self::Broken { request, .. } => request.as_ref(),
            Self::Starting | Self::Absent => None,
        }
    }

    /// The lineage as it was last read, whether it may sign or not.
    pub fn last(&self) -> Option<&Arc<ReadyLineage>> {
        match self {
            Self::Ready(ready) => Some(ready),
            Self::Broken { last, .. } => last.as_ref(),
            Self::Starting | Self::Absent => None,
        }
    }
}
