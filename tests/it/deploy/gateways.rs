//! What a gateway that was taken over can do with its account, on a real API server: see SECURITY.md.

use std::time::Duration;

use addon_signer_api::AddOnSigner;
use addon_signer_core::names::ANNOTATION_TRUSTS;
use addon_signer_core::policy::GATEWAY_COMMON_NAME;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::on_api_server::start;
use crate::whole::prepare;
use crate::whole::split::{start_gateway, start_signer};
use test_kit::gateways::{GatewayPod, answer_to, answered, deploy_gateways, gateway_pod, mk_request, wish};
use test_kit::lease::leases;
use test_kit::{TestHub, wait_until};

/// The refusal of a call, by RBAC or by the policy of the chart.
fn refusal<T>(result: kube::Result<T>, what: &str) -> String {
    match result {
        Err(kube::Error::Api(status)) => {
            assert!([403, 422].contains(&status.code), "{what}: {status:?}");
            status.message
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what} was allowed"),
    }
}

fn merge(change: Value) -> Patch<Value> {
    Patch::Merge(change)
}

async fn cannot_patch<K>(api: &Api<K>, name: &str, change: Value, what: &str)
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Serialize,
{
    let params = PatchParams::default();
    refusal(api.patch(name, &params, &merge(change.clone())).await, what);
    refusal(api.patch_status(name, &params, &merge(change)).await, what);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_was_taken_over_can_change_nothing() {
    let Some(hub) = start().await else { return };
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    deploy_gateways(&hub).await;
    let signer = start_signer(&hub, "signer-1").await;
    let gateway = start_gateway(&hub, "gateway-1").await;
    let pod = gateway_pod(&hub, "gateway-2").await;
    let hostile = pod.client().await;
    the_policy_is_in_force(&hostile).await;

    it_cannot_change_trust(&hostile).await;
    it_writes_only_its_own_lease(&admin, &hostile, &pod).await;
    it_gets_no_certificate(&hostile).await;
    it_takes_no_certificate_from_the_others(&hub, &hostile).await;
    gateway.stop().await.unwrap();
    signer.stop().await.unwrap();
    what_it_left_is_denied_when_its_pod_is_gone(&hub).await;
}

async fn it_cannot_change_trust(hostile: &Client) {
    let status = json!({ "status": { "authorities": [] } });
    cannot_patch(&Api::<AddOnSigner>::all(hostile.clone()), "telemetry", status, "the trust of the others").await;
    let maps: Api<ConfigMap> = Api::namespaced(hostile.clone(), "addon-signer");
    for name in ["addon-signer-trust", "telemetry-client-ca"] {
        refusal(maps.patch(name, &PatchParams::default(), &merge(json!({ "data": {} }))).await, name);
    }
    let secrets: Api<Secret> = Api::namespaced(hostile.clone(), "addon-signer");
    refusal(secrets.list(&ListParams::default()).await, "the keys");
    refusal(secrets.get("telemetry-client-authorities").await, "a key");
}

async fn it_writes_only_its_own_lease(admin: &Client, hostile: &Client, pod: &GatewayPod) {
    let policy = "may only write the Lease with the name of its own pod";
    let own: Api<Lease> = leases(hostile);
    for name in ["addon-signer", "gateway-1"] {
        let mut lease = leases(admin).get(name).await.unwrap();
        lease.metadata.managed_fields = None;
        lease.annotations_mut().insert(ANNOTATION_TRUSTS.to_owned(), "0123456789abcdef".to_owned());
        let text = refusal(own.replace(name, &PostParams::default(), &lease).await, name);
        assert!(text.contains(policy), "{text}");
    }
    let invented =
        Lease { metadata: kube::api::ObjectMeta { name: Some("gateway-9".into()), ..Default::default() }, spec: None };
    let text = refusal(own.create(&PostParams::default(), &invented).await, "a Lease of nobody");
    assert!(text.contains(policy), "{text}");

    let owner = |kind: &str| json!([{ "apiVersion": "v1", "kind": kind, "name": "gateway-2", "uid": pod.uid }]);
    let only_owner = "the only owner of a gateway's Lease must be the gateway's pod";
    let trusts = |bytes| json!({ ANNOTATION_TRUSTS: "a".repeat(bytes) });
    let too_large = "no more than 64 KiB";
    for (owners, seconds, finalizers, annotations, why) in [
        (json!([]), 600, json!([]), json!({}), only_owner),
        (owner("Nothing"), 600, json!([]), json!({}), only_owner),
        (owner("Pod"), 600, json!(["a/a"]), json!({}), "a gateway's Lease must have no finalizers"),
        (owner("Pod"), 86_401, json!([]), json!({}), "a gateway's Lease must be outdated after 24 hours at the latest"),
        (owner("Pod"), 600, json!([]), trusts(65_537), too_large),
        (owner("Pod"), 600, json!([]), json!({ "a": "\u{1f511}".repeat(257) }), too_large),
        (owner("Pod"), 600, json!([]), json!({ "a": "a".repeat(1_025) }), too_large),
        (owner("Pod"), 600, json!([]), json!({ "a": "", "b": "", "c": "", "d": "", "e": "" }), too_large),
    ] {
        let lasting: Lease = serde_json::from_value(json!({
            "metadata": {
                "name": "gateway-2", "ownerReferences": owners, "finalizers": finalizers, "annotations": annotations
            },
            "spec": { "holderIdentity": "a", "leaseDurationSeconds": seconds },
        }))
        .unwrap();
        let text = refusal(own.create(&PostParams::default(), &lasting).await, why);
        assert!(text.contains(why), "{text}");
    }
}

async fn it_gets_no_certificate(hostile: &Client) {
    it_makes_no_other_requests(hostile).await;
    for (signer_name, usage, wish) in [
        ("addon-signer.io/gateway-serving", "server auth", wish(GATEWAY_COMMON_NAME, &["elsewhere.example"])),
        ("addon-signer.io/gateway-client", "client auth", wish("admin", &[])),
    ] {
        let request = answered(hostile, signer_name, usage, &wish).await;
        let status = request.status.clone().unwrap();
        assert!(status.certificate.is_none(), "{signer_name}");
        assert_eq!(status.conditions.unwrap()[0].type_, "Denied", "{signer_name}");
        let (requests, name) = (Api::<CertificateSigningRequest>::all(hostile.clone()), request.name_any());
        let (params, change) = (PatchParams::default(), merge(json!({ "status": {} })));
        refusal(requests.patch_approval(&name, &params, &change).await, "an approval");
        refusal(requests.patch_status(&name, &params, &change).await, "a certificate");
    }
}

/// OCM's agents make no request while there are ten with their labels, whoever made them.
async fn it_makes_no_other_requests(hostile: &Client) {
    let requests = Api::<CertificateSigningRequest>::all(hostile.clone());
    let of = |signer_name: &str, change: fn(&mut CertificateSigningRequest)| {
        let mut request = mk_request(signer_name, "client auth", &wish(GATEWAY_COMMON_NAME, &[]));
        change(&mut request);
        request
    };
    let own = |change| of("addon-signer.io/gateway-client", change);
    let bare = "must have no labels, annotations, finalizers or owners";
    for (request, why) in [
        (of("example.com/telemetry", |_| {}), "may only request its own two certificates"),
        (own(|request| request.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into())), bare),
        (own(|request| request.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into())), bare),
        (own(|request| request.metadata.finalizers = Some(vec!["a/a".to_owned()])), bare),
        // What is before the PEM block is ignored.
        (own(|request| request.spec.request.0.splice(0..0, [b'\n'; 17_000]).for_each(drop)), "larger than 16 KiB"),
    ] {
        let text = refusal(requests.create(&PostParams::default(), &request).await, why);
        assert!(text.contains(why), "{text}");
    }
}

