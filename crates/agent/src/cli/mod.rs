//! The command line of `addon-signer-agent`. Exit code 0: done; 1: failed; 2: wrong usage.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{CommandFactory, Parser};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::gateway::GatewayUrlError;
use crate::health::HealthLease;
use crate::on_renew::{CommandLine, OnRenew};
use crate::owner::OwnerName;
use crate::probe::{Probe, serve};
use crate::store::Store;
use crate::{Agent, Outcome, Settings, Timing};
use addon_signer_core::identity::{self, AddOnName, AgentName, ClusterName, Convention, PeerIdentity};
use addon_signer_core::units::parse_duration;
use addon_signer_platform::arguments::{self, Opaque};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;
use addon_signer_platform::kubeconfig::{Access, Plugins};
use addon_signer_platform::logs::{self, LogFormat};
use addon_signer_platform::{crypto, kubernetes, listen, terminal, version};

/// Keep an addon's client certificate valid on a managed cluster, until SIGTERM or SIGINT.
///
/// The three files are tls.crt, tls.key and ca.crt. With both --output-dir and --secret-namespace the Secret decides:
/// it survives the pod, and the directory is a copy, which the agent writes at the start and after each change.
///
/// The agent reaches the hub and the gateway through the HTTP proxy in HTTPS_PROXY, except for the hosts in NO_PROXY;
/// the addon-manager sets both from the proxyConfig of an AddOnDeploymentConfig. NO_PROXY may contain names, which also
/// match their subdomains, addresses, networks and `*`; a port has no effect. A proxy-url in the hub kubeconfig
/// replaces both for the hub. The proxy must be http://[USER:PASSWORD@]HOST:PORT; TLS goes through it untouched. Any
/// other URL is an error, except for hosts in NO_PROXY.
#[derive(Debug, Clone, Parser)]
#[command(name = "addon-signer-agent", version, long_version = version::long("none"))]
#[command(group = clap::ArgGroup::new("store").required(true).multiple(true).args(["output_dir", "secret_namespace"]))]
#[command(group = clap::ArgGroup::new("objects").multiple(true).args(["secret_namespace", "health_lease"]))]
struct AgentArgs {
    /// The managed cluster's name on the hub.
    #[arg(long, env = "ADDON_SIGNER_CLUSTER", value_name = "NAME")]
    cluster: ClusterName,
    /// The addon.
    #[arg(long, env = "ADDON_SIGNER_ADDON", value_name = "NAME")]
    addon: AddOnName,
    /// The agent's name in the certificate [default: the addon's name].
    #[arg(long, env = "ADDON_SIGNER_AGENT", value_name = "NAME")]
    agent: Option<AgentName>,
    /// The signer's name, as in the AddOnSigner's spec.signerName.
    #[arg(long, env = "ADDON_SIGNER_SIGNER", value_name = "SIGNER_NAME", value_parser = parse_signer_name)]
    signer: String,
    /// The kubeconfig for the hub, either the cluster's or the addon's own (certificates.md); the agent reads it again
    /// for every request to the hub.
    #[arg(long, env = "ADDON_SIGNER_HUB_KUBECONFIG", value_name = "FILE")]
    hub_kubeconfig: PathBuf,
    /// The gateway's address, https://HOST[:PORT]. The agent tries a new certificate there before it replaces the old
    /// one.
    #[arg(long, env = "ADDON_SIGNER_GATEWAY", value_name = "URL", hide_env_values = true)]
    gateway: Opaque,
    /// Keep tls.crt, tls.key and ca.crt in this directory, which only the agent's user may read; with
    /// --secret-namespace it is a copy of the Secret.
    #[arg(long, env = "ADDON_SIGNER_OUTPUT_DIR", value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Keep the certificate, its key and the trust bundle in the Secret ADDON-client-cert of this namespace.
    #[arg(long, env = "ADDON_SIGNER_SECRET_NAMESPACE", value_name = "NS")]
    secret_namespace: Option<String>,
    /// Keep OCM's health Lease ADDON in this namespace, while the certificate is good; the agent learns of a revocation
    /// after --refresh at the latest. It needs the right to create leases there, and to get and update that one.
    #[arg(long, env = "ADDON_SIGNER_HEALTH_LEASE", value_name = "NS")]
    health_lease: Option<String>,
    /// The object in that namespace that owns the Secret and the Lease, so that they are deleted with it, if the agent
    /// creates them: deployment, daemonset, statefulset or serviceaccount. The agent needs the right to get that
    /// object.
    #[arg(long, env = "ADDON_SIGNER_OWNER", value_name = "KIND/NAME", requires = "objects")]
    owner: Option<OwnerName>,
    /// Run the program that the hub kubeconfig names in `exec`, as clusters of EKS and GKE need it, and let its
    /// tokenFile be in any directory; else such a kubeconfig is refused. Everyone who may write the Secret of that file
    /// then runs programs in the agent's pod.
    #[arg(long, env = "ADDON_SIGNER_ALLOW_CREDENTIAL_PLUGINS")]
    allow_credential_plugins: bool,
    /// The kubeconfig for the Secret and the Lease [default: KUBECONFIG, ~/.kube/config, or the pod's account].
    #[arg(long, env = "ADDON_SIGNER_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig for the Secret and the Lease [default: its current-context].
    #[arg(long, env = "ADDON_SIGNER_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    /// How often to ask the gateway whether there are other anchors, which come with another certificate; at most 6m,
    /// because a rotation relies on it.
    #[arg(long, env = "ADDON_SIGNER_REFRESH", value_name = "DURATION",
          default_value = "5m", value_parser = parse_refresh)]
    refresh: Duration,
    /// Enrol or renew if that is due, if the certificate is revoked, or if the hub gives out other anchors, run the
    /// command of --on-renew, then exit. The exit code is 1 if a certificate was due and there is no new one, or if the
    /// command failed.
    #[arg(long, env = "ADDON_SIGNER_ONCE")]
    once: bool,
    /// The signer's template for the user, its identity.user.
    #[arg(long, env = "ADDON_SIGNER_USER", value_name = "TEMPLATE", default_value = identity::DEFAULT_USER)]
    user: String,
    /// The signer's template for a group, one of its identity.groups; may be repeated, "" for none.
    #[arg(long, env = "ADDON_SIGNER_GROUP", value_name = "TEMPLATE", value_delimiter = ',',
          default_values = identity::DEFAULT_GROUPS)]
    group: Vec<String>,
    /// The signer's template for a DNS name, one of its identity.dnsNames; may be repeated, "" for none.
    #[arg(long, env = "ADDON_SIGNER_DNS_NAME", value_name = "TEMPLATE", value_delimiter = ',',
          default_values = identity::DEFAULT_DNS_NAMES)]
    dns_name: Vec<String>,
    /// The certificate's lifetime to request, at least 600 [default: the signer's].
    #[arg(long, env = "ADDON_SIGNER_EXPIRATION_SECONDS", value_name = "SECONDS",
          value_parser = clap::value_parser!(i32).range(600..))]
    expiration_seconds: Option<i32>,
    /// Run this program after each change of the certificate or the anchors, once they are stored: a program and its
    /// arguments, quoted as in a shell, but run without one. Failures are logged and tried again. See "The command of
    /// --on-renew" in writing-an-addon.md.
    #[arg(long, env = "ADDON_SIGNER_ON_RENEW", value_name = "COMMAND", hide_env_values = true)]
    on_renew: Option<CommandLine>,
    /// How long the command of --on-renew may run, before it is killed with its children; at least 1s.
    #[arg(long, env = "ADDON_SIGNER_ON_RENEW_TIMEOUT", value_name = "DURATION",
          default_value = "30s", value_parser = parse_timeout)]
    on_renew_timeout: Duration,
    /// Serve /metrics and /readyz at this address over plain HTTP; with --once it does not. /readyz is 200 while a good
    /// certificate is stored: complete, not expired, not reported as revoked by the gateway, and copied if there is a
    /// copy. Otherwise it is 503, and the body says why. It serves as a startup probe and as a readiness probe
    /// [default: not at all].
    #[arg(long, env = "ADDON_SIGNER_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
    /// The log, on standard error, as lines of text or of JSON. RUST_LOG sets what is logged: by default info.
    #[arg(long, env = "ADDON_SIGNER_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Checks the form `domain/path`, which Kubernetes requires (`ValidateSignerName`). The hub checks the rest.
