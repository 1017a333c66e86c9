//! Where a ledger is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use super::LedgerError;

/// A ledger's place, from its URL. Printed without the password.
#[derive(Clone)]
pub enum Location {
    /// A file.
    Sqlite(PathBuf),
    /// A database.
    Postgres(Box<PgConnectOptions>),
}

impl FromStr for Location {
    type Err = LedgerError;

    fn from_str(url: &str) -> Result<Self, LedgerError> {
        // An error never shows the whole URL, because it may contain a password.
        let refused = || LedgerError::Url(url.split('@').next_back().unwrap_or_default().to_owned());
        if let Some(path) = url.strip_prefix("sqlite://") {
            let plain = !path.is_empty() && !path.contains(['?', '#', '\0']);
            return if plain { Ok(Self::Sqlite(PathBuf::from(path))) } else { Err(refused()) };
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = PgConnectOptions::from_str(url).map_err(|_| refused())?;
            let options =
                options.application_name("addon-signer").statement_cache_capacity(512).disable_statement_logging();
            return Ok(Self::Postgres(Box::new(options)));
        }
        Err(refused())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            Self::Postgres(options) => {
                let database = options.get_database().unwrap_or_default();
                write!(f, "postgres://{}:{}/{database}", options.get_host(), options.get_port())
            }
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_urls_and_hides_passwords() {
        let location: Location = "sqlite:///var/lib/x.db".parse().unwrap();
        assert_eq!(location.to_string(), "sqlite:///var/lib/x.db");
        let location: Location = "postgres://me:secret@db.example:5433/ledger?sslmode=require".parse().unwrap();
        assert_eq!(format!("{location} {location:?}").matches("secret").count(), 0);
        assert_eq!(location.to_string(), "postgres://db.example:5433/ledger");
    }

    #[test]
    fn other_urls_are_refused_without_their_password() {
        for url in
            ["", "ledger.db", "mysql://a:secret@b/c", "sqlite://", "sqlite:///x?mode=ro", "postgres://a:secret@[b/c"]
        {
            let error = Location::from_str(url).unwrap_err();
            assert!(matches!(error, LedgerError::Url(_)), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
