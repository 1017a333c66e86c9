//! What the gateway is told of the pods and Services in the hub's namespace.

use std::net::IpAddr;

use addon_signer_core::gateway::protected::{Addresses, ProtectedAddresses};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::mk_ready;
use test_kit::hub::{RunningHub, TIMEOUT};
use test_kit::wait_until;

const NAME: &str = "beside";

/// Waits until the hub knows these addresses of the object; `None` for no such object.
async fn wait_known(
    running: &RunningHub,
    kind: impl Fn(&ProtectedAddresses) -> &Option<Addresses>,
    expected: Option<&[IpAddr]>,
) {
    wait_until(TIMEOUT, &format!("{expected:?}"), async || {
        let known = running.protected.borrow();
        let found = kind(&known).as_ref()?.get(NAME).map(Vec::as_slice);
        (found == expected).then_some(())
    })
    .await;
}

/// What the namespace's restrictions allow.
pub(super) fn mk_pod() -> Pod {
    let container = json!({
        "name": "a", "image": "a",
        "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
    });
    let security = json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    let spec = json!({ "containers": [container], "securityContext": security });
    serde_json::from_value(json!({ "metadata": { "name": NAME }, "spec": spec })).unwrap()
}

#[tokio::test]
async fn gateway_knows_live_pods_and_services_of_hub_namespace() {
    let (_hub, admin, running) = mk_ready().await;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "addon-signer");
    pods.create(&PostParams::default(), &mk_pod()).await.unwrap();
    wait_known(&running, |known| &known.pods, Some(&[])).await;
    let set = async |status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        pods.patch_status(NAME, &PatchParams::default(), &patch).await.unwrap();
    };
    let address = "10.1.2.3".parse().unwrap();
    set(json!({ "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{ "ip": "10.1.2.3" }] })).await;
    wait_known(&running, |known| &known.pods, Some(&[address])).await;
    set(json!({ "phase": "Succeeded" })).await;
    wait_known(&running, |known| &known.pods, Some(&[])).await;

    let services: Api<Service> = Api::namespaced(admin.clone(), "addon-signer");
    let spec = json!({ "ports": [{ "port": 80 }], "externalIPs": ["192.0.2.77"] });
    let service = serde_json::from_value(json!({ "metadata": { "name": NAME }, "spec": spec })).unwrap();
    let made = services.create(&PostParams::default(), &service).await.unwrap();
    let of_cluster = made.spec.unwrap().cluster_ips.unwrap_or_default(); // the stand-in gives out none
    let mut expected: Vec<IpAddr> = of_cluster.iter().map(|address| address.parse().unwrap()).collect();
    expected.push("192.0.2.77".parse().unwrap());
    wait_known(&running, |known| &known.services, Some(&expected)).await;
    services.delete(NAME, &Default::default()).await.unwrap();
    wait_known(&running, |known| &known.services, None).await;
}
