//! Keeps one line of authorities: reads it, takes the step that the evidence allows, persists it, and only then lets it
//! have an effect.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, error, info, warn};

mod backup;
mod inputs;
mod outside;
mod reserving;
mod steps;

use crate::authorities::activation::ActivationCheck;
use crate::authorities::asked::{Asked, AuthorityRequest};
use crate::authorities::report;
use crate::authorities::state::LineState;
use crate::authorities::store::{LineKind, StoreError};
use crate::authorities::supply::SupplyPlan;
use crate::authorities::versions::{LineObjects, ObjectVersion};
use crate::lease::{NotLeading, NotWritten};
use crate::metrics::LineGauges;
use crate::recording::chronicle::LineRecord;
use addon_signer_api::rules::AuthorityPlan;
use addon_signer_core::ca::authority::{AuthorityError, AuthorityId};
use addon_signer_core::ca::line::{Evidence, Line, Step, WaitsFor};
use addon_signer_core::conditions::{AUTHORITY_FAILED, AUTHORITY_NOT_ISSUED, AUTHORITY_UNAVAILABLE, CLOCK_AHEAD};
use addon_signer_core::keys::private::KeyError;
use addon_signer_core::revert_backoff::RevertBackoff;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::LedgerError;
use addon_signer_platform::backoff::Pauses;

pub(crate) use inputs::{ReconcilerLine, ReconcilerLinks};
use outside::Outside;
pub(crate) use reserving::Reserve;

/// How often the reconciler checks a line when nothing happens, because a step can become due by time alone.
const ROUND: Duration = Duration::from_secs(15);
/// How long the reconciler ignores changes after it has put back a line's anchors once; the pauses grow up to
/// [`ROUND`].
const REVERT: Duration = Duration::from_secs(1);
/// How soon a failed round is retried. While rounds fail, the pause grows up to [`ROUND`].
const RETRY: Duration = Duration::from_secs(2);
/// How soon a hub that is not certain that it leads checks again.
const SOON: Duration = Duration::from_millis(500);

