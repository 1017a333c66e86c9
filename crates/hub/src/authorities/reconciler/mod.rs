//! Keeps one lineage of authorities: reads it, takes the step that the evidence allows, persists it, and only then lets
//! it have an effect.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, error, info, warn};

mod backup;
mod inputs;
mod lineage_steps;
mod outside;
mod reserving;

use crate::authorities::activation::ActivationCheck;
use crate::authorities::asked::{AuthorityRequest, RequestedSteps};
use crate::authorities::lineage_report;
use crate::authorities::state::LineageState;
use crate::authorities::store::{LineageKind, StoreError};
use crate::authorities::versions::{LineageObjects, ObjectVersion};
use crate::lease::NotWritten;
use crate::metrics::LineageGauges;
use crate::recording::chronicle::LineageRecord;
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::lineage::{Evidence, Lineage, Step, WaitsFor};
use addon_signer_core::conditions::{AUTHORITY_FAILED, AUTHORITY_NOT_ISSUED, AUTHORITY_UNAVAILABLE, CLOCK_AHEAD};
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::backoff::Pauses;

pub(crate) use inputs::{LineagePlan, ReconcileError, ReconcilerLineage, ReconcilerLinks};
use outside::Outside;
pub(crate) use reserving::Reserve;

/// How often the reconciler checks a lineage without a change, because a step can become due by time alone.
const ROUND: Duration = Duration::from_secs(15);
/// How long the reconciler ignores changes after it has restored a lineage's anchors once; the pauses grow up to
/// [`ROUND`].
const REVERT: Duration = Duration::from_secs(1);
/// How soon a failed round is retried. While rounds fail, the pause grows up to [`ROUND`].
const RETRY: Duration = Duration::from_secs(2);
/// How soon a hub that is unsure whether it leads checks again.
const SOON: Duration = Duration::from_millis(500);

/// Keeps one lineage.
pub(crate) struct LineageReconciler {
    links: ReconcilerLinks,
    lineage: ReconcilerLineage,
    gauges: LineageGauges,
    /// Records its steps in the ledger.
    record: LineageRecord,
    /// The state of authorities from outside.
    outside: Outside,
    /// The version of the Secret that the last step of this process has written.
    written: Option<String>,
    published: Published,
    unrecorded: Unrecorded,
    /// Whether the Secret that this process has read or written last was compared with what the ledger knows.
    compared: bool,
    /// Why the requested rollback is not done.
    not_rolled_back: Option<String>,
    /// The pauses after rounds that failed; see [`pauses`].
    pauses: Pauses,
}

/// The ConfigMap with the lineage's anchors, as this process has read or written it last.
struct Published {
    /// Its `resourceVersion`.
    version: Option<String>,
    /// The report in it; `None` for a client lineage, which reports in its AddOnSigner.
    report: Option<String>,
    /// Whether the ledger has the anchors in it.
    is_recorded: bool,
    /// Backs off when another client keeps reverting it.
    reverts: RevertBackoff<Instant>,
}

/// The steps of this process that the ledger has not recorded yet.
#[derive(Default)]
struct Unrecorded {
    /// The user who asked for them; empty if they were due by time. `None` if there are none.
    by: Option<String>,
    /// The authorities that they have revoked.
    revoked: Vec<AuthorityId>,
    /// Whether one of them takes effect even before the ledger records it, because it takes an authority away.
    is_urgent: bool,
}

/// The pauses of a new reconciler.
fn pauses() -> Pauses {
    Pauses::new(RETRY, ROUND)
}

