//! Which agents may lack a trust bundle, as the ledger knows.

use std::time::Duration;

use addon_signer::ledger::{BundleHolders, BundleQuestion, COPIES, CertificateUse, Health, Location};
use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::sighting::Word;
use addon_signer_core::timestamp::Timestamp;

use super::{Open, mk_identity, mk_intent, mk_serial, mk_uid, open, options};
use crate::support::store::on_every_store;

const NOW: Timestamp = Timestamp::from_unix(1_795_000_300);
const HOUR: Duration = Duration::from_secs(3_600);

fn used(n: u64, at: Timestamp, holds: Option<Word>) -> CertificateUse {
    CertificateUse { serial: mk_serial(n), at, from: "192.0.2.1".to_owned(), holds }
}

fn word(n: u64, at: Timestamp, digest: &str) -> CertificateUse {
    used(n, at, Some(Word { at, digest: digest.into(), is_disputed: false }))
}

async fn note(hub: &Open, uses: Vec<CertificateUse>) {
    hub.ledger.seen(uses).await;
    hub.ledger.append(Record::Leader, "").await.unwrap(); // the uses are in the ledger by then
}

/// Who may lack this bundle, if it has come with no certificate yet.
async fn holders(hub: &Open, digest: &str) -> Vec<BundleHolders> {
    let asked = BundleQuestion { digest, tip: u64::MAX / 2, now: NOW };
    let mut found = hub.ledger.bundle_holders(asked).await.unwrap();
    found.sort_by(|a, b| a.key.cmp(&b.key));
    found
}

/// How many agents each has: all, those that have shown the bundle, not for long, another one.
async fn counts(hub: &Open, digest: &str) -> Vec<[u64; 4]> {
    let found = holders(hub, digest).await;
    found.into_iter().map(|found| [found.agents, found.shown, found.recent, found.behind]).collect()
}

#[tokio::test]
async fn who_has_shown_a_trust_bundle_is_kept_for_each_agent_until_its_certificates_expire() {
    on_every_store(async |store| shown(&store.url().parse().unwrap()).await).await;
}

async fn shown(location: &Location) {
    let hub = open(options(location, "hub-a"), 1).await;
    let mut intents: Vec<_> = (1..=9).map(mk_intent).collect();
    // Two certificates of one agent, and two agents of one addon.
    let agents = ["cluster1", "cluster1", "cluster2", "cluster3", "cluster4", "", "cluster7", "cluster8", "cluster8"];
    for (intent, cluster) in intents.iter_mut().zip(agents).filter(|(_, cluster)| !cluster.is_empty()) {
        intent.identity = Some(mk_identity(cluster, "telemetry", "telemetry"));
    }
    intents[8].identity = Some(mk_identity("cluster8", "telemetry", "another"));
    intents[3].not_after = NOW;
    intents[5].identity = None; // the gateway's own
    for intent in intents {
        hub.ledger.intend(intent).await.unwrap();
    }
    let words = [(1, "new"), (2, "old"), (3, "old"), (4, "new"), (5, "new"), (6, "new"), (8, "new")];
    note(&hub, words.map(|(n, digest)| word(n, NOW.minus(COPIES), digest)).to_vec()).await;
    note(&hub, [1, 2, 3, 8].map(|n| used(n, NOW, None)).to_vec()).await; // connections that go on
    let (uid, reason) = (mk_uid(5), "The key is gone.".to_owned());
    hub.ledger.append(Record::Abandoned { uid, serial: mk_serial(5), reason }, "").await.unwrap();

    let found = holders(&hub, "new").await;
    let clusters: Vec<_> = found.iter().map(|found| found.key.cluster.as_str()).collect();
    assert_eq!(clusters, ["cluster1", "cluster2", "cluster7", "cluster8"]);
    assert!(found.iter().all(|found| (found.last_seen == Some(NOW)) == (found.key.cluster.as_str() != "cluster7")));
    let (good, old, unknown, two) = ([1, 1, 0, 0], [1, 0, 0, 1], [1, 0, 0, 0], [2, 1, 0, 0]);
    assert_eq!(counts(&hub, "new").await, [good, old, unknown, two]);
    assert_eq!(counts(&hub, "newer").await, [old, old, unknown, [2, 0, 0, 1]]);
    assert_eq!(counts(&hub, "old").await, [good, good, unknown, [2, 0, 0, 1]]);
    note(&hub, vec![word(2, NOW, "old")]).await;
    assert_eq!(counts(&hub, "new").await, [old, old, unknown, two], "a copy has the other certificate");
    note(&hub, vec![word(2, NOW, "new")]).await;
    assert_eq!(counts(&hub, "new").await, [good, old, unknown, two]);
    hub.close().await;
}

