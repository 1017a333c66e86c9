//! The check of a ledger finds each fault, and names the right row.

use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::record::Record;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::verify::{Check, VerifyError, VerifyReport, verify};
use addon_signer_ledger::{Health, Location};
use ring::rand::SystemRandom;

use super::rows::{self, run};
use super::{Open, fill, mk_abandoned, mk_intent, mk_serial, mk_signed, mk_uid, open, options, sqlite};
use test_kit::store::{TestStore, on_store};

const CERTIFICATES: u64 = 700;

async fn check(location: &Location, checkpoint: Option<Checkpoint>) -> Result<VerifyReport, VerifyError> {
    verify(Check { location: location.clone(), checkpoint, archives: Vec::new() }, |_| ()).await
}

/// The first bad row and what is wrong with it.
async fn fault(location: &Location) -> (u64, String) {
    match rows::of_rows(check(location, None).await) {
        Err(VerifyError::Fault(fault)) => (fault.row, fault.problem.to_string()),
        other => panic!("{other:?}"),
    }
}

fn tip(hub: &Open) -> (String, addon_signer_core::journal::entry::Tip) {
    match &*hub.ledger.health().borrow() {
        Health::Up { ledger, tip } => (ledger.clone(), *tip),
        other => panic!("{other:?}"),
    }
}

/// Makes a ledger with certificates in most of the states that the index has; returns a checkpoint of it.
async fn prepare(location: &Location) -> Checkpoint {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
    let hub = open(options(location, "hub-a"), 1).await;
    hub.ledger.change(Record::CheckpointKey { key: key.public_key_der().to_vec() }, "").await.unwrap();
    // Those at once have their intents side by side: the last of them are on the second page.
    fill(&hub, 0..CERTIFICATES - 100).await;
    fill(&hub, CERTIFICATES - 100..CERTIFICATES).await;
    for n in CERTIFICATES..CERTIFICATES + 3 {
        hub.ledger.intend(mk_intent(n)).await.unwrap();
    }
    hub.ledger.append(mk_abandoned(CERTIFICATES + 1), "").await.unwrap();
    let (ledger, tip) = tip(&hub);
    let checkpoint = Checkpoint::sign(&ledger, tip, Timestamp::from_unix(1_795_000_000), &key, &rng).unwrap();
    let uid = mk_uid(5);
    let serial = mk_serial(5);
    let reason = "It is gone.".to_owned();
    hub.ledger.append(Record::Unpublished { uid, serial, reason }, "").await.unwrap();
    hub.close().await;
    checkpoint
}

#[tokio::test]
async fn an_untouched_ledger_is_valid() {
    on_store(async |store| untouched(&store.url().parse().unwrap()).await).await;
}

async fn untouched(location: &Location) {
    let checkpoint = prepare(location).await;
    let report = check(location, Some(checkpoint.clone())).await.unwrap();
    assert_eq!((report.first, report.unchecked, report.certificates), (1, 0, CERTIFICATES + 3));
    assert_eq!((report.ledger.as_str(), report.tip.seq), (checkpoint.ledger.as_str(), checkpoint.seq + 1));
    let found = report.checkpoint.unwrap();
    assert!(found.key_is_recorded);
    assert_eq!(found.checkpoint, checkpoint);
}

#[tokio::test]
async fn a_ledger_is_checked_while_its_hub_writes() {
    let dir = tempfile::tempdir().unwrap();
    let location = sqlite(dir.path());
    let hub = open(options(&location, "hub-a"), 1).await;
    let writing = {
        let ledger = hub.ledger.clone();
        tokio::spawn(async move {
            for n in 0..300 {
                ledger.intend(mk_intent(n)).await.unwrap();
                ledger.append(mk_signed(n), "").await.unwrap();
            }
        })
    };
    let mut checks = 0;
    while !writing.is_finished() || checks == 0 {
        check(&location, None).await.unwrap();
        checks += 1;
    }
    writing.await.unwrap();
    hub.close().await;
}

