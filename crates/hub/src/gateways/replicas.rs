//! Reads from the Leases of gateways what each gateway trusts. The rules are in
//! [`addon_signer_core::gateway::replicas`].

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ApiResource;
use kube::core::{NotUsed, Object};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, interval};
use tracing::warn;

use super::gateway_lease::LEASES;
use crate::tasks::send_news;
use addon_signer_api::Lenient;
use addon_signer_api::kept::Kept;
use addon_signer_core::bounded::Keep;
use addon_signer_core::gateway::replicas::{Replicas, Report, TrustInEffect};
use addon_signer_core::names::{ANNOTATION_TRUSTS, LABEL_GATEWAY};
use addon_signer_core::trust::Trust;
use addon_signer_platform::contacts::{Contacts, in_namespace};
use addon_signer_platform::listing::{Selector, watch as watch_objects};
use addon_signer_telemetry::pulse::Pulse;

/// How often the hub checks for gateways that have been silent for too long.
const ROUND: Duration = Duration::from_secs(5);

/// A watch that was silent this long is resumed, and a live API server then answers.
const SILENCE: Duration = Duration::from_secs(75);

/// The name of the gateway in the hub's own process, which has no Lease.
const OWN: &str = "the one in the hub's process";

/// The parts of a Lease that matter here. The other fields are ignored, because a gateway could write there what no
/// program can decode.
type LeaseObject = Lenient<Object<LeaseFacts, NotUsed>>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseFacts {
    holder_identity: String,
    lease_duration_seconds: u32,
}

impl Kept for LeaseFacts {
    const KEEP: Keep =
        Keep::Fields(&[("holderIdentity", Keep::Scalar(1024)), ("leaseDurationSeconds", Keep::Scalar(64))]);
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

/// The time during which the API server could be heard. A gateway does not count as silent while it could not be heard,
/// and after an outage each gateway needs a moment to report again.
struct HeardTime {
    time: Duration,
    last: Instant,
}

impl HeardTime {
    fn new() -> Self {
        Self { time: Duration::ZERO, last: Instant::now() }
    }

    /// Notes for how long the API server has been silent. A process that was frozen has not heard it meanwhile.
    fn pass(&mut self, silence: Duration) {
        let passed = std::mem::replace(&mut self.last, Instant::now()).elapsed();
        if silence < SILENCE {
            self.time += passed.min(2 * ROUND);
        }
    }
}

/// Follows the Leases until the watch ends.
pub(crate) async fn keep(client: Client, namespace: String, inputs: ReplicasInputs, pulse: Pulse) {
    let ReplicasInputs { mut own, contacts, in_effect } = inputs;
    let api: Api<LeaseObject> = Api::namespaced_with(client, &namespace, &ApiResource::erase::<Lease>(&()));
    let leases = in_namespace(LEASES, &namespace);
    let mut events = watch_objects(api, Selector::labels(LABEL_GATEWAY));
    let (mut heard, mut replicas, mut is_complete) = (HeardTime::new(), Replicas::default(), false);
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
                    replicas.note(&lease.name_any(), report(&lease), heard.time);
                }
                Some(Ok(Event::InitDone)) => is_complete = true,
                Some(Ok(Event::Init | Event::Delete(_))) => {} // a deleted Lease proves nothing
            },
            changed = own_changed => if changed.is_err() { return },
            _ = rounds.tick() => {
                heard.pass(contacts.age(&[&leases]).unwrap_or_default());
                replicas.forget_silent(heard.time);
            }
        }
        if is_complete {
            let mut gateways = replicas.trusts();
            gateways.extend(own.as_mut().map(|own| (OWN.to_owned(), own.borrow_and_update().authorities())));
            send_news(&in_effect, TrustInEffect::of(gateways));
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use addon_signer_core::ca::lineage::WaitsFor;
    use addon_signer_telemetry::pulse::Pulses;
    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server with the Lease of one gateway, which is never renewed.
    fn mk_client() -> Client {
        let service = tower::service_fn(async |request: Request<Body>| {
            if request.uri().query().unwrap_or_default().contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let metadata =
                json!({ "name": "gateway-1", "resourceVersion": "5", "annotations": { ANNOTATION_TRUSTS: "old" } });
            let lease = json!({ "metadata": metadata, "spec": { "holderIdentity": "a", "leaseDurationSeconds": 600 } });
            let list = json!({ "metadata": { "resourceVersion": "7" }, "items": [lease] });
            Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn killed_gateway_is_forgotten_after_its_bound_and_a_minute() {
        let (in_effect, mut seen) = watch::channel(TrustInEffect::default());
        let (_trusts_nothing, own) = watch::channel(Arc::default());
        let inputs = ReplicasInputs { own: Some(own), contacts: Contacts::default(), in_effect };
        let pulse = Pulses::default().start("Leases");
        let keeping = tokio::spawn(keep(mk_client(), "addon-signer".to_owned(), inputs, pulse));
        seen.changed().await.unwrap();
        let began = Instant::now();
        let waits = |missing: &[&str]| {
            let missing: Vec<_> = missing.iter().map(|&name| name.to_owned()).collect();
            Err(WaitsFor::Gateways { live: missing.len(), missing })
        };
        assert_eq!(seen.borrow_and_update().has(&"new".into()), waits(&["gateway-1", OWN]));
        seen.changed().await.unwrap();
        let after = began.elapsed();
        assert!(after >= Duration::from_secs(660) && after < Duration::from_secs(670), "{after:?}");
        assert_eq!(seen.borrow().has(&"new".into()), waits(&[OWN]));
        keeping.abort();
    }
    #[tokio::test(start_paused = true)]
    async fn no_time_passes_for_gateways_that_cannot_be_heard() {
        let mut heard = HeardTime::new();
        let mut after = async |elapsed: Duration, silence: Duration| {
            tokio::time::advance(elapsed).await;
            heard.pass(silence);
            heard.time
        };
        assert_eq!(after(ROUND, Duration::ZERO).await, ROUND);
        assert_eq!(after(ROUND, SILENCE).await, ROUND, "an outage");
        assert_eq!(after(ROUND, Duration::ZERO).await, 2 * ROUND, "and its end");
        assert_eq!(after(100 * ROUND, Duration::ZERO).await, 4 * ROUND, "the process was frozen");
    }
}
