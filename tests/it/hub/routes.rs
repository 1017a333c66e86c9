//! AddOnRoutes: which of them are in the gateway's table, and what the hub writes about each.

use std::net::SocketAddr;

use addon_signer_api::AddOnRoute;
use addon_signer_api::cluster_trust_bundle::resource;
use addon_signer_api::route::{CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS};
use addon_signer_core::conditions::REASON_PENDING;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, Object};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::cluster_bundle::{are_served, bundles};
use super::{mk_ready, mk_ready_with};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, apply_route, change_signer};
use test_kit::objects::{create_namespace, serve};
use test_kit::{TestHub, wait_until};

const NAMESPACE: &str = "observability";

/// A hub whose AddOnSigner telemetry lets the namespace observability attach routes.
async fn mk_open() -> (TestHub, Client, RunningHub) {
    let (hub, admin, running) = mk_ready().await;
    create_namespace(&admin, NAMESPACE).await;
    let hostnames = ["telemetry.gateway.example"];
    open(&admin, json!({ "routesFrom": { "namespaces": [NAMESPACE] }, "hostnames": hostnames })).await;
    (hub, admin, running)
}

async fn open(admin: &Client, gateway: Value) {
    change_signer(admin, json!({ "spec": { "gateway": gateway } })).await;
}

fn routes(admin: &Client) -> Api<AddOnRoute> {
    Api::namespaced(admin.clone(), NAMESPACE)
}

fn mk_spec(path: &str) -> Value {
    json!({
        "signer": "telemetry",
        "match": { "http": [{ "path": path }] },
        "backend": { "service": { "name": "receive", "port": 19291 } },
    })
}

async fn create<K>(admin: &Client, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(admin.clone(), NAMESPACE);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// The Service `receive` with two addresses, as Kubernetes' own controller writes its EndpointSlice.
async fn create_service(admin: &Client) {
    let port = json!({ "name": "http", "port": 19291, "targetPort": 8080 });
    create::<Service>(admin, json!({ "metadata": { "name": "receive" }, "spec": { "ports": [port] } })).await;
    let ready = |address: &str, ready: bool| json!({ "addresses": [address], "conditions": { "ready": ready } });
    create::<EndpointSlice>(
        admin,
        json!({
            "metadata": { "name": "receive-x", "labels": { "kubernetes.io/service-name": "receive" } },
            "addressType": "IPv4",
            "endpoints": [ready("10.1.0.1", true), ready("10.1.0.2", false), ready("10.1.0.3", true)],
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
        }),
    )
    .await;
}

/// Waits until the conditions Accepted, ResolvedRefs and Programmed of a route have these reasons; returns the first
/// message that is not `True`.
async fn wait_reasons(admin: &Client, name: &str, expected: [&str; 3]) -> String {
    let kinds = [CONDITION_ACCEPTED, CONDITION_RESOLVED_REFS, CONDITION_PROGRAMMED];
    wait_until(TIMEOUT, &format!("{name} to be {expected:?}"), async || {
        let route = routes(admin).get(name).await.ok()?;
        let status = route.status.filter(|status| status.observed_generation == route.metadata.generation)?;
        let found = kinds.map(|kind| status.conditions.iter().find(|condition| condition.type_ == kind));
        let found: Vec<&Condition> = found.into_iter().flatten().collect();
        let reasons: Vec<_> = found.iter().map(|condition| condition.reason.as_str()).collect();
        let bad = found.iter().find(|condition| condition.status != "True");
        (reasons == expected).then(|| bad.map(|condition| condition.message.clone()).unwrap_or_default())
    })
    .await
}

/// Waits until the gateway has exactly these routes of the addon: name, and addresses or `none`.
async fn wait_table(running: &RunningHub, expected: &[(&str, &[&str])]) {
    let expected: Vec<(String, Vec<SocketAddr>)> = expected
        .iter()
        .map(|(name, addresses)| ((*name).to_owned(), addresses.iter().map(|text| text.parse().unwrap()).collect()))
        .collect();
    wait_until(TIMEOUT, &format!("the gateway to have {expected:?}"), async || {
        let table = running.routes.borrow().clone();
        let known = table.of("telemetry", &"telemetry".parse().unwrap()).iter().map(|route| {
            let addresses = route.backend.as_ref().map(|backend| backend.addresses.clone()).unwrap_or_default();
            (route.name.name.clone(), addresses)
        });
        (known.collect::<Vec<_>>() == expected).then_some(())
    })
    .await;
}

const ALL_GOOD: [&str; 3] = [CONDITION_ACCEPTED, CONDITION_RESOLVED_REFS, CONDITION_PROGRAMMED];

#[tokio::test]
async fn a_route_follows_its_service_and_is_gone_when_deleted() {
    let (_hub, admin, running) = mk_open().await;
    apply_route(&admin, NAMESPACE, "receive", mk_spec("/x")).await;
    let message = wait_reasons(&admin, "receive", [CONDITION_ACCEPTED, "BackendNotFound", "Invalid"]).await;
    assert_eq!(message, "There is no Service receive in the namespace observability (spec.backend.service).");
    wait_table(&running, &[("receive", &[])]).await;
    create_service(&admin).await;
    wait_reasons(&admin, "receive", ALL_GOOD).await;
    wait_table(&running, &[("receive", &["10.1.0.1:8080", "10.1.0.3:8080"])]).await;
    let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), NAMESPACE);
    let only = json!({ "endpoints": [{ "addresses": ["10.1.0.9"] }] });
    slices.patch("receive-x", &PatchParams::default(), &Patch::Merge(only)).await.unwrap();
    wait_table(&running, &[("receive", &["10.1.0.9:8080"])]).await;
    slices.delete("receive-x", &DeleteParams::default()).await.unwrap();
    wait_table(&running, &[("receive", &[])]).await;
    wait_reasons(&admin, "receive", [CONDITION_ACCEPTED, "NoReadyEndpoint", "NoReadyEndpoint"]).await;
    routes(&admin).delete("receive", &DeleteParams::default()).await.unwrap();
    wait_table(&running, &[]).await;
}

