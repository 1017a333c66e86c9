//! The command `addon-signer certs` as people and scripts use it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::record::Record;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{CertificateUse, Health, Location};
use ring::rand::SystemRandom;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use super::rows;
use super::{fill, mk_identity, mk_intent, mk_serial, mk_uid, open, options};
use crate::cli::run;
use test_kit::store::{TestStore, on_store};

/// The number of certificates in the ledger that `prepare` makes.
const ALL: usize = 121;

/// Records 120 certificates whose bytes are invalid and a real one, and writes a checkpoint into a file.
async fn prepare(location: &Location, checkpoint: &Path) {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
    let options = options(location, "hub-a");
    options.clock.set_back(Duration::from_secs(3600)); // everything is old enough to be archived
    let hub = open(options, 3).await;
    hub.ledger.change(Record::CheckpointKey { key: key.public_key_der().to_vec() }, "").await.unwrap();
    fill(&hub, 0..120).await;
    let mut intent = mk_intent(120);
    intent.not_after = Timestamp::from_unix(4_102_444_800);
    intent.identity = Some(mk_identity("a-cluster-with-a-name-of-its-own", "telemetry", "other"));
    hub.ledger.intend(intent).await.unwrap();
    let leaf = CertificateDer::from_pem_slice(include_bytes!("../../../certs/profiles/client-leaf.pem")).unwrap();
    let uid = mk_uid(120);
    let serial = mk_serial(120);
    hub.ledger.append(Record::Signed { uid, serial, certificate: leaf.to_vec() }, "").await.unwrap();
    let at = Timestamp::from_unix(1_795_040_000);
    hub.ledger.published(serial, at).await;
    hub.ledger.seen(vec![CertificateUse { serial, at, from: "192.0.2.1".to_owned() }]).await;
    let (ledger, tip) = match &*hub.ledger.health().borrow() {
        Health::Up { ledger, tip } => (ledger.clone(), *tip),
        other => panic!("{other:?}"),
    };
    fs::write(checkpoint, Checkpoint::sign(&ledger, tip, at, &key, &rng).unwrap().json()).unwrap();
    hub.close().await;
}

#[tokio::test]
async fn lists_are_tables_json_and_csv() {
    on_store(lists).await;
}

async fn lists(store: &TestStore) {
    let home = tempfile::tempdir().unwrap();
    prepare(&store.url().parse().unwrap(), &home.path().join("head.json")).await;
    let url = store.url();
    let list = async |arguments: &[&str]| {
        let all: Vec<&str> = ["certs", "list", "--ledger", &url].iter().chain(arguments).copied().collect();
        let output = run(home.path(), &all).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        output
    };
    let table = list(&["--limit", "2"]).await;
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", table.stdout);
    assert!(lines[0].starts_with("SERIAL                                    STATE"), "{}", table.stdout);
    let newest = "0000000000000000000000000000000000000078  published  a-cluste…its-own";
    assert!(lines[1].starts_with(newest), "{}", table.stdout);
    assert!(lines[1].contains("telemetry/other"), "{}", table.stdout);
    assert!(lines[1].contains("2026-11-18T22:13:20Z"), "{}", table.stdout);
    assert!(lines.iter().all(|line| line.chars().count() <= 132), "{}", table.stdout);
    assert!(table.stderr.contains("--all"), "{}", table.stderr);

    let all: Value = serde_json::from_str(&list(&["--all", "--output", "json"]).await.stdout).unwrap();
    assert_eq!(all.as_array().unwrap().len(), ALL);
    assert_eq!((&all[0]["state"], &all[0]["lastSeenFrom"]), (&"published".into(), &"192.0.2.1".into()));
    let csv = list(&["--all", "--output", "csv", "--state", "signed", "--cluster", "cluster3"]).await;
    assert_eq!((csv.stdout.lines().count(), csv.stderr.as_str()), (18, ""));
    assert!(csv.stdout.starts_with("seq,serial,state,signer,cluster,"), "{}", csv.stdout);
    assert_eq!(list(&["--signer", "nobody", "--output", "json"]).await.stdout, "[]\n");
    assert_eq!(list(&["--signer", "nobody"]).await.stdout.lines().count(), 1);
    assert_eq!(list(&["--not-seen-since", "2026-11-18", "--all", "--output", "csv"]).await.stdout.lines().count(), ALL);
}

#[tokio::test]
async fn one_certificate_is_shown_with_everything_about_it() {
    let home = tempfile::tempdir().unwrap();
    let store = TestStore::sqlite();
    prepare(&store.url().parse().unwrap(), &home.path().join("head.json")).await;
    let shown = run(home.path(), &["certs", "show", "csr-120", "--ledger", &store.url()]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for fact in [
        "serial      0000000000000000000000000000000000000078\n",
        "holder      cluster a-cluster-with-a-name-of-its-own, addon telemetry, agent other\n",
        "last seen   2026-11-18T22:13:20Z from 192.0.2.1\n",
        "signer      telemetry (example.com/telemetry), rules of generation 1\n",
        "requester   system:open-cluster-management:cluster1:agent1, for \
         system:open-cluster-management:cluster2:agent2 (csr-user)\n",
        "by hub-a, epoch 3, row 24",
        "\n  subject             ",
        "\n  extended key usage  client authentication\n",
        "\n-----BEGIN CERTIFICATE-----\n",
        "\nRequest\n\n-----BEGIN CERTIFICATE REQUEST-----\n",
    ] {
        assert!(shown.stdout.contains(fact), "{fact}: {}", shown.stdout);
    }
    let json = run(home.path(), &["certs", "show", "78", "--output", "json", "--ledger", &store.url()]).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["uid"], &json["decided"]["replica"]), (&"uid-120".into(), &"hub-a".into()));
    let missing = run(home.path(), &["certs", "show", "nobody", "--ledger", &store.url()]).await;
    assert_eq!((missing.code, missing.stdout.as_str()), (1, ""));
    assert!(missing.stderr.contains("the ledger has no certificate or CSR named \"nobody\""), "{}", missing.stderr);
}

