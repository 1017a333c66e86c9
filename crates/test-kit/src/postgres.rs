//! A real PostgreSQL on 127.0.0.1, with a cluster of its own in a temporary directory. Dropping the value removes it.

use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{env, fs};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

use super::frozen::Frozen;
use super::needed::{Needed, asks};
use super::pki::TestCa;
use super::process::{Account, Process, command_that_dies_with_us, free_port};
use super::wait::wait_or_explain;

/// The variable that names the directory of PostgreSQL's programs.
const PROGRAMS: &str = "ADDON_SIGNER_POSTGRES";
const USER: &str = "ledger";
/// The password of every server; a test may look for it where no password belongs.
pub const PASSWORD: &str = "not-for-any-log";
const READY: Duration = Duration::from_secs(60);

/// The directory with `initdb` and `postgres`, if the tests are to run on PostgreSQL too.
pub fn programs() -> Option<PathBuf> {
    let programs = env::var_os(PROGRAMS).filter(|value| !value.is_empty()).map(PathBuf::from);
    asks(Needed::Postgres, programs.is_some());
    programs
}

/// How a test wants its server.
#[derive(Clone, Copy)]
pub struct PostgresOptions {
    /// Whether a commit waits for the disk and the server has its default memory; otherwise it has as little as tests
    /// need.
    pub fsync: bool,
    /// Whether the server uses TLS, with a CA of its own.
    pub tls: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { fsync: true, tls: false }
    }
}

/// A server with password authentication (SCRAM). Dropping it ends it.
pub struct Postgres {
    server: Option<Process>,
    frozen: Option<Frozen>,
    options: PostgresOptions,
    /// An address besides 127.0.0.1, for pods.
    further: Option<[u8; 4]>,
    account: Option<Account>,
    programs: PathBuf,
    port: u16,
    dir: TempDir,
}

impl Postgres {
    /// Starts a fresh server that waits for the disk and has no TLS.
    pub async fn start() -> Self {
        Self::start_with(PostgresOptions::default()).await
    }

    /// Makes a fresh cluster, starts a server on it and waits until the server is ready.
    pub async fn start_with(options: PostgresOptions) -> Self {
        Self::start_at(options, None).await
    }

    /// The same for pods, which reach it at this address of the node, with TLS.
    pub async fn start_for_pods(node: [u8; 4]) -> Self {
        Self::start_at(PostgresOptions { fsync: true, tls: true }, Some(node)).await
    }

    async fn start_at(options: PostgresOptions, further: Option<[u8; 4]>) -> Self {
        let programs = programs().unwrap_or_else(|| panic!("{PROGRAMS} is not set; see tests/real/README.md"));
        let account = Account::instead_of_root(&["postgres", "nobody"]); // PostgreSQL refuses to run as root
        let dir = TempDir::new().unwrap();
        let port = free_port();
        let mut server = Self { server: None, frozen: None, options, further, account, programs, port, dir };
        server.give("");
        server.initialize();
        if options.tls {
            server.write_credentials();
        }
        server.start_again().await;
        server
    }

    /// The URL of a database; with TLS it demands the strictest check of the server.
    pub fn url(&self, database: &str) -> String {
        let tls = match self.options.tls {
            true => format!("?sslmode=verify-full&sslrootcert={}", self.dir.path().join("ca.crt").display()),
            false => String::new(),
        };
        // The certificate of a server for pods has the node's address instead.
        let host = if self.further.is_some() { "localhost" } else { "127.0.0.1" };
        format!("postgres://{USER}:{PASSWORD}@{host}:{}/{database}{tls}", self.port)
    }

    /// The URL of a database as pods use it that have [`Self::ca`] in this file.
    pub fn url_for_pods(&self, database: &str, ca: &str) -> String {
        let address = Ipv4Addr::from(self.further.expect("the server is for pods"));
        format!("postgres://{USER}:{PASSWORD}@{address}:{}/{database}?sslrootcert={ca}", self.port)
    }

    /// The certificate of the server's CA.
    pub fn ca(&self) -> String {
        fs::read_to_string(self.dir.path().join("ca.crt")).unwrap()
    }

    /// The URL of a database through a proxy, without TLS, because the proxy must be able to read.
    pub fn url_through(&self, proxy: u16, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{proxy}/{database}?sslmode=disable")
    }

