//! `addon-signer hub`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ipnet::IpNet;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::issuer::{VaultArgs, issuer};
use crate::inventory;
use crate::process::registry_age::AgeBounds;
use crate::process::{HubConnection, HubOptions, HubProcess, InventoryOptions, Roles};
use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::chain::Roots;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::replicas::LARGEST_BOUND;
use addon_signer_core::lease::{self, LEASE_NAME};
use addon_signer_core::rate::Rate;
use addon_signer_core::units::parse_duration;
use addon_signer_gateway::Limits;
use addon_signer_hub::HubConfig;
use addon_signer_hub::authorities::supply::{ServingSource, Trusted};
use addon_signer_hub::routes::RouteSettings;
use addon_signer_ledger::Location;
use addon_signer_platform::arguments::Opaque;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_platform::kubeconfig::{Access, Plugins};
use addon_signer_platform::kubernetes;

/// With a lower value, the gateway would refuse all clients between two signs of life of an idle API server.
const LEAST_REFUSE_AFTER: Duration = Duration::from_secs(90);

/// How long a gateway without a signer serves without the API server. Meanwhile it learns neither of revocations nor of
/// new authorities.
const GATEWAY_REFUSE_AFTER: Duration = Duration::from_secs(600);

/// Run the signer, the gateway, or both on the hub.
#[derive(Debug, Clone, Args)]
pub struct HubArgs {
    /// What this process does: signer, gateway, or both, separated by a comma. With `gateway.separate: true` the chart
    /// has them apart, so that the process that faces agents holds no key of an authority.
    #[arg(long, env = "ADDON_SIGNER_ROLES", value_name = "ROLES", default_value_t = Roles::Both)]
    roles: Roles,
    #[command(flatten)]
    access: Access,
    /// The hub's namespace: that of its Secrets, ConfigMaps and Lease.
    #[arg(long, env = "ADDON_SIGNER_NAMESPACE", default_value = "addon-signer")]
    namespace: String,
    /// Where the gateway listens. In every address to listen on, `[::]` stands for all addresses of IPv4 and IPv6, and
    /// for IPv4 alone where the kernel has no IPv6.
    #[arg(long, env = "ADDON_SIGNER_GATEWAY_LISTEN", value_name = "ADDRESS", default_value = "[::]:8443")]
    gateway_listen: SocketAddr,
    /// How many connections the gateway has at a time, plus one eighth as many handshakes; at least 1. See "How much
    /// memory the gateway needs" in operations.md.
    #[arg(long, env = "ADDON_SIGNER_GATEWAY_CONNECTIONS", value_name = "N",
          default_value_t = addon_signer_gateway::DEFAULT_CONNECTIONS, value_parser = at_least_one)]
    gateway_connections: usize,
    /// How many connections one addon on one cluster may have at a time, and twice as many requests; at least 1. All
    /// addons of one cluster together may have four times as many, so that an attacker who has taken over a cluster
    /// gets a sixteenth of --gateway-connections by default. If you lower that flag, lower this one too.
    #[arg(long, env = "ADDON_SIGNER_GATEWAY_IDENTITY_CONNECTIONS", value_name = "N",
          default_value_t = addon_signer_gateway::DEFAULT_IDENTITY_CONNECTIONS, value_parser = at_least_one)]
    gateway_identity_connections: usize,
    /// A DNS name or address at which agents reach the gateway; may be repeated.
    #[arg(long, env = "ADDON_SIGNER_GATEWAY_NAME", value_name = "NAME_OR_IP", value_delimiter = ',', required = true)]
    gateway_name: Vec<Host>,
    /// Who issues the authorities of the gateway's certificate for agents: SelfSigned, Imported (by `ca import
    /// --serving`), Imported:SECRET for a Secret of the hub's namespace with tls.crt, tls.key and ca.crt, or
    /// CertManager:KIND/NAME for an issuer of cert-manager (CertManager:KIND.GROUP/NAME for one of another API group).
    #[arg(long, env = "ADDON_SIGNER_SERVING_ISSUER", value_name = "ISSUER",
          default_value = "SelfSigned", value_parser = issuer)]
    serving_issuer: AuthoritySource,
    /// What agents trust of an imported authority: it alone, or its root. With Root, another authority of that root
    /// needs no new trust on any cluster, but every CA of that root can act as the gateway.
    #[arg(long, env = "ADDON_SIGNER_SERVING_TRUST", value_name = "WHAT", value_enum, default_value = "Authority")]
    serving_trust: ServingTrust,
    /// The roots that agents may trust, as a file of certificates in PEM. With --serving-trust Root the hub takes an
    /// authority only below one of these; without this flag, only below a root that agents trust already.
    #[arg(long, env = "ADDON_SIGNER_SERVING_ROOTS", value_name = "FILE")]
    serving_roots: Option<PathBuf>,
    #[command(flatten)]
    _vault: VaultArgs,
    /// Write a line of JSON to standard output for each request at the gateway that has ended (access-log.md). The
    /// variable is true or false.
    #[arg(long, env = "ADDON_SIGNER_ACCESS_LOG", value_parser = clap::builder::BoolishValueParser::new())]
    pub(super) access_log: bool,
    /// Where /healthz, /readyz and /metrics are served, without TLS. The chart sets `[::]:9090`.
    #[arg(long, env = "ADDON_SIGNER_METRICS_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    metrics_listen: SocketAddr,
    /// Where the inventory of certificates is served to the Kubernetes API server, with TLS. The chart's value
    /// inventory sets `[::]:8444` [default: nowhere].
    #[arg(long, env = "ADDON_SIGNER_INVENTORY_LISTEN", value_name = "ADDRESS")]
    inventory_listen: Option<SocketAddr>,
    /// The Service of the hub's namespace that the APIService of the inventory names.
    #[arg(long, env = "ADDON_SIGNER_INVENTORY_SERVICE", value_name = "NAME", default_value = "addon-signer-inventory")]
    inventory_service: String,
    /// The account of OCM's gRPC server: its annotation open-cluster-management.io/csr-user is honored while the policy
    /// addon-signer-grpc-account is in force. The chart's value grpcAccount sets both.
    #[arg(long, env = "ADDON_SIGNER_GRPC_PROXY_ACCOUNT", value_name = "USERNAME")]
    grpc_proxy_account: Option<String>,
    /// A network in which AddOnRoutes may name a backend by its address, such as 192.0.2.0/24; may be repeated.
    /// Everyone who may write AddOnRoutes reaches every address in it, including loopback addresses.
    #[arg(long, env = "ADDON_SIGNER_BACKEND_ADDRESSES", value_name = "CIDR", value_delimiter = ',')]
    backend_addresses: Vec<IpNet>,
    /// How long the hub keeps denied and failed CSRs before it deletes them.
    #[arg(long, env = "ADDON_SIGNER_REFUSED_RETENTION", value_name = "DURATION",
          default_value = "10m", value_parser = parse_duration)]
    refused_retention: Duration,
    /// How many certificates one addon on a cluster may get at once, at least 1; the cluster may get five times as many
    /// in all.
    #[arg(long, env = "ADDON_SIGNER_RATE_BURST", value_name = "N",
          default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rate_burst: u32,
    /// How long until one addon on a cluster may get another certificate; the cluster gets another one five times as
    /// often.
    #[arg(long, env = "ADDON_SIGNER_RATE_INTERVAL", value_name = "DURATION",
          default_value = "10m", value_parser = parse_duration)]
    rate_interval: Duration,
    /// How long the API server may be silent before /readyz warns of missed revocations; when idle it is silent for 75s
    /// at most.
    #[arg(long, env = "ADDON_SIGNER_REGISTRY_STALE_AFTER", value_name = "DURATION",
          default_value = "2m", value_parser = parse_duration)]
    registry_stale_after: Duration,
    /// How long the API server may be silent before the gateway refuses all clients with 503 and /readyz fails; at
    /// least 90s, and at most 24h with --roles gateway [default: never, or 10m with --roles gateway].
    #[arg(long, env = "ADDON_SIGNER_REGISTRY_REFUSE_AFTER", value_name = "DURATION", value_parser = refuse_after)]
    registry_refuse_after: Option<Duration>,
    /// Where the hub records every decision: sqlite:///PATH, or postgres://USER:PASSWORD@HOST/DATABASE. See
    /// "PostgreSQL" in ledger.md for its TLS.
    #[arg(
        long,
        env = "ADDON_SIGNER_LEDGER",
        value_name = "URL",
        default_value = "sqlite:///var/lib/addon-signer/ledger.db",
        hide_env_values = true
    )]
    ledger: Opaque,
    /// The ledger is on a volume that is lost with the pod, and AddOnSigners say so. The chart's value
    /// ledger.file.ephemeral sets it. The variable is true or false.
    #[arg(long, env = "ADDON_SIGNER_LEDGER_EPHEMERAL", value_parser = clap::builder::BoolishValueParser::new())]
    ledger_ephemeral: bool,
    /// The name of this process in the Lease and in the ledger; the chart sets the pod's name. With --roles gateway it
    /// is the name of the gateway's own Lease, so each gateway needs another one.
    #[arg(long, env = "ADDON_SIGNER_REPLICA", value_name = "NAME", default_value = "addon-signer")]
    replica: String,
    /// The uid of the pod, so that the Lease of a gateway is deleted together with it. The chart's value
    /// gateway.separate sets it.
    #[arg(long, env = "ADDON_SIGNER_POD_UID", value_name = "UID")]
    pod_uid: Option<String>,
    /// With --roles gateway: how long the gateway accepts connections after it was told to stop. /readyz fails at once,
    /// and load balancers need a moment to notice. Then the gateway tells each connection to end, and requests get ten
    /// seconds more.
    #[arg(long, env = "ADDON_SIGNER_SHUTDOWN_DELAY", value_name = "DURATION",
          default_value = "5s", value_parser = parse_duration)]
    shutdown_delay: Duration,
    /// How long another hub waits before it takes over from a silent one; from 1s to 1h.
    #[arg(long, env = "ADDON_SIGNER_LEASE_DURATION", value_name = "DURATION",
          default_value = "15s", value_parser = lease_duration)]
    lease_duration: Duration,
}

