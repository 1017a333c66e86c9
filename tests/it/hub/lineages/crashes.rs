//! A hub is killed or cut off in the middle of a step: what is stored stays consistent (invariants I5 to I7).

use std::time::Duration;

use addon_signer_core::ca::bundle::Purpose;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::ListParams;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::kit::{OnServer, issue, members, rotate};
use crate::hub::{mk_csr, mk_ready, submit};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, wait_ready};
use test_kit::wait_until;

/// Milliseconds until each hub is killed: from before its first write to after its last.
const LIVES: [u64; 14] = [5, 20, 35, 50, 65, 80, 100, 120, 150, 190, 240, 300, 400, 600];

/// Checks that exactly one authority signs and has its key, that the published anchors accept every published
/// certificate, and that there is no key without an authority. Returns the number of certificates.
async fn check(admin: &Client, lineage: &OnServer, running: &RunningHub) -> usize {
    let data = lineage.data().await;
    let members = members(&data);
    let active: Vec<_> = members.iter().filter(|member| member["state"] == "Active").collect();
    assert_eq!(active.len(), 1, "{members:?}");
    assert!(data.contains_key(&format!("{}.key", active[0]["id"].as_str().unwrap())));
    let ids: Vec<_> = members.iter().map(|member| member["id"].as_str().unwrap().to_owned()).collect();
    let known = |name: &String| name == "line.json" || ids.iter().any(|id| name.starts_with(id.as_str()));
    assert!(data.keys().all(known), "{:?}", data.keys());
    let csrs: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let given: Vec<_> = csrs.list(&ListParams::default()).await.unwrap().items.iter().filter_map(certificate).collect();
    let bundle = lineage.bundle().await.unwrap();
    for pem in &given {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        bundle.verify(&der, Purpose::Client, running.clock.now()).unwrap();
    }
    given.len()
}

async fn settled(lineage: &OnServer) {
    wait_until(TIMEOUT, "every request for a rotation to be handled", async || {
        let members = lineage.members().await?;
        let ids: Vec<String> = members.iter().map(|member| member["id"].as_str().unwrap().to_owned()).collect();
        let waiting = members.iter().any(|member| member["state"] == "Next");
        let mut published: Vec<_> = lineage.bundle().await?.authorities().iter().map(|a| a.id().to_string()).collect();
        let mut stored = ids;
        stored.sort();
        published.sort();
        (!waiting && stored == published).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hub_that_is_killed_at_any_moment_leaves_a_consistent_line() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    issue(&hub, &admin).await;
    drop(running);
    for (round, life) in LIVES.into_iter().enumerate() {
        rotate(&admin, &format!("r{round}")).await;
        submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
        let running = RunningHub::start(&hub).await;
        tokio::time::sleep(Duration::from_millis(life)).await;
        check(&admin, &lineage, &running).await;
        drop(running);
    }
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    settled(&lineage).await;
    let given = wait_until(TIMEOUT, "every CSR to be answered", async || {
        let given = check(&admin, &lineage, &running).await;
        (given == LIVES.len() + 1).then_some(given)
    })
    .await;
    issue(&hub, &admin).await;
    assert_eq!(check(&admin, &lineage, &running).await, given + 1);
}

#[tokio::test]
async fn api_server_outage_during_rotation_loses_nothing() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    let first = lineage.wait(&["Active"]).await;
    issue(&hub, &admin).await;
    // A real API server takes seconds to come back.
    let pauses: &[u64] = if hub.is_real() { &[10] } else { &[0, 4, 8, 16, 32] };
    for (round, pause) in pauses.iter().enumerate() {
        rotate(&admin, &format!("r{round}")).await;
        tokio::time::sleep(Duration::from_millis(*pause)).await;
        hub.pause().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        hub.resume().await;
        check(&admin, &lineage, &running).await;
    }
    wait_until(TIMEOUT, "the rotation", async || {
        lineage.members().await?.iter().any(|m| m["state"] == "Active" && m["id"] != first[0].as_str()).then_some(())
    })
    .await;
    settled(&lineage).await;
    issue(&hub, &admin).await;
    check(&admin, &lineage, &running).await;
}
