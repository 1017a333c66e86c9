//! Starts and stops what each AddOnSigner needs, and observes the end of every task (invariant I12).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

mod gone;
mod objects;
mod paced;
pub mod permission;
mod registered;
mod reporting;
mod start;
pub mod status;
mod task;

use super::{HubError, HubLinks, HubSettings};
use crate::api::rules::SignerConfig;
use crate::api::{AddOnSigner, AddOnSignerSpec};
use crate::backoff::WatchBackoff;
use crate::hub::authorities::board::Board;
use crate::hub::authorities::keeper::LinePlan;
use crate::hub::authorities::objects::WatchedObjects;
use crate::hub::authorities::state::LineState;
use crate::hub::authorities::store::AuthorityStore;
use crate::hub::distribution::plan::Distribution;
use crate::hub::recording::Notes;
use crate::hub::registrations::report::RegistrationReport;
use crate::hub::registrations::version::AddOnVersion;
use crate::hub::registrations::wanted::Signers;
use crate::hub::requests::dispatcher::Signing;
use crate::hub::requests::foreign::ForeignReport;
use crate::hub::requests::signer::{ClusterLimits, SignerShared};
use crate::pulse::Pulse;
use addon_signer_core::identity::{AddOnKey, SignerName};
use addon_signer_core::names::ANNOTATION_ROTATE;
use addon_signer_platform::errors::explain;
use status::{Report, Validity};

/// The longest name of an AddOnSigner: it is the value of a label on its Secret (Kubernetes, `IsValidLabelValue`).
const NAME_MAX: usize = 63;

/// The condition reason of a signer for which the hub does not know yet whether it may sign.
const NOT_ASKED: &str = "Starting";
/// How often the supervisor writes statuses that could not be written, and asks again about rights that are missing.
const ROUND: Duration = Duration::from_secs(15);
/// After this time the hub asks again whether it may sign: an administrator can take the right away at any time. The
/// API server's refusal of an answer makes it ask earlier.
const PERMISSION_AGE: Duration = Duration::from_secs(600);
/// How many reviews of rights run side by side.
const REVIEWS: usize = 8;

