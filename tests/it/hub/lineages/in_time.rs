//! A lineage never ends while its successor waits, and a clock that is wrong takes no step.

use std::time::Duration;

use addon_signer_platform::clock::Clock;
use kube::Client;
use rustls_pki_types::CertificateDer;
use serde_json::json;

use super::kit::{OnServer, create_undecodable, issue, rotate};
use super::serving::{activate_after, not_after, report};
use crate::hub::{mk_ready, mk_ready_with, mk_served, wait_event};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, change_signer, telemetry, wait_ready};
use test_kit::{TestHub, log, wait_until};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Moves the clock so that the authority that signs now has only `left` of its life.
async fn advance_to_the_end(running: &RunningHub, lineage: &OnServer, left: Duration) {
    let end = lineage.active().await.not_after();
    running.clock.advance(running.clock.now().until(end.minus(left)));
    lineage.poke().await;
}

fn forced(running: &RunningHub, signer: &str) -> bool {
    let counted = format!("addon_signer_authorities_forced_total{{signer=\"{signer}\"}} 1");
    running.metrics.render().unwrap().contains(&counted)
}

#[tokio::test]
async fn client_successor_untrusted_by_gateway_is_forced_in_time() {
    let (decisions, _, _guard) = log::capture_audit();
    let (_hub, admin, running) =
        mk_ready_with(RunningHubOptions { follow: false, ..RunningHubOptions::default() }).await;
    running.follow_once();
    let lineage = OnServer::client(&admin);
    running.clock.advance(100 * DAY);
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    advance_to_the_end(&running, &lineage, DAY + HOUR).await;
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Next", "Active"]).await, ids, "there is still time");
    advance_to_the_end(&running, &lineage, DAY - HOUR).await;
    wait_until(TIMEOUT, "the next authority to sign", async || {
        (lineage.active().await.id().as_str() == ids[0]).then_some(())
    })
    .await;
    let message = wait_until(TIMEOUT, "the condition", async || {
        let conditions = lineage.status().await.conditions;
        let rotating = conditions.into_iter().find(|condition| condition.type_ == "Rotating")?;
        (rotating.reason == "Forced").then_some(rotating.message)
    })
    .await;
    assert!(message.contains(&format!("The authority {} has been signing since", ids[0])), "{message}");
    wait_event(&admin, "Forced").await;
    assert!(forced(&running, "telemetry"));
    let steps = decisions.json().into_iter().filter(|line| line["step"] == "forced" && line["authority"] == ids[0]);
    assert_eq!(steps.count(), 1);
}

#[tokio::test]
async fn serving_successor_without_evidence_is_forced_in_time() {
    let (hub, admin, running) = mk_ready().await;
    if hub.is_real() {
        eprintln!("skipped: a real API server refuses an AddOnSigner that cannot be read");
        return;
    }
    let lineage = OnServer::serving(&admin);
    running.clock.advance(100 * DAY);
    create_undecodable(&admin, "broken").await;
    lineage.rotate_by_map("r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    let waiting = wait_until(TIMEOUT, "what it waits for", async || {
        report(&lineage).await["rotation"]["waitingFor"].as_str().map(str::to_owned)
    })
    .await;
    assert!(waiting.contains("the AddOnSigner broken, which is not served"), "{waiting}");
    advance_to_the_end(&running, &lineage, DAY + HOUR).await;
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Next", "Active"]).await, ids, "there is still time");
    advance_to_the_end(&running, &lineage, DAY - HOUR).await;
    wait_until(TIMEOUT, "the next authority to sign", async || {
        (lineage.active().await.id().as_str() == ids[0]).then_some(())
    })
    .await;
    wait_until(TIMEOUT, "the condition", async || {
        let (reason, message) = wait_ready(&admin, "telemetry", "True").await;
        (reason == "GatewayAuthorityForced" && message.contains(&ids[0])).then_some(())
    })
    .await;
    wait_event(&admin, "GatewayAuthorityForced").await;
    assert!(forced(&running, "gateway-serving"));
    let problem = report(&lineage).await["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("without evidence"), "{problem}");
    issue(&hub, &admin).await;
}

