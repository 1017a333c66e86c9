//! What a real API server checks of AddOnSigners: CEL rules, defaults, status.

use addon_signer_api::rules::SignerConfig;
use addon_signer_api::signer::{GatewaySpec, Method, Route};
use addon_signer_api::status::{AuthorityState, AuthorityStatus, RotationPhase, RotationStatus};
use addon_signer_api::{AddOnSigner, AddOnSignerSpec, AddOnSignerStatus};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};

use super::on_api_server::{prepare, start};
use test_kit::deploy::{api, params, patch};

fn mk_signer() -> Value {
    json!({
        "apiVersion": "addon-signer.io/v1alpha1",
        "kind": "AddOnSigner",
        "metadata": { "name": "telemetry" },
        "spec": {
            "signerName": "example.com/telemetry",
            "addOns": ["telemetry"],
            "gateway": { "routes": [{ "path": "/a", "upstream": "http://a:1/x" }] },
        },
    })
}

/// [`mk_signer`] with one value of its spec replaced.
fn mk_signer_with(pointer: &str, value: &Value) -> Value {
    let mut signer = mk_signer();
    let mut place = &mut signer["spec"];
    for step in pointer.split('.') {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value.clone();
    signer
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_signers_are_refused_by_the_field() {
    let Some(hub) = start().await else { return };
    let admin = hub.admin().await;
    prepare(&admin).await;
    let signers = api(&admin, &mk_signer()).await.unwrap();
    let mut surprises = Vec::new();
    for bad in bad_signers() {
        if bad.only == Some(Only::Constructor) {
            try_create(&signers, &mk_signer_with(&bad.set, &bad.to)).await.unwrap_or_else(|e| panic!("{bad:?}: {e}"));
            continue;
        }
        let answer = try_create(&signers, &mk_signer_with(&bad.set, &bad.to)).await;
        let causes = causes(answer);
        if !causes.iter().any(|(field, message)| bad.is_told(field, message)) {
            surprises.push((bad, causes));
        }
    }
    assert!(surprises.is_empty(), "{surprises:#?}");
    for (field, value) in good_values() {
        let signer = mk_signer_with(field, &value);
        try_create(&signers, &signer).await.unwrap_or_else(|e| panic!("{field}: {value}: {e}"));
    }
}

/// What the schema lets through is out of effect, so the API server should refuse what the hub refuses; and a hub whose
/// CRD is another version's must not take what the schema would have refused.
#[test]
fn the_hub_refuses_what_the_schema_refuses() {
    let read = |signer: &Value| -> Result<SignerConfig, String> {
        let spec: AddOnSignerSpec =
            serde_json::from_value(signer["spec"].clone()).map_err(|error| error.to_string())?;
        let config = SignerConfig::read(&spec, None).and_then(|config| config.check_backends(false));
        config.map_err(|error| error.to_string())
    };
    read(&mk_signer()).unwrap();
    let surprises: Vec<_> = bad_signers()
        .into_iter()
        .filter(|bad| read(&mk_signer_with(&bad.set, &bad.to)).is_ok() != (bad.only == Some(Only::Schema)))
        .collect();
    assert!(surprises.is_empty(), "{surprises:#?}");
    for (field, value) in good_values() {
        read(&mk_signer_with(field, &value)).unwrap_or_else(|e| panic!("{field}: {value}: {e}"));
    }
}

/// Does the same as `kubectl create --dry-run=server`, because `apply` reports a duplicate without its field.
async fn try_create(signers: &Api<DynamicObject>, signer: &Value) -> kube::Result<DynamicObject> {
    let dry_run = PostParams { dry_run: true, field_manager: None };
    signers.create(&dry_run, &serde_json::from_value(signer.clone()).unwrap()).await
}

/// The field and the message of every objection of the API server; empty if it accepts the object.
fn causes(answer: kube::Result<DynamicObject>) -> Vec<(String, String)> {
    match answer {
        Ok(_) => Vec::new(),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
        }
        Err(error) => panic!("{error}"),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BadSigner {
    set: String,
    to: Value,
    field: String,
    says: String,
    #[serde(default)]
    only: Option<Only>,
}

/// Who alone refuses a value.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Only {
    /// The API server; the hub would do nothing wrong with it.
    Schema,
    /// The hub; the API server cannot check it.
    Constructor,
}

impl BadSigner {
    /// Whether a cause is about the field, or about an item of it, and gives the reason.
    fn is_told(&self, field: &str, message: &str) -> bool {
        let rest = field.strip_prefix("spec.").and_then(|path| path.strip_prefix(&self.field));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('[')) && message.contains(&self.says)
    }
}

fn bad_signers() -> Vec<BadSigner> {
    serde_saphyr::from_str(include_str!("bad_signers.yaml")).unwrap()
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
        ("gateway.routes", json!([])),
        ("gateway.routes.0.upstream", json!("http://[fd00::1]:80")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_keeps_its_name_its_defaults_and_its_status() {
    let Some(hub) = start().await else { return };
    let admin = hub.admin().await;
    prepare(&admin).await;
    patch(&admin, &mk_signer(), &params()).await.unwrap();
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    assert_eq!(signers.get("telemetry").await.unwrap().spec, mk_spec_by_types());

    let renamed = mk_signer_with("signerName", &json!("example.com/other"));
    let causes = causes(patch(&admin, &renamed, &params()).await);
    let immutable = |(field, message): &(String, String)| field == "spec.signerName" && message.contains("immutable");
    assert!(causes.iter().any(immutable), "{causes:?}");

    let merge = Patch::Merge(json!({ "status": mk_status() }));
    signers.patch_status("telemetry", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(signers.get("telemetry").await.unwrap().status, Some(mk_status()));
    let row = ["telemetry", "example.com/telemetry", "[\"telemetry\"]", "True", "Signing", "2027-01-01T00:00:00Z"];
    assert_eq!(printed_row(&admin).await[..6], row.map(Value::from));
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
    use Method::{Delete, Get, Head, Patch, Post, Put};
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
            routes: vec![Route {
                path: "/a".to_owned(),
                upstream: "http://a:1/x".to_owned(),
                methods: vec![Get, Head, Post, Put, Patch, Delete],
                max_body: "64Mi".to_owned(),
                timeout: "30s".to_owned(),
                delete_with_content: false,
            }],
        },
    }
}

fn mk_status() -> AddOnSignerStatus {
    let time = |text: &str| serde_json::from_value(json!(text)).unwrap();
    AddOnSignerStatus {
        observed_generation: Some(1),
        add_ons: ["telemetry".to_owned()].into(),
        authorities: vec![AuthorityStatus {
            id: "a1".to_owned(),
            state: AuthorityState::Active,
            not_before: time("2026-01-01T00:00:00Z"),
            not_after: time("2027-01-01T00:00:00Z"),
            last_leaf_expires: None,
        }],
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
