//! The one task that decides what is written and when. Each call is a task of its own, so that one addon delays no
//! other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::api::DynamicObject;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, info, warn};

use super::discovery::AddOnVersion;
use super::later::Later;
use super::oversized::Oversized;
use super::report::RegistrationReport;
use super::wanted::{Signers, wanted_status};
use super::work::{self, AddOnsApi, Done, Patch, SeenAddOn, WriteFailure};
use crate::HubLinks;
use crate::certifications::Certifications;
use crate::lease::Leads;
use addon_signer_api::addon_template::template_of_addon;
use addon_signer_api::ocm::{self, AddOnApi, OcmObject};
use addon_signer_api::registrations::{is_left, say_left};
use addon_signer_core::doubling::{RevertBackoff, doubled};
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::templates::{TemplatedAddOns, Templates};
use addon_signer_telemetry::pulse::Pulse;
use certificate_reports::CertificateReports;

mod certificate_reports;
mod reverts;

/// How many addons are in work at once.
const SIDE_BY_SIDE: usize = 16;
/// The pause before a failed call is retried; it doubles each time.
const RETRY: Duration = Duration::from_millis(250);
/// The longest pause before a failed call is retried.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// How soon an addon that has changed while it was in work is read again.
const AGAIN: Duration = Duration::from_secs(1);
/// After this many failures in a row, the AddOnSigners report an addon.
const FAILING: u32 = 3;
/// The longest reported error in bytes: some quote values that a cluster wrote.
const ERROR_MAX: usize = 256;
/// How often the writer publishes its report, and lists all addons if it missed some. Both may be due many times a
/// second.
const ROUND: Duration = Duration::from_secs(10);
/// The shortest time between two lists of all addons.
const LIST_PAUSE: Duration = Duration::from_secs(6);

/// The inputs of the writer, and its report.
pub(crate) struct RegistrationInputs {
    /// Addons as the watch and the lists show them.
    pub seen: (mpsc::Sender<SeenAddOn>, mpsc::Receiver<SeenAddOn>),
    /// Notified if the writer missed an addon: it then lists all addons.
    pub all_again: Arc<Notify>,
    /// The signers whose registrations are kept; `None` before the AddOnSigners were read.
    pub signers: watch::Receiver<Option<Signers>>,
    /// Which addons OCM's addon-manager registers.
    pub templates: watch::Receiver<Templates>,
    /// Which addons have certificates.
    pub certifications: Certifications,
    /// What the status of AddOnSigners reports; `None` before the first report.
    pub report: watch::Sender<Option<RegistrationReport>>,
}

/// The lists of all addons.
struct Listing {
    /// Whether all addons have to be listed again.
    due: bool,
    /// Whether a setting has changed since the last list began, so that earlier writes no longer count.
    settings_changed: bool,
    /// When the next list may start at the earliest.
    next: Instant,
    /// Addons that the list under way has shown.
    shown: Option<BTreeSet<AddOnKey>>,
}

/// Writes registrations.
pub(crate) struct RegistrationWriter {
    target: AddOnsApi,
    links: HubLinks,
    inputs: RegistrationInputs,
    signers: Option<Signers>,
    templates: Templates,
    /// The last writes of each addon, which another program may change back.
    reverts: HashMap<AddOnKey, RevertBackoff<Instant>>,
    /// Addons whose registrations are left to a program that keeps changing them.
    left: BTreeSet<AddOnKey>,
    /// Addons that wait to be checked again.
    later: Later,
    /// Addons in work, and whether each has changed since the work began.
    at_work: HashMap<AddOnKey, bool>,
    tasks: JoinSet<Done>,
    /// How often in a row an addon could not be read or written, and the last error.
    failures: HashMap<AddOnKey, (u32, Option<String>)>,
    /// Whether a failure was logged in this round.
    warned: bool,
    oversized: Oversized,
    /// The AddOnTemplates that addons name for their cluster alone.
    overrides: BTreeMap<AddOnKey, String>,
    reports: CertificateReports,
    list: Listing,
    /// Whether all addons were listed once.
    is_complete: bool,
}

impl RegistrationWriter {
    /// Makes a writer, which writes while this hub leads.
    pub(crate) fn new(links: &HubLinks, version: AddOnVersion, inputs: RegistrationInputs) -> Self {
        Self {
            target: AddOnsApi { client: links.client.clone(), version },
            links: links.clone(),
            reports: CertificateReports::new(inputs.certifications.clone()),
            inputs,
            signers: None,
            templates: Templates::default(),
            reverts: HashMap::new(),
            left: BTreeSet::new(),
            later: Later::default(),
            at_work: HashMap::new(),
            tasks: JoinSet::new(),
            failures: HashMap::new(),
            warned: false,
            oversized: Oversized::default(),
            overrides: BTreeMap::new(),
            list: Listing { due: true, settings_changed: false, next: Instant::now(), shown: None },
            is_complete: false,
        }
    }

