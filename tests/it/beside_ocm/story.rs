//! The example of docs/writing-an-addon.md from end to end, with all of OCM: its hub controllers, its agents on three
//! managed clusters, and both versions of its addon API. Only a kubelet is played.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use addon_signer_api::AddOnSigner;
use addon_signer_platform::clock::Clock;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::hub::distribution::APPLIED_FOR;
use crate::whole::{Whole, get, rotate};
use addon_signer_core::names::ANNOTATION_ROTATE;
use test_kit::built::{agent_program, example_program};
use test_kit::deploy::{apply, example, part};
use test_kit::hub::deploy;
use test_kit::kubelet::{Kubelet, Pod};
use test_kit::needed::{Needed, has};
use test_kit::objects::{create_namespace, managed_cluster_addons, managed_clusters, manifest_works};
use test_kit::ocm::{OcmAgent, Spoke};
use test_kit::process::{Process, free_port};
use test_kit::programs::{AddOnWebhook, start_addon_webhook, start_controller};
use test_kit::real::{RealHub, assets};
use test_kit::tunnels::TunnelProxy;
use test_kit::{TestHub, client, crds, wait_until};

/// The managed clusters. No name begins another one: OCM's addon-manager confuses such clusters.
const CLUSTERS: [&str; 3] = ["north", "south", "west"];
/// Its AddOnDeploymentConfig has a proxy, which the template gives to the sidecar.
const BEHIND_PROXY: &str = "south";
const ADDONS: [&str; 2] = ["telemetry", "telemetry-plain"];
/// The Secrets with their certificates.
const CERTIFICATES: [&str; 2] = ["telemetry-client-cert", "telemetry-plain-example.com-telemetry-client-cert"];
/// The Deployments of the two AddOnTemplates.
const DEPLOYMENTS: [&str; 2] = ["telemetry-agent", "telemetry-plain-agent"];
const SETTINGS: &str = "open-cluster-management";
const TIMEOUT: Duration = Duration::from_secs(180);

/// OCM on a hub, and an API server that the three managed clusters share, each with an install namespace of its own.
struct Fleet {
    hub: TestHub,
    admin: Client,
    own: RealHub,
    own_admin: Client,
    _webhook: AddOnWebhook,
    _programs: Vec<Process>,
    _agents: Vec<OcmAgent>,
}

impl Fleet {
    async fn start() -> Self {
        let (hub, own) = RealHub::start_two().await;
        let assets = assets().unwrap();
        let masters = ["system:masters"];
        let admin = client(hub.kubeconfig("admin", &masters)).await;
        let own_admin = client(own.kubeconfig("admin", &masters)).await;
        let webhook = start_addon_webhook(&hub).await;
        crds::install_whole(&admin, &assets, &webhook.url, &hub.ca().pair().cert).await;
        crds::install_applied_works(&own_admin, &assets).await;
        own.start_controller_manager(); // what an addon owned is cleaned up
        create_namespace(&admin, SETTINGS).await;
        let mut programs = Vec::new();
        for name in ["registration-controller", "placement-controller", "work-controller", "addon-manager"] {
            programs.push(start_controller(&hub, name).await);
        }
        let mut fleet = Self {
            hub: TestHub::Real(Box::new(hub)),
            admin,
            own,
            own_admin,
            _webhook: webhook,
            _programs: programs,
            _agents: Vec::new(),
        };
        fleet.join().await;
        fleet
    }

    /// The clusters join, and their work agents start.
    async fn join(&mut self) {
        let hub = self.hub.real().unwrap();
        let servers = [hub.server("127.0.0.1"), hub.server("localhost"), hub.server("127.0.0.1") + "/"];
        for (cluster, server) in CLUSTERS.into_iter().zip(servers) {
            create_namespace(&self.own_admin, &install_namespace(cluster)).await;
            let spoke = Spoke { hub, own: &self.own, cluster, agent_id: cluster, server };
            let agent = OcmAgent::join(&spoke).await;
            self._programs.push(agent.start_work_agent(&spoke));
            self._agents.push(agent);
            self.label(cluster, json!(cluster)).await;
        }
    }

