//! Lists, pages and single certificates.

use std::collections::BTreeSet;

use addon_signer_core::journal::CertificateState;
use addon_signer_core::journal::record::{AuthorityStep, Record};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{CertificateUse, Location, Reader, answer};

use super::{fill, mk_intent, mk_serial, mk_signed, mk_uid, open, options};
use test_kit::store::on_store;

/// A time at which the certificates of `mk_intent` are valid.
const NOW: Timestamp = Timestamp::from_unix(1_795_040_000);

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
        let (page, has_more) = reader.entries(entries.len() as u64, 700).await.unwrap();
        entries.extend(page);
        if !has_more {
            break;
        }
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
