//! The gateway tells the agent to renew, because the authority of its certificate is tainted.

use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::time::Instant;

use super::parts::{AgentWorld, SOON};
use test_kit::wait_until;

async fn stored(world: &AgentWorld) -> Vec<u8> {
    world.secret_store().load().await.unwrap().unwrap().certificate.clone()
}

#[tokio::test]
async fn agent_that_is_told_to_renew_renews_once() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    let first = stored(&world).await;
    let running = tokio::spawn(world.agent(world.secret_store()).run());
    world.gateway.wait_for_connections(2).await;
    assert_eq!(stored(&world).await, first, "nobody has told it");
    let must_renew = CertificateDer::from_pem_slice(&first).unwrap();
    world.gateway.answers.lock().unwrap().must_renew = Box::new(move |peer| peer == must_renew.as_ref());
    let renewed = wait_until(SOON, "another certificate", async || {
        let now = stored(&world).await;
        (now != first).then_some(now)
    })
    .await;
    world.gateway.wait_for_connections(4).await; // it asks for anchors, and hears nothing more
    assert_eq!((stored(&world).await, world.requests().await.len()), (renewed, 2));
    running.abort();
}

/// Each certificate costs the hub an entry in its ledger, so the pauses between them grow.
#[tokio::test]
async fn gateway_that_tells_it_again_and_again_is_heard_less_often() {
    let world = AgentWorld::start().await;
    world.agent(world.secret_store()).once().await.unwrap();
    world.gateway.answers.lock().unwrap().must_renew = Box::new(|_| true);
    let running = tokio::spawn(world.agent(world.secret_store()).run());
    let begun = Instant::now();
    world.wait_for_requests(8).await;
    // Six pauses, the first one of 100 ms and each twice as long as the one before, a fifth less at least.
    assert!(begun.elapsed() >= Duration::from_secs(5), "after {:?}", begun.elapsed());
    running.abort();
}
