//! Signer and gateways in processes of their own, which share nothing but the API server.

use std::time::Duration;

use addon_signer::process::registry_age::AgeBounds;
use addon_signer::process::{HubOptions, HubProcess, Roles};
use addon_signer_api::AddOnSigner;
use addon_signer_core::names::{ANNOTATION_ROTATE, ANNOTATION_TRUSTS};
use addon_signer_platform::clock::Clock;
use futures::future::join_all;
use hyper::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::client::ClientPair;
use super::ours::enrolled;
use super::{Whole, active, get, options, prepare, rotate};
use crate::gateway::backend;
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::gateways::{GatewayPod, deploy_gateways, gateway_pod};
use test_kit::hub::{TIMEOUT, apply_route, change_signer};
use test_kit::lease::leases;
use test_kit::objects::{create_namespace, create_service, managed_cluster_addons};
use test_kit::{TestHub, wait_for, wait_until};

pub(super) const RECEIVE: &str = "/addons/telemetry/api/v1/receive";

pub(crate) async fn start_signer(hub: &TestHub, replica: &str) -> Whole {
    let client = hub.client_at(HUB_USER, &HUB_GROUPS, &Clock::default()).await;
    let options = HubOptions { roles: Roles::Signer, replica: replica.to_owned(), ..options() };
    Whole::start_with(client, options, Clock::default()).await
}

pub(crate) fn gateway_options(replica: &str, pod: &GatewayPod) -> HubOptions {
    let registry_age = AgeBounds { outdated: Some(Duration::from_secs(600)), ..AgeBounds::default() };
    let pod_uid = pod.uid.clone();
    HubOptions { roles: Roles::Gateway, replica: replica.to_owned(), pod_uid, registry_age, ..options() }
}

pub(crate) async fn start_gateway(hub: &TestHub, replica: &str) -> Whole {
    let pod = gateway_pod(hub, replica).await;
    let whole = Whole::start_with(pod.client().await, gateway_options(replica, &pod), Clock::default()).await;
    ready(&whole).await;
    whole
}

pub(crate) async fn ready(whole: &Whole) {
    wait_until(TIMEOUT, "the process to be ready", async || {
        let (status, _) = get(whole.metrics, "/readyz").await;
        (status == 200).then_some(())
    })
    .await;
}

/// What the Lease of a gateway says: who holds it, and the authorities that the gateway trusts.
pub(super) async fn report(admin: &Client, name: &str) -> Option<(String, Vec<String>)> {
    let lease = leases(admin).get_opt(name).await.unwrap()?;
    let trusts = lease.annotations().get(ANNOTATION_TRUSTS)?.split_whitespace().map(str::to_owned).collect();
    Some((lease.spec?.holder_identity.unwrap_or_default(), trusts))
}

pub(super) async fn waits_for(admin: &Client) -> Option<String> {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    signers.get("telemetry").await.unwrap().status?.rotation?.waiting_for
}

