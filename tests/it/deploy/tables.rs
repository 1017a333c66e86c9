//! What a real API server makes of the columns of our kinds (apiextensions-apiserver, `tableconvertor.go`).

use addon_signer_api::{AddOnRoute, AddOnSigner};
use hyper::Request;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::on_api_server::prepared;
use test_kit::deploy::{params, patch};

/// The columns of a table as `kubectl get -o wide` prints them, each with the cell of the one row.
async fn table(admin: &Client, path: &str) -> Vec<(String, Value)> {
    let request = Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = admin.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let name = |column: &Value| {
        let wide = if column["priority"] == 0 { "" } else { " (wide)" };
        format!("{}{wide}", column["name"].as_str().unwrap())
    };
    let names = table["columnDefinitions"].as_array().unwrap().iter().map(name);
    let cells = table["rows"][0]["cells"].as_array().unwrap().iter().cloned();
    names.zip(cells).filter(|(name, _)| name != "Age").collect()
}

fn expected(columns: &[(&str, &str)]) -> Vec<(String, Value)> {
    columns.iter().map(|(name, cell)| ((*name).to_owned(), json!(cell))).collect()
}

fn mk_object(kind: &str, spec: Value) -> Value {
    let mut object = json!({ "apiVersion": "addon-signer.io/v1alpha1", "kind": kind, "metadata": { "name": "one" } });
    object["spec"] = spec;
    if kind == "AddOnRoute" {
        object["metadata"]["namespace"] = "default".into();
    }
    object
}

fn mk_condition(kind: &str, reason: &str) -> Value {
    let since = "2026-06-01T00:00:00Z";
    json!({ "type": kind, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": since })
}

fn mk_authority(state: &str, end: &str) -> Value {
    json!({ "id": state, "state": state, "notBefore": "2026-01-01T00:00:00Z", "notAfter": end })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_column_of_kubectl_is_text() {
    let Some((_hub, admin)) = prepared().await else { return };
    let signer = json!({ "signerName": "example.com/one", "addOns": ["a", "b", "c", "d"] });
    patch(&admin, &mk_object("AddOnSigner", signer), &params()).await.unwrap();
    let backend = json!({ "service": { "name": "receive", "port": 80 } });
    let route = json!({ "signer": "one", "match": { "http": [{ "path": "/a" }] }, "backend": backend });
    patch(&admin, &mk_object("AddOnRoute", route), &params()).await.unwrap();
    let status = json!({
        "addOns": ["a", "b", "c", "d"],
        "addOnList": "a, b, c and 1 more",
        "authorities": [mk_authority("Next", "2028-01-01T00:00:00Z"), mk_authority("Active", "2027-01-01T00:00:00Z")],
        "agents": { "eligible": 2, "certified": 1, "summary": "1/2" },
        "rotation": { "phase": "Activate", "since": "2026-06-01T00:00:00Z" },
        "conditions": [mk_condition("Ready", "Signing")],
    });
    let whole = |status: Value| Patch::Merge(json!({ "status": status }));
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    signers.patch_status("one", &PatchParams::default(), &whole(status)).await.unwrap();
    let conditions = [mk_condition("Programmed", "Programmed"), mk_condition("ResolvedRefs", "NoReadyEndpoint")];
    let status = json!({ "hosts": "a.example,b.example", "backend": "receive:80", "conditions": conditions });
    let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), "default");
    routes.patch_status("one", &PatchParams::default(), &whole(status)).await.unwrap();
    let of_signers = [
        ("Name", "one"),
        ("Signer", "example.com/one"),
        ("AddOns", "a, b, c and 1 more"),
        ("Ready", "True"),
        ("Reason", "Signing"),
        ("Agents", "1/2"),
        ("Active CA notAfter", "2027-01-01T00:00:00Z"),
        ("Rotation (wide)", "Activate"),
    ];
    assert_eq!(table(&admin, "/apis/addon-signer.io/v1alpha1/addonsigners").await, expected(&of_signers));
    let of_routes = [
        ("Name", "one"),
        ("Signer", "one"),
        ("Hosts", "a.example,b.example"),
        ("Backend", "receive:80"),
        ("Programmed", "True"),
        ("Reason", "Programmed"),
        ("Backend Reason (wide)", "NoReadyEndpoint"),
    ];
    assert_eq!(table(&admin, "/apis/addon-signer.io/v1alpha1/addonroutes").await, expected(&of_routes));
    let served = admin.list_api_group_resources("addon-signer.io/v1alpha1").await.unwrap().resources;
    let listed = served.iter().filter(|kind| kind.categories.iter().flatten().any(|it| it == "addon-signer"));
    assert_eq!(listed.count(), 2, "kubectl get addon-signer");
}