#[tokio::test]
async fn an_agent_must_have_shown_one_bundle_and_no_other_for_as_long_as_copies_may_take() {
    on_every_store(async |store| for_long(&store.url().parse().unwrap()).await).await;
}

async fn for_long(location: &Location) {
    let hub = open(options(location, "hub-a"), 1).await;
    hub.ledger.intend(mk_intent(1)).await.unwrap();
    let long_ago = NOW.minus(COPIES);
    let (good, recent) = ([[1, 1, 0, 0]], [[1, 0, 1, 0]]);
    note(&hub, vec![word(1, long_ago.minus(HOUR), "old")]).await;
    note(&hub, vec![word(1, long_ago.plus(Duration::from_secs(1)), "new")]).await;
    assert_eq!(counts(&hub, "new").await, recent);
    note(&hub, vec![word(1, long_ago, "new")]).await;
    note(&hub, vec![word(1, NOW, "new")]).await;
    assert_eq!(counts(&hub, "new").await, good, "the same again changes nothing");
    note(&hub, vec![used(1, NOW, Some(Word { at: NOW, digest: "new".into(), is_disputed: true }))]).await;
    assert_eq!(counts(&hub, "new").await, recent, "a copy has the same certificate");
    // A clock that was ahead: the time of use stays, and the word makes room for later ones.
    note(&hub, vec![word(1, NOW.plus(HOUR), "new")]).await;
    note(&hub, vec![word(1, long_ago, "new")]).await;
    assert_eq!(counts(&hub, "new").await, good);
    assert_eq!(holders(&hub, "new").await[0].last_seen, Some(NOW.plus(HOUR)));
    // Of that time are also a certificate that is not valid yet, and the last word of one that nobody uses any more.
    let identity = mk_intent(1).identity;
    let later = Intent { identity: identity.clone(), not_before: NOW.plus(HOUR), ..mk_intent(2) };
    hub.ledger.intend(later).await.unwrap();
    hub.ledger.intend(Intent { identity, ..mk_intent(3) }).await.unwrap();
    note(&hub, vec![word(2, NOW, "old"), word(3, NOW.plus(HOUR), "old")]).await;
    assert_eq!(counts(&hub, "new").await, good);
    note(&hub, vec![word(3, NOW, "old")]).await;
    assert_eq!(counts(&hub, "new").await, [[1, 0, 0, 1]]);
    hub.close().await;
}

#[tokio::test]
async fn an_agent_whose_certificates_all_came_with_a_trust_bundle_need_not_show_it() {
    on_every_store(async |store| came_with_certificates(&store.url().parse().unwrap()).await).await;
}

async fn came_with_certificates(location: &Location) {
    let hub = open(options(location, "hub-a"), 1).await;
    // Before the bundle was published: one that lives, one that has expired. Then: another one of both, and new agents,
    // of which some have shown another bundle.
    let before = [("old", HOUR), ("both", HOUR), ("renewed", Duration::ZERO)];
    let after = ["both", "renewed", "new", "behind", "copy", "copy"].map(|cluster| (cluster, HOUR));
    for (n, (cluster, life)) in (1..).zip(before.into_iter().chain(after)) {
        let identity = Some(mk_identity(cluster, "telemetry", "telemetry"));
        hub.ledger.intend(Intent { identity, not_after: NOW.plus(life), ..mk_intent(n) }).await.unwrap();
    }
    note(&hub, vec![word(7, NOW.minus(COPIES), "old"), word(8, NOW, "old"), word(9, NOW, "new")]).await;
    let Health::Up { tip, .. } = hub.ledger.health().borrow().clone() else { panic!("the ledger is down") };
    let last_before = tip.seq - 7; // the entry of the words, and six certificates
    let asked = BundleQuestion { digest: "new", tip: last_before, now: NOW };
    let found = hub.ledger.bundle_holders(asked).await.unwrap();
    let mut clusters: Vec<_> = found.iter().map(|found| found.key.cluster.as_str()).collect();
    clusters.sort_unstable();
    assert_eq!(clusters, ["behind", "both", "copy", "old", "renewed"]);
    hub.close().await;
}
