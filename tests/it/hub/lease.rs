//! One hub leads: who waits, who takes over, what an outage and a theft do.

use std::time::Duration;

use addon_signer::hub::HubError;
use addon_signer::hub::lease::{LEASE_NAME, Leadership, Loss};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::{Api, Client};
use tokio::time::{Instant, timeout};

use super::{MOMENT, mk_csr, mk_ready, submit};
use crate::support::hub::{Options, PATIENCE, RunningHub, certificate, wait_csr, wait_ready};
use crate::support::lease::{change, leases};
use crate::support::{TestHub, wait_until};

/// The shortest that leaves a loaded machine the time to renew.
const SHORT: Duration = Duration::from_secs(3);

async fn start(hub: &TestHub) -> RunningHub {
    RunningHub::start_with(hub, Options { lease: Some(SHORT), ..Options::default() }).await
}

async fn spec(admin: &Client) -> LeaseSpec {
    leases(admin).get(LEASE_NAME).await.unwrap().spec.unwrap()
}

async fn waits(running: &RunningHub) -> String {
    wait_until(PATIENCE, "a hub to wait", async || match running.leading.leadership() {
        Leadership::Waiting(why) if why.starts_with("held by") => Some(why),
        _ => None,
    })
    .await
}

async fn issue(hub: &TestHub, admin: &Client) {
    let name = submit(hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(admin, &name, "issued", certificate).await;
}

#[tokio::test]
async fn one_of_two_hubs_signs_and_the_other_takes_over_at_once_when_it_stops() {
    let (hub, admin, mut first) = mk_ready().await;
    let epoch = first.leads().await;
    let mut second = start(&hub).await;
    let holder = spec(&admin).await.holder_identity.unwrap();
    assert_eq!(waits(&second).await, format!("held by {holder}"));
    issue(&hub, &admin).await;
    assert!(second.trust.borrow().signers.is_empty(), "the second has begun nothing");
    assert!(second.registry.read(addon_signer::registry::Registry::is_ready), "the second is ready to begin");

    first.stop().await;
    let stopped = Instant::now();
    assert_eq!(second.leads().await, epoch + 1);
    assert!(stopped.elapsed() < Duration::from_secs(1), "it took {:?}", stopped.elapsed());
    assert_eq!(second.leading.epoch(), Some(epoch + 1));
    issue(&hub, &admin).await;
    let spec = spec(&admin).await;
    assert_ne!(spec.holder_identity, Some(holder));
    assert_eq!(spec.lease_transitions, i32::try_from(epoch + 1).ok());
    assert_eq!(spec.lease_duration_seconds, Some(3));
}

#[tokio::test]
async fn a_hub_takes_over_from_one_that_was_killed_when_its_lease_has_expired() {
    let (hub, admin, first) = mk_ready().await;
    drop(first);
    let mut first = start(&hub).await;
    let epoch = first.leads().await;
    assert!(epoch > 1, "a restart is a new holder");
    let mut second = start(&hub).await;
    waits(&second).await;
    let killed = Instant::now();
    drop(first);
    assert_eq!(second.leads().await, epoch + 1);
    // It was renewed at most a third of the duration before the kill.
    assert!(killed.elapsed() > SHORT / 2, "it took only {:?}", killed.elapsed());
    issue(&hub, &admin).await;
}

#[tokio::test]
async fn an_outage_of_the_api_server_stops_the_steps_and_not_the_epoch() {
    let (hub, admin, first) = mk_ready().await;
    drop(first);
    let mut running = start(&hub).await;
    let epoch = running.leads().await;
    wait_ready(&admin, "telemetry", "True").await;
    hub.pause().await;
    wait_until(PATIENCE, "the hub to be unsure", async || {
        (running.leading.leadership() == Leadership::Unsure { epoch }).then_some(())
    })
    .await;
    assert_eq!(running.leading.epoch(), None);
    tokio::time::sleep(SHORT).await;
    hub.resume().await;
    assert_eq!(running.leads().await, epoch);
    issue(&hub, &admin).await;
    assert!(timeout(Duration::from_millis(1), running.ended()).await.is_err(), "the hub goes on");
}

#[tokio::test]
async fn a_hub_that_is_not_sure_signs_nothing() {
    let (hub, admin, running) = mk_ready().await;
    drop(running);
    // Renewals are refused and everything else works: what is measured is the hub's restraint alone.
    let running = RunningHub::start_with(&hub, Options { lease: None, ..Options::default() }).await;
    wait_ready(&admin, "telemetry", "True").await;
    issue(&hub, &admin).await;
    running.believe(None);
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let line: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(admin.clone(), "addon-signer");
    let before = line.get("telemetry-client-authorities").await.unwrap().metadata.resource_version;
    super::lines::rotate(&admin, "r1").await;
    tokio::time::sleep(MOMENT).await;
    let csrs: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let status = csrs.get(&name).await.unwrap().status.unwrap_or_default();
    assert!(status.conditions.is_none() && status.certificate.is_none(), "{status:?}");
    let after = line.get("telemetry-client-authorities").await.unwrap().metadata.resource_version;
    assert_eq!(before, after, "a step of the line was taken");
    running.believe(Some(2));
    wait_csr(&admin, &name, "issued", certificate).await;
    wait_until(PATIENCE, "the rotation to go on", async || {
        let now = line.get("telemetry-client-authorities").await.unwrap().metadata.resource_version;
        (now != before).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hub_whose_lease_was_taken_ends_with_a_sentence() {
    let (hub, admin, first) = mk_ready().await;
    drop(first);
    let mut running = start(&hub).await;
    running.leads().await;
    change(&leases(&admin), |spec| {
        spec.holder_identity = Some("thief".to_owned());
        spec.lease_transitions = spec.lease_transitions.map(|count| count + 1);
    })
    .await;
    let ended = timeout(PATIENCE, running.ended()).await.unwrap().unwrap_err();
    assert!(matches!(&ended, HubError::LeaseLost(Loss::Taken(thief)) if thief == "thief"), "{ended:?}");
    assert_eq!(
        ended.to_string(),
        "thief holds the Lease addon-signer now; this hub ends, so that two never act at once, and waits for its turn when it is \
         started again"
    );
    assert_eq!(spec(&admin).await.holder_identity.as_deref(), Some("thief"), "it is not taken back");
}

#[tokio::test]
async fn a_hub_whose_lease_was_deleted_ends() {
    let (hub, admin, first) = mk_ready().await;
    drop(first);
    let mut running = start(&hub).await;
    running.leads().await;
    leases(&admin).delete(LEASE_NAME, &Default::default()).await.unwrap();
    let ended = timeout(PATIENCE, running.ended()).await.unwrap().unwrap_err();
    assert!(matches!(ended, HubError::LeaseLost(Loss::Deleted)), "{ended:?}");
    assert!(leases(&admin).get_opt(LEASE_NAME).await.unwrap().is_none(), "it is not made again");
}