#[tokio::test]
async fn both_sides_consent_and_either_may_withdraw() {
    let (_hub, admin, running) = mk_open().await;
    create_service(&admin).await;
    apply_route(&admin, NAMESPACE, "receive", mk_spec("/x")).await;
    let addresses: &[&str] = &["10.1.0.1:8080", "10.1.0.3:8080"];
    wait_table(&running, &[("receive", addresses)]).await;
    open(&admin, json!({ "routesFrom": null })).await;
    let message = wait_reasons(&admin, "receive", ["NotAllowedByListeners", REASON_PENDING, "Invalid"]).await;
    let sentence = "The AddOnSigner telemetry does not let the namespace observability attach routes (its \
                    spec.gateway.routesFrom).";
    assert_eq!(message, sentence);
    wait_table(&running, &[]).await;
    open(&admin, json!({ "routesFrom": { "selector": { "matchLabels": { "team": "x" } } } })).await;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let label = |value: &str| Patch::Merge(json!({ "metadata": { "labels": { "team": value } } }));
    namespaces.patch(NAMESPACE, &PatchParams::default(), &label("x")).await.unwrap();
    wait_table(&running, &[("receive", addresses)]).await;
    namespaces.patch(NAMESPACE, &PatchParams::default(), &label("y")).await.unwrap();
    wait_table(&running, &[]).await;
    let spec = Patch::Merge(json!({ "spec": { "signer": "another" } }));
    routes(&admin).patch("receive", &PatchParams::default(), &spec).await.unwrap();
    wait_reasons(&admin, "receive", ["NoMatchingParent", REASON_PENDING, "Invalid"]).await;
}

