//! The lineage of the certificate that the gateway shows to backends: it begins when an AddOnRoute needs it.

use addon_signer_api::AddOnRoute;
use addon_signer_core::ca::bundle::Bundle;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::json;

use super::lineages::kit::OnServer;
use super::mk_ready;
use crate::cli::{run, write};
use test_kit::hub::{TIMEOUT, apply_route, change_signer};
use test_kit::wait_until;

/// How long the owners of backends have.
const TIME: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);

async fn apply(admin: &Client, name: &str, client_certificate: bool) {
    let tls = json!({ "clusterTrustBundle": "backends", "clientCertificate": client_certificate });
    let backend = json!({ "service": { "name": name, "port": 443 }, "protocol": "HTTPS", "tls": tls });
    let matching = json!({ "http": [{ "path": format!("/{name}") }] });
    apply_route(admin, "default", name, json!({ "signer": "telemetry", "match": matching, "backend": backend })).await;
}

/// The ids of the anchors in the status of a route.
async fn anchors(admin: &Client, name: &str) -> Vec<String> {
    let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), "default");
    let status = routes.get(name).await.unwrap().status.unwrap_or_default();
    let bundle = status.gateway_client_ca.map(|pem| Bundle::from_pem(pem.as_bytes()).unwrap());
    let ids = bundle.iter().flat_map(Bundle::authorities).map(|authority| authority.id().to_string());
    let mut ids: Vec<String> = ids.collect();
    ids.sort();
    ids
}

async fn wait_anchors(admin: &Client, name: &str, mut expected: Vec<String>) {
    expected.sort();
    let what = format!("{name} to show {expected:?}");
    wait_until(TIMEOUT, &what, async || (anchors(admin, name).await == expected).then_some(())).await;
}

#[tokio::test]
async fn the_line_for_backends_begins_when_a_route_needs_it() {
    let (_hub, admin, running) = mk_ready().await;
    let lineage = OnServer::gateway_client(&admin);
    // Not accepted: its namespace may not attach routes.
    apply(&admin, "needs", true).await;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), "default");
    wait_until(TIMEOUT, "the route to be judged", async || routes.get("needs").await.unwrap().status).await;
    assert!(lineage.members().await.is_none());
    assert!(maps.get_opt("addon-signer-backend-trust").await.unwrap().is_none());

    change_signer(&admin, json!({ "spec": { "gateway": { "routesFrom": { "namespaces": ["default"] } } } })).await;
    let first = lineage.wait(&["Active"]).await;
    wait_anchors(&admin, "needs", first.clone()).await;
    apply(&admin, "plain", false).await;
    apply(&admin, "needs-too", true).await;
    wait_anchors(&admin, "needs-too", first.clone()).await;
    assert!(anchors(&admin, "plain").await.is_empty(), "it does not need them");

    // Whoever has copied them finds them there, although the route may not attach any more.
    change_signer(&admin, json!({ "spec": { "gateway": { "routesFrom": null } } })).await;
    wait_until(TIMEOUT, "the route to be told", async || {
        let conditions = routes.get("needs").await.unwrap().status?.conditions;
        conditions.iter().any(|it| it.reason == "NotAllowedByListeners").then_some(())
    })
    .await;
    assert_eq!(anchors(&admin, "needs").await, first);

    // Nothing needs the lineage any more, but backends may trust it: it stays.
    for name in ["needs", "needs-too"] {
        routes.delete(name, &Default::default()).await.unwrap();
    }
    lineage.rotate_by_map("r1").await;
    lineage.wait(&["Next", "Active"]).await;
    running.stop().await;
}

#[tokio::test]
async fn owners_of_backends_have_a_month_unless_somebody_advances() {
    let (hub, admin, running) = mk_ready().await;
    change_signer(&admin, json!({ "spec": { "gateway": { "routesFrom": { "namespaces": ["default"] } } } })).await;
    apply(&admin, "needs", true).await;
    let lineage = OnServer::gateway_client(&admin);
    let first = lineage.wait(&["Active"]).await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let ca = async |arguments: &[&str]| {
        run(home.path(), &[&["ca"], arguments, &["--gateway-client", "--kubeconfig", &kubeconfig]].concat()).await
    };
    // The command reads the lineage's ConfigMap, which follows the Secret.
    wait_until(TIMEOUT, "the lineage", async || ca(&["status"]).await.stdout.contains("Active").then_some(())).await;
    let rotated = ca(&["rotate"]).await;
    assert_eq!(rotated.code, 0, "{}", rotated.stderr);
    let both = lineage.wait(&["Next", "Active"]).await;
    wait_anchors(&admin, "needs", both.clone()).await;
    let waits = "(gateway-client) is waiting for: the owners of backends, who have until ";
    wait_until(TIMEOUT, "the report", async || ca(&["status"]).await.stdout.contains(waits).then_some(())).await;
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Next", "Active"]).await, both, "nobody has said that backends trust it");
    let advanced = ca(&["advance", "--watch"]).await;
    assert_eq!(advanced.code, 0, "{}", advanced.stderr);
    assert!(advanced.stderr.contains("without waiting for: the owners of backends."), "{}", advanced.stderr);
    // The first one has signed nothing, so it is gone at once.
    let second = lineage.wait(&["Active"]).await;
    assert_ne!(first, second);

    assert_eq!(ca(&["rotate"]).await.code, 0);
    lineage.wait(&["Next", "Active"]).await;
    wait_until(TIMEOUT, "the time to be set", async || {
        let members = lineage.members().await?;
        members[0]["activateAfter"].as_i64()
    })
    .await;
    running.clock.advance(TIME + std::time::Duration::from_secs(1));
    lineage.reconcile().await;
    assert_ne!(lineage.wait(&["Active"]).await, second, "the month is over");
    running.stop().await;
}
