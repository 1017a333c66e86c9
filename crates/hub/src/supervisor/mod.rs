//! Starts and stops what each AddOnSigner needs, and observes the end of every task (invariant I12).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

mod calls;
pub(crate) mod changes;
mod events;
mod gone;
mod looking;
mod paced;
mod pending;
pub(crate) mod permission;
mod registered;
mod reporting;
mod rights;
#[cfg(test)]
mod seen;
mod start;
pub mod status;
mod task;

use super::{HubError, HubLinks, HubSettings};
use crate::authorities::reconciler::LinePlan;
use crate::authorities::state::LineState;
use crate::authorities::store::AuthorityStore;
use crate::authorities::trust_publisher::TrustPublisher;
use crate::authorities::versions::WatchedObjects;
use crate::distribution::steps::Distribution;
use crate::recording::Notes;
use crate::registrations::report::RegistrationReport;
use crate::registrations::version::AddOnVersion;
use crate::registrations::wanted::Signers;
use crate::relist::Relist;
use crate::requests::dispatcher::Signing;
use crate::requests::foreign::ForeignReport;
use crate::requests::signer::{ClusterLimits, SignerShared};
use addon_signer_api::rules::SignerConfig;
use addon_signer_api::{AddOnSigner, AddOnSignerSpec, GuardedSigner};
use addon_signer_core::identity::{AddOnKey, SignerName};
use addon_signer_core::oldest::{MOST_SIGNERS, Oldest};
use addon_signer_core::ownership::Ownership;
use addon_signer_platform::listing::{Selector, watch as watch_objects};
use addon_signer_telemetry::pulse::Pulse;
use pending::{Calls, Pending};
use status::{Report, Validity};

/// How often the supervisor writes statuses that could not be written, checks missing rights again, and checks what has
/// expired.
const ROUND: Duration = Duration::from_secs(15);
/// The shortest time between two lists that look for AddOnSigners which have come to take effect.
const LIST_PAUSE: Duration = Duration::from_secs(30);
/// After this time the hub checks again whether it may sign: an administrator can take the right away at any time. The
/// API server's refusal of an answer makes it check earlier.
const PERMISSION_AGE: Duration = Duration::from_secs(600);
/// How many reviews of rights, and how many writes of statuses, run side by side.
const REVIEWS: usize = 8;
const WRITES: usize = 8;
/// How many AddOnSigners may have a line of authorities. The gateway compares a certificate with the anchors of each,
/// up to four, in every handshake (docs/figures.md: 158 µs among 256 signers, 58 µs with one), so somebody who may sign
/// for many names must not make it slow for all. OCM's hubs have some dozens of addons.
const MAX_LINES: usize = 256;

/// An AddOnSigner that the hub serves.
struct Served {
    line: watch::Sender<LineState>,
    plan: watch::Sender<LinePlan>,
    config: watch::Sender<Arc<SignerConfig>>,
    reserve: mpsc::Sender<crate::authorities::reconciler::Reserve>,
    /// Whether the hub's account may sign for it, by the API server's last answer, and there is a slot for its line.
    permission: Validity,
    /// When the API server was last asked.
    asked: Option<Instant>,
    keeping: CancellationToken,
}

impl Served {
    /// Whether the right to sign is missing, or was last asked about long ago.
    fn is_unsure(&self) -> bool {
        self.permission.is_err() || self.asked.is_none_or(|asked| asked.elapsed() >= PERMISSION_AGE)
    }

    /// Whether the last answer is so old that a refusal of the API server may be news.
    fn may_have_changed(&self) -> bool {
        self.asked.is_none_or(|asked| asked.elapsed() >= ROUND)
    }
}

