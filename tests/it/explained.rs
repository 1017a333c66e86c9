//! `addon-signer gateway explain` says what the gateway does.

use std::net::SocketAddr;

use addon_signer_api::AddOnRoute;
use addon_signer_api::ocm::managed_cluster_resource;
use addon_signer_api::route::CONDITION_RESOLVED_REFS;
use hyper::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cli::{run, write};
use crate::gateway::backend;
use crate::whole::client::ClientPair;
use crate::whole::mk_whole;
use crate::whole::ours::enrolled;
use test_kit::hub::{apply_route, change_signer, wait_ready};
use test_kit::objects::{create_namespace, managed_cluster_addons};
use test_kit::{accept_cluster, install_addon, wait_until};

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
    wait_until(test_kit::hub::TIMEOUT, "the routes", async || {
        let answer = pair.call(gateway, Method::GET, "/others").await.ok()?;
        (answer.0 == 403).then_some(())
    })
    .await;
    let routes: Api<AddOnRoute> = Api::all(admin.clone());
    wait_until(test_kit::hub::TIMEOUT, "the hub to say what it thinks of them", async || {
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
        (Method::POST, "/v1/whoami", None),
        (Method::GET, "/addons", None),
        (Method::GET, "/crl/x", Some("default/rest")),
        (Method::GET, "/.well-known/est/cacerts", Some("default/rest")),
    ] {
        let (status, body) = pair.call(whole.gateway, method.clone(), path).await.unwrap();
        let url = format!("https://{}{path}", whole.gateway);
        let flags = ["--cluster=spoke1", "--addon=telemetry", "--output=json", "--kubeconfig", &kubeconfig];
        let words = [&["gateway", "explain", method.as_str(), &url], &flags[..]].concat();
        let output = run(dir.path(), &words).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        let output: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(output["passes"], status.is_success(), "{method} {path}: {status} {body} {output}");
        assert_eq!(output["route"].as_str(), route, "{method} {path}: {output}");
        if let Some(problem) = output["problem"].as_object() {
            assert_eq!(problem["status"], status.as_u16(), "{method} {path}: {output}");
            let kind = format!("problems/{}\"", problem["name"].as_str().unwrap());
            assert!(body.contains(&kind), "{method} {path}: {body} {output}");
        }
    }
    let flags = ["--cluster=spoke1", "--addon=search", "--kubeconfig", &kubeconfig];
    let nobody = run(dir.path(), &[&["gateway", "explain", "GET", "https://a/"], &flags[..]].concat()).await;
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("no AddOnSigner with an authority has the addon search"), "{}", nobody.stderr);
    let flags = ["--cluster=spoke1", "--addon=telemetry", "--kubeconfig", &kubeconfig];
    let table = run(dir.path(), &[&["gateway", "explain", "GET", "https://127.0.0.1/gone"], &flags[..]].concat()).await;
    let alike = "The AddOnRoute elsewhere/alike is not wholly in effect: some backends read";
    for line in ["request  refused with 503 (no-backend)\n", "route    default/gone\n", "no Service gone", alike] {
        assert!(table.stdout.contains(line), "{line}{}", table.stdout);
    }
    whole.stop().await.unwrap();
}

/// An agent that sends one request, and the program that explains it.
struct Both {
    home: tempfile::TempDir,
    kubeconfig: String,
    pair: ClientPair,
    gateway: SocketAddr,
}

impl Both {
    async fn answer(&self, host: &str) -> (StatusCode, String) {
        let request = Request::post("/addons/telemetry/api/v1/receive").header("host", host);
        self.pair.send(self.gateway, request).await.unwrap()
    }

    /// Waits until the gateway refuses with this problem, or passes the request on; returns the same explanation.
    async fn agree(&self, host: &str, problem: Option<&str>, flags: &[&str]) -> Value {
        let kind = problem.map(|problem| format!("problems/{problem}\""));
        let status = wait_until(test_kit::hub::TIMEOUT, "the answer", async || {
            let (status, body) = self.answer(host).await;
            let is_due = kind.as_ref().map_or(status == 200, |kind| body.contains(kind));
            is_due.then_some(status)
        })
        .await;
        let output = self.explain(host, &[&["--cluster=spoke1"], flags].concat()).await;
        let refused = problem.map_or(Value::Null, |name| json!({ "status": status.as_u16(), "name": name }));
        assert_eq!((&output["passes"], &output["problem"]), (&problem.is_none().into(), &refused), "{host} {output}");
        output
    }

