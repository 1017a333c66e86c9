//! The gateway's line goes on when everybody has shown to hold the new anchor, and not by time.

use std::time::Duration;

use addon_signer::ledger::{COPIES, CertificateUse};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::sighting::Word;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::kit::{OnServer, issue, issue_to};
use super::serving::{activate_after, report};
use crate::hub::{mk_ready, mk_served};
use crate::support::hub::{PATIENCE, RunningHub, RunningHubOptions, fresh_ledger, telemetry};
use crate::support::{TestHub, accept_cluster, install_addon, wait_until};

async fn wait_report(line: &OnServer, text: &str) {
    wait_until(2 * PATIENCE, &format!("the report to say {text:?}"), async || {
        report(line).await["rotation"]["waitingFor"].as_str()?.contains(text).then_some(())
    })
    .await;
}

/// Notes a use of the certificate by an agent that has shown this trust bundle, as the gateway's sightings do.
async fn show(running: &RunningHub, leaf: &CertificateDer<'_>, digest: &str) {
    let (_, leaf) = X509Certificate::from_der(leaf).unwrap();
    let serial = Serial::from_hex(&data_encoding::HEXLOWER.encode(leaf.raw_serial())).unwrap();
    let (at, from) = (running.clock.now(), "192.0.2.1".to_owned());
    let holds = Some(Word { at, digest: digest.into(), is_disputed: false });
    running.ledger.seen(vec![CertificateUse { serial, at, from, holds }]).await;
}

fn digest(running: &RunningHub) -> String {
    running.trust.borrow().serving_anchors.as_ref().unwrap().digest()
}

#[tokio::test]
async fn a_serving_authority_signs_as_soon_as_every_agent_has_shown_its_anchor() {
    let (hub, admin, running) = mk_ready().await;
    let line = OnServer::serving(&admin);
    line.wait(&["Active"]).await;
    let leaf = issue(&hub, &admin).await;
    let before = digest(&running);
    show(&running, &leaf, &before).await;
    line.rotate_by_map("r1").await;
    let ids = line.wait(&["Next", "Active"]).await;
    let end = activate_after(&line).await;
    wait_report(&line, "1 of 1 have not shown it: spoke1/telemetry (last seen on 20").await;
    wait_report(&line, &format!("; the last certificate given out without it expires at {end}")).await;
    line.wait(&["Next", "Active"]).await;
    show(&running, &leaf, &digest(&running)).await;
    wait_report(&line, "1 of 1 have not shown it: spoke1/telemetry (its pods may not see it yet)").await;
    running.clock.advance(COPIES);
    line.poke().await;
    assert_eq!(line.wait(&["Active"]).await, ids[..1]);
    assert!(running.clock.now() < end);
}

const PODS: &str = "1 of 1 have not shown it: spoke1/telemetry (its pods may not see it yet)";

/// Starts a hub and a rotation, and lets the only agent show the new bundle. Returns the agent's certificate, and the
/// ids of the new authority and of the one before it.
async fn rotate_and_show(
    hub: &TestHub,
    options: RunningHubOptions,
) -> (RunningHub, OnServer, CertificateDer<'static>, Vec<String>) {
    let admin = mk_served(hub, telemetry()).await;
    let running = RunningHub::start_with(hub, options).await;
    let line = OnServer::serving(&admin);
    line.wait(&["Active"]).await;
    let leaf = issue(hub, &admin).await;
    wait_checkpoint(&admin).await;
    line.rotate_by_map("r1").await;
    let ids = line.wait(&["Next", "Active"]).await;
    activate_after(&line).await;
    show(&running, &leaf, &digest(&running)).await;
    wait_report(&line, PODS).await;
    (running, line, leaf, ids)
}

/// While the hub is away, its gateway is too, and no copy of an agent can say that it has another bundle.
#[tokio::test]
async fn a_restart_does_not_shorten_the_wait_for_copies_of_an_agent() {
    let hub = TestHub::start().await;
    let (_dir, ledger) = fresh_ledger();
    let clock = Clock::default();
    let options =
        || RunningHubOptions { ledger: Some(ledger.clone()), clock: clock.clone(), ..RunningHubOptions::default() };
    let (running, line, _, ids) = rotate_and_show(&hub, options()).await;
    running.stop().await;
    clock.advance(COPIES);
    let running = RunningHub::start_with(&hub, options()).await;
    line.look().await; // the report is of this hub from now on
    wait_report(&line, PODS).await;
    line.wait(&["Next", "Active"]).await;
    running.clock.advance(COPIES);
    line.poke().await;
    assert_eq!(line.wait(&["Active"]).await, ids[..1]);
}

/// The words of that time are lost, and one of them may have been another one.
#[tokio::test]
async fn a_ledger_that_was_away_begins_the_wait_for_copies_anew() {
    let hub = TestHub::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ledger.db");
    let ledger = Some(format!("sqlite://{}", file.display()).parse().unwrap());
    let options = RunningHubOptions { ledger, ..RunningHubOptions::default() };
    let (running, line, leaf, ids) = rotate_and_show(&hub, options).await;
    let mut lock = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut lock).await.unwrap();
    show(&running, &leaf, &digest(&running)).await;
    wait_report(&line, "agents to hold the new anchor: the last certificate given out without it").await;
    running.clock.advance(COPIES);
    lock.close().await.unwrap();
    wait_report(&line, PODS).await;
    line.wait(&["Next", "Active"]).await;
    running.clock.advance(COPIES);
    line.poke().await;
    assert_eq!(line.wait(&["Active"]).await, ids[..1]);
}

