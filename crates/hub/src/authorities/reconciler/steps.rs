//! Takes one step of a line: persists it, records it, and only then lets it have an effect (invariants I7 and I13).

use std::sync::Arc;
use std::time::Duration;

use ring::rand::SystemRandom;
use tokio::time::Instant;
use tracing::{debug, error, warn};
use zeroize::Zeroizing;

use super::{LinePlan, LineReconciler, ROUND, ReconcileError, Unrecorded};
use crate::authorities::asked::{Asked, AuthorityRequest};
use crate::authorities::report;
use crate::authorities::state::{LineState, ReadyLine};
use crate::authorities::store::{LineKind, StoreError};
use crate::authorities::stored::StoredLine;
use crate::authorities::versions::LineObjects;
use crate::authorities::{BACKENDS_TRUST_AFTER, GATEWAYS_TRUST_AFTER};
use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::authority::{Authority, AuthorityId};
use addon_signer_core::ca::chain::Certified;
use addon_signer_core::ca::line::{Line, Member, Step, WaitsFor};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::timestamp::Timestamp;

/// How long a line waits until the ledger has recorded what has already taken effect.
pub(super) const CATCH_UP: Duration = Duration::from_millis(500);

/// A new authority, and its key as PKCS#8.
type Made = (Certified, Zeroizing<Vec<u8>>);

impl LineReconciler {
    pub(super) async fn begin(
        &mut self,
        plan: &LinePlan,
        seen: Option<&LineObjects>,
        now: Timestamp,
    ) -> Result<StoredLine, ReconcileError> {
        let asked = self.asked(plan, seen);
        self.look_outside(plan, &asked, seen, None, now).await?;
        let (authority, pkcs8) = self.new_authority(plan, now)?;
        let id = authority.authority().id().clone();
        let line = Line::default().begin(authority, now).with_handled(asked.rotate.as_deref());
        let leads = self.links.leading.leads()?;
        let stored = self.links.store.create(&leads, &self.line.names, &line, &pkcs8).await?;
        self.unrecorded.by = Some(String::new());
        self.links.audit.authority(self.line.names.line(), id.as_str(), "created");
        Ok(stored)
    }

    /// An authority from outside, or one that the hub makes.
    fn new_authority(&mut self, plan: &LinePlan, now: Timestamp) -> Result<Made, ReconcileError> {
        if let Some(given) = self.outside.take().map_err(ReconcileError::NoAuthority)? {
            return Ok((given.certified, given.pkcs8));
        }
        let rng = SystemRandom::new();
        let (key, pkcs8) = PrivateKey::generate(plan.authority.key, &rng)?;
        let authority = Authority::self_signed(&self.line.names.authority, &key, now, plan.authority.duration, &rng)?;
        Ok((authority.into(), pkcs8))
    }

    fn new_if(&mut self, is_needed: bool, plan: &LinePlan, now: Timestamp) -> Result<Option<Made>, ReconcileError> {
        is_needed.then(|| self.new_authority(plan, now)).transpose()
    }