    /// Writes registrations until one of its inputs ends.
    ///
    /// # Errors
    /// One of its tasks panicked.
    pub(crate) async fn keep(mut self, pulse: Pulse) -> Result<(), JoinError> {
        let mut round = interval(ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.inputs.signers.mark_changed();
        self.inputs.templates.mark_changed();
        loop {
            pulse.beat();
            self.list();
            let has_room = self.at_work.len() < SIDE_BY_SIDE;
            tokio::select! {
                Some(seen) = self.inputs.seen.1.recv(), if has_room => self.observe(seen),
                Some(key) = self.later.next(), if has_room => self.read_again(key),
                key = self.reports.next(), if has_room => match key {
                    Some(key) => self.read_again(key),
                    None => self.list.due = true,
                },
                Some(done) = self.tasks.join_next() => self.finish(done?),
                changed = self.inputs.signers.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let now = self.inputs.signers.borrow_and_update().clone();
                    let before = std::mem::replace(&mut self.signers, now);
                    let both = before.as_ref().zip(self.signers.as_ref());
                    if !both.is_some_and(|(before, now)| before.register_like(now)) {
                        (self.list.due, self.list.settings_changed) = (true, true);
                    }
                }
                changed = self.inputs.templates.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    self.templates = self.inputs.templates.borrow_and_update().clone();
                    (self.list.due, self.list.settings_changed) = (true, true);
                }
                () = sleep_until(self.list.next), if Instant::now() < self.list.next => {}
                _ = round.tick() => {
                    // This is checked once per round, so that a flood of events does not cause one list after the
                    // other.
                    self.list.due |= self.inputs.all_again.notified().now_or_never().is_some();
                    self.warned = false;
                    self.tell();
                }
            }
        }
    }

    /// The signers and templates that decisions need, once both are known.
    fn known(&self) -> Option<(Signers, Arc<TemplatedAddOns>)> {
        match (&self.signers, &self.templates) {
            (Some(signers), Templates::Read(templated)) => Some((signers.clone(), Arc::clone(templated))),
            _ => None,
        }
    }

    /// Starts to list all addons, if that is due and the hub could write to them.
    fn list(&mut self) {
        let is_time = self.list.due && self.list.shown.is_none() && Instant::now() >= self.list.next;
        if is_time && self.known().is_some() && self.links.leading.leads().is_ok() {
            (self.list.due, self.list.shown, self.list.next) =
                (false, Some(BTreeSet::new()), Instant::now() + LIST_PAUSE);
            // Forget them only now: settings may change often, but a list begins only every few seconds.
            if std::mem::take(&mut self.list.settings_changed) {
                self.reverts.clear();
            }
            self.tasks.spawn(work::list(self.target.clone(), self.inputs.seen.0.clone()));
        }
    }

    fn observe(&mut self, seen: SeenAddOn) {
        match seen {
            SeenAddOn::There(addon) => self.compare(&addon, false),
            SeenAddOn::Deleted(key) => self.forget(&key),
            SeenAddOn::Listed => {
                let Some(there) = self.list.shown.take() else { return };
                self.reverts.retain(|key, _| there.contains(key));
                self.left.retain(|key| there.contains(key));
                self.overrides.retain(|key, _| there.contains(key));
                if !std::mem::replace(&mut self.is_complete, true) {
                    self.tell();
                }
            }
        }
    }

    fn forget(&mut self, key: &AddOnKey) {
        self.reverts.remove(key);
        self.left.remove(key);
        self.overrides.remove(key);
        self.failures.remove(key);
        self.later.drop(key);
        self.reports.forget(key);
    }

    /// Decides what to do about an addon that was just seen. `is_turn`: whether it was read to report on its
    /// certificate.
    fn compare(&mut self, addon: &OcmObject, is_turn: bool) {
        let object = &addon.object;
        let Some(key) = ocm::addon_key(object) else { return };
        if let Some(listed) = &mut self.list.shown {
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
        if addon.is_cut {
            self.oversized.note(&key, self.links.clock.now());
            return drop(self.failures.remove(&key));
        }
        let api = self.target.version.now();
        if AddOnApi::of(object) != Some(api) {
            // The version has changed since the addon was read, and each version has another shape of registrations.
            return self.later.put(&key, AGAIN);
        }
        match (self.known(), self.links.leading.leads()) {
            (Some((signers, templated)), Ok(leads)) => {
                if !self.decide(&leads, (&key, api), object, &signers, &templated) {
                    self.report_certificate(&leads, (&key, api), object, is_turn);
                }
            }
            _ => self.list.due = true,
        }
    }

    /// Writes the registrations of an addon if they differ. Returns whether they do, now or later.
    fn decide(
        &mut self,
        leads: &Leads,
        (key, api): (&AddOnKey, AddOnApi),
        object: &DynamicObject,
        signers: &Signers,
        templated: &TemplatedAddOns,
    ) -> bool {
        let now = self.links.clock.now();
        let wanted = wanted_status(object, api, signers, templated, now);
        let status = object.data.get("status").unwrap_or(&Value::Null);
        let says_left = is_left(status);
        let pause = self.pause_before_write(key, wanted.is_some(), says_left);
        let (patch, status) = match wanted {
            None if !says_left => {
                self.failures.remove(key);
                return false;
            }
            _ if !pause.is_zero() => {
                self.failures.remove(key);
                self.later.put(key, pause);
                return false; // what the addon waits for is worth reporting meanwhile
            }
            None => (Patch::TakeBack, say_left(status, false, &now.to_string())),
            Some(wanted) if says_left || !self.left.contains(key) => {
                (Patch::Registrations { says_left: false }, wanted)
            }
            Some(wanted) => (Patch::Registrations { says_left: true }, reverts::saying_left(wanted, status, now)),
        };
        if self.failures.contains_key(key) && self.later.has(key) {
            return true; // changes of the addon do not hasten the retry
        }
        self.at_work.insert(key.clone(), false);
        let version = object.metadata.resource_version.clone();
        self.tasks.spawn(work::write(leads.clone(), self.target.addons(key, api), key.clone(), patch, version, status));
        true
    }

    /// Reads a due addon again before deciding about it: what the hub has seen of it may be outdated.
    fn read_again(&mut self, key: AddOnKey) {
        if let Some(again) = self.at_work.get_mut(&key) {
            *again = true;
            return;
        }
        self.at_work.insert(key.clone(), false);
        self.tasks.spawn(work::read(self.target.clone(), key));
    }

    fn finish(&mut self, done: Done) {
        let key = match &done {
            Done::Listed => return,
            Done::Read(key, _) | Done::Wrote(key, ..) => key.clone(),
        };
        let changed_since = self.at_work.remove(&key).unwrap_or_default();
        let is_turn = self.reports.end_turn(&key);
        match done {
            Done::Listed => {}
            Done::Read(_, Ok(addon)) => self.compare(&addon, is_turn),
            Done::Wrote(_, patch, Ok(())) => self.wrote(&key, patch),
            Done::Read(_, Err(WriteFailure::Gone)) | Done::Wrote(_, _, Err(WriteFailure::Gone)) => self.forget(&key),
            Done::Wrote(_, Patch::Certificate, Err(failure)) => {
                // A report that cannot be written is no failure of the registration.
                debug!(?failure, addon = %key, "Could not report on an addon's certificate; the hub retries");
                self.later.put(&key, reverts::SHORTEST);
            }
            Done::Read(_, Err(failure)) | Done::Wrote(_, _, Err(failure)) => self.fail(&key, failure),
        }
        if changed_since {
            self.later.put(&key, AGAIN);
        }
    }

    fn wrote(&mut self, key: &AddOnKey, patch: Patch) {
        if patch == Patch::Certificate {
            return; // reported, and noted when it was begun
        }
        self.failures.remove(key);
        self.note_write(key, reverts::SHORTEST);
        let AddOnKey { cluster, addon } = key;
        match patch {
            Patch::Registrations { says_left } => {
                if says_left {
                    warn!(
                        %cluster, %addon,
                        "Another program keeps changing the addon's registrations; the hub leaves them to it"
                    );
                }
                info!(%cluster, %addon, "The hub wrote the addon's registrations");
                self.links.metrics.registrations_written.inc();
            }
            Patch::TakeBack => {
                info!(%cluster, %addon, "No other program changes the addon's registrations any more");
            }
            Patch::Certificate => {}
        }
    }

    fn fail(&mut self, key: &AddOnKey, failure: WriteFailure) {
        let AddOnKey { cluster, addon } = key;
        let error = match failure {
            WriteFailure::Other(mut error) => {
                error.truncate(error.floor_char_boundary(ERROR_MAX));
                Some(error)
            }
            WriteFailure::Gone | WriteFailure::Conflict | WriteFailure::NotLeading => None, // all normal
        };
        let is_news = error.is_some() && !std::mem::replace(&mut self.warned, true);
        if is_news {
            warn!(error, %cluster, %addon, "Could not read or write an addon's registrations; the hub retries");
        } else {
            debug!(error, %cluster, %addon, "Could not read or write an addon's registrations; the hub retries");
        }
        let (failures, why) = self.failures.entry(key.clone()).or_default();
        let pause = doubled(RETRY, *failures, LONGEST_RETRY);
        (*failures, *why) = (failures.saturating_add(1), error);
        self.later.put(key, pause);
    }
}

#[cfg(test)]
mod tests;
