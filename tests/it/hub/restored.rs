//! A ledger, the Secrets of authorities, or both are restored from an older backup: the hub says what differs, every
//! request keeps its one certificate, and no serial number comes twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use addon_signer_api::status::{AuthorityState, AuthorityStatus};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::{Entry, Hash};
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tempfile::TempDir;

use super::crash::books::{assert_whole, der, entries, rows};
use super::lineages::{OnServer, revoke, rotate, taint};
use super::{mk_csr, mk_served, submit};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, telemetry, wait_csr, wait_ready};
use test_kit::log::{Log, capture};
use test_kit::{TestHub, wait_until};

/// A hub with a ledger that can be backed up. Its log is captured.
struct Restorable {
    hub: TestHub,
    admin: Client,
    dir: TempDir,
    /// Every certificate that a CSR was seen with.
    given: Vec<(String, String)>,
}

impl Restorable {
    async fn new() -> Self {
        let hub = TestHub::start().await;
        let admin = mk_served(&hub, telemetry()).await;
        Self { hub, admin, dir: tempfile::tempdir().unwrap(), given: Vec::new() }
    }

    fn url(&self, ledger: &str) -> String {
        format!("sqlite://{}", self.dir.path().join(ledger).display())
    }

    async fn start(&self, ledger: &str) -> RunningHub {
        self.start_at(ledger, Clock::default()).await
    }

    async fn start_at(&self, ledger: &str, clock: Clock) -> RunningHub {
        self.start_with(ledger, RunningHubOptions { clock, ..RunningHubOptions::default() }).await
    }

    async fn start_with(&self, ledger: &str, options: RunningHubOptions) -> RunningHub {
        let ledger = Some(self.url(ledger).parse().unwrap());
        let options = RunningHubOptions { ledger, ..options };
        let running = RunningHub::start_with(&self.hub, options).await;
        wait_ready(&self.admin, "telemetry", "True").await;
        running
    }

    /// Copies the ledger as `sqlite3 ledger.db ".backup copy.db"` does.
    async fn back_up(&self, to: &str) {
        let sql = format!("VACUUM INTO '{}'", self.dir.path().join(to).display());
        run(&self.dir.path().join("ledger.db"), &[&sql]).await;
    }

    /// Gets a new certificate; returns the name of its CSR.
    async fn issue(&mut self) -> String {
        let name = submit(&self.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
        let pem = wait_csr(&self.admin, &name, "issued", certificate).await;
        self.given.push((name.clone(), pem));
        name
    }

    /// A lineage, and its one authority, whose Secret is that from before its first certificate. No hub runs.
    async fn restored_secret(&mut self) -> (OnServer, String) {
        let running = self.start("ledger.db").await;
        let lineage = OnServer::client(&self.admin);
        let [id] = lineage.wait(&["Active"]).await.try_into().unwrap();
        let backup = lineage.data().await;
        self.issue().await;
        running.stop().await;
        lineage.set_data(backup).await;
        (lineage, id)
    }

    /// Rotates the lineage; returns the authority that signs from now on and the one before it.
    async fn rotate(&self, lineage: &OnServer) -> Vec<String> {
        rotate(&self.admin, "r1").await;
        let ids = lineage.wait(&["Active", "Old"]).await;
        // The Secret comes first. A signer has the lineage when the status shows it.
        wait_until(TIMEOUT, "the new authority to sign", async || {
            let authorities = lineage.status().await.authorities;
            authorities.iter().any(|shown| shown.id == ids[0] && shown.state == AuthorityState::Active).then_some(())
        })
        .await;
        ids
    }

    /// Rotates the lineage and checks that the anchor of `old`, which has signed, stays.
    async fn assert_rotation_keeps(&self, lineage: &OnServer, old: &str) {
        rotate(&self.admin, "r1").await;
        let members = wait_until(TIMEOUT, "the next authority to sign", async || {
            let members = lineage.members().await?;
            members.iter().any(|member| member["state"] == "Active" && member["id"] != old).then_some(members)
        })
        .await;
        assert!(members.iter().any(|member| member["id"] == old), "{members:?}");
    }

    async fn request(&self, name: &str) -> CertificateSigningRequest {
        Api::<CertificateSigningRequest>::all(self.admin.clone()).get(name).await.unwrap()
    }

    /// Checks that every CSR still has its one certificate, and that no serial number came twice.
    async fn assert_given_once(&self) {
        for (name, pem) in &self.given {
            assert_eq!(certificate(&self.request(name).await).as_ref(), Some(pem), "{name}");
        }
        let serials: BTreeSet<_> =
            self.given.iter().map(|(_, pem)| Serial::of(&der(pem)).unwrap().to_string()).collect();
        assert_eq!(serials.len(), self.given.len());
    }

    /// Waits until the published checkpoint covers the entry `seq`.
    async fn wait_checkpoint(&self, seq: u64) {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "addon-signer");
        wait_until(TIMEOUT, "a checkpoint", async || {
            let head = maps.get_opt("addon-signer-ledger").await.ok()??.data?.remove("head.json")?;
            (Checkpoint::read(&head).unwrap().seq >= seq).then_some(())
        })
        .await;
    }
}

