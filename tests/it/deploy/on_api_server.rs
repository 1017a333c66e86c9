//! What only a real API server can say about deploy/: schemas, CEL rules, pod security, RBAC.

use std::time::Duration;

use addon_signer::api::signer::{
    AuthorityState, AuthorityStatus, GatewaySpec, Method, RotationPhase, RotationStatus, Route,
};
use addon_signer::api::{AddOnSigner, AddOnSignerSpec, AddOnSignerStatus};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{FOLDERS, all_manifests, manifests, name, of_kind};
use crate::support::real::assets;
use crate::support::{TestHub, wait_until};

/// The hub's account, as deploy/ names it.
pub(crate) const HUB_USER: &str = "system:serviceaccount:addon-signer:addon-signer";
/// The groups that Kubernetes gives to that account.
pub(crate) const HUB_GROUPS: [&str; 2] = [
    "system:serviceaccounts",
    "system:serviceaccounts:addon-signer",
];
const ESTABLISHED: Duration = Duration::from_secs(30);

/// Applies objects as `kubectl apply --server-side` does and waits until their CRDs are served.
pub(crate) async fn apply(admin: &Client, objects: &[Value]) {
    for object in objects {
        patch(admin, object, &params())
            .await
            .unwrap_or_else(|e| panic!("{}: {e}", name(object)));
        if object["kind"] == "CustomResourceDefinition" {
            wait_until_served(admin, name(object)).await;
        }
    }
}

/// Unknown fields are errors, so that a misspelt one does not pass.
fn params() -> PatchParams {
    PatchParams::apply("deploy-tests")
        .force()
        .validation_strict()
}

async fn patch(
    admin: &Client,
    object: &Value,
    params: &PatchParams,
) -> kube::Result<DynamicObject> {
    let api = api(admin, object).await?;
    api.patch(name(object), params, &Patch::Apply(object)).await
}

async fn api(admin: &Client, object: &Value) -> kube::Result<Api<DynamicObject>> {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let (resource, capabilities) = pinned_kind(admin, &kind).await?;
    Ok(
        match (capabilities.scope, object["metadata"]["namespace"].as_str()) {
            (Scope::Namespaced, namespace) => {
                Api::namespaced_with(admin.clone(), namespace.unwrap(), &resource)
            }
            (Scope::Cluster, None) => Api::all_with(admin.clone(), &resource),
            (Scope::Cluster, Some(_)) => panic!("{} is cluster-scoped", name(object)),
        },
    )
}

async fn wait_until_served(admin: &Client, crd: &str) {
    let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
    wait_until(
        ESTABLISHED,
        &format!("the CRD {crd} to be served"),
        async || {
            let conditions = crds
                .get(crd)
                .await
                .unwrap()
                .status
                .unwrap_or_default()
                .conditions;
            let established = |c: &_| is_true(c, "Established");
            conditions
                .into_iter()
                .flatten()
                .any(|c| established(&json!(c)))
                .then_some(())
        },
    )
    .await;
}

fn is_true(condition: &Value, kind: &str) -> bool {
    condition["type"] == kind && condition["status"] == "True"
}