    /// The label by which a Placement finds the cluster.
    async fn label(&self, cluster: &str, value: Value) {
        let body = json!({ "metadata": { "labels": { "site": value } } });
        managed_clusters(&self.admin).patch(cluster, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    }

    /// Installs the example with this gateway and this backend, for the three clusters by Placements. Agents of one
    /// cluster reach the hub through this proxy.
    async fn install(&self, gateway: &str, proxy: &TunnelProxy) {
        let mut objects = [part("requesters"), example()].concat();
        objects.retain(|object| object["kind"] != "AddOnSigner" && object["kind"] != "AddOnRoute");
        let settings = objects.iter().find(|object| object["kind"] == "AddOnDeploymentConfig").unwrap().clone();
        for object in &mut objects {
            if object["kind"] == "ClusterManagementAddOn" {
                object["spec"]["installStrategy"] = json!({ "type": "Placements", "placements": CLUSTERS.map(placed) });
            }
        }
        for cluster in CLUSTERS {
            let mut own = settings.clone();
            own["metadata"]["name"] = json!(cluster);
            own["spec"]["agentInstallNamespace"] = json!(install_namespace(cluster));
            own["spec"]["customizedVariables"][0]["value"] = json!(gateway);
            if cluster == BEHIND_PROXY {
                own["spec"]["customizedVariables"][1]["value"] = json!(format!("http://{}", proxy.address));
            }
            objects.extend([own, placement(cluster)]);
        }
        objects.push(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": { "name": "global", "namespace": SETTINGS }, "spec": { "clusterSet": "global" },
        }));
        apply(&self.admin, &objects).await;
    }

    fn kubelet(&self, cluster: &str) -> Kubelet {
        let namespace = install_namespace(cluster);
        let user = format!("system:serviceaccount:{namespace}:telemetry-agent");
        let account = self.own.kubeconfig_file(&namespace, &user, &["system:serviceaccounts"]);
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/telemetry/agent.py");
        let images = BTreeMap::from([
            ("addon-signer-agent", vec![agent_program()]),
            ("telemetry", vec![example_program("telemetry-agent")]),
            ("telemetry-python", vec![PathBuf::from("python3"), python]),
        ]);
        Kubelet { client: self.own_admin.clone(), namespace, images, account }
    }

    /// How many writes to the hub's API server who has made. docs/figures.md has them.
    fn print_writes(&self) {
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for write in self.hub.real().unwrap().writes() {
            let object = write.object.unwrap_or_default();
            let resource = object.split('/').next().unwrap_or_default().to_owned();
            let is_agent = write.user.starts_with("system:open-cluster-management:");
            let user = if is_agent { "OCM's agents".to_owned() } else { write.user };
            *counts.entry((user, resource)).or_default() += 1;
        }
        counts.iter().for_each(|((user, resource), count)| println!("{count:5} {user}: {resource}"));
    }

    /// The pods of both addons on every cluster, by cluster.
    async fn run_pods(&self) -> BTreeMap<&'static str, [Pod; 2]> {
        let pods = CLUSTERS.map(async |cluster| {
            let pods = DEPLOYMENTS.map(|name| self.kubelet(cluster).run(name));
            (cluster, join_all(pods).await.try_into().ok().unwrap())
        });
        join_all(pods).await.into_iter().collect()
    }
}

fn install_namespace(cluster: &str) -> String {
    format!("addons-of-{cluster}")
}

fn placed(cluster: &str) -> Value {
    let settings = json!({
        "group": "addon.open-cluster-management.io", "resource": "addondeploymentconfigs",
        "name": cluster, "namespace": SETTINGS,
    });
    json!({ "name": cluster, "namespace": SETTINGS, "configs": [settings] })
}

fn placement(cluster: &str) -> Value {
    let selector = json!({ "labelSelector": { "matchLabels": { "site": cluster } } });
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": { "name": cluster, "namespace": SETTINGS },
        "spec": { "clusterSets": ["global"], "predicates": [{ "requiredClusterSelector": selector }] },
    })
}

/// The example's AddOnSigner and AddOnRoute with a backend on this machine.
async fn create_signer(admin: &Client, backend: u16) {
    let mut objects = example();
    objects.retain(|object| ["AddOnSigner", "AddOnRoute", "Namespace"].iter().any(|kind| object["kind"] == *kind));
    for route in objects.iter_mut().filter(|object| object["kind"] == "AddOnRoute") {
        route["spec"]["backend"] = json!({ "address": format!("127.0.0.1:{backend}") });
    }
    apply(admin, &objects).await;
}

/// How many pushes the backend has had of each addon on each cluster.
async fn pushes(backend: u16) -> BTreeMap<String, u64> {
    let (_, answer) = get(([127, 0, 0, 1], backend).into(), "/totals").await;
    let totals: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let totals = totals.as_object().unwrap().iter();
    totals.map(|(who, total)| (who.clone(), total["pushes"].as_u64().unwrap())).collect()
}