/// A fleet that always grows must not hold a rotation up.
#[tokio::test]
async fn an_agent_whose_certificate_came_with_the_anchor_is_not_waited_for() {
    let (hub, admin, running) = mk_ready().await;
    let line = OnServer::serving(&admin);
    line.wait(&["Active"]).await;
    let leaf = issue(&hub, &admin).await;
    line.rotate_by_map("r1").await;
    let ids = line.wait(&["Next", "Active"]).await;
    let end = activate_after(&line).await;
    wait_report(&line, "1 of 1 have not shown it: spoke1/telemetry").await;
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    issue_to(&hub, &admin, "spoke2").await;
    wait_report(&line, "1 of 1 have not shown it: spoke1/telemetry").await;
    // A question without an answer makes nobody wait anew.
    wait_checkpoint(&admin).await;
    contradict(&admin, json!("{}")).await;
    wait_report(&line, "agents to hold the new anchor: the last certificate given out without it").await;
    contradict(&admin, Value::Null).await;
    wait_report(&line, "1 of 1 have not shown it: spoke1/telemetry").await;
    show(&running, &leaf, &digest(&running)).await;
    wait_report(&line, "1 of 1 have not shown it: spoke1/telemetry (its pods may not see it yet)").await;
    running.clock.advance(COPIES);
    line.poke().await;
    assert_eq!(line.wait(&["Active"]).await, ids[..1]);
    assert!(running.clock.now() < end);
}

/// Whose certificates are not in the ledger cannot be known to have shown anything.
async fn stays_next(line: &OnServer) {
    line.rotate_by_map("r1").await;
    line.wait(&["Next", "Active"]).await;
    knows_nobody(line).await;
}

async fn knows_nobody(line: &OnServer) {
    line.look().await;
    let end = activate_after(line).await;
    wait_report(line, &format!("anchor: the last certificate given out without it expires at {end}")).await;
    line.wait(&["Next", "Active"]).await;
}

fn checkpoints(admin: &Client) -> Api<ConfigMap> {
    Api::namespaced(admin.clone(), "addon-signer")
}

async fn wait_checkpoint(admin: &Client) {
    let published =
        async || checkpoints(admin).get_opt("addon-signer-ledger").await.unwrap()?.data?.remove("head.json");
    wait_until(PATIENCE, "a checkpoint", published).await;
}

/// Says that the ledger lacks what a checkpoint vouches for, or takes that back.
async fn contradict(admin: &Client, checkpoint: Value) {
    let contradicted = Patch::Merge(json!({ "data": { "contradicted-head.json": checkpoint } }));
    checkpoints(admin).patch("addon-signer-ledger", &PatchParams::default(), &contradicted).await.unwrap();
}

#[tokio::test]
async fn a_ledger_that_was_made_anew_is_no_evidence() {
    let (hub, admin, running) = mk_ready().await;
    let line = OnServer::serving(&admin);
    line.wait(&["Active"]).await;
    issue(&hub, &admin).await;
    wait_checkpoint(&admin).await;
    drop(running);
    checkpoints(&admin).delete("addon-signer-ledger", &DeleteParams::default()).await.unwrap();
    let _running = RunningHub::start(&hub).await; // with another ledger
    wait_checkpoint(&admin).await;
    stays_next(&line).await;
}

/// As after a restore from a backup: somebody has the Secrets and the ledger of that time, and no checkpoint of later.
#[tokio::test]
async fn a_ledger_that_only_a_later_checkpoint_vouches_for_is_no_evidence() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let clock = Clock::default();
    clock.set_back(Duration::from_secs(2 * 3_600)); // the authorities are that old when the ConfigMap is made
    let running = RunningHub::start_with(&hub, RunningHubOptions { clock, ..RunningHubOptions::default() }).await;
    let line = OnServer::serving(&admin);
    line.wait(&["Active"]).await;
    let leaf = issue(&hub, &admin).await;
    wait_checkpoint(&admin).await;
    stays_next(&line).await;
    show(&running, &leaf, &digest(&running)).await;
    running.clock.advance(COPIES);
    knows_nobody(&line).await;
}

#[tokio::test]
async fn a_ledger_that_contradicts_a_checkpoint_is_no_evidence() {
    let (hub, admin, running) = mk_ready().await;
    let line = OnServer::serving(&admin);
    line.wait(&["Active"]).await;
    let leaf = issue(&hub, &admin).await;
    wait_checkpoint(&admin).await;
    contradict(&admin, json!("{}")).await;
    stays_next(&line).await;
    show(&running, &leaf, &digest(&running)).await;
    running.clock.advance(COPIES);
    knows_nobody(&line).await;
}