/// What agents trust of the gateway's authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum ServingTrust {
    /// The authority itself.
    Authority,
    /// The root above it.
    Root,
}

/// What agents trust of the gateway's authorities, with the roots in this file.
fn trusted(trust: ServingTrust, roots: Option<&Path>) -> anyhow::Result<Trusted> {
    let read = |file: &Path| {
        let text = std::fs::read(file).with_context(|| format!("--serving-roots {}", file.display()))?;
        Roots::from_pem(&text).with_context(|| format!("--serving-roots {}", file.display()))
    };
    match (trust, roots) {
        (ServingTrust::Root, roots) => Ok(Trusted::Root(roots.map(read).transpose()?)),
        (ServingTrust::Authority, None) => Ok(Trusted::Authority),
        (ServingTrust::Authority, Some(_)) => anyhow::bail!("--serving-roots needs --serving-trust Root"),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "not a valid number of connections".to_owned())?;
    if number == 0 { Err("there must be at least 1".to_owned()) } else { Ok(number) }
}

fn refuse_after(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    if duration < LEAST_REFUSE_AFTER {
        return Err("it must be at least 90s: an idle API server is silent for up to 75s".to_owned());
    }
    Ok(duration)
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    let is_allowed = (Duration::from_secs(1)..=lease::LONGEST).contains(&duration);
    if is_allowed { Ok(duration) } else { Err("a Lease must be valid for 1s to 1h".to_owned()) }
}

