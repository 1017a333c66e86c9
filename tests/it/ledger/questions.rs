//! What a hub asks the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::verify::{Check, verify};
use addon_signer_ledger::{Location, Reader, answer};

use super::{mk_abandoned, mk_intent, mk_signed, mk_uid, open, options};
use test_kit::store::on_store;

#[tokio::test]
async fn hub_learns_recorded_requests_authorities_and_signers() {
    on_store(async |store| {
        let hub = open(options(&store.url().parse().unwrap(), "hub-a"), 1).await;
        let late = Timestamp::from_unix(1_795_099_999);
        for (n, not_after) in [(1, late), (2, mk_intent(2).not_after), (3, late.plus(Duration::from_secs(9)))] {
            hub.ledger.intend(Intent { not_after, ..mk_intent(n) }).await.unwrap();
        }
        hub.ledger.append(mk_signed(1), "").await.unwrap();
        hub.ledger.append(mk_abandoned(3), "").await.unwrap();
        let asked: Vec<_> = (1..=300).map(|n| (mk_intent(n).requested, mk_uid(n))).collect();
        assert_eq!(hub.ledger.recorded(&asked).await, Ok(BTreeSet::from([mk_uid(1)])), "2 is not signed");
        assert_eq!(hub.ledger.recorded(&[(late, mk_uid(1))]).await, Ok(BTreeSet::new()), "made at another time");
        let ends = BTreeMap::from([("0123456789abcdef".into(), late)]);
        assert_eq!(hub.ledger.last_ends(mk_intent(1).not_before).await, Ok(ends.clone()), "3 is abandoned");
        assert_eq!(hub.ledger.first_ends(mk_intent(1).not_before).await, Ok(ends.clone()));
        hub.ledger.intend(Intent { not_after: late.plus(Duration::from_secs(9)), ..mk_intent(4) }).await.unwrap();
        assert_eq!(hub.ledger.first_ends(mk_intent(1).not_before).await, Ok(ends.clone()), "asked once");
        assert_ne!(hub.ledger.last_ends(mk_intent(1).not_before).await, Ok(ends));
        for (after, known) in [("one", "one"), ("two", "two"), ("", "two")] {
            let record = |signer: &str, after: &str| Record::Signer {
                signer: signer.to_owned(),
                generation: 1,
                before: String::new(),
                after: after.to_owned(),
            };
            hub.ledger.change(record("a", after), "").await.unwrap();
            hub.ledger.change(record("b", "other"), "").await.unwrap();
            let mut specs = Vec::new();
            let take = |spec: &str| {
                specs.push(spec.to_owned());
                true
            };
            hub.ledger.signer_specs(take).await.unwrap();
            let expected = if after == "one" { ["other", known] } else { [known, "other"] };
            assert_eq!(specs, expected, "before its deletion it was two");
            let alive = [("a", after), ("b", "other")].into_iter().filter(|(_, spec)| !spec.is_empty());
            assert_eq!(hub.ledger.signers().await.unwrap(), alive.map(|(name, _)| name.to_owned()).collect());
        }
        hub.close().await;
    })
    .await;
}

/// Authors of AddOnSigners decide how large these are, and how many names there were.
#[tokio::test]
async fn large_entries_are_read_and_checked_a_few_at_a_time() {
    on_store(async |store| {
        let location: Location = store.url().parse().unwrap();
        let hub = open(options(&location, "hub-a"), 1).await;
        let spec = |n: usize| format!("{n} {}", "x".repeat(150_000));
        for n in 0..60 {
            let (signer, after) = (format!("s{:02}", n / 2), spec(n));
            hub.ledger
                .change(Record::Signer { signer, generation: 1, before: String::new(), after }, "")
                .await
                .unwrap();
        }
        let mut shown = Vec::new();
        let take = |spec: &str| {
            shown.push(spec.to_owned());
            shown.len() < 20
        };
        hub.ledger.signer_specs(take).await.unwrap();
        let newest = (0..60).rev().filter(|n| n % 2 == 1).take(20);
        assert!(shown.into_iter().eq(newest.map(spec)), "the newest come first, until there are enough");
        hub.close().await;

        let reader = Reader::open(location.clone()).await.unwrap();
        let (mut seqs, mut pages) = (Vec::new(), 0);
        loop {
            let after = seqs.last().map(|last: &u64| ("continue".to_owned(), last.to_string()));
            let parameters: Vec<_> = [("limit".to_owned(), "1000".to_owned())].into_iter().chain(after).collect();
            let page = answer::entries(&reader, &parameters).await.unwrap();
            seqs.extend(page.items.iter().map(|entry| entry.seq));
            pages += 1;
            let Some(_) = page.metadata.next else { break };
        }
        assert!(seqs.iter().copied().eq(1..=seqs.len() as u64) && seqs.len() >= 60, "{seqs:?}");
        assert!(pages >= 3, "13 MB in pages of 4 MiB: {pages}");
        let report = verify(Check { location, checkpoint: None, archives: Vec::new() }, |_| ()).await.unwrap();
        assert_eq!(report.tip.seq, seqs.len() as u64);
    })
    .await;
}

