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

use futures::{FutureExt, StreamExt};
use ipnet::IpNet;
use kube::Client;
use tokio::sync::watch;

use crate::HubLinks;
use crate::tasks::HubTasks;
use addon_signer_core::gateway::route::{RouteName, RouteTable};
use addon_signer_core::gateway::routing::{Parent, Verdict, World, resolve};
use addon_signer_core::trust::Trust;
use bundles::Bundles;
use reading::{KnownRoute, Reading};
use report::StatusWriter;

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
}

/// What to say about all AddOnRoutes.
pub(crate) type AllJudged = Arc<BTreeMap<RouteName, Judged>>;

/// Where the keeper's results go.
struct Outputs {
    /// The names of the ClusterTrustBundles to read.
    wanted: watch::Sender<BTreeSet<String>>,
    table: watch::Sender<Arc<RouteTable>>,
    judged: watch::Sender<AllJudged>,
}

/// Keeps the gateway's routes, and writes what there is to say about each.
pub(crate) fn start(tasks: &mut HubTasks, links: &HubLinks, settings: RouteSettings) {
    let (judged, to_write) = watch::channel(AllJudged::default());
    let (wanted, names) = watch::channel(BTreeSet::new());
    let (read, bundles) = watch::channel(Bundles::default());
    let outputs = Outputs { wanted, table: links.routes.clone(), judged };
    let client = links.client.clone();
    let keeper = keep(client.clone(), settings, links.trust.subscribe(), bundles, outputs);
    tasks.spawn("routes of the gateway", keeper.map(Ok));
    let pulse = links.pulses.start("CAs of backends");
    tasks.spawn("CAs of backends", bundles::keep(client, names, read, pulse).map(Ok));
    let writer = StatusWriter {
        client: links.client.clone(),
        clock: links.clock.clone(),
        leading: links.leading.clone(),
        judged: to_write,
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
) {
    let mut events = watches::all(&client);
    let mut reading = Reading::new(settings.backend_addresses);
    loop {
        tokio::select! {
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
        judge(&reading, &settings.names, &trust, &outputs);
    }
}

fn judge(reading: &Reading, names: &[String], trust: &Trust, outputs: &Outputs) {
    let Some(namespaces) = reading.complete() else { return };
    let named = bundles::named(reading.plans());
    outputs.wanted.send_if_modified(|known| std::mem::replace(known, named.clone()) != named);
    let parents: Vec<Parent<'_>> = trust.signers.iter().map(|signer| Parent::from(&**signer)).collect();
    let world = World { parents: &parents, names, namespaces, references: &reading.references };
    let (table, mut verdicts) = resolve(reading.plans(), &world);
    outputs.table.send_if_modified(|known| {
        let differs = **known != table;
        if differs {
            *known = Arc::new(table);
        }
        differs
    });
    let judged = reading.routes().map(|(name, route)| {
        let verdict = verdicts.remove(name);
        (name.clone(), Judged { route: Arc::clone(route), verdict })
    });
    outputs.judged.send_replace(Arc::new(judged.collect()));
}
