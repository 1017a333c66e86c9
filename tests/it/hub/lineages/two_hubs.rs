//! Two hubs on one API server both believe that they lead. The Lease prevents that; if it happens all the same,
//! `resourceVersion` prevents harm.

use std::collections::BTreeSet;
use std::time::Duration;

use addon_signer_core::ca::bundle::Purpose;
use addon_signer_hub::authorities::store::{AuthorityStore, LineageNames, StoreError};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::kit::{OnServer, issue, rotate};
use crate::hub::{MOMENT, mk_csr, mk_ready, mk_served};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, telemetry, wait_csr, wait_ready};
use test_kit::quick::pass;
use test_kit::{TestHub, wait_until};

const REQUESTS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn two_hubs_make_one_authority_and_one_certificate_per_request() {
    let hub = TestHub::start().await;
    hub.real().inspect(|real| real.leaves_writes_uncounted());
    let admin = mk_served(&hub, telemetry()).await;
    let start = || RunningHub::start_with(&hub, RunningHubOptions { lease: None, ..RunningHubOptions::default() });
    let (first, second) = tokio::join!(start(), start());
    wait_ready(&admin, "telemetry", "True").await;
    let lineage = OnServer::client(&admin);
    let active = lineage.wait(&["Active"]).await;
    for running in [&first, &second] {
        wait_until(TIMEOUT, "both hubs to trust the same authority", async || {
            let trust = running.trust.borrow().clone();
            let [signer] = &trust.signers[..] else { return None };
            (signer.client_anchors.authorities()[0].id().as_str() == active[0]).then_some(())
        })
        .await;
    }
    let agent: Api<CertificateSigningRequest> = Api::all(hub.as_cluster_agent("spoke1", "a1").await);
    let create = async |_| agent.create(&PostParams::default(), &mk_csr("spoke1", "telemetry")).await.unwrap();
    let created = futures::future::join_all((0..REQUESTS).map(create)).await;
    let names: Vec<String> = created.into_iter().map(|csr| csr.metadata.name.unwrap()).collect();
    let mut given = Vec::new();
    for name in &names {
        given.push(wait_csr(&admin, name, "issued", certificate).await);
    }
    pass(MOMENT + Duration::from_secs(1)).await;
    let csrs: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let bundle = lineage.bundle().await.unwrap();
    for (name, pem) in names.iter().zip(&given) {
        let csr = csrs.get(name).await.unwrap();
        assert_eq!(certificate(&csr).as_ref(), Some(pem), "the certificate was replaced");
        assert_eq!(csr.status.unwrap().conditions.unwrap().len(), 1);
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(bundle.verify(&der, Purpose::Client, first.clock.now()).unwrap().id().as_str(), active[0]);
    }
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), REQUESTS);
    // Both hubs want to make the rotation, and it is made once.
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    pass(MOMENT).await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids);
    assert_eq!(ids[1], active[0]);
    issue(&hub, &admin).await;
}

/// A step that was decided on an older lineage is not persisted: the second hub reads the lineage again (invariant I7).
#[tokio::test]
async fn a_line_is_never_written_over_a_newer_one() {
    let (_hub, admin, running) = mk_ready().await;
    let now = running.clock.now();
    drop(running);
    let store = AuthorityStore::new(&admin, "addon-signer");
    let names = LineageNames::client("telemetry", "example.com/telemetry");
    let (announcer, leading) = addon_signer_hub::lease::channel();
    announcer.lead(1, tokio::time::Instant::now() + Duration::from_secs(3_600));
    let leads = leading.leads().unwrap();
    let older = store.load(&names, true, now).await.unwrap().unwrap();
    let newer = store.load(&names, true, now).await.unwrap().unwrap();
    let longer = newer.lineage.reserve(now.plus(Duration::from_secs(60))).unwrap();
    store.replace(&leads, &names, &newer, &longer, None).await.unwrap();
    let written = OnServer::client(&admin).data().await;
    let shorter = older.lineage.reserve(now.plus(Duration::from_secs(30))).unwrap();
    let refused = store.replace(&leads, &names, &older, &shorter, None).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    let begun = store.create(&leads, &names, &older.lineage, b"another key").await;
    assert!(matches!(begun, Err(StoreError::Conflict(_))), "{begun:?}");
    assert_eq!(OnServer::client(&admin).data().await, written);
}