#[tokio::test]
async fn signer_and_two_gateways_enrol_serve_rotate_and_refuse() {
    let hub = TestHub::start().await;
    let backend = backend::start().await;
    let admin = prepare(&hub, backend, "24h").await;
    deploy_gateways(&hub).await;
    let signer = start_signer(&hub, "signer-1").await;
    let gateways = [start_gateway(&hub, "gateway-1").await, start_gateway(&hub, "gateway-2").await];
    let dir = tempfile::tempdir().unwrap();
    let pair = enrolled(&hub, &admin, dir.path(), "spoke1", gateways[0].gateway).await;
    for gateway in &gateways {
        // The second one may still read what it needs.
        wait_until(TIMEOUT, "a gateway to serve the agent", async || {
            let (status, body) = pair.call(gateway.gateway, Method::POST, RECEIVE).await.unwrap();
            assert!(status == 200 || body.contains("not-ready"), "{status} {body}");
            (status == 200).then_some(())
        })
        .await;
    }

    follow_a_service(&admin, &pair, &gateways).await;
    let first = active(&admin).await.unwrap();
    let second = rotate(&admin).await;
    for name in ["gateway-1", "gateway-2"] {
        let (_, trusts) = report(&admin, name).await.unwrap();
        assert!(trusts.contains(&second) && trusts.contains(&first), "{name} trusts {trusts:?}");
    }
    for gateway in &gateways {
        assert_eq!(pair.call(gateway.gateway, Method::POST, RECEIVE).await.unwrap().0, 200, "the old one still counts");
    }
    signer.stop().await.unwrap(); // gateways need no signer to admit and to refuse
    for gateway in &gateways {
        assert_eq!(pair.call(gateway.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    }
    managed_cluster_addons(&admin, "spoke1").await.delete("telemetry", &Default::default()).await.unwrap();
    for gateway in &gateways {
        wait_until(TIMEOUT, "the gateway to refuse a detached cluster", async || {
            let answer = pair.call(gateway.gateway, Method::POST, RECEIVE).await;
            answer.is_ok_and(|(status, _)| status == 403).then_some(())
        })
        .await;
    }
    for gateway in gateways {
        gateway.stop().await.unwrap();
    }
    assert_eq!(report(&admin, "gateway-1").await.unwrap().0, "", "a gateway that ends says so");
}

/// Routes a path to a Service of a namespace that the AddOnSigner selects by label, which gateways read with rights of
/// their own.
async fn follow_a_service(admin: &Client, pair: &ClientPair, gateways: &[Whole]) {
    let routes_from = json!({ "namespaces": ["default"], "selector": { "matchLabels": { "team": "observability" } } });
    change_signer(admin, json!({ "spec": { "gateway": { "routesFrom": routes_from } } })).await;
    create_namespace(admin, "observability").await;
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "team": "observability" } } }));
    Api::<Namespace>::all(admin.clone()).patch("observability", &PatchParams::default(), &labels).await.unwrap();
    let spec = json!({
        "signer": "telemetry",
        "match": { "http": [{ "path": "/api/v1/query" }] },
        "backend": { "service": { "name": "query", "port": 80 } },
    });
    apply_route(admin, "observability", "query", spec).await;
    join_all(gateways.iter().map(|gateway| wait_status(pair, gateway, 503))).await; // there is no such Service
    create_service(admin, "observability", "query").await;
    let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), "observability");
    // Addresses for documents are nobody's.
    let slice = json!({
        "metadata": { "name": "query-1", "labels": { "kubernetes.io/service-name": "query" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["192.0.2.7"] }],
        "ports": [{ "name": "", "port": 80, "protocol": "TCP" }],
    });
    slices.create(&Default::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    join_all(gateways.iter().map(|gateway| wait_status(pair, gateway, 502))).await;
}

/// Waits until a request of the path of `follow_a_service` gets this answer.
async fn wait_status(pair: &ClientPair, gateway: &Whole, expected: u16) {
    wait_until(TIMEOUT, &format!("the answer {expected}"), async || {
        let (status, _) = pair.call(gateway.gateway, Method::GET, "/addons/telemetry/api/v1/query").await.ok()?;
        (status == expected).then_some(())
    })
    .await;
}

/// A gateway that lives but does not report keeps a new authority from signing (invariant I5), and is named.
#[tokio::test]
async fn new_authority_signs_only_when_every_gateway_trusts_it() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    deploy_gateways(&hub).await;
    let signer = start_signer(&hub, "signer-1").await;
    let gateway = start_gateway(&hub, "gateway-1").await;
    let dir = tempfile::tempdir().unwrap();
    enrolled(&hub, &admin, dir.path(), "spoke1", gateway.gateway).await;
    // It has the same authorities as the other one, and does not learn of the next.
    let mut silent: Lease = leases(&admin).get("gateway-1").await.unwrap();
    silent.metadata = kube::api::ObjectMeta {
        name: Some("gateway-2".to_owned()),
        labels: silent.metadata.labels,
        annotations: silent.metadata.annotations,
        ..Default::default()
    };
    leases(&admin).create(&Default::default(), &silent).await.unwrap();
    let before = active(&admin).await;
    change_signer(&admin, json!({ "metadata": { "annotations": { ANNOTATION_ROTATE: "now" } } })).await;
    let named = "1 of 2 gateways to trust the new authority: gateway-2";
    wait_until(TIMEOUT, named, async || (waits_for(&admin).await? == named).then_some(())).await;
    assert_eq!(active(&admin).await, before);
    leases(&admin).delete("gateway-2", &Default::default()).await.unwrap();
    // A new request is signed by the old authority meanwhile; the deletion of a Lease says nothing.
    enrolled(&hub, &admin, dir.path(), "spoke2", gateway.gateway).await;
    assert_eq!((active(&admin).await, waits_for(&admin).await.as_deref()), (before.clone(), Some(named)));
    // It says that it has ended.
    silent.spec.get_or_insert_default().holder_identity = None;
    leases(&admin).create(&Default::default(), &silent).await.unwrap();
    wait_until(TIMEOUT, "the new authority to sign", async || (active(&admin).await != before).then_some(())).await;
    gateway.stop().await.unwrap();
    signer.stop().await.unwrap();
}

