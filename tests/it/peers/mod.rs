//! Programs that none of us wrote call each other through the gateway, with real TLS on loopback: those of
//! tests/real/peers, curl and Prometheus. A test whose programs are missing passes at once.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use addon_signer_core::gateway::route::{Backend, Protocol, Route};
use addon_signer_gateway::Limits;
use tempfile::TempDir;
use test_kit::gateway::{GatewayWorld, SOON, mk_backend, route};
use test_kit::issue::Leaf;
use test_kit::needed::Needed;
use test_kit::pki::pem;
use test_kit::process::{Process, command_that_dies_with_us};
use test_kit::real::{assets, has_or_skip};
use test_kit::wait::wait_or_explain;

mod curl;
mod grpc;
mod h2spec;
mod otlp;
mod prometheus;
mod soak;
mod websocket;

/// The programs of tests/real/peers, and the agent's files for them.
struct Peers {
    program: PathBuf,
    dir: TempDir,
}

impl Peers {
    /// `None` if they were not built.
    #[track_caller]
    fn find() -> Option<Self> {
        if !has_or_skip("peers", Needed::Peers) {
            return None;
        }
        Some(Self { program: assets()?.join("peers"), dir: tempfile::tempdir().unwrap() })
    }

    /// Starts a server.
    async fn serve(&self, flags: &[&str]) -> Server {
        let dir = tempfile::tempdir_in(self.dir.path()).unwrap();
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let process = Process::start(&self.program, &flags, dir.path());
        let listens = async || {
            let message = process.tail();
            message.lines().find_map(|line| line.strip_prefix("listening on ")?.parse().ok())
        };
        let address = wait_or_explain(SOON, "a peer to listen", listens, || process.tail()).await;
        Server { process, address, _dir: dir }
    }

    /// Writes a pair of files for a server with TLS; returns its flags.
    fn pair(&self, leaf: &Leaf, name: &str) -> [String; 2] {
        let [certificate, key] = ["crt", "key"].map(|end| self.dir.path().join(format!("{name}.{end}")));
        fs::write(&certificate, pem("CERTIFICATE", &leaf.certificate)).unwrap();
        fs::write(&key, pem("PRIVATE KEY", leaf.key.secret_der())).unwrap();
        [format!("--cert={}", certificate.display()), format!("--key={}", key.display())]
    }

    /// Runs a client of the gateway with the agent's certificate; returns what it said. It must succeed.
    async fn call(&self, world: &GatewayWorld, arguments: &[&str]) -> String {
        let files = Files::write(self.dir.path(), world);
        let mut command = command_that_dies_with_us(None, &self.program);
        command.args(arguments).arg(format!("--gateway={}", world.address));
        command.args(
            [("cert", &files.cert), ("key", &files.key), ("ca", &files.ca)]
                .map(|(flag, file)| format!("--{flag}={}", file.display())),
        );
        message(command).await
    }
}

/// What a client of the gateway needs.
struct Files {
    cert: PathBuf,
    key: PathBuf,
    ca: PathBuf,
}

impl Files {
    fn write(dir: &Path, world: &GatewayWorld) -> Self {
        let [cert, key, ca] = ["agent.crt", "agent.key", "gateway-ca.crt"].map(|name| dir.join(name));
        let leaf = world.agent();
        fs::write(&cert, pem("CERTIFICATE", &leaf.certificate)).unwrap();
        fs::write(&key, pem("PRIVATE KEY", leaf.key.secret_der())).unwrap();
        fs::write(&ca, world.serving_ca.bundle().pem()).unwrap();
        Self { cert, key, ca }
    }
}

/// A server behind the gateway. Dropping it ends it.
struct Server {
    process: Process,
    address: SocketAddr,
    _dir: TempDir,
}

impl Server {
    /// A route to it, for all paths.
    fn route(&self, protocol: Protocol) -> Route {
        route_to(mk_backend(self.address, protocol))
    }

    /// Waits until it has said a line that begins like that, and returns the line.
    async fn says(&self, start: &str) -> String {
        wait_or_explain(SOON, start, async || self.has_reported(start, 1), || self.process.tail()).await
    }

    /// The last of so many lines that begin like that.
    fn has_reported(&self, start: &str, count: usize) -> Option<String> {
        let message = self.process.tail();
        message.lines().filter(|line| line.starts_with(start)).nth(count - 1).map(str::to_owned)
    }
}

/// Limits for streams on loopback, where Linux sends packets of 64 KiB. Less than two of them fit into the default
/// buffer of a backend's socket; then TCP now and then waits 200 ms for each packet, and streams stall for seconds.
/// With packets of 1500 or 9000 bytes that was not seen.
fn roomy() -> Limits {
    Limits { backend_socket: 256 * 1024, ..Limits::default() }
}

fn route_to(backend: Backend) -> Route {
    Route { backend: Ok(std::sync::Arc::new(backend)), ..route("/", "http://127.0.0.1:1") }
}

/// Runs a command beside the gateway, which is in this process.
async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

/// Runs a command that must succeed; returns its output.
async fn message(command: Command) -> String {
    let output = run(command).await;
    let [message, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{message}\n{errors}", output.status);
    message
}
