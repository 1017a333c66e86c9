//! Installations that were made earlier, some by earlier versions: what they have stored is read, and goes on.
//! `tests/upgrade/README.md` says what each is.

mod goes_on;
mod make;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use addon_signer_agent::Settings;
use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::chain::Roots;
use addon_signer_core::identity::{AddOnName, AgentName, PeerIdentity};
use addon_signer_hub::authorities::supply::{ServingSource, Trusted};
use addon_signer_ledger::Location;

use crate::ledger::rows;
use crate::whole::ours::settings;
use goes_on::goes_on;
use make::make;
use test_kit::TestHub;
use test_kit::needed::{Needed, found};
use test_kit::postgres::{Database, programs};

/// Where new ones are kept, instead of being forgotten.
const KEEP: &str = "KEEP_INSTALLATIONS";

/// Cluster and addon of each agent. The addon is also the name of its signer.
const AGENTS: [(&str, &str); 6] = [
    ("spoke1", "telemetry"),
    ("spoke2", "telemetry"),
    ("spoke3", "telemetry"),
    ("spoke1", "secret"),
    ("spoke1", "issuer"),
    ("spoke1", "vault"),
];

/// Where one agent keeps its Secret.
const AGENTS_NAMESPACE: &str = "open-cluster-management-agent-addon";

/// How an installation differs from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The hub makes the authority of the gateway's serving certificate.
    Usual,
    /// A company does, and agents trust its root.
    ByRoot,
    /// The ledger is in PostgreSQL.
    Postgres,
}

impl Kind {
    const fn folder(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::ByRoot => "by-root",
            Self::Postgres => "postgres",
        }
    }

    /// With the roots that agents may trust, which earlier versions did not know.
    fn serving_source(self, roots: Option<Roots>) -> ServingSource {
        let source = AuthoritySource::Secret("serving".to_owned());
        match self {
            Self::Usual | Self::Postgres => ServingSource::default(),
            Self::ByRoot => ServingSource { source, trusted: Trusted::Root(roots) },
        }
    }
}

/// The settings of an agent, whose kubeconfig is written to `dir`.
fn settings_of(hub: &TestHub, dir: &Path, gateway: SocketAddr, cluster: &str, addon: &str) -> Settings {
    let user = format!("system:open-cluster-management:{cluster}:a1");
    let group = format!("system:open-cluster-management:{cluster}");
    let kubeconfig = hub.kubeconfig(&user, &[&group, "system:open-cluster-management:managed-clusters"]);
    let addon: AddOnName = addon.parse().unwrap();
    Settings {
        signer_name: format!("example.com/{addon}"),
        identity: PeerIdentity { cluster: cluster.parse().unwrap(), agent: AgentName::of_addon(&addon), addon },
        ..settings(&kubeconfig, dir, cluster, gateway)
    }
}

/// Runs a program of PostgreSQL.
fn postgres(directory: &Path, name: &str, arguments: &[&str]) {
    let output = Command::new(directory.join(name)).args(arguments).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A folder for one that is made now: a temporary one, if it is not to be kept.
fn folder_for(kind: Kind, temporary: &Path) -> PathBuf {
    let root = env::var_os(KEEP).map_or_else(|| temporary.to_owned(), PathBuf::from);
    let folder = root.join(kind.folder());
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Those in the tree of this kind.
fn earlier(kind: Kind) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade");
    let versions = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path().join(kind.folder()));
    let found: Vec<_> = versions.filter(|folder| folder.is_dir()).collect();
    assert!(!found.is_empty(), "there are none");
    found
}

async fn made_goes_on(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder_for(kind, dir.path());
    let ledger = folder.join("ledger.db");
    make(&format!("sqlite://{}", ledger.display()), kind, &folder).await;
    rows::run_on(&ledger, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    goes_on(&folder, kind, &location_of(&folder, dir.path())).await;
}

/// A copy of the ledger in a folder.
fn location_of(folder: &Path, dir: &Path) -> Location {
    let copy = dir.join("copy.db");
    fs::copy(folder.join("ledger.db"), &copy).unwrap();
    format!("sqlite://{}", copy.display()).parse().unwrap()
}

#[tokio::test]
async fn what_this_version_stores_goes_on() {
    made_goes_on(Kind::Usual).await;
}

#[tokio::test]
async fn what_this_version_stores_below_a_companys_root_goes_on() {
    made_goes_on(Kind::ByRoot).await;
}

#[tokio::test]
async fn what_earlier_versions_stored_goes_on() {
    for kind in [Kind::Usual, Kind::ByRoot] {
        for folder in earlier(kind) {
            let dir = tempfile::tempdir().unwrap();
            goes_on(&folder, kind, &location_of(&folder, dir.path())).await;
        }
    }
}

/// Also makes one, because that needs the same programs.
#[tokio::test]
async fn what_earlier_versions_stored_in_postgresql_goes_on() {
    let Some(directory) = found(Needed::Postgres, programs()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let made = folder_for(Kind::Postgres, dir.path());
    let database = Database::create().await;
    make(&database.url, Kind::Postgres, &made).await;
    let dump = made.join("ledger.sql").display().to_string();
    postgres(&directory, "pg_dump", &["--no-owner", "--no-privileges", "--inserts", "--file", &dump, &database.url]);
    for folder in earlier(Kind::Postgres).into_iter().chain([made]) {
        let database = Database::create().await;
        let dump = folder.join("ledger.sql").display().to_string();
        postgres(&directory, "psql", &["--quiet", "-v", "ON_ERROR_STOP=1", "--file", &dump, &database.url]);
        goes_on(&folder, Kind::Postgres, &database.url.parse().unwrap()).await;
    }
}
