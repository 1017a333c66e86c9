//! CSRs whose row in the ledger has another CSR's data: the ledger was altered, or it is another hub's.

use std::time::Duration;

use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};

use super::recovery::{becomes, left, on, submit};
use super::{MOMENT, mk_ready};
use crate::ledger::{mk_intent, mk_signed};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, condition, wait_csr, wait_ready};
use test_kit::issue::{Ca, Leaf};
use test_kit::quick::pass;
use test_kit::store::on_store;
use test_kit::{TestHub, log, wait_until};

/// A certificate for an agent in spoke1, from an authority that no hub has.
fn mk_leaf(addon: &str) -> Leaf {
    let now = Clock::default().now();
    Ca::new("another hub's", now).client("spoke1", addon, now, Duration::from_secs(86_400))
}

/// The values by which the ledger finds a request of the API server.
struct Submitted {
    uid: CsrUid,
    requested: Timestamp,
}

async fn submitted(hub: &TestHub, admin: &Client, name: &str) -> Submitted {
    let uid = submit(hub, name).await;
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let made = requests.get(name).await.unwrap().metadata.creation_timestamp.unwrap();
    Submitted { uid: uid.as_str().into(), requested: Timestamp::from_unix(made.0.as_second()) }
}

/// A row that a ledger may have of that CSR.
fn mk_row(n: u64, of: &Submitted, serial: Serial, certificate: Vec<u8>) -> (Intent, Option<Record>) {
    let Submitted { uid, requested } = of;
    let uid = uid.clone();
    let intent =
        Intent { uid: uid.clone(), requested: *requested, serial, request: format!("request-{n}"), ..mk_intent(n) };
    (intent, Some(Record::Signed { uid, serial, certificate }))
}

fn wrong_rows(uids: &[Submitted]) -> Vec<(Intent, Option<Record>)> {
    let key = mk_leaf("telemetry");
    let subject = mk_leaf("other");
    let Record::Signed { serial, certificate, .. } = mk_signed(3) else { panic!() };
    vec![
        mk_row(1, &uids[0], key.serial, key.certificate.to_vec()),
        mk_row(2, &uids[1], subject.serial, subject.certificate.to_vec()),
        mk_row(3, &uids[2], serial, certificate),
    ]
}

const FAULTS: [&str; 3] = [
    "a certificate whose public key is not the CSR's",
    "a certificate whose subject is not the CSR's",
    "a certificate that cannot be read",
];

async fn message(admin: &Client, name: &str) -> String {
    let (reason, sentence) = wait_csr(admin, name, "held", |csr| condition(csr, "RecordUnusable")).await;
    assert_eq!(reason, "LedgerRowUnusable");
    sentence
}

#[tokio::test]
async fn request_whose_row_holds_wrong_certificate_waits_and_says_why() {
    on_store(async |store| {
        let (log, _guard) = log::capture("addon_signer=info");
        let (hub, admin, first) = mk_ready().await;
        first.stop().await;
        let mut uids = Vec::new();
        for n in 1..=3 {
            uids.push(submitted(&hub, &admin, &format!("request-{n}")).await);
        }
        left(store, wrong_rows(&uids)).await;
        let running = RunningHub::start_with(&hub, on(store)).await;
        for (n, fault) in (1..).zip(FAULTS) {
            let row = 2 * n + 2;
            let expected = format!("Row {row} of the ledger, which is about the CSR request-{n}, holds {fault}: ");
            let sentence = message(&admin, &format!("request-{n}")).await;
            assert!(sentence.starts_with(&expected), "{sentence}");
            assert!(sentence.contains("certs verify"), "{sentence}");
        }
        pass(MOMENT * 3).await;
        let text = log.text();
        let of = |words: &str| text.lines().filter(|line| line.contains(words)).count();
        assert_eq!((of("A CSR cannot be worked on"), of("Could not work on a CSR")), (3, 0), "{text}");
        let metrics = running.metrics.render().unwrap();
        assert!(metrics.contains("addon_signer_csrs_quarantined_total{signer=\"telemetry\"} 3"), "{metrics}");
        let events: Api<Event> = Api::all(admin.clone());
        wait_until(TIMEOUT, "three events", async || {
            let there = events.list(&ListParams::default()).await.unwrap();
            let ours = there.items.iter().filter(|event| event.reason.as_deref() == Some("LedgerRowUnusable"));
            (ours.count() == 3).then_some(())
        })
        .await;
        let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
        for n in 1..=3 {
            let csr = api.get(&format!("request-{n}")).await.unwrap();
            assert!(certificate(&csr).is_none(), "{csr:?}");
            assert!(condition(&csr, "Approved").is_none(), "{csr:?}");
        }

        // Other CSRs are signed, and the advice of the sentence helps.
        submit(&hub, "another").await;
        wait_csr(&admin, "another", "issued", certificate).await;
        api.delete("request-1", &Default::default()).await.unwrap();
        let anew = submit(&hub, "request-1").await;
        wait_csr(&admin, "request-1", "issued", certificate).await;
        becomes(store, &anew, "published").await;
    })
    .await;
}

/// The right ledger is put back: a hub that starts on it signs the CSR and removes the condition.
#[tokio::test]
async fn held_request_is_signed_once_ledger_is_right_again() {
    on_store(async |store| {
        let (hub, admin, first) = mk_ready().await;
        first.stop().await;
        let uid = submitted(&hub, &admin, "request-1").await;
        let leaf = mk_leaf("telemetry");
        left(store, [mk_row(1, &uid, leaf.serial, leaf.certificate.to_vec())]).await;
        let running = RunningHub::start_with(&hub, on(store)).await;
        message(&admin, "request-1").await;
        running.stop().await;
        crate::ledger::rows::run(store, "DELETE FROM certificates").await;
        let _running = RunningHub::start_with(&hub, on(store)).await;
        wait_ready(&admin, "telemetry", "True").await;
        let csr = wait_csr(&admin, "request-1", "issued", |csr| certificate(csr).map(|_| csr.clone())).await;
        assert!(condition(&csr, "RecordUnusable").is_none(), "said only as long as it is true");
    })
    .await;
}
