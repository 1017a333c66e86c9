//! What the writer writes and answers, and which hub may write.

use std::fs;
use std::time::Duration;

use addon_signer_core::journal::record::{Existing, Intended};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::Location;

use super::{fill, mk_intent, mk_serial, mk_signed, open, options, sqlite};
use test_kit::wait::wait_until;

#[tokio::test]
async fn a_request_has_one_certificate() {
    let dir = tempfile::tempdir().unwrap();
    one_certificate(&sqlite(dir.path())).await;
}

async fn one_certificate(location: &Location) {
    let hub = open(options(location, "hub-a"), 1).await;
    assert_eq!(hub.ledger.intend(mk_intent(1)).await, Ok(Intended::Recorded));
    let again = Intended::Existing(Existing::Intent {
        issuer: "0123456789abcdef".into(),
        serial: mk_serial(1),
        prepared: Timestamp::from_unix(1_795_000_300),
        tbs: "00".repeat(32),
    });
    let mut second = mk_intent(1);
    second.serial = mk_serial(99);
    assert_eq!(hub.ledger.intend(second.clone()).await, Ok(again));
    hub.ledger.append(mk_signed(1), "").await.unwrap();
    hub.close().await;
    // Another process asks later.
    let hub = open(options(location, "hub-b"), 2).await;
    let signed = Existing::Signed {
        row: 4,
        issuer: "0123456789abcdef".into(),
        serial: mk_serial(1),
        certificate: 1_u64.to_be_bytes().to_vec(),
    };
    assert_eq!(hub.ledger.intend(second).await, Ok(Intended::Existing(signed)));
    hub.close().await;
}

#[tokio::test]
async fn requests_at_once_share_transactions_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let location = sqlite(dir.path());
    let hub = open(options(&location, "hub-a"), 1).await;
    let work = (0..500_u64).map(|n| {
        let ledger = hub.ledger.clone();
        tokio::spawn(async move {
            assert_eq!(ledger.intend(mk_intent(n)).await, Ok(Intended::Recorded));
            ledger.append(mk_signed(n), "").await.unwrap();
        })
    });
    for done in work.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    hub.close().await;
}

#[tokio::test]
async fn journal_is_folded_into_the_file_while_commits_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let hub = open(options(&sqlite(dir.path()), "hub-a"), 1).await;
    let size = || fs::metadata(dir.path().join("ledger.db")).unwrap().len();
    let before = size();
    fill(&hub, 0..5_500).await;
    let folded = async || (size() > before + (1 << 20)).then_some(());
    wait_until(Duration::from_secs(20), "the journal to be folded in", folded).await;
    fill(&hub, 5_500..5_600).await;
    hub.close().await;
    assert!(!dir.path().join("ledger.db-wal").exists(), "closed properly");
}
