//! What the log says about an outage of the ledger: one line when it begins and one when it ends, however many CSRs
//! wait.

use std::path::PathBuf;
use std::time::Duration;

use addon_signer_ledger::Health;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::{mk_csr, mk_ready, submit};
use test_kit::cut::Cut;
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, wait_csr, wait_ready};
use test_kit::log;
use test_kit::postgres::{self, Postgres, programs};
use test_kit::quick::{as_usual, pass};
use test_kit::wait_for;
use test_kit::wait_until;

const REQUESTS: usize = 20;
/// Longer than a store may take plus the pause of a CSR, so each CSR is tried several times.
const AWAY: Duration = Duration::from_secs(12);

/// A ledger that the test can make unavailable.
enum Store {
    /// Unavailable while another program locks the file.
    File(PathBuf, Option<SqliteConnection>),
    /// Unavailable while the network is cut.
    Server(Cut, Postgres),
}

impl Store {
    fn url(&self) -> String {
        match self {
            Self::File(path, _) => format!("sqlite://{}", path.display()),
            Self::Server(cut, server) => server.url_through(cut.port(), "ledger"),
        }
    }

    async fn take_away(&mut self) {
        match self {
            Self::File(path, lock) => {
                let mut other = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
                sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
                *lock = Some(other);
            }
            Self::Server(cut, _) => cut.close(),
        }
    }

    async fn bring_back(&mut self) {
        match self {
            Self::File(_, lock) => lock.take().unwrap().close().await.unwrap(),
            Self::Server(cut, _) => cut.open(),
        }
    }
}

async fn outage_is_two_lines(mut store: Store) {
    as_usual();
    let (hub, admin, first) = mk_ready().await;
    first.stop().await;
    // Its ledger was another one, of which it may have published a checkpoint.
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    if maps.get_opt("addon-signer-ledger").await.unwrap().is_some() {
        maps.delete("addon-signer-ledger", &Default::default()).await.unwrap();
    }
    let (log, _guard) = log::capture("addon_signer=info");
    let options = RunningHubOptions { ledger: Some(store.url().parse().unwrap()), ..RunningHubOptions::default() };
    let running = RunningHub::start_with(&hub, options).await;
    wait_ready(&admin, "telemetry", "True").await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
    wait_until(TIMEOUT, "the checkpoint, after which all is quiet", async || {
        maps.get_opt("addon-signer-ledger").await.ok()?
    })
    .await;
    // A policy takes effect some seconds after it was applied, and the hub says that it found it.
    wait_until(3 * TIMEOUT, "the policy for trust bundles to be found", async || {
        log.text().contains("Only the hub can set the trust bundle").then_some(())
    })
    .await;

    store.take_away().await;
    let before = log.text().len();
    let mut names = Vec::new();
    for _ in 0..REQUESTS {
        names.push(submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await);
    }
    let mut health = running.ledger.health();
    let down = health.wait_for(|health| matches!(health, Health::Down(_)));
    drop(wait_for(TIMEOUT, "the ledger to be away", down).await.unwrap());
    pass(AWAY).await;
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert!(reason == "LedgerAway", "{reason}: {message}");
    assert!(message.starts_with("Nothing is signed"), "{reason}: {message}");
    store.bring_back().await;
    for name in names {
        wait_csr(&admin, &name, "issued", certificate).await;
    }
    wait_ready(&admin, "telemetry", "True").await;

    let text = log.text();
    let lines: Vec<_> = text[before..].lines().collect();
    let expected = ["The ledger cannot be written to", "Opened the ledger"];
    let as_expected = lines.iter().zip(expected).all(|(line, words)| line.contains(words));
    assert!(lines.len() == expected.len(), "{} lines:\n{}", lines.len(), lines.join("\n"));
    assert!(as_expected, "{} lines:\n{}", lines.len(), lines.join("\n"));
}

#[tokio::test]
async fn locked_file_is_one_line_and_its_return_another() {
    let dir = tempfile::tempdir().unwrap();
    outage_is_two_lines(Store::File(dir.path().join("ledger.db"), None)).await;
}

#[tokio::test]
async fn postgres_that_is_cut_off_is_one_line_and_its_return_another() {
    if programs().is_none() {
        return;
    }
    let server = Postgres::start_with(postgres::PostgresOptions { fsync: false, tls: false }).await;
    server.create_database("ledger").await;
    outage_is_two_lines(Store::Server(Cut::in_front_of(server.port()).await, server)).await;
}
