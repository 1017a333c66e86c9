//! The hub signs certificates, keeps authorities and writes registrations. It has two watches for the registry, one for
//! CSRs, and one task per lineage of authorities. `supervisor` starts and stops what AddOnSigners need as they are
//! created and deleted. `agents` counts which addons have a certificate, and the writer of registrations reports it. Of
//! several hubs, the one that holds the Lease leads. `gateways` is for gateways in processes of their own: what they
//! read, their Leases, and how a signer reads these.

// A module imports those of the groups above it, with few exceptions, which tools/house.py -v lists.
mod certifications;
pub(crate) mod conditions;
mod dry_run;
pub mod lease;
pub mod metrics;
pub(crate) mod permission;
mod relist;
mod tasks;

mod protected;
pub mod registrations;

pub mod distribution;
pub mod recording;

pub mod authorities;

pub mod routes;

pub mod csrs;
pub mod gateways;

mod agents;

mod links;
pub mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use tokio::sync::{Notify, mpsc, watch};

use addon_signer_api::ocm::AddOnApi;
use addon_signer_core::gateway::replicas::TrustInEffect;
use addon_signer_core::lease::Loss;
use addon_signer_core::policy::GatewayRules;
use addon_signer_core::rate::Rate;
use addon_signer_core::templates::Templates;
use addon_signer_ledger::{LedgerError, LedgerWriter, Location, Reader, WriterOptions};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_telemetry::pulse::Pulses;
use authorities::supply::ServingSource;
use authorities::versions;
use conditions::Report;
use csrs::action::KnownAccounts;
use csrs::bundle_policy;
use csrs::dispatcher::{Dispatcher, DispatcherLinks};
use csrs::foreign::ForeignReport;
use csrs::guard::Guard;
use csrs::recovery::Recovery;
use distribution::cluster_bundle::{BundlePublisher, PublisherInputs};
use distribution::known::Known;
use distribution::steps::Distribution;
use distribution::{Distributor, DistributorInputs};
use gateways::replicas::{self, ReplicasInputs};
use lease::Leading;
pub(crate) use links::HubLinks;
pub use links::{GatewayEnds, HubEnds};
use metrics::HubMetrics;
use recording::Notes;
use registrations::SeenAddOn;
use registrations::discovery::AddOnVersion;
use registrations::registry::{self, Recorded, RegistryError, Sinks};
use registrations::wanted::Signers;
use routes::{RouteLinks, RouteSettings};
use supervisor::{Supervisor, SupervisorLinks};
pub use tasks::send_news;
use tasks::{EligibilityWatch, HubTasks, after_the_writer};

/// The most addons that may wait for the writer of registrations. The number is small because a cluster decides how
/// large its addons are: up to 350 KiB of each are kept, 22 MiB in all. Beyond that, the writer lists all addons later.
const REGISTRATIONS_WAITING: usize = 64;

/// The most refusals of the API server that may wait for the supervisor; it asks about each signer's rights once.
const REFUSED_WAITING: usize = 64;

/// The administrator's choices for the hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The namespace of the hub's Secrets, ConfigMaps and Lease.
    pub namespace: String,
    /// The account of OCM's gRPC server, which makes CSRs for agents.
    pub grpc_proxy: Option<String>,
    /// The gateway's names, and what AddOnRoutes may name.
    pub routes: RouteSettings,
    /// How long refused CSRs are kept.
    pub retention: Duration,
    /// How many certificates one addon of a cluster may get.
    pub rate: Rate,
    /// Where the authorities of the gateway's serving certificate come from.
    pub serving_source: ServingSource,
    /// Whether the ledger is lost with the hub's pod, which conditions say.
    pub is_ledger_ephemeral: bool,
}