#[tokio::test]
async fn checkpoints_of_other_ledgers_and_other_keys_prove_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let location = sqlite(dir.path());
    let checkpoint = prepare(&location).await;
    let other = Checkpoint { ledger: "0".repeat(32), ..checkpoint.clone() };
    let error = check(&location, Some(other)).await.unwrap_err().to_string();
    assert!(error.contains("it belongs to the ledger 00"), "{error}");
    let other = Checkpoint { key: "MCowBQYDK2VwAyEA".to_owned(), ..checkpoint.clone() };
    let error = check(&location, Some(other)).await.unwrap_err().to_string();
    assert!(error.contains("since row"), "{error}");
    let other = Checkpoint { hash: "0".repeat(64), ..checkpoint.clone() };
    let error = check(&location, Some(other)).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("row {}: it is not the row that the checkpoint of", checkpoint.seq)), "{error}");
    let later = Checkpoint { seq: checkpoint.seq + 2, ..checkpoint.clone() };
    let error = check(&location, Some(later)).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("row {}: it and all later rows are missing", checkpoint.seq + 2)), "{error}");
}

/// A huge row number must not make the check look for missing rows for ever.
#[tokio::test]
async fn an_entry_far_behind_the_others_is_found() {
    on_store(async |store| {
        let location: Location = store.url().parse().unwrap();
        prepare(&location).await;
        rows::disarm(store).await;
        let last = rows::number(store, "(SELECT MAX(seq) FROM entries)").await;
        run(store, &format!("UPDATE entries SET seq = 4611686018427387904 WHERE seq = {last}")).await;
        let (row, problem) = fault(&location).await;
        assert!(row == last, "{row}: {problem}");
        assert!(problem.contains("it is missing"), "{row}: {problem}");
    })
    .await;
}

/// One row has the texts of two entries one after the other, and both hashes.
#[tokio::test]
async fn two_entries_in_one_row_are_found() {
    on_store(async |store| {
        let location: Location = store.url().parse().unwrap();
        prepare(&location).await;
        rows::disarm(store).await;
        let bytes = match store {
            TestStore::Sqlite(_) => "BLOB",
            TestStore::Postgres(_) => "BYTEA",
        };
        let next = |column| format!("(SELECT {column} FROM entries AS next WHERE next.seq = entries.seq + 1)");
        let text = next("entry");
        let hash = next("hash");
        let merged = format!(
            "UPDATE entries SET entry = entry || '\n' || {text}, hash = CAST(hash || {hash} AS {bytes}) \
             WHERE seq = 1100; \
             DELETE FROM entries WHERE seq = 1101"
        );
        run(store, &merged).await;
        let (row, problem) = fault(&location).await;
        assert!(row == 1100, "{row}: {problem}");
        assert!(problem.contains("does not have the hash"), "{row}: {problem}");
    })
    .await;
}

#[tokio::test]
async fn rows_of_the_index_that_were_altered_are_named() {
    on_store(async |store| altered_index(store, &store.url().parse().unwrap()).await).await;
}

