//! Measures the resident memory of `addon-signer-agent` and its parts. docs/figures.md has the figures.
//!
//! ```console
//! $ cargo build --profile agent-image -p addon-signer-agent
//! $ cargo run --manifest-path tools/Cargo.toml --bin agent -- --program target/agent-image/addon-signer-agent
//! ```
//!
//! The agent is a child process; hub and gateway are in this process. They run on the stand-in, or on a real API server
//! if `KUBEBUILDER_ASSETS` names one. Figures are from Linux' `/proc/PID/smaps`, after a pause.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a load program fails by panicking"
)]

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use addon_signer::process::registry_age::AgeBounds;
use addon_signer::process::{HubOptions, HubProcess, Roles};
use addon_signer_core::rate::Rate;
use addon_signer_gateway::Limits;
use addon_signer_hub::HubConfig;
use addon_signer_hub::lease::DEFAULT_DURATION;
use addon_signer_hub::routes::RouteSettings;
use addon_signer_platform::clock::Clock;
use clap::Parser;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use test_kit::accounts::{AGENT_USER, HUB_GROUPS, HUB_USER};
use test_kit::deploy::{apply, file};
use test_kit::hub::{create_signer, telemetry, wait_ready};
use test_kit::process::Process;
use test_kit::{TestHub, accept_cluster, install_addon, objects, wait_until};

const READY: Duration = Duration::from_secs(60);
/// The time in which an agent begins its watch, even in an emulator.
const WATCHING: Duration = Duration::from_secs(5);
/// Where deploy/agent.yaml keeps the Secret.
const NAMESPACE: &str = "open-cluster-management-agent-addon";

#[derive(Parser)]
struct Arguments {
    /// The number of rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long an agent rests before it is measured, in seconds.
    #[arg(long, default_value_t = 5)]
    pause: u64,
    /// The program to measure.
    #[arg(long)]
    program: PathBuf,
}

#[tokio::main]
async fn main() {
    addon_signer_platform::crypto::install_provider();
    let arguments = Arguments::parse();
    let world = World::start(fs::canonicalize(arguments.program).unwrap()).await;
    let pause = Duration::from_secs(arguments.pause);
    println!("| agent | resident, MB | its own | program's code | program's constants | libraries, stack, others |");
    println!("|---|---|---|---|---|---|");
    println!("| directory, which waited for its signer | {} |", world.first(pause).await);
    for round in 0..arguments.rounds {
        world.directory(round, pause).await;
        world.secret(pause).await;
    }
}

/// Hub and gateway in this process, and what an agent needs.
struct World {
    hub: TestHub,
    admin: Client,
    gateway: SocketAddr,
    program: PathBuf,
    dir: TempDir,
}

impl World {
    async fn start(program: PathBuf) -> Self {
        let hub = TestHub::start().await;
        test_kit::hub::deploy(&hub).await;
        let admin = hub.admin().await;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let dir = TempDir::new().unwrap();
        let options = HubOptions {
            roles: Roles::Both,
            pod_uid: None,
            shutdown_delay: Duration::ZERO,
            hub: HubConfig {
                routes: RouteSettings { names: vec!["127.0.0.1".parse().unwrap()], ..Default::default() },
                rate: Rate { burst: 100, interval: Duration::from_secs(1) },
                ..HubConfig::default()
            },
            gateway_listen: any,
            gateway_limits: Limits::default(),
            access_log: false,
            metrics_listen: any,
            replica: "bench".to_owned(),
            ledger: format!("sqlite://{}/ledger.db", dir.path().display()).parse().unwrap(),
            lease_duration: DEFAULT_DURATION,
            registry_age: AgeBounds::default(),
            inventory: None,
        };
        let client = hub.client_as(HUB_USER, &HUB_GROUPS).await;
        let process = HubProcess::prepare(client, options, Clock::default()).await.unwrap();
        let gateway = process.gateway_address().unwrap();
        tokio::spawn(process.run(CancellationToken::new()));
        accept_cluster(&admin, "cluster1").await;
        install_addon(&admin, "cluster1", "telemetry").await;
        objects::create_namespace(&admin, NAMESPACE).await;
        objects::create_namespace(&admin, "open-cluster-management-agent").await;
        if hub.is_real() {
            apply(&admin, &file("deploy/agent.yaml")).await; // the hub's API server is also the managed cluster's
        }
        Self { hub, admin, gateway, program, dir }
    }

    /// An agent whose request waits until there is a signer for it. It watches the request, as it does while a person
    /// has not approved it yet.
    async fn first(&self, pause: Duration) -> Memory {
        let output = self.dir.path().join("first");
        let agent = self.agent(&[format!("--output-dir={}", output.display())]);
        let requests: Api<CertificateSigningRequest> = Api::all(self.admin.clone());
        let of_agent = ListParams::default().fields("spec.signerName=example.com/telemetry");
        let made = async || requests.list(&of_agent).await.ok().filter(|found| !found.items.is_empty()).map(drop);
        wait_until(READY, "the agent's request", made).await;
        tokio::time::sleep(WATCHING).await;
        create_signer(&self.admin, "telemetry", telemetry()).await;
        wait_ready(&self.admin, "telemetry", "True").await;
        wait_until(READY, "the agent to enrol", async || output.join("tls.crt").exists().then_some(())).await;
        measure(agent, pause).await
    }

