//! Keeps [`ProtectedAddresses`] by watches of the pods and Services in the hub's namespace. Only their addresses are
//! kept.

use std::net::IpAddr;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, ApiResource};
use kube::core::{NotUsed, Object};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::warn;

use crate::relist::Watched;
use addon_signer_api::Lenient;
use addon_signer_api::kept::Kept;
use addon_signer_core::bounded::Keep;
use addon_signer_core::gateway::protected::{Addresses, ProtectedAddresses};
use addon_signer_platform::listing::{Selector, Watch, watch as watch_objects};

/// The parts of a pod that determine its addresses.
type PodObject = Lenient<Object<NotUsed, PodState>>;
/// The parts of a Service that determine its addresses.
type ServiceObject = Lenient<Object<ServicePlan, ServiceState>>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodState {
    phase: String,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<Ip>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServicePlan {
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceState {
    load_balancer: LoadBalancer,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    ingress: Vec<Ip>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Ip {
    ip: String,
}

/// The most memory for the addresses of a pod or a Service.
const ADDRESSES: usize = 256 << 10;

impl Kept for PodState {
    const KEEP: Keep = Keep::Fields(&[("phase", Keep::Scalar(64)), ("podIPs", Keep::All(ADDRESSES))]);
}

impl Kept for ServicePlan {
    const KEEP: Keep = Keep::Fields(&[("clusterIPs", Keep::All(ADDRESSES)), ("externalIPs", Keep::All(ADDRESSES))]);
}

impl Kept for ServiceState {
    const KEEP: Keep = Keep::Fields(&[("loadBalancer", Keep::Fields(&[("ingress", Keep::All(ADDRESSES))]))]);
}

/// Follows the pods and Services of a namespace until a watch ends.
pub(super) async fn keep(client: Client, namespace: String, known: watch::Sender<ProtectedAddresses>) {
    let mut pods = objects::<Pod, PodObject>(&client, &namespace);
    let mut services = objects::<Service, ServiceObject>(&client, &namespace);
    let (mut known_pods, mut known_services) = (Watched::default(), Watched::default());
    loop {
        let more = tokio::select! {
            event = pods.next() => follow(event, of_pod, &mut known_pods, &known, |known| &mut known.pods),
            event = services.next() => {
                follow(event, of_service, &mut known_services, &known, |known| &mut known.services)
            }
        };
        if !more {
            return;
        }
    }
}

fn objects<K, O>(client: &Client, namespace: &str) -> Watch<O>
where
    K: Resource<DynamicType = ()>,
    O: Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
    O: Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let api: Api<O> = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()));
    watch_objects(api, Selector::all())
}

/// Applies one event to the addresses of one kind; returns `false` if the watch has ended.
fn follow<O: ResourceExt>(
    event: Option<watcher::Result<Event<O>>>,
    addresses: impl Fn(&O) -> Vec<IpAddr>,
    watched: &mut Watched<Vec<IpAddr>>,
    known: &watch::Sender<ProtectedAddresses>,
    kind: impl Fn(&mut ProtectedAddresses) -> &mut Option<Addresses>,
) -> bool {
    match event {
        None => return false,
        Some(Err(error)) => {
            warn!(%error, "The watch of the pods and Services in the hub's namespace failed; the hub retries");
        }
        Some(Ok(event)) => {
            watched.observe(event, addresses);
            known.send_modify(|known| *kind(known) = watched.all().cloned());
        }
    }
    true
}

/// The pod's addresses. A pod that has ended has none: another pod may have its address by now.
fn of_pod(pod: &PodObject) -> Vec<IpAddr> {
    let lives = |state: &&PodState| !["Succeeded", "Failed"].contains(&&*state.phase);
    pod.object
        .status
        .iter()
        .filter(lives)
        .flat_map(|state| &state.pod_ips)
        .filter_map(|found| read(&found.ip))
        .collect()
}

fn of_service(service: &ServiceObject) -> Vec<IpAddr> {
    let ServicePlan { cluster_ips, external_ips } = &service.object.spec;
    let ingress = service.object.status.iter().flat_map(|state| &state.load_balancer.ingress).map(|found| &found.ip);
    cluster_ips.iter().chain(external_ips).chain(ingress).filter_map(|text| read(text)).collect()
}

/// Returns `None` for `None`, which a Service without an address has, and for the name of a load balancer.
fn read(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mk_pod(phase: &str) -> PodObject {
        let status =
            json!({ "phase": phase, "podIP": "10.0.0.7", "podIPs": [{ "ip": "10.0.0.7" }, { "ip": "fd00::7" }] });
        let pod = json!({ "metadata": { "name": "hub" }, "spec": { "containers": [] }, "status": status });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_has_its_addresses_until_it_has_ended() {
        let addresses: [IpAddr; 2] = ["10.0.0.7", "fd00::7"].map(|text| text.parse().unwrap());
        for (phase, expected) in
            [("Pending", &addresses[..]), ("Running", &addresses), ("Unknown", &addresses), ("Failed", &[])]
        {
            assert_eq!(of_pod(&mk_pod(phase)), expected, "{phase}");
        }
        assert!(of_pod(&mk_pod("Succeeded")).is_empty());
        let unplaced = json!({ "metadata": { "name": "hub" }, "spec": {} });
        assert!(of_pod(&serde_json::from_value(unplaced).unwrap()).is_empty());
    }

    #[test]
    fn a_service_has_all_addresses_that_lead_to_it() {
        let of = |spec: Value, status: Value| {
            let service = json!({ "metadata": { "name": "gateway" }, "spec": spec, "status": status });
            let texts = of_service(&serde_json::from_value(service).unwrap());
            texts.into_iter().map(|address| address.to_string()).collect::<Vec<_>>()
        };
        let spec = json!({ "clusterIPs": ["10.96.0.7", "fd00::7"], "externalIPs": ["192.0.2.7"] });
        let ingress = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.8" }, { "hostname": "lb.example" }] } });
        assert_eq!(of(spec, ingress), ["10.96.0.7", "fd00::7", "192.0.2.7", "192.0.2.8"]);
        assert!(of(json!({ "clusterIPs": ["None"] }), json!({})).is_empty());
        assert!(of(json!({ "type": "ExternalName" }), json!({ "loadBalancer": {} })).is_empty());
    }

    #[test]
    fn kind_is_known_once_listed_and_follows_every_event() {
        let known = watch::Sender::new(ProtectedAddresses::default());
        let mut pods = Watched::default();
        let mut bring = |event| assert!(follow(Some(Ok(event)), of_pod, &mut pods, &known, |known| &mut known.pods));
        let hub = |phase| Addresses::from([("hub".to_owned(), of_pod(&mk_pod(phase)))]);
        bring(Event::Init);
        bring(Event::InitApply(mk_pod("Running")));
        assert_eq!(known.borrow().pods, None);
        bring(Event::InitDone);
        assert_eq!(*known.borrow(), ProtectedAddresses { pods: Some(hub("Running")), services: None });
        bring(Event::Apply(mk_pod("Failed")));
        assert_eq!(known.borrow().pods, Some(hub("Failed")));
        bring(Event::Init);
        assert_eq!(known.borrow().pods, Some(hub("Failed")), "until a further list is complete");
        bring(Event::Delete(mk_pod("Failed")));
        assert_eq!(known.borrow().pods, Some(Addresses::new()));
    }
}