#[tokio::test]
async fn a_typo_in_a_route_harms_that_route_alone() {
    let (hub, admin, running) = mk_open().await;
    create_service(&admin).await;
    // In this order, because of two as specific routes the table has the older one first, whose age counts in seconds.
    apply_route(&admin, NAMESPACE, "bad", mk_spec("/bad")).await;
    apply_route(&admin, NAMESPACE, "good", mk_spec("/good")).await;
    let addresses: &[&str] = &["10.1.0.1:8080", "10.1.0.3:8080"];
    wait_table(&running, &[("bad", addresses), ("good", addresses)]).await;
    // The schema accepts it.
    let spec = Patch::Merge(json!({ "spec": { "match": { "http": [{ "path": "/bad/{addon}" }] } } }));
    routes(&admin).patch("bad", &PatchParams::default(), &spec).await.unwrap();
    wait_table(&running, &[("good", addresses)]).await;
    let reported = wait_until(TIMEOUT, "the route to be told", async || {
        let route = routes(&admin).get("bad").await.ok()?; // or it is read again
        // The table comes before the status, so the status may be of what was before the typo.
        let status = route.status.filter(|status| status.observed_generation == route.metadata.generation)?;
        let accepted = status.conditions.into_iter().find(|condition| condition.type_ == CONDITION_ACCEPTED)?;
        (accepted.status == "False").then_some(accepted)
    })
    .await;
    assert_eq!(reported.reason, "UnsupportedValue");
    assert!(
        reported.message.starts_with("spec.match.http is refused: `/bad/{addon}` is not the path of"),
        "{reported:?}"
    );
    if !hub.is_real() {
        // One that cannot be decoded at all; an API server with the schema refuses it.
        let kind = GroupVersionKind::gvk("addon-signer.io", "v1alpha1", "AddOnRoute");
        let raw: Api<DynamicObject> = Api::namespaced_with(admin.clone(), NAMESPACE, &ApiResource::from_gvk(&kind));
        let spec = Patch::Merge(json!({ "spec": { "match": 1 } }));
        raw.patch("bad", &PatchParams::default(), &spec).await.unwrap();
        wait_until(TIMEOUT, "the unreadable route to be told", async || {
            let found = raw.get("bad").await.unwrap();
            found.data["status"]["conditions"][0]["message"].as_str()?.starts_with("It cannot be read").then_some(())
        })
        .await;
        wait_table(&running, &[("good", addresses)]).await;
    }
}

#[tokio::test]
async fn the_older_of_two_routes_wins_and_the_other_is_told() {
    let (_hub, admin, running) = mk_open().await;
    create_service(&admin).await;
    let older = apply_route(&admin, NAMESPACE, "older", mk_spec("/x")).await;
    wait_reasons(&admin, "older", ALL_GOOD).await;
    // Times of creation are whole seconds, and among those of the same second the name decides.
    let is_later = || k8s_openapi::jiff::Timestamp::now() > older.metadata.creation_timestamp.as_ref().unwrap().0;
    wait_until(TIMEOUT, "the next second", async || is_later().then_some(())).await;
    apply_route(&admin, NAMESPACE, "younger", mk_spec("/x/")).await;
    let message = wait_reasons(&admin, "younger", [CONDITION_ACCEPTED, CONDITION_RESOLVED_REFS, "Conflicted"]).await;
    assert_eq!(message, "The path /x is that of the older AddOnRoute observability/older, which gets its requests.");
    routes(&admin).delete("older", &DeleteParams::default()).await.unwrap();
    wait_reasons(&admin, "younger", ALL_GOOD).await;
    let addresses: &[&str] = &["10.1.0.1:8080", "10.1.0.3:8080"];
    wait_table(&running, &[("younger", addresses)]).await;
}

