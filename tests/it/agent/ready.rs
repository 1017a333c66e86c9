//! `/readyz` is 200 exactly while a good certificate is stored.

use std::net::SocketAddr;

use addon_signer_agent::probe::{Probe, serve};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::parts::{AgentWorld, LIFE, Mood, SOON};
use crate::whole::get;
use test_kit::wait_until;

/// An agent with its probe, both running until this is dropped.
struct Probed {
    address: SocketAddr,
    _tasks: JoinSet<std::convert::Infallible>,
}

impl Probed {
    async fn start(world: &AgentWorld) -> Self {
        let probe = Probe::new(world.clock.clone());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let copied = world.secret_store().copied_to(world.dir.path().join("out"));
        let mut tasks = JoinSet::new();
        tasks.spawn(world.agent(copied).with_probe(probe.clone()).run());
        tasks.spawn(serve(listener, probe));
        Self { address, _tasks: tasks }
    }

    /// Waits for this status and this body.
    async fn wait(&self, status: u16, sentence: &str) {
        let mut last = String::new();
        let is_there = async || {
            let (found, answer) = get(self.address, "/readyz").await;
            last = answer;
            (found == status && last.contains(sentence)).then_some(())
        };
        wait_until(SOON, &format!("{status} {sentence}"), is_there).await;
    }
}

#[tokio::test]
async fn ready_from_the_first_certificate_to_its_end() {
    let world = AgentWorld::start().await;
    world.mood(Mood::Ignore);
    let probed = Probed::start(&world).await;
    probed.wait(503, "\r\n\r\nno certificate is stored\n").await;
    world.mood(Mood::Issue);
    probed.wait(200, "\r\n\r\nok\n").await;
    assert!(world.dir.path().join("out/tls.crt").exists(), "the copy is there as well");
    world.mood(Mood::Ignore);
    world.clock.advance(LIFE * 2);
    let (status, answer) = get(probed.address, "/readyz").await;
    assert_eq!(status, 503, "at once: {answer}");
    assert!(answer.contains("\r\n\r\nthe certificate expired at "), "{answer}");
    world.mood(Mood::Issue);
    probed.wait(200, "ok\n").await;
}

#[tokio::test]
async fn a_revoked_certificate_is_not_ready() {
    let world = AgentWorld::start().await;
    let probed = Probed::start(&world).await;
    probed.wait(200, "ok\n").await;
    world.mood(Mood::Ignore);
    world.gateway.answers.lock().unwrap().revoked = Box::new(|_| true);
    probed.wait(503, "\r\n\r\nthe certificate is revoked\n").await;
}

#[tokio::test]
async fn without_its_copy_a_certificate_is_not_ready() {
    let world = AgentWorld::start().await;
    let out = world.dir.path().join("out");
    std::fs::write(&out, "not a directory").unwrap();
    let probed = Probed::start(&world).await;
    probed.wait(503, "\r\n\r\ncannot make the directory ").await;
    std::fs::remove_file(&out).unwrap();
    probed.wait(200, "ok\n").await;
}

/// It is not good again because the gateway refuses another one too.
#[tokio::test]
async fn a_revoked_certificate_stays_unready_while_others_are_refused() {
    let world = AgentWorld::start().await;
    let probed = Probed::start(&world).await;
    probed.wait(200, "ok\n").await;
    world.gateway.answers.lock().unwrap().revoked = Box::new(|_| true);
    probed.wait(503, "the certificate is revoked").await;
    let before = world.requests().await.len();
    while world.requests().await.len() < before + 2 {
        let (status, answer) = get(probed.address, "/readyz").await;
        assert!(status == 503 && answer.contains("revoked"), "{status} {answer}");
    }
}
