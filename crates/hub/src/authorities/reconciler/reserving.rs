//! Persists how long certificates may be valid, before they are signed (invariant I6).

use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::warn;

use super::{LineReconciler, ReconcileError};
use crate::authorities::state::{LineState, ReadyLine};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::line::RESERVE_AHEAD;
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

impl LineReconciler {
    pub(super) async fn reserve(&mut self, reserve: Reserve) {
        let persisted = match self.persist_reservation(&reserve).await {
            Ok(persisted) => persisted,
            Err(error) => {
                let secret = &self.line.names.secret;
                warn!(%error, secret, "Could not reserve the end of certificates; the hub retries");
                self.published.version = None; // the write may have arrived all the same: the next round reads the line
                false
            }
        };
        let _ = reserve.done.send(persisted); // it fails if the signer gave up waiting; that asks again
    }

    async fn persist_reservation(&mut self, reserve: &Reserve) -> Result<bool, ReconcileError> {
        let ready = self.line.state.borrow().ready().cloned();
        let Some(ready) = ready else { return Ok(false) };
        if ready.line().active().is_none_or(|active| *active.authority.id() != reserve.authority) {
            return Ok(false);
        }
        if ready.line().reserve(reserve.until).is_none() {
            return Ok(true);
        }
        let now = self.links.clock.now();
        let further = reserve.until.plus(now.until(reserve.until) / RESERVE_AHEAD);
        // A Next of the gateway's line waits for this time, so it is not set later than a certificate may end.
        let end = self.links.trust_publisher.last_end().map_or(further, |last| further.min(last)).max(reserve.until);
        let Some(line) = ready.line().reserve(end) else { return Ok(true) };
        let leads = self.links.leading.leads()?;
        let stored = self.links.store.replace(&leads, &self.line.names, &ready.stored, &line, None).await?;
        self.published.version = None; // the report of the gateway's line names the reserved time
        let (bundle, anchors) = (ready.bundle.clone(), ready.anchors.clone());
        let (waiting, not_rolled_back) = (ready.waiting.clone(), ready.not_rolled_back.clone());
        let outside = ready.outside.clone();
        self.set(LineState::Ready(Arc::new(ReadyLine { stored, bundle, anchors, waiting, not_rolled_back, outside })));
        Ok(true)
    }
}
