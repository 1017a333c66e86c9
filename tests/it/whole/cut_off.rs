//! Gateways that no longer hear the API server. One of the tests takes a minute and a half, so they come early: others
//! run beside them.

use std::time::Duration;

use addon_signer::process::HubOptions;
use addon_signer::process::registry_age::AgeBounds;
use addon_signer_core::names::ANNOTATION_ROTATE;
use addon_signer_platform::clock::Clock;
use hyper::Method;
use kube::Client;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::client::ClientPair;
use super::ours::enrolled;
use super::silence::{OUTDATED, connection, keep_talking};
use super::split::{RECEIVE, gateway_options, start_signer, waits_for};
use super::{Whole, active, prepare};
use crate::gateway::backend;
use test_kit::gateways::{GatewayPod, deploy_gateways, gateway_pod};
use test_kit::hub::{TIMEOUT, change_signer};
use test_kit::silence::Silence;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

/// Changes the AddOnSigner again and again, so that its watch is heard.
fn keep_changing(admin: &Client) -> JoinHandle<()> {
    let admin = admin.clone();
    tokio::spawn(async move {
        for n in 0.. {
            change_signer(&admin, json!({"metadata": {"annotations": {"example.com/n": format!("{n}")}}})).await;
            sleep(Duration::from_millis(300)).await;
        }
    })
}

/// A gateway that refuses everybody soon after the last word of the API server, which talks to it all the time.
struct Bounded {
    gateway: Whole,
    pair: ClientPair,
    /// What talks: about clusters and addons, and about signers.
    talk: [JoinHandle<()>; 2],
    /// Where the agent keeps its certificate.
    _dir: TempDir,
}

impl Bounded {
    async fn start(hub: &TestHub, admin: &Client, pod: GatewayPod) -> Self {
        let bounds = AgeBounds { stale: Duration::from_secs(1), outdated: Some(OUTDATED) };
        let options = HubOptions { registry_age: bounds, ..gateway_options("gateway-1", &pod) };
        accept_cluster(admin, "noisy").await;
        install_addon(admin, "noisy", "telemetry").await;
        let talk = [keep_talking(admin), keep_changing(admin)];
        let gateway = Whole::start_with(connection(pod.kubeconfig).await, options, Clock::default()).await;
        let dir = tempfile::tempdir().unwrap();
        let pair = enrolled(hub, admin, dir.path(), "spoke1", gateway.gateway).await;
        let bounded = Self { gateway, pair, talk, _dir: dir };
        wait_until(TIMEOUT, "a request to pass", async || bounded.answers(200).await).await;
        bounded
    }

    async fn answers(&self, status: u16) -> Option<()> {
        let (found, _) = self.pair.call(self.gateway.gateway, Method::POST, RECEIVE).await.ok()?;
        (found == status).then_some(())
    }
}

/// It could miss that an authority was dropped.
#[tokio::test]
async fn gateway_that_hears_nothing_of_signers_refuses_everybody() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend::start().await, "24h").await;
    deploy_gateways(&hub).await;
    let signer = start_signer(&hub, "signer-1").await;
    let pod = gateway_pod(&hub, "gateway-1").await;
    let bounded = Bounded::start(&hub, &admin, pod).await;
    bounded.talk[1].abort();
    wait_until(TIMEOUT, "the gateway to refuse everybody", async || bounded.answers(503).await).await;
    // Only the signers were not heard of.
    let again = keep_changing(&admin);
    wait_until(TIMEOUT, "a request to pass again", async || bounded.answers(200).await).await;
    again.abort();
    bounded.talk[0].abort();
    bounded.gateway.stop().await.unwrap();
    signer.stop().await.unwrap();
}

/// It serves nobody by an outdated trust, and holds up nothing for ever: after its bound it refuses everybody, and a
/// minute later the signer goes on without it (`core::gateway::replicas`).
#[tokio::test]
async fn gateway_that_is_cut_off_neither_serves_nor_blocks_for_ever() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend::start().await, "24h").await;
    deploy_gateways(&hub).await;
    let signer = start_signer(&hub, "signer-1").await;
    let mut pod = gateway_pod(&hub, "gateway-1").await;
    let way = Silence::in_front_of(&mut pod.kubeconfig).await;
    let bounded = Bounded::start(&hub, &admin, pod).await;
    let before = active(&admin).await;
    drop(way);
    bounded.talk.iter().for_each(JoinHandle::abort);
    change_signer(&admin, json!({ "metadata": { "annotations": { ANNOTATION_ROTATE: "now" } } })).await;
    let named = "1 of 1 gateways to trust the new authority: gateway-1";
    wait_until(TIMEOUT, named, async || (waits_for(&admin).await? == named).then_some(())).await;
    wait_until(TIMEOUT, "the gateway to refuse everybody", async || bounded.answers(503).await).await;
    assert_eq!((active(&admin).await, waits_for(&admin).await.as_deref()), (before.clone(), Some(named)));
    let after_a_minute = TIMEOUT * 4;
    let new = async || (active(&admin).await != before).then_some(());
    wait_until(after_a_minute, "the new authority to sign", new).await;
    assert_eq!(bounded.answers(503).await, Some(()));
    bounded.gateway.stop().await.unwrap();
    signer.stop().await.unwrap();
}
