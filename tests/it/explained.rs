//! `addon-signer gateway explain` says what the gateway does.

use std::net::SocketAddr;

use addon_signer_api::AddOnRoute;
use addon_signer_api::route::CONDITION_RESOLVED_REFS;
use hyper::Method;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cli::{run, write};
use crate::gateway::backend;
use crate::whole::client::ClientPair;
use crate::whole::mk_whole;
use crate::whole::ours::enrolled;
use test_kit::hub::{apply_route, change_signer, wait_ready};
use test_kit::objects::create_namespace;
use test_kit::wait_until;

async fn create_routes(admin: &Client, backend: SocketAddr) {
    let address = json!({ "address": backend.to_string() });
    let route = |matching: Value, backend: Value| {
        let matching = json!({ "http": [matching] });
        json!({ "signer": "telemetry", "match": matching, "backend": backend })
    };
    let to_service = json!({ "service": { "name": "gone", "port": 80 } });
    let admin_path = json!({ "path": "/api/admin", "methods": ["GET"] });
    let tls = json!({ "clusterTrustBundle": "absent" });
    let by_bundle = json!({ "address": address["address"], "protocol": "HTTPS", "tls": tls });
    let services: Api<Service> = Api::namespaced(admin.clone(), "default");
    let empty = json!({ "metadata": { "name": "empty" }, "spec": { "ports": [{ "port": 80 }] } });
    services.create(&PostParams::default(), &serde_json::from_value(empty).unwrap()).await.unwrap();
    for (name, spec) in [
        ("rest", route(json!({ "path": "/" }), address.clone())),
        ("admin", route(admin_path, address.clone())),
        ("tenants", route(json!({ "path": "/tenants/{cluster}" }), address.clone())),
        ("gone", route(json!({ "path": "/gone" }), to_service)),
        ("empty", route(json!({ "path": "/empty" }), json!({ "service": { "name": "empty", "port": 80 } }))),
        ("bundle", route(json!({ "path": "/bundle" }), by_bundle)),
        ("too-late", route(json!({ "path": "/api/v1/receive" }), address.clone())),
    ] {
        apply_route(admin, "default", name, spec).await;
    }
    // A younger route of another namespace, whose path is only read like that of default/receive.
    let open = json!({ "spec": { "gateway": { "routesFrom": { "namespaces": ["default", "elsewhere"] } } } });
    change_signer(admin, open).await;
    create_namespace(admin, "elsewhere").await;
    let alike = route(json!({ "path": "/API/v1/receive", "methods": ["POST"] }), address.clone());
    apply_route(admin, "elsewhere", "alike", alike).await;
    let mut others = route(json!({ "path": "/others" }), address);
    others["clusters"] = json!({ "names": ["spoke2"] });
    apply_route(admin, "default", "others", others).await;
}

/// Waits until the routes are in effect, and the hub has said what it thinks of each.
async fn wait_settled(admin: &Client, pair: &ClientPair, gateway: SocketAddr) {
    // They are in effect when the last of them is.
    wait_until(test_kit::hub::PATIENCE, "the routes", async || {
        let answer = pair.call(gateway, Method::GET, "/others").await.ok()?;
        (answer.0 == 403).then_some(())
    })
    .await;
    let routes: Api<AddOnRoute> = Api::all(admin.clone());
    wait_until(test_kit::hub::PATIENCE, "the hub to say what it thinks of them", async || {
        let all = routes.list(&ListParams::default()).await.unwrap().items;
        // The first status may come before the hub has read the backends.
        let is_known = |route: &AddOnRoute| {
            let conditions = route.status.iter().flat_map(|status| &status.conditions);
            conditions.filter(|it| it.type_ == CONDITION_RESOLVED_REFS).any(|it| it.status != "Unknown")
        };
        all.iter().all(is_known).then_some(())
    })
    .await;
}

#[tokio::test]
async fn explain_says_of_each_request_what_the_gateway_does() {
    let backend = backend::start().await;
    let (hub, admin, whole) = mk_whole(backend).await;
    create_routes(&admin, backend).await;
    wait_ready(&admin, "telemetry", "True").await;
    let dir = tempfile::tempdir().unwrap();
    let pair = enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    wait_settled(&admin, &pair, whole.gateway).await;
    let kubeconfig = write(dir.path(), &hub.kubeconfig("admin", &["system:masters"])).display().to_string();
    for (method, path, route) in [
        (Method::POST, "/api/v1/receive", Some("default/receive")),
        (Method::POST, "/addons/telemetry/api/v1/receive", Some("default/receive")),
        (Method::GET, "/addons/telemetry/api/v1/receive", Some("default/receive")),
        (Method::GET, "/addons/search/x", None),
        (Method::POST, "/api/v2", Some("default/rest")),
        (Method::GET, "/api/admin/x", Some("default/admin")),
        (Method::POST, "/api/admin", Some("default/admin")),
        (Method::POST, "/api/ADMIN", None),
        (Method::POST, "/API/v1/receive", None),
        (Method::GET, "/a/../b", None),
        (Method::GET, "/tenants/spoke1/x", Some("default/tenants")),
        (Method::GET, "/tenants/spoke2/x", Some("default/tenants")),
        (Method::GET, "/others", Some("default/others")),
        (Method::GET, "/gone", Some("default/gone")),
        (Method::GET, "/empty", Some("default/empty")),
        (Method::GET, "/bundle", Some("default/bundle")),
        (Method::GET, "/v1/whoami", None),
        (Method::GET, "/addons", None),
        (Method::GET, "/crl/x", Some("default/rest")),
        (Method::GET, "/.well-known/est/cacerts", Some("default/rest")),
    ] {
        let (status, body) = pair.call(whole.gateway, method.clone(), path).await.unwrap();
        let url = format!("https://{}{path}", whole.gateway);
        let flags = ["--cluster=spoke1", "--addon=telemetry", "--output=json", "--kubeconfig", &kubeconfig];
        let words = [&["gateway", "explain", method.as_str(), &url], &flags[..]].concat();
        let told = run(dir.path(), &words).await;
        assert_eq!(told.code, 0, "{}", told.stderr);
        let told: Value = serde_json::from_str(&told.stdout).unwrap();
        assert_eq!(told["passes"], status.is_success(), "{method} {path}: {status} {body} {told}");
        assert_eq!(told["route"].as_str(), route, "{method} {path}: {told}");
        if let Some(problem) = told["problem"].as_object() {
            assert_eq!(problem["status"], status.as_u16(), "{method} {path}: {told}");
            let kind = format!("problems/{}\"", problem["name"].as_str().unwrap());
            assert!(body.contains(&kind), "{method} {path}: {body} {told}");
        }
    }
    let flags = ["--cluster=spoke1", "--addon=search", "--kubeconfig", &kubeconfig];
    let nobody = run(dir.path(), &[&["gateway", "explain", "GET", "https://a/"], &flags[..]].concat()).await;
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("no AddOnSigner that is Ready has the addon search"), "{}", nobody.stderr);
    let flags = ["--cluster=spoke1", "--addon=telemetry", "--kubeconfig", &kubeconfig];
    let table = run(dir.path(), &[&["gateway", "explain", "GET", "https://127.0.0.1/gone"], &flags[..]].concat()).await;
    let alike = "The AddOnRoute elsewhere/alike is not wholly in effect: some backends read";
    for line in ["request  refused with 503 (no-backend)\n", "route    default/gone\n", "no Service gone", alike] {
        assert!(table.stdout.contains(line), "{line}{}", table.stdout);
    }
    whole.stop().await.unwrap();
}
