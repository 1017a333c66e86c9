//! `addon-signer check`: what is sound, what is not, and what to do then.

use std::path::Path;

use addon_signer_api::route::CONDITION_PROGRAMMED;
use addon_signer_api::{AddOnRoute, AddOnSigner};
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cli::{Output, run, write};
use crate::whole::{Whole, mk_whole, prepare, serving_anchors};
use test_kit::deploy::{api, apply, file, part};
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, apply_route, change_signer, condition, deploy, wait_csr, wait_ready,
};
use test_kit::objects::{bind_policy, create_namespace, create_service, policy_bindings};
use test_kit::request::mk_csr;
use test_kit::{TestHub, wait_until};

async fn check(hub: &TestHub, home: &Path, flags: &[&str]) -> Output {
    let kubeconfig = write(home, &hub.kubeconfig("admin", &["system:masters"])).display().to_string();
    run(home, &[&["check", "--kubeconfig", &kubeconfig], flags].concat()).await
}

/// The CRDs, which the stand-in does not need to serve the objects.
pub(crate) async fn define(hub: &TestHub) {
    let admin = hub.admin().await;
    for definition in file("deploy/chart/files/crds.yaml").into_iter().filter(|_| !hub.is_real()) {
        let definitions = api(&admin, &definition).await.unwrap();
        definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_sound_installation_is_good_line_by_line() {
    let (hub, admin, whole) = mk_whole("127.0.0.1:9".parse().unwrap()).await;
    define(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    serving_anchors(&admin).await;
    let routes: Api<AddOnRoute> = Api::namespaced(admin.clone(), "default");
    wait_until(TIMEOUT, "the route to be in effect", async || {
        let conditions = routes.get("receive").await.unwrap().status?.conditions;
        conditions.iter().any(|it| it.type_ == CONDITION_PROGRAMMED && it.status == "True").then_some(())
    })
    .await;
    // A policy takes effect some seconds after it was applied.
    let signers: Api<addon_signer_api::AddOnSigner> = Api::all(admin.clone());
    wait_until(3 * TIMEOUT, "the hub to see the policy in force", async || {
        let conditions = signers.get("telemetry").await.unwrap().status?.conditions;
        conditions.iter().any(|it| it.reason == "PolicyInForce").then_some(())
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let gateway = format!("https://{}", whole.gateway);
    let good = check(&hub, home.path(), &["--gateway", &gateway]).await;
    assert_eq!(good.code, 0, "{}{}", good.stdout, good.stderr);
    for line in [
        "ok   API: the API server serves AddOnSigner v1alpha1\n",
        "ok   CRDs: they are those of this version\n",
        if hub.is_real() {
            "ok   namespace addon-signer: only restricted pods may run beside the keys of the authorities\n"
        } else {
            "until you `kubectl label namespace addon-signer pod-security.kubernetes.io/enforce=restricted`\n"
        },
        "ok   Lease addon-signer: hub_",
        "ok   AddOnSigner telemetry: CSRs for this signer are validated and signed.\n",
        "ok   API: the API server serves ClusterManagementAddOn v1",
        "ok   API: the API server serves AddOnTemplate v1alpha1\n",
        "ok   ManifestWorks: it is not installed (trust.manifestWorks)\n",
        "ok   gRPC account: it is not installed (grpcAccount.enabled)\n",
        "ok   anchors of the gateway: a policy lets the role addon-signer-admin change no anchor\n",
        "ok   trust bundle in CSRs: a policy lets only system:serviceaccount:addon-signer:addon-signer set it\n",
        "ok   AddOnRoute default/receive: the gateway passes its requests to 127.0.0.1:9\n",
        "ok   inventory: it is not installed (inventory.enabled)\n",
        &format!("ok   gateway {}: it presents a certificate for this name that agents accept\n", whole.gateway),
    ] {
        assert!(good.stdout.contains(line), "{line}{}", good.stdout);
    }
    policy_bindings(&admin).delete("addon-signer-trust-bundle", &DeleteParams::default()).await.unwrap();
    let unprotected = check(&hub, home.path(), &[]).await;
    let line = "BAD  trust bundle in CSRs: whoever may update CSRs can choose whom a new agent trusts: there \
                is no ValidatingAdmissionPolicyBinding addon-signer-trust-bundle; install the chart again\n";
    assert!(unprotected.stdout.contains(line), "{}", unprotected.stdout);
    bind_policy(&admin, "trust-bundle").await;
    let port = whole.gateway.port();
    let other = check(&hub, home.path(), &["--gateway", &format!("https://localhost:{port}")]).await;
    assert_eq!(other.code, 1, "{}", other.stdout);
    let line = format!("BAD  gateway localhost:{port}: agents do not accept it by this name: ");
    assert!(other.stdout.contains(&line), "{}{}", other.stdout, other.stderr);
    assert!(other.stderr.contains("1 of "), "{}{}", other.stdout, other.stderr);
    whole.stop().await.unwrap();
}

#[tokio::test]
async fn without_an_addonsigner_the_gateway_is_not_blamed() {
    let hub = TestHub::start().await;
    deploy(&hub).await;
    let whole = Whole::start(&hub, Clock::default()).await;
    serving_anchors(&hub.admin().await).await;
    let home = tempfile::tempdir().unwrap();
    let port = whole.gateway.port();
    let found = check(&hub, home.path(), &["--gateway", &format!("https://localhost:{port}")]).await;
    for line in [
        "?    AddOnSigners: none exists, so no addon gets certificates: see deploy/example/signer.yaml\n",
        &format!(
            "?    gateway localhost:{port}: it accepts no connection until an AddOnSigner has a certificate authority"
        ),
    ] {
        assert!(found.stdout.contains(line), "{line}{}", found.stdout);
    }
    assert_eq!(found.code, 0, "{}{}", found.stdout, found.stderr);
    // Nobody listens there: that is another fault.
    let absent = check(&hub, home.path(), &["--gateway", "https://127.0.0.1:9"]).await;
    assert!(absent.stdout.contains("BAD  gateway 127.0.0.1:9: agents cannot reach it: "), "{}", absent.stdout);
    whole.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_not_sound_is_said_with_what_to_do() {
    let hub = TestHub::start().await;
    prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let home = tempfile::tempdir().unwrap();
    let json = check(&hub, home.path(), &["--output", "json"]).await;
    assert_eq!(json.code, 1, "{}", json.stderr);
    let findings: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    let bad: Vec<_> = findings.iter().filter(|found| found["verdict"] == "bad").collect();
    let reported: Vec<_> = bad.iter().map(|found| found["finding"].as_str().unwrap()).collect();
    for sentence in [
        "no hub has been leading in the namespace addon-signer: check the hub's pods and their logs",
        "no hub has reported on it: is one running?",
        "no authority is signing: if a hub is running, its log says why",
    ] {
        assert!(reported.contains(&sentence), "{sentence}: {reported:?}");
    }
}

#[tokio::test]
async fn unreachable_backend_is_reported_with_remedy() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    create_namespace(&admin, "observability").await;
    create_service(&admin, "observability", "receive").await;
    let spec = json!({
        "signer": "telemetry", "match": { "http": [{ "path": "/x" }] },
        "backend": { "service": { "name": "receive", "port": 80 } },
    });
    apply_route(&admin, "observability", "receive", spec).await;
    change_signer(&admin, json!({ "spec": { "gateway": { "routesFrom": { "namespaces": ["default"] } } } })).await;
    let home = tempfile::tempdir().unwrap();
    let has = async |line: &str| {
        wait_until(TIMEOUT, line, async || check(&hub, home.path(), &[]).await.stdout.contains(line).then_some(()))
            .await;
    };
    has("BAD  AddOnRoute observability/receive: no hub has reported on it: is one running?\n").await;
    let whole = Whole::start(&hub, Clock::default()).await;
    has("BAD  AddOnRoute observability/receive: Accepted is False, NotAllowedByListeners: The AddOnSigner").await;
    has("`kubectl label namespace observability addon-signer.io/upstream=true`").await;
    let from = json!({ "spec": { "gateway": { "routesFrom": { "namespaces": ["default", "observability"] } } } });
    change_signer(&admin, from).await;
    has(
        "BAD  AddOnRoute observability/receive: receive:80 has no ready endpoint: its requests are answered with 503\n",
    )
    .await;
    let installation = check(&hub, home.path(), &["--installation"]).await;
    let line = "?    AddOnRoute observability/receive: receive:80 has no ready endpoint: ";
    assert!(installation.stdout.contains(line), "its owner's fault: {}", installation.stdout);
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let label = Patch::Merge(json!({ "metadata": { "labels": { "addon-signer.io/upstream": "true" } } }));
    namespaces.patch("observability", &PatchParams::default(), &label).await.unwrap();
    let let_in = check(&hub, home.path(), &[]).await.stdout;
    assert!(!let_in.contains("kubectl label namespace observability"), "{let_in}");
    whole.stop().await.unwrap();
}

/// Reports this line as the gateway's and as that of the AddOnSigner telemetry, as a hub does.
async fn report(admin: &Client, line: &Value) {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let status = json!({ "status": line });
    signers.patch_status("telemetry", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let metadata = ObjectMeta { name: Some("addon-signer-trust".to_owned()), ..ObjectMeta::default() };
    let data = Some([("status.json".to_owned(), line.to_string())].into());
    let map = ConfigMap { metadata, data, ..ConfigMap::default() };
    let _ = maps.delete("addon-signer-trust", &DeleteParams::default()).await; // there may be none yet
    maps.create(&PostParams::default(), &map).await.unwrap();
}

#[tokio::test]
async fn the_right_to_write_manifest_works_is_bad_without_the_policy() {
    let hub = TestHub::start().await;
    if !hub.is_real() {
        eprintln!("skipped: the stand-in has no RBAC and no policies");
        return;
    }
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let home = tempfile::tempdir().unwrap();
    apply(&admin, &part("manifest-works")).await;
    let has = async |line: &str| {
        let found = check(&hub, home.path(), &[]).await;
        assert!(found.stdout.contains(line), "{line}: {}", found.stdout);
    };
    has("ok   ManifestWorks: the hub may write them, and a policy restricts it to its own ConfigMaps").await;
    let name = "addon-signer-manifest-works";
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
    let edit = async |failure_policy: &str| {
        let edit = Patch::Merge(json!({ "spec": { "failurePolicy": failure_policy } }));
        policies.patch(name, &PatchParams::default(), &edit).await.unwrap();
    };
    edit("Ignore").await;
    has(&format!("the ValidatingAdmissionPolicy {name} does not match this version: it differs in failurePolicy:"))
        .await;
    edit("Fail").await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(admin.clone());
    let warns = Patch::Merge(json!({ "spec": { "validationActions": ["Warn"] } }));
    bindings.patch(name, &PatchParams::default(), &warns).await.unwrap();
    has("BAD  ManifestWorks: the hub may be able to write any ManifestWork, and so anything on every cluster: the V")
        .await;
    bindings.delete(name, &DeleteParams::default()).await.unwrap();
    has(&format!("every cluster: there is no ValidatingAdmissionPolicyBinding {name}: install the chart again")).await;
    policies.delete(name, &DeleteParams::default()).await.unwrap();
    has(&format!("every cluster: there is no ValidatingAdmissionPolicy {name}: install the chart again")).await;
    let rights: Api<ClusterRoleBinding> = Api::all(admin.clone());
    rights.delete(name, &DeleteParams::default()).await.unwrap();
    has("ok   ManifestWorks: it is not installed (trust.manifestWorks)").await;
    let distributed = json!({
        "type": "TrustDistributed", "status": "True", "reason": "Distributed", "message": "m",
        "lastTransitionTime": "2026-11-23T00:00:00Z",
    });
    report(&admin, &json!({ "conditions": [distributed], "authorities": [] })).await;
    has(&format!("?    ManifestWorks: the hub writes them, but there is no ClusterRoleBinding {name} for the nam"))
        .await;
}

#[tokio::test]
async fn unproven_grpc_account_is_bad_and_reported_with_remedy() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let options = RunningHubOptions { grpc_proxy: Some("admin".to_owned()), ..RunningHubOptions::default() };
    let _running = RunningHub::start_with(&hub, options).await;
    wait_ready(&admin, "telemetry", "True").await;
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let name = requests.create(&PostParams::default(), &mk_csr("spoke1", "telemetry")).await.unwrap().name_any();
    wait_csr(&admin, &name, "told why it waits", |csr| condition(csr, "ProxyUnproven")).await;
    let home = tempfile::tempdir().unwrap();
    let has = async |line: &str| {
        let found = check(&hub, home.path(), &[]).await;
        assert!(found.stdout.contains(line), "{line}: {}", found.stdout);
    };
    has("BAD  gRPC account: CSRs waiting: 1. The hub does not answer this CSR of OCM's gRPC server, because \
         the ValidatingAdmissionPolicy addon-signer-grpc-account is not in force, so anyone could change whom the \
         CSR is for. Install the chart again; the binding must deny.\n")
    .await;
    requests.delete(&name, &DeleteParams::default()).await.unwrap();
    has("ok   gRPC account: it is not installed (grpcAccount.enabled)\n").await;
    if hub.is_real() {
        apply(&admin, &part("grpc-account")).await;
        has("ok   gRPC account: a policy protects the annotation that names whom OCM's gRPC server is acting \
             for\n")
        .await;
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(admin.clone());
        bindings.delete("addon-signer-grpc-account", &DeleteParams::default()).await.unwrap();
        has("BAD  gRPC account: anyone may be able to change whom a CSR from OCM's gRPC server is for: there is no")
            .await;
    }
}

#[tokio::test]
async fn without_the_crd_the_one_thing_to_do_is_said() {
    let home = tempfile::tempdir().unwrap();
    let hub = TestHub::start_without_ours().await;
    if !hub.is_real() {
        eprintln!("skipped: the stand-in has the CRD built in");
        return;
    }
    let missing = check(&hub, home.path(), &[]).await;
    assert_eq!((missing.code, missing.stdout.as_str()), (1, ""));
    assert!(missing.stderr.contains("install the chart first (docs/install.md)"), "{}", missing.stderr);
}

/// The program on an administrator's machine may be older or newer than the hub.
#[tokio::test]
async fn a_hub_and_crds_of_another_version_are_said() {
    let hub = TestHub::start().await;
    deploy(&hub).await;
    define(&hub).await;
    let leases: Api<Lease> = Api::namespaced(hub.admin().await, "addon-signer");
    let lease = json!({
        "metadata": { "name": "addon-signer", "annotations": { "addon-signer.io/version": "9.9.9 hub-1" } },
        "spec": {
            "holderIdentity": "hub-1", "leaseDurationSeconds": 15, "leaseTransitions": 1,
            "renewTime": Clock::default().now().to_string().replace('Z', ".000000Z"),
        },
    });
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(hub.admin().await);
    let other = json!([{
        "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/description", "value": "of another version",
    }]);
    let other = Patch::Json::<()>(serde_json::from_value(other).unwrap());
    crds.patch("addonroutes.addon-signer.io", &PatchParams::default(), &other).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let found = check(&hub, home.path(), &[]).await;
    let crd = "BAD  CRD addonroutes.addon-signer.io: its schema is not that of version ";
    assert!(found.stdout.contains(crd) && !found.stdout.contains("CRD addonsigners"), "{}", found.stdout);
    let line = "BAD  Lease addon-signer: hub-1 is leading, in version 9.9.9; this program is ";
    assert!(found.code == 1 && found.stdout.contains(line), "{}{}", found.stdout, found.stderr);
}
