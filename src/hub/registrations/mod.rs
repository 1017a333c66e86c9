//! `registration: Managed`: names our signers in `status.registrations` of every addon that they serve, so that OCM's agent asks
//! for a certificate, and leaves everything else in that status alone.
//!
//! It is written where nobody else writes it. An addon with AddOnTemplates is the addon-manager's ([`templates`]); where another
//! program turns out to write the list, ours is put back a few times and then left ([`disputes`]).

pub mod disputes;
mod later;
pub mod report;
pub mod templates;
pub mod wanted;
mod watch;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::DynamicObject;
use tokio::sync::{Notify, mpsc, watch as channel};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use disputes::{Disputes, Sight, Step};
use later::Later;
use report::Report;
use templates::{TemplatedAddOns, Templates};
use wanted::{Signers, wanted_status};
pub(in crate::hub) use watch::keep_templates;
pub use work::Seen;
use work::{Done, Failure, Patch, Target};

use crate::api::addon_template::template_of_addon;
use crate::api::ocm::{self, AddOnApi};
use crate::api::registrations::{is_left, say_left};
use crate::clock::Clock;
use crate::hub::backoff::doubled;
use crate::hub::lease::Leading;
use crate::identity::{AddOnKey, AddOnName};
use crate::telemetry::Metrics;

/// How many addons are in work at once: one that the API server is slow about holds up no other.
const SIDE_BY_SIDE: usize = 16;
/// What failed is tried again after this long, then after twice as long each time,
const RETRY: Duration = Duration::from_millis(250);
/// up to this.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// How soon a hub that cannot tell whether it still leads looks again.
const NOT_LEADING: Duration = Duration::from_secs(5);
/// How often what is known of disputes is told; it can change many times a second.
const TELL: Duration = Duration::from_secs(10);

/// What the writer is told, and what it tells.
pub struct Inputs {
    /// Addons as they are seen.
    pub seen: (mpsc::Sender<Seen>, mpsc::Receiver<Seen>),
    /// Not all were passed on: look at all again.
    pub all_again: Arc<Notify>,
    /// Whose registrations are kept; `None` before the AddOnSigners were read.
    pub signers: channel::Receiver<Option<Signers>>,
    /// Which addons are the addon-manager's.
    pub templates: channel::Receiver<Templates>,
    /// What is known, for the AddOnSigners to tell.
    pub report: channel::Sender<Report>,
}

/// Writes registrations.
pub struct Writer {
    target: Target,
    clock: Clock,
    leading: Leading,
    metrics: Metrics,
    inputs: Inputs,
    signers: Option<Signers>,
    templates: Templates,
    disputes: Disputes,
    began: Instant,
    /// What is looked at again.
    later: Later,
    /// What is in work, and whether it has changed since.
    at_work: HashMap<AddOnKey, bool>,
    tasks: JoinSet<Done>,
    /// How often in a row an addon could not be read or written.
    failures: HashMap<AddOnKey, u32>,
    /// The AddOnTemplates that addons name for their cluster alone.
    overrides: BTreeMap<AddOnKey, String>,
    /// Addons that the list under way has shown.
    listed: Option<BTreeSet<AddOnKey>>,
}

impl Writer {
    /// With the hub's account, while it leads.
    pub fn new(
        (client, api): (Client, AddOnApi),
        clock: Clock,
        leading: Leading,
        metrics: Metrics,
        inputs: Inputs,
    ) -> Self {
        Self {
            target: Target { client, api },
            clock,
            leading,
            metrics,
            signers: None,
            templates: Templates::default(),
            inputs,
            disputes: Disputes::default(),
            began: Instant::now(),
            later: Later::default(),
            at_work: HashMap::new(),
            tasks: JoinSet::new(),
            failures: HashMap::new(),
            overrides: BTreeMap::new(),
            listed: None,
        }
    }