#[tokio::test]
async fn two_signers_wait_in_turn_but_not_with_one_file() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    deploy_gateways(&hub).await;
    let first = start_signer(&hub, "signer-1").await;
    ready(&first).await;
    wait_until(TIMEOUT, "the first signer to lead", async || active(&admin).await).await;
    let client = hub.client_at(HUB_USER, &HUB_GROUPS, &Clock::default()).await;
    let location = format!("sqlite://{}", first.ledger.path().join("ledger.db").display());
    let roles = Roles::Signer;
    let with_its_file = HubOptions { roles, ledger: location.parse().unwrap(), ..options() };
    let process = HubProcess::prepare(client, with_its_file, Clock::default()).await.unwrap();
    let refused = process.run(CancellationToken::new()).await.unwrap_err().to_string();
    assert!(refused.contains("is in use by signer-1"), "{refused}");
    assert!(refused.contains("use PostgreSQL for several replicas"), "{refused}");
    let second = start_signer(&hub, "signer-2").await;
    wait_until(TIMEOUT, "the second signer to wait ready", async || {
        let (status, answer) = get(second.metrics, "/readyz").await;
        (status == 200 && answer.contains("ok; waiting for the Lease addon-signer, held by signer-1")).then_some(())
    })
    .await;
    first.stop().await.unwrap();
    wait_until(TIMEOUT, "the second signer to lead", async || {
        get(second.metrics, "/readyz").await.1.ends_with("\r\n\r\nok\n").then_some(())
    })
    .await;
    second.stop().await.unwrap();
}

#[tokio::test]
async fn gateway_that_ends_is_unready_first_and_serves_meanwhile() {
    let hub = TestHub::start().await;
    let backend = backend::start().await;
    let admin = prepare(&hub, backend, "24h").await;
    deploy_gateways(&hub).await;
    let signer = start_signer(&hub, "signer-1").await;
    let pod = gateway_pod(&hub, "gateway-1").await;
    let options = HubOptions { shutdown_delay: Duration::from_secs(15), ..gateway_options("gateway-1", &pod) };
    let gateway = Whole::start_with(pod.client().await, options, Clock::default()).await;
    ready(&gateway).await;
    let dir = tempfile::tempdir().unwrap();
    let pair = enrolled(&hub, &admin, dir.path(), "spoke1", gateway.gateway).await;
    let (address, metrics) = (gateway.gateway, gateway.metrics);
    let stopping = tokio::spawn(gateway.stop());
    wait_until(TIMEOUT, "the gateway to be unready", async || {
        (get(metrics, "/readyz").await.1.contains("shutting down")).then_some(())
    })
    .await;
    assert_eq!(pair.call(address, Method::POST, RECEIVE).await.unwrap().0, 200, "a new connection");
    let (holder, trusts) = report(&admin, "gateway-1").await.unwrap();
    assert!(!holder.is_empty() && !trusts.is_empty(), "it still counts");
    wait_for(TIMEOUT, "the gateway to end", stopping).await.unwrap().unwrap();
    assert_eq!(report(&admin, "gateway-1").await.unwrap().0, "");
    assert!(pair.call(address, Method::POST, RECEIVE).await.is_err());
    signer.stop().await.unwrap();
}
