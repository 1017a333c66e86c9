//! What a hub asks the ledger when it begins to lead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use addon_signer::ledger::{CertificateUse, Ledger};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::line::need::OldLeaf;
use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::timestamp::Timestamp;

use super::{mk_abandoned, mk_identity, mk_intent, mk_serial, mk_signed, mk_uid, open, options};
use crate::support::store::on_every_store;

#[tokio::test]
async fn a_hub_learns_what_the_ledger_has_of_requests_authorities_and_signers() {
    on_every_store(async |store| {
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
            let specs = BTreeSet::from([known.to_owned(), "other".to_owned()]);
            assert_eq!(hub.ledger.signer_specs().await, Ok(specs), "before its deletion it was two");
        }
        hub.close().await;
    })
    .await;
}

/// Records an intent for the agent on a cluster by this authority, and the certificate too if it is `signed`.
async fn record(ledger: &Ledger, n: u64, cluster: &str, agent: &str, issuer: &str, signed: bool) {
    let identity = Some(mk_identity(cluster, "telemetry", agent));
    ledger.intend(Intent { identity, issuer: issuer.into(), ..mk_intent(n) }).await.unwrap();
    if signed {
        ledger.append(mk_signed(n), "").await.unwrap();
        ledger.published(mk_serial(n), mk_intent(n).not_before).await;
    }
}

async fn old_leaves(ledger: &Ledger, now: Timestamp) -> Vec<OldLeaf> {
    let [old, active, next] = ["old", "active", "next"].map(AuthorityId::from);
    let mut leaves = Vec::new();
    ledger.old_leaves(&old, &[&active, &next], now, |leaf| leaves.push(leaf)).await.unwrap();
    leaves
}

#[tokio::test]
async fn the_ledger_knows_who_has_moved_to_a_newer_authority() {
    on_every_store(async |store| {
        let hub = open(options(&store.url().parse().unwrap(), "hub-a"), 1).await;
        let ledger = &hub.ledger;
        let at = mk_intent(0).prepared;
        let mk = |cluster: &str, agent: &str, last_seen, has_moved| OldLeaf {
            cluster: cluster.to_owned(),
            addon: "telemetry".to_owned(),
            agent: agent.to_owned(),
            not_before: mk_intent(0).not_before,
            last_seen,
            is_open: false,
            has_moved,
        };
        // Seen with the new one: 12. Not seen with it: 14. Seen with one of an authority that is no newer: 16.
        for (n, cluster, agent, issuer) in [
            (10, "c1", "another", "old"),
            (11, "c1", "a", "old"),
            (12, "c1", "a", "active"),
            (13, "c2", "a", "old"),
            (14, "c2", "a", "active"),
            (15, "c3", "a", "old"),
            (16, "c3", "a", "older"),
            // Its newest certificate is an old one, which was decided on before.
            (18, "c4", "a", "active"),
            (19, "c4", "a", "old"),
        ] {
            record(ledger, n, cluster, agent, issuer, true).await;
        }
        record(ledger, 20, "c5", "a", "old", false).await;
        record(ledger, 21, "c6", "a", "old", false).await;
        ledger.append(mk_abandoned(21), "").await.unwrap();
        let uses = [11, 12, 16, 18].map(|n| CertificateUse {
            serial: mk_serial(n),
            at,
            from: "10.0.0.1".to_owned(),
            holds: None,
        });
        ledger.seen(uses.to_vec()).await;
        ledger.latest("settled").await.unwrap(); // the notes are in the ledger before the next answer
        let expected = [
            mk("c1", "another", None, false),
            mk("c1", "a", Some(at), true),
            mk("c2", "a", None, false),
            mk("c3", "a", None, false),
            mk("c4", "a", None, false),
            OldLeaf { is_open: true, ..mk("c5", "a", None, false) },
        ];
        let end = mk_intent(0).not_after;
        assert_eq!(old_leaves(ledger, at).await, expected);
        assert_eq!(old_leaves(ledger, end).await, expected, "the last second still counts");
        assert_eq!(old_leaves(ledger, end.plus(Duration::from_secs(1))).await, []);
        hub.close().await;
    })
    .await;
}

#[tokio::test]
async fn no_leaf_is_missing_or_doubled_where_a_page_ends() {
    on_every_store(async |store| {
        let hub = open(options(&store.url().parse().unwrap(), "hub-a"), 1).await;
        // All have one end, so pages are told apart by number; each third is another authority's.
        for n in 0..1_200 {
            let issuer = if n % 3 == 0 { "active" } else { "old" };
            record(&hub.ledger, n, &format!("c{n}"), "a", issuer, false).await;
        }
        let leaves = old_leaves(&hub.ledger, mk_intent(0).prepared).await;
        let found: BTreeSet<_> = leaves.iter().map(|leaf| leaf.cluster.clone()).collect();
        assert_eq!((leaves.len(), found.len()), (800, 800));
        hub.close().await;
    })
    .await;
}