/// Both lead to one address that the administrator allows. Of one second, the older one is the first by namespace.
#[tokio::test]
async fn a_younger_path_of_others_that_is_read_alike_stays_out() {
    let mut options = RunningHubOptions::default();
    options.routes.backend_addresses = vec!["192.0.2.0/24".parse().unwrap()];
    let (_hub, admin, running) = mk_ready_with(options).await;
    create_namespace(&admin, NAMESPACE).await;
    open(&admin, json!({ "routesFrom": { "namespaces": ["default", NAMESPACE] } })).await;
    let spec = |paths: &[&str]| {
        let paths: Vec<Value> = paths.iter().map(|path| json!({ "path": path })).collect();
        json!({ "signer": "telemetry", "match": { "http": paths }, "backend": { "address": "192.0.2.7:80" } })
    };
    apply_route(&admin, "default", "older", spec(&["/api/v1/receive"])).await;
    apply_route(&admin, NAMESPACE, "younger", spec(&["/API/v1/receive", "/own"])).await;
    let message = wait_reasons(&admin, "younger", [CONDITION_ACCEPTED, CONDITION_RESOLVED_REFS, "Conflicted"]).await;
    let sentence = "Some backends read the path /API/v1/receive as one at or below /api/v1/receive of the older \
                    AddOnRoute default/older: it has no effect.";
    assert_eq!(message, sentence);
    let address: &[&str] = &["192.0.2.7:80"];
    wait_table(&running, &[("older", address), ("younger", address)]).await;
    let older: Api<AddOnRoute> = Api::namespaced(admin.clone(), "default");
    older.delete("older", &DeleteParams::default()).await.unwrap();
    wait_reasons(&admin, "younger", ALL_GOOD).await;
    wait_table(&running, &[("younger", address), ("younger", address)]).await;
}

#[tokio::test]
async fn backends_that_lead_elsewhere_are_refused_with_a_sentence() {
    let (_hub, admin, _running) = mk_open().await;
    let external = json!({ "type": "ExternalName", "externalName": "metadata.example" });
    create::<Service>(&admin, json!({ "metadata": { "name": "receive" }, "spec": external })).await;
    apply_route(&admin, NAMESPACE, "external", mk_spec("/x")).await;
    let message = wait_reasons(&admin, "external", [CONDITION_ACCEPTED, "RefNotPermitted", "Invalid"]).await;
    assert_eq!(message, "The Service receive is an ExternalName, which could lead anywhere (spec.backend.service).");
    let mut spec = mk_spec("/y");
    spec["backend"] = json!({ "address": "192.0.2.7:80" });
    apply_route(&admin, NAMESPACE, "address", spec).await;
    let message = wait_reasons(&admin, "address", [CONDITION_ACCEPTED, "RefNotPermitted", "Invalid"]).await;
    assert_eq!(message, "192.0.2.7 is in no network of the hub's --backend-addresses (spec.backend.address).");
    let mut spec = mk_spec("/z");
    spec["hostnames"] = json!(["search.gateway.example"]);
    apply_route(&admin, NAMESPACE, "hostname", spec).await;
    let reasons = ["NoMatchingListenerHostname", REASON_PENDING, "Invalid"];
    let message = wait_reasons(&admin, "hostname", reasons).await;
    let sentence = "The AddOnSigner telemetry does not have search.gateway.example in its \
                    spec.gateway.hostnames (spec.hostnames).";
    assert_eq!(message, sentence);
}

/// A Service without a selector leads to whatever its EndpointSlices say: CVE-2021-25740.
#[tokio::test]
async fn endpoints_on_the_clouds_metadata_service_are_refused() {
    let (_hub, admin, running) = mk_open().await;
    create_service(&admin).await;
    apply_route(&admin, NAMESPACE, "receive", mk_spec("/x")).await;
    wait_reasons(&admin, "receive", ALL_GOOD).await;
    let slices: Api<EndpointSlice> = Api::namespaced(admin.clone(), NAMESPACE);
    // Kubernetes itself refuses link-local ones; this one is Azure's.
    let elsewhere = json!({ "endpoints": [{ "addresses": ["10.1.0.1"] }, { "addresses": ["168.63.129.16"] }] });
    slices.patch("receive-x", &PatchParams::default(), &Patch::Merge(elsewhere)).await.unwrap();
    let message = wait_reasons(&admin, "receive", [CONDITION_ACCEPTED, "RefNotPermitted", "Invalid"]).await;
    assert!(message.contains("168.63.129.16 is the address of a cloud's metadata service"), "{message}");
    wait_table(&running, &[("receive", &[])]).await;
}

