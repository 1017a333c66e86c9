//! What a hub asks the ledger when it begins to lead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::timestamp::Timestamp;

use super::{mk_abandoned, mk_intent, mk_signed, mk_uid, open, options};
use test_kit::store::on_every_store;

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
