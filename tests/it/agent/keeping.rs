//! The agent keeps its certificate, key and anchors complete and current, and restores them.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use addon_signer_agent::store::Store;
use addon_signer_agent::{Agent, Outcome};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use tokio::task::AbortHandle;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::parts::{AgentWorld, NAMESPACE, SOON, USER};
use test_kit::log::capture;
use test_kit::secrets::{find, private_bytes};
use test_kit::wait_until;

const NAME: &str = "telemetry-client-cert";

fn secrets(world: &AgentWorld) -> Api<Secret> {
    Api::namespaced(world.admin.clone(), NAMESPACE)
}

async fn data(world: &AgentWorld) -> BTreeMap<String, ByteString> {
    secrets(world).get(NAME).await.unwrap().data.unwrap()
}

/// Waits for a complete pair other than `old`.
async fn new_data(world: &AgentWorld, old: &BTreeMap<String, ByteString>) -> BTreeMap<String, ByteString> {
    wait_until(SOON, "a new pair", async || {
        let found = secrets(world).get_opt(NAME).await.unwrap()?.data?;
        (found.get("tls.crt") != old.get("tls.crt") && found.get("tls.key")?.0.len() > 100).then_some(found)
    })
    .await
}

/// The CN of the certificate.
fn user(data: &BTreeMap<String, ByteString>) -> String {
    let (_, pem) = x509_parser::pem::parse_x509_pem(&data["tls.crt"].0).unwrap();
    let (_, leaf) = X509Certificate::from_der(&pem.contents).unwrap();
    leaf.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
}

/// A running agent, which ends when this is dropped.
struct RunningAgent(AbortHandle);

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn run(agent: Agent) -> RunningAgent {
    RunningAgent(tokio::spawn(agent.run()).abort_handle())
}

/// OCM renews the hub credential in a Secret that is mounted.
#[tokio::test]
async fn a_kubeconfig_that_somebody_replaces_is_read_again() {
    let (world, mut agent) = AgentWorld::enrolled().await;
    let renewed = "system:open-cluster-management:cluster1:a2";
    let groups = ["system:open-cluster-management:cluster1", "system:open-cluster-management:managed-clusters"];
    world.write_kubeconfig(renewed, &groups);
    world.make_due();
    agent.once().await.unwrap();
    let users: Vec<_> = world.requests().await.into_iter().map(|csr| csr.spec.username.unwrap()).collect();
    assert_eq!(users.iter().filter(|user| *user == renewed).count(), 1, "{users:?}");
}

#[tokio::test]
async fn enrols_into_a_secret_with_exactly_three_files() {
    let world = AgentWorld::start().await;
    let mut agent = world.agent(world.secret_store());
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
    let secret = secrets(&world).get(NAME).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(secret.metadata.labels.unwrap()["app.kubernetes.io/managed-by"], "addon-signer");
    let data = secret.data.unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
    assert_eq!(data["ca.crt"].0, world.gateway.answers.lock().unwrap().bundle.pem().into_bytes());
    assert_eq!(user(&data), USER);
    // An agent that has just started finds the stored certificate valid.
    let mut restarted = world.agent(world.secret_store());
    assert!(matches!(restarted.once().await.unwrap(), Outcome::Valid { .. }));
    assert_eq!(world.requests().await.len(), 1);
}

