//! Brings the gateway's anchors to the managed clusters: one ManifestWork for each addon on each cluster, if the hub
//! has the right to write them (`trust.manifestWorks` in the chart).
//!
//! `steps` compares what the watches have shown with what should exist. The differences are written at a bounded rate,
//! and after each second's writes it compares again, so that a new addon need not wait until thousands have a new
//! bundle.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};
use tracing::{debug, info, warn};

pub(crate) mod cluster_bundle;
pub(crate) mod known;
mod right;
pub(crate) mod steps;
mod work_calls;

use crate::HubLinks;
use crate::dry_run::{ASK_AGAIN, Asking, Right};
use crate::registrations::discovery::AddOnVersion;
use crate::registrations::wanted::Signers;
use crate::relist::{News, Relist};
use crate::tasks::send_news;
use addon_signer_api::manifest_work::{self, digest_of};
use addon_signer_api::ocm::OcmObject;
use addon_signer_core::doubling::RevertBackoff;
use addon_signer_core::identity::{AddOnKey, AddOnName};
use addon_signer_core::names::LABEL_HUB_TRUST;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::Trust;
use addon_signer_platform::listing::{Selector, watch as watch_objects};
use addon_signer_telemetry::pulse::Pulse;
use known::Known;
use right::WorksDryRun;
use steps::{Distribution, Reached, Step, TrustReport};
use work_calls::{NotTaken, Works};

/// The pause between two writes: 10,500 ManifestWorks take some five minutes.
const PACE: Duration = Duration::from_millis(25);
/// How many writes follow one check.
const CHUNK: usize = 40;
/// The pause between two checks while there is nothing to write, so that a flood of events costs little.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the hub checks without news.
const ROUND: Duration = Duration::from_secs(15);
/// How often the log has a failure.
const WARNING: Duration = Duration::from_secs(60);
/// How long a permission must be denied before its loss is taken as real: an API server that starts does not know every
/// CRD and role at once, and without the permission a rotation does not wait for the clusters. Also how long a
/// ManifestWork must be unwanted before it is deleted.
const CONFIRMED_AFTER: Duration = Duration::from_secs(300);
/// The pauses between two writes of one object if they fail or another client undoes them: a cluster's agent may edit
/// its own ManifestWork.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);

/// How long it takes a cluster's pods and agents to use a bundle that was applied. A kubelet shows pods a changed
/// ConfigMap within 3 minutes: it checks every 60 to 90 s, and may read it from a cache that is 60 s old. Our agents
/// ask the gateway at least every 6 minutes.
pub(crate) const APPLIED_FOR: Duration = Duration::from_secs(900);

/// What the distributor reads and reports.
pub(super) struct DistributorInputs {
    /// The hub's own namespace.
    pub(super) namespace: String,
    pub(super) known: Known,
    pub(super) signers: watch::Receiver<Option<Signers>>,
    pub(super) trust: watch::Receiver<Arc<Trust>>,
    pub(super) report: watch::Sender<Distribution>,
}

/// The last writes of one ManifestWork.
struct Tried {
    reverts: RevertBackoff<Instant>,
    /// Why the last one failed.
    error: Option<String>,
    /// Whether it found an existing object.
    was_there: bool,
}

pub(super) struct Distributor {
    links: HubLinks,
    works: Works,
    inputs: DistributorInputs,
    tried: HashMap<AddOnKey, Tried>,
    /// Since when each addon has had the present trust bundle, as far as this process knows.
    applied: HashMap<AddOnKey, Timestamp>,
    /// Since when no AddOnSigner has wanted a work that still exists.
    unwanted: HashMap<AddOnKey, Instant>,
    /// The addons that AddOnSigners name, and when one of them was last dropped.
    named: BTreeSet<AddOnName>,
    shrunk: Option<Instant>,
    right: Asking<WorksDryRun>,
    /// When the first of the steps that must wait is due.
    next: Option<Instant>,
    pace: Interval,
    /// The number of writes since everything was up to date.
    written: usize,
    warned: Option<Instant>,
    pulse: Pulse,
}