pub(super) struct Supervisor {
    links: HubLinks,
    settings: HubSettings,
    shared: SignerShared,
    /// The last note about each AddOnSigner for each reason, and the recorder that has written it.
    recorders: BTreeMap<(String, String), (Option<String>, Recorder)>,
    store: AuthorityStore,
    trust_publisher: TrustPublisher,
    api: Api<GuardedSigner>,
    serving: watch::Sender<LineState>,
    objects: BTreeMap<String, AddOnSigner>,
    /// Whose the signer names and addons of all objects are.
    ownership: Ownership,
    /// Objects that could not be decoded, each with its error.
    undecodable: BTreeMap<String, String>,
    relist: Relist<String>,
    /// Which AddOnSigners take effect.
    oldest: Oldest,
    /// When they may be listed again at the earliest, because one has come to take effect.
    next_list: Instant,
    /// When it was last said that AddOnSigners take no effect.
    told_left_out: Option<Instant>,
    /// What the list has shown that is under way.
    listed: Vec<GuardedSigner>,
    /// The names in `undecodable` whose status does not have the error yet.
    unsaid: BTreeSet<String>,
    /// `metadata.uid` of each object as it was last checked.
    looked_at: BTreeMap<String, String>,
    served: BTreeMap<String, Served>,
    /// The last configuration of those that were served and are not, until they are served again or deleted.
    stopped: BTreeMap<String, Arc<SignerConfig>>,
    /// The objects that are not served, each with the reason.
    refused: BTreeMap<String, (&'static str, String)>,
    /// Those whose certificates are unknown, as the trust publisher has them.
    unserved: BTreeSet<String>,
    /// Those that have a line of authorities, or may create one.
    lines: BTreeSet<String>,
    calls: Calls,
    /// AddOnSigners about whose rights the API server is to be asked.
    asking: Pending,
    /// AddOnSigners whose status may have to be written.
    writing: Pending,
    signers: watch::Sender<Option<Signers>>,
    /// The latest report about the registrations of all addons; `None` before the first one.
    registrations: watch::Receiver<Option<RegistrationReport>>,
    /// How far the trust bundle has reached.
    distributed: watch::Receiver<Distribution>,
    /// What was reported of that, by AddOnSigner.
    paced: BTreeMap<String, paced::Paced>,
    /// What to report about the ClusterTrustBundle.
    published: watch::Receiver<Report>,
    /// What to report about the policy for the trust bundle on requests.
    protected: watch::Receiver<Report>,
    /// Whether any AddOnRoute needs the gateway's client certificate.
    needs_certificate: watch::Receiver<bool>,
    /// Addons that the hub left to another program in the last report that events were written for.
    left: Arc<BTreeSet<AddOnKey>>,
    /// The last configuration of AddOnSigners that were deleted while this hub ran, by their signer names.
    deleted: BTreeMap<SignerName, Arc<SignerConfig>>,
    /// The specifications of AddOnSigners that the ledger knows; some may have been deleted while no hub was watching.
    recorded: watch::Receiver<Vec<AddOnSignerSpec>>,
    signing: Signing,
    /// AddOnSigners for which the API server has refused an answer.
    forbidden: mpsc::Receiver<String>,
    /// Certificates that another program signed.
    foreign: watch::Receiver<ForeignReport>,
    versions: WatchedObjects,
    tasks: JoinSet<(String, bool)>,
    changed: (mpsc::Sender<String>, mpsc::Receiver<String>),
    notes: Notes,
    /// Its signs of life: at least one per round, and one per object in each loop that makes calls.
    pulse: Pulse,
}

/// The supervisor's ends of its links to other tasks of the hub.
pub(super) struct SupervisorLinks {
    /// Tells the writer of registrations which signers there are.
    pub(super) signers: watch::Sender<Option<Signers>>,
    /// What that writer reports.
    pub(super) registrations: watch::Receiver<Option<RegistrationReport>>,
    /// How far the trust bundle has reached.
    pub(super) distributed: watch::Receiver<Distribution>,
    /// What to report about the ClusterTrustBundle.
    pub(super) published: watch::Receiver<Report>,
    /// What to report about the policy for the trust bundle on requests.
    pub(super) protected: watch::Receiver<Report>,
    /// Whether any AddOnRoute needs the gateway's client certificate.
    pub(super) needs_certificate: watch::Receiver<bool>,
    /// Tells the dispatcher of requests which signers there are.
    pub(super) signing: Signing,
    /// AddOnSigners for which the API server has refused an answer.
    pub(super) forbidden: mpsc::Receiver<String>,
    /// Certificates that another program signed.
    pub(super) foreign: watch::Receiver<ForeignReport>,
    /// The versions of the lines' objects on the API server.
    pub(super) objects: WatchedObjects,
    /// What waits for the ledger.
    pub(super) notes: Notes,
}

impl Supervisor {
    pub(super) fn new(links: HubLinks, settings: HubSettings, addons: AddOnVersion, ends: SupervisorLinks) -> Self {
        let SupervisorLinks {
            signers,
            registrations,
            distributed,
            published,
            protected,
            needs_certificate,
            signing,
            forbidden,
            foreign,
            objects,
            notes,
        } = ends;
        let shared = shared(&links, &settings, addons);
        Self {
            shared,
            recorders: BTreeMap::new(),
            store: AuthorityStore::new(&links.client, &settings.namespace),
            trust_publisher: TrustPublisher::new(links.trust.clone(), links.registry.clone()),
            api: Api::all(links.client.clone()),
            serving: watch::channel(LineState::Starting).0,
            objects: BTreeMap::new(),
            ownership: Ownership::default(),
            undecodable: BTreeMap::new(),
            relist: Relist::default(),
            oldest: Oldest::new(MOST_SIGNERS),
            next_list: Instant::now(),
            told_left_out: None,
            listed: Vec::new(),
            unsaid: BTreeSet::new(),
            looked_at: BTreeMap::new(),
            served: BTreeMap::new(),
            stopped: BTreeMap::new(),
            refused: BTreeMap::new(),
            unserved: BTreeSet::new(),
            lines: BTreeSet::new(),
            calls: Calls::new(),
            asking: Pending::new(REVIEWS),
            writing: Pending::new(WRITES),
            signers,
            registrations,
            distributed,
            paced: BTreeMap::new(),
            published,
            protected,
            needs_certificate,
            left: Arc::default(),
            deleted: BTreeMap::new(),
            recorded: notes.specs(),
            signing,
            forbidden,
            foreign,
            versions: objects,
            tasks: JoinSet::new(),
            changed: mpsc::channel(64),
            notes,
            pulse: links.pulses.start("supervisor"),
            links,
            settings,
        }
    }

