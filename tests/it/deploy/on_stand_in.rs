//! What the stand-in refuses by the schemas of the CRDs, which the demo stores, as a real API server does.

use ::stand_in::StandIn;
use kube::api::{DynamicObject, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::bad_specs::causes;
use super::on_api_server::prepared;
use super::{file, routes, signers};
use crate::stand_in::{mk_admin, mk_hub};
use test_kit::deploy::api;

const SIGNERS: &str = "/apis/addon-signer.io/v1alpha1/addonsigners";

/// A stand-in that has the CRDs, as that of the demo.
async fn defined() -> (StandIn, Client) {
    let hub = mk_hub().await;
    let admin = mk_admin(&hub).await;
    for definition in file("deploy/chart/files/crds.yaml") {
        let definitions = api(&admin, &definition).await.unwrap();
        definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }
    (hub, admin)
}

#[tokio::test]
async fn stand_in_refuses_what_schemas_refuse_and_accepts_the_rest() {
    let (_hub, admin) = defined().await;
    for (good, samples) in [(signers::mk_signer(), signers::mk_samples()), (routes::mk_route(), routes::mk_samples())] {
        samples.check_schema(&api(&admin, &good).await.unwrap()).await;
    }
}

#[tokio::test]
async fn stand_in_prunes_or_refuses_unknown_fields() {
    let (_hub, admin) = defined().await;
    check_unknown_fields(&admin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_prunes_or_refuses_unknown_fields() {
    let Some((_hub, admin)) = prepared().await else { return };
    check_unknown_fields(&admin).await;
}

async fn send(admin: &Client, method: &str, path: &str, body: &Value) -> kube::Result<DynamicObject> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = hyper::Request::builder().method(method).uri(format!("{SIGNERS}{path}")).header("content-type", kind);
    admin.request(request.body(serde_json::to_vec(body).unwrap()).unwrap()).await
}

/// What becomes of misspelt fields, defaults and bad changes, the same on both API servers.
async fn check_unknown_fields(admin: &Client) {
    let mut misspelt = signers::mk_signer();
    misspelt["spec"]["identity"] = json!({ "usr": "x" });
    misspelt["metadata"]["label"] = json!({ "a": "b" });
    let refusal = send(admin, "POST", "?fieldValidation=Strict", &misspelt).await;
    let Err(Error::Api(refusal)) = refusal else { panic!("{refusal:?}") };
    assert_eq!((refusal.code, refusal.reason.as_str()), (400, "BadRequest"), "{refusal:?}");
    for field in ["spec.identity.usr", "metadata.label"] {
        assert!(refusal.message.contains(&format!("unknown field {field:?}")), "{refusal:?}");
    }

    let stored = send(admin, "POST", "", &misspelt).await.unwrap();
    let spec = &stored.data["spec"];
    assert_eq!(spec["identity"].get("usr"), None, "an unknown field is pruned");
    assert_eq!(spec["identity"]["requesters"], json!(["Cluster"]), "a default is filled in");
    assert_eq!(spec["certificate"]["duration"], "24h", "that of an absent object, too");

    let unset = json!({ "spec": { "certificate": { "duration": "1h" }, "approval": null, "usr": 1 } });
    let refused = causes(send(admin, "PATCH", "/telemetry?fieldValidation=Strict", &unset).await);
    assert!(refused[0].0 == "patch" && refused[0].1.contains("unknown field \"spec.usr\""), "{refused:?}");
    let patched = send(admin, "PATCH", "/telemetry", &unset).await.unwrap();
    let spec = &patched.data["spec"];
    assert_eq!((&spec["approval"], spec.get("usr")), (&json!("Automatic"), None));
    assert_eq!(spec["certificate"]["duration"], "1h");

    let renamed = json!({ "spec": { "signerName": "example.com/other" } });
    let refused = causes(send(admin, "PATCH", "/telemetry", &renamed).await);
    assert!(refused[0].0 == "spec.signerName" && refused[0].1.contains("immutable"), "{refused:?}");
    assert!(refused[0].1.contains("Invalid value: \"example.com/other\": "), "{refused:?}");
    let short = json!({ "spec": { "certificate": { "duration": "9m" } } });
    let refused = causes(send(admin, "PATCH", "/telemetry", &short).await);
    let words = "Invalid value: certificate.duration must be at least 10m, Kubernetes' own minimum";
    assert_eq!(refused, [("spec.certificate.duration".to_owned(), words.to_owned())], "no object is quoted");
    let both = json!({ "spec": { "approval": "Never", "certificate": { "duration": "9m" } } });
    let refused = causes(send(admin, "PATCH", "/telemetry", &both).await);
    let fields: Vec<_> = refused.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["spec.approval", "<nil>"], "{refused:?}");
    let unready = json!({ "status": { "conditions": [{ "type": "Ready" }], "addOns": ["a", "a"] } });
    let refused = causes(send(admin, "PATCH", "/telemetry/status", &unready).await);
    for field in ["status.conditions[0].reason", "status.addOns[1]"] {
        assert!(refused.iter().any(|(it, _)| it == field), "{field}: {refused:?}");
    }
}