impl HubArgs {
    /// How long the API server may be silent before the gateway refuses all clients; checks what the roles allow.
    fn refuse_after(&self) -> anyhow::Result<Option<Duration>> {
        if self.roles.has_signer() {
            return Ok(self.registry_refuse_after);
        }
        anyhow::ensure!(
            self.inventory_listen.is_none(),
            "--inventory-listen needs the role signer: a process with --roles gateway has no ledger"
        );
        anyhow::ensure!(
            self.replica != LEASE_NAME,
            "--replica must be another name for each gateway, such as the name of its pod, and not {LEASE_NAME}: the \
             signers share the Lease of that name"
        );
        let bound = self.registry_refuse_after.unwrap_or(GATEWAY_REFUSE_AFTER);
        anyhow::ensure!(
            bound <= LARGEST_BOUND,
            "--registry-refuse-after must be at most 24h with --roles gateway: a rotation waits that long for a \
             gateway that is gone"
        );
        Ok(Some(bound))
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Why the hub cannot start, or which task ended and why.
pub async fn run(args: HubArgs) -> anyhow::Result<()> {
    let ledger = Location::read(&args.ledger)?;
    let refuse_after = args.refuse_after()?;
    let gateway_limits = Limits::sized(args.gateway_connections, args.gateway_identity_connections);
    let of_gateway = if args.roles.has_gateway() { gateway_limits.open_files() } else { 0 };
    let of_inventory = if args.inventory_listen.is_some() { inventory::OPEN_FILES } else { 0 };
    raise_open_files(of_gateway.saturating_add(of_inventory));
    let contacts = Contacts::default();
    let client = kubernetes::connected(&args.access, Plugins::Run, contacts.clone()).await?.client;
    let inventory = args.inventory_listen.map(|listen| InventoryOptions { listen, service: args.inventory_service });
    let trusted = trusted(args.serving_trust, args.serving_roots.as_deref())?;
    let options = HubOptions {
        roles: args.roles,
        hub: HubConfig {
            namespace: args.namespace,
            grpc_proxy: args.grpc_proxy_account,
            routes: RouteSettings { names: args.gateway_name, backend_addresses: args.backend_addresses },
            retention: args.refused_retention,
            rate: Rate { burst: args.rate_burst, interval: args.rate_interval },
            serving_source: ServingSource { source: args.serving_issuer, trusted },
            is_ledger_ephemeral: args.ledger_ephemeral,
        },
        gateway_listen: args.gateway_listen,
        gateway_limits,
        access_log: args.access_log,
        metrics_listen: args.metrics_listen,
        inventory,
        replica: args.replica,
        pod_uid: args.pod_uid,
        shutdown_delay: args.shutdown_delay,
        ledger,
        lease_duration: args.lease_duration,
        registry_age: AgeBounds { stale: args.registry_stale_after, outdated: refuse_after },
    };
    let process = HubProcess::prepare(HubConnection { client, contacts }, options, Clock::default()).await?;
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let running = process.run(stop.clone());
    tokio::pin!(running);
    tokio::select! {
        result = &mut running => return result,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    info!("Stopping: finishing requests in flight and releasing the Lease");
    stop.cancel();
    tokio::select! {
        result = running => result,
        _ = interrupt.recv() => anyhow::bail!("interrupted twice: exiting without finishing requests in flight"),
    }
}

/// Raises the process's limit of open files, of which each connection is one, as far as the process may, and logs it if
/// the result is below `needed`.
fn raise_open_files(needed: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        warn!(%error, "The limit of open files could not be raised");
    }
    // `None` means no limit.
    if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < needed) {
        warn!(
            limit,
            needed,
            "The open-file limit is too low for this many connections: raise the hard limit on open files, or lower \
             --gateway-connections"
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Hub {
        #[command(flatten)]
        args: HubArgs,
    }

    fn refuse_after(arguments: &[&str]) -> Result<Option<u64>, String> {
        let all = [&["hub", "--gateway-name=a", "--replica=g1"], arguments].concat();
        let bound = Hub::try_parse_from(all).unwrap().args.refuse_after();
        bound.map(|bound| bound.map(|bound| bound.as_secs())).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_of_the_gateway_is_a_host_in_any_spelling() {
        let read = |names: &str| Hub::try_parse_from(["hub", "--gateway-name", names]).map(|hub| hub.args.gateway_name);
        let host = |name: &str| name.parse::<Host>().unwrap();
        assert_eq!(read("Gateway.Example.,[FD00:0::1]").unwrap(), [host("gateway.example"), host("fd00::1")]);
        for bad in ["https://gateway.example", "gateway.example:8443", "[192.0.2.7]", "a,,b"] {
            assert!(read(bad).unwrap_err().to_string().contains("not a DNS name or an IP address"), "{bad}");
        }
    }

    #[test]
    fn a_gateway_apart_refuses_everybody_after_ten_minutes() {
        assert_eq!(refuse_after(&["--roles=gateway"]), Ok(Some(600)));
        assert_eq!(refuse_after(&["--roles=gateway", "--registry-refuse-after=2m"]), Ok(Some(120)));
        assert_eq!(refuse_after(&["--roles=signer"]), Ok(None));
        assert_eq!(refuse_after(&[]), Ok(None));
        assert!(refuse_after(&["--roles=gateway", "--registry-refuse-after=25h"]).unwrap_err().contains("at most 24h"));
        assert!(refuse_after(&["--roles=gateway", "--inventory-listen=127.0.0.1:1"]).unwrap_err().contains("signer"));
    }

    #[test]
    fn named_roots_are_read_and_are_refused_without_root() {
        let file = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            file
        };
        let pem = include_str!("../../certs/profiles/serving-ca.pem");
        let (good, empty) = (file(pem), file("no certificate"));
        let roots = Roots::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(trusted(ServingTrust::Root, Some(good.path())).unwrap(), Trusted::Root(Some(roots)));
        assert_eq!(trusted(ServingTrust::Root, None).unwrap(), Trusted::Root(None));
        assert_eq!(trusted(ServingTrust::Authority, None).unwrap(), Trusted::Authority);
        let message = |trust, file: &Path| format!("{:#}", trusted(trust, Some(file)).unwrap_err());
        assert_eq!(message(ServingTrust::Authority, good.path()), "--serving-roots needs --serving-trust Root");
        let expected = format!(
            "--serving-roots {}: it has no certificate in PEM (-----BEGIN CERTIFICATE-----)",
            empty.path().display()
        );
        assert_eq!(message(ServingTrust::Root, empty.path()), expected);
        assert!(message(ServingTrust::Root, Path::new("/nowhere")).contains("--serving-roots /nowhere: No such file"));
    }
}