impl Distributor {
    pub(super) fn new(links: &HubLinks, version: AddOnVersion, inputs: DistributorInputs) -> Self {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            works: Works { client: links.client.clone(), version },
            right: Asking::new(WorksDryRun::new(&links.client, &inputs.namespace)),
            pulse: links.pulses.start("trust on the clusters"),
            links: links.clone(),
            inputs,
            tried: HashMap::new(),
            applied: HashMap::new(),
            unwanted: HashMap::new(),
            named: BTreeSet::new(),
            shrunk: None,
            next: None,
            pace,
            written: 0,
            warned: None,
        }
    }

    /// Runs as long as the hub.
    pub(super) async fn run(mut self) {
        let mut refused: Option<Instant> = None;
        loop {
            self.pulse.beat();
            let answer = self.right.ask().await;
            match answer.or_else(|| self.right.too_late()) {
                Some(Right::Missing) => {
                    let since = *refused.get_or_insert_with(Instant::now);
                    if since.elapsed() >= CONFIRMED_AFTER || self.never_had_the_right().await {
                        send_news(&self.inputs.report, Distribution::Off);
                    }
                    rest(&self.pulse, ASK_AGAIN).await;
                }
                Some(Right::Unguarded(_) | Right::Guarded) => {
                    refused = None;
                    let watching = watch_works(self.links.client.clone(), self.inputs.known.clone());
                    tokio::select! {
                        () = watching => {}
                        () = self.write() => {}
                    }
                    self.inputs.known.forget_works();
                }
                None => {
                    refused = None;
                    if self.right.last.is_none() {
                        send_news(&self.inputs.report, Distribution::Starting); // what was known is too old
                    }
                    sleep(ROUND).await;
                }
            }
        }
    }

    /// Whether the hub has only just started, and no hub before it had the right: then no rotation waits for
    /// ManifestWorks.
    async fn never_had_the_right(&self) -> bool {
        *self.inputs.report.borrow() == Distribution::Starting && self.right.dry_run.was_never_there().await
    }

    /// Writes until the hub has lost the right.
    async fn write(&mut self) {
        loop {
            self.pulse.beat();
            if self.right.is_due() && matches!(self.right.ask().await, Some(Right::Missing)) {
                return;
            }
            let steps = self.look();
            if steps.is_empty() {
                self.wait().await;
            } else if self.perform(steps).await.is_err() {
                self.right.ask_soon();
            }
        }
    }

    /// Reports how far the distribution has come; returns what can be written now.
    fn look(&mut self) -> Vec<(AddOnKey, Step)> {
        let signers = self.inputs.signers.borrow_and_update().clone();
        let trust = Arc::clone(&self.inputs.trust.borrow_and_update());
        let anchors = trust.serving_anchors.as_ref().map(|bundle| bundle.pem());
        let (Some(signers), Some(anchors)) = (signers, anchors.map(|pem| digest_of(&pem))) else { return Vec::new() };
        let failed = |key: &AddOnKey| self.tried.get(key)?.error.clone();
        let is_unknown = Cell::new(false);
        let plan = self.links.registry.read(|registry| {
            let is_live = |key: &AddOnKey| {
                let eligibility = registry.check(&key.cluster, &key.addon);
                is_unknown.set(is_unknown.get() || eligibility.is_err_and(|cause| cause.is_unknown()));
                eligibility.is_ok()
            };
            self.inputs.known.with(|known| steps::plan(known, &signers, &anchors, is_live, failed))
        });
        // A rotation must also wait for addons of unknown eligibility, so nothing is reported.
        let Some(steps::Planned { mut steps, report, others, named }) = plan.filter(|_| !is_unknown.get()) else {
            return Vec::new();
        };
        self.hold_deletions(&mut steps);
        let now = Instant::now();
        let wanted: HashSet<&AddOnKey> = steps.iter().map(|(key, _)| key).collect();
        self.tried.retain(|key, tried| wanted.contains(key) || !tried.reverts.is_calm(now));
        if steps.is_empty() && self.written > 0 {
            info!(written = self.written, "Every ManifestWork has the present trust bundle");
            self.written = 0;
        }
        let fresh = self.note_applied(&report);
        let unguarded = right::unguarded(&self.right);
        let is_guarded = unguarded.is_none();
        let (is_whole, has_shrunk) = (signers.is_whole, self.has_shrunk(named));
        let reached = Distribution::Reached { trust, report, is_whole, has_shrunk, unguarded, fresh, others };
        send_news(&self.inputs.report, reached);
        steps.retain(|(_, step)| is_guarded || matches!(step, Step::Delete { .. }));
        let due =
            |key: &AddOnKey| self.tried.get(key).and_then(|tried| tried.reverts.due()).filter(|again| *again > now);
        self.next = steps.iter().filter_map(|(key, _)| due(key)).min();
        steps.retain(|(key, _)| due(key).is_none());
        steps
    }

    /// Notes which addons have the present trust bundle; returns those whose pods and agents may not use it yet.
    fn note_applied(&mut self, report: &TrustReport) -> BTreeSet<AddOnKey> {
        let now = self.links.clock.now();
        let is_applied = |key: &AddOnKey| report.get(&key.addon).is_some_and(|reached| reached.applied().contains(key));
        self.applied.retain(|key, _| is_applied(key));
        for key in report.values().flat_map(Reached::applied) {
            if self.applied.get(key).is_none_or(|since| *since > now) {
                self.applied.insert(key.clone(), now); // new, or the clock was set back
            }
        }
        let is_fresh = |(key, since): (&AddOnKey, &Timestamp)| (since.until(now) < APPLIED_FOR).then(|| key.clone());
        self.applied.iter().filter_map(is_fresh).collect()
    }

    /// Whether an addon was dropped less than [`CONFIRMED_AFTER`] ago. A rotation would not wait for it, although its
    /// agents' certificates become valid again if its AddOnSigner is recreated.
    fn has_shrunk(&mut self, named: BTreeSet<AddOnName>) -> bool {
        if !self.named.is_subset(&named) {
            self.shrunk = Some(Instant::now());
        }
        self.named = named;
        self.shrunk.is_some_and(|since| since.elapsed() < CONFIRMED_AFTER)
    }

    /// Delays the deletion of works that no AddOnSigner wants any more: a misspelt name, or an AddOnSigner that is
    /// deleted and recreated, must not take the trust bundle from a fleet.
    fn hold_deletions(&mut self, steps: &mut Vec<(AddOnKey, Step)>) {
        let now = Instant::now();
        let is_unwanted = |step: &Step| matches!(step, Step::Delete { at_once: false, .. });
        let unwanted: HashSet<&AddOnKey> =
            steps.iter().filter(|(_, step)| is_unwanted(step)).map(|(key, _)| key).collect();
        self.unwanted.retain(|key, _| unwanted.contains(key));
        for key in unwanted {
            self.unwanted.entry(key.clone()).or_insert(now);
        }
        steps.retain(|(key, _)| {
            self.unwanted.get(key).is_none_or(|since| now.duration_since(*since) >= CONFIRMED_AFTER)
        });
    }

    /// Waits for news, for the next retry, or until the right must be checked again.
    async fn wait(&mut self) {
        let round = self.right.at.min(Instant::now() + ROUND);
        let next = self.next.map_or(round, |next| next.min(round));
        let DistributorInputs { known, signers, trust, .. } = &mut self.inputs;
        tokio::select! {
            () = known.changed() => {}
            () = changed(signers) => {}
            () = changed(trust) => {}
            () = sleep_until(next) => {}
        }
        sleep(PAUSE).await;
    }

    /// Takes the first steps. An error means that the API server forbids them to this account.
    async fn perform(&mut self, steps: Vec<(AddOnKey, Step)>) -> Result<(), ()> {
        let Ok(leads) = self.links.leading.leads() else {
            sleep(PAUSE).await; // another hub may lead
            return Ok(());
        };
        let mut refused = Ok(());
        for (key, step) in steps.into_iter().take(CHUNK) {
            self.pace.tick().await;
            self.pulse.beat();
            let anchors = self.inputs.trust.borrow().serving_anchors.as_ref().map(|bundle| bundle.pem());
            let Some(anchors) = anchors else { break };
            let mut done = self.works.take(&leads, &self.inputs.known, &key, step, &anchors).await;
            if let Err(failure) = &mut done {
                if failure.is_there && !self.tried.get(&key).is_some_and(|tried| tried.was_there) {
                    failure.error = None; // perhaps this hub's own, made without a response: the watch shows it soon
                }
                refused = if failure.is_refused { Err(()) } else { refused };
                self.warn(&key, failure);
            } else {
                self.written += 1;
                self.links.metrics.works_written.inc();
            }
            self.note(key, done.err());
        }
        refused
    }

    fn note(&mut self, key: AddOnKey, failure: Option<NotTaken>) {
        let before = self.tried.remove(&key).map(|tried| tried.reverts);
        let mut reverts = before.unwrap_or_else(|| RevertBackoff::new(SHORTEST, LONGEST));
        reverts.wrote(Instant::now());
        let was_there = failure.as_ref().is_some_and(|failure| failure.is_there);
        let error = failure.and_then(|failure| failure.error);
        self.tried.insert(key, Tried { reverts, error, was_there });
    }

    fn warn(&mut self, key: &AddOnKey, failure: &NotTaken) {
        let is_news = failure.error.is_some() && self.warned.is_none_or(|at| at.elapsed() >= WARNING);
        let AddOnKey { cluster, addon } = key;
        if is_news {
            self.warned = Some(Instant::now());
            warn!(error = failure.error, %cluster, %addon, "Could not write a ManifestWork; the hub retries");
        } else {
            debug!(error = failure.error, %cluster, %addon, "Could not write a ManifestWork; the hub retries");
        }
    }
}