/// The defaults of the flags and of the chart's values; the gateway has no name.
impl Default for HubConfig {
    fn default() -> Self {
        Self {
            namespace: "addon-signer".to_owned(),
            grpc_proxy: None,
            routes: RouteSettings::default(),
            retention: Duration::from_secs(600),
            rate: Rate { burst: 10, interval: Duration::from_secs(600) },
            serving_source: ServingSource::default(),
            is_ledger_ephemeral: false,
        }
    }
}

/// What the hub gets when it starts.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// What the administrator chose.
    pub config: HubConfig,
    /// The requirements for the gateway's certificates.
    pub gateway: GatewayRules,
    /// The same for the inventory's certificate, if an account other than the gateway's requests it.
    pub inventory: Option<GatewayRules>,
}

impl HubSettings {
    fn known_accounts(&self) -> KnownAccounts {
        KnownAccounts { grpc_proxy: self.config.grpc_proxy.clone(), gateway: self.gateway.account.clone() }
    }
}

/// What [`Hub::wire`] needs.
pub struct HubParts {
    /// The client with the hub's account.
    pub client: Client,
    /// The clock.
    pub clock: Clock,
    /// Whether this hub leads: while it does not, it signs and writes nothing.
    pub leading: Leading,
    /// The counters.
    pub metrics: HubMetrics,
    /// The location of the ledger.
    pub ledger: Location,
    /// The name of this process in the ledger.
    pub replica: String,
    /// The signs of life of the hub's tasks.
    pub pulses: Pulses,
    /// When the API server was last heard from.
    pub contacts: Contacts,
    /// Whether a gateway runs in this process; authorities then sign only once it trusts them.
    pub has_gateway: bool,
}

/// A hub that is wired but does not run yet.
pub struct Hub {
    links: HubLinks,
    writer: LedgerWriter,
    replicas: ReplicasInputs,
}

