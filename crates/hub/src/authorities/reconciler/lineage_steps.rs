//! Takes one step of a lineage: persists it, records it, and only then lets it have an effect (invariants I7 and I13).

use std::sync::Arc;
use std::time::Duration;

use ring::rand::SystemRandom;
use tokio::time::Instant;
use tracing::{debug, error, warn};
use zeroize::Zeroizing;

use super::{LineagePlan, LineageReconciler, ROUND, ReconcileError, Unrecorded};
use crate::authorities::asked::{AuthorityRequest, RequestedSteps};
use crate::authorities::lineage_report;
use crate::authorities::state::{LineageState, ReadyLineage};
use crate::authorities::store::{LineageKind, StoreError};
use crate::authorities::stored::StoredLineage;
use crate::authorities::versions::LineageObjects;
use crate::authorities::{BACKENDS_TRUST_AFTER, GATEWAYS_TRUST_AFTER};
use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::authority::{Authority, AuthorityId};
use addon_signer_core::ca::chain::Certified;
use addon_signer_core::ca::lineage::{Lineage, Member, Step, WaitsFor};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::timestamp::Timestamp;

/// How long a lineage waits for the ledger to record what has already taken effect.
pub(super) const CATCH_UP: Duration = Duration::from_millis(500);

/// A new authority, and its key as PKCS#8.
type Made = (Certified, Zeroizing<Vec<u8>>);

impl LineageReconciler {
    pub(super) async fn begin(
        &mut self,
        plan: &LineagePlan,
        seen: Option<&LineageObjects>,
        now: Timestamp,
    ) -> Result<StoredLineage, ReconcileError> {
        let asked = self.asked(plan, seen);
        self.check_outside(plan, &asked, seen, None, now).await?;
        let (authority, pkcs8) = self.new_authority(plan, now)?;
        let id = authority.authority().id().clone();
        let lineage = Lineage::default().begin(authority, now).with_handled(asked.rotate.as_deref());
        let leads = self.links.hub.leading.leads()?;
        let stored = self.links.store.create(&leads, &self.lineage.names, &lineage, &pkcs8).await?;
        self.unrecorded.by = Some(String::new());
        self.links.hub.audit.authority(self.lineage.names.lineage(), id.as_str(), "created");
        Ok(stored)
    }

    /// An authority from outside, or one that the hub makes.
    fn new_authority(&mut self, plan: &LineagePlan, now: Timestamp) -> Result<Made, ReconcileError> {
        if let Some(given) = self.outside.take().map_err(ReconcileError::NoAuthority)? {
            return Ok((given.certified, given.pkcs8));
        }
        let rng = SystemRandom::new();
        let (key, pkcs8) = PrivateKey::generate(plan.authority.key, &rng)?;
        let authority =
            Authority::self_signed(&self.lineage.names.authority, &key, now, plan.authority.duration, &rng)?;
        Ok((authority.into(), pkcs8))
    }

    fn new_if(&mut self, is_needed: bool, plan: &LineagePlan, now: Timestamp) -> Result<Option<Made>, ReconcileError> {
        is_needed.then(|| self.new_authority(plan, now)).transpose()
    }