    /// By when everybody has been told of an authority that becomes Active now; `None` if that is not known.
    fn known_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self.line.names.kind {
            LineKind::Agents => Some(now.plus(GATEWAYS_TRUST_AFTER)),
            // While it cannot be known, the authority is said to be forced until it is replaced.
            LineKind::Gateway(GatewayCertificate::Serving) => {
                self.links.trust_publisher.last_leaf().unwrap_or_default()
            }
            LineKind::Gateway(GatewayCertificate::Client) => Some(now.plus(BACKENDS_TRUST_AFTER)),
        }
    }

    /// Persists one step. [`Self::settle`] records and publishes it.
    pub(super) async fn take(
        &mut self,
        stored: StoredLine,
        step: Step,
        plan: &LinePlan,
        asked: &Asked,
        now: Timestamp,
    ) -> Result<StoredLine, ReconcileError> {
        let line = stored.line.clone();
        let (line, new_key) = match &step {
            Step::Prepare => {
                let (authority, pkcs8) = self.new_authority(plan, now)?;
                (line.prepare(authority, asked.rotate.as_deref(), now), Some(pkcs8))
            }
            Step::Activate => (line.activate(now), None),
            Step::Force(_) => (line.force(now), None),
            Step::Finish(id) => (line.finish(id), None),
            Step::GiveUp(_) => (line.give_up(now), None),
            Step::RollBack { id, signs } => (line.roll_back(id, signs, now), None),
            Step::Taint { id } => {
                let can_make = self.outside.can_give();
                let (authority, pkcs8) = self.new_if(can_make && step.needs_authority(&line), plan, now)?.unzip();
                (line.taint(id, authority, now), pkcs8)
            }
            Step::AwaitRevocation { id } => (line.await_revocation(id, by(about(&asked.revoke, id))), None),
            Step::Revoke { id } => {
                let (authority, pkcs8) = self.new_if(step.needs_authority(&line), plan, now)?.unzip();
                (line.revoke(id, authority, self.known_at(now), now), pkcs8)
            }
            Step::Begin | Step::Rest | Step::Wait(_) => return Ok(stored),
        };
        let new_key = new_key.as_ref().map(|pkcs8| pkcs8.as_slice());
        let leads = self.links.leading.leads()?;
        let before = stored.line.clone();
        let stored = self.links.store.replace(&leads, &self.line.names, &stored, &line, new_key).await?;
        let asked_by = asked_by(&step, plan, asked, &before, &stored.line);
        let actors = self.unrecorded.by.get_or_insert_default();
        if actors != asked_by {
            actors.push_str(if actors.is_empty() || asked_by.is_empty() { "" } else { ", " });
            actors.push_str(asked_by);
        }
        self.written = stored.version().map(str::to_owned);
        if before.gone() != stored.line.gone() {
            self.outside.look_again();
        }
        self.unrecorded.is_urgent |= step.is_urgent();
        if let Step::Revoke { id } = &step {
            self.unrecorded.revoked.push(id.clone());
        }
        self.announce(&step, &stored.line);
        Ok(stored)
    }

    /// Tells the audit log of a step that led to this line, and people of one that nobody has asked for.
    fn announce(&self, step: &Step, after: &Line) {
        let (verb, id) = match step {
            Step::Prepare => ("prepared", id_of(after.next())),
            Step::Force(_) => ("forced", id_of(after.active())),
            Step::Finish(id) => ("removed", id.as_str()),
            Step::GiveUp(id) => ("given-up", id.as_str()),
            Step::RollBack { id, .. } => ("rolled-back", id.as_str()),
            Step::Taint { id } => ("tainted", id.as_str()),
            Step::AwaitRevocation { id } => ("awaits-revocation", id.as_str()),
            Step::Revoke { id } => ("revoked", id.as_str()),
            Step::Activate | Step::Begin | Step::Rest | Step::Wait(_) => ("activated", id_of(after.active())),
        };
        let line = self.line.names.line();
        self.links.audit.authority(line, id, verb);
        match step {
            Step::Force(waiting) => {
                let text = "Activated an authority that some may not trust: the previous one is about to expire";
                error!(line, authority = id, %waiting, "{text}");
                self.links.metrics.authority_forced(self.line.names.metrics_label());
            }
            Step::GiveUp(_) => {
                let text = "Gave up an authority that would have to be replaced before everybody trusts it";
                warn!(line, authority = id, "{text}");
            }
            _ => {}
        }
    }

    /// Records and publishes the line, hands it to the signers, and sets the time that a Next on a line of the gateway
    /// waits for.
    pub(super) async fn settle(&mut self, stored: StoredLine, step: Step) -> Result<(), ReconcileError> {
        let (bundle, anchors) = (stored.line.bundle()?, stored.line.anchors()?);
        let waiting = match step {
            Step::Wait(waiting) => Some(waiting),
            _ => None,
        };
        let report = self.report(&stored.line, waiting.as_ref())?;
        let leads = self.links.leading.leads()?;
        self.record_steps(&stored.line).await?;
        let is_same = report == self.published.report
            && self.line.state.borrow().last().is_some_and(|last| last.anchors == anchors);
        let not_rolled_back = self.not_rolled_back.clone();
        let outside = self.outside.report(&self.line.plan.borrow().supply, &stored.line);
        let ready = ReadyLine { stored, bundle, anchors, waiting, not_rolled_back, outside };
        let was_published = self.published.version.take().is_some();
        let published = self.links.store.publish(&leads, &self.line.names, &ready.anchors, report.clone()).await;
        if let Err(StoreError::Api(_)) = published {
            self.gauges.published(false);
            // Who keeps the anchors from being published must not keep a revoked authority signing.
            if self.takes_trust_away(ready.line()) {
                self.set(LineState::Ready(Arc::new(ready)));
            }
            return published.map(drop).map_err(ReconcileError::from);
        }
        let (version, was_changed) = published?;
        self.gauges.published(true);
        if was_changed && was_published && is_same {
            self.note_revert();
        }
        self.published.version = version;
        self.published.report = report;
        self.record_anchors(ready.line()).await;
        self.set(LineState::Ready(Arc::new(ready)));
        if self.outside.given().is_some() {
            self.compared = false; // the ledger may know it, from before the Secret was restored
        }
        self.hold_next().await
    }

    /// Whether an authority that is in use now is tainted or gone in this line.
    fn takes_trust_away(&self, after: &Line) -> bool {
        let state = self.line.state.borrow();
        let members = state.last().map(|last| last.line().members()).unwrap_or_default();
        let is_distrusted =
            |before: &Member| after.member(before.authority.id()).is_none_or(|now| now.tainted && !before.tainted);
        members.iter().any(is_distrusted)
    }

    /// The hub has put back the anchors. For a while it ignores changes; the regular checks continue.
    fn note_revert(&mut self) {
        let config_map = &self.line.names.config_map;
        if self.published.reverts.wrote(Instant::now()) == ROUND {
            warn!(config_map, "Somebody keeps changing the anchors; metadata.managedFields of the ConfigMap shows who");
        } else {
            debug!(config_map, "Somebody changed the anchors; the hub has put them back");
        }
    }

    /// What the report of the gateway's line says at this moment; `None` for the line of an AddOnSigner.
    pub(super) fn report(&self, line: &Line, waiting: Option<&WaitsFor>) -> Result<Option<String>, serde_json::Error> {
        match self.line.names.kind {
            LineKind::Gateway(_) => {
                let outside = self.outside.report(&self.line.plan.borrow().supply, line);
                report::render(line, waiting, self.not_rolled_back.clone(), outside, self.links.clock.now()).map(Some)
            }
            LineKind::Agents => Ok(None),
        }
    }

    /// Records a step of this process before it has an effect, unless it takes an authority away. A step that an
    /// earlier process has persisted has already taken effect, so recording it must not make the gateway wait.
    pub(super) async fn record_steps(&mut self, line: &Line) -> Result<(), ReconcileError> {
        if self.record.is_known(line) {
            self.unrecorded = Unrecorded::default();
            return Ok(());
        }
        if !self.compared {
            return Ok(()); // what the ledger knows of the line is still needed
        }
        let actor = self.unrecorded.by.clone();
        let waiver = match self.line.names.kind {
            LineKind::Gateway(_) => self.links.objects.of(&self.line.names, None).and_then(|seen| seen.asked().waiver),
            LineKind::Agents => None,
        };
        let actor_name = actor.as_deref().unwrap_or_default();
        let recording = self.record.write(line, actor_name, waiver.as_ref(), &self.unrecorded.revoked);
        if actor.is_some() && !self.unrecorded.is_urgent {
            recording.await?;
            self.unrecorded = Unrecorded::default();
        } else if matches!(tokio::time::timeout(CATCH_UP, recording).await, Ok(Ok(()))) {
            self.unrecorded = Unrecorded::default();
        } else {
            debug!(
                secret = self.line.names.secret,
                "The ledger does not answer; the hub records the authorities later"
            );
        }
        Ok(())
    }

    async fn record_anchors(&mut self, line: &Line) {
        let recording = self.record.distributed(line, &self.line.names.config_map);
        self.published.is_recorded = matches!(tokio::time::timeout(CATCH_UP, recording).await, Ok(Ok(())));
        if !self.published.is_recorded {
            debug!(secret = self.line.names.secret, "The ledger does not answer; the hub records the anchors later");
        }
    }

    /// Sets when a Next on a line of the gateway may sign without further evidence. On the serving line, every new
    /// certificate comes with the new anchor from now on, so the end of the last certificate without it is known.
    async fn hold_next(&mut self) -> Result<(), ReconcileError> {
        let LineKind::Gateway(certificate) = self.line.names.kind else { return Ok(()) };
        let ready = self.line.state.borrow().ready().cloned();
        let Some(ready) = ready else { return Ok(()) };
        if ready.line().next().is_none_or(|next| next.activate_after.is_some()) {
            return Ok(());
        }
        let now = self.links.clock.now();
        let until = match certificate {
            GatewayCertificate::Client => now.plus(BACKENDS_TRUST_AFTER),
            GatewayCertificate::Serving => match self.links.trust_publisher.last_leaf() {
                Ok(last) => last.unwrap_or(now),
                Err(_) => return Ok(()), // not known yet: the next round asks again
            },
        };
        let line = ready.line().clone().hold_next_until(until, now);
        let leads = self.links.leading.leads()?;
        self.links.store.replace(&leads, &self.line.names, &ready.stored, &line, None).await?;
        Ok(()) // the watch of the Secret brings the next round
    }
}

