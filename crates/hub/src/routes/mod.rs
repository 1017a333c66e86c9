//! Reads AddOnRoutes and what they refer to, makes the gateway's table of routes, and writes the conditions of each
//! AddOnRoute. The decisions are in [`addon_signer_core::gateway::routing`].
//!
//! A hub that waits for the Lease reads too, so that its gateway has all routes as soon as the hub leads; it writes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, pending};
use futures::{FutureExt, Stream, StreamExt};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use crate::HubLinks;
use crate::tasks::{HubTasks, send_news};
use addon_signer_api::{AddOnRoute, Guarded, Lenient};
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::conditions::NO_PARENT;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::route::{Backend, RouteName, RouteTable};
use addon_signer_core::gateway::routing::{
    Parent, References, Resolved, RouteProblem, Verdict, WantedServices, World, resolve,
};
use addon_signer_core::trust::Trust;
use addon_signer_platform::contacts::Contacts;
use addon_signer_platform::listing::{Selector, watch as watch_objects};
use addon_signer_telemetry::pulse::{Pulse, Pulses};
use backends::AllBackends;
use bundles::Bundles;
use reading::{KnownRoute, RouteWatches};
use route_report::StatusWriter;

mod backends;
mod bundles;
mod reading;
mod route_report;
mod services;

/// Pause after the table was made, which collects further changes.
const PAUSE: Duration = Duration::from_millis(50);
/// The same for a hub that has read no backend at all.
const LAST: Duration = Duration::from_secs(60);
/// How often routes are judged while a list is under way.
const JUDGED_WHILE_LISTING: Duration = Duration::from_secs(1);
/// How often there is a sign of life while nothing changes.
const QUIET: Duration = Duration::from_secs(15);
/// How long a hub that starts holds back an incomplete table.
const FIRST: Duration = Duration::from_secs(10);

/// The hub's settings for routes.
#[derive(Debug, Clone, Default)]
pub struct RouteSettings {
    /// The host names by which agents reach the gateway.
    pub names: Vec<Host>,
    /// The networks in which a backend may be an address.
    pub backend_addresses: Vec<IpNet>,
}

/// An existing AddOnRoute with its verdict.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judged {
    pub(crate) route: Arc<KnownRoute>,
    /// `None` if it cannot be read.
    pub(crate) verdict: Option<Verdict>,
    /// The anchors of the client certificate that the gateway shows to its backend, in PEM.
    pub(crate) client_anchors: Option<String>,
}

impl Judged {
    /// Whether future requests may need the gateway's client certificate.
    fn needs_certificate(route: &KnownRoute, verdict: Option<&Verdict>) -> bool {
        Self::is_shown_certificate(route) && verdict.is_some_and(|verdict| verdict.accepted.is_ok())
    }

    fn is_shown_certificate(route: &KnownRoute) -> bool {
        route.plan.as_ref().is_ok_and(|plan| plan.backend.is_shown_certificate())
    }
}

/// The verdicts on all AddOnRoutes.
#[derive(Debug, Default)]
pub(crate) struct Judgements {
    pub(crate) routes: BTreeMap<RouteName, Judged>,
    /// The oldest AddOnRoute without effect of each namespace that has too many.
    pub(crate) left_out: BTreeSet<RouteName>,
}
pub(crate) type AllJudged = Arc<Judgements>;

/// The inputs from other tasks.
struct Inputs {
    trust: watch::Receiver<Arc<Trust>>,
    bundles: watch::Receiver<Bundles>,
    backends: watch::Receiver<AllBackends>,
}

impl Inputs {
    /// Waits until an input has changed.
    async fn changed(&mut self) -> Result<(), RecvError> {
        tokio::select! {
            changed = self.trust.changed() => changed,
            changed = self.bundles.changed() => changed,
            changed = self.backends.changed() => changed,
        }
    }

