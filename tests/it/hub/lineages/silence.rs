//! Connections to the API server that go silent: nothing hangs, and nothing is done twice.

use std::time::Duration;

use addon_signer_core::registry::NotRegistered;
use addon_signer_hub::lease::Leadership;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::kit::{OnServer, rotate};
use crate::hub::crash::books::{entries, rows};
use crate::hub::{mk_csr, mk_served, submit};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::frozen::Frozen;
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, fresh_ledger, telemetry};
use test_kit::hub::{wait_csr, wait_ready};
use test_kit::objects::managed_cluster_addons;
use test_kit::silence::Silence;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

/// A hub behind a proxy.
async fn mk_behind(hub: &TestHub) -> (RunningHub, Silence) {
    let mut kubeconfig = hub.kubeconfig(HUB_USER, &HUB_GROUPS);
    let silence = Silence::in_front_of(&mut kubeconfig).await;
    let options = RunningHubOptions { kubeconfig: Some(kubeconfig), ..RunningHubOptions::default() };
    (RunningHub::start_with(hub, options).await, silence)
}

#[tokio::test]
async fn silent_connection_is_replaced_and_hub_learns_what_it_missed() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let (running, silence) = mk_behind(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let lineage = OnServer::client(&admin);
    let first = lineage.wait(&["Active"]).await;

    let before = silence.fall();
    // A revocation, a rotation and an enrolment, all while the hub hears nothing; its Lease must be renewed as well.
    let suspend = json!({"metadata": {"annotations": {"addon-signer.io/suspended": "true"}}});
    let addons = managed_cluster_addons(&admin, "spoke1").await;
    addons.patch("telemetry", &PatchParams::default(), &Patch::Merge(&suspend)).await.unwrap();
    let eligibility =
        || running.registry.read(|it| it.check(&"spoke1".parse().unwrap(), &"telemetry".parse().unwrap()));
    wait_until(TIMEOUT, "the suspension to be known", async || {
        (eligibility() == Err(NotRegistered::AddOnSuspended)).then_some(())
    })
    .await;
    assert!(silence.connections() > before, "by a new connection");
    rotate(&admin, "r1").await;
    // The first authority has signed nothing, so it goes at once.
    wait_until(TIMEOUT, "the rotation", async || (lineage.wait(&["Active"]).await != first).then_some(())).await;

    silence.fall();
    let resume = json!({"metadata": {"annotations": {"addon-signer.io/suspended": null}}});
    addons.patch("telemetry", &PatchParams::default(), &Patch::Merge(&resume)).await.unwrap();
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
}

/// The duration of the hub's Lease, which expires while the API server is frozen.
const LEASE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn frozen_api_server_causes_no_hang_and_no_double_signature() {
    let hub = TestHub::start().await;
    let Some(server) = hub.real() else {
        eprintln!("skipped: the stand-in is no process that can be frozen");
        return;
    };
    let admin = mk_served(&hub, telemetry()).await;
    accept_cluster(&admin, "spoke2").await;
    install_addon(&admin, "spoke2", "telemetry").await;
    let (_dir, location) = fresh_ledger();
    let options =
        RunningHubOptions { lease: Some(LEASE), ledger: Some(location.clone()), ..RunningHubOptions::default() };
    let mut running = RunningHub::start_with(&hub, options).await;
    wait_ready(&admin, "telemetry", "True").await;
    let lineage = OnServer::client(&admin);
    let first = lineage.wait(&["Active"]).await;
    let epoch = running.leads().await;

    // An enrolment, a rotation and a revocation are under way; the Lease is due in a second.
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    rotate(&admin, "r1").await;
    let suspend = json!({"metadata": {"annotations": {"addon-signer.io/suspended": "true"}}});
    let addons = managed_cluster_addons(&admin, "spoke2").await;
    addons.patch("telemetry", &PatchParams::default(), &Patch::Merge(&suspend)).await.unwrap();
    let frozen = Frozen::with_children(server.api_server_id());
    wait_until(TIMEOUT, "a leader that cannot see to lead no longer", async || {
        (running.leading.leadership() == Leadership::Unsure { epoch }).then_some(())
    })
    .await;
    assert_eq!(running.leading.epoch(), None);
    drop(frozen);

    assert_eq!(running.leads().await, epoch, "nobody else has taken over");
    let eligibility =
        || running.registry.read(|it| it.check(&"spoke2".parse().unwrap(), &"telemetry".parse().unwrap()));
    wait_until(TIMEOUT, "the suspension to be known", async || {
        (eligibility() == Err(NotRegistered::AddOnSuspended)).then_some(())
    })
    .await;
    wait_csr(&admin, &name, "issued", certificate).await;
    // The first authority may have signed the CSR, so it may stay; the next one signs.
    wait_until(TIMEOUT, "the rotation", async || (lineage.active().await.id().as_str() != first[0]).then_some(()))
        .await;
    let url = location.to_string();
    let certificates: Vec<_> = rows(&url).await.into_iter().filter(|row| row.certificate.is_some()).collect();
    let signed = entries(&url).await.iter().filter(|entry| entry.contains("\"kind\":\"signed\"")).count();
    assert_eq!(certificates.len(), signed, "one signature for each CSR");
}
