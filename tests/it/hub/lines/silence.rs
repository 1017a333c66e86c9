//! Connections to the API server that go silent: nothing hangs, and nothing is done twice.

use addon_signer_core::registry::NotRegistered;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::kit::{OnServer, rotate};
use crate::hub::{mk_csr, mk_served, submit};
use crate::support::accounts::{HUB_GROUPS, HUB_USER};
use crate::support::hub::{PATIENCE, RunningHub, RunningHubOptions, certificate, telemetry, wait_csr, wait_ready};
use crate::support::objects::managed_cluster_addons;
use crate::support::silence::Silence;
use crate::support::{TestHub, wait_until};

/// A hub behind a proxy.
async fn mk_behind(hub: &TestHub) -> (RunningHub, Silence) {
    let mut kubeconfig = hub.kubeconfig(HUB_USER, &HUB_GROUPS);
    let silence = Silence::in_front_of(&mut kubeconfig).await;
    let options = RunningHubOptions { kubeconfig: Some(kubeconfig), ..RunningHubOptions::default() };
    (RunningHub::start_with(hub, options).await, silence)
}

#[tokio::test]
async fn a_silent_connection_is_replaced_and_the_hub_learns_what_it_missed() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let (running, silence) = mk_behind(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let line = OnServer::client(&admin);
    let first = line.wait(&["Active"]).await;

    let before = silence.fall();
    // A revocation, a rotation and an enrolment, all while the hub hears nothing; its Lease must be renewed as well.
    let suspend = json!({"metadata": {"annotations": {"addon-signer.io/suspended": "true"}}});
    let addons = managed_cluster_addons(&admin, "spoke1").await;
    addons.patch("telemetry", &PatchParams::default(), &Patch::Merge(&suspend)).await.unwrap();
    let standing = || running.registry.read(|it| it.check(&"spoke1".parse().unwrap(), &"telemetry".parse().unwrap()));
    wait_until(PATIENCE, "the suspension to be known", async || {
        (standing() == Err(NotRegistered::AddOnSuspended)).then_some(())
    })
    .await;
    assert!(silence.connections() > before, "by a new connection");
    rotate(&admin, "r1").await;
    // The first authority has signed nothing, so it goes at once.
    wait_until(PATIENCE, "the rotation", async || (line.wait(&["Active"]).await != first).then_some(())).await;

    silence.fall();
    let resume = json!({"metadata": {"annotations": {"addon-signer.io/suspended": null}}});
    addons.patch("telemetry", &PatchParams::default(), &Patch::Merge(&resume)).await.unwrap();
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
}