    /// By when all holders know of an authority that becomes Active now; `None` if the hub cannot tell.
    fn known_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self.lineage.names.kind {
            LineageKind::Signer => Some(now.plus(GATEWAYS_TRUST_AFTER)),
            // While the hub cannot tell, the authority is reported as forced until it is replaced.
            LineageKind::Gateway(GatewayCertificate::Serving) => {
                self.links.trust_publisher.last_leaf().unwrap_or_default()
            }
            LineageKind::Gateway(GatewayCertificate::Client) => Some(now.plus(BACKENDS_TRUST_AFTER)),
        }
    }

    /// Persists one step. [`Self::conclude`] records and publishes it; if this hub is killed before that, the next hub
    /// does so, because it reads the step in the Secret.
    pub(super) async fn take(
        &mut self,
        stored: StoredLineage,
        step: Step,
        plan: &LineagePlan,
        asked: &RequestedSteps,
        now: Timestamp,
    ) -> Result<StoredLineage, ReconcileError> {
        let lineage = stored.lineage.clone();
        let (lineage, new_key) = match &step {
            Step::Prepare => {
                let (authority, pkcs8) = self.new_authority(plan, now)?;
                (lineage.prepare(authority, asked.rotate.as_deref(), now), Some(pkcs8))
            }
            Step::Activate => (lineage.activate(now), None),
            Step::Force(_) => (lineage.force(now), None),
            Step::Finish(id) => (lineage.finish(id), None),
            Step::GiveUp(_) => (lineage.give_up(now), None),
            Step::RollBack { id, signs } => (lineage.roll_back(id, signs, now), None),
            Step::Taint { id } => {
                let can_make = self.outside.can_give();
                let (authority, pkcs8) = self.new_if(can_make && step.needs_authority(&lineage), plan, now)?.unzip();
                (lineage.taint(id, authority, now), pkcs8)
            }
            Step::AwaitRevocation { id } => (lineage.await_revocation(id, by(about(&asked.revoke, id))), None),
            Step::Revoke { id } => {
                let (authority, pkcs8) = self.new_if(step.needs_authority(&lineage), plan, now)?.unzip();
                (lineage.revoke(id, authority, self.known_at(now), now), pkcs8)
            }
            Step::Begin | Step::Rest | Step::Wait(_) => return Ok(stored),
        };
        let new_key = new_key.as_ref().map(|pkcs8| pkcs8.as_slice());
        let leads = self.links.hub.leading.leads()?;
        let before = stored.lineage.clone();
        let stored = self.links.store.replace(&leads, &self.lineage.names, &stored, &lineage, new_key).await?;
        let asked_by = asked_by(&step, plan, asked, &before, &stored.lineage);
        let actors = self.unrecorded.by.get_or_insert_default();
        if actors != asked_by {
            actors.push_str(if actors.is_empty() || asked_by.is_empty() { "" } else { ", " });
            actors.push_str(asked_by);
        }
        self.written = stored.version().map(str::to_owned);
        if before.gone() != stored.lineage.gone() {
            self.outside.check_again();
        }
        self.unrecorded.is_urgent |= step.is_urgent();
        if let Step::Revoke { id } = &step {
            self.unrecorded.revoked.push(id.clone());
        }
        self.announce(&step, &stored.lineage);
        Ok(stored)
    }

    /// Audits the step that led to this state of the lineage; warns if no administrator requested it.
    fn announce(&self, step: &Step, after: &Lineage) {
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
        let lineage = self.lineage.names.lineage();
        self.links.hub.audit.authority(lineage, id, verb);
        match step {
            Step::Force(waiting) => {
                let text = "Activated an authority that some may not trust: the previous one is about to expire";
                error!(lineage, authority = id, %waiting, "{text}");
                self.links.hub.metrics.authority_forced(self.lineage.names.metrics_label());
            }
            Step::GiveUp(_) => {
                let text = "Gave up an authority that would have to be replaced before everybody trusts it";
                warn!(lineage, authority = id, "{text}");
            }
            _ => {}
        }
    }

    /// Records and publishes the lineage, hands it to the signers, and sets the time that a Next on a lineage of the
    /// gateway waits for. The signers get it last, because no authority may sign before its anchor is published.
    pub(super) async fn conclude(&mut self, stored: StoredLineage, step: Step) -> Result<(), ReconcileError> {
        let (bundle, anchors) = (stored.lineage.bundle()?, stored.lineage.anchors()?);
        let waiting = match step {
            Step::Wait(waiting) => Some(waiting),
            _ => None,
        };
        let report = self.report(&stored.lineage, waiting.as_ref())?;
        let leads = self.links.hub.leading.leads()?;
        self.record_steps(&stored.lineage).await?;
        let is_same = report == self.published.report
            && self.lineage.state.borrow().last().is_some_and(|last| last.anchors == anchors);
        let not_rolled_back = self.not_rolled_back.clone();
        let outside = self.outside.report(&self.lineage.plan.borrow().supply, &stored.lineage);
        let ready = ReadyLineage { stored, bundle, anchors, waiting, not_rolled_back, outside };
        let was_published = self.published.version.take().is_some();
        let published = self.links.store.publish(&leads, &self.lineage.names, &ready.anchors, report.clone()).await;
        if let Err(StoreError::Api(_)) = published {
            self.gauges.published(false);
            // An account that blocks publishing the anchors must not be able to keep a revoked authority signing.
            if self.takes_trust_away(ready.lineage()) {
                self.set(LineageState::Ready(Arc::new(ready)));
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
        self.record_anchors(ready.lineage()).await;
        self.set(LineageState::Ready(Arc::new(ready)));
        if self.outside.given.is_some() {
            self.compared = false; // the ledger may know it, from before the Secret was restored
        }
        self.hold_next().await
    }

    /// Whether this lineage has tainted or dropped an authority that is in use now.
    fn takes_trust_away(&self, after: &Lineage) -> bool {
        let state = self.lineage.state.borrow();
        let members = state.last().map(|last| last.lineage().members()).unwrap_or_default();
        let is_distrusted =
            |before: &Member| after.member(before.authority.id()).is_none_or(|now| now.tainted && !before.tainted);
        members.iter().any(is_distrusted)
    }

    /// The hub has restored the anchors. It ignores changes for a while; the regular checks continue.
    fn note_revert(&mut self) {
        let config_map = &self.lineage.names.config_map;
        if self.published.reverts.wrote(Instant::now()) == ROUND {
            warn!(config_map, "Somebody keeps changing the anchors; metadata.managedFields of the ConfigMap shows who");
        } else {
            debug!(config_map, "Somebody changed the anchors; the hub has put them back");
        }
    }

    /// The present report of the gateway's lineage; `None` for the lineage of an AddOnSigner.
    pub(super) fn report(
        &self,
        lineage: &Lineage,
        waiting: Option<&WaitsFor>,
    ) -> Result<Option<String>, serde_json::Error> {
        match self.lineage.names.kind {
            LineageKind::Gateway(_) => {
                let outside = self.outside.report(&self.lineage.plan.borrow().supply, lineage);
                lineage_report::render(
                    lineage,
                    waiting,
                    self.not_rolled_back.clone(),
                    outside,
                    self.links.hub.clock.now(),
                )
                .map(Some)
            }
            LineageKind::Signer => Ok(None),
        }
    }

    /// Records a step of this process before it takes effect, unless it takes an authority away. A step that an earlier
    /// process persisted has already taken effect, so recording it must not delay the gateway.
    pub(super) async fn record_steps(&mut self, lineage: &Lineage) -> Result<(), ReconcileError> {
        if self.record.is_known(lineage) {
            self.unrecorded = Unrecorded::default();
            return Ok(());
        }
        if !self.compared {
            return Ok(()); // not compared yet: keep what the ledger knows
        }
        let actor = self.unrecorded.by.clone();
        let exception = match self.lineage.names.kind {
            LineageKind::Gateway(_) => match self.links.objects.of(&self.lineage.names, None) {
                Some(seen) => seen.asked().exception,
                // The watch has not listed it yet: the ledger would never say who waived what.
                None => self.links.store.asked(&self.lineage.names).await?.exception,
            },
            LineageKind::Signer => None,
        };
        let actor_name = actor.as_deref().unwrap_or_default();
        let recording = self.record.write(lineage, actor_name, exception.as_ref(), &self.unrecorded.revoked);
        if actor.is_some() && !self.unrecorded.is_urgent {
            recording.await?;
            self.unrecorded = Unrecorded::default();
        } else if matches!(tokio::time::timeout(CATCH_UP, recording).await, Ok(Ok(()))) {
            self.unrecorded = Unrecorded::default();
        } else {
            debug!(
                secret = self.lineage.names.secret,
                "The ledger does not answer; the hub records the authorities later"
            );
        }
        Ok(())
    }

    async fn record_anchors(&mut self, lineage: &Lineage) {
        let recording = self.record.distributed(lineage, &self.lineage.names.config_map);
        self.published.is_recorded = matches!(tokio::time::timeout(CATCH_UP, recording).await, Ok(Ok(())));
        if !self.published.is_recorded {
            debug!(secret = self.lineage.names.secret, "The ledger does not answer; the hub records the anchors later");
        }
    }

    /// Sets when a Next of a gateway lineage may sign without further evidence. On the serving lineage, every new
    /// certificate comes with the new anchor from now on, so the hub knows when the last one without it expires.
    async fn hold_next(&mut self) -> Result<(), ReconcileError> {
        let LineageKind::Gateway(certificate) = self.lineage.names.kind else { return Ok(()) };
        let ready = self.lineage.state.borrow().ready().cloned();
        let Some(ready) = ready else { return Ok(()) };
        if ready.lineage().next().is_none_or(|next| next.activate_after.is_some()) {
            return Ok(());
        }
        let now = self.links.hub.clock.now();
        let until = match certificate {
            GatewayCertificate::Client => now.plus(BACKENDS_TRUST_AFTER),
            GatewayCertificate::Serving => match self.links.trust_publisher.last_leaf() {
                Ok(last) => last.unwrap_or(now),
                Err(_) => return Ok(()), // not known yet: the next round asks again
            },
        };
        let lineage = ready.lineage().clone().hold_next_until(until, now);
        let leads = self.links.hub.leading.leads()?;
        self.links.store.replace(&leads, &self.lineage.names, &ready.stored, &lineage, None).await?;
        Ok(()) // the watch of the Secret brings the next round
    }
}

fn about<'a>(requests: &'a [AuthorityRequest], id: &AuthorityId) -> Option<&'a AuthorityRequest> {
    AuthorityRequest::find(requests, |authority| authority == id)
}

fn by(request: Option<&AuthorityRequest>) -> &str {
    request.map_or("", |request| &request.by)
}

/// The user who asked for the step between these states of the lineage; empty if it was due by time.
fn asked_by<'a>(
    step: &Step,
    plan: &LineagePlan,
    asked: &'a RequestedSteps,
    before: &'a Lineage,
    after: &'a Lineage,
) -> &'a str {
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
