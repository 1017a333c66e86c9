//! OCM's own registration agent, unmodified, joined to a real hub.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::objects::{create_namespace, managed_clusters};
use super::process::{Process, free_port};
use super::real::RealHub;
use super::wait::wait_or_explain;
use super::{accept_cluster, client, crds};

const AGENT_NAMESPACE: &str = "open-cluster-management-agent";
/// Where the agent writes an addon's Secret unless the addon says otherwise.
pub(crate) const ADDON_NAMESPACE: &str = "open-cluster-management-agent-addon";
const BOOTSTRAP_GROUP: &str = "bootstrappers";
const STEP: Duration = Duration::from_secs(60);

/// An agent that has joined the hub. The hub's API server is its managed cluster too. Dropping it kills it.
pub(crate) struct OcmAgent {
    process: Process,
}

impl OcmAgent {
    /// Starts the agent of `cluster`, accepts the cluster, approves its request and waits until kube-controller-manager
    /// has signed it and the agent has stored its hub kubeconfig.
    pub(crate) async fn start(hub: &RealHub, cluster: &str, agent_id: &str) -> Self {
        let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;
        prepare(&admin).await;
        hub.start_controller_manager();
        let program = hub.binary("registration-agent");
        let dir = hub.dir().join(format!("agent-{cluster}"));
        std::fs::create_dir(&dir).unwrap();
        let secret = format!("hub-kubeconfig-{cluster}");
        let flags = flags(hub, cluster, agent_id, &secret);
        let agent = Self { process: Process::start(&program, &flags, &dir) };
        agent.join(&admin, cluster, &secret).await;
        agent
    }

    /// Starts the cluster's work agent, which applies ManifestWorks with the credential of this agent.
    pub(crate) fn start_work_agent(&self, hub: &RealHub, cluster: &str, agent_id: &str) -> Process {
        let spoke = hub.kubeconfig_file(&format!("{cluster}-work"), "spoke-admin", &["system:masters"]);
        let credential = hub.dir().join(format!("agent-{cluster}/hub/kubeconfig"));
        let dir = hub.dir().join(format!("work-{cluster}"));
        std::fs::create_dir(&dir).unwrap();
        let flags = [
            format!("--kubeconfig={}", spoke.display()),
            format!("--spoke-kubeconfig={}", spoke.display()),
            format!("--hub-kubeconfig={}", credential.display()),
            "--workload-source-driver=kube".to_owned(),
            format!("--workload-source-config={}", credential.display()),
            format!("--spoke-cluster-name={cluster}"),
            format!("--agent-id={agent_id}"),
            format!("--namespace={AGENT_NAMESPACE}"),
            "--disable-leader-election".to_owned(),
            format!("--listen=127.0.0.1:{}", free_port()),
        ];
        Process::start(&hub.binary("work-agent"), &flags, &dir)
    }

    /// Waits as `wait_until` does; a failure shows the end of the agent's log.
    pub(crate) async fn wait_until<T>(
        &self,
        timeout: Duration,
        what: &str,
        probe: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let tail = || format!("the agent's log ends:\n{}", self.process.tail());
        wait_or_explain(timeout, what, probe, tail).await
    }

    async fn join(&self, admin: &Client, cluster: &str, secret: &str) {
        let clusters = managed_clusters(admin);
        self.wait_until(STEP, "the agent to create its ManagedCluster", async || {
            clusters.get_opt(cluster).await.unwrap()
        })
        .await;
        accept_cluster(admin, cluster).await;
        let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
        let labels = format!("open-cluster-management.io/cluster-name={cluster}");
        let request = self
            .wait_until(STEP, "the agent to ask for its hub credential", async || {
                requests.list(&ListParams::default().labels(&labels)).await.unwrap().items.pop()
            })
            .await;
        approve(&requests, &request.metadata.name.unwrap()).await;
        let secrets: Api<Secret> = Api::namespaced(admin.clone(), AGENT_NAMESPACE);
        self.wait_until(STEP, "the agent to store its hub kubeconfig", async || {
            let data = secrets.get_opt(secret).await.unwrap()?.data?;
            data.contains_key("kubeconfig").then_some(())
        })
        .await;
    }
}

/// Creates what the klusterlet operator would create on the managed cluster, and grants the rights of a bootstrap
/// credential on the hub. Does this once for each hub.
async fn prepare(admin: &Client) {
    if Api::<k8s_openapi::api::rbac::v1::ClusterRole>::all(admin.clone())
        .get_opt(BOOTSTRAP_GROUP)
        .await
        .unwrap()
        .is_some()
    {
        return;
    }
    create_namespace(admin, AGENT_NAMESPACE).await;
    create_namespace(admin, ADDON_NAMESPACE).await;
    let rules = json!([
        { "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
          "verbs": ["create", "get", "list", "watch"] },
        { "apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters"],
          "verbs": ["create", "get", "update"] },
    ]);
    crds::grant(admin, BOOTSTRAP_GROUP, BOOTSTRAP_GROUP, rules).await;
}

fn flags(hub: &RealHub, cluster: &str, agent_id: &str, secret: &str) -> Vec<String> {
    let file = |path: PathBuf| path.display().to_string();
    let spoke = hub.kubeconfig_file(&format!("{cluster}-spoke"), "spoke-admin", &["system:masters"]);
    let bootstrap = hub.kubeconfig_file(&format!("{cluster}-bootstrap"), "bootstrap", &[BOOTSTRAP_GROUP]);
    vec![
        format!("--kubeconfig={}", file(spoke)),
        format!("--bootstrap-kubeconfig={}", file(bootstrap)),
        format!("--hub-kubeconfig-dir={}", file(hub.dir().join(format!("agent-{cluster}/hub")))),
        format!("--hub-kubeconfig-secret={secret}"),
        format!("--spoke-cluster-name={cluster}"),
        format!("--agent-id={agent_id}"),
        format!("--namespace={AGENT_NAMESPACE}"),
        "--disable-leader-election".to_owned(),
        format!("--listen=127.0.0.1:{}", free_port()),
        "--feature-gates=AddonManagement=true,ClusterClaim=false".to_owned(),
    ]
}

pub(crate) async fn approve(requests: &Api<CertificateSigningRequest>, name: &str) {
    let approval = json!({ "status": { "conditions": [{
        "type": "Approved", "status": "True", "reason": "TestAccepted", "message": "accepted by the test",
    }]}});
    requests.patch_approval(name, &PatchParams::default(), &Patch::Merge(&approval)).await.unwrap();
}
