//! Our agent as a container of an addon, beside OCM's own registration agent on a real API server: it asks with the hub
//! identity that OCM keeps for the addon, and no pod of the addon has the cluster's.

use std::path::Path;
use std::time::Duration;

use addon_signer_platform::clock::Clock;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::{Whole, prepare, serving_anchors};
use crate::gateway::backend;
use test_kit::built::agent_program;
use test_kit::deploy::{apply, part};
use test_kit::hub::change_signer;
use test_kit::objects::managed_cluster_addons;
use test_kit::ocm::{ADDON_NAMESPACE, OcmAgent, approve};
use test_kit::process::Process;
use test_kit::{TestHub, install_addon, wait_until};

const ADDON: &str = "system:open-cluster-management:cluster:spoke1:addon:telemetry";
const KUBE_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const OWNER: &str = "telemetry-agent";
const TIMEOUT: Duration = Duration::from_secs(120);

/// Registers the addon for the API server, as OCM's addon-manager does for `type: KubeClient` in its AddOnTemplate (ocm
/// v1.2.1 `pkg/addon/templateagent/registration.go`), and approves its request.
async fn register(admin: &Client, agent: &OcmAgent) {
    let groups = [ADDON, "system:open-cluster-management:addon:telemetry", "system:authenticated"];
    let subject = json!({ "user": format!("{ADDON}:agent:a1"), "groups": groups });
    let status = json!({ "status": { "registrations": [{ "signerName": KUBE_CLIENT, "subject": subject }] } });
    let addons = managed_cluster_addons(admin, "spoke1").await;
    addons.patch_status("telemetry", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let labels = ListParams::default().labels("open-cluster-management.io/addon-name=telemetry");
    let request = agent.wait_until(TIMEOUT, "the addon's request for the API server", async || {
        requests.list(&labels).await.unwrap().items.into_iter().find(|csr| csr.spec.signer_name == KUBE_CLIENT)
    });
    approve(&requests, &request.await.metadata.name.unwrap()).await;
}

/// Mounts the Secret that OCM's agent keeps for the addon, as a kubelet does.
async fn mount(admin: &Client, agent: &OcmAgent, dir: &Path) {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let kept = agent.wait_until(TIMEOUT, "the addon's hub kubeconfig", async || {
        let data = secrets.get_opt("telemetry-hub-kubeconfig").await.unwrap()?.data?;
        ["kubeconfig", "tls.crt", "tls.key"].iter().all(|name| data.contains_key(*name)).then_some(data)
    });
    for (name, bytes) in kept.await {
        std::fs::write(dir.join(name), bytes.0).unwrap();
    }
}

fn start_our_agent(whole: &Whole, kubeconfig: &Path, dir: &Path) -> Process {
    let arguments = [
        "--cluster=spoke1".to_owned(),
        "--addon=telemetry".to_owned(),
        "--signer=example.com/telemetry".to_owned(),
        format!("--gateway=https://{}", whole.gateway),
        format!("--hub-kubeconfig={}", dir.join("kubeconfig").display()),
        format!("--secret-namespace={ADDON_NAMESPACE}"),
        format!("--health-lease={ADDON_NAMESPACE}"),
        format!("--owner=serviceaccount/{OWNER}"),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    Process::start(&agent_program(), &arguments, dir)
}

#[tokio::test]
async fn agent_with_addon_identity_is_healthy_and_leaves_nothing() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = prepare(&hub, backend::start().await, "24h").await;
    apply(&admin, &part("requesters")).await;
    let external =
        json!({ "spec": { "registration": "External", "identity": { "requesters": ["Cluster", "AddOn"] } } });
    change_signer(&admin, external).await;
    let whole = Whole::start(&hub, Clock::default()).await;
    let ocm = OcmAgent::start(real, "spoke1", "a1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    serving_anchors(&admin).await;
    register(&admin, &ocm).await;
    let dir = tempfile::tempdir().unwrap();
    mount(&admin, &ocm, dir.path()).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let metadata = ObjectMeta { name: Some(OWNER.to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    accounts.create(&PostParams::default(), &account).await.unwrap();

    let spoke = real.kubeconfig_file("agent-of-addon", "agent-of-addon", &["system:masters"]);
    let ours = start_our_agent(&whole, &spoke, dir.path());
    let addons = managed_cluster_addons(&admin, "spoke1").await;
    let available = async || {
        let status = addons.get("telemetry").await.unwrap().data["status"].clone();
        let conditions = status["conditions"].as_array()?.clone();
        conditions.into_iter().find(|condition| condition["reason"] == "ManagedClusterAddOnLeaseUpdated")
    };
    let condition = ocm.wait_until(TIMEOUT, &format!("the addon to be available:\n{}", ours.tail()), available).await;
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Available"), &json!("True")));
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    assert_eq!(secrets.get("telemetry-client-cert").await.unwrap().data.unwrap().len(), 3);
    let asked: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let by = ListParams::default().fields("spec.signerName=example.com/telemetry");
    let users: Vec<_> = asked.list(&by).await.unwrap().items.into_iter().map(|csr| csr.spec.username).collect();
    assert_eq!(users, [Some(format!("{ADDON}:agent:a1"))], "nobody asked with the cluster's identity");

    drop(ours); // the addon goes: its pods end, and the objects of its ManifestWork are deleted
    accounts.delete(OWNER, &Default::default()).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    wait_until(TIMEOUT, "Kubernetes to clean up", async || {
        let secret = secrets.get_opt("telemetry-client-cert").await.unwrap();
        (secret.is_none() && leases.get_opt("telemetry").await.unwrap().is_none()).then_some(())
    })
    .await;
    whole.stop().await.unwrap();
}
