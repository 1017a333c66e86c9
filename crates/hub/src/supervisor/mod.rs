//! Starts and stops what each AddOnSigner needs, and observes the end of every task (invariant I12).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::events::Recorder;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tracing::warn;

mod calls;
pub(crate) mod changes;
mod entry;
mod events;
mod reconcile;
mod registered;
mod reporting;
mod start;
pub mod status;

use super::{HubError, HubLinks, HubSettings};
use crate::agents::AgentsReport;
use crate::authorities::state::LineageState;
use crate::authorities::trust_publisher::TrustPublisher;
use crate::authorities::versions::WatchedObjects;
use crate::conditions::{Report, reporter};
use crate::csrs::dispatcher::Signing;
use crate::csrs::foreign::ForeignReport;
use crate::csrs::signer::{ClusterLimits, SignerShared};
use crate::distribution::steps::Distribution;
use crate::recording::Notes;
use crate::registrations::discovery::AddOnVersion;
use crate::registrations::report::RegistrationReport;
use crate::registrations::wanted::Signers;
use addon_signer_api::{AddOnSigner, GuardedSigner};
use addon_signer_core::ownership::Ownership;
use addon_signer_platform::listing::{Selector, watch as watch_objects};
use addon_signer_telemetry::pulse::Pulse;
use calls::Calls;
use entry::{Entry, Served};
use events::SignerList;
use registered::Registered;

/// How often the supervisor retries writes of statuses, and checks missing rights and expiry times.
const ROUND: Duration = Duration::from_secs(15);
/// After this time the hub checks again whether it may sign: an administrator can revoke the right at any time. If the
/// API server refuses an answer to a CSR, the hub checks earlier.
const PERMISSION_AGE: Duration = Duration::from_secs(600);
/// How many AddOnSigners may have a lineage of authorities. The gateway compares a certificate with the anchors of
/// each, up to four, in every handshake (docs/figures.md: 158 µs among 256 signers, 58 µs with one), so an
/// administrator of many signer names must not be able to slow it down for all. OCM's hubs have some dozens of addons.
const MAX_LINES: usize = 256;

pub(super) struct Supervisor {
    links: HubLinks,
    settings: HubSettings,
    ends: SupervisorLinks,
    shared: SignerShared,
    trust_publisher: TrustPublisher,
    api: Api<GuardedSigner>,
    serving: watch::Sender<LineageState>,
    list: SignerList,
    /// The AddOnSigners that exist or were just served.
    entries: BTreeMap<String, Entry>,
    /// The owners of all signer names and addons.
    ownership: Ownership,
    calls: Calls,
    registered: Registered,
    tasks: JoinSet<(String, bool)>,
    changed: (mpsc::Sender<String>, mpsc::Receiver<String>),
    /// Its signs of life: at least one per round, and one per object in each loop that makes calls.
    pulse: Pulse,
}

/// The supervisor's ends of its links to other tasks of the hub.
pub(super) struct SupervisorLinks {
    /// Tells the writer of registrations which signers exist.
    pub(super) signers: watch::Sender<Option<Signers>>,
    /// The report of that writer.
    pub(super) registrations: watch::Receiver<Option<RegistrationReport>>,
    /// How far the trust bundle has reached.
    pub(super) distributed: watch::Receiver<Distribution>,
    /// The report on the ClusterTrustBundle.
    pub(super) published: watch::Receiver<Report>,
    /// The report on the policy for the trust bundle on CSRs.
    pub(super) protected: watch::Receiver<Report>,
    /// Whether any AddOnRoute needs the gateway's client certificate.
    pub(super) needs_certificate: watch::Receiver<bool>,
    /// Tells the dispatcher of CSRs which signers exist.
    pub(super) signing: Signing,
    /// AddOnSigners whose CSRs the API server has forbidden the hub to answer.
    pub(super) forbidden: mpsc::Receiver<String>,
    /// Certificates that another program signed.
    pub(super) foreign: watch::Receiver<ForeignReport>,
    /// How many addons on clusters have certificates; each round reports it, however often it changes.
    pub(super) agents: watch::Receiver<AgentsReport>,
    /// The versions of the lineages' objects on the API server.
    pub(super) objects: WatchedObjects,
    /// The pending records of the ledger.
    pub(super) notes: Notes,
}

impl Supervisor {
    pub(super) fn new(links: HubLinks, settings: HubSettings, addons: AddOnVersion, ends: SupervisorLinks) -> Self {
        Self {
            shared: shared(&links, &settings, addons),
            trust_publisher: TrustPublisher::new(links.trust.clone(), links.registry.clone()),
            api: Api::all(links.client.clone()),
            serving: watch::channel(LineageState::Starting).0,
            list: SignerList::default(),
            entries: BTreeMap::new(),
            ownership: Ownership::default(),
            calls: Calls::new(links.client.clone()),
            registered: Registered::new(ends.notes.registering()),
            tasks: JoinSet::new(),
            changed: mpsc::channel(64),
            pulse: links.pulses.start("supervisor"),
            ends,
            links,
            settings,
        }
    }

    /// An AddOnSigner that the hub serves.
    fn served(&self, name: &str) -> Option<&Served> {
        self.entries.get(name)?.served()
    }

    fn all_served(&self) -> impl Iterator<Item = (&String, &Served)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name, entry.served()?)))
    }

    /// The readable objects.
    fn objects(&self) -> impl Iterator<Item = (&String, &AddOnSigner)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name, entry.object()?)))
    }

    /// Asks again whether the hub may sign, unless it has just asked.
    fn ask_if_old(&mut self, name: &str) {
        if self.served(name).is_some_and(Served::may_have_changed) {
            self.calls.asking.add(name);
        }
    }

    pub(super) async fn run(mut self) -> Result<(), HubError> {
        self.start_gateway_lineages();
        let mut events = watch_objects(self.api.clone(), Selector::all());
        let mut serving = self.serving.subscribe();
        let mut leading = self.links.leading.clone();
        let mut registrations = self.ends.registrations.clone();
        let mut recorded = self.registered.recorded.clone();
        let mut in_effect = self.links.in_effect.clone();
        let mut protected = self.ends.protected.clone();
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
                Some(end) = self.calls.under_way.next() => self.take(end),
                Some(name) = self.changed.1.recv() => self.calls.writing.add(&name),
                _ = rounds.tick() => {
                    self.ask_about(Served::is_unsure);
                    if self.find_unserved() {
                        self.tell_signers();
                    }
                    self.report_all(); // retries each status that could not be written
                }
                Some(name) = self.ends.forbidden.recv() => self.ask_if_old(&name),
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
                Ok(()) = recorded.changed(), if self.ends.signers.borrow().is_some() => self.tell_signers(),
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

/// What all signers share.
fn shared(links: &HubLinks, settings: &HubSettings, addons: AddOnVersion) -> SignerShared {
    SignerShared {
        links: links.clone(),
        addons,
        retention: settings.config.retention,
        accounts: settings.known_accounts(),
        recorder: Recorder::new(links.client.clone(), reporter()),
        limits: Arc::new(ClusterLimits::new(settings.config.rate)),
    }
}

#[cfg(test)]
mod tests;
