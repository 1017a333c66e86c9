//! Compares the gateway with nginx and HAProxy, and all three with the backend alone, by load programs that are not
//! ours: vegeta for HTTP and ghz for gRPC. docs/figures.md has the figures.
//!
//! ```console
//! $ export KUBEBUILDER_ASSETS=$(tests/real/build.sh)
//! $ cargo run --profile image --manifest-path tools/Cargo.toml --bin proxies
//! ```
//!
//! This process is the gateway, and does nothing else while a load program runs; each of the others is a process of its
//! own. All share the machine. The proxies have as many threads as there are cores, the same certificates, and the same
//! backend; they require TLS 1.3 and a client certificate, and resume no sessions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a load program fails by panicking"
)]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use addon_signer_core::gateway::route::{Protocol, Route};
use clap::Parser;
use tempfile::TempDir;
use test_kit::gateway::{GatewayWorld, LOCALHOST, mk_backend, route};
use test_kit::issue::Leaf;
use test_kit::pki::pem;
use test_kit::process::{Process, free_port};
use test_kit::real;
use tokio::runtime::Runtime;

use crate::cases::{Case, cases};
use crate::load::{Figure, LoadProgram, Target};

mod backend;
mod cases;
mod load;
mod peers;
mod table;

/// The paths of gRPC requests begin like that.
const GRPC: &str = "/grpc.health.v1.Health/";
/// How long a peer may take to end.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Parser)]
struct Arguments {
    /// How long each case runs through each proxy in each round.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// How often each case runs through each proxy, in turn, so that a busy machine slows all alike. The figures are
    /// those of the round with the median rate.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only cases whose first cell contains this, such as `gRPC, 16 x 1`.
    #[arg(long, default_value = "")]
    only: String,
    /// Be the backend, on this address.
    #[arg(long, hide = true)]
    backend: Option<SocketAddr>,
}

fn main() {
    addon_signer_platform::crypto::install_provider();
    let arguments = Arguments::parse();
    let runtime = Runtime::new().unwrap();
    if let Some(address) = arguments.backend {
        return runtime.block_on(backend::serve(address));
    }
    let Some(program) = real::assets().map(|assets| assets.join("peers")) else {
        println!("skipped: KUBEBUILDER_ASSETS has no load programs (tests/real/build.sh)");
        return;
    };
    let contest = Contest::start(&runtime, program);
    table::print_head();
    for case in cases().iter().filter(|case| case.to_string().contains(&arguments.only)) {
        table::print_row(case, &contest.measure(case, &arguments));
    }
}

/// The gateway, its peers, and the load program. Dropping it ends them.
struct Contest {
    targets: Vec<Target>,
    load: LoadProgram,
    _world: GatewayWorld,
    processes: Vec<Process>,
    _directory: TempDir,
}

impl Contest {
    fn start(runtime: &Runtime, program: PathBuf) -> Self {
        let directory = TempDir::new().unwrap();
        let [backend, nginx, haproxy] = [(); 3].map(|()| SocketAddr::new(LOCALHOST, free_port()));
        let world = runtime.block_on(GatewayWorld::start(routes(backend)));
        write_certificates(directory.path(), &world);
        let processes = vec![
            backend::start(backend, directory.path()),
            peers::start_nginx(nginx, backend, directory.path()),
            peers::start_haproxy(haproxy, backend, directory.path()),
        ];
        let ids = [std::process::id(), processes[1].id(), processes[2].id()];
        let proxies = [world.address, nginx, haproxy].into_iter().zip(ids);
        let mut targets = vec![Target { address: backend, tls: false, id: processes[0].id() }];
        targets.extend(proxies.map(|(address, id)| Target { address, tls: true, id }));
        let load = LoadProgram { program, directory: directory.path().to_owned() };
        Self { targets, load, _world: world, processes, _directory: directory }
    }

    /// Returns the figures of the backend alone, the gateway, nginx and HAProxy.
    fn measure(&self, case: &Case, arguments: &Arguments) -> Vec<Figure> {
        let mut rounds: Vec<_> = self.targets.iter().map(|_| Vec::new()).collect();
        for _ in 0..arguments.rounds {
            for (target, figures) in self.targets.iter().zip(&mut rounds) {
                figures.push(self.load.run(case, target, arguments.seconds));
            }
        }
        rounds.into_iter().map(Figure::median).collect()
    }
}

impl Drop for Contest {
    /// nginx ends its workers only if it is asked to end.
    fn drop(&mut self) {
        self.processes.drain(..).for_each(|process| process.end_by("TERM", TIMEOUT));
    }
}

/// HTTP goes to the backend over HTTP/1.1, as with the peers.
fn routes(backend: SocketAddr) -> Vec<Route> {
    [("/", Protocol::Http), (GRPC, Protocol::H2c)]
        .map(|(path, protocol)| Route {
            backend: Ok(Arc::new(mk_backend(backend, protocol))),
            ..route(path, "http://127.0.0.1:1")
        })
        .into()
}

/// Writes the client's pair and its anchor, and the pair and the anchor of the peers.
fn write_certificates(directory: &Path, world: &GatewayWorld) {
    let write = |name: &str, text: String| fs::write(directory.join(name), text).unwrap();
    let pair = |leaf: &Leaf| [pem("CERTIFICATE", &leaf.certificate), pem("PRIVATE KEY", leaf.key.secret_der())];
    let serving = pair(&world.serving_ca.server(&[], &[LOCALHOST], world.clock.now()));
    write("serving.pem", serving.concat());
    let [certificate, key] = pair(&world.agent());
    write("agent.crt", certificate);
    write("agent.key", key);
    write("serving-ca.crt", world.serving_ca.bundle().pem());
    write("client-ca.crt", world.telemetry.bundle().pem());
}