/// Namespaces and CRD for real: nothing else can be tried without them.
async fn prepare(admin: &Client) {
    let mut first = manifests(".");
    first.retain(|object| {
        object["kind"] == "Namespace" || object["kind"] == "CustomResourceDefinition"
    });
    first.push(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "open-cluster-management-agent-addon" },
    }));
    apply(admin, &first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_every_object_and_pod() {
    if assets().is_none() {
        return;
    }
    let hub = TestHub::start().await;
    let admin = hub.admin().await;
    prepare(&admin).await;
    let dry_run = params().dry_run();
    for object in all_manifests() {
        patch(&admin, &object, &dry_run)
            .await
            .unwrap_or_else(|e| panic!("{}: {e}", name(&object)));
    }
    // The namespace enforces `restricted`, for pods and not for what makes them.
    let pods: Api<Pod> = Api::namespaced(admin, "addon-signer");
    let dry_run = PostParams {
        dry_run: true,
        field_manager: None,
    };
    for deployment in of_kind(&all_manifests(), "Deployment") {
        let pod = |spec: &Value| {
            serde_json::from_value::<Pod>(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
        };
        let mut spec = deployment["spec"]["template"]["spec"].clone();
        pods.create(&dry_run, &pod(&spec)).await.unwrap();
        spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        let refusal = pods.create(&dry_run, &pod(&spec)).await.unwrap_err();
        assert!(
            refusal.to_string().contains("violates PodSecurity"),
            "{refusal}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_may_do_what_it_needs_and_no_more() {
    if assets().is_none() {
        return;
    }
    let hub = TestHub::start().await;
    let admin = hub.admin().await;
    prepare(&admin).await;
    for folder in FOLDERS {
        apply(&admin, &manifests(folder)).await;
    }
    for (allowed, verb, group, resource, place) in RIGHTS {
        let review = mk_review(verb, group, resource, place);
        let what = format!("{verb} {resource} {place:?}");
        wait_until(
            Duration::from_secs(10),
            &format!("{allowed}: {what}"),
            async || (is_allowed(&admin, &review).await == *allowed).then_some(()),
        )
        .await;
    }
}

/// Where a right is asked for.
#[derive(Debug)]
enum Place {
    Cluster,
    Named(&'static str),
    In(&'static str),
}

/// Allowed or not, verb, API group, resource with subresource, place.
const RIGHTS: &[(bool, &str, &str, &str, Place)] = {
    use Place::{Cluster, In, Named};
    const CERTIFICATES: &str = "certificates.k8s.io";
    const ADDON: &str = "addon.open-cluster-management.io";
    const CLUSTER: &str = "cluster.open-cluster-management.io";
    const OURS: &str = "addon-signer.io";
    &[
        (
            true,
            "watch",
            CERTIFICATES,
            "certificatesigningrequests",
            Cluster,
        ),
        (
            true,
            "delete",
            CERTIFICATES,
            "certificatesigningrequests",
            Named("x"),
        ),
        (
            true,
            "update",
            CERTIFICATES,
            "certificatesigningrequests/approval",
            Named("x"),
        ),
        (
            true,
            "update",
            CERTIFICATES,
            "certificatesigningrequests/status",
            Named("x"),
        ),
        (
            false,
            "update",
            CERTIFICATES,
            "certificatesigningrequests",
            Named("x"),
        ),
        (
            true,
            "sign",
            CERTIFICATES,
            "signers",
            Named("addon-signer.io/gateway-serving"),
        ),
        (
            true,
            "approve",
            CERTIFICATES,
            "signers",
            Named("example.com/telemetry"),
        ),
        (
            true,
            "sign",
            CERTIFICATES,
            "signers",
            Named("example.com/telemetry"),
        ),
        (
            false,
            "sign",
            CERTIFICATES,
            "signers",
            Named("example.com/other"),
        ),
        (
            false,
            "sign",
            CERTIFICATES,
            "signers",
            Named("example.com/*"),
        ),
        (
            false,
            "approve",
            CERTIFICATES,
            "signers",
            Named("kubernetes.io/kube-apiserver-client"),
        ),
        (
            false,
            "sign",
            CERTIFICATES,
            "signers",
            Named("kubernetes.io/kube-apiserver-client"),
        ),
        (true, "watch", CLUSTER, "managedclusters", Cluster),
        (false, "patch", CLUSTER, "managedclusters", Named("x")),
        (true, "list", ADDON, "managedclusteraddons", Cluster),
        (
            true,
            "patch",
            ADDON,
            "managedclusteraddons/status",
            In("cluster1"),
        ),
        (
            false,
            "patch",
            ADDON,
            "managedclusteraddons",
            In("cluster1"),
        ),
        (true, "watch", OURS, "addonsigners", Cluster),
        (true, "patch", OURS, "addonsigners/status", Named("x")),
        (false, "patch", OURS, "addonsigners", Named("x")),
        (true, "update", "", "secrets", In("addon-signer")),
        (false, "get", "", "secrets", In("default")),
        (false, "list", "", "secrets", Cluster),
        (true, "update", "", "configmaps", In("addon-signer")),
        (false, "get", "", "configmaps", In("kube-system")),
        (true, "create", "events.k8s.io", "events", In("default")),
        (false, "create", "events.k8s.io", "events", In("cluster1")),
        (false, "create", "", "pods", In("addon-signer")),
        (false, "impersonate", "", "users", Named("x")),
    ]
};

fn mk_review(verb: &str, group: &str, resource: &str, place: &Place) -> SubjectAccessReview {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (object, namespace) = match place {
        Place::Cluster => ("", ""),
        Place::Named(object) => (*object, ""),
        Place::In(namespace) => ("", *namespace),
    };
    serde_json::from_value(json!({
        "metadata": {},
        "spec": {
            "user": HUB_USER,
            "groups": HUB_GROUPS,
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "name": object, "namespace": namespace,
            },
        },
    }))
    .unwrap()
}

async fn is_allowed(admin: &Client, review: &SubjectAccessReview) -> bool {
    let reviews: Api<SubjectAccessReview> = Api::all(admin.clone());
    let answer = reviews
        .create(&PostParams::default(), review)
        .await
        .unwrap();
    answer.status.is_some_and(|status| status.allowed)
}

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

/// The signer with one value of its spec set.
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
    if assets().is_none() {
        return;
    }
    let hub = TestHub::start().await;
    let admin = hub.admin().await;
    prepare(&admin).await;
    let dry_run = params().dry_run();
    for (field, value, reported, message) in bad_values() {
        let signer = mk_signer_with(field, &value);
        let what = format!("{field}: {value}");
        let refusal = patch(&admin, &signer, &dry_run)
            .await
            .expect_err(&what)
            .to_string();
        assert!(
            refusal.contains(&format!("spec.{reported}")),
            "{what} is refused without {reported}: {refusal}"
        );
        assert!(
            refusal.contains(message),
            "{what} is refused without {message:?}: {refusal}"
        );
    }
    for (field, value) in good_values() {
        let signer = mk_signer_with(field, &value);
        patch(&admin, &signer, &dry_run)
            .await
            .unwrap_or_else(|e| panic!("{field}: {value}: {e}"));
    }
}

/// What is set, to what, the field that the refusal names and a part of its sentence.
fn bad_values() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let mut all = bad_identities();
    all.extend(bad_durations());
    all.extend(bad_routes());
    all
}

fn bad_identities() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    vec![
        (
            "signerName",
            json!("kubernetes.io/telemetry"),
            "signerName",
            "reserved for Kubernetes",
        ),
        (
            "signerName",
            json!("x.kubernetes.io/telemetry"),
            "signerName",
            "reserved for Kubernetes",
        ),
        (
            "signerName",
            json!("addon-signer.io/gateway-serving"),
            "signerName",
            "reserved for the gateway",
        ),
        (
            "signerName",
            json!("example.com"),
            "signerName",
            "should match",
        ),
        (
            "signerName",
            json!("example.com/Telemetry"),
            "signerName",
            "should match",
        ),
        (
            "signerName",
            json!("example.com/a/b"),
            "signerName",
            "should match",
        ),
        ("signerName", json!(null), "signerName", "Required"),
        ("addOns", json!([]), "addOns", "at least 1"),
        ("addOns", json!(["a", "a"]), "addOns", "Duplicate"),
        ("addOns", json!(["a.b"]), "addOns", "should match"),
        ("addOns", json!(["a".repeat(64)]), "addOns", "Too long"),
        ("approval", json!("Never"), "approval", "supported values"),
        (
            "registration",
            json!("managed"),
            "registration",
            "supported values",
        ),
        (
            "identity.user",
            json!("system:{addon}"),
            "identity.user",
            "must contain {cluster}",
        ),
        (
            "identity.user",
            json!("system:{cluster}"),
            "identity.user",
            "must contain {addon}",
        ),
        (
            "identity.user",
            json!("{cluster}:{addon}:{node}"),
            "identity.user",
            "should match",
        ),
        (
            "identity.user",
            json!("{cluster}:{addon}\n"),
            "identity.user",
            "should match",
        ),
        (
            "identity.groups",
            json!(["{namespace}"]),
            "identity.groups",
            "should match",
        ),
        (
            "identity.groups",
            json!([""]),
            "identity.groups",
            "at least 1",
        ),
        (
            "identity.dnsNames",
            json!(["*.example.com"]),
            "identity.dnsNames",
            "should match",
        ),
        (
            "identity.organizationalUnits",
            json!(["a", "a"]),
            "identity.organizationalUnits",
            "Duplicate",
        ),
        (
            "certificate.keys",
            json!(["RSA-1024"]),
            "certificate.keys",
            "supported values",
        ),
        (
            "certificate.keys",
            json!([]),
            "certificate.keys",
            "at least 1",
        ),
        (
            "authority.key",
            json!("RSA-2048"),
            "authority.key",
            "supported values",
        ),
    ]
}

fn bad_durations() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    vec![
        (
            "certificate.duration",
            json!("169h"),
            "certificate.duration",
            "longer than certificate.maxDuration",
        ),
        (
            "certificate.duration",
            json!("9m59s"),
            "certificate.duration",
            "at least 10m",
        ),
        (
            "certificate.duration",
            json!("1d"),
            "certificate.duration",
            "should match",
        ),
        (
            "certificate.duration",
            json!("1.5h"),
            "certificate.duration",
            "should match",
        ),
        (
            "certificate.duration",
            json!(""),
            "certificate.duration",
            "at least 2",
        ),
        (
            "certificate.maxDuration",
            json!("23h"),
            "certificate.duration",
            "longer than certificate.maxDuration",
        ),
        (
            "certificate.maxDuration",
            json!("8761h"),
            "certificate.maxDuration",
            "at most 8760h",
        ),
        (
            "certificate.maxDuration",
            json!("8760h"),
            "authority.duration",
            "longer than certificate.maxDuration",
        ),
        (
            "authority.duration",
            json!("2160h"),
            "authority.renewBefore",
            "shorter than authority.duration",
        ),
        (
            "authority.renewBefore",
            json!("8760h"),
            "authority.renewBefore",
            "shorter than authority.duration",
        ),
        (
            "authority",
            json!({"duration": "168h", "renewBefore": "1h"}),
            "authority.duration",
            "no certificate outlives",
        ),
    ]
}

fn bad_routes() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let route = json!({ "path": "/a", "upstream": "http://a" });
    vec![
        (
            "gateway.routes.0.path",
            json!("a"),
            "gateway.routes[0].path",
            "should match",
        ),
        (
            "gateway.routes.0.path",
            json!("/a/../b"),
            "gateway.routes[0].path",
            "neither",
        ),
        (
            "gateway.routes.0.path",
            json!("/a//b"),
            "gateway.routes[0].path",
            "neither",
        ),
        (
            "gateway.routes.0.path",
            json!("/a?b"),
            "gateway.routes[0].path",
            "should match",
        ),
        (
            "gateway.routes.0.path",
            json!("/a%2f"),
            "gateway.routes[0].path",
            "should match",
        ),
        (
            "gateway.routes",
            json!([route, route]),
            "gateway.routes[1]",
            "Duplicate",
        ),
        (
            "gateway.routes",
            json!([{ "path": "/a" }]),
            "gateway.routes[0].upstream",
            "Required",
        ),
        (
            "gateway.routes.0.upstream",
            json!("https://a"),
            "gateway.routes[0].upstream",
            "should match",
        ),
        (
            "gateway.routes.0.upstream",
            json!("http://u:p@a"),
            "gateway.routes[0].upstream",
            "should match",
        ),
        (
            "gateway.routes.0.upstream",
            json!("http://a/?q"),
            "gateway.routes[0].upstream",
            "should match",
        ),
        (
            "gateway.routes.0.upstream",
            json!("http://a/.."),
            "gateway.routes[0].upstream",
            "must not contain",
        ),
        (
            "gateway.routes.0.methods",
            json!(["CONNECT"]),
            "gateway.routes[0].methods",
            "supported values",
        ),
        (
            "gateway.routes.0.methods",
            json!([]),
            "gateway.routes[0].methods",
            "at least 1",
        ),
        (
            "gateway.routes.0.maxBody",
            json!("64MB"),
            "gateway.routes[0].maxBody",
            "should match",
        ),
        (
            "gateway.routes.0.timeout",
            json!("0s"),
            "gateway.routes[0].timeout",
            "from 1s to 1h",
        ),
        (
            "gateway.routes.0.timeout",
            json!("61m"),
            "gateway.routes[0].timeout",
            "from 1s to 1h",
        ),
    ]
}

