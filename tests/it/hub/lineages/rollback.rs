//! Rollbacks of a rotation: no certificate is lost, and no hub takes one for a restored backup.

use std::time::Duration;

use addon_signer_ledger::Location;
use serde_json::json;

use super::kit::{OnServer, issue, roll_back, rotate, signed_by};
use super::rotation::{PAST_ALL_LEAVES, mk_held};
use crate::cli::{run, write};
use crate::hub::issuers::change;
use crate::hub::{mk_ready, mk_served, wait_event};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, telemetry, wait_ready};
use test_kit::{TestHub, log, wait_until};

const OLDER: &str = "older than the ledger";

#[tokio::test]
async fn next_that_is_rolled_back_goes_with_its_key_and_anchor() {
    let (_hub, admin, running) = mk_held().await;
    let lineage = OnServer::client(&admin);
    running.follow_once();
    let first = lineage.wait(&["Active"]).await;
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    lineage.wait_bundle(&ids).await;
    roll_back(&admin, &ids[0]).await;
    assert_eq!(lineage.wait(&["Active"]).await, first);
    lineage.wait_bundle(&first).await;
    let keys: Vec<String> = lineage.data().await.into_keys().collect();
    assert_eq!(keys, [format!("{}.crt", first[0]), format!("{}.key", first[0]), "line.json".to_owned()]);
    let (_, note) = wait_event(&admin, "AuthorityRemoved").await;
    assert!(note.contains(&ids[0]), "{note}");
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Active"]).await, first, "the old request is done");
    rotate(&admin, "r2").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Next", "Active"]).await, ids, "the old request is about another one");
}

/// Otherwise no certificate could outlast Next, which the gateway's lineage could neither use nor replace.
#[tokio::test]
async fn next_that_must_be_replaced_before_it_is_trusted_is_given_up() {
    let (log, _guard) = log::capture("info");
    let hub = TestHub::start().await;
    let live_for = |longest: &str| json!({ "certificate": { "maxDuration": longest } });
    let mut spec = telemetry();
    spec["authority"] = json!({ "duration": "20000h" });
    spec["certificate"] = json!({ "maxDuration": "8760h" });
    let admin = mk_served(&hub, spec).await;
    let running = RunningHub::start(&hub).await;
    let lineage = OnServer::serving(&admin);
    wait_ready(&admin, "telemetry", "True").await;
    let far = running.clock.now().plus(Duration::from_secs(600 * 86_400));
    let outlasts_all = async || (lineage.active().await.not_after() > far).then_some(());
    wait_until(TIMEOUT, "an authority that outlasts the longest certificates", outlasts_all).await;
    let first = lineage.wait(&["Active"]).await;
    change(&admin, live_for("24h")).await;
    issue(&hub, &admin).await; // so that Next waits for somebody
    lineage.rotate_by_map("r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    assert_eq!(ids[1], first[0]);
    change(&admin, live_for("8760h")).await;
    assert_eq!(lineage.wait(&["Active"]).await, first);
    lineage.wait_bundle(&first).await;
    assert!(log.text().contains("given-up"), "the audit log has the step: {}", log.text());
    lineage.rotate_by_map("r2").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    assert_eq!(ids[1], first[0], "the first request is done, and another one is free");
}

async fn start(hub: &TestHub, ledger: &Location) -> RunningHub {
    RunningHub::start_with(hub, RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() })
        .await
}

#[tokio::test]
async fn previous_authority_signs_again_and_no_certificate_is_lost() {
    let (log, _guard) = log::capture("info");
    let dir = tempfile::tempdir().unwrap();
    let ledger = format!("sqlite://{}", dir.path().join("ledger.db").display()).parse().unwrap();
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let running = start(&hub, &ledger).await;
    wait_ready(&admin, "telemetry", "True").await;
    let lineage = OnServer::client(&admin);
    issue(&hub, &admin).await; // so that the first one becomes Old, and is not dropped
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    lineage.wait_signs(&ids).await;
    let by_second = issue(&hub, &admin).await;
    roll_back(&admin, &ids[0]).await;
    let back = wait_until(TIMEOUT, "the first one to sign again", async || {
        let back = lineage.wait(&["Active", "Old"]).await;
        (back != ids).then_some(back)
    })
    .await;
    assert_eq!(back, [ids[1].clone(), ids[0].clone()]);
    lineage.wait_signs(&back).await;
    let bundle = lineage.bundle().await.unwrap();
    assert_eq!(signed_by(&bundle, &issue(&hub, &admin).await, running.clock.now()), back[0]);
    assert_eq!(signed_by(&bundle, &by_second, running.clock.now()), back[1], "still trusted");
    assert!(log.text().contains("rolled-back"), "the audit log has the step: {}", log.text());

    running.stop().await;
    let running = start(&hub, &ledger).await;
    issue(&hub, &admin).await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, back, "it is not done twice");
    assert!(!log.text().contains(OLDER), "{}", log.text());
    running.clock.advance(PAST_ALL_LEAVES);
    lineage.poke().await;
    assert_eq!(lineage.wait(&["Active"]).await, back[..1], "the one that was rolled back goes after its last leaf");
    assert!(!log.text().contains(OLDER), "{}", log.text());
}

#[tokio::test]
async fn a_rollback_without_the_previous_key_is_refused_and_said() {
    let (hub, admin, _running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    issue(&hub, &admin).await;
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    let mut data = lineage.data().await;
    data.remove(&format!("{}.key", ids[1]));
    lineage.set_data(data).await;
    roll_back(&admin, &ids[0]).await;
    wait_until(TIMEOUT, "the condition to say why", async || {
        let conditions = lineage.status().await.conditions;
        let rotating = conditions.into_iter().find(|condition| condition.type_ == "Rotating")?;
        let why = format!("is not done: the key of the previous authority {} cannot be used.", ids[1]);
        rotating.message.ends_with(&why).then_some(())
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let output = run(home.path(), &["ca", "rollback", "telemetry", "--watch", "--kubeconfig", &kubeconfig]).await;
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("is not done: the key of the previous authority"), "{}", output.stderr);
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids);
    issue(&hub, &admin).await;
}