/// It asks for its own name until it has to wait. Another gateway does not wait.
async fn it_takes_no_certificate_from_the_others(hub: &TestHub, hostile: &Client) {
    let wish = wish(GATEWAY_COMMON_NAME, &["gateway.example", "127.0.0.1"]);
    let mut count = 0;
    loop {
        let request = answered(hostile, "addon-signer.io/gateway-serving", "server auth", &wish).await;
        let conditions = request.status.unwrap().conditions.unwrap();
        if conditions.iter().any(|condition| condition.type_ == "RateLimited") {
            break;
        }
        count += 1;
        assert!(count < 30, "it gets as many certificates as it likes");
    }
    start_gateway(hub, "gateway-3").await.stop().await.unwrap();
}

/// A request that waited while its pod was deleted.
async fn what_it_left_is_denied_when_its_pod_is_gone(hub: &TestHub) {
    let pod = gateway_pod(hub, "gateway-4").await;
    let wish = wish(GATEWAY_COMMON_NAME, &[]);
    let left = mk_request("addon-signer.io/gateway-client", "client auth", &wish);
    let requests = Api::<CertificateSigningRequest>::all(pod.client().await);
    let left = requests.create(&PostParams::default(), &left).await.unwrap().name_any();
    let admin = hub.admin().await;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "addon-signer");
    pods.delete("gateway-4", &DeleteParams::default().grace_period(0)).await.unwrap();
    let signer = start_signer(hub, "signer-2").await;
    let status = answer_to(&admin, &left).await.status.unwrap();
    assert!(status.certificate.is_none());
    assert_eq!(status.conditions.unwrap()[0].reason.as_deref(), Some("RequesterPodGone"));
    signer.stop().await.unwrap();
}

/// An API server enforces a new policy a moment after it was created.
async fn the_policy_is_in_force(hostile: &Client) {
    let dry_run = PostParams { dry_run: true, field_manager: None };
    let lease = Lease { metadata: kube::api::ObjectMeta { name: Some("x".into()), ..Default::default() }, spec: None };
    wait_until(Duration::from_secs(30), "the policy to be in force", async || {
        leases(hostile).create(&dry_run, &lease).await.is_err().then_some(())
    })
    .await;
}
