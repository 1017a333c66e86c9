//! What a real API server checks of AddOnRoutes: CEL rules, defaults, status.

use addon_signer_api::route_rules::route_plan;
use addon_signer_api::{AddOnRoute, AddOnRouteStatus};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::bad_specs::Samples;
use super::on_api_server::prepared;
use test_kit::deploy::{api, params, patch};

pub(super) fn mk_route() -> Value {
    json!({
        "apiVersion": "addon-signer.io/v1alpha1",
        "kind": "AddOnRoute",
        "metadata": { "name": "receive", "namespace": "default" },
        "spec": {
            "signer": "telemetry",
            "match": { "http": [{ "path": "/a" }] },
            "backend": { "service": { "name": "receive", "port": 80 } },
        },
    })
}

pub(super) fn mk_samples() -> Samples {
    let bad = serde_saphyr::from_str(include_str!("bad_routes.yaml")).unwrap();
    let tls = |tls: Value| json!({ "service": { "name": "a", "port": 1 }, "tls": tls });
    let also_good = vec![
        ("addOns", json!(["a", "b"])),
        ("clusters", json!({ "names": ["c1", "c2"] })),
        ("clusters", json!({ "clusterSets": ["prod"] })),
        ("hostnames", json!(["telemetry.gateway.example"])),
        ("match", json!({ "http": [{ "path": "/" }, { "path": "/tenants/{cluster}/x", "methods": ["GET"] }] })),
        ("match", json!({ "grpc": [{ "service": "a.v1.Push" }, { "service": "a.v1.Pull", "methods": ["Do"] }] })),
        ("backend", json!({ "address": "192.0.2.7:9000", "protocol": "H2C" })),
        ("backend", json!({ "address": "[2001:db8::7]:9000" })),
        ("backend", tls(json!({ "clusterTrustBundle": "corp", "serverName": "a.example" }))),
        (
            "limits",
            json!({ "maxBody": "1Gi", "connect": "1m", "firstByte": "24h", "idle": "1s", "requestsPerIdentity": 1 }),
        ),
    ];
    Samples { good: mk_route(), bad, also_good }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_routes_are_refused_by_the_field() {
    let Some((_hub, admin)) = prepared().await else { return };
    mk_samples().check_schema(&api(&admin, &mk_route()).await.unwrap()).await;
}

#[test]
fn the_hub_refuses_routes_that_the_schema_refuses() {
    mk_samples().check_constructor(|route| {
        let route: AddOnRoute = serde_json::from_value(route.clone()).map_err(|error| error.to_string())?;
        route_plan(&route).map(|_| ()).map_err(|error| error.to_string())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_keeps_its_defaults_and_its_status() {
    let Some((_hub, admin)) = prepared().await else { return };
    patch(&admin, &mk_route(), &params()).await.unwrap();
    let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), "default");
    let stored = routes.get("receive").await.unwrap();
    let by_types: AddOnRoute = serde_json::from_value(mk_route()).unwrap();
    assert_eq!(stored.spec, by_types.spec, "the schema's defaults are those of the types");

    let condition = json!({
        "type": "Programmed", "status": "True", "reason": "Programmed", "message": "m",
        "lastTransitionTime": "2026-06-01T00:00:00Z",
    });
    let status = json!({ "observedGeneration": 1, "hosts": "*", "backend": "receive:80", "conditions": [condition] });
    let merge = Patch::Merge(json!({ "status": status }));
    routes.patch_status("receive", &PatchParams::default(), &merge).await.unwrap();
    let expected: AddOnRouteStatus = serde_json::from_value(status).unwrap();
    assert_eq!(routes.get("receive").await.unwrap().status, Some(expected));
    let request = hyper::Request::get("/apis/addon-signer.io/v1alpha1/namespaces/default/addonroutes")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = admin.request(request).await.unwrap();
    let row = ["receive", "telemetry", "*", "receive:80", "True", "Programmed"];
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..6], row.map(Value::from));
}