    /// Reads the present backends and trust.
    fn read(&mut self, reading: &mut RouteWatches) {
        reading.references.bundles = self.bundles.borrow_and_update().clone();
        reading.references.backends = self.backends.borrow_and_update().clone();
        reading.observe_trust(self.trust.borrow_and_update().clone());
    }
}

/// The receivers of the results.
struct Outputs {
    /// The names of the ClusterTrustBundles to read.
    bundles: watch::Sender<BTreeSet<String>>,
    /// The Services to read.
    services: watch::Sender<WantedServices>,
    table: watch::Sender<Arc<RouteTable>>,
    judged: watch::Sender<AllJudged>,
    /// Whether any route needs the gateway's client certificate.
    needs_certificate: watch::Sender<bool>,
}

/// The inputs of the gateway's routes, and their receivers.
pub(crate) struct RouteLinks {
    pub(crate) client: Client,
    pub(crate) contacts: Contacts,
    pub(crate) trust: watch::Receiver<Arc<Trust>>,
    pub(crate) table: watch::Sender<Arc<RouteTable>>,
    pub(crate) pulses: Pulses,
}

/// The results for a signer.
pub(crate) struct Judgement {
    /// The verdict on each route.
    pub(crate) judged: watch::Receiver<AllJudged>,
    /// Whether any of the routes needs the gateway's client certificate.
    pub(crate) needs_certificate: watch::Receiver<bool>,
}

/// Keeps the gateway's routes.
pub(crate) fn start(tasks: &mut HubTasks, links: RouteLinks, settings: RouteSettings) -> Judgement {
    let RouteLinks { client, contacts, trust, table, pulses } = links;
    let (judged, to_write) = watch::channel(AllJudged::default());
    let (bundles, names) = watch::channel(BTreeSet::new());
    let (services, wanted) = watch::channel(WantedServices::new());
    let (read_bundles, known_bundles) = watch::channel(Bundles::default());
    let (read_backends, known_backends) = watch::channel(AllBackends::new());
    let (needs_certificate, is_needed) = watch::channel(false);
    let inputs = Inputs { trust, bundles: known_bundles, backends: known_backends };
    let outputs = Outputs { bundles, services, table, judged, needs_certificate };
    let pulse = pulses.start("routes of the gateway");
    let keeper = keep(client.clone(), settings, inputs, outputs, pulse);
    tasks.spawn("routes of the gateway", keeper.map(Ok));
    let pulse = pulses.start("Services of backends");
    let backends = backends::keep(client.clone(), contacts, wanted, read_backends, pulse);
    tasks.spawn("Services of backends", backends.map(Ok));
    let pulse = pulses.start("CAs of backends");
    tasks.spawn("CAs of backends", bundles::keep(client, names, read_bundles, pulse).map(Ok));
    Judgement { judged: to_write, needs_certificate: is_needed }
}

/// Reports the verdict on each route.
pub(crate) fn report(tasks: &mut HubTasks, links: &HubLinks, judged: watch::Receiver<AllJudged>) {
    let writer = StatusWriter { links: links.clone(), judged, pulse: links.pulses.start("statuses of AddOnRoutes") };
    tasks.spawn("statuses of AddOnRoutes", writer.run().map(Ok));
}