fn good_values() -> Vec<(&'static str, Value)> {
    vec![
        ("signerName", json!("notkubernetes.io/x")),
        (
            "addOns",
            json!((0..64).map(|n| format!("a{n}")).collect::<Vec<_>>()),
        ),
        ("identity.groups", json!([])),
        ("identity.user", json!("{cluster}.{addon}")),
        (
            "certificate",
            json!({"duration": "10m", "maxDuration": "1h30m"}),
        ),
        (
            "authority",
            json!({"duration": "168h1s", "renewBefore": "1s", "key": "Ed25519"}),
        ),
        ("gateway.routes", json!([])),
        ("gateway.routes.0.upstream", json!("http://[::1]:80")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_keeps_its_name_its_defaults_and_its_status() {
    if assets().is_none() {
        return;
    }
    let hub = TestHub::start().await;
    let admin = hub.admin().await;
    prepare(&admin).await;
    patch(&admin, &mk_signer(), &params()).await.unwrap();
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    assert_eq!(
        signers.get("telemetry").await.unwrap().spec,
        mk_spec_by_types()
    );

    let renamed = mk_signer_with("signerName", &json!("example.com/other"));
    let refusal = patch(&admin, &renamed, &params())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refusal.contains("spec.signerName") && refusal.contains("immutable"),
        "{refusal}"
    );

    let status = mk_status();
    let merge = Patch::Merge(json!({ "status": status }));
    signers
        .patch_status("telemetry", &PatchParams::default(), &merge)
        .await
        .unwrap();
    assert_eq!(signers.get("telemetry").await.unwrap().status, Some(status));
    signers
        .delete("telemetry", &DeleteParams::default())
        .await
        .unwrap();
}

/// [`mk_signer`] with the defaults that the types have.
fn mk_spec_by_types() -> AddOnSignerSpec {
    use Method::{Delete, Get, Head, Patch, Post, Put};
    AddOnSignerSpec {
        signer_name: "example.com/telemetry".to_owned(),
        add_ons: vec!["telemetry".to_owned()],
        approval: Default::default(),
        registration: Default::default(),
        identity: Default::default(),
        certificate: Default::default(),
        authority: Default::default(),
        gateway: GatewaySpec {
            routes: vec![Route {
                path: "/a".to_owned(),
                upstream: "http://a:1/x".to_owned(),
                methods: vec![Get, Head, Post, Put, Patch, Delete],
                max_body: "64Mi".to_owned(),
                timeout: "30s".to_owned(),
            }],
        },
    }
}

fn mk_status() -> AddOnSignerStatus {
    let time = |text: &str| serde_json::from_value(json!(text)).unwrap();
    AddOnSignerStatus {
        observed_generation: Some(1),
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
