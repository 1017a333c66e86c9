//! The agent is locked out by its own anchors: the gateway's authorities were replaced while it was away.

use std::time::Duration;

use addon_signer_agent::Outcome;
use addon_signer_core::identity::GATEWAY_SERVING_SIGNER;

use super::parts::{AgentWorld, Mood, SIGNER, SOON, bundle};
use test_kit::wait_until;

async fn stored(world: &AgentWorld) -> (Vec<u8>, Vec<u8>) {
    let stored = world.secret_store().load().await.unwrap().unwrap();
    (stored.certificate.clone(), stored.bundle.clone())
}

#[tokio::test]
async fn agent_distrusting_gateway_gets_anchors_with_new_certificate() {
    for signer in [GATEWAY_SERVING_SIGNER, SIGNER] {
        let world = AgentWorld::start().await;
        world.agent(world.secret_store()).once().await.unwrap();
        let running = tokio::spawn(world.agent(world.secret_store()).run());
        let anchors = world.replace_serving();
        world.gateway.wait_for_connections(2).await;
        world.publish(&anchors);
        world.certify_another(signer, "another", &anchors).await;
        let has_it = async || (stored(&world).await.1 == anchors.pem().into_bytes()).then_some(());
        wait_until(SOON, "the new anchors", has_it).await;
        world.gateway.wait_for_connections(4).await; // for newer anchors
        assert_eq!(world.requests().await.len(), 2, "that was enough");
        running.abort();
    }
}

/// The new anchors come a moment before the gateway's new certificate: until then they verify nobody.
#[tokio::test]
async fn new_anchors_before_the_new_certificate_are_tried_again() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    world.clock.advance(Duration::from_secs(60)); // no CSR is as young as the next certificate
    let serving = world.replace_anchors();
    let running = tokio::spawn(world.agent(world.secret_store()).run());
    world.gateway.wait_for_connections(2).await; // for news, and to prove the certificate
    world.serve_by(&serving);
    let has_it = async || (stored(&world).await.1 == bundle(&serving).pem().into_bytes()).then_some(());
    wait_until(SOON, "the new anchors", has_it).await;
    assert_eq!(world.requests().await.len(), 2, "the certificate was kept until it could be proven");
    running.abort();
}

/// The agent gets the new anchors, although so many CSRs of others come before the one that shows them.
async fn finds_anchors_behind(others: u32) {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    let anchors = world.replace_serving();
    world.publish(&anchors);
    for number in 0..others {
        world.request_another(GATEWAY_SERVING_SIGNER, &format!("0-{number}")).await;
    }
    world.certify_another(GATEWAY_SERVING_SIGNER, "another", &anchors).await;
    assert!(matches!(world.agent(world.secret_store()).once().await.unwrap(), Outcome::Enrolled { .. }));
}

/// Lists are in the order of names, which whoever may make requests chooses.
#[tokio::test]
async fn requests_of_others_do_not_hide_newer_anchors() {
    finds_anchors_behind(45).await;
}

/// A cluster can make more CSRs of the gateways' signer than an agent reads: no agent depends on the gateways' own.
#[tokio::test]
async fn a_flood_of_the_gateways_signer_locks_no_agent_out() {
    finds_anchors_behind(101).await;
}

/// Anybody may answer at the gateway's address.
#[tokio::test]
async fn stranger_at_the_gateways_address_costs_no_certificate() {
    let world = AgentWorld::start().await;
    world.certify_another(GATEWAY_SERVING_SIGNER, "an-older-one", &world.with_next()).await;
    world.clock.advance(Duration::from_secs(60));
    world.agent(world.secret_store()).once().await.unwrap();
    world.replace_serving();
    let mut agent = world.agent(world.secret_store());
    assert!(matches!(agent.once().await.unwrap(), Outcome::Valid { .. }));
    let running = tokio::spawn(agent.run());
    world.gateway.wait_for_connections(8).await;
    assert_eq!(world.requests().await.len(), 1);
    world.make_due();
    world.wait_for_requests(2).await;
    world.gateway.wait_for_connections(4).await;
    assert_eq!(world.requests().await.len(), 2, "the renewal is held, and not repeated");
    running.abort();
}

#[tokio::test]
async fn once_gets_the_anchors_or_keeps_the_old_certificate() {
    let world = AgentWorld::start().await;
    let once = async || world.agent(world.secret_store()).once().await.unwrap();
    once().await;
    let first = stored(&world).await;
    let anchors = world.replace_serving();
    assert!(matches!(once().await, Outcome::Valid { .. }), "no certificate helps");
    assert_eq!((stored(&world).await, world.requests().await.len()), (first, 1));
    world.publish(&anchors);
    world.certify_another(GATEWAY_SERVING_SIGNER, "another", &anchors).await;
    assert!(matches!(once().await, Outcome::Enrolled { .. }));
    assert!(matches!(once().await, Outcome::Valid { .. }));
    assert_eq!(world.requests().await.len(), 2);
}

/// A wrong certificate was shown, and then the gateway is away.
#[tokio::test]
async fn gateway_gone_after_distrust_costs_no_further_certificate() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    let anchors = world.replace_serving();
    world.certify_another(GATEWAY_SERVING_SIGNER, "another", &anchors).await;
    world.mood(Mood::Ignore);
    let running = tokio::spawn(world.agent(world.secret_store()).run());
    world.wait_for_requests(2).await;
    world.gateway.stop();
    world.mood(Mood::Issue);
    world.gateway.wait_for_connections(8).await;
    assert_eq!(world.requests().await.len(), 2, "it is held until it can be proven");
    running.abort();
}

/// A gateway that gives no answer says nothing about the anchors.
#[tokio::test]
async fn a_gateway_that_is_away_costs_no_certificate() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    world.gateway.stop();
    let mut agent = world.agent(world.secret_store());
    for _ in 0..2 {
        assert!(matches!(agent.once().await.unwrap(), Outcome::Valid { .. }));
    }
    assert_eq!(world.requests().await.len(), 1);
}