fn parse_signer_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((domain, path)) if domain.contains('.') && !path.is_empty() && !path.contains('/') => Ok(text.to_owned()),
        _ => Err("a signer's name has the form example.com/name".to_owned()),
    }
}

/// 15 minutes after a ManifestWork has brought a new anchor the hub assumes it is in use, so by then each agent must
/// have asked, and once more if that failed; jitter lengthens each pause by up to a fifth.
const LONGEST_REFRESH: Duration = Duration::from_secs(360);

fn parse_refresh(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    match duration {
        Duration::ZERO => Err("it must be at least 1s".to_owned()),
        longer if longer > LONGEST_REFRESH => {
            Err("it must be at most 6m: a rotation of the gateway's CA relies on it".to_owned())
        }
        duration => Ok(duration),
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        Duration::ZERO => Err("it must be at least 1s".to_owned()),
        duration => Ok(duration),
    }
}

impl AgentArgs {
    fn settings(&self) -> anyhow::Result<Settings> {
        let agent = match &self.agent {
            Some(agent) => agent.clone(),
            None => self.addon.as_str().parse()?,
        };
        let given =
            |templates: &[String]| templates.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
        Ok(Settings {
            identity: PeerIdentity { cluster: self.cluster.clone(), addon: self.addon.clone(), agent },
            convention: Convention::new(&self.user, &given(&self.group), &given(&self.dns_name))?,
            signer_name: self.signer.clone(),
            expiration_seconds: self.expiration_seconds,
            hub_kubeconfig: self.hub_kubeconfig.clone(),
            plugins: if self.allow_credential_plugins { Plugins::Run } else { Plugins::Refuse },
            gateway: self.gateway.text().unwrap_or_default().parse()?,
            timing: Timing { refresh: self.refresh, ..Timing::default() },
        })
    }

