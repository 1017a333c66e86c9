//! What the hub records besides certificates, and what it does while it cannot record.

use std::path::PathBuf;
use std::time::Duration;

use addon_signer_api::AddOnSigner;
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::{Entry, Tip};
use addon_signer_core::journal::hash_chain::Chain;
use addon_signer_core::rate::Rate;
use addon_signer_ledger::Location;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use super::lineages::{OnServer, revoke, rotate};
use super::{mk_csr, mk_served, submit};
use crate::cli;
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, telemetry, wait_csr, wait_ready};
use test_kit::quick::{as_usual, pass};
use test_kit::{TestHub, objects, wait_for, wait_until};

/// Longer than SQLite waits for a lock plus the hub's pause, so a CSR is tried more than once.
const AGAIN: Duration = Duration::from_secs(9);

/// A hub whose ledger is a file that the test knows.
struct Recorded {
    hub: TestHub,
    admin: Client,
    running: Option<RunningHub>,
    dir: TempDir,
}

impl Recorded {
    async fn start() -> Self {
        let hub = TestHub::start().await;
        let admin = mk_served(&hub, telemetry()).await;
        let mut recorded = Self { hub, admin, running: None, dir: tempfile::tempdir().unwrap() };
        recorded.start_on("ledger.db").await;
        recorded
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn start_on(&mut self, name: &str) {
        self.running = None; // the Lease and the file are free before the next one starts
        let ledger = Some(format!("sqlite://{}", self.file(name).display()).parse().unwrap());
        // Enough for the CSRs of these tests, and nothing for needless retries.
        let rate = Rate { burst: 2, interval: Duration::from_secs(3_600) };
        self.running = Some(
            RunningHub::start_with(&self.hub, RunningHubOptions { ledger, rate, ..RunningHubOptions::default() }).await,
        );
        wait_ready(&self.admin, "telemetry", "True").await;
    }

    async fn connect(&self) -> sqlx::SqliteConnection {
        SqliteConnectOptions::new().filename(self.file("ledger.db")).connect().await.unwrap()
    }

    /// Reads the entries so far and checks their chain.
    async fn entries(&self) -> Vec<Entry> {
        let mut connection = self.connect().await;
        let rows: Vec<(i64, String, Vec<u8>)> = sqlx::query_as("SELECT seq, entry, hash FROM entries ORDER BY seq")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        let mut chain = Chain::after(Tip::EMPTY, None);
        rows.iter().map(|(seq, text, hash)| chain.follow(u64::try_from(*seq).unwrap(), text, hash).unwrap()).collect()
    }

    /// Waits until an entry of `kind` has these details.
    async fn wait(&self, kind: &str, details: &[(&str, &str)]) -> Entry {
        wait_until(TIMEOUT, &format!("an entry {kind} with {details:?}"), async || {
            let entries = self.entries().await;
            entries
                .into_iter()
                .rev()
                .find(|entry| entry.kind == kind && details.iter().all(|(name, value)| entry.detail(name) == *value))
        })
        .await
    }

    async fn issue(&self) {
        let name = submit(&self.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
        wait_csr(&self.admin, &name, "issued", certificate).await;
    }

    async fn patch_signer(&self, patch: Value) {
        let api: Api<AddOnSigner> = Api::all(self.admin.clone());
        api.patch("telemetry", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn annotate_addon(&self, suspended: Value) {
        let addons = objects::managed_cluster_addons(&self.admin, "spoke1").await;
        let patch = json!({ "metadata": { "annotations": { "addon-signer.io/suspended": suspended } } });
        let params = PatchParams { field_manager: Some("anns-tool".to_owned()), ..PatchParams::default() };
        addons.patch("telemetry", &params, &Patch::Merge(patch)).await.unwrap();
    }

    async fn map(&self) -> ConfigMap {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "addon-signer");
        wait_until(TIMEOUT, "the checkpoint to be published", async || {
            maps.get_opt("addon-signer-ledger").await.ok()?
        })
        .await
    }
}

#[tokio::test]
async fn every_step_of_a_line_is_in_the_chain_with_who_asked() {
    let recorded = Recorded::start().await;
    recorded.issue().await;
    let first =
        recorded.wait("authority", &[("line", "telemetry"), ("step", "activated")]).await.detail("id").to_owned();
    recorded.wait("anchors", &[("line", "telemetry"), ("authorities", &first)]).await;
    recorded.wait("authority", &[("line", "(serving)"), ("step", "activated")]).await;
    recorded
        .patch_signer(
            json!({ "metadata": { "annotations": { "addon-signer.io/rotate": "2026-11-20T00:00:00Z ann" } } }),
        )
        .await;
    let retired = recorded.wait("authority", &[("id", &first), ("step", "retired")]).await;
    let entries = recorded.entries().await;
    let of_lineage = |step: &'static str| {
        let of = move |entry: &&Entry| entry.detail("line") == "telemetry" && entry.detail("step") == step;
        entries
            .iter()
            .filter(of)
            .map(|entry| (entry.seq, entry.actor.clone(), entry.detail("id").to_owned()))
            .next_back()
    };
    let (prepared, asked, second) = of_lineage("prepared").unwrap();
    assert_eq!(asked, "ann");
    let (activated, _, active) = of_lineage("activated").unwrap();
    assert_eq!(active, second);
    assert!(prepared < activated, "{entries:?}");
    assert!(activated < retired.seq + 2, "{entries:?}");
    let both =
        entries.iter().find(|entry| entry.kind == "anchors" && entry.detail("authorities").contains(' ')).unwrap();
    assert!(prepared < both.seq, "the anchor is given out before it is used");
    assert!(both.seq < activated, "the anchor is given out before it is used");
    let clock = &recorded.running.as_ref().unwrap().clock;
    clock.advance(Duration::from_secs(28 * 3_600));
    recorded.patch_signer(json!({ "metadata": { "annotations": { "wake": "up" } } })).await;
    recorded.wait("authority", &[("id", &first), ("step", "removed")]).await;
}

#[tokio::test]
async fn configurations_and_eligibility_are_in_the_chain() {
    let mut recorded = Recorded::start().await;
    let begun = recorded.wait("signer", &[("signer", "telemetry"), ("before", "")]).await;
    let before = begun.detail("after").to_owned();
    recorded.patch_signer(json!({ "spec": { "certificate": { "duration": "2h" } } })).await;
    let changed = recorded.wait("signer", &[("signer", "telemetry"), ("before", &before)]).await;
    assert!(changed.detail("after").contains(r#""duration":"2h""#), "{changed:?}");
    assert_eq!(changed.detail("generation"), "2");
    let of = |change| [("cluster", "spoke1"), ("addon", "telemetry"), ("change", change)];
    recorded.annotate_addon(json!("true")).await;
    // The stand-in keeps no managedFields.
    let tool = if recorded.hub.is_real() { "anns-tool" } else { "" };
    assert_eq!(recorded.wait("standing", &of("suspended")).await.actor, tool);
    recorded.annotate_addon(json!("false")).await;
    assert_eq!(recorded.wait("standing", &of("resumed")).await.actor, tool);
    // The next hub finds what happened while no hub ran.
    recorded.running = None;
    let addons = objects::managed_cluster_addons(&recorded.admin, "spoke1").await;
    addons.delete("telemetry", &Default::default()).await.unwrap();
    recorded.start_on("ledger.db").await;
    recorded.wait("standing", &of("detached")).await;
    let api: Api<AddOnSigner> = Api::all(recorded.admin.clone());
    api.delete("telemetry", &Default::default()).await.unwrap();
    recorded.wait("signer", &[("signer", "telemetry"), ("after", "")]).await;
    let leaders = recorded.entries().await.into_iter().filter(|entry| entry.kind == "leader");
    let epochs: Vec<_> = leaders.map(|entry| entry.epoch).collect();
    assert!(epochs.len() == 2, "{epochs:?}");
    assert!(epochs[0] < epochs[1], "{epochs:?}");
}

#[tokio::test]
async fn checkpoint_is_published_and_contradicted_one_is_kept() {
    let mut recorded = Recorded::start().await;
    recorded.issue().await;
    let text = recorded.map().await.data.unwrap().remove("head.json").unwrap();
    let checkpoint = Checkpoint::read(&text).unwrap();
    recorded.wait("head-key", &[("key", &checkpoint.key)]).await;
    let entries = recorded.entries().await;
    assert_eq!(entries[0].detail("ledger"), checkpoint.ledger);
    let vouched = entries.iter().find(|entry| entry.seq == checkpoint.seq).unwrap();
    assert_eq!(addon_signer_core::journal::entry::Hash::of(&vouched.text()).to_string(), checkpoint.hash);
    // Replace the ledger by an empty one.
    recorded.start_on("other.db").await;
    let kept = wait_until(TIMEOUT, "the contradicted checkpoint to be kept", async || {
        recorded.map().await.data?.remove("contradicted-head.json")
    })
    .await;
    assert_eq!(Checkpoint::read(&kept).unwrap().ledger, checkpoint.ledger);
    assert_ne!(Checkpoint::read(&recorded.map().await.data.unwrap()["head.json"]).unwrap().ledger, checkpoint.ledger);
}

#[tokio::test]
async fn an_archive_stops_before_the_row_that_the_hub_has_published() {
    let recorded = Recorded::start().await;
    let text = recorded.map().await.data.unwrap().remove("head.json").unwrap();
    let kubeconfig = cli::write(recorded.dir.path(), &recorded.hub.kubeconfig(HUB_USER, &HUB_GROUPS));
    let location: Location = format!("sqlite://{}", recorded.file("ledger.db").display()).parse().unwrap();
    let archive = async |namespace: &str| {
        let to = recorded.file("a.jsonl").display().to_string();
        let kubeconfig = kubeconfig.display().to_string();
        let ledger = location.to_string();
        let arguments = ["certs", "archive", "--before", "0s", "--ledger", &ledger, "--to", &to];
        let source = ["--kubeconfig", &kubeconfig, "--namespace", namespace];
        cli::run(recorded.dir.path(), &[&arguments[..], &source[..]].concat()).await
    };
    let unknown = archive("elsewhere").await;
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("the published checkpoint must be known"), "{}", unknown.stderr);
    wait_until(TIMEOUT, "the row to be of a second before", async || {
        let moved = archive("addon-signer").await;
        assert_eq!(moved.code, 0, "{}", moved.stderr);
        moved.stdout.starts_with("rows 1 to ").then_some(())
    })
    .await;
    assert_eq!(location.contradicts(&Checkpoint::read(&text).unwrap()).await, Ok(None));
}

#[tokio::test]
async fn ledger_outage_delays_requests_but_not_the_gateway() {
    as_usual();
    let recorded = Recorded::start().await;
    recorded.issue().await;
    let mut other = recorded.connect().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let name = submit(&recorded.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let running = recorded.running.as_ref().unwrap();
    let mut health = running.ledger.health();
    let down = |health: &addon_signer_ledger::Health| matches!(health, addon_signer_ledger::Health::Down(_));
    drop(wait_for(TIMEOUT, "the ledger to be away", health.wait_for(down)).await.unwrap());
    pass(AGAIN).await;
    let waiting = wait_csr(&recorded.admin, &name, "there", |csr| Some(csr.clone())).await;
    assert!(waiting.status.is_none_or(|status| status.conditions.is_none() && status.certificate.is_none()));
    assert_eq!(running.trust.borrow().signers.len(), 1, "what was trusted stays trusted");
    drop(other);
    wait_csr(&recorded.admin, &name, "issued", certificate).await;
}

/// Also while another step of the lineage waits to be recorded.
#[tokio::test]
async fn a_revocation_waits_for_no_ledger() {
    let recorded = Recorded::start().await;
    recorded.issue().await;
    let lineage = OnServer::client(&recorded.admin);
    let mut other = recorded.connect().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    rotate(&recorded.admin, "r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    revoke(&recorded.admin, &ids[1]).await;
    lineage.wait_bundle(&ids[..1]).await;
    assert_eq!(lineage.wait(&["Active"]).await, ids[..1]);
}