/// Pauses, with signs of life.
async fn rest(pulse: &Pulse, pause: Duration) {
    let end = Instant::now() + pause;
    while Instant::now() < end {
        pulse.beat();
        sleep_until(end.min(Instant::now() + ROUND)).await;
    }
}

/// Waits for news of another task; if that task has ended, the hub is ending.
async fn changed<T>(news: &mut watch::Receiver<T>) {
    if news.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Keeps the hub's ManifestWorks up to date.
async fn watch_works(client: Client, known: Known) {
    let api = kube::Api::<OcmObject>::all_with(client, &manifest_work::resource());
    let mut events = watch_objects(api, Selector::labels(LABEL_HUB_TRUST));
    let mut relist = Relist::default();
    while let Some(event) = events.next().await {
        match event.map(|event| relist.news(event, |found| manifest_work::key_of(&found.object))) {
            Ok(None) => {}
            Ok(Some(News::There(found))) => known.put_work(&found.object),
            Ok(Some(News::Deleted(found))) => known.remove_work(&found.object),
            Ok(Some(News::Listed(shown))) => known.complete_works(|key| shown.contains(key)),
            Err(error) => warn!(%error, "The watch of ManifestWorks failed; the hub retries"),
        }
    }
}

#[cfg(test)]
mod tests;
