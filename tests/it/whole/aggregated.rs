//! A kube-apiserver behind the gateway: it believes the headers that say who calls, because of the certificate of
//! whoever brings them, as it believes Kubernetes' own aggregation layer.

use std::time::Duration;

use addon_signer_api::AddOnRoute;
use addon_signer_platform::clock::Clock;
use hyper::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::ours::enrolled;
use super::{Whole, prepare};
use crate::gateway::backend;
use test_kit::hub::{TIMEOUT, apply_route};
use test_kit::{TestHub, crds, wait_until};

/// kube-apiserver looks at the file of its CA every minute at least.
const RELOAD: Duration = Duration::from_secs(90);
const USER: &str = "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:telemetry";

/// Makes a route to the API server; returns the CA of the certificate that the gateway shows to it.
async fn route_to_api_server(hub: &TestHub, admin: &Client, ca: &str) -> String {
    let address = hub.kubeconfig("admin", &[]).clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    let tls = json!({ "ca": ca, "clientCertificate": true });
    let backend = json!({ "address": address.trim_start_matches("https://"), "protocol": "HTTPS", "tls": tls });
    let matching = json!({ "http": [{ "path": "/api/v1/namespaces", "methods": ["GET"] }] });
    let spec = json!({ "signer": "telemetry", "match": matching, "backend": backend });
    apply_route(admin, "default", "api-server", spec).await;
    let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), "default");
    wait_until(TIMEOUT, "the gateway's CA", async || routes.get("api-server").await.unwrap().status?.gateway_client_ca)
        .await
}

#[tokio::test]
async fn kube_apiserver_believes_the_gateway_who_calls() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = prepare(&hub, backend::start().await, "24h").await;
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }]);
    crds::grant(&admin, "agents-read", "system:open-cluster-management:addon:telemetry", rules).await;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    let metadata = ObjectMeta { name: Some("for-agents".to_owned()), ..ObjectMeta::default() };
    let map =
        ConfigMap { metadata, data: Some([("said".to_owned(), "hello".to_owned())].into()), ..Default::default() };
    maps.create(&PostParams::default(), &map).await.unwrap();
    let whole = Whole::start(&hub, Clock::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let agent = enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    let gateways_ca = route_to_api_server(&hub, &admin, &real.ca().pair().cert).await;
    let get = async |path: &str| agent.call(whole.gateway, Method::GET, path).await.unwrap();

    // It does not know the gateway's CA yet.
    let path = "/api/v1/namespaces/default/configmaps/for-agents";
    wait_until(TIMEOUT, "the API server to refuse the gateway", async || (get(path).await.0 == 401).then_some(()))
        .await;
    real.trust_front_proxy(&gateways_ca);
    let answer = wait_until(RELOAD, "the API server to believe the gateway", async || {
        let (status, body) = get(path).await;
        (status == 200).then_some(body)
    });
    let map: ConfigMap = serde_json::from_str(&answer.await).unwrap();
    assert_eq!(map.data.unwrap()["said"], "hello");
    let (status, body) = get("/api/v1/namespaces/default/secrets").await;
    assert_eq!(status, 403);
    assert!(body.contains(&format!(r#"User \"{USER}\" cannot list resource \"secrets\""#)), "{body}");
    whole.stop().await.unwrap();
}