/// Waits until each of these addons has pushed some more.
async fn wait_pushes(backend: u16, clusters: &[&str], pods: &BTreeMap<&'static str, [Pod; 2]>) {
    let before = pushes(backend).await;
    let who = clusters.iter().flat_map(|cluster| ADDONS.map(|addon| format!("{cluster}/{addon}")));
    for who in who {
        let enough = before.get(&who).copied().unwrap_or_default() + 3;
        let log = || pods.values().flatten().map(|pod| pod.log("signer") + &pod.log("telemetry")).collect::<String>();
        let what = format!("pushes of {who}");
        let probe = async || (pushes(backend).await.get(&who).copied().unwrap_or_default() >= enough).then_some(());
        test_kit::wait::wait_or_explain(TIMEOUT, &what, probe, log).await;
    }
}

/// No push failed after the first one that passed; before it, trust bundle and registration may not have arrived yet.
fn assert_no_push_failed<'p>(pods: impl IntoIterator<Item = &'p Pod>) {
    for pod in pods {
        let log = pod.log("telemetry");
        let mut since = log.lines().skip_while(|line| *line != "pushed").peekable();
        assert!(since.peek().is_some(), "nothing was pushed: {log}");
        let failed = since.find(|line| line.starts_with("failed"));
        assert_eq!(failed, None, "{log}");
    }
}

async fn is_available(admin: &Client, cluster: &str, addon: &str) -> bool {
    let status = managed_cluster_addons(admin, cluster).await.get(addon).await.unwrap().data["status"].clone();
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Available" && condition["status"] == "True")
}