    fn access(&self) -> Access {
        Access { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }

    async fn store(&self) -> anyhow::Result<Store> {
        let Some(namespace) = &self.secret_namespace else {
            let path = self.output_dir.clone().context("give --output-dir, --secret-namespace or both")?;
            return Ok(Store::directory(path));
        };
        let client = kubernetes::client(&self.access()).await.context("the Secret cannot be reached")?;
        let secret = Store::secret(client, namespace, &self.addon).owned_by(self.owner.clone());
        Ok(match &self.output_dir {
            Some(path) => secret.copied_to(path.clone()),
            None => secret,
        })
    }

    fn on_renew(&self, identity: &PeerIdentity) -> Option<OnRenew> {
        let command = self.on_renew.clone()?;
        Some(OnRenew::new(command, self.on_renew_timeout, identity.clone(), self.output_dir.clone()))
    }

    async fn health(&self) -> anyhow::Result<Option<HealthLease>> {
        let Some(namespace) = &self.health_lease else { return Ok(None) };
        let elsewhere = self.secret_namespace.as_ref().filter(|other| *other != namespace);
        if elsewhere.is_some() && self.owner.is_some() {
            anyhow::bail!("with --owner, --secret-namespace and --health-lease must be the same namespace");
        }
        let client = kubernetes::client(&self.access()).await.context("the Lease cannot be reached")?;
        Ok(Some(HealthLease::new(client, namespace, &self.addon, self.owner.clone())))
    }
}

/// The command line with its help, for the reference.
pub fn command() -> clap::Command {
    AgentArgs::command()
}

/// Parses the command line, runs the agent, and prints an error if it failed.
pub fn main() -> ExitCode {
    crypto::install_provider();
    let args: AgentArgs = arguments::parse();
    tracing_subscriber::registry().with(logs::layer(args.log_format, logs::INFO)).init();
    match run_here(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("addon-signer-agent: {}", terminal::lines(&explain(error.as_ref())));
            ExitCode::from(if error.is::<GatewayUrlError>() { arguments::WRONG_USAGE } else { arguments::FAILED })
        }
    }
}

/// Runs the agent on a runtime with one thread, which needs little memory.
fn run_here(args: AgentArgs) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(args))
}

/// Runs the agent until SIGTERM or SIGINT, or once with `--once`. Either signal also ends the command of `--on-renew`.
async fn run(args: AgentArgs) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        done = work(&args) => return done,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    anyhow::ensure!(!args.once, "it was told to end before it was done");
    Ok(())
}

async fn work(args: &AgentArgs) -> anyhow::Result<()> {
    let settings = args.settings()?;
    let (health, on_renew) = (args.health().await?, args.on_renew(&settings.identity));
    let clock = Clock::default();
    let agent = Agent::new(settings, args.store().await?, clock.clone()).with_health(health).with_on_renew(on_renew);
    if args.once {
        return once(agent).await;
    }
    let Some(address) = args.metrics_listen else { match agent.run().await {} };
    let listener = listen::bind(address, None)
        .with_context(|| format!("cannot listen on {address}: choose another --metrics-listen"))?;
    let probe = Probe::new(clock);
    tokio::select! {
        never = agent.with_probe(probe.clone()).run() => match never {},
        never = serve(listener, probe) => match never {},
    }
}

async fn once(mut agent: Agent) -> anyhow::Result<()> {
    match agent.once().await? {
        Outcome::Valid { renew_at } => info!(%renew_at, "The stored certificate is valid"),
        Outcome::Enrolled { renew_at } => info!(%renew_at, "Enrolled"),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