/// An AddOnSigner that the hub serves, or served until it became invalid.
struct Served {
    object: AddOnSigner,
    line: watch::Sender<LineState>,
    plan: watch::Sender<LinePlan>,
    config: watch::Sender<Arc<SignerConfig>>,
    reserve: mpsc::Sender<crate::hub::authorities::keeper::Reserve>,
    validity: Validity,
    /// Whether the hub's account may sign for it, by the API server's last answer.
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
    store: AuthorityStore,
    board: Board,
    api: Api<AddOnSigner>,
    serving: watch::Sender<LineState>,
    objects: BTreeMap<String, AddOnSigner>,
    /// Objects that could not be decoded, each with its error.
    undecodable: BTreeMap<String, String>,
    /// The names of those that the list under way has shown so far.
    listed_undecodable: BTreeSet<String>,
    /// The names in `undecodable` whose status does not have the error yet.
    unsaid: BTreeSet<String>,
    served: BTreeMap<String, Served>,
    signers: watch::Sender<Option<Signers>>,
    /// The latest report about the registrations of all addons; `None` before the first one.
    registrations: watch::Receiver<Option<RegistrationReport>>,
    /// How far the trust bundle has reached.
    distributed: watch::Receiver<Distribution>,
    /// What was said of that, by AddOnSigner.
    paced: BTreeMap<String, paced::Paced>,
    /// What there is to say about the ClusterTrustBundle.
    published: watch::Receiver<Report>,
    /// Addons that the hub left to another program in the last report that events were written for.
    left: Arc<BTreeSet<AddOnKey>>,
    /// The last configuration of AddOnSigners that were deleted while this hub ran, by their signer names.
    deleted: BTreeMap<SignerName, Arc<SignerConfig>>,
    /// The specifications of AddOnSigners that the ledger knows; some may have been deleted while no hub looked.
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
    /// What there is to say about the ClusterTrustBundle.
    pub(super) published: watch::Receiver<Report>,
    /// Tells the dispatcher of requests which signers there are.
    pub(super) signing: Signing,
    /// AddOnSigners for which the API server has refused an answer.
    pub(super) forbidden: mpsc::Receiver<String>,
    /// Certificates that another program signed.
    pub(super) foreign: watch::Receiver<ForeignReport>,
    /// What the API server has of the objects of lines.
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
            signing,
            forbidden,
            foreign,
            objects,
            notes,
        } = ends;
        let client = links.client.clone();
        let reporter = Reporter { controller: "addon-signer".to_owned(), instance: None };
        let shared = SignerShared {
            client: client.clone(),
            clock: links.clock.clone(),
            registry: links.registry.clone(),
            addons,
            retention: settings.retention,
            grpc_proxy: settings.grpc_proxy.clone(),
            applied: links.applied.clone(),
            leading: links.leading.clone(),
            recorder: Recorder::new(client.clone(), reporter),
            metrics: links.metrics.clone(),
            audit: links.audit.clone(),
            ledger: links.ledger.clone(),
            limits: Arc::new(ClusterLimits::new(settings.rate)),
        };
        Self {
            shared,
            store: AuthorityStore::new(&client, &settings.namespace),
            board: Board::new(links.trust.clone()),
            api: Api::all(client),
            serving: watch::channel(LineState::Starting).0,
            objects: BTreeMap::new(),
            undecodable: BTreeMap::new(),
            listed_undecodable: BTreeSet::new(),
            unsaid: BTreeSet::new(),
            served: BTreeMap::new(),
            signers,
            registrations,
            distributed,
            paced: BTreeMap::new(),
            published,
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

    pub(super) async fn run(mut self) -> Result<(), HubError> {
        self.start_serving();
        let guarded: Api<DeserializeGuard<AddOnSigner>> = Api::all(self.links.client.clone());
        let mut events = watcher(guarded, watcher::Config::default()).backoff(WatchBackoff::default()).boxed();
        let mut listed = None;
        let mut serving = self.serving.subscribe();
        let mut leading = self.links.leading.clone();
        let mut registrations = self.registrations.clone();
        let mut recorded = self.recorded.clone();
        let mut rounds = tokio::time::interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.pulse.beat();
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.observe(event, &mut listed).await,
                    Some(Err(error)) => warn!(%error, "The watch of AddOnSigners failed; the hub retries"),
                    None => return Err(HubError::TaskEnded("AddOnSigners".to_owned())),
                },
                Some(name) = self.changed.1.recv() => self.report(&name).await,
                _ = rounds.tick() => {
                    self.check_permissions(|served| served.is_unsure()).await;
                    self.report_all().await; // writes each status that could not be written before
                }
                Some(name) = self.forbidden.recv() => {
                    let is_it = |served: &Served| served.object.name_any() == name && served.may_have_changed();
                    self.check_permissions(is_it).await;
                }
                changed = serving.changed() => {
                    if changed.is_err() {
                        return Err(HubError::TaskEnded("authorities of the gateway".to_owned()));
                    }
                    self.report_all().await;
                }
                changed = registrations.changed() => {
                    if changed.is_err() {
                        return Err(HubError::TaskEnded("registrations".to_owned()));
                    }
                    self.tell_left().await;
                    self.report_all().await;
                }
                // Before the first list the hub would act as if all AddOnSigners were deleted.
                Ok(()) = recorded.changed(), if self.signers.borrow().is_some() => self.tell_signers(),
                () = leading.changed() => self.report_all().await,
                Some(ended) = self.tasks.join_next() => {
                    let (name, stopped) = ended?;
                    if !stopped {
                        return Err(HubError::TaskEnded(name));
                    }
                }
            }
        }
    }

    /// Starts, changes and stops tasks so that they match the objects.
    async fn settle(&mut self) {
        // An AddOnSigner that was deleted and created again with the same name is another signer, perhaps with another
        // signer name.
        let is_there = |(name, served): &(&String, &Served)| {
            self.objects.get(*name).is_some_and(|object| object.metadata.uid == served.object.metadata.uid)
        };
        let gone: Vec<String> =
            self.served.iter().filter(|entry| !is_there(entry)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(served) = self.served.remove(&name) {
                info!(signer = name, "An AddOnSigner is gone; the gateway no longer accepts its certificates");
                served.keeping.cancel();
                self.links.metrics.foreign_certificates(&name, None);
                self.links.metrics.trust_missing(&name, None);
                let config = served.config.borrow().clone();
                self.signing.stop(&config.rules.signer_name, &name);
                self.board.remove_signer(&name);
                if config.registers && !self.undecodable.contains_key(&name) {
                    self.deleted.insert(config.rules.signer_name.clone(), config);
                }
            }
        }
        let objects: Vec<AddOnSigner> = self.objects.values().cloned().collect();
        for object in objects {
            let name = object.name_any();
            let read = self.read(&object);
            self.apply(&name, object, read);
        }
        let unserved = self.objects.keys().filter(|name| !self.served.contains_key(*name));
        self.board.set_unserved(unserved.chain(self.undecodable.keys()).cloned().collect());
        self.check_permissions(|served| matches!(served.permission, Err((NOT_ASKED, _)))).await;
        self.report_all().await;
        self.tell_signers();
    }

    /// The configuration of an object, or why the hub does not serve it. If two objects have the same signer name, the
    /// hub serves the older one.
    fn read(&self, object: &AddOnSigner) -> Result<SignerConfig, (&'static str, String)> {
        let age = |object: &AddOnSigner| (object.metadata.creation_timestamp.clone(), object.name_any());
        let rivals = self.objects.values().filter(|other| other.spec.signer_name == object.spec.signer_name);
        if let Some(first) = rivals.min_by_key(|other| age(other))
            && first.name_any() != object.name_any()
        {
            return Err(status::duplicate(&first.name_any(), &object.spec));
        }
        if object.name_any().len() > NAME_MAX {
            let sentence = format!("metadata.name has more than {NAME_MAX} characters, which a label cannot hold.");
            return Err(("InvalidName", sentence));
        }
        let config = SignerConfig::read(&object.spec, self.settings.grpc_proxy.as_deref())
            .and_then(|config| config.check_upstreams(self.settings.allow_loopback_upstreams))
            .map_err(|error| ("InvalidSpec", format!("{error}.")))?;
        Ok(SignerConfig { generation: object.metadata.generation.unwrap_or_default(), ..config })
    }

    fn apply(&mut self, name: &str, object: AddOnSigner, read: Result<SignerConfig, (&'static str, String)>) {
        let plan = |config: &SignerConfig| LinePlan {
            authority: config.authority,
            requested: object.annotations().get(ANNOTATION_ROTATE).cloned(),
            remembered: status::remembers(&object, self.links.clock.now()),
        };
        match (self.served.get_mut(name), read) {
            (None, Ok(config)) => {
                let plan = plan(&config);
                self.start(name, object, Arc::new(config), plan);
            }
            (Some(served), Ok(config)) => {
                let plan = plan(&config);
                served.plan.send_if_modified(|known| std::mem::replace(known, plan.clone()) != plan);
                let config = Arc::new(config);
                served.config.send_if_modified(|known| std::mem::replace(known, Arc::clone(&config)) != config);
                served.object = object;
                self.board.set_signer(name, config, served.line.subscribe());
                if served.validity.is_err() {
                    served.validity = Ok(());
                    self.start_signing(name);
                }
            }
            // An object has become invalid: what was trusted stays trusted, and the hub signs nothing new.
            (Some(served), Err(refusal)) => {
                served.object = object;
                served.validity = Err(refusal);
                self.signing.stop(&served.config.borrow().rules.signer_name, name);
            }
            (None, Err(_)) => {}
        }
    }

    /// Asks whether the hub may sign for these signers, and reports what has changed. Otherwise a signer without its
    /// ClusterRole would look healthy while the API server refuses every answer.
    async fn check_permissions(&mut self, which: impl Fn(&Served) -> bool) {
        let client = &self.links.client;
        let asked = self.served.iter_mut().filter(|(_, served)| which(served)).map(|(name, served)| {
            served.asked = Some(Instant::now());
            let name = name.clone();
            let config = served.config.borrow().clone();
            async move { (name, permission::check(client, &config.rules.signer_name, config.approves).await) }
        });
        let asked: Vec<_> = asked.collect();
        let reviews = futures::stream::iter(asked).buffer_unordered(REVIEWS);
        let answers: Vec<_> = reviews.inspect(|_| self.pulse.beat()).collect().await;
        for (name, answer) in answers {
            let Some(served) = self.served.get_mut(&name) else { continue };
            match answer {
                Ok(permission) if served.permission != permission => {
                    served.permission = permission;
                    self.report(&name).await;
                }
                Ok(_) => {}
                Err(error) => {
                    served.asked = None;
                    let error = explain(&error);
                    warn!(
                        signer = name,
                        error, "Could not ask the API server whether the hub may sign; the hub retries"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
