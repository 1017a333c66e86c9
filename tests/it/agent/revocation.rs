//! The agent replaces a certificate that the gateway calls revoked, and makes pauses if the hub keeps refusing.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use addon_signer_agent::{Agent, AgentError, Outcome};
use addon_signer_platform::clock::Clock;

use super::parts::{AgentWorld, LIFE, Mood, SOON};
use test_kit::quick::pass;
use test_kit::wait_until;
use tokio::time::Instant;

/// Lets the gateway call the stored certificate revoked; returns the certificate.
async fn revoke(world: &AgentWorld) -> Vec<u8> {
    let stored = world.secret_store().load().await.unwrap().unwrap().certificate;
    let (_, der) = der::pem::decode_vec(&stored).unwrap();
    world.gateway.answers.lock().unwrap().revoked = Box::new(move |shown| shown == der);
    stored
}

#[tokio::test]
async fn a_revoked_certificate_is_replaced_long_before_it_is_due() {
    let world = AgentWorld::start().await;
    let store = world.secret_store();
    world.agent(world.secret_store()).once().await.unwrap();
    let running = tokio::spawn(world.agent(world.secret_store()).run());
    let first = revoke(&world).await;
    wait_until(SOON, "another certificate", async || {
        (store.load().await.unwrap().unwrap().certificate != first).then_some(())
    })
    .await;
    pass(Duration::from_secs(2)).await;
    assert_eq!(world.requests().await.len(), 2, "the new one is kept");
    running.abort();
}

#[tokio::test]
async fn once_replaces_a_revoked_certificate() {
    let (world, mut agent) = AgentWorld::enrolled().await;
    assert!(matches!(agent.once().await.unwrap(), Outcome::Valid { .. }));
    revoke(&world).await;
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
    assert!(matches!(agent.once().await.unwrap(), Outcome::Valid { .. }));
    assert_eq!(world.requests().await.len(), 2);
}

#[tokio::test]
async fn refusing_hub_is_asked_after_pauses_and_revoked_pair_stays() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    world.mood(Mood::Deny);
    let first = revoke(&world).await;
    let running = tokio::spawn(world.agent(world.secret_store()).run());
    world.wait_for_requests(3).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The pauses are 0.1, 0.2, 0.4 and then 0.5 s, as after any other failure.
    let asked = world.requests().await.len();
    assert!((3..=8).contains(&asked), "{asked} requests");
    assert_eq!(world.secret_store().load().await.unwrap().unwrap().certificate, first);
    running.abort();
}

/// Six pauses, the first one of 100 ms and each twice as long as the one before, a fifth less at least.
async fn requests_less_often(world: &AgentWorld, agent: Agent) {
    let running = tokio::spawn(agent.run());
    let begun = Instant::now();
    world.wait_for_requests(8).await;
    assert!(begun.elapsed() >= Duration::from_secs(5), "after {:?}", begun.elapsed());
    running.abort();
}

/// A false gateway could accept each certificate when it is new, and call it revoked as soon as it is stored.
#[tokio::test]
async fn gateway_calling_each_certificate_revoked_is_heard_less_often() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    let seen = Mutex::new(HashSet::new());
    world.gateway.answers.lock().unwrap().revoked = Box::new(move |shown| !seen.lock().unwrap().insert(shown.to_vec()));
    requests_less_often(&world, world.agent(world.secret_store())).await;
}

/// A false gateway could accept the stored certificate, which is due for renewal, and call each new one revoked.
#[tokio::test]
async fn certificates_refused_as_revoked_are_requested_less_often() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    let stored = revoke(&world).await;
    let (_, der) = der::pem::decode_vec(&stored).unwrap();
    world.gateway.answers.lock().unwrap().revoked = Box::new(move |shown| shown != der);
    world.make_due();
    requests_less_often(&world, world.agent(world.secret_store())).await;
}

/// By a wrong clock each new certificate is due at once. (One that is not valid by the clock is kept: refusals.rs.)
#[tokio::test]
async fn certificates_that_are_due_at_once_are_requested_less_often() {
    let world = AgentWorld::start().await;
    let clock = Clock::default();
    clock.advance(LIFE * 4 / 5);
    requests_less_often(&world, world.agent_with_clock(clock)).await;
}

#[tokio::test]
async fn new_certificate_already_revoked_is_neither_stored_nor_held() {
    let (world, mut agent) = AgentWorld::enrolled().await;
    let first = revoke(&world).await;
    world.gateway.answers.lock().unwrap().revoked = Box::new(|_| true);
    for requests in [2, 3] {
        assert!(matches!(agent.once().await.unwrap_err(), AgentError::RevokedAtOnce));
        assert_eq!(world.requests().await.len(), requests, "another one is asked for");
    }
    assert_eq!(world.secret_store().load().await.unwrap().unwrap().certificate, first);
    revoke(&world).await;
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
}