async fn change_lives(admin: &Client, life: &str) {
    let change = json!({"spec": {
        "certificate": {"duration": life, "maxDuration": life}, "authority": {"duration": "8761h"},
    }});
    change_signer(admin, change).await;
}

/// Issues certificates until one lives longer than `life`, because the hub has the new rules.
async fn issue_for(hub: &TestHub, admin: &Client, running: &RunningHub, life: Duration) -> CertificateDer<'static> {
    wait_until(TIMEOUT, "a certificate by the new rules", async || {
        let leaf = issue(hub, admin).await;
        (not_after(&leaf) > running.clock.now().plus(life)).then_some(leaf)
    })
    .await
}

/// A signer may issue for a year before the hub has looked at the gateway's lineage, whose authority lives for a year
/// too.
#[tokio::test]
async fn next_serving_authority_can_sign_before_previous_one_ends() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::serving(&admin);
    let active = lineage.active().await;
    issue(&hub, &admin).await;
    change_lives(&admin, "8760h").await;
    issue_for(&hub, &admin, &running, 300 * DAY).await;
    lineage.reconcile().await;
    lineage.wait(&["Next", "Active"]).await;
    let at = activate_after(&lineage).await;
    assert!(at <= active.not_after().minus(2 * DAY), "{at}");
}

/// A serving authority that was made before there were long-lived certificates lives for about a year, so half of that
/// is left when the next one must be published.
#[tokio::test]
async fn serving_authority_is_replaced_in_time_for_longest_lifetime() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::serving(&admin);
    let active = lineage.active().await;
    change_lives(&admin, "2880h").await;
    running.clock.advance(139 * DAY);
    let leaf = issue_for(&hub, &admin, &running, 119 * DAY).await;
    lineage.reconcile().await;
    assert_eq!(lineage.active().await.id(), active.id());
    running.clock.advance(10 * DAY);
    lineage.reconcile().await;
    lineage.wait(&["Next", "Active"]).await;
    let at = activate_after(&lineage).await;
    assert!(at >= not_after(&leaf), "{at}");
    assert!(at <= active.not_after().minus(60 * DAY), "{at}");
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_drops_nothing_and_the_hub_says_so() {
    let date = Clock::default();
    let options = RunningHubOptions { date: Some(date.clone()), ..RunningHubOptions::default() };
    let (hub, admin, running) = mk_ready_with(options).await;
    let lineage = OnServer::client(&admin);
    issue(&hub, &admin).await;
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    lineage.wait_bundle(&ids).await;
    running.clock.advance(2 * DAY);
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids);
    lineage.wait_bundle(&ids).await;
    assert!(lineage.data().await.contains_key(&format!("{}.key", ids[1])));
    wait_until(TIMEOUT, "the condition", async || {
        let conditions = lineage.status().await.conditions;
        let rotating = conditions.into_iter().find(|condition| condition.type_ == "Rotating")?;
        rotating.message.contains("the hub's clock to be set").then_some(())
    })
    .await;
    // The API server agrees: the time has really passed.
    date.advance(2 * DAY);
    lineage.poke().await;
    assert_eq!(lineage.wait(&["Active"]).await, ids[..1]);
}

#[tokio::test]
async fn a_clock_that_is_ahead_makes_no_authority() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let options = RunningHubOptions { date: Some(Clock::default()), ..RunningHubOptions::default() };
    options.clock.advance(DAY);
    let clock = options.clock.clone();
    let _running = RunningHub::start_with(&hub, options).await;
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert_eq!(reason, "ClockAhead");
    assert!(message.contains("the hub's clock to be set"), "{message}");
    let lineage = OnServer::client(&admin);
    assert!(lineage.secrets.get_opt(lineage.secret).await.unwrap().is_none());
    clock.set_back(DAY);
    wait_ready(&admin, "telemetry", "True").await;
}