    /// Asks again whether the hub may sign, unless it has just asked.
    fn ask_if_old(&mut self, name: &str) {
        if self.served.get(name).is_some_and(Served::may_have_changed) {
            self.asking.add(name);
        }
    }

    pub(super) async fn run(mut self) -> Result<(), HubError> {
        self.start_gateway_lines();
        let mut events = watch_objects(self.api.clone(), Selector::all());
        let mut serving = self.serving.subscribe();
        let mut leading = self.links.leading.clone();
        let mut registrations = self.registrations.clone();
        let mut recorded = self.recorded.clone();
        let mut in_effect = self.links.in_effect.clone();
        let mut protected = self.protected.clone();
        let mut rounds = tokio::time::interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.pulse.beat();
            self.begin_calls();
            if self.must_list_again() {
                events = watch_objects(self.api.clone(), Selector::all());
            }
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.observe(event),
                    Some(Err(error)) => warn!(%error, "The watch of AddOnSigners failed; the hub retries"),
                    None => return Err(HubError::TaskEnded("AddOnSigners".to_owned())),
                },
                Some(end) = self.calls.next() => self.take(end),
                Some(name) = self.changed.1.recv() => self.writing.add(&name),
                _ = rounds.tick() => {
                    self.ask_about(Served::is_unsure);
                    if self.find_unserved() {
                        self.tell_signers();
                    }
                    self.report_all(); // writes each status that could not be written before
                }
                Some(name) = self.forbidden.recv() => self.ask_if_old(&name),
                changed = serving.changed() => {
                    if changed.is_err() {
                        return Err(HubError::TaskEnded("authorities of gateway-serving".to_owned()));
                    }
                    self.report_all();
                }
                changed = registrations.changed() => {
                    if changed.is_err() {
                        return Err(HubError::TaskEnded("registrations".to_owned()));
                    }
                    self.tell_left();
                    self.report_all();
                }
                // Before the first list the hub would act as if all AddOnSigners were deleted.
                Ok(()) = recorded.changed(), if self.signers.borrow().is_some() => self.tell_signers(),
                () = leading.changed() => self.report_all(),
                Ok(()) = protected.changed() => self.report_all(),
                Ok(()) = in_effect.changed() => self.report_all(), // a first certificate may wait for it
                Some(ended) = self.tasks.join_next() => {
                    let (name, stopped) = ended?;
                    if !stopped {
                        return Err(HubError::TaskEnded(name));
                    }
                }
            }
        }
    }
}

/// Who writes events.
pub(crate) fn reporter() -> Reporter {
    Reporter { controller: "addon-signer".to_owned(), instance: None }
}

/// What all signers share.
fn shared(links: &HubLinks, settings: &HubSettings, addons: AddOnVersion) -> SignerShared {
    SignerShared {
        client: links.client.clone(),
        clock: links.clock.clone(),
        registry: links.registry.clone(),
        addons,
        retention: settings.retention,
        accounts: settings.known_accounts(),
        guard: links.guard.clone(),
        in_effect: links.in_effect.clone(),
        leading: links.leading.clone(),
        recorder: Recorder::new(links.client.clone(), reporter()),
        metrics: links.metrics.clone(),
        audit: links.audit.clone(),
        ledger: links.ledger.clone(),
        limits: Arc::new(ClusterLimits::new(settings.rate)),
    }
}

#[cfg(test)]
mod tests;