    /// Agents with `--output-dir`: one that enrols, and one that finds its certificate there.
    async fn directory(&self, round: usize, pause: Duration) {
        let output = self.dir.path().join(round.to_string());
        for what in ["directory, after it enrolled", "directory, after a restart"] {
            let agent = self.agent(&[format!("--output-dir={}", output.display())]);
            wait_until(READY, "the agent to enrol", async || output.join("tls.crt").exists().then_some(())).await;
            println!("| {what} | {} |", measure(agent, pause).await);
        }
    }

    /// Agents with `--secret-namespace`, as deploy/agent.yaml runs them.
    async fn secret(&self, pause: Duration) {
        let kubeconfig = self.kubeconfig("managed-cluster", AGENT_USER, &[]);
        let flags = [format!("--secret-namespace={NAMESPACE}"), format!("--kubeconfig={}", kubeconfig.display())];
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), NAMESPACE);
        for what in ["Secret, after it enrolled", "Secret, after a restart"] {
            let agent = self.agent(&flags);
            let stored = async || secrets.get_opt("telemetry-client-cert").await.unwrap().map(drop);
            wait_until(READY, "the agent to enrol", stored).await;
            println!("| {what} | {} |", measure(agent, pause).await);
        }
        secrets.delete("telemetry-client-cert", &Default::default()).await.unwrap();
    }

    fn agent(&self, store: &[String]) -> Process {
        let cluster = "system:open-cluster-management:cluster1";
        let groups = [cluster, test_kit::crds::MANAGED_CLUSTERS];
        let kubeconfig = self.kubeconfig("hub", &format!("{cluster}:a1"), &groups);
        let mut flags = vec![
            "--cluster=cluster1".to_owned(),
            "--addon=telemetry".to_owned(),
            "--signer=example.com/telemetry".to_owned(),
            format!("--hub-kubeconfig={}", kubeconfig.display()),
            format!("--gateway=https://{}", self.gateway),
        ];
        flags.extend_from_slice(store);
        Process::start(&self.program, &flags, self.dir.path())
    }

    fn kubeconfig(&self, name: &str, user: &str, groups: &[&str]) -> PathBuf {
        let path = self.dir.path().join(format!("{name}.kubeconfig"));
        fs::write(&path, serde_saphyr::to_string(&self.hub.kubeconfig(user, groups)).unwrap()).unwrap();
        path
    }
}

/// The resident memory of the agent after the pause, if nothing went wrong meanwhile.
async fn measure(mut agent: Process, pause: Duration) -> Memory {
    tokio::time::sleep(pause).await;
    agent.assert_running();
    assert!(!agent.tail().contains("WARN"), "{}", agent.tail());
    Memory::of(agent.id())
}

/// Resident memory, in KiB.
#[derive(Default)]
struct Memory {
    /// Anonymous memory: heap, stacks, written data of the program.
    own: f64,
    /// Executable pages of the program's file.
    code: f64,
    /// Other pages of that file that were not written.
    constants: f64,
    /// Pages of other files: libc, the loader.
    others: f64,
}

impl Memory {
    /// Reads `/proc/PID/smaps`, which has a header line and then fields for each mapping.
    fn of(id: u32) -> Self {
        let program = fs::read_link(format!("/proc/{id}/exe")).unwrap();
        let mut memory = Self::default();
        let mut header = Vec::new();
        let mut resident = 0.0;
        for line in fs::read_to_string(format!("/proc/{id}/smaps")).unwrap().lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match *words.as_slice() {
                ["Rss:", kib, _] => resident = kib.parse().unwrap(),
                ["Anonymous:", kib, _] => memory.add(&header, &program, resident, kib.parse().unwrap()),
                [range, ..] if range.contains('-') => header = words.iter().map(|word| (*word).to_owned()).collect(),
                _ => {}
            }
        }
        memory
    }

    fn add(&mut self, header: &[String], program: &Path, resident: f64, anonymous: f64) {
        self.own += anonymous;
        let of_file = match header {
            [_, access, _, _, _, path] if Path::new(path) == program && access.contains('x') => &mut self.code,
            [_, _, _, _, _, path] if Path::new(path) == program => &mut self.constants,
            _ => &mut self.others,
        };
        *of_file += resident - anonymous;
    }
}

/// The columns of the table, in MB of 10^6 bytes: the sum (`VmRSS`), then the parts.
impl Display for Memory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { own, code, constants, others } = self;
        let columns = [own + code + constants + others, *own, *code, *constants, *others];
        write!(f, "{}", columns.map(|kib| format!("{:.1}", kib * 1024.0 / 1e6)).join(" | "))
    }
}
