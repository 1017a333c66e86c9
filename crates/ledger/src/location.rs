//! The location of a ledger.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use super::LedgerError;
use addon_signer_platform::arguments::Opaque;

/// A ledger's location, from its URL. Printed without the password.
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
        if let Some(path) = url.strip_prefix("sqlite://") {
            return sqlite(path).map(Self::Sqlite).map_err(LedgerError::Url);
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = postgres(url).map_err(LedgerError::Url)?;
            let options =
                options.application_name("addon-signer").statement_cache_capacity(512).disable_statement_logging();
            return Ok(Self::Postgres(Box::new(options)));
        }
        Err(LedgerError::Url("it begins neither with sqlite:// nor with postgres://"))
    }
}

fn sqlite(path: &str) -> Result<PathBuf, &'static str> {
    if path.is_empty() || path.contains(['?', '#', '\0']) {
        return Err("sqlite:// must be followed by the path of a file, without ? and #");
    }
    if path.split_once(':').is_some_and(|(_, rest)| rest.contains('@')) {
        return Err("a SQLite file has no user, password or host");
    }
    Ok(PathBuf::from(path))
}

/// The parameters that sqlx knows. It would log any other parameter with its value.
const PARAMETERS: [&str; 19] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
    "", // nothing between two &
];

/// Reads the URL of a database. Without `sslmode` the server must present a certificate for its name, unless it is on
/// this machine: the ledger is evidence, and the connection carries the password.
fn postgres(url: &str) -> Result<PgConnectOptions, &'static str> {
    let unreadable = |_| "its port, a parameter or a %XX in it cannot be read";
    if url.contains('#') {
        return Err("it contains #; in a user or password write %23");
    }
    if url.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| !is_known(pair))) {
        return Err("it has an unknown parameter, or a ?; in a user or password write %3F");
    }
    let options = PgConnectOptions::from_str(url).map_err(unreadable)?;
    if !is_host(options.get_host()) || options.get_database().unwrap_or_default().contains(['@', ':', '/']) {
        return Err("its host or database name is not valid; in a user or password write / as %2F, @ as %40, : as %3A");
    }
    if is_local(&options) {
        return Ok(without_brackets(options));
    }
    // The last of several values counts, so an `sslmode` in the URL wins.
    let default = match url.split_once('?') {
        Some((base, query)) => format!("{base}?sslmode=verify-full&{query}"),
        None => format!("{url}?sslmode=verify-full"),
    };
    PgConnectOptions::from_str(&default).map_err(unreadable).map(without_brackets)
}

/// sqlx keeps the brackets of an IPv6 address, and would look it up in DNS.
fn without_brackets(options: PgConnectOptions) -> PgConnectOptions {
    let bare = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
    match bare {
        Some(address) => options.host(&address),
        None => options,
    }
}

/// Whether a parameter is one of those that sqlx reads.
fn is_known(pair: &str) -> bool {
    let name = pair.split('=').next().unwrap_or_default();
    PARAMETERS.contains(&name) || (name.starts_with("options[") && name.ends_with(']'))
}

/// Whether this can be a host, and not a password that a missing or wrong character moved there.
fn is_host(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_name = host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
    literal.is_ok() || is_name || host.starts_with('/')
}

/// Whether the server is on this machine: a socket path, `localhost` or a loopback address.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let loopback = literal.is_ok_and(|address| address.to_canonical().is_loopback());
    options.get_socket().is_some() || host.starts_with('/') || host == "localhost" || loopback
}

impl Location {
    /// Reads the value of a flag or variable.
    ///
    /// # Errors
    /// [`LedgerError::Url`].
    pub fn read(value: &Opaque) -> Result<Self, LedgerError> {
        value.text().ok_or(LedgerError::Url("it is not UTF-8"))?.parse()
    }

    /// How many bytes the file system of the file has left for this process; `None` for a database, and for a file
    /// system that does not report it.
    pub fn available(&self) -> Option<u64> {
        let Self::Sqlite(path) = self else { return None };
        let disk = rustix::fs::statvfs(path.parent()?).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            Self::Postgres(options) => {
                let database = options.get_database().unwrap_or_default();
                let host = options.get_host();
                let [open, close] = if host.contains(':') { ["[", "]"] } else { ["", ""] };
                write!(f, "postgres://{open}{host}{close}:{}/{database}", options.get_port())
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
    use sqlx::postgres::PgSslMode;

    #[test]
    fn reads_urls_and_hides_passwords() {
        let location: Location = "sqlite:///var/lib/x.db".parse().unwrap();
        assert_eq!(location.to_string(), "sqlite:///var/lib/x.db");
        let location: Location = "postgres://me:secret@db.example:5433/ledger?sslmode=require".parse().unwrap();
        assert_eq!(format!("{location} {location:?}").matches("secret").count(), 0);
        assert_eq!(location.to_string(), "postgres://db.example:5433/ledger");
        for text in ["postgres://[fd00::5]:5432/ledger", "postgres://[::1]:5432/ledger"] {
            let location: Location = text.parse().unwrap();
            let Location::Postgres(options) = &location else { panic!("a database") };
            assert!(options.get_host().parse::<IpAddr>().is_ok(), "no name for DNS: {}", options.get_host());
            assert_eq!(location.to_string(), text);
        }
    }

    #[test]
    fn remote_database_is_verified_unless_url_says_otherwise() {
        let verified = |url: &str| match url.parse().unwrap() {
            Location::Postgres(options) => matches!(options.get_ssl_mode(), PgSslMode::VerifyFull),
            Location::Sqlite(_) => panic!("{url} is a database"),
        };
        for url in [
            "postgres://me:secret@db.example/ledger",
            "postgresql://db.example:5433/ledger?application_name=x",
            "postgres://10.0.0.7/ledger",
            "postgres:///ledger?host=db.example",
            "postgres://localhost/ledger?hostaddr=10.0.0.7",
            "postgres://127.0.0.1/ledger?sslmode=verify-full",
        ] {
            assert!(verified(url), "{url}");
        }
        for url in [
            "postgres://localhost/ledger",
            "postgres://127.0.0.1:5433/ledger",
            "postgres://[::1]/ledger",
            "postgres://%2Frun%2Fpostgresql/ledger",
            "postgres:///ledger?host=/run/postgresql",
            "postgres://db.example/ledger?sslmode=require",
            "postgres://db.example/ledger?ssl-mode=disable",
        ] {
            assert!(!verified(url), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_without_their_password() {
        for url in [
            "",
            "ledger.db",
            "mysql://a:secret@b/c",
            "sqlite://",
            "sqlite:///x?mode=ro",
            "sqlite://a:secret@b/c",
            "postgres://a:secret@[b/c",
            "postgres://a:12/secret@b/c",
            "postgres://a%3Asecret%40b/c",
            "postgres://a:12#secret@b/c",
            "postgres://b/c?passwd=secret",
            "postgres://b/c?host=a:secret@d",
        ] {
            let error = Location::from_str(url).unwrap_err();
            assert!(matches!(error, LedgerError::Url(_)), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
