//! What the process says, and what the gateway does, when it has not heard the API server for long.

use std::time::Duration;

use addon_signer::process::registry_age::AgeBounds;
use addon_signer::process::{HubConnection, HubOptions};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::connection::connect_noting;
use addon_signer_platform::contacts::Contacts;
use hyper::Method;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::task::JoinHandle;

use super::{Whole, get, options, ours, prepare};
use crate::gateway::backend;
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::TIMEOUT;
use test_kit::objects::{managed_cluster_addons, managed_clusters};
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

const RECEIVE: &str = "/addons/telemetry/api/v1/receive";
pub(super) const OUTDATED: Duration = Duration::from_secs(3);

/// A connection that notes when the API server was heard.
pub(super) async fn connection(kubeconfig: Kubeconfig) -> HubConnection {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let contacts = Contacts::default();
    HubConnection { client: connect_noting(config, contacts.clone()).unwrap(), contacts }
}

/// Changes a cluster and an addon again and again, so that both watches are heard. An API server at rest is silent for
/// a minute, which is longer than the bounds of this test.
pub(super) fn keep_talking(admin: &Client) -> JoinHandle<()> {
    let admin = admin.clone();
    tokio::spawn(async move {
        let addons = managed_cluster_addons(&admin, "noisy").await;
        let clusters = managed_clusters(&admin);
        for n in 0.. {
            let change = Patch::Merge(json!({"metadata": {"annotations": {"example.com/n": format!("{n}")}}}));
            addons.patch("telemetry", &PatchParams::default(), &change).await.unwrap();
            clusters.patch("noisy", &PatchParams::default(), &change).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
}

#[tokio::test]
async fn gateway_without_news_says_so_and_refuses_all_if_told_to() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, backend::start().await, "24h").await;
    accept_cluster(&admin, "noisy").await;
    install_addon(&admin, "noisy", "telemetry").await;
    let talk = keep_talking(&admin);
    let bounds = AgeBounds { stale: Duration::from_secs(1), outdated: Some(OUTDATED) };
    let options = HubOptions { registry_age: bounds, ..options() };
    let whole =
        Whole::start_with(connection(hub.kubeconfig(HUB_USER, &HUB_GROUPS)).await, options, Clock::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let pair = ours::enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    let answers = async |status: u16| {
        let (found, _) = pair.call(whole.gateway, Method::POST, RECEIVE).await.ok()?;
        (found == status).then_some(())
    };
    wait_until(TIMEOUT, "a request to pass", async || answers(200).await).await;

    talk.abort();
    wait_until(TIMEOUT, "readiness to say that revocations may be missed", async || {
        let (status, text) = get(whole.metrics, "/readyz").await;
        (status == 200 && text.contains("ok; the API server has been silent for")).then_some(())
    })
    .await;
    wait_until(TIMEOUT, "the gateway to refuse everybody", async || answers(503).await).await;
    // A bookmark may come at any time, and makes the hub sure for a moment.
    wait_until(TIMEOUT, "readiness and metric to say it too", async || {
        let (status, text) = get(whole.metrics, "/readyz").await;
        let (_, metrics) = get(whole.metrics, "/metrics").await;
        let age = metrics.lines().find_map(|line| line.strip_prefix("addon_signer_registry_age_seconds "))?;
        let is_old = age.parse::<u64>().ok()? >= OUTDATED.as_secs();
        (status == 503 && text.contains("the gateway refuses everybody") && is_old).then_some(())
    })
    .await;
    assert_eq!(get(whole.metrics, "/healthz").await.0, 200, "nothing hangs");

    let talk = keep_talking(&admin);
    wait_until(TIMEOUT, "a request to pass again", async || answers(200).await).await;
    talk.abort();
    whole.stop().await.unwrap();
}