impl LineageReconciler {
    /// Keeps the lineage until the signers that use it have ended.
    pub(crate) async fn run(mut self) {
        loop {
            self.lineage.pulse.beat(); // at least once per round
            let source = self.source();
            let seen = self.links.objects.of(&self.lineage.names, source.as_deref());
            let pause = if self.is_idle(seen.as_ref()) { ROUND } else { self.round(seen.as_ref()).await };
            let next = self
                .lineage
                .state
                .borrow()
                .last()
                .and_then(|ready| Some(ready.lineage().next()?.authority.id().clone()));
            let quiet = self.published.reverts.due().unwrap_or_else(Instant::now);
            let names = &self.lineage.names;
            tokio::select! {
                () = sleep(pause) => {}
                () = self.links.objects.changed_after(quiet, names, source.as_deref(), seen.as_ref()) => {}
                changed = self.lineage.plan.changed() => if changed.is_err() { return },
                changed = self.lineage.activation.changed(next.as_ref()) => if !changed { return },
                reserve = self.lineage.reservations.recv() => match reserve {
                    Some(reserve) => self.reserve(reserve).await,
                    None => return,
                },
            }
        }
    }

    /// Whether nothing is left to do: the API server has the lineage as this process last read or wrote it, it is
    /// recorded and published, its report is true, and no step is due. Such a check needs no API call.
    fn is_idle(&mut self, seen: Option<&LineageObjects>) -> bool {
        let state = self.lineage.state.borrow().ready().cloned();
        if !self.may_create(seen) {
            // Any object that exists may have issued certificates.
            let is_absent = seen.is_some_and(|seen| seen.secret.is_none() && seen.config_map.is_none());
            if is_absent && matches!(*self.lineage.state.borrow(), LineageState::Starting) {
                self.set(LineageState::Absent);
            }
            return true; // a free permit wakes this task
        }
        let (Some(ready), Some(seen)) = (state, seen) else { return false };
        let has = |object: &Option<ObjectVersion>, version: Option<&str>| {
            object.as_ref().is_some_and(|object| Some(object.version.as_str()) == version)
        };
        let is_current =
            has(&seen.secret, ready.stored.version()) && has(&seen.config_map, self.published.version.as_deref());
        let lineage = ready.lineage();
        let is_held = self.lineage.names.kind == LineageKind::Signer
            || lineage.next().is_none_or(|next| next.activate_after.is_some());
        let is_recorded = self.unrecorded.by.is_none() && self.published.is_recorded && self.record.is_known(lineage);
        // Parts of the report change with time alone, such as "not trusted by all yet".
        let is_true = self.report(lineage, ready.waiting.as_ref()).is_ok_and(|report| report == self.published.report);
        if !is_current || !is_held || !is_recorded || !is_true {
            return false;
        }
        let plan = self.present_plan();
        let asked = self.asked(&plan, Some(seen));
        let now = self.links.hub.clock.now();
        let wanted = self.wants(lineage, &plan, &asked, now);
        let (step, not_rolled_back) = self.decide(lineage, &plan, &asked, now);
        if not_rolled_back != ready.not_rolled_back || !self.outside.has_checked(&plan, &asked, Some(seen), wanted) {
            return false;
        }
        match step {
            Step::Rest => ready.waiting.is_none(),
            Step::Wait(what) => ready.waiting.as_ref() == Some(&what),
            Step::Begin
            | Step::Prepare
            | Step::Activate
            | Step::Force(_)
            | Step::Finish(_)
            | Step::GiveUp(_)
            | Step::RollBack { .. }
            | Step::Taint { .. }
            | Step::AwaitRevocation { .. }
            | Step::Revoke { .. } => false,
        }
    }

    /// Whether the hub may have the lineage at all. It keeps a lineage of the gateway that exists, even if nothing
    /// needs it any more: backends may still trust its anchors.
    fn may_create(&self, seen: Option<&LineageObjects>) -> bool {
        let exists = || seen.is_some_and(|seen| seen.secret.is_some());
        self.lineage.plan.borrow().may_create || (self.lineage.names.kind != LineageKind::Signer && exists())
    }

    /// The desired state of the lineage at this moment.
    fn present_plan(&mut self) -> LineagePlan {
        let mut plan = self.lineage.plan.borrow_and_update().clone();
        plan.authority = self.lineage.activation.plan(plan.authority);
        plan
    }