    /// Writes registrations until one of its inputs ends.
    ///
    /// # Errors
    /// When a task of its own panicked.
    pub async fn keep(mut self) -> Result<(), JoinError> {
        let mut tell = interval(TELL);
        tell.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let all_again = self.inputs.all_again.clone();
        self.inputs.signers.mark_changed();
        self.inputs.templates.mark_changed();
        loop {
            let has_room = self.at_work.len() < SIDE_BY_SIDE;
            tokio::select! {
                Some(seen) = self.inputs.seen.1.recv(), if has_room => self.observe(seen),
                Some(key) = self.later.next(), if has_room => self.read_again(key),
                Some(done) = self.tasks.join_next() => self.finish(done?),
                changed = self.inputs.signers.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let now = self.inputs.signers.borrow_and_update().clone();
                    let before = std::mem::replace(&mut self.signers, now);
                    self.look_at_all_again(before.is_some());
                }
                changed = self.inputs.templates.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let now = self.inputs.templates.borrow_and_update().clone();
                    let before = std::mem::replace(&mut self.templates, now);
                    self.look_at_all_again(matches!(before, Templates::Read(_)));
                }
                () = all_again.notified(), if self.listed.is_none() => self.list(),
                _ = tell.tick() => self.tell(),
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// AddOnSigners, ClusterManagementAddOns and AddOnTemplates were read, or people changed them after that.
    fn look_at_all_again(&mut self, people_did_it: bool) {
        if people_did_it {
            self.disputes.try_again();
        }
        self.inputs.all_again.notify_one();
        self.tell();
    }

    fn list(&mut self) {
        self.listed = Some(BTreeSet::new());
        self.tasks.spawn(work::list(self.target.clone(), self.inputs.seen.0.clone()));
    }

    fn observe(&mut self, seen: Seen) {
        match seen {
            Seen::There(object) => self.look(&object),
            Seen::Gone(key) => self.forget(&key),
            Seen::Listed => {
                let Some(there) = self.listed.take() else { return };
                self.disputes.tidy(self.began.elapsed(), |key| there.contains(key));
                self.overrides.retain(|key, _| there.contains(key));
            }
        }
    }

    fn forget(&mut self, key: &AddOnKey) {
        self.disputes.forget(key);
        self.overrides.remove(key);
        self.failures.remove(key);
        self.later.drop(key);
    }

    /// Decides about an addon on what is seen of it.
    fn look(&mut self, object: &DynamicObject) {
        let Some(key) = ocm::addon_key(object) else { return };
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        match template_of_addon(object) {
            Some(name) => self.overrides.insert(key.clone(), name),
            None => self.overrides.remove(&key),
        };
        if let Some(again) = self.at_work.get_mut(&key) {
            *again = true;
            return;
        }
        // Until both are known nothing is decided; then all are looked at again.
        let (Templates::Read(templated), Some(signers)) = (self.templates.clone(), self.signers.clone()) else {
            return;
        };
        if self.leading.epoch().is_none() {
            return self.later.put(&key, NOT_LEADING);
        }
        self.decide(&key, object, &signers, &templated);
    }

    fn decide(&mut self, key: &AddOnKey, object: &DynamicObject, signers: &Signers, templated: &TemplatedAddOns) {
        let now = self.clock.now();
        let wanted = wanted_status(object, self.target.api, signers, templated, now);
        let status = object.data.get("status").unwrap_or(&serde_json::Value::Null);
        let sight = Sight { differs: wanted.is_some(), says_left: is_left(status) };
        let step = self.disputes.judge(key, sight, self.now());
        let (patch, status) = match (step, wanted) {
            (Step::Write, Some(wanted)) => (Patch::Registrations, wanted),
            (Step::SayLeft, _) => {
                warn!(cluster = %key.cluster, addon = %key.addon, "Another program keeps changing the addon's registrations; they are left to it");
                (Patch::SayLeft, say_left(status, true, &now.to_string()))
            }
            (Step::TakeBack, _) => (Patch::TakeBack, say_left(status, false, &now.to_string())),
            (Step::Wait(due), _) => return self.later.put(key, due.saturating_sub(self.now())),
            (Step::Rest | Step::Write, _) => return self.later.drop(key),
        };
        self.later.drop(key);
        self.at_work.insert(key.clone(), false);
        let version = object.metadata.resource_version.clone();
        self.tasks.spawn(work::write(self.target.clone(), key.clone(), patch, version, status));
    }

    /// What was due is read first: what was seen of it may be old.
    fn read_again(&mut self, key: AddOnKey) {
        if let Some(again) = self.at_work.get_mut(&key) {
            *again = true;
            return;
        }
        self.at_work.insert(key.clone(), false);
        self.tasks.spawn(work::read(self.target.clone(), key));
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Listed => {}
            Done::Read(key, read) => {
                self.at_work.remove(&key);
                match read {
                    Ok(object) => {
                        self.failures.remove(&key);
                        self.look(&object);
                    }
                    Err(failure) => self.fail(&key, &failure),
                }
            }
            Done::Wrote(key, patch, written) => {
                let changed_since = self.at_work.remove(&key).unwrap_or_default();
                match written {
                    Ok(()) => self.wrote(&key, patch),
                    Err(failure) => {
                        if patch == Patch::Registrations {
                            self.disputes.not_written(&key);
                        }
                        return self.fail(&key, &failure);
                    }
                }
                if changed_since {
                    self.later.put(&key, Duration::ZERO);
                }
            }
        }
    }

    fn wrote(&mut self, key: &AddOnKey, patch: Patch) {
        self.failures.remove(key);
        match patch {
            Patch::Registrations => {
                info!(cluster = %key.cluster, addon = %key.addon, "Wrote the addon's registrations");
                self.metrics.registrations_written();
            }
            Patch::SayLeft => self.disputes.said(key),
            Patch::TakeBack => {
                info!(cluster = %key.cluster, addon = %key.addon, "Nobody changes the addon's registrations any more");
            }
        }
    }

    fn fail(&mut self, key: &AddOnKey, failure: &Failure) {
        if matches!(failure, Failure::Gone) {
            return self.forget(key);
        }
        if let Failure::Other(error) = failure {
            let (cluster, addon) = (&key.cluster, &key.addon);
            if self.failures.is_empty() {
                warn!(error, %cluster, %addon, "Writing the addon's registrations; trying again");
            } else {
                debug!(error, %cluster, %addon, "Writing the addon's registrations; trying again");
            }
        }
        let failures = self.failures.entry(key.clone()).or_default();
        let pause = doubled(RETRY, *failures, LONGEST_RETRY);
        *failures = failures.saturating_add(1);
        self.later.put(key, pause);
    }

    fn tell(&mut self) {
        self.disputes.tidy(self.began.elapsed(), |_| true);
        let mut overrides: BTreeMap<AddOnName, BTreeSet<String>> = BTreeMap::new();
        for (key, name) in &self.overrides {
            overrides.entry(key.addon.clone()).or_default().insert(name.clone());
        }
        let left = Arc::new(self.disputes.left().cloned().collect());
        let report = Report { templates: self.templates.clone(), overrides, left };
        let signers = &self.signers;
        self.inputs.report.send_if_modified(|known| {
            if *known == report {
                return false;
            }
            *known = report;
            for (name, config) in signers.iter().flat_map(|signers| signers.served.iter()) {
                self.metrics.registrations_left(name, known.left_of(config).count());
            }
            true
        });
    }
}
