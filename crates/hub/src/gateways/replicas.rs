//! Reads the Leases of gateways: what each of them trusts. The rules are in [`addon_signer_core::gateway::replicas`].

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ApiResource;
use kube::core::{NotUsed, Object};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, interval};
use tracing::warn;

use addon_signer_api::Lenient;
use addon_signer_core::gateway::replicas::{Replicas, Report, TrustInEffect};
use addon_signer_core::names::{ANNOTATION_TRUSTS, LABEL_GATEWAY};
use addon_signer_core::trust::Trust;
use addon_signer_platform::backoff::WatchBackoff;
use addon_signer_platform::contacts::Contacts;
use addon_signer_telemetry::pulse::Pulse;

/// How often the hub looks for gateways that have been silent for too long.
const ROUND: Duration = Duration::from_secs(5);

/// The name of the gateway in the hub's own process, which has no Lease.
const OWN: &str = "the one in the hub's process";

/// The parts of a Lease that matter here. A gateway writes the others, and could write what no program can read.
type LeaseObject = Lenient<Object<LeaseFacts, NotUsed>>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseFacts {
    holder_identity: String,
    lease_duration_seconds: u32,
}

/// What the reader needs.
pub(crate) struct ReplicasInputs {
    /// The trust that the gateway in this process has in effect; `None` without one.
    pub(crate) own: Option<watch::Receiver<Arc<Trust>>>,
    /// When the API server was last heard from.
    pub(crate) contacts: Contacts,
    /// What all gateways trust.
    pub(crate) in_effect: watch::Sender<TrustInEffect>,
}

/// Follows the Leases until the watch ends.
pub(crate) async fn keep(client: Client, namespace: String, inputs: ReplicasInputs, pulse: Pulse) {
    let ReplicasInputs { mut own, contacts, in_effect } = inputs;
    let api: Api<LeaseObject> = Api::namespaced_with(client, &namespace, &ApiResource::erase::<Lease>(&()));
    let config = watcher::Config::default().labels(LABEL_GATEWAY);
    let mut events = watch_objects(api, config).backoff(WatchBackoff::default()).boxed();
    let (started, mut replicas, mut is_complete) = (Instant::now(), Replicas::default(), false);
    let mut rounds = interval(ROUND);
    loop {
        pulse.beat();
        let own_changed = async {
            match &mut own {
                Some(own) => own.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased; // a report that has arrived counts before a gateway is forgotten
            event = events.next() => match event {
                None => return,
                Some(Err(error)) => warn!(%error, "The watch of the gateways' Leases failed; the hub retries"),
                Some(Ok(Event::Apply(lease) | Event::InitApply(lease))) => {
                    replicas.note(&lease.name_any(), report(&lease), started.elapsed());
                }
                Some(Ok(Event::InitDone)) => is_complete = true,
                Some(Ok(Event::Init | Event::Delete(_))) => {} // a deleted Lease says nothing
            },
            changed = own_changed => if changed.is_err() { return },
            _ = rounds.tick() => {
                // Whoever could not be heard was not silent.
                let deaf = contacts.age(&["leases"]).unwrap_or_default();
                replicas.forget_silent(started.elapsed().saturating_sub(deaf));
            }
        }
        if is_complete {
            let mut gateways = replicas.trusts();
            gateways.extend(own.as_mut().map(|own| (OWN.to_owned(), own.borrow_and_update().authorities())));
            let now = TrustInEffect::of(gateways);
            in_effect.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
        }
    }
}

fn report(lease: &LeaseObject) -> Report {
    let LeaseFacts { holder_identity, lease_duration_seconds } = &lease.object.spec;
    let trusts = lease.annotations().get(ANNOTATION_TRUSTS).map(String::as_str).unwrap_or_default();
    Report {
        runs: !holder_identity.is_empty(),
        trusts: trusts.split_whitespace().map(Into::into).collect(),
        bound: Duration::from_secs(u64::from(*lease_duration_seconds)),
        version: lease.resource_version().unwrap_or_default(),
    }
}
