//! Lists, pages and single certificates.

use std::collections::BTreeSet;
use std::time::Duration;

use addon_signer_core::journal::CertificateState;
use addon_signer_core::journal::record::{AuthorityStep, Record};
use addon_signer_core::query::{Filter, Query, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{CertificateUse, Location, Reader, answer};

use super::{fill, mk_identity, mk_intent, mk_serial, mk_signed, mk_uid, open, options, sqlite};
use test_kit::store::on_store;

/// A time at which the certificates of `mk_intent` are valid.
const NOW: Timestamp = Timestamp::from_unix(1_795_040_000);

fn query(filter: Filter) -> Query {
    Query { filter, ..Query::default() }
}

/// The numbers of the certificates that a filter lets through, as `mk_intent` numbered them, in the order of the list.
async fn numbers(reader: &Reader, filter: Filter) -> Vec<u64> {
    let found = reader.list(&query(filter), NOW).await.unwrap();
    found.iter().map(|found| u64::from_str_radix(&found.serial, 16).unwrap()).collect()
}

#[tokio::test]
async fn every_filter_lets_through_what_it_says() {
    on_store(async |store| filters(&store.url().parse().unwrap()).await).await;
}

async fn filters(location: &Location) {
    let hub = open(options(location, "hub-a"), 1).await;
    let mut intents: Vec<_> = (1..=9).map(mk_intent).collect();
    intents[0].signer = "logs".to_owned();
    intents[1].identity = Some(mk_identity("cluster2", "logs", "telemetry"));
    intents[2].identity = Some(mk_identity("cluster3", "telemetry", "other"));
    intents[3].issuer = "fedcba9876543210".into();
    intents[4].not_after = NOW.minus(Duration::from_secs(1));
    intents[5].not_after = NOW;
    for intent in intents {
        hub.ledger.intend(intent).await.unwrap();
    }
    for n in [1, 2, 3, 4, 5, 6, 7] {
        hub.ledger.append(mk_signed(n), "").await.unwrap();
    }
    let uid = mk_uid(8);
    let reason = "The key is gone.".to_owned();
    hub.ledger.append(Record::Abandoned { uid, serial: mk_serial(8), reason }, "").await.unwrap();
    let uid = mk_uid(7);
    let reason = "The CSR is gone.".to_owned();
    hub.ledger.append(Record::Unpublished { uid, serial: mk_serial(7), reason }, "").await.unwrap();
    hub.ledger.published(mk_serial(1), NOW).await;
    let seen = |n, at| CertificateUse { serial: mk_serial(n), at, from: "192.0.2.1".to_owned() };
    hub.ledger.seen(vec![seen(1, NOW), seen(2, NOW.minus(Duration::from_secs(60)))]).await;
    hub.close().await;

    let reader = Reader::open(location.clone()).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    assert_eq!(numbers(&reader, all()).await, [9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(numbers(&reader, Filter { signer: text("logs"), ..all() }).await, [1]);
    assert_eq!(numbers(&reader, Filter { cluster: text("cluster1"), ..all() }).await, [8, 1]);
    assert_eq!(numbers(&reader, Filter { addon: text("logs"), ..all() }).await, [2]);
    assert_eq!(numbers(&reader, Filter { agent: text("other"), ..all() }).await, [3]);
    assert_eq!(numbers(&reader, Filter { issuer: text("fedcba9876543210"), ..all() }).await, [4]);
    let eligibility = |eligibility: StateFilter| Filter { state: Some(eligibility), ..all() };
    assert_eq!(numbers(&reader, eligibility(StateFilter::Recorded(CertificateState::Intent))).await, [9]);
    assert_eq!(numbers(&reader, eligibility(StateFilter::Recorded(CertificateState::Signed))).await, [6, 5, 4, 3, 2]);
    assert_eq!(numbers(&reader, eligibility(StateFilter::Recorded(CertificateState::Published))).await, [1]);
    assert_eq!(numbers(&reader, eligibility(StateFilter::Recorded(CertificateState::Unpublished))).await, [7]);
    assert_eq!(numbers(&reader, eligibility(StateFilter::Recorded(CertificateState::Abandoned))).await, [8]);
    assert_eq!(numbers(&reader, eligibility(StateFilter::Valid)).await, [6, 4, 3, 2, 1]);
    assert_eq!(numbers(&reader, eligibility(StateFilter::Expired)).await, [5]);
    let within = |seconds| Filter { expiring_within: Some(Duration::from_secs(seconds)), ..all() };
    assert_eq!(numbers(&reader, within(0)).await, [6]);
    assert_eq!(numbers(&reader, within(46_400)).await, [6, 1, 2, 3, 4], "the soonest first");
    let unseen = |since| Filter { not_seen_since: Some(since), ..all() };
    assert_eq!(numbers(&reader, unseen(NOW)).await, [3, 4, 5, 6, 7, 2], "the longest first");
    assert_eq!(numbers(&reader, unseen(NOW.minus(Duration::from_secs(60)))).await, [3, 4, 5, 6, 7]);
    let both = Filter { cluster: text("cluster1"), state: Some(StateFilter::Valid), ..all() };
    assert_eq!(numbers(&reader, both).await, [1]);
    let hostile = Filter { cluster: text("' OR 1 = 1 --"), ..all() };
    assert_eq!(numbers(&reader, hostile).await, [0; 0]);
}

#[tokio::test]
async fn pages_have_no_gaps_or_repeats_while_certificates_are_added() {
    on_store(async |store| pages(&store.url().parse().unwrap()).await).await;
}

async fn pages(location: &Location) {
    let hub = open(options(location, "hub-a"), 1).await;
    fill(&hub, 0..2500).await;
    let reader = Reader::open(location.clone()).await.unwrap();
    let adding = {
        let ledger = hub.ledger.clone();
        tokio::spawn(async move {
            for n in 2500..3000 {
                ledger.intend(mk_intent(n)).await.unwrap();
            }
        })
    };
    let mut parameters = vec![("limit".to_owned(), "97".to_owned())];
    let mut seen = BTreeSet::new();
    let mut last = u64::MAX;
    loop {
        let page = answer::certificates(&reader, &parameters, NOW).await.unwrap();
        for certificate in &page.items {
            assert!(certificate.seq < last, "newest first");
            last = certificate.seq;
            assert!(seen.insert(certificate.serial.clone()));
        }
        let Some(next) = page.metadata.next else { break };
        parameters.truncate(1);
        parameters.push(("continue".to_owned(), next));
    }
    assert!((0..2500).all(|n| seen.contains(&mk_serial(n).to_string())));
    adding.await.unwrap();
    hub.close().await;

    let mut entries = Vec::new();
    loop {
        let more = reader.entries(entries.len() as u64, 700).await.unwrap();
        if more.is_empty() {
            break;
        }
        entries.extend(more);
    }
    assert!(entries.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
    assert_eq!(entries.iter().filter(|entry| entry.kind == "intent").count(), 3000);
}

#[tokio::test]
async fn one_certificate_is_found_by_serial_uid_and_name() {
    on_store(async |store| show(&store.url().parse().unwrap()).await).await;
}

async fn show(location: &Location) {
    let hub = open(options(location, "hub-a"), 3).await;
    let lineage = "telemetry".to_owned();
    let id = "0123456789abcdef".into();
    let authority = Record::Authority { lineage, id, step: AuthorityStep::Activated, certificate: vec![0x30, 0] };
    hub.ledger.change(authority, "").await.unwrap();
    hub.ledger.intend(mk_intent(0xab)).await.unwrap();
    hub.ledger.append(mk_signed(0xab), "").await.unwrap();
    hub.ledger.seen(vec![CertificateUse { serial: mk_serial(0xab), at: NOW, from: "192.0.2.1".to_owned() }]).await;
    hub.ledger.intend(mk_intent(2)).await.unwrap();
    let uid = mk_uid(2);
    let reason = "It was never signed.".to_owned();
    hub.ledger.append(Record::Abandoned { uid, serial: mk_serial(2), reason: reason.clone() }, "").await.unwrap();
    hub.close().await;

    let reader = Reader::open(location.clone()).await.unwrap();
    // Spawn the first question, as a server does.
    let shared = reader.clone();
    let found = tokio::spawn(async move { answer::certificate(&shared, "uid-171").await });
    let found = found.await.unwrap().unwrap();
    for name in [mk_serial(0xab).to_string(), "00:AB".to_owned(), "csr-171".to_owned()] {
        assert_eq!(answer::certificate(&reader, &name).await.as_ref(), Ok(&found), "{name}");
    }
    let intent = mk_intent(0xab);
    assert_eq!(
        (found.certificate.state, &found.certificate.serial),
        (CertificateState::Signed, &intent.serial.to_string())
    );
    assert_eq!((&found.requester, &found.csr, &found.tbs), (&intent.requester, &intent.csr, &intent.tbs));
    assert!(found.csr_user.is_some());
    assert!(found.csr_user == intent.csr_user);
    assert_eq!((found.generation.as_str(), found.decided.epoch, found.decided.replica.as_str()), ("1", 3, "hub-a"));
    assert_eq!(found.signed.as_ref().map(|written| written.seq), Some(found.decided.seq + 1));
    assert!(found.pem.is_some_and(|pem| pem.starts_with("-----BEGIN CERTIFICATE-----\nAAAAAAAAAKs=\n")));
    assert_eq!(found.issuer_pem.as_deref().and_then(|pem| pem.lines().nth(1)), Some("MAA="));
    assert_eq!(
        (found.certificate.last_seen, found.certificate.last_seen_from.as_deref()),
        (Some(NOW), Some("192.0.2.1"))
    );
    assert_eq!((found.ended, found.reason), (None, None));

    let abandoned = answer::certificate(&reader, "uid-2").await.unwrap();
    assert_eq!((abandoned.certificate.state, abandoned.reason), (CertificateState::Abandoned, Some(reason)));
    let error = answer::certificate(&reader, "nobody").await.unwrap_err().to_string();
    assert!(error.contains("named \"nobody\""), "{error}");
}

#[tokio::test]
async fn a_ledger_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = Reader::open(sqlite(dir.path())).await.err().unwrap().to_string();
    assert!(error.contains("ledger.db cannot be opened"), "{error}");
}