/// Keeps the table until a watch ends.
async fn keep(client: Client, settings: RouteSettings, mut inputs: Inputs, outputs: Outputs, pulse: Pulse) {
    let mut events = watch_routes(&client);
    let mut namespaces = NamespaceWatch::new(client.clone());
    let reading = RouteWatches::new(settings.backend_addresses);
    let mut state = RoutesState { reading, names: settings.names, before: BTreeMap::new(), outputs };
    let mut waits = Instant::now() + FIRST;
    let (mut judged, began) = (Instant::now(), Instant::now());
    let mut is_late = false;
    loop {
        pulse.beat();
        let is_start = Instant::now() < waits;
        tokio::select! {
            () = sleep_until(waits), if is_start => {}
            () = sleep(JUDGED_WHILE_LISTING), if is_late || state.reading.lacks_paths => {}
            () = sleep(QUIET) => if state.outputs.table.borrow().is_complete() && !state.reading.must_list_again() {
                continue;
            },
            event = events.next() => match event {
                Some(event) => state.reading.observe_route(event),
                None => return,
            },
            event = namespaces.events.next() => match event {
                Some(event) => state.reading.observe_namespace(event),
                None => return,
            },
            changed = inputs.changed() => if changed.is_err() { return },
        }
        inputs.read(&mut state.reading);
        // A list brings its objects one by one; handle all that have arrived before judging.
        while let Some(Some(event)) = events.next().now_or_never() {
            state.reading.observe_route(event);
        }
        while let Some(Some(event)) = namespaces.events.next().now_or_never() {
            state.reading.observe_namespace(event);
        }
        // A long list is read faster if nothing is judged in between.
        is_late = state.reading.is_listing() && judged.elapsed() < JUDGED_WHILE_LISTING;
        if is_late {
            continue;
        }
        judged = Instant::now();
        let selects = state.reading.trust.signers.iter().any(|signer| signer.attachment.selector.is_some());
        if selects && namespaces.start() {
            waits = waits.max(Instant::now() + FIRST);
        }
        let is_unread = !state.reading.has_routes || namespaces.is_on && !state.reading.has_namespaces;
        if state.reading.has_routes {
            let is_held = Instant::now() < waits && is_unread;
            let Some(done) = state.judge_aside(is_held, began.elapsed()).await else { return };
            state = done;
        }
        if state.reading.must_list_again() {
            events = watch_routes(&client);
            state.reading.listed = Some(Instant::now());
        }
        // The owners of Services must not be able to keep a processor busy.
        sleep(PAUSE.max(judged.elapsed())).await;
    }
}

/// The present knowledge, and the earlier results.
struct RoutesState {
    reading: RouteWatches,
    names: Vec<Host>,
    /// The previous backends of the routes.
    before: BTreeMap<RouteName, Arc<Backend>>,
    outputs: Outputs,
}

impl RoutesState {
    /// Judges on a thread of its own: owners of many routes can make it take seconds, in which requests must continue.
    async fn judge_aside(mut self, is_held: bool, age: Duration) -> Option<Self> {
        let judge = move || {
            self.judge(is_held, age);
            self
        };
        spawn_blocking(judge).await.ok() // an error: it has panicked, or the process ends
    }

    /// Makes the table and the verdicts. A hub that starts must neither refuse requests nor write conditions for lack
    /// of what it has not read yet.
    fn judge(&mut self, is_held: bool, age: Duration) {
        let Self { reading, names, before, outputs } = self;
        let trust = Arc::clone(&reading.trust);
        let parents: Vec<Parent<'_>> = trust.signers.iter().map(|signer| Parent::from(&**signer)).collect();
        let namespaces = &reading.namespaces;
        let world = World { parents: &parents, names, namespaces, references: &reading.references, before };
        let Resolved { mut table, verdicts, wanted } = resolve(reading.plans(), &world);
        let unread = reading.plans().filter(|plan| !verdicts.contains_key(&plan.name));
        let unread: BTreeSet<String> = unread.map(|plan| plan.signer.clone()).collect();
        // A request to a new AddOnSigner is not refused before its routes are read.
        unread.iter().filter(|signer| !outputs.table.borrow().knows(signer)).for_each(|signer| table.forget(signer));
        reading.lacks_paths = !unread.is_empty();
        // Only routes in the table may make the hub read a ClusterTrustBundle or a Service.
        let in_table: BTreeSet<&RouteName> = table.names().collect();
        let named = bundles::named(reading.plans().filter(|plan| in_table.contains(&plan.name)));
        drop(in_table);
        send_news(&outputs.bundles, named);
        send_news(&outputs.services, wanted.clone());
        let is_early = || reading.routes().any(|(name, route)| is_early(route, verdicts.get(name)));
        let is_silent = || age < LAST && has_read_none(&wanted, &reading.references);
        let is_first = !outputs.table.borrow().is_complete();
        if is_held || is_first && (age < FIRST && is_early() || is_silent()) {
            return;
        }
        *before = table.backends_by_name();
        send_news(&outputs.table, Arc::new(table));
        self.tell(verdicts);
    }