fn about<'a>(requests: &'a [AuthorityRequest], id: &AuthorityId) -> Option<&'a AuthorityRequest> {
    AuthorityRequest::find(requests, |authority| authority == id)
}

fn by(request: Option<&AuthorityRequest>) -> &str {
    request.map_or("", |request| &request.by)
}

/// Who asked for a step that led from one line to the other; empty if it was due by time.
fn asked_by<'a>(step: &Step, plan: &LinePlan, asked: &'a Asked, before: &'a Line, after: &'a Line) -> &'a str {
    match step {
        Step::RollBack { .. } => by(asked.roll_back.as_ref()),
        Step::Taint { id } => by(about(&asked.taint, id)),
        Step::AwaitRevocation { id } => by(about(&asked.revoke, id)),
        Step::Revoke { id } => {
            let remembered = before.member(id).and_then(|member| member.to_revoke.as_deref());
            remembered.unwrap_or_else(|| by(about(&asked.revoke, id)))
        }
        Step::Prepare if plan.supply.source == AuthoritySource::Request => {
            let request = asked.import.as_deref().and_then(|text| text.lines().next()).unwrap_or_default();
            request.split_once(' ').map_or("", |(_, user)| user)
        }
        // `ca rotate` writes the time and the user; other programs may write anything.
        Step::Prepare if after.handled_request() != before.handled_request() => {
            let request = after.handled_request().unwrap_or_default();
            request.split_once(' ').map_or(request, |(_, user)| user)
        }
        _ => "",
    }
}

fn id_of(member: Option<&Member>) -> &str {
    member.map_or("", |member| member.authority.id().as_str())
}