/// The desired state of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinePlan {
    /// How authorities are created.
    pub authority: AuthorityPlan,
    /// Where they come from.
    pub supply: SupplyPlan,
    /// What the AddOnSigner asks for. A line of the gateway is asked by the annotations of its ConfigMap.
    pub asked: Asked,
    /// Whether something other than the ConfigMap names authorities whose certificates may not have expired yet.
    pub remembered: bool,
    /// Whether the hub may have the line at all: it may sign, or had the line before; somebody needs it, if it is one
    /// of the gateway. Until then nothing is read or created.
    pub has_slot: bool,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// Another hub may lead.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// A step that was persisted could not be recorded; it has no effect before it is recorded.
    #[error("a step of the authorities could not be recorded: {0}")]
    Ledger(#[from] LedgerError),
    /// The Secret could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A new authority could not be created.
    #[error("a new authority could not be created: {0}")]
    Authority(#[from] AuthorityError),
    /// A new key could not be generated.
    #[error("a new key could not be generated: {0}")]
    Key(#[from] KeyError),
    /// The line has no authority yet, because none came from outside.
    #[error("There is no authority yet. {0}")]
    NoAuthority(String),
    /// The line's first authority is not created while the clock is wrong.
    #[error("the first authority waits for {0}")]
    Clock(WaitsFor),
    /// The line has no anchor.
    #[error(transparent)]
    Bundle(#[from] addon_signer_core::ca::bundle::BundleError),
    /// The report could not be written as JSON.
    #[error("the report of the line could not be written: {0}")]
    Report(#[from] serde_json::Error),
}

/// Keeps one line.
pub(crate) struct LineReconciler {
    links: ReconcilerLinks,
    line: ReconcilerLine,
    gauges: LineGauges,
    /// Records its steps in the ledger.
    record: LineRecord,
    /// What became of authorities from outside.
    outside: Outside,
    /// The version of the Secret that the last step of this process has written.
    written: Option<String>,
    published: Published,
    unrecorded: Unrecorded,
    /// Whether the Secret that this process has read or written last was compared with what the ledger knows.
    compared: bool,
    /// Why the rollback that is asked for is not done.
    not_rolled_back: Option<String>,
    /// The pauses after rounds that failed; see [`pauses`].
    pauses: Pauses,
}

/// The ConfigMap with the line's anchors, as this process has read or written it last.
struct Published {
    /// Its `resourceVersion`.
    version: Option<String>,
    /// The report in it; `None` for a client line, which reports in its AddOnSigner.
    report: Option<String>,
    /// Whether the ledger has the anchors in it.
    is_recorded: bool,
    /// If somebody changes it back again and again, the hub answers with growing pauses.
    reverts: RevertBackoff<Instant>,
}

/// The steps of this process that the ledger does not have yet.
#[derive(Default)]
struct Unrecorded {
    /// Who asked for them; empty if they were due by time. `None` if there are none.
    by: Option<String>,
    /// The authorities that they have revoked.
    revoked: Vec<AuthorityId>,
    /// Whether one of them has an effect even if the ledger does not record it: it took an authority away.
    is_urgent: bool,
}

/// The pauses of a new reconciler.
fn pauses() -> Pauses {
    Pauses::new(RETRY, ROUND)
}

impl LineReconciler {
    /// Keeps the line until the signers that use it are gone.
    pub(crate) async fn run(mut self) {
        loop {
            self.line.pulse.beat(); // at least once per round
            let source = self.source();
            let seen = self.links.objects.of(&self.line.names, source.as_deref());
            let pause = if self.is_settled(seen.as_ref()) { ROUND } else { self.round(seen.as_ref()).await };
            let next =
                self.line.state.borrow().last().and_then(|ready| Some(ready.line().next()?.authority.id().clone()));
            let quiet = self.published.reverts.due().unwrap_or_else(Instant::now);
            tokio::select! {
                () = sleep(pause) => {}
                () = self.links.objects.changed_after(quiet, &self.line.names, source.as_deref(), seen.as_ref()) => {}
                changed = self.line.plan.changed() => if changed.is_err() { return },
                changed = self.line.activation.changed(next.as_ref()) => if !changed { return },
                reserve = self.line.reservations.recv() => match reserve {
                    Some(reserve) => self.reserve(reserve).await,
                    None => return,
                },
            }
        }
    }

    /// Whether there is nothing to do: the line that this process has read or written last is what the API server has,
    /// it is recorded and published, its report is true, and no step is due. A check then costs no call.
    fn is_settled(&mut self, seen: Option<&LineObjects>) -> bool {
        let state = self.line.state.borrow().ready().cloned();
        if !self.has_slot(seen) {
            // Whatever exists may have issued certificates.
            let is_absent = seen.is_some_and(|seen| seen.secret.is_none() && seen.config_map.is_none());
            if is_absent && matches!(*self.line.state.borrow(), LineState::Starting) {
                self.set(LineState::Absent);
            }
            return true; // a slot wakes this task
        }
        let (Some(ready), Some(seen)) = (state, seen) else { return false };
        let has = |object: &Option<ObjectVersion>, version: Option<&str>| {
            object.as_ref().is_some_and(|object| Some(object.version.as_str()) == version)
        };
        let is_current =
            has(&seen.secret, ready.stored.version()) && has(&seen.config_map, self.published.version.as_deref());
        let line = ready.line();
        let is_held =
            self.line.names.kind == LineKind::Agents || line.next().is_none_or(|next| next.activate_after.is_some());
        let is_recorded = self.unrecorded.by.is_none() && self.published.is_recorded && self.record.is_known(line);
        // What the report states may end by time alone, such as that not everybody is known to trust the authority.
        let is_true = self.report(line, ready.waiting.as_ref()).is_ok_and(|report| report == self.published.report);
        if !is_current || !is_held || !is_recorded || !is_true {
            return false;
        }
        let plan = self.present_plan();
        let asked = self.asked(&plan, Some(seen));
        let now = self.links.clock.now();
        let wanted = self.wants(line, &plan, &asked, now);
        let (step, not_rolled_back) = self.decide(line, &plan, &asked, now);
        if not_rolled_back != ready.not_rolled_back || !self.outside.has_looked(&plan, &asked, Some(seen), wanted) {
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

    /// Whether the hub may have the line at all. It keeps a line of the gateway that exists, even if nothing needs it
    /// any more: backends may still trust its anchors.
    fn has_slot(&self, seen: Option<&LineObjects>) -> bool {
        let exists = || seen.is_some_and(|seen| seen.secret.is_some());
        self.line.plan.borrow().has_slot || (self.line.names.kind != LineKind::Agents && exists())
    }

    /// The desired state of the line at this moment.
    fn present_plan(&mut self) -> LinePlan {
        let mut plan = self.line.plan.borrow_and_update().clone();
        plan.authority = self.line.activation.plan(plan.authority);
        plan
    }

    /// What is asked of the line, by annotations of its AddOnSigner, or of the ConfigMap of a line of the gateway.
    /// Whoever may only write ConfigMaps has no say in the authorities of an AddOnSigner.
    fn asked(&self, plan: &LinePlan, seen: Option<&LineObjects>) -> Asked {
        match self.line.names.kind {
            LineKind::Agents => plan.asked.clone(),
            LineKind::Gateway(_) => seen.map(LineObjects::asked).unwrap_or_default(),
        }
    }

    fn evidence<'e>(&'e self, line: &'e Line, plan: &LinePlan, asked: &'e Asked, now: Timestamp) -> Evidence<'e> {
        Evidence {
            now,
            requested: asked.rotate.as_deref(),
            offered: self.outside.offers(line),
            roll_back: asked.roll_back.as_ref().map(|asked| &asked.authority),
            taint: untainted(line, &asked.taint).map(|asked| &asked.authority),
            revoke: line.first_to_revoke(asked.revoke.iter().map(|asked| &asked.authority)),
            renew_before: plan.authority.renew_before,
            deferral: plan.authority.deferral,
            caps: matches!(self.line.activation, ActivationCheck::Serving { .. }),
            next_is_trusted: self.line.activation.opens(line, asked.waiver.as_ref(), now),
        }
    }

    /// The next step, and why the rollback that is asked for is not done.
    fn decide(&self, line: &Line, plan: &LinePlan, asked: &Asked, now: Timestamp) -> (Step, Option<String>) {
        let evidence = self.evidence(line, plan, asked, now);
        (self.step(line, &evidence), report::not_rolled_back(line, &evidence))
    }

    /// Checks the line once; returns the pause before the next check.
    async fn round(&mut self, seen: Option<&LineObjects>) -> Duration {
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
                debug!(%error, secret = self.line.names.secret, "A step of the authorities waits for the ledger");
                self.pauses.after_failure()
            }
            Err(ReconcileError::Store(StoreError::Api(error))) => {
                let secret = &self.line.names.secret;
                warn!(%error, secret, "Could not read or write the authorities; the hub retries");
                // Keep the line that was read: while the API server does not answer, nobody else can change it.
                if self.line.state.borrow().last().is_none() {
                    let message = format!("The authorities cannot be read or written: {error}.");
                    self.set(LineState::Broken { reason: AUTHORITY_UNAVAILABLE, message, last: None, request: None });
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
                let last = self.line.state.borrow().last().cloned();
                let message = format!("{error}.");
                // An issuer may take days, so what it waits for is said once.
                let is_known = self.line.state.borrow().problem() == Some(&message);
                if reason != AUTHORITY_NOT_ISSUED {
                    error!(%error, secret = self.line.names.secret, "The authorities cannot sign");
                } else if !is_known {
                    warn!(%error, secret = self.line.names.secret, "The line waits for its first authority");
                }
                let request = self.outside.request();
                self.report_problem(reason, &message, request.clone()).await;
                self.set(LineState::Broken { reason, message, last, request });
                ROUND
            }
        }
    }

    /// Reports a problem of a line of the gateway in its ConfigMap, because it has no AddOnSigner with a status.
    async fn report_problem(&self, reason: &str, problem: &str, request: Option<String>) {
        if self.line.names.kind == LineKind::Agents {
            return;
        }
        let Ok(leads) = self.links.leading.leads() else { return };
        match report::write_problem(&leads, &self.links.store.config_maps(), &self.line.names, reason, problem, request)
            .await
        {
            Ok(()) | Err(NotWritten::NotLeading(_)) => {}
            // The problem itself is logged already.
            Err(error) => warn!(%error, "Could not write the report of the gateway's authorities; the hub retries"),
        }
    }

    async fn advance(&mut self, seen: Option<&LineObjects>) -> Result<(), ReconcileError> {
        let plan = self.present_plan();
        if !self.has_slot(seen) {
            return Ok(());
        }
        let now = self.links.clock.now();
        let remembered = plan.remembered || self.line.state.borrow().last().is_some();
        let stored = match self.links.store.load(&self.line.names, remembered, now).await? {
            Some(stored) => stored,
            None => match self.links.store.clock_problem(now).await? {
                Some(problem) => return Err(ReconcileError::Clock(problem)),
                None => self.begin(&plan, seen, now).await?,
            },
        };
        let held = self.line.state.borrow().last().and_then(|ready| ready.stored.version().map(str::to_owned));
        let is_ours = [&held, &self.written].into_iter().any(|version| version.as_deref() == stored.version());
        if held.is_some() && !is_ours {
            self.compared = false; // somebody else wrote it, perhaps from a backup
        }
        let mut stored = self.compare(stored, now).await?;
        if self.unrecorded.by.is_none() {
            self.record_steps(&stored.line).await?; // those of a hub that has ended, before another step hides them
        }
        let asked = match (self.line.names.kind, seen) {
            (LineKind::Gateway(_), None) => self.links.store.asked(&self.line.names).await?,
            _ => self.asked(&plan, seen),
        };
        self.look_outside(&plan, &asked, seen, Some(&stored.line), now).await?;
        // Each step is persisted before the next one is chosen. A line needs only a few steps at once.
        for _ in 0..8 {
            let step;
            (step, self.not_rolled_back) = self.decide(&stored.line, &plan, &asked, now);
            if let Step::Rest | Step::Wait(_) = step {
                return self.settle(stored, step).await;
            }
            let is_urgent = step.is_urgent();
            if !self.compared && !is_urgent {
                return self.settle(stored, Step::Wait(WaitsFor::Ledger)).await;
            }
            if !is_urgent && let Some(problem) = self.links.store.clock_problem(now).await? {
                warn!(%problem, secret = self.line.names.secret, "A step of the authorities waits");
                return self.settle(stored, Step::Wait(problem)).await;
            }
            let is_alone = is_urgent || matches!(step, Step::RollBack { .. } | Step::Taint { .. });
            stored = self.take(stored, step, &plan, &asked, now).await?;
            if is_alone {
                break; // it is recorded before another step hides it
            }
        }
        self.settle(stored, Step::Rest).await
    }

    fn set(&mut self, state: LineState) {
        if let LineState::Ready(ready) = &state {
            self.gauges.show(ready.line());
        }
        self.line.state.send_replace(state);
        self.links.trust_publisher.publish(self.line.names.line());
    }
}

/// The first request about an authority that the line has and that is not tainted.
fn untainted<'a>(line: &Line, requests: &'a [AuthorityRequest]) -> Option<&'a AuthorityRequest> {
    AuthorityRequest::find(requests, |id| line.member(id).is_some_and(|member| !member.tainted))
}

#[cfg(test)]
mod tests;