/// Why the hub stopped.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The registry cannot be kept up to date.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Another hub may lead now.
    #[error("{0}; this hub exits so that two never act at once, and waits for its turn after a restart")]
    LeaseLost(#[from] Loss),
    /// The ledger's writer ended. The hub does nothing that it cannot record.
    #[error("the hub cannot record what it does: {0}")]
    Ledger(#[from] LedgerError),
    /// A task ended that should run as long as the hub.
    #[error("the hub's task {0:?} ended, although it must run as long as the hub does")]
    TaskEnded(String),
    /// A task panicked.
    #[error("a task of the hub failed: {0}")]
    TaskFailed(#[from] tokio::task::JoinError),
}

impl Hub {
    /// Creates a hub and its links to the rest of the process. [`Self::run`] opens the ledger when the hub leads.
    pub fn wire(parts: HubParts) -> (Self, HubEnds) {
        let HubParts { client, clock, leading, metrics, ledger: location, replica, pulses, contacts, has_gateway } =
            parts;
        let (writer, ledger) = LedgerWriter::new(WriterOptions {
            location,
            replica,
            clock: clock.clone(),
            metrics: metrics.ledger.clone(),
        });
        let (senders, gateway, applied) = GatewayEnds::wire(&clock, Arc::default());
        let (in_effect, known_in_effect) = watch::channel(TrustInEffect::default());
        let replicas = ReplicasInputs { own: has_gateway.then_some(applied), contacts, in_effect };
        let links = HubLinks {
            client,
            clock,
            registry: gateway.registry.clone(),
            trust: senders.trust,
            in_effect: known_in_effect,
            leading,
            metrics,
            audit: gateway.audit.clone(),
            ledger: ledger.clone(),
            usage: Arc::clone(&gateway.usage),
            protected: senders.protected,
            routes: senders.routes,
            pulses,
            guard: Guard::default(),
        };
        (Self { links, writer, replicas }, HubEnds { gateway, ledger })
    }

    /// Runs the hub until one of its tasks fails or until the hub has lost the Lease. Before it leads, it only reads
    /// which clusters and addons are registered, so that it can start at once when it leads, and checks by dry runs
    /// whether the policy of the gRPC account is in force.
    pub async fn run(self, settings: HubSettings, addon_api: AddOnApi) -> Result<(), HubError> {
        run(self, settings, addon_api.into()).await
    }
}

async fn run(hub: Hub, settings: HubSettings, addons: AddOnVersion) -> Result<(), HubError> {
    let Hub { links, writer, replicas } = hub;
    let namespace = settings.config.namespace.clone();
    let mut leading = links.leading.clone();
    let (signers, served) = watch::channel(None);
    let (report, reported) = watch::channel(None);
    let mut tasks = HubTasks::default();
    let notes = Notes::default();
    let RegistryReaders { seen, all_again, eligibility, templates, known } =
        read(&mut tasks, &links, addons.clone(), &notes);
    let needs_certificate = read_for_gateways(&mut tasks, &links, &settings, replicas);
    // The guard starts before this hub leads: then a hub that takes over has seen the policy in force before the
    // pending CSRs were made, and can answer them.
    if settings.config.grpc_proxy.is_some() {
        let pulse = links.pulses.start("policy of the gRPC account");
        tasks.spawn("policy of the gRPC account", links.guard.clone().keep(links.client.clone(), pulse).map(Ok));
    }
    let epoch = tokio::select! {
        error = tasks.ended() => return Err(error),
        leads = leading.acquired() => u64::from(leads?),
    };
    let agents = agents::start(&mut tasks, &links, Reader::new(writer.location()), served.clone());
    let feeding = recording::Feeding { writer, epoch, notes: notes.clone(), signers: served.clone() };
    recording::start(&mut tasks, &links, &namespace, feeding);
    tasks.spawn("recovery", after_the_writer(Recovery::new(&links).keep()));
    let published = publish(&mut tasks, &links, served.clone());
    let protected = watch_bundle_policy(&mut tasks, &links);
    let distributed = distribute(&mut tasks, &links, addons.clone(), (&namespace, known), served.clone());
    let certifications = agents.states;
    let inputs =
        registrations::RegistrationInputs { seen, all_again, signers: served, templates, certifications, report };
    write_registrations(&mut tasks, &links, addons.clone(), inputs);
    let (refused, forbidden) = mpsc::channel(REFUSED_WAITING);
    let (signed, foreign) = watch::channel(ForeignReport::new());
    let news = DispatcherLinks { eligibility, forbidden: refused, foreign: signed, newest: agents.csrs };
    let (dispatcher, signing) = Dispatcher::new(&links.client, links.clock.clone(), settings.known_accounts(), news);
    tasks.spawn("requests", dispatcher.run(links.pulses.start("requests")));
    let (known, objects) = versions::channel();
    let watching = versions::keep(links.client.clone(), namespace, known);
    tasks.spawn("watch of the objects of authorities", watching.map(Ok));
    let ends = SupervisorLinks {
        signers,
        registrations: reported,
        distributed,
        published,
        protected,
        needs_certificate,
        signing,
        forbidden,
        foreign,
        agents: agents.report,
        objects,
        notes,
    };
    let supervisor = Supervisor::new(links, settings, addons, ends);
    tasks.spawn("AddOnSigners", supervisor.run());
    tokio::select! {
        error = tasks.ended() => Err(error),
        loss = leading.lost() => Err(loss.into()),
    }
}

/// What the tasks that read clusters, addons and templates report.
struct RegistryReaders {
    /// Addons that were seen, and the sender for those that must be checked again.
    seen: (mpsc::Sender<SeenAddOn>, mpsc::Receiver<SeenAddOn>),
    /// Notified when an addon was seen and too many waited already.
    all_again: Arc<Notify>,
    /// Whose eligibility has changed.
    eligibility: EligibilityWatch,
    templates: watch::Receiver<Templates>,
    /// Where agents run.
    known: Known,
}

fn read(tasks: &mut HubTasks, links: &HubLinks, addons: AddOnVersion, notes: &Notes) -> RegistryReaders {
    let seen = mpsc::channel(REGISTRATIONS_WAITING);
    let (read, templates) = watch::channel(Templates::default());
    let eligibility = EligibilityWatch::default();
    let (known, all_again) = (Known::default(), Arc::new(Notify::new()));
    let sinks = Sinks {
        audit: links.audit.clone(),
        notes: notes.clone(),
        eligibility: eligibility.clone(),
        known: known.clone(),
        seen: seen.0.clone(),
        all_again: all_again.clone(),
    };
    let recorded = Recorded { registry: links.registry.clone(), sinks: Some(sinks) };
    registry::start(tasks, &links.client, addons, recorded);
    let client = links.client.clone();
    tasks.spawn("AddOnTemplates", registrations::keep_templates(client, read).map(Ok));
    RegistryReaders { seen, all_again, eligibility, templates, known }
}

/// Reads what gateways need, in this process or in others. Returns whether any route needs their client certificate.
fn read_for_gateways(
    tasks: &mut HubTasks,
    links: &HubLinks,
    settings: &HubSettings,
    replicas: ReplicasInputs,
) -> watch::Receiver<bool> {
    let HubLinks { client, trust, routes: table, pulses, .. } = links;
    let namespace = settings.config.namespace.clone();
    let beside = protected::keep(client.clone(), namespace.clone(), links.protected.clone());
    tasks.spawn("pods and Services of the hub's namespace", beside.map(Ok));
    let contacts = replicas.contacts.clone();
    let pulse = pulses.start("Leases of gateways");
    tasks.spawn("Leases of gateways", replicas::keep(client.clone(), namespace, replicas, pulse).map(Ok));
    let (trust, table, pulses) = (trust.subscribe(), table.clone(), pulses.clone());
    let route_links = RouteLinks { client: client.clone(), contacts, trust, table, pulses };
    let judgement = routes::start(tasks, route_links, settings.config.routes.clone());
    routes::report(tasks, links, judgement.judged);
    judgement.needs_certificate
}

fn write_registrations(
    tasks: &mut HubTasks,
    links: &HubLinks,
    addons: AddOnVersion,
    inputs: registrations::RegistrationInputs,
) {
    let writer = registrations::RegistrationWriter::new(links, addons, inputs);
    let pulse = links.pulses.start("registrations");
    tasks.spawn("registrations", async move { Ok(writer.keep(pulse).await?) });
}

fn distribute(
    tasks: &mut HubTasks,
    links: &HubLinks,
    addons: AddOnVersion,
    (namespace, known): (&str, Known),
    signers: watch::Receiver<Option<Signers>>,
) -> watch::Receiver<Distribution> {
    let (report, reported) = watch::channel(Distribution::default());
    let trust = links.trust.subscribe();
    let inputs = DistributorInputs { namespace: namespace.to_owned(), known, signers, trust, report };
    let distributor = Distributor::new(links, addons, inputs);
    tasks.spawn("trust on the clusters", distributor.run().map(Ok));
    reported
}

fn publish(
    tasks: &mut HubTasks,
    links: &HubLinks,
    signers: watch::Receiver<Option<Signers>>,
) -> watch::Receiver<Report> {
    let (report, reported) = watch::channel(Report::AsBefore);
    let inputs = PublisherInputs { signers, trust: links.trust.subscribe(), report };
    let publisher = BundlePublisher::new(links, inputs);
    tasks.spawn("trust of the hub cluster", publisher.run().map(Ok));
    reported
}

/// Tries whether only the hub can set the trust bundle on CSRs.
fn watch_bundle_policy(tasks: &mut HubTasks, links: &HubLinks) -> watch::Receiver<Report> {
    let (report, reported) = watch::channel(Report::AsBefore);
    tasks.spawn("policy of the trust bundle", bundle_policy::keep(links.clone(), report).map(Ok));
    reported
}