    async fn explain(&self, host: &str, flags: &[&str]) -> Value {
        let url = format!("https://{host}/addons/telemetry/api/v1/receive");
        let common = ["--addon=telemetry", "--output=json", "--kubeconfig", &self.kubeconfig];
        let words = [&["gateway", "explain", "POST", &url], &common[..], flags].concat();
        let output = run(self.home.path(), &words).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        serde_json::from_str(&output.stdout).unwrap()
    }
}

#[tokio::test]
async fn explain_refuses_whom_the_gateway_refuses() {
    let (hub, admin, whole) = mk_whole(backend::start().await).await;
    let home = tempfile::tempdir().unwrap();
    let pair = enrolled(&hub, &admin, home.path(), "spoke1", whole.gateway).await;
    let kubeconfig = write(home.path(), &hub.kubeconfig("admin", &["system:masters"])).display().to_string();
    let both = Both { home, kubeconfig, pair, gateway: whole.gateway };
    let own = whole.gateway.to_string();
    let names = ["--gateway-name=127.0.0.1,gateway.example"];

    let output = both.agree(&own, None, &[]).await;
    assert!(output["assumed"][1].as_str().unwrap().contains(&format!("The host {own} is a name")), "{output}");
    assert_eq!(output["assumed"].as_array().unwrap().len(), 3, "{output}");
    let output = both.agree("gateway.example", None, &names).await;
    assert_eq!(output["assumed"].as_array().unwrap().len(), 2, "{output}");
    both.agree("other.example", Some("misdirected"), &names).await;
    // One that has no agent.
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    wait_until(test_kit::hub::TIMEOUT, "the hub to say that there is no certificate", async || {
        let output = both.explain(&own, &["--cluster=spoke2"]).await;
        let waits = output["passes"] == false && output["waitsFor"] == "its agent to make a CSR";
        // Only the host is assumed, and what the gateway would forward.
        waits.then(|| assert_eq!(output["assumed"].as_array().unwrap().len(), 2, "{output}"))
    })
    .await;

    let (addons, merge) = (managed_cluster_addons(&admin, "spoke1").await, PatchParams::default());
    let clusters = Api::<DynamicObject>::all_with(admin.clone(), &managed_cluster_resource());
    let annotated = async |name: &str, value: Value| {
        let change = json!({ "metadata": { "annotations": { format!("addon-signer.io/{name}"): value } } });
        addons.patch("telemetry", &merge, &Patch::Merge(change)).await.unwrap();
    };
    let refused = async |problem: &str, why: &str| {
        let output = both.agree(&own, Some(problem), &[]).await;
        assert!(output["why"][0].as_str().unwrap().contains(why), "{output}");
        assert_eq!(output["assumed"], json!([]));
    };
    annotated("suspended", json!("true")).await;
    refused("not-registered", "the addon is suspended on that cluster").await;
    annotated("suspended", Value::Null).await;
    annotated("revoke-before", json!("2999-01-01T00:00:00Z")).await;
    refused("revoked", "earlier than 2999-01-01T00:00:00Z").await;
    annotated("revoke-before", Value::Null).await;
    both.agree(&own, None, &[]).await;
    let accepts = |accepts: bool| Patch::Merge(json!({ "spec": { "hubAcceptsClient": accepts } }));
    clusters.patch("spoke1", &merge, &accepts(false)).await.unwrap();
    refused("not-registered", "hubAcceptsClient is not true").await;
    clusters.patch("spoke1", &merge, &accepts(true)).await.unwrap();
    let held = Patch::Merge(json!({ "metadata": { "finalizers": ["example.com/held"] } }));
    addons.patch("telemetry", &merge, &held).await.unwrap();
    addons.delete("telemetry", &DeleteParams::default()).await.unwrap();
    refused("not-registered", "the ManagedClusterAddOn is being deleted").await;
    addons.patch("telemetry", &merge, &Patch::Merge(json!({ "metadata": { "finalizers": [] } }))).await.unwrap();
    refused("not-registered", "no ManagedClusterAddOn").await;
    clusters.delete("spoke1", &DeleteParams::default()).await.unwrap();
    refused("not-registered", "there is no ManagedCluster of that name").await;
    whole.stop().await.unwrap();
}
