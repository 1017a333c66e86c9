//! What a real API server checks of AddOnSigners: CEL rules, defaults, status.

use addon_signer_api::rules::SignerConfig;
use addon_signer_api::signer::{GatewaySpec, RoutesFrom};
use addon_signer_api::status::{
    AgentWithout, AgentsStatus, AuthorityState, AuthorityStatus, RotationPhase, RotationStatus,
};
use addon_signer_api::{AddOnSigner, AddOnSignerSpec, AddOnSignerStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::bad_specs::{Samples, causes};
use super::on_api_server::prepared;
use test_kit::deploy::{api, params, patch};

pub(super) fn mk_signer() -> Value {
    json!({
        "apiVersion": "addon-signer.io/v1alpha1",
        "kind": "AddOnSigner",
        "metadata": { "name": "telemetry" },
        "spec": {
            "signerName": "example.com/telemetry",
            "addOns": ["telemetry"],
            "gateway": { "routesFrom": { "namespaces": ["a"] }, "hostnames": ["a.example"] },
        },
    })
}

pub(super) fn mk_samples() -> Samples {
    let bad = serde_saphyr::from_str(include_str!("bad_signers.yaml")).unwrap();
    Samples { good: mk_signer(), bad, also_good: good_values() }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_signers_are_refused_by_the_field() {
    let Some((_hub, admin)) = prepared().await else { return };
    mk_samples().check_schema(&api(&admin, &mk_signer()).await.unwrap()).await;
}

#[test]
fn the_hub_refuses_signers_that_the_schema_refuses() {
    mk_samples().check_constructor(|signer| {
        let spec: AddOnSignerSpec =
            serde_json::from_value(signer["spec"].clone()).map_err(|error| error.to_string())?;
        SignerConfig::read(&spec, None).map(|_| ()).map_err(|error| error.to_string())
    });
}

fn good_values() -> Vec<(&'static str, Value)> {
    vec![
        ("signerName", json!("notkubernetes.io/x")),
        ("addOns", json!((0..64).map(|n| format!("a{n}")).collect::<Vec<_>>())),
        ("identity.groups", json!([])),
        ("identity.user", json!("example.com/telemetry:{cluster}:{addon}.x")),
        ("certificate", json!({"duration": "10m", "maxDuration": "1h30m"})),
        ("authority", json!({"duration": "168h1s", "renewBefore": "1h", "key": "Ed25519"})),
        ("authority", json!({"keyStore": {"type": "Secret"}, "issuer": {"type": "SelfSigned"}})),
        ("authority", json!({"keyStore": {}, "issuer": {}})),
        ("authority", json!({"issuer": {"type": "Imported"}})),
        ("authority", json!({"issuer": {"type": "Imported", "secretName": "ca"}})),
        ("gateway", json!({})),
        ("gateway.routesFrom", json!({"selector": {"matchLabels": {"team": "x"}}})),
        ("gateway.routesFrom", json!({"selector": {}})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_keeps_its_name_its_defaults_and_its_status() {
    let Some((_hub, admin)) = prepared().await else { return };
    patch(&admin, &mk_signer(), &params()).await.unwrap();
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    assert_eq!(signers.get("telemetry").await.unwrap().spec, mk_spec_by_types());

    let renamed = mk_samples().with("signerName", &json!("example.com/other"));
    let causes = causes(patch(&admin, &renamed, &params()).await);
    let immutable = |(field, message): &(String, String)| field == "spec.signerName" && message.contains("immutable");
    assert!(causes.iter().any(immutable), "{causes:?}");

    let merge = Patch::Merge(json!({ "status": mk_status() }));
    signers.patch_status("telemetry", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(signers.get("telemetry").await.unwrap().status, Some(mk_status()));
    let row = ["telemetry", "example.com/telemetry", "telemetry", "True", "Signing", "1/2", "2027-01-01T00:00:00Z"];
    assert_eq!(printed_row(&admin).await[..7], row.map(Value::from));
}

/// What `kubectl get addonsigners` prints.
async fn printed_row(admin: &Client) -> Vec<Value> {
    let request = hyper::Request::get("/apis/addon-signer.io/v1alpha1/addonsigners")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = admin.request(request).await.unwrap();
    table["rows"][0]["cells"].as_array().unwrap().clone()
}

/// [`mk_signer`] with the defaults that the types have.
fn mk_spec_by_types() -> AddOnSignerSpec {
    AddOnSignerSpec {
        signer_name: "example.com/telemetry".to_owned(),
        add_ons: vec!["telemetry".to_owned()],
        successor: None,
        approval: Default::default(),
        registration: Default::default(),
        identity: Default::default(),
        certificate: Default::default(),
        authority: Default::default(),
        trust: Default::default(),
        gateway: GatewaySpec {
            routes_from: RoutesFrom { namespaces: vec!["a".to_owned()], selector: None },
            hostnames: vec!["a.example".to_owned()],
        },
    }
}

fn mk_status() -> AddOnSignerStatus {
    let time = |text: &str| serde_json::from_value(json!(text)).unwrap();
    AddOnSignerStatus {
        observed_generation: Some(1),
        add_ons: ["telemetry".to_owned()].into(),
        add_on_list: Some("telemetry".to_owned()),
        authorities: vec![AuthorityStatus {
            tainted: false,
            to_revoke: false,
            renew_within: None,
            id: "a1".to_owned(),
            state: AuthorityState::Active,
            not_before: time("2026-01-01T00:00:00Z"),
            not_after: time("2027-01-01T00:00:00Z"),
            last_leaf_expires: None,
            certificate: Some("-----BEGIN CERTIFICATE-----".to_owned()),
        }],
        authority_request: None,
        agents: Some(AgentsStatus {
            eligible: 2,
            certified: 1,
            summary: "1/2".to_owned(),
            without: vec![AgentWithout { name: "c2/telemetry".to_owned(), waits_for: "a reason".to_owned() }],
        }),
        rotation: Some(RotationStatus {
            phase: RotationPhase::Publish,
            since: time("2026-06-01T00:00:00Z"),
            ready: Some(1),
            total: Some(2),
            stragglers: vec!["c2/telemetry".to_owned()],
            waiting_for: Some("a reason".to_owned()),
        }),
        conditions: vec![
            serde_json::from_value(json!({
                "type": "Ready", "status": "True", "reason": "Signing", "message": "m",
                "lastTransitionTime": "2026-06-01T00:00:00Z",
            }))
            .unwrap(),
        ],
    }
}
