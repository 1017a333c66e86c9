//! The store of a test's ledger: PostgreSQL if `ADDON_SIGNER_POSTGRES` names its programs, otherwise a file.

use tempfile::TempDir;

use super::postgres::{self, Database};

/// An empty store for a ledger. Dropping the value removes it.
pub enum TestStore {
    Sqlite(TempDir),
    Postgres(Database),
}

impl TestStore {
    /// A file in a directory of its own.
    pub fn sqlite() -> Self {
        Self::Sqlite(TempDir::new().unwrap())
    }

    /// The value for `--ledger`.
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(dir) => format!("sqlite://{}", dir.path().join("ledger.db").display()),
            Self::Postgres(database) => database.url.clone(),
        }
    }

    /// Whether only one process at a time can write to it.
    pub fn is_file(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }
}

/// Runs a test on this run's store.
pub async fn on_store(test: impl AsyncFn(&TestStore)) {
    let store = match postgres::programs() {
        Some(_) => TestStore::Postgres(Database::create().await),
        None => TestStore::sqlite(),
    };
    eprintln!("on {}", store.name()); // shown when the test fails
    test(&store).await;
}
