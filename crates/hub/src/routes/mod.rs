//! Reads AddOnRoutes and what they refer to, makes the gateway's table of routes, and writes the conditions of each
//! AddOnRoute. What is decided is in [`addon_signer_core::gateway::routing`].
//!
//! A hub that waits reads too, so that its gateway has all routes as soon as the hub leads; it writes nothing.

mod bundles;
mod reading;
mod report;
mod status;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use ipnet::IpNet;
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::HubLinks;
use crate::tasks::HubTasks;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::gateway::route::{RouteName, RouteTable};
use addon_signer_core::gateway::routing::{Parent, Verdict, World, resolve};
use addon_signer_core::trust::Trust;
use addon_signer_telemetry::pulse::{Pulse, Pulses};
use bundles::Bundles;
use reading::{KnownRoute, Reading};
use report::StatusWriter;

/// The pause after the table was made, while further changes gather.
const PAUSE: Duration = Duration::from_millis(50);
/// How often there is a sign of life while nothing changes.
const QUIET: Duration = Duration::from_secs(15);
/// For how long after its start a hub holds back a table whose ClusterTrustBundles it has not read yet.
const FIRST_BUNDLES: Duration = Duration::from_secs(10);

/// What the hub's settings say about routes.
#[derive(Debug, Clone, Default)]
pub struct RouteSettings {
    /// The names at which agents reach the gateway.
    pub names: Vec<String>,
    /// The networks in which a backend may be an address.
    pub backend_addresses: Vec<IpNet>,
}

/// An AddOnRoute that exists, and what to say about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judged {
    pub(crate) route: Arc<KnownRoute>,
    /// `None` if it cannot be read.
    pub(crate) verdict: Option<Verdict>,
    /// The anchors of the client certificate that its backend is shown, in PEM.
    pub(crate) client_anchors: Option<String>,
}

impl Judged {
    /// Whether calls that may come need the gateway's client certificate.
    fn needs_certificate(route: &KnownRoute, verdict: Option<&Verdict>) -> bool {
        Self::is_shown_certificate(route) && verdict.is_some_and(|verdict| verdict.accepted.is_ok())
    }

    fn is_shown_certificate(route: &KnownRoute) -> bool {
        route.plan.as_ref().is_ok_and(|plan| plan.backend.is_shown_certificate())
    }
}

/// What to say about all AddOnRoutes.
pub(crate) type AllJudged = Arc<BTreeMap<RouteName, Judged>>;

/// Where the keeper's results go.
struct Outputs {
    /// The names of the ClusterTrustBundles to read.
    wanted: watch::Sender<BTreeSet<String>>,
    table: watch::Sender<Arc<RouteTable>>,
    judged: watch::Sender<AllJudged>,
    /// Whether any route needs the gateway's client certificate.
    needs_certificate: watch::Sender<bool>,
}

/// What the gateway's routes are made from, and where they go.
pub(crate) struct RouteLinks {
    pub(crate) client: Client,
    pub(crate) trust: watch::Receiver<Arc<Trust>>,
    pub(crate) table: watch::Sender<Arc<RouteTable>>,
    pub(crate) pulses: Pulses,
}

/// What follows from the routes for a signer.
pub(crate) struct Judgement {
    /// What there is to say about each route.
    pub(crate) judged: watch::Receiver<AllJudged>,
    /// Whether any of them needs the gateway's client certificate.
    pub(crate) needs_certificate: watch::Receiver<bool>,
}

/// Keeps the gateway's routes.
pub(crate) fn start(tasks: &mut HubTasks, links: RouteLinks, settings: RouteSettings) -> Judgement {
    let RouteLinks { client, trust, table, pulses } = links;
    let (judged, to_write) = watch::channel(AllJudged::default());
    let (wanted, names) = watch::channel(BTreeSet::new());
    let (read, bundles) = watch::channel(Bundles::default());
    let (needs_certificate, is_needed) = watch::channel(false);
    let outputs = Outputs { wanted, table, judged, needs_certificate };
    let keeper = keep(client.clone(), settings, trust, bundles, outputs, pulses.start("routes of the gateway"));
    tasks.spawn("routes of the gateway", keeper.map(Ok));
    let pulse = pulses.start("CAs of backends");
    tasks.spawn("CAs of backends", bundles::keep(client, names, read, pulse).map(Ok));
    Judgement { judged: to_write, needs_certificate: is_needed }
}