    /// The port on 127.0.0.1; it stays the same when the server is started again.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates an empty database.
    pub async fn create_database(&self, name: &str) {
        let mut connection = PgConnection::connect(&self.url("postgres")).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE \"{name}\""))).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Ends the server at once, as a crash does: connections break, nothing more is written, and the next start finds
    /// what was committed.
    pub fn stop(&mut self) {
        self.thaw();
        if let Some(server) = self.server.take() {
            server.end_by("QUIT", Duration::from_secs(10));
        }
    }

    /// Starts the server on the same port with the same data, and waits until it is ready.
    pub async fn start_again(&mut self) {
        let program = self.programs.join("postgres");
        let server = Process::start_as(self.account.as_ref(), &program, &self.flags(), self.dir.path());
        let server = self.server.insert(server);
        let url = format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", self.port);
        let log = self.dir.path().join("postgres.log");
        let answers = async || {
            server.assert_running();
            PgConnection::connect(&url).await.ok()
        };
        let explain = || fs::read_to_string(&log).unwrap_or_default();
        wait_or_explain(READY, "PostgreSQL to be ready", answers, explain).await.close().await.unwrap();
    }

    /// Freezes every process of the server: connections stay open and nothing answers.
    pub fn freeze(&mut self) {
        let server = self.server.as_ref().expect("the server runs");
        self.frozen = Some(Frozen::with_children(server.id()));
    }

    /// Lets a frozen server continue.
    pub fn thaw(&mut self) {
        self.frozen = None;
    }

    fn flags(&self) -> Vec<String> {
        let data = self.dir.path().join("data").display().to_string();
        let on = |yes| if yes { "on" } else { "off" };
        let settings = [
            match self.further {
                None => "listen_addresses=127.0.0.1".to_owned(),
                Some(further) => format!("listen_addresses=127.0.0.1,{}", Ipv4Addr::from(further)),
            },
            format!("port={}", self.port),
            "unix_socket_directories=".to_owned(),
            "dynamic_shared_memory_type=mmap".to_owned(), // so that nothing remains in /dev/shm
            format!("shared_buffers={}", if self.options.fsync { "128MB" } else { "32MB" }),
            format!("fsync={}", on(self.options.fsync)),
            format!("ssl={}", on(self.options.tls)),
            "ssl_cert_file=../server.crt".to_owned(),
            "ssl_key_file=../server.key".to_owned(),
        ];
        let settings = settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]);
        ["-D".to_owned(), data].into_iter().chain(settings).collect()
    }

    fn initialize(&self) {
        fs::write(self.dir.path().join("password"), PASSWORD).unwrap();
        self.give("password");
        let program = self.programs.join("initdb");
        let output = command_that_dies_with_us(self.account.as_ref(), &program)
            .args(["--pgdata=data", "--pwfile=password", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"])
            .arg(format!("--username={USER}"))
            .arg("--no-sync") // a fresh cluster has nothing to lose
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} failed: {errors}", program.display());
        if self.further.is_some() {
            let mut hosts = File::options().append(true).open(self.dir.path().join("data/pg_hba.conf")).unwrap();
            writeln!(hosts, "hostssl all all 10.0.0.0/8 scram-sha-256").unwrap();
        }
    }

    fn write_credentials(&self) {
        let ca = TestCa::default();
        let server = self.further.map_or_else(|| ca.server(), |further| ca.server_at(further));
        let files = [("ca.crt", ca.pair().cert), ("server.crt", server.cert), ("server.key", server.key)];
        for (name, content) in files {
            fs::write(self.dir.path().join(name), content).unwrap();
            self.give(name);
        }
        let key = self.dir.path().join("server.key");
        // PostgreSQL refuses a key that others can read.
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Gives a file of the directory, or the directory itself, to the server's account.
    fn give(&self, name: &str) {
        if let Some(Account { user, group }) = self.account {
            chown(self.dir.path().join(name), Some(user), Some(group)).unwrap();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An empty database on the server that all tests share; the server runs as long as a test has a database.
pub struct Database {
    pub url: String,
    _server: Arc<Postgres>,
}

impl Database {
    /// Creates a database on a server that does not wait for the disk.
    pub async fn create() -> Self {
        static SHARED: tokio::sync::Mutex<(Weak<Postgres>, u32)> = tokio::sync::Mutex::const_new((Weak::new(), 0));
        let mut shared = SHARED.lock().await;
        let server = match shared.0.upgrade() {
            Some(server) => server,
            None => Arc::new(Postgres::start_with(PostgresOptions { fsync: false, tls: false }).await),
        };
        *shared = (Arc::downgrade(&server), shared.1 + 1);
        let name = format!("test{}", shared.1);
        drop(shared);
        server.create_database(&name).await;
        Self { url: server.url(&name), _server: server }
    }
}