#[tokio::test]
async fn a_status_that_somebody_changed_is_written_again() {
    let (_hub, admin, _running) = mk_open().await;
    create_service(&admin).await;
    apply_route(&admin, NAMESPACE, "receive", mk_spec("/x")).await;
    wait_reasons(&admin, "receive", ALL_GOOD).await;
    let patch = Patch::Merge(json!({ "status": { "conditions": [] } }));
    routes(&admin).patch_status("receive", &PatchParams::default(), &patch).await.unwrap();
    wait_reasons(&admin, "receive", ALL_GOOD).await;
}

#[tokio::test]
async fn a_hub_that_waits_knows_the_routes_and_writes_nothing() {
    let (hub, admin, leader) = mk_open().await;
    create_service(&admin).await;
    let waiting = RunningHub::start_with(&hub, RunningHubOptions::default()).await;
    apply_route(&admin, NAMESPACE, "receive", mk_spec("/x")).await;
    wait_reasons(&admin, "receive", ALL_GOOD).await;
    wait_until(TIMEOUT, "the waiting hub to have read the routes", async || {
        waiting.routes.borrow().is_complete().then_some(())
    })
    .await;
    leader.stop().await;
    let addresses: &[&str] = &["10.1.0.1:8080", "10.1.0.3:8080"];
    wait_table(&waiting, &[("receive", addresses)]).await;
    wait_reasons(&admin, "receive", ALL_GOOD).await;
}

#[tokio::test]
async fn an_address_inside_an_allowed_network_is_a_backend() {
    let mut options = RunningHubOptions::default();
    options.routes.backend_addresses = vec!["192.0.2.0/24".parse().unwrap()];
    let (_hub, admin, running) = mk_ready_with(options).await;
    create_namespace(&admin, NAMESPACE).await;
    open(&admin, json!({ "routesFrom": { "namespaces": [NAMESPACE] } })).await;
    let mut spec = mk_spec("/x");
    spec["backend"] = json!({ "address": "192.0.2.7:80" });
    apply_route(&admin, NAMESPACE, "address", spec).await;
    wait_reasons(&admin, "address", ALL_GOOD).await;
    wait_table(&running, &[("address", &["192.0.2.7:80"])]).await;
}

#[tokio::test]
async fn the_ca_of_a_backend_may_be_a_cluster_trust_bundle() {
    let (hub, admin, running) = mk_open().await;
    if !are_served(&hub, &admin).await {
        return;
    }
    create_service(&admin).await;
    let mut spec = mk_spec("/x");
    spec["backend"]["tls"] = json!({ "clusterTrustBundle": "corp" });
    apply_route(&admin, NAMESPACE, "receive", spec).await;
    let message = wait_reasons(&admin, "receive", [CONDITION_ACCEPTED, "InvalidCACertificateRef", "Invalid"]).await;
    assert!(message.contains("ClusterTrustBundle"), "{message}");
    if !hub.is_real() {
        serve(&admin, "clustertrustbundles.certificates.k8s.io").await;
    }
    let anchors = include_str!("../../../certs/profiles/client-ca.pem");
    let spec = json!({ "trustBundle": anchors });
    let version = if hub.is_real() { "v1beta1" } else { "v1" };
    let bundle = Object::new("corp", &resource(version), serde_json::from_value(spec).unwrap());
    bundles(&hub, &admin).create(&PostParams::default(), &bundle).await.unwrap();
    wait_reasons(&admin, "receive", ALL_GOOD).await;
    let table = running.routes.borrow().clone();
    let routes = table.of("telemetry", &"telemetry".parse().unwrap());
    let tls = routes[0].backend.as_ref().unwrap().tls.clone().unwrap();
    assert_eq!((tls.anchors.len(), tls.server_name.as_str()), (1, "receive.observability.svc"));
    running.stop().await;
    let again = RunningHub::start(&hub).await;
    let first = wait_until(TIMEOUT, "the first table", async || {
        Some(again.routes.borrow().clone()).filter(|table| table.knows("telemetry"))
    })
    .await;
    let routes = first.of("telemetry", &"telemetry".parse().unwrap());
    assert!(routes[0].backend.is_ok(), "a hub that starts refuses no calls for what it has not read yet");
}