/// The gateway's authority is replaced: every cluster and every agent has the new anchor before it signs. The wait for
/// kubelets and for agents that fetch the bundle is skipped: this kubelet shows a change within a second.
async fn rotate_serving(fleet: &Fleet, clock: &Clock) {
    let maps: Api<ConfigMap> = Api::namespaced(fleet.admin.clone(), "addon-signer");
    let body = json!({ "metadata": { "annotations": { ANNOTATION_ROTATE: "a test" } } });
    maps.patch("addon-signer-trust", &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    for (cluster, addon) in CLUSTERS.iter().flat_map(|cluster| ADDONS.map(|addon| (cluster, addon))) {
        let maps: Api<ConfigMap> = Api::namespaced(fleet.own_admin.clone(), &install_namespace(cluster));
        wait_until(TIMEOUT, &format!("both anchors for {addon} on {cluster}"), async || {
            let data = maps.get_opt(&format!("{addon}-hub-trust")).await.unwrap()?.data?;
            (data["ca.crt"].matches("BEGIN CERTIFICATE").count() == 2).then_some(())
        })
        .await;
    }
    let begun = Instant::now();
    let report = async || {
        let map = maps.get("addon-signer-trust").await.unwrap();
        serde_json::from_str::<Value>(&map.data.unwrap()["status.json"]).unwrap()
    };
    let all_applied = async || {
        let rotation = report().await["rotation"].take();
        let waits = rotation["waitingFor"].as_str()?.to_owned();
        let is_all = waits.starts_with("pods and agents to use the new anchor") && waits.contains("and 3 more");
        let is_counted = rotation["ready"] == 6 && rotation["total"] == 6;
        (is_all && is_counted && rotation["stragglers"].as_array()?.len() == 6).then_some(waits)
    };
    println!("It waits for {}", wait_until(2 * TIMEOUT, "every cluster to apply it", all_applied).await);
    clock.advance(APPLIED_FOR);
    wait_until(2 * TIMEOUT, "the gateway's new authority to sign", async || {
        (report().await["authorities"][0]["state"] != "Next").then_some(())
    })
    .await;
    println!("{:?} until the gateway's new authority signed", begun.elapsed());
}

/// Every agent gets a certificate of the new client authority. OCM's agent notices a new authority only when it renews;
/// here its Secret is deleted, and the pods keep what they have until it is there again.
async fn replace_certificates(fleet: &Fleet) {
    for (cluster, name) in CLUSTERS.iter().flat_map(|cluster| CERTIFICATES.map(|name| (cluster, name))) {
        let secrets: Api<Secret> = Api::namespaced(fleet.own_admin.clone(), &install_namespace(cluster));
        let before = secrets.get(name).await.unwrap().metadata.uid;
        secrets.delete(name, &Default::default()).await.unwrap();
        wait_until(TIMEOUT, &format!("{name} on {cluster}"), async || {
            secrets.get_opt(name).await.unwrap().filter(|secret| secret.metadata.uid != before)
        })
        .await;
    }
}

/// Both addons leave the cluster, and nothing of theirs stays there or on the hub.
async fn detach(fleet: &Fleet, cluster: &str) {
    fleet.label(cluster, Value::Null).await;
    let namespace = install_namespace(cluster);
    let of_kubernetes = ["kube-root-ca.crt", "default"]; // in every namespace
    wait_until(TIMEOUT, "the addons to leave nothing", async || {
        let own = &fleet.own_admin;
        let left = [
            names(&Api::<Deployment>::namespaced(own.clone(), &namespace)).await,
            names(&Api::<Secret>::namespaced(own.clone(), &namespace)).await,
            names(&Api::<ConfigMap>::namespaced(own.clone(), &namespace)).await,
            names(&Api::<ServiceAccount>::namespaced(own.clone(), &namespace)).await,
            names(&Api::<Role>::namespaced(own.clone(), &namespace)).await,
            names(&Api::<RoleBinding>::namespaced(own.clone(), &namespace)).await,
            names(&manifest_works(&fleet.admin, cluster)).await,
            names(&managed_cluster_addons(&fleet.admin, cluster).await).await,
        ];
        left.concat().iter().all(|name| of_kubernetes.contains(&name.as_str())).then_some(())
    })
    .await;
}

async fn names<K: Clone + DeserializeOwned + Debug + ResourceExt>(api: &Api<K>) -> Vec<String> {
    api.list(&Default::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_addons_on_three_clusters_from_placement_to_detachment() {
    if !has(Needed::ApiServer, assets().is_some()) {
        return;
    }
    let fleet = Fleet::start().await;
    deploy(&fleet.hub).await;
    apply(&fleet.admin, &part("manifest-works")).await;
    let port = free_port();
    create_signer(&fleet.admin, port).await;
    // The hub's clock is late until the test skips that wait; then it is right.
    let clock = Clock::default();
    clock.set_back(APPLIED_FOR);
    let whole = Whole::start(&fleet.hub, clock.clone()).await;
    let dir = tempfile::tempdir().unwrap();
    let listen = [format!("LISTEN=127.0.0.1:{port}"), example_program("telemetry-backend").display().to_string()];
    let _backend = Process::start(Path::new("/usr/bin/env"), &listen, dir.path());
    let (proxy, gateway) = (TunnelProxy::start().await, whole.gateway.to_string());
    fleet.install(&format!("https://{gateway}"), &proxy).await;

    let begun = Instant::now();
    let pods = fleet.run_pods().await;
    wait_pushes(port, &CLUSTERS, &pods).await;
    println!("{:?} after the Placements every addon has pushed three times", begun.elapsed());
    assert!(proxy.was_asked_for(&gateway), "the agent of {BEHIND_PROXY} goes through the proxy");
    fleet.print_writes();
    for (cluster, addon) in CLUSTERS.iter().flat_map(|cluster| ADDONS.map(|addon| (cluster, addon))) {
        wait_until(TIMEOUT, &format!("{addon} on {cluster} to be available"), async || {
            is_available(&fleet.admin, cluster, addon).await.then_some(())
        })
        .await;
    }
    let signer: AddOnSigner = Api::all(fleet.admin.clone()).get("telemetry").await.unwrap();
    let conditions = signer.status.unwrap().conditions;
    let bad = conditions.iter().find(|reported| reported.type_ == "Registered" && reported.status != "True");
    assert!(bad.is_none(), "{conditions:?}");

    rotate(&fleet.admin).await;
    wait_pushes(port, &CLUSTERS, &pods).await;
    rotate_serving(&fleet, &clock).await;
    wait_pushes(port, &CLUSTERS, &pods).await;
    replace_certificates(&fleet).await;
    wait_pushes(port, &CLUSTERS, &pods).await;
    assert_no_push_failed(pods.values().flatten());
    detach(&fleet, "north").await;
    let staying: Vec<&Pod> =
        pods.iter().filter(|(cluster, _)| **cluster != "north").flat_map(|(_, pods)| pods).collect();
    wait_pushes(port, &["south", "west"], &pods).await;
    assert_no_push_failed(staying);
    println!("{:?}", pushes(port).await);
    whole.stop().await.unwrap();
}
