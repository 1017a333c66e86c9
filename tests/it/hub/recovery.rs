//! Rows that a hub left open, and whose CSRs have changed or were deleted since.

use std::time::Duration;

use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{Reader, WriterOptions};
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::crash::books::{CertificateRow, rows};
use super::{mk_csr, mk_ready};
use crate::ledger::{mk_intent, mk_serial, mk_signed, open};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, wait_csr};
use test_kit::store::{TestStore, on_store};
use test_kit::{TestHub, wait_until};

/// Writes rows as a hub would have left them two minutes ago, in an epoch before all others.
pub(super) async fn left(store: &TestStore, records: impl IntoIterator<Item = (Intent, Option<Record>)>) {
    let clock = Clock::default();
    clock.set_back(Duration::from_secs(120));
    let options = WriterOptions {
        location: store.url().parse().unwrap(),
        replica: "before".to_owned(),
        clock,
        metrics: Default::default(),
    };
    let writer = open(options, 0).await;
    for (intent, signed) in records {
        writer.ledger.intend(intent).await.unwrap();
        if let Some(signed) = signed {
            writer.ledger.append(signed, "").await.unwrap();
        }
    }
    writer.close().await;
}

pub(super) fn on(store: &TestStore) -> RunningHubOptions {
    RunningHubOptions { ledger: Some(store.url().parse().unwrap()), ..RunningHubOptions::default() }
}

/// Makes a CSR with that name; returns its UID.
pub(super) async fn submit(hub: &TestHub, name: &str) -> String {
    let mut csr = mk_csr("spoke1", "telemetry");
    (csr.metadata.name, csr.metadata.generate_name) = (Some(name.to_owned()), None);
    let api: Api<_> = Api::all(hub.as_cluster_agent("spoke1", "a1").await);
    api.create(&PostParams::default(), &csr).await.unwrap().uid().unwrap()
}

/// The ledger finds a CSR by its time and its UID, so the time must not change while the UID stays.
#[tokio::test]
async fn a_request_keeps_its_time_and_the_ledger_has_it() {
    on_store(async |store| {
        let (hub, admin, first) = mk_ready().await;
        first.stop().await;
        let uid = submit(&hub, "timed").await;
        let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
        let time = async || requests.get("timed").await.unwrap().metadata.creation_timestamp.unwrap().0.as_second();
        let before = time().await;
        let patch = json!({ "metadata": { "creationTimestamp": "2001-09-09T01:46:40Z" } });
        let patched = requests.patch("timed", &PatchParams::default(), &Patch::Merge(patch)).await;
        assert_eq!(time().await, before, "{patched:?}");
        let _running = RunningHub::start_with(&hub, on(store)).await;
        issued(&admin, "timed").await;
        let details = Reader::open(store.url().parse().unwrap()).await.unwrap().show(&uid).await.unwrap().unwrap();
        assert_eq!(details.requested, Timestamp::from_unix(before).to_string());
    })
    .await;
}

pub(super) async fn becomes(store: &TestStore, uid: &str, state: &str) -> CertificateRow {
    let url = store.url();
    wait_until(TIMEOUT, &format!("the row of {uid} to be {state}"), async || {
        rows(&url).await.into_iter().find(|row| row.uid == uid && row.state == state)
    })
    .await
}

async fn issued(admin: &Client, name: &str) -> String {
    wait_csr(admin, name, "issued", certificate).await
}

#[tokio::test]
async fn only_deleted_requests_certificate_is_unpublished() {
    on_store(async |store| {
        let (hub, admin, first) = mk_ready().await;
        first.stop().await;
        let of = |n| Intent { request: "again".to_owned(), ..mk_intent(n) };
        left(store, [(of(1), Some(mk_signed(1)))]).await;
        let uid = submit(&hub, "again").await;
        let _running = RunningHub::start_with(&hub, on(store)).await;
        issued(&admin, "again").await;
        let gone = becomes(store, "uid-1", "unpublished").await;
        let own = becomes(store, &uid, "published").await;
        assert_ne!(gone.serial, own.serial);
        assert_ne!(gone.certificate, own.certificate);
    })
    .await;
}

#[tokio::test]
async fn intent_of_a_deleted_request_is_abandoned() {
    on_store(async |store| {
        let (hub, _, first) = mk_ready().await;
        first.stop().await;
        left(store, [(mk_intent(1), None), (mk_intent(2), Some(mk_signed(2)))]).await;
        let _running = RunningHub::start_with(&hub, on(store)).await;
        becomes(store, "uid-1", "abandoned").await;
        becomes(store, "uid-2", "unpublished").await;
    })
    .await;
}

#[tokio::test]
async fn row_whose_serial_number_was_altered_keeps_no_other_row_open() {
    on_store(async |store| {
        let (hub, _, first) = mk_ready().await;
        first.stop().await;
        left(store, [(mk_intent(1), None), (mk_intent(2), None), (mk_intent(3), None)]).await;
        crate::ledger::rows::run(store, "UPDATE certificates SET serial = 'x' || seq WHERE uid <> 'uid-2'").await;
        let _running = RunningHub::start_with(&hub, on(store)).await;
        becomes(store, "uid-2", "abandoned").await;
        becomes(store, "uid-1", "intent").await;
    })
    .await;
}

#[tokio::test]
async fn certificate_whose_publication_was_not_noted_is_found() {
    on_store(async |store| {
        let (hub, admin, first) = mk_ready().await;
        first.stop().await;
        let running = RunningHub::start_with(&hub, on(store)).await;
        let uid = submit(&hub, "found").await;
        let before = issued(&admin, "found").await;
        becomes(store, &uid, "published").await;
        running.stop().await;
        crate::ledger::rows::run(store, "UPDATE certificates SET state = 'signed', published_at = NULL").await;
        crate::ledger::rows::run(store, "INSERT INTO unfinished SELECT seq FROM certificates").await;

        let clock = Clock::default();
        clock.advance(Duration::from_secs(120));
        let _running = RunningHub::start_with(&hub, RunningHubOptions { clock, ..on(store) }).await;
        becomes(store, &uid, "published").await;
        assert_eq!(issued(&admin, "found").await, before);
    })
    .await;
}

/// This happens after a ledger was restored from a backup, or if somebody else wrote the certificate.
#[tokio::test]
async fn row_of_a_request_with_another_certificate_is_closed() {
    on_store(async |store| {
        let (hub, admin, first) = mk_ready().await;
        let uid = submit(&hub, "other").await;
        let before = issued(&admin, "other").await;
        first.stop().await;
        let signed = Record::Signed { uid: uid.as_str().into(), serial: mk_serial(1), certificate: vec![1] };
        let intent = Intent { uid: uid.as_str().into(), request: "other".to_owned(), ..mk_intent(1) };
        left(store, [(intent, Some(signed))]).await;
        let _running = RunningHub::start_with(&hub, on(store)).await;
        becomes(store, &uid, "unpublished").await;
        assert_eq!(issued(&admin, "other").await, before);
    })
    .await;
}