#[tokio::test]
async fn enrols_into_a_directory_and_renews_there() {
    let world = AgentWorld::start().await;
    let path = world.dir.path().join("out");
    let mut agent = world.agent(Store::directory(path.clone()));
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
    let first = std::fs::read(path.join("tls.crt")).unwrap();
    assert_eq!(std::fs::metadata(path.join("tls.key")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(agent.once().await.unwrap(), Outcome::Valid { .. }));
    world.make_due();
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
    assert_ne!(std::fs::read(path.join("tls.crt")).unwrap(), first);
    let _running = run(agent);
    std::fs::remove_file(path.join("tls.key")).unwrap();
    wait_until(SOON, "the key to come back", async || path.join("tls.key").exists().then_some(())).await;
}

#[tokio::test]
async fn secret_that_is_deleted_or_damaged_comes_back() {
    let (world, agent) = AgentWorld::enrolled().await;
    let first = data(&world).await;
    let _running = run(agent);

    secrets(&world).delete(NAME, &DeleteParams::default()).await.unwrap();
    let second = new_data(&world, &first).await;

    let other_key = json!({ "data": { "tls.key": first["tls.key"] } });
    secrets(&world).patch(NAME, &PatchParams::default(), &Patch::Merge(&other_key)).await.unwrap();
    let third = new_data(&world, &second).await;
    assert_ne!(third["tls.key"], first["tls.key"]);

    let garbage = json!({ "data": { "tls.crt": ByteString(b"garbage".to_vec()) } });
    secrets(&world).patch(NAME, &PatchParams::default(), &Patch::Merge(&garbage)).await.unwrap();
    wait_until(SOON, "the certificate to be replaced", async || {
        data(&world).await["tls.crt"].0.starts_with(b"-----BEGIN CERTIFICATE").then_some(())
    })
    .await;
}

#[tokio::test]
async fn pair_of_another_identity_is_replaced() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    let first = data(&world).await;
    // Copy the pair into the Secret of another addon, whose agent then finds it.
    let mut copy = secrets(&world).get(NAME).await.unwrap();
    copy.metadata = serde_json::from_value(json!({ "name": "logs-client-cert" })).unwrap();
    secrets(&world).create(&kube::api::PostParams::default(), &copy).await.unwrap();
    assert!(matches!(world.agent_for_addon("logs").once().await.unwrap(), Outcome::Enrolled { .. }));
    let replaced = secrets(&world).get("logs-client-cert").await.unwrap().data.unwrap();
    assert_eq!(user(&replaced), "system:open-cluster-management:cluster:cluster1:addon:logs:agent:logs");
    assert_eq!(user(&first), USER);
    assert_eq!(data(&world).await, first);
}

#[tokio::test]
async fn labels_and_type_that_others_chose_survive() {
    let world = AgentWorld::start().await;
    let mine: Secret = serde_json::from_value(json!({
        "metadata": { "name": NAME, "labels": { "team": "observability" }, "annotations": { "note": "x" } },
        "type": "Opaque",
        "data": { "cluster-name": ByteString(b"cluster1".to_vec()) },
    }))
    .unwrap();
    secrets(&world).create(&kube::api::PostParams::default(), &mine).await.unwrap();
    world.agent(world.secret_store()).once().await.unwrap();
    let secret = secrets(&world).get(NAME).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    assert_eq!(secret.metadata.labels.unwrap()["team"], "observability");
    assert_eq!(secret.metadata.annotations.unwrap()["note"], "x");
    assert_eq!(secret.data.unwrap().keys().collect::<Vec<_>>(), ["ca.crt", "tls.crt", "tls.key"]);
}

#[tokio::test]
async fn anchors_that_the_gateway_publishes_come_with_a_certificate() {
    let (world, agent) = AgentWorld::enrolled().await;
    let _running = run(agent);
    let both = world.with_next();
    world.publish(&both);
    world.gateway.answers.lock().unwrap().bundle = both.clone();
    let arrived = async || (data(&world).await["ca.crt"].0 == both.pem().into_bytes()).then_some(());
    wait_until(SOON, "both anchors", arrived).await;
    world.gateway.wait_for_connections(4).await; // for newer anchors
    assert_eq!(world.requests().await.len(), 2, "one certificate was enough");
}

/// Whoever has taken over a gateway would otherwise be trusted for longer than its certificate is valid.
#[tokio::test]
async fn a_gateway_cannot_change_whom_the_agent_trusts() {
    let (world, agent) = AgentWorld::enrolled().await;
    let true_anchors = data(&world).await["ca.crt"].clone();
    let _running = run(agent);
    let with_another = world.with_next();
    world.gateway.answers.lock().unwrap().bundle = with_another;
    world.wait_for_requests(3).await;
    world.gateway.wait_for_connections(2).await;
    assert_eq!(data(&world).await["ca.crt"], true_anchors);
}

#[tokio::test]
async fn key_is_in_no_log() {
    let (log, _guard) = capture("trace");
    let (world, mut agent) = AgentWorld::enrolled().await;
    world.make_due();
    world.gateway.answers.lock().unwrap().refuse = true;
    agent.once().await.unwrap_err();
    world.gateway.answers.lock().unwrap().refuse = false;
    agent.once().await.unwrap();
    let text = log.text();
    assert!(text.contains("Stored a new certificate"), "the agent logs here");
    let key = PrivatePkcs8KeyDer::from_pem_slice(&data(&world).await["tls.key"].0).unwrap();
    for secret in [&*private_bytes(key.secret_pkcs8_der()), b"BEGIN PRIVATE KEY".as_slice()] {
        assert_eq!(find(secret, text.as_bytes()), None, "a key is in the log");
    }
}