async fn run(file: &Path, statements: &[&str]) {
    let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
    for sql in statements {
        sqlx::raw_sql(AssertSqlSafe((*sql).to_owned())).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
}

/// Waits until the hub has logged a line with all these texts, and checks that it did so once.
async fn message(log: &Log, texts: &[&str]) {
    let lines = || {
        let text = log.text();
        let found = text.lines().filter(|line| texts.iter().all(|text| line.contains(text)));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    wait_until(TIMEOUT, &format!("the log to say {texts:?}"), async || (!lines().is_empty()).then_some(())).await;
    let lines = lines();
    eprintln!("{}", lines.join("\n")); // what docs/operations.md shows
    assert_eq!(lines.len(), 1, "{lines:?}");
}

fn differs(running: &RunningHub, from: &str) -> u32 {
    let metrics = running.metrics.render().unwrap();
    let name = format!("addon_signer_ledger_differs_total{{from=\"{from}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[tokio::test]
async fn older_ledger_is_noticed_and_requests_keep_one_certificate() {
    let (log, _guard) = capture("warn");
    let mut world = Restorable::new().await;
    let first = world.start("ledger.db").await;
    world.issue().await;
    world.back_up("backup.db").await;
    let lost = world.issue().await;
    first.stop().await;
    // The first checkpoint of a process comes after a second.
    let second = world.start("ledger.db").await;
    let kept = u64::try_from(entries(&world.url("backup.db")).await.len()).unwrap();
    world.wait_checkpoint(kept + 1).await;
    second.stop().await;
    assert!(!log.text().contains("ERROR"), "{}", log.text());

    let third = world.start("backup.db").await;
    message(&log, &["The ledger does not have the certificates of some CSRs", "count=1", &lost]).await;
    message(&log, &["The ledger contradicts the checkpoint that was published last"]).await;
    assert_eq!(differs(&third, "requests"), 1);
    assert_eq!(differs(&third, "checkpoint"), 1);
    world.issue().await;
    assert_eq!(differs(&third, "authorities"), 0);
    world.assert_given_once().await;
    third.stop().await;
    assert_whole(&world.url("backup.db"), world.dir.path()).await;
}

/// Somebody says that all rows are in an archive, takes them away, and begins anew.
#[tokio::test]
async fn ledger_falsely_claiming_archived_row_contradicts_checkpoint() {
    let (log, _guard) = capture("warn");
    let mut world = Restorable::new().await;
    let first = world.start("ledger.db").await;
    world.issue().await;
    world.wait_checkpoint(1).await;
    first.stop().await;
    let url = world.url("ledger.db");
    let last = Entry::parse(entries(&url).await.last().unwrap()).unwrap();
    let forged = Entry { seq: last.seq + 1, previous: "07".repeat(32), kind: "leader".to_owned(), ..last.clone() };
    let text = forged.text();
    run(
        &world.dir.path().join("ledger.db"),
        &[
            &format!("INSERT INTO archives VALUES ({}, x'{}', 'a.jsonl', '{}')", last.seq, forged.previous, last.time),
            "DELETE FROM entries; DELETE FROM certificates; DELETE FROM unfinished",
            &format!("INSERT INTO entries VALUES ({}, '{text}', x'{}')", forged.seq, Hash::of(&text)),
        ],
    )
    .await;
    let maps: Api<ConfigMap> = Api::namespaced(world.admin.clone(), "addon-signer");
    let published = maps.get("addon-signer-ledger").await.unwrap().data.unwrap().remove("head.json").unwrap();

    let second = world.start("ledger.db").await;
    message(&log, &["The ledger contradicts the checkpoint that was published last", "are in archives"]).await;
    assert_eq!(differs(&second, "checkpoint"), 1);
    let kept = wait_until(TIMEOUT, "the checkpoint to be kept and the next one to be published", async || {
        let data = maps.get("addon-signer-ledger").await.ok()?.data?;
        let next = Checkpoint::read(&data["head.json"]).unwrap();
        (next.seq > forged.seq).then(|| data["contradicted-head.json"].clone())
    })
    .await;
    assert_eq!(kept, published);
    world.issue().await;
    world.assert_given_once().await;
}

/// The backup was made between the intent and the signature of a certificate that was published afterwards.
#[tokio::test]
async fn ledger_with_only_intent_recovers_certificate_from_request() {
    let (log, _guard) = capture("warn");
    let mut world = Restorable::new().await;
    let first = world.start("ledger.db").await;
    let name = world.issue().await;
    let uid = world.request(&name).await.uid().unwrap();
    first.stop().await;
    world.back_up("backup.db").await;
    let signed = format!("(SELECT signed_seq FROM certificates WHERE uid = '{uid}')");
    let later = format!("seq > (SELECT seq FROM certificates WHERE uid = '{uid}')");
    run(
        &world.dir.path().join("backup.db"),
        &[
            "INSERT INTO archives VALUES (1000000, x'00', '', '')", // so that entries may be deleted
            &format!("DELETE FROM entries WHERE seq >= {signed}"),
            &format!("DELETE FROM archives; DELETE FROM latest WHERE seq >= {signed}"),
            &format!("DELETE FROM certificates WHERE {later}"),
            &format!("INSERT OR IGNORE INTO unfinished SELECT seq FROM certificates WHERE uid = '{uid}'"),
            &format!(
                "UPDATE certificates SET state = 'intent', signed_seq = NULL, published_at = NULL WHERE uid = '{uid}'"
            ),
        ],
    )
    .await;
    let clock = Clock::default();
    clock.advance(Duration::from_secs(120)); // the recovery leaves young rows to the signer
    let second = world.start_at("backup.db", clock).await;
    let row = wait_until(TIMEOUT, "the row to have its certificate again", async || {
        let rows = rows(&world.url("backup.db")).await;
        rows.into_iter().find(|row| row.uid == uid && row.state == "published")
    })
    .await;
    assert_eq!(row.certificate, Some(der(&world.given[0].1)));
    message(&log, &["The ledger got a certificate back from its CSR", &name]).await;
    world.assert_given_once().await;
    second.stop().await;
    assert_whole(&world.url("backup.db"), world.dir.path()).await;
}

#[tokio::test]
async fn older_authorities_are_noticed_and_missing_ones_named() {
    let (log, _guard) = capture("warn");
    let mut world = Restorable::new().await;
    let first = world.start("ledger.db").await;
    let lineage = OnServer::client(&world.admin);
    world.issue().await;
    let backup = lineage.data().await;
    let ids = world.rotate(&lineage).await;
    world.issue().await;
    first.stop().await;
    lineage.set_data(backup).await;
    assert!(!log.text().contains("ERROR"), "{}", log.text());

    let second = world.start("ledger.db").await;
    let missing = format!("missing=\"{}\"", ids[0]);
    let behind = format!("behind=\"{}\"", ids[1]);
    message(&log, &["The authorities are older than the ledger", "telemetry-client-authorities", &missing, &behind])
        .await;
    assert_eq!(differs(&second, "authorities"), 2);
    world.issue().await;
    world.assert_given_once().await;
    assert_eq!((differs(&second, "requests"), differs(&second, "checkpoint")), (0, 0));
    wait_until(TIMEOUT, "the ledger to know what the lineage lacks", async || {
        let entries = entries(&world.url("ledger.db")).await;
        entries.iter().any(|entry| entry.contains(&ids[0]) && entry.contains("\"removed\"")).then_some(())
    })
    .await;
    second.stop().await;
    let third = world.start("ledger.db").await;
    world.issue().await;
    assert_eq!(differs(&third, "authorities"), 0, "it is said once");
    world.assert_given_once().await;
}

/// The authorities are the same, so only the time until which they have signed is older.
#[tokio::test]
async fn older_secret_drops_no_anchor_while_certificates_live() {
    let (log, _guard) = capture("warn");
    let mut world = Restorable::new().await;
    let (lineage, id) = world.restored_secret().await;
    let _second = world.start("ledger.db").await;
    message(&log, &["The authorities are older than the ledger", &format!("behind=\"{id}\"")]).await;
    world.assert_rotation_keeps(&lineage, &id).await;
    world.assert_given_once().await;
}

/// By the clock of the hub that compares, all certificates have expired.
#[tokio::test]
async fn older_secret_and_a_fast_clock_drop_no_anchor() {
    let (log, _guard) = capture("warn");
    let mut world = Restorable::new().await;
    let (lineage, id) = world.restored_secret().await;
    let (clock, ahead) = (Clock::default(), Duration::from_secs(2 * 86_400));
    clock.advance(ahead);
    let options = RunningHubOptions { clock: clock.clone(), date: Some(Clock::default()), ..Default::default() };
    let _second = world.start_with("ledger.db", options).await;
    message(&log, &["The authorities are older than the ledger", &format!("behind=\"{id}\"")]).await;
    clock.set_back(ahead);
    world.assert_rotation_keeps(&lineage, &id).await;
}

/// The CSR is gone as well: somebody has restored the AddOnSigner without its annotations.
#[tokio::test]
async fn what_was_tainted_or_revoked_never_signs_from_a_backup() {
    for is_revoked in [false, true] {
        let mut world = Restorable::new().await;
        let (admin, lineage) = (world.admin.clone(), OnServer::client(&world.admin));
        let distrust = async |id: &str| if is_revoked { revoke(&admin, id).await } else { taint(&admin, id).await };
        let first = world.start("ledger.db").await;
        let ids = lineage.wait(&["Active"]).await;
        world.issue().await;
        let backup = lineage.data().await;
        distrust(&ids[0]).await;
        wait_until(TIMEOUT, "another one to sign", async || {
            let is_another = |it: &AuthorityStatus| it.state == AuthorityState::Active && it.id != ids[0];
            lineage.status().await.authorities.iter().any(is_another).then_some(())
        })
        .await;
        first.stop().await;
        distrust("0123456789abcdef").await;
        lineage.set_data(backup).await;
        let second = world.start("ledger.db").await;
        assert_eq!(lineage.wait(&["Active", "Old"]).await[1], ids[0], "another one signs");
        assert_eq!(differs(&second, "authorities"), 1);
        world.issue().await;
        world.assert_given_once().await;
    }
}

#[tokio::test]
async fn secret_rolled_back_while_hub_runs_drops_no_anchor() {
    let (log, _guard) = capture("warn");
    let mut world = Restorable::new().await;
    let _running = world.start("ledger.db").await;
    let lineage = OnServer::client(&world.admin);
    let ids = lineage.wait(&["Active"]).await;
    let backup = lineage.data().await;
    world.issue().await;
    lineage.set_data(backup).await;
    message(&log, &["The authorities are older than the ledger", &format!("behind=\"{}\"", ids[0])]).await;
    world.assert_rotation_keeps(&lineage, &ids[0]).await;
    world.assert_given_once().await;
}

/// The chart's value ledger.file.ephemeral: whoever reads the status learns that history ends with the pod.
#[tokio::test]
async fn ready_says_that_the_ledger_is_lost_with_the_pod() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let options = RunningHubOptions { is_ledger_ephemeral: true, ..RunningHubOptions::default() };
    let running = RunningHub::start_with(&hub, options).await;
    let (reason, message) = wait_ready(&admin, "telemetry", "True").await;
    assert_eq!(reason, "Signing");
    assert!(message.ends_with("is lost with the hub's pod (ledger.file.ephemeral)."), "{message}");
    running.stop().await;
}
