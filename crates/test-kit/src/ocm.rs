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
pub const ADDON_NAMESPACE: &str = "open-cluster-management-agent-addon";
const BOOTSTRAP_GROUP: &str = "bootstrappers";
const STEP: Duration = Duration::from_secs(60);

/// A managed cluster, and how its agents reach the hub.
pub struct Spoke<'h> {
    pub hub: &'h RealHub,
    /// Its own API server; several clusters may share one, and it may be the hub's.
    pub own: &'h RealHub,
    pub cluster: &'h str,
    pub agent_id: &'h str,
    /// The hub's URL. Work agents name AppliedManifestWorks after it, so clusters that share an API server need
    /// different ones.
    pub server: String,
}

/// An agent that has joined the hub. Dropping it kills it.
pub struct OcmAgent {
    process: Process,
}

impl OcmAgent {
    /// Starts the agent of a cluster whose API server is the hub's.
    pub async fn start(hub: &RealHub, cluster: &str, agent_id: &str) -> Self {
        Self::join(&Spoke { hub, own: hub, cluster, agent_id, server: hub.server("127.0.0.1") }).await
    }

    /// Starts the cluster's agent, accepts the cluster, approves its request and waits until kube-controller-manager
    /// has signed it and the agent has stored its hub kubeconfig.
    pub async fn join(spoke: &Spoke<'_>) -> Self {
        let Spoke { hub, own, cluster, .. } = spoke;
        let admin = admin_of(hub).await;
        prepare(&admin, &admin_of(own).await).await;
        hub.start_controller_manager();
        let dir = hub.dir().join(format!("agent-{cluster}"));
        std::fs::create_dir(&dir).unwrap();
        let secret = format!("hub-kubeconfig-{cluster}");
        let process = Process::start(&hub.binary("registration-agent"), &flags(spoke, &secret), &dir);
        let agent = Self { process };
        agent.be_accepted(&admin, &admin_of(own).await, cluster, &secret).await;
        agent
    }

    /// Starts the agent of a cluster again that has joined before.
    pub fn restart(hub: &RealHub, cluster: &str, agent_id: &str) -> Self {
        let spoke = Spoke { hub, own: hub, cluster, agent_id, server: hub.server("127.0.0.1") };
        let dir = hub.dir().join(format!("agent-{cluster}"));
        let flags = flags(&spoke, &format!("hub-kubeconfig-{cluster}"));
        Self { process: Process::start(&hub.binary("registration-agent"), &flags, &dir) }
    }

    /// Starts the cluster's work agent, which applies ManifestWorks with the credential of this agent.
    pub fn start_work_agent(&self, spoke: &Spoke<'_>) -> Process {
        let Spoke { hub, own, cluster, agent_id, .. } = spoke;
        let own = own.kubeconfig_file(&format!("{cluster}-work"), "spoke-admin", &["system:masters"]);
        let credential = hub.dir().join(format!("agent-{cluster}/hub/kubeconfig"));
        // One for each start, in the hub's directory, which goes with the hub.
        let dir = tempfile::Builder::new().prefix(&format!("work-{cluster}-")).tempdir_in(hub.dir()).unwrap().keep();
        let flags = [
            format!("--kubeconfig={}", own.display()),
            format!("--spoke-kubeconfig={}", own.display()),
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
    pub async fn wait_until<T>(&self, timeout: Duration, what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
        let tail = || format!("the agent's log ends:\n{}", self.process.tail());
        wait_or_explain(timeout, what, probe, tail).await
    }

    async fn be_accepted(&self, admin: &Client, own: &Client, cluster: &str, secret: &str) {
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
        let secrets: Api<Secret> = Api::namespaced(own.clone(), AGENT_NAMESPACE);
        self.wait_until(STEP, "the agent to store its hub kubeconfig", async || {
            let data = secrets.get_opt(secret).await.unwrap()?.data?;
            data.contains_key("kubeconfig").then_some(())
        })
        .await;
    }
}

/// Creates what the klusterlet operator would create on the managed cluster, and grants the rights of a bootstrap
/// credential on the hub. Does this once for each hub.
async fn prepare(admin: &Client, own: &Client) {
    create_namespace(own, AGENT_NAMESPACE).await;
    create_namespace(own, ADDON_NAMESPACE).await;
    if Api::<k8s_openapi::api::rbac::v1::ClusterRole>::all(admin.clone())
        .get_opt(BOOTSTRAP_GROUP)
        .await
        .unwrap()
        .is_some()
    {
        return;
    }
    let rules = json!([
        { "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
          "verbs": ["create", "get", "list", "watch"] },
        { "apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters"],
          "verbs": ["create", "get", "update"] },
    ]);
    crds::grant(admin, BOOTSTRAP_GROUP, BOOTSTRAP_GROUP, rules).await;
}

async fn admin_of(hub: &RealHub) -> Client {
    client(hub.kubeconfig("admin", &["system:masters"])).await
}

fn flags(spoke: &Spoke<'_>, secret: &str) -> Vec<String> {
    let Spoke { hub, own, cluster, agent_id, server } = spoke;
    let file = |path: PathBuf| path.display().to_string();
    let own = own.kubeconfig_file(&format!("{cluster}-spoke"), "spoke-admin", &["system:masters"]);
    let mut bootstrap = hub.kubeconfig("bootstrap", &[BOOTSTRAP_GROUP]);
    bootstrap.clusters[0].cluster.as_mut().unwrap().server = Some(server.clone());
    let bootstrap_file = hub.dir().join(format!("{cluster}-bootstrap.kubeconfig"));
    std::fs::write(&bootstrap_file, serde_saphyr::to_string(&bootstrap).unwrap()).unwrap();
    vec![
        format!("--kubeconfig={}", file(own)),
        format!("--bootstrap-kubeconfig={}", file(bootstrap_file)),
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

pub async fn approve(requests: &Api<CertificateSigningRequest>, name: &str) {
    let approval = json!({ "status": { "conditions": [{
        "type": "Approved", "status": "True", "reason": "TestAccepted", "message": "accepted by the test",
    }]}});
    requests.patch_approval(name, &PatchParams::default(), &Patch::Merge(&approval)).await.unwrap();
}