#[tokio::test]
async fn a_certificate_late_in_its_life_without_successor_is_named() {
    on_store(async |store| {
        let location = store.url().parse().unwrap();
        let hub = open(options(&location, "hub-a"), 1).await;
        // 1 and 8 are of one agent, of which 8 lives longer; 2 is only an intent; 4 lives for ten days.
        let (day, end) = (Duration::from_secs(86_400), mk_intent(1).not_after);
        let lives = [(1, day), (8, 2 * day), (2, day), (3, day), (4, 10 * day)];
        for (n, life) in lives {
            let not_after = mk_intent(n).not_before.plus(life);
            hub.ledger.intend(Intent { not_after, ..mk_intent(n) }).await.unwrap();
        }
        for n in [1, 3, 4, 8] {
            hub.ledger.append(mk_signed(n), "").await.unwrap();
        }
        let reader = Reader::new(location);
        let late = async |at: Timestamp| {
            let found = reader.unrenewed(at).await.unwrap().into_iter();
            found.map(|(signer, key)| format!("{signer} {key}")).collect::<Vec<_>>()
        };
        let none = [""; 0];
        assert_eq!(late(end.minus(day / 5)).await, none, "OCM's agent renews only now");
        assert_eq!(late(end.minus(day / 6)).await, none);
        assert_eq!(late(end.minus(day / 6 - Duration::from_secs(1))).await, ["telemetry cluster3/telemetry"]);
        assert_eq!(late(end.plus(Duration::from_secs(1))).await, none, "it has expired, and nobody can renew it");
        assert_eq!(late(end.plus(day - day / 6)).await, ["telemetry cluster1/telemetry"], "the longer one");
        let last = end.plus(9 * day);
        assert_eq!(late(last.minus(2 * day)).await, none, "not within a day");
        assert_eq!(late(last.minus(day)).await, ["telemetry cluster4/telemetry"]);
        hub.close().await;
    })
    .await;
}

#[tokio::test]
async fn certificates_that_are_valid_are_counted_by_authority() {
    on_store(async |store| {
        let location = store.url().parse().unwrap();
        let hub = open(options(&location, "hub-a"), 1).await;
        let (begin, day) = (mk_intent(1).not_before, Duration::from_secs(86_400));
        // 2 is only an intent, 3 is abandoned; 4 and 5 are another authority's, 5 begins later.
        for n in 1..=5 {
            let issuer = if n < 4 { mk_intent(n).issuer } else { "fedcba9876543210".into() };
            let not_before = if n == 5 { begin.plus(day) } else { begin };
            let not_after = begin.plus(day * u32::try_from(n).unwrap());
            hub.ledger.intend(Intent { issuer, not_before, not_after, ..mk_intent(n) }).await.unwrap();
        }
        for n in [1, 4, 5] {
            hub.ledger.append(mk_signed(n), "").await.unwrap();
        }
        hub.ledger.append(mk_abandoned(3), "").await.unwrap();
        let reader = Reader::new(location);
        let valid = async |at: Timestamp| {
            let mut found = reader.valid(at).await.unwrap();
            found.sort();
            found.into_iter().map(|(signer, issuer, count)| format!("{signer} {issuer} {count}")).collect::<Vec<_>>()
        };
        let [one, other] = ["telemetry 0123456789abcdef 1", "telemetry fedcba9876543210 1"];
        assert_eq!(valid(begin.minus(Duration::from_secs(1))).await, [""; 0]);
        assert_eq!(valid(begin).await, [one, other]);
        assert_eq!(valid(begin.plus(day)).await, [one, "telemetry fedcba9876543210 2"], "the last second counts");
        assert_eq!(valid(begin.plus(day + Duration::from_secs(1))).await, ["telemetry fedcba9876543210 2"]);
        assert_eq!(valid(begin.plus(5 * day)).await, [other]);
        hub.close().await;
    })
    .await;
}