/// Writes what there is to say about each route.
pub(crate) fn report(tasks: &mut HubTasks, links: &HubLinks, judged: watch::Receiver<AllJudged>) {
    let writer = StatusWriter {
        client: links.client.clone(),
        clock: links.clock.clone(),
        leading: links.leading.clone(),
        judged,
        pulse: links.pulses.start("statuses of AddOnRoutes"),
    };
    tasks.spawn("statuses of AddOnRoutes", writer.run().map(Ok));
}

/// Keeps the table until a watch ends.
async fn keep(
    client: Client,
    settings: RouteSettings,
    mut trust: watch::Receiver<Arc<Trust>>,
    mut bundles: watch::Receiver<Bundles>,
    outputs: Outputs,
    pulse: Pulse,
) {
    let mut events = watches::all(&client);
    let mut reading = Reading::new(settings.backend_addresses);
    let waits = Instant::now() + FIRST_BUNDLES;
    loop {
        pulse.beat();
        let is_start = Instant::now() < waits;
        tokio::select! {
            () = sleep_until(waits), if is_start => {}
            () = sleep(QUIET) => continue,
            event = events.next() => match event {
                Some(event) => reading.observe(event),
                None => return,
            },
            changed = trust.changed() => if changed.is_err() { return },
            changed = bundles.changed() => match changed {
                Ok(()) => reading.references.bundles = bundles.borrow_and_update().clone(),
                Err(_) => return,
            },
        }
        // A list brings its objects one by one; what follows is done once for all that are there.
        while let Some(Some(event)) = events.next().now_or_never() {
            reading.observe(event);
        }
        let trust = trust.borrow_and_update().clone();
        judge(&reading, &settings.names, &trust, &outputs, Instant::now() < waits);
        // Whoever may change Services must not keep a processor busy.
        sleep(PAUSE).await;
    }
}

/// Makes the table and the verdicts. A hub that starts must neither refuse calls nor write conditions because of
/// ClusterTrustBundles that it has not read yet.
fn judge(reading: &Reading, names: &[String], trust: &Trust, outputs: &Outputs, is_start: bool) {
    let Some(namespaces) = reading.complete() else { return };
    let parents: Vec<Parent<'_>> = trust.signers.iter().map(|signer| Parent::from(&**signer)).collect();
    let world = World { parents: &parents, names, namespaces, references: &reading.references };
    let (table, mut verdicts) = resolve(reading.plans(), &world);
    // Nobody else may make the hub read anything.
    let in_table: BTreeSet<&RouteName> = table.names().collect();
    let named = bundles::named(reading.plans().filter(|plan| in_table.contains(&plan.name)));
    drop(in_table);
    let is_unread = named.iter().any(|name| !reading.references.bundles.contains_key(name));
    outputs.wanted.send_if_modified(|known| std::mem::replace(known, named.clone()) != named);
    if is_start && is_unread {
        return;
    }
    outputs.table.send_if_modified(|known| {
        let differs = **known != table;
        if differs {
            *known = Arc::new(table);
        }
        differs
    });
    let client_anchors = trust.client_anchors.as_ref().map(Bundle::pem);
    let mut is_needed = false;
    let judged = reading.routes().map(|(name, route)| {
        let verdict = verdicts.remove(name);
        let needs = Judged::needs_certificate(route, verdict.as_ref());
        is_needed |= needs;
        // Owners copy it. One that is there stays while the line cannot be read, or the route is not accepted.
        let before = route.status.as_ref().and_then(|status| status.gateway_client_ca.clone());
        let is_shown = Judged::is_shown_certificate(route) && (needs || before.is_some());
        let client_anchors = client_anchors.clone().or(before).filter(|_| is_shown);
        (name.clone(), Judged { route: Arc::clone(route), verdict, client_anchors })
    });
    outputs.judged.send_replace(Arc::new(judged.collect()));
    outputs.needs_certificate.send_if_modified(|known| std::mem::replace(known, is_needed) != is_needed);
}