    /// Combines each verdict with what its status must report.
    fn tell(&self, mut verdicts: BTreeMap<RouteName, Verdict>) {
        let client_anchors = self.reading.trust.client_anchors.as_ref().map(Bundle::pem);
        let mut is_needed = false;
        let judged = self.reading.routes().filter_map(|(name, route)| {
            let verdict = verdicts.remove(name);
            if verdict.is_none() && route.plan.is_ok() {
                return None; // it is read again before it is reported on
            }
            let needs = Judged::needs_certificate(route, verdict.as_ref());
            is_needed |= needs;
            // Owners copy the CA, so an existing one stays while the lineage cannot be read, or the route is not
            // accepted.
            let before = route.status.as_ref().and_then(|status| status.gateway_client_ca.clone());
            let is_shown = Judged::is_shown_certificate(route) && (needs || before.is_some());
            let client_anchors = client_anchors.clone().or(before).filter(|_| is_shown);
            Some((name.clone(), Judged { route: Arc::clone(route), verdict, client_anchors }))
        });
        let (routes, left_out) = (judged.collect(), self.reading.left_out());
        self.outputs.judged.send_replace(Arc::new(Judgements { routes, left_out }));
        send_news(&self.outputs.needs_certificate, is_needed);
    }
}

/// Whether Services are wanted but none could be read in any namespace: the API server does not answer, and gateways
/// that already run can serve requests better.
fn has_read_none(wanted: &WantedServices, references: &References) -> bool {
    !wanted.is_empty() && wanted.keys().all(|namespace| !references.backends.contains_key(namespace))
}

/// Whether it is too early to report this verdict: the route or its backend was not read yet, or, after a start, the
/// AddOnSigner of a route that was accepted before is not served yet.
fn is_early(route: &KnownRoute, verdict: Option<&Verdict>) -> bool {
    let Some(Verdict { accepted, resolved, .. }) = verdict else { return route.plan.is_ok() };
    match accepted {
        Ok(()) => resolved.as_ref().is_err_and(RouteProblem::is_pending),
        Err(problem) => problem.reason == NO_PARENT && route.was_accepted(),
    }
}

type RouteEvent = Event<Guarded<AddOnRoute>>;
type NamespaceEvent = Event<Lenient<PartialObjectMeta<Namespace>>>;

/// The watch of AddOnRoutes. A failure is logged, and the watch continues.
fn watch_routes(client: &Client) -> BoxStream<'static, RouteEvent> {
    logged("AddOnRoutes", watch_objects(Api::all(client.clone()), Selector::all())).boxed()
}

/// The watch of namespaces. It begins once their labels decide anything, and then stays, so that no tenant can make the
/// others wait for its list again and again.
struct NamespaceWatch {
    client: Client,
    is_on: bool,
    events: BoxStream<'static, NamespaceEvent>,
}

impl NamespaceWatch {
    fn new(client: Client) -> Self {
        Self { client, is_on: false, events: pending().boxed() }
    }

    /// Starts it. Returns whether that is new.
    fn start(&mut self) -> bool {
        let is_new = !self.is_on;
        if is_new {
            self.is_on = true;
            self.events = logged("namespaces", watch_objects(Api::all(self.client.clone()), Selector::all())).boxed();
        }
        is_new
    }
}

fn logged<E: Send + 'static>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<Event<E>>> + Send + 'static,
) -> impl Stream<Item = Event<E>> + Send + 'static {
    events.filter_map(move |event| async move {
        event.inspect_err(|error| warn!(%error, kind, "A watch for the gateway's routes failed; the hub retries")).ok()
    })
}
