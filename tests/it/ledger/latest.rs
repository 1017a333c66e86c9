//! The table of latest values says what the hub knows of authorities, AddOnSigners and revocations. Whoever can write
//! to the store can change its rows: the check derives them from the entries, and the hub believes none without its
//! entry.

use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::journal::record::{AuthorityStep, Record};
use addon_signer_core::registry::Eligibility;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::verify::{Check, VerifyError, VerifyReport, verify};
use addon_signer_ledger::{LedgerError, Location};

use super::kit::RunningWriter;
use super::rows::run;
use test_kit::store::{TestStore, on_store};

/// What is done to the table.
struct Forgery {
    sql: &'static str,
    /// The row that the check names, and what it says of it.
    bad: (u64, &'static str),
    /// The topic of which a hub that asks believes nothing, if it can see that.
    refused: Option<&'static str>,
}

/// The authority that signs, of which row 4 is the last step.
const ACTIVE: &str = "a1a1";

const FORGERIES: [Forgery; 9] = [
    Forgery {
        sql: "INSERT INTO latest VALUES ('tainted', 'telemetry/a1a1', 'tainted', 4)",
        bad: (4, "it does not set the tainted of \"telemetry/a1a1\", as is said there"),
        refused: Some("tainted"),
    },
    Forgery {
        sql: "INSERT INTO latest VALUES ('tainted', 'telemetry/a1a1', 'tainted', 700)",
        bad: (700, "it does not set the tainted"),
        refused: Some("tainted"),
    },
    Forgery {
        sql: "INSERT INTO latest VALUES ('tainted', 'telemetry/a1a1', 'tainted', 0)",
        bad: (0, "it does not set the tainted"),
        refused: Some("tainted"),
    },
    Forgery {
        sql: "UPDATE latest SET value = 'prepared', seq = 3 WHERE topic = 'authority'",
        bad: (4, "it sets the authority of \"telemetry/a1a1\", and there row 3 does"),
        refused: None, // an old row looks as a new one: only the whole chain shows it
    },
    Forgery {
        sql: "UPDATE latest SET value = '{\"after\":2}' WHERE topic = 'signer'",
        bad: (6, "it sets the signer of \"telemetry\", which is another there"),
        refused: Some("signer"),
    },
    Forgery {
        sql: "UPDATE latest SET name = 'metrics' WHERE topic = 'signer'",
        bad: (6, "it sets the signer of \"telemetry\", which is missing there"),
        refused: Some("signer"),
    },
    Forgery {
        sql: "UPDATE latest SET value = '' WHERE topic = 'revocation'",
        bad: (8, "it sets the revocation of \"c1/a1\", which is another there"),
        refused: Some("revocation"),
    },
    Forgery {
        sql: "DELETE FROM latest WHERE topic = 'standing'",
        bad: (7, "it sets the standing of \"c1/a1\", which is missing there"),
        refused: None, // the hub records it again
    },
    Forgery {
        sql: "UPDATE fence SET epoch = 0",
        bad: (8, "its epoch 1 is not in the table fence, which has 0: a process that was superseded could write"),
        refused: None,
    },
];

fn authority(step: AuthorityStep) -> Record {
    let id = AuthorityId::from(ACTIVE);
    Record::Authority { lineage: "telemetry".to_owned(), id, step, certificate: vec![1] }
}

fn signer(after: &str) -> Record {
    Record::Signer { signer: "telemetry".to_owned(), generation: 1, before: String::new(), after: after.to_owned() }
}

/// Makes a ledger with eight entries.
async fn mk_ledger(store: &TestStore) {
    let running = RunningWriter::start(&store.url());
    let (cluster, addon) = ("c1".parse().unwrap(), "a1".parse().unwrap());
    let after = Some(Timestamp::from_unix(1_795_000_000));
    for record in [
        authority(AuthorityStep::Prepared),
        authority(AuthorityStep::Activated),
        signer("{\"one\":1}"),
        signer("{\"after\":1}"),
        Record::Eligibility { cluster, addon, change: Eligibility::Suspended },
        Record::Revocation { cluster: "c1".parse().unwrap(), addon: "a1".parse().unwrap(), before: None, after },
    ] {
        running.ledger.change(record, "").await.unwrap();
    }
    running.stop().await;
}

async fn check(location: &Location) -> Result<VerifyReport, VerifyError> {
    verify(Check { location: location.clone(), checkpoint: None, archives: Vec::new() }, |_| ()).await
}

#[tokio::test]
async fn a_forged_latest_value_is_named_and_not_believed() {
    on_store(async |store| {
        mk_ledger(store).await;
        let location: Location = store.url().parse().unwrap();
        assert_eq!(check(&location).await.unwrap().tip.seq, 8);
        run(store, "CREATE TABLE saved AS SELECT * FROM latest").await;
        for Forgery { sql, bad: (row, what), refused } in FORGERIES {
            run(store, sql).await;
            let found = super::rows::of_rows(check(&location).await).expect_err(sql);
            let VerifyError::Fault(fault) = &found else { panic!("{sql}: {found}") };
            assert_eq!(fault.row, row, "{sql}: {found}");
            assert!(found.to_string().contains(what), "{sql}: {found}");
            if let Some(topic) = refused {
                let running = RunningWriter::start_as(&store.url(), "hub-0", 1);
                let asked = running.ledger.latest(topic).await;
                let is_named =
                    matches!(&asked, Err(LedgerError::Damaged { cause, .. }) if cause.contains("does not record"));
                assert!(is_named, "{sql}: {asked:?}");
                running.ended().await;
            }
            run(store, "DELETE FROM latest; INSERT INTO latest SELECT * FROM saved; UPDATE fence SET epoch = 1").await;
        }
        // What was put right is good again.
        super::rows::of_rows(check(&location).await).unwrap();
        let running = RunningWriter::start_as(&store.url(), "hub-0", 1);
        assert_eq!(running.ledger.latest("authority").await.unwrap().values().collect::<Vec<_>>(), ["activated"]);
        running.stop().await;
    })
    .await;
}

/// A hub that is about to record a change compares it with the last one.
#[tokio::test]
async fn a_forged_latest_value_does_not_hide_a_change() {
    on_store(async |store| {
        mk_ledger(store).await;
        run(store, "UPDATE latest SET value = '{\"edited\":1}' WHERE topic = 'signer'").await;
        let running = RunningWriter::start_as(&store.url(), "hub-0", 1);
        let recorded = running.ledger.change(signer("{\"edited\":1}"), "").await;
        assert!(matches!(recorded, Err(LedgerError::Damaged { .. })), "{recorded:?}");
        running.ended().await;
    })
    .await;
}

/// A topic may have more names than are read together.
#[tokio::test]
async fn every_latest_value_of_a_topic_is_read() {
    on_store(async |store| {
        let running = RunningWriter::start(&store.url());
        let names: Vec<String> = (0..1030).map(|n| format!("signer-{n}")).collect();
        let record = |name: &String| Record::Signer {
            signer: name.clone(),
            generation: 1,
            before: String::new(),
            after: "{}".to_owned(),
        };
        let recorded = names.iter().map(|name| running.ledger.change(record(name), ""));
        for done in futures::future::join_all(recorded).await {
            done.unwrap();
        }
        let latest = running.ledger.latest("signer").await.unwrap();
        assert!(names.iter().all(|name| latest.contains_key(name)), "{}", latest.len());
        assert_eq!(latest.len(), names.len());
        running.stop().await;
    })
    .await;
}