#[tokio::test]
async fn the_check_says_what_is_good_and_names_the_first_bad_row() {
    on_store(checks).await;
}

async fn checks(store: &TestStore) {
    let home = tempfile::tempdir().unwrap();
    let checkpoint = home.path().join("head.json");
    prepare(&store.url().parse().unwrap(), &checkpoint).await;
    let url = store.url();
    let checkpoint = checkpoint.display().to_string();
    let good = run(home.path(), &["certs", "verify", "--ledger", &url, "--head", &checkpoint]).await;
    assert_eq!((good.code, good.stderr.as_str()), (0, ""), "{}", good.stderr);
    for fact in ["good: the ledger ", "rows 1 to 245, the last has the hash ", "121 certificates in its index"] {
        assert!(good.stdout.contains(fact), "{fact}: {}", good.stdout);
    }
    assert!(good.stdout.contains("vouches for the rows up to 245; its key "), "{}", good.stdout);

    let file = home.path().join("2026.jsonl").display().to_string();
    let archive = ["certs", "archive", "--ledger", &url, "--before", "0s", "--to", &file, "--head", &checkpoint];
    let unknown = run(home.path(), &archive[..archive.len() - 2]).await;
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("the published checkpoint must be known"), "{}", unknown.stderr);
    let moved = run(home.path(), &archive).await;
    assert_eq!(moved.code, 0, "{}", moved.stderr);
    assert!(moved.stdout.starts_with(&format!("rows 1 to 3 are in {file}\nrow 4 ")), "{}", moved.stdout);
    let again = run(home.path(), &archive).await;
    assert_eq!(again.code, 1);
    assert!(again.stderr.contains("use another file"), "{}", again.stderr);
    let rest = run(home.path(), &["certs", "verify", "--ledger", &url]).await;
    assert!(rest.stdout.contains("rows 1 to 3 are in archives and were not checked"), "{}", rest.stdout);
    let whole =
        run(home.path(), &["certs", "verify", "--ledger", &url, "--head", &checkpoint, "--archive", &file]).await;
    assert!(whole.stdout.contains("rows 1 to 245"), "{}{}", whole.stdout, whole.stderr);

    rows::run(store, "UPDATE certificates SET cluster = 'mine' WHERE uid = 'uid-120'").await;
    let bad = run(home.path(), &["certs", "verify", "--ledger", &url]).await;
    assert_eq!((bad.code, bad.stdout.as_str()), (1, ""));
    assert!(bad.stderr.contains("row 244: the index of certificates says something else"), "{}", bad.stderr);
    assert!(!bad.stderr.contains("not-for-any-log"), "{}", bad.stderr);
}

/// Whoever can write to the ledger's store chooses what lists say, and not what a terminal does.
#[tokio::test]
async fn no_text_of_a_ledger_steers_a_terminal() {
    let store = TestStore::sqlite();
    let home = tempfile::tempdir().unwrap();
    prepare(&store.url().parse().unwrap(), &home.path().join("head.json")).await;
    rows::run(&store, "UPDATE certificates SET cluster = char(27) || '[1A' || char(155) || '2K' || char(10) || 'x'")
        .await;
    let url = store.url();
    let mut seen = 0;
    for arguments in [
        &["certs", "list"][..],
        &["certs", "list", "--output", "json"],
        &["certs", "list", "--output", "csv"],
        &["certs", "show", "csr-1"],
        &["certs", "verify"],
    ] {
        let message = run(home.path(), &[arguments, &["--ledger", &url]].concat()).await;
        let text = message.stdout + &message.stderr;
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{arguments:?}: {text}");
        seen += usize::from(text.contains("[1A"));
    }
    assert_eq!(seen, 5);
}

#[tokio::test]
async fn what_cannot_be_read_is_named() {
    let home = tempfile::tempdir().unwrap();
    let missing = run(home.path(), &["certs", "list", "--ledger", "sqlite:///no/such/ledger.db"]).await;
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("the ledger /no/such/ledger.db cannot be opened"), "{}", missing.stderr);
    let nowhere = run(home.path(), &["certs", "list"]).await;
    assert_eq!(nowhere.code, 1);
    assert!(nowhere.stderr.contains("without --ledger the command asks the hub"), "{}", nowhere.stderr);
    for arguments in [
        &["certs", "list", "--state", "gone"][..],
        &["certs", "list", "--limit", "0"],
        &["certs", "list", "--not-seen-since", "yesterday"],
        &["certs", "verify"],
        &["certs", "archive", "--ledger", "sqlite:///x", "--to", "y"],
    ] {
        let refused = run(home.path(), arguments).await;
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{arguments:?}: {}", refused.stderr);
    }
}