/// A change, the SQL of the number of the row that the check must name, and what it must say about that row.
const ALTERATIONS: [(&str, &str, &str); 22] = [
    ("UPDATE certificates SET cluster = 'mine' WHERE uid = 'uid-650'", ROW_650, "cluster is \"mine\" there"),
    ("UPDATE certificates SET not_after = not_after + 1 WHERE uid = 'uid-650'", ROW_650, "not-after is "),
    (
        "UPDATE certificates SET requested = 7 WHERE uid = 'uid-650'",
        ROW_650,
        "requested is \"1970-01-01T00:00:07Z\" there",
    ),
    ("UPDATE certificates SET state = 'intent' WHERE uid = 'uid-650'", ROW_650, "its state is \"intent\""),
    ("UPDATE certificates SET state = 'published' WHERE uid = 'uid-5'", ROW_5, "its state is \"published\""),
    (
        "UPDATE certificates SET released = 0 WHERE uid = 'uid-701'",
        "(SELECT seq FROM saved WHERE uid = 'uid-701')",
        "its state is \"abandoned\"",
    ),
    (
        "UPDATE certificates SET signed_seq = 3, state = 'signed' WHERE uid = 'uid-702'",
        "(SELECT seq FROM saved WHERE uid = 'uid-702')",
        "is signed according to entry 3, which",
    ),
    (
        "UPDATE certificates SET state = 'intent', signed_seq = NULL WHERE uid = 'uid-650'",
        "(SELECT signed_seq FROM saved WHERE uid = 'uid-650')",
        "is intent according to entry 0, but signed here",
    ),
    (
        "UPDATE certificates SET state = 'unpublished', ended_seq = signed_seq WHERE uid = 'uid-650'; \
         DELETE FROM unfinished WHERE seq = (SELECT seq FROM saved WHERE uid = 'uid-650')",
        ROW_650,
        "is unpublished according to entry",
    ),
    (
        "UPDATE certificates SET state = 'signed', ended_seq = NULL WHERE uid = 'uid-5'; \
         INSERT INTO unfinished SELECT seq FROM saved WHERE uid = 'uid-5'",
        "(SELECT ended_seq FROM saved WHERE uid = 'uid-5')",
        "is signed according to entry 0, but unpublished here",
    ),
    ("DELETE FROM certificates WHERE uid = 'uid-650'", ROW_650, "no row for it"),
    (
        "INSERT INTO certificates SELECT 1, \
         'u', 'r', 's', 'c', 'a', 'a', 'i', '00', 1, 2, 'intent', NULL, NULL, NULL, NULL, NULL, 0, 0",
        "1",
        "it has the certificate 00, which no entry decided on",
    ),
    (
        "INSERT INTO certificates SELECT -5, \
         'u', 'r', 's', 'c', 'a', 'a', 'i', '00', 1, 2, 'intent', NULL, NULL, NULL, NULL, NULL, 0, 0",
        "0",
        "it has the certificate 00, which no entry decided on",
    ),
    (
        "INSERT INTO certificates SELECT -9223372036854775808, \
         'u', 'r', 's', 'c', 'a', 'a', 'i', '00', 1, 2, 'published', NULL, NULL, NULL, NULL, NULL, 0, 0",
        "0",
        "it has the certificate 00, which no entry decided on",
    ),
    (
        "INSERT INTO certificates SELECT 99999, \
         'u', 'r', 's', 'c', 'a', 'a', 'i', '00', 1, 2, 'intent', NULL, NULL, NULL, NULL, NULL, 0, 0",
        "99999",
        "it has the certificate 00, which no entry decided on",
    ),
    (
        "INSERT INTO certificates SELECT (SELECT MAX(seq) FROM entries), \
         'u', 'r', 's', 'c', 'a', 'a', 'i', '00', 1, 2, 'intent', NULL, NULL, NULL, NULL, NULL, 0, 0",
        "(SELECT MAX(seq) FROM entries)",
        "it has the certificate 00, which no entry decided on",
    ),
    (
        "DELETE FROM unfinished WHERE seq = (SELECT seq FROM saved WHERE uid = 'uid-650')",
        ROW_650,
        "it is none of the unfinished",
    ),
    (
        "UPDATE unfinished SET seq = (SELECT seq FROM saved WHERE uid = 'uid-701') \
         WHERE seq = (SELECT seq FROM saved WHERE uid = 'uid-650')",
        ROW_650,
        "it is none of the unfinished",
    ),
    ("INSERT INTO unfinished SELECT seq FROM saved WHERE uid = 'uid-5'", ROW_5, "it is one of the unfinished"),
    (
        "INSERT INTO unfinished SELECT seq FROM saved WHERE uid = 'uid-701'",
        "(SELECT seq FROM saved WHERE uid = 'uid-701')",
        "it is one of the unfinished",
    ),
    ("INSERT INTO unfinished VALUES (2)", "2", "it is one of the unfinished, and has no certificate"),
    ("INSERT INTO unfinished VALUES (99999)", "99999", "it is one of the unfinished, and has no certificate"),
];
/// A row on the second page: on the first page some entries make the check look at each row in any case.
const ROW_650: &str = "(SELECT seq FROM saved WHERE uid = 'uid-650')";
const ROW_5: &str = "(SELECT seq FROM saved WHERE uid = 'uid-5')";

async fn altered_index(store: &TestStore, location: &Location) {
    prepare(location).await;
    rows::disarm(store).await;
    let columns = "seq, uid, request, signer, cluster, addon, agent, issuer, serial, \
                   not_before, not_after, state, signed_seq, ended_seq, released, requested";
    let undo = format!(
        "DELETE FROM certificates; INSERT INTO certificates ({columns}) SELECT {columns} FROM saved; \
         DELETE FROM unfinished; INSERT INTO unfinished SELECT seq FROM saved WHERE state IN ('intent', 'signed')"
    );
    for (change, row, what) in ALTERATIONS {
        run(store, change).await;
        let (found, problem) = fault(location).await;
        let expected = rows::number(store, row).await;
        assert!(found == expected, "{change}: {found}, not {expected}: {problem}");
        assert!(problem.contains(what), "{change}: {found}, not {expected}: {problem}");
        run(store, &undo).await;
    }
    rows::of_rows(check(location, None).await).unwrap();
}