    /// The requests for the lineage: annotations of its AddOnSigner, or of the ConfigMap of a lineage of the gateway.
    /// An account that may only write ConfigMaps cannot influence the authorities of an AddOnSigner.
    fn asked(&self, plan: &LineagePlan, seen: Option<&LineageObjects>) -> RequestedSteps {
        match self.lineage.names.kind {
            LineageKind::Signer => plan.asked.clone(),
            LineageKind::Gateway(_) => seen.map(LineageObjects::asked).unwrap_or_default(),
        }
    }

    fn evidence<'e>(
        &'e self,
        lineage: &'e Lineage,
        plan: &LineagePlan,
        asked: &'e RequestedSteps,
        now: Timestamp,
    ) -> Evidence<'e> {
        Evidence {
            now,
            requested: asked.rotate.as_deref(),
            offered: self.outside.offers(lineage),
            roll_back: asked.roll_back.as_ref().map(|asked| &asked.authority),
            taint: untainted(lineage, &asked.taint).map(|asked| &asked.authority),
            revoke: lineage.first_to_revoke(asked.revoke.iter().map(|asked| &asked.authority)),
            renew_before: plan.authority.renew_before,
            deferral: plan.authority.deferral,
            caps: matches!(self.lineage.activation, ActivationCheck::Serving { .. }),
            next_is_trusted: self.lineage.activation.opens(lineage, asked.exception.as_ref(), now),
        }
    }

    /// The next step, and why the requested rollback is not done.
    fn decide(
        &self,
        lineage: &Lineage,
        plan: &LineagePlan,
        asked: &RequestedSteps,
        now: Timestamp,
    ) -> (Step, Option<String>) {
        let evidence = self.evidence(lineage, plan, asked, now);
        (self.step(lineage, &evidence), lineage_report::not_rolled_back(lineage, &evidence))
    }

    /// Checks the lineage once; returns the pause before the next check.
    async fn round(&mut self, seen: Option<&LineageObjects>) -> Duration {
        match self.advance(seen).await {
            Ok(()) => {
                self.pauses = pauses();
                if self.compared { ROUND } else { RETRY }
            }
            Err(ReconcileError::NotLeading(_) | ReconcileError::Store(StoreError::NotLeading(_))) => SOON,
            Err(ReconcileError::Store(StoreError::Conflict(object))) => {
                info!(object, "Somebody else changed the authorities; the hub reads them again");
                Duration::from_millis(100)
            }
            Err(ReconcileError::Ledger(error)) => {
                // The ledger's writer has logged the error.
                debug!(%error, secret = self.lineage.names.secret, "A step of the authorities waits for the ledger");
                self.pauses.after_failure()
            }
            Err(ReconcileError::Store(StoreError::Api(error))) => {
                let secret = &self.lineage.names.secret;
                warn!(%error, secret, "Could not read or write the authorities; the hub retries");
                // Keep the lineage that was read: while the API server does not answer, no other client can change it.
                if self.lineage.state.borrow().last().is_none() {
                    let message = format!("The authorities cannot be read or written: {error}.");
                    self.set(LineageState::Broken {
                        reason: AUTHORITY_UNAVAILABLE,
                        message,
                        last: None,
                        request: None,
                    });
                }
                self.pauses.after_failure()
            }
            Err(error) => {
                let reason = match &error {
                    ReconcileError::Store(error) => error.reason(),
                    ReconcileError::Clock(_) => CLOCK_AHEAD,
                    ReconcileError::NoAuthority(_) => AUTHORITY_NOT_ISSUED,
                    _ => AUTHORITY_FAILED,
                };
                let last = self.lineage.state.borrow().last().cloned();
                let message = format!("{error}.");
                // An issuer may take days, so this is logged once.
                let is_known = self.lineage.state.borrow().problem() == Some(&message);
                if reason != AUTHORITY_NOT_ISSUED {
                    error!(%error, secret = self.lineage.names.secret, "The authorities cannot sign");
                } else if !is_known {
                    warn!(%error, secret = self.lineage.names.secret, "The lineage waits for its first authority");
                }
                let request = self.outside.request.clone();
                self.report_problem(reason, &message, request.clone()).await;
                self.set(LineageState::Broken { reason, message, last, request });
                ROUND
            }
        }
    }

    /// Reports a problem of a lineage of the gateway in its ConfigMap, because it has no AddOnSigner with a status.
    async fn report_problem(&self, reason: &str, problem: &str, request: Option<String>) {
        if self.lineage.names.kind == LineageKind::Signer {
            return;
        }
        let Ok(leads) = self.links.hub.leading.leads() else { return };
        match lineage_report::write_problem(
            &leads,
            &self.links.store.config_maps(),
            &self.lineage.names,
            reason,
            problem,
            request,
        )
        .await
        {
            Ok(()) | Err(NotWritten::NotLeading(_)) => {}
            // The problem itself is logged already.
            Err(error) => warn!(%error, "Could not write the report of the gateway's authorities; the hub retries"),
        }
    }

    async fn advance(&mut self, seen: Option<&LineageObjects>) -> Result<(), ReconcileError> {
        let plan = self.present_plan();
        if !self.may_create(seen) {
            return Ok(());
        }
        let now = self.links.hub.clock.now();
        let remembered = plan.remembered || self.lineage.state.borrow().last().is_some();
        let stored = match self.links.store.load(&self.lineage.names, remembered, now).await? {
            Some(stored) => stored,
            None => match self.links.store.clock_problem(now).await? {
                Some(problem) => return Err(ReconcileError::Clock(problem)),
                None => self.begin(&plan, seen, now).await?,
            },
        };
        let held = self.lineage.state.borrow().last().and_then(|ready| ready.stored.version().map(str::to_owned));
        let is_ours = [&held, &self.written].into_iter().any(|version| version.as_deref() == stored.version());
        if held.is_some() && !is_ours {
            self.compared = false; // another client wrote it, perhaps from a backup
        }
        let mut stored = self.compare(stored, now).await?;
        if self.unrecorded.by.is_none() {
            self.record_steps(&stored.lineage).await?; // those that an ended hub left, before another step hides them
        }
        let asked = match (self.lineage.names.kind, seen) {
            (LineageKind::Gateway(_), None) => self.links.store.asked(&self.lineage.names).await?,
            _ => self.asked(&plan, seen),
        };
        self.check_outside(&plan, &asked, seen, Some(&stored.lineage), now).await?;
        // Each step is persisted before the next one is chosen. A lineage needs only a few steps at once.
        for _ in 0..8 {
            let step;
            (step, self.not_rolled_back) = self.decide(&stored.lineage, &plan, &asked, now);
            if let Step::Rest | Step::Wait(_) = step {
                return self.conclude(stored, step).await;
            }
            let is_urgent = step.is_urgent();
            if !self.compared && !is_urgent {
                return self.conclude(stored, Step::Wait(WaitsFor::Ledger)).await;
            }
            if !is_urgent && let Some(problem) = self.links.store.clock_problem(now).await? {
                warn!(%problem, secret = self.lineage.names.secret, "A step of the authorities waits");
                return self.conclude(stored, Step::Wait(problem)).await;
            }
            let is_alone = is_urgent || matches!(step, Step::RollBack { .. } | Step::Taint { .. });
            stored = self.take(stored, step, &plan, &asked, now).await?;
            if is_alone {
                break; // it is recorded before another step hides it
            }
        }
        self.conclude(stored, Step::Rest).await
    }

    fn set(&mut self, state: LineageState) {
        if let LineageState::Ready(ready) = &state {
            self.gauges.show(ready.lineage());
        }
        self.lineage.state.send_replace(state);
        self.links.trust_publisher.publish(self.lineage.names.lineage());
    }
}

/// The first request about an authority that the lineage has and that is not tainted.
fn untainted<'a>(lineage: &Lineage, requests: &'a [AuthorityRequest]) -> Option<&'a AuthorityRequest> {
    AuthorityRequest::find(requests, |id| lineage.member(id).is_some_and(|member| !member.tainted))
}

#[cfg(test)]
mod tests;
