//! Persists how long certificates may be valid, before they are signed (invariant I6).

use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::warn;

use super::{LineageReconciler, ReconcileError};
use crate::authorities::state::{LineageState, ReadyLineage};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::lineage::RESERVE_AHEAD;
use addon_signer_core::timestamp::Timestamp;

/// Asks the reconciler to persist that leaves of `authority` may be valid until `until`.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// The id of the authority that will sign.
    pub authority: AuthorityId,
    /// The last second of the leaf.
    pub until: Timestamp,
    /// Receives whether the reservation is persisted.
    pub done: oneshot::Sender<bool>,
}

impl LineageReconciler {
    pub(super) async fn reserve(&mut self, reserve: Reserve) {
        let persisted = match self.persist_reservation(&reserve).await {
            Ok(persisted) => persisted,
            Err(error) => {
                let secret = &self.lineage.names.secret;
                warn!(%error, secret, "Could not reserve the end of certificates; the hub retries");
                // The write may have succeeded nevertheless, so the next round reads the lineage.
                self.published.version = None;
                false
            }
        };
        let _ = reserve.done.send(persisted); // fails if the signer stopped waiting; it asks again
    }

    async fn persist_reservation(&mut self, reserve: &Reserve) -> Result<bool, ReconcileError> {
        let ready = self.lineage.state.borrow().ready().cloned();
        let Some(ready) = ready else { return Ok(false) };
        if ready.lineage().active().is_none_or(|active| *active.authority.id() != reserve.authority) {
            return Ok(false);
        }
        if ready.lineage().reserve(reserve.until).is_none() {
            return Ok(true);
        }
        let now = self.links.hub.clock.now();
        let further = reserve.until.plus(now.until(reserve.until) / RESERVE_AHEAD);
        // A Next of the gateway's lineage waits for this time, so it is not set later than a certificate may end.
        let end = self.links.trust_publisher.last_end().map_or(further, |last| further.min(last)).max(reserve.until);
        let Some(lineage) = ready.lineage().reserve(end) else { return Ok(true) };
        let leads = self.links.hub.leading.leads()?;
        let stored = self.links.store.replace(&leads, &self.lineage.names, &ready.stored, &lineage, None).await?;
        self.published.version = None; // the report of the gateway's lineage names the reserved time
        let (bundle, anchors) = (ready.bundle.clone(), ready.anchors.clone());
        let (waiting, not_rolled_back) = (ready.waiting.clone(), ready.not_rolled_back.clone());
        let outside = ready.outside.clone();
        self.set(LineageState::Ready(Arc::new(ReadyLineage {
            stored,
            bundle,
            anchors,
            waiting,
            not_rolled_back,
            outside,
        })));
        Ok(true)
    }
}
