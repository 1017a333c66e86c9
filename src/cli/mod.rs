//! The command line. Facts go to standard output, everything else to standard error.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused because agents would be locked out.

#![deny(clippy::print_stderr)] // by `tell` alone: text of others may be in it

pub mod ca;
mod caller;
pub mod certs;
pub mod check;
mod explain;
pub mod hub;
pub mod inventory_args;
pub mod issuer;
mod leader;
pub mod status;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[cfg(feature = "demo")]
use crate::demo;
use crate::output::{self, tell};
use addon_signer_ledger::LedgerError;
use addon_signer_platform::arguments;
use addon_signer_platform::errors::explain;
use addon_signer_platform::logs::{self, LogFormat};
use addon_signer_platform::version;
use addon_signer_telemetry::access::{AccessWriter, access_lines};
use addon_signer_telemetry::audit::{self, Sink};

/// Certificates and an mTLS gateway for the agents of Open Cluster Management addons.
///
/// The hub and the commands read a kubeconfig as kubectl does: KUBECONFIG may list files, of which some may be missing.
/// What cannot be used is named by its file and its field, as in `kubectl config set`. They run credential plugins
/// (exec), by which EKS and GKE log in; auth-provider is refused. A plugin has 60 seconds, and what it writes to
/// standard error is shown. Its token is used until a minute before expirationTimestamp, or until the API server
/// refuses it; its client certificate is used until the program ends.
///
/// A command that changes something on a cluster first names it on standard error: Changing telemetry on context prod
/// (https://hub.example.com:6443).
#[derive(Debug, Parser)]
#[command(name = "addon-signer", version, long_version = version(), propagate_version = true)]
struct Cli {
    /// The log, on standard error, as lines of text or of JSON. RUST_LOG sets what is logged: by default info for hub,
    /// nothing for other commands.
    #[arg(long, env = "ADDON_SIGNER_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, global = true)]
    log_format: LogFormat,
    /// Where the audit log goes (audit.md), one line of JSON for each decision: stdout, stderr, off, or a file that is
    /// appended to [default: stdout for hub, else off].
    #[arg(long, env = "ADDON_SIGNER_AUDIT_LOG", value_name = "WHERE", global = true)]
    audit_log: Option<AuditLog>,
    #[command(subcommand)]
    command: Command,
}

/// The name of the audit log in errors.
const AUDIT_LOG: &str = "the audit log";

/// The destination of decisions. It is separate from the ordinary log, so that no text in that log can be mistaken for
/// a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AuditLog {
    Stdout,
    Stderr,
    Off,
    File(PathBuf),
}

impl std::str::FromStr for AuditLog {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "stdout" => Self::Stdout,
            "stderr" => Self::Stderr,
            "off" => Self::Off,
            file => Self::File(file.into()),
        })
    }
}

impl AuditLog {
    /// Opens the destination. `stdout` is shared with the access log.
    fn open(&self, stdout: &Sink) -> anyhow::Result<Option<Sink>> {
        Ok(match self {
            Self::Stdout => Some(stdout.clone()),
            Self::Stderr => Some(Sink::new(AUDIT_LOG, std::io::stderr())),
            Self::Off => None,
            Self::File(path) => {
                let cannot =
                    || format!("the audit log {} cannot be opened; choose another --audit-log", path.display());
                // The file is only appended to. Only the owner may read it, because it names users.
                let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
                Some(Sink::new(AUDIT_LOG, file.with_context(cannot)?))
            }
        })
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the signer, the gateway, or both on the hub, until SIGTERM or SIGINT.
    Hub(Box<hub::HubArgs>),
    /// Inspect and rotate certificate authorities.
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// List and revoke certificates, check the ledger, archive its oldest entries.
    #[command(subcommand)]
    Certs(certs::CertsCommand),
    /// List the addons of all AddOnSigners on all clusters, the worst first, and what each one is waiting for.
    ///
    /// A certificate counts if it is valid, not revoked, and signed by an authority in the status of the AddOnSigner:
    /// the gateway refuses others. The states are:
    ///
    /// Refused: the hub refused the last CSR.
    ///
    /// Revoked: its certificates were revoked, and it has made no CSR since. WAITS FOR says what makes the agent come
    /// back.
    ///
    /// NoCertificate: its newest certificate does not count. WAITS FOR says what is missing: an answer to the CSR, the
    /// registration, the agent's CSR, or, if the agent keeps a certificate whose authority is gone, the deletion of
    /// that certificate.
    ///
    /// RenewalRefused: the hub refused the last CSR, and an earlier certificate is still valid.
    ///
    /// NoTrust: the cluster has not applied the ManifestWork with the present trust bundle.
    ///
    /// NeverSeen: no certificate that counts has been used at the gateway.
    ///
    /// Unknown: the ledger was not asked, and the hub has not reported on it. WAITS FOR may say what it waits for.
    ///
    /// NotEligible: the cluster is not accepted, the addon is suspended or being deleted, or its annotation
    /// addon-signer.io/revoke-before cannot be read.
    ///
    /// Certified: it has a certificate that counts. LAST SEEN says whether it was used at the gateway; without the
    /// ledger, and with gateways apart from the signer, that is not known.
    ///
    /// TRUST says what brings the gateway's trust bundle: a ManifestWork, which the cluster has applied (`present`) or
    /// not (`missing`); `agent?`: the CSR, if addon-signer-agent makes it: the AddOnSigner lets the addon's agent ask,
    /// and OCM's agent is not told to;
    /// `nothing`: no ManifestWork, because the chart's value trust.manifestWorks is off, although the AddOnSigner
    /// leaves it to them, so only addon-signer-agent gets it; `-`: the AddOnSigner says trust.manifestWork: Never, the
    /// addon has no place for the ConfigMap, or nothing is known yet.
    ///
    /// While no hub is leading, the command says since when, and the exit code is 1. CSRs for signer names that no
    /// AddOnSigner has are named on standard error. CSRs that a gRPC server made for agents are shown if its account is
    /// OCM's, system:serviceaccount:open-cluster-management-hub:grpc-server-sa. The command needs the roles
    /// addon-signer-viewer, and for the ledger what `certs list` needs. It reads 16 objects at a time and keeps little
    /// of each, because a cluster may pad its own.
    Status(status::FleetArgs),
    /// Check the installation line by line, and explain how to fix problems. It changes nothing; the exit code is 1 if
    /// something is BAD.
    ///
    /// It checks the APIs that the hub reads, the label of its namespace, conditions and authorities of all
    /// AddOnSigners, conditions of all AddOnRoutes and whether the NetworkPolicy lets the gateway reach their
    /// namespaces, the gateway's authority, CSRs that wait for the policy of grpcAccount, the right to write
    /// ManifestWorks, the inventory, addons without a valid certificate, and the gateway as seen from where you run it.
    /// These must match this version: the CRDs, the hub that leads, the policies for trust bundles, anchors,
    /// ManifestWorks and grpcAccount.
    ///
    /// `?` means that something could not be checked, or that you have to judge: a rotation is waiting, the
    /// NetworkPolicy may block a backend, an addon gets no ManifestWork (Placeless), clusters have not yet applied
    /// theirs (Distributing), no hub has processed an edit from the last minute. An older edit is BAD, and so is
    /// Distributing if TrustDistributed has been False for more than an hour. An authority is BAD once two thirds of
    /// the time that its replacement has before it is forced have passed: 31 days before its end with a renewBefore of
    /// 90 days, which the gateway's authorities have too.
    ///
    /// It needs the roles addon-signer-viewer, and for `addons on clusters` what `certs list` needs.
    Check(check::CheckArgs),
    /// Explain what the gateway does with a request.
    #[command(subcommand)]
    Gateway(explain::GatewayCommand),
    /// Run everything in this process, on loopback, without Kubernetes: enrol, send requests, refuse, rotate. Images do
    /// not have this command.
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Print the CustomResourceDefinitions of AddOnSigner and AddOnRoute.
    Crd,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a folder.
    #[command(hide = true)]
    ManualPages {
        /// The folder, which exists.
        folder: PathBuf,
    },
}

/// What `--version` prints; `-V` prints the number alone.
fn version() -> String {
    version::long(if cfg!(feature = "demo") { "demo" } else { "none" })
}

/// Reads the name of an AddOnSigner. A signer name, such as example.com/telemetry, is not one.
fn signer_object(text: &str) -> Result<String, String> {
    if text.contains('/') {
        return Err("this is a signer name; give the name of the AddOnSigner, which `kubectl get ads` shows beside \
                    it"
        .to_owned());
    }
    Ok(text.to_owned())
}

/// All commands with their help, for the reference.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses the command line, runs the command, and reports errors.
pub fn main() -> ExitCode {
    let cli: Cli = arguments::parse();
    let quiet = !matches!(cli.command, Command::Hub(_));
    let usual = if matches!(cli.command, Command::Hub(_)) { AuditLog::Stdout } else { AuditLog::Off };
    let audit = cli.audit_log.unwrap_or(usual);
    let access_log = matches!(&cli.command, Command::Hub(args) if args.access_log);
    let done = init_logs(cli.log_format, quiet, &audit, access_log).and_then(|access| {
        let done = run(cli.command);
        access.iter().for_each(AccessWriter::finish);
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("addon-signer: {}", explain(error.as_ref())));
            ExitCode::from(match error.is::<ca::Refused>() {
                true => arguments::REFUSED,
                false if is_usage(&error) => arguments::WRONG_USAGE,
                false => arguments::FAILED,
            })
        }
    }
}

/// Names the roles of those who may read, if the API server refused a list and the error names none.
fn with_role(error: anyhow::Error) -> anyhow::Error {
    let is_forbidden = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref() {
        Some(kube::Error::Api(status)) => status.code == 403,
        _ => false,
    };
    let text = explain(error.as_ref());
    if text.contains("ClusterRole ") || !error.chain().any(is_forbidden) {
        return error;
    }
    anyhow::anyhow!(
        "{text}; the ClusterRole addon-signer-viewer with the Role addon-signer-viewer of the hub's namespace allows \
         it. Whoever owns an AddOnRoute sees in `kubectl describe addonroute` whether it is in effect"
    )
}

/// Whether the error is about a value that clap does not check, because it may contain a password.
fn is_usage(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LedgerError::Url(_)))
}

/// Interactive commands log nothing unless RUST_LOG is set, because what they print is their output. With `access_log`,
/// also starts the access log and returns its writer.
fn init_logs(
    format: LogFormat,
    quiet: bool,
    audit: &AuditLog,
    access_log: bool,
) -> anyhow::Result<Option<AccessWriter>> {
    let people = logs::layer(format, if quiet { "off" } else { logs::INFO });
    let stdout = Sink::new(if access_log { "standard output" } else { AUDIT_LOG }, std::io::stdout());
    let decisions = audit.open(&stdout)?.map(audit::lines);
    let access = access_log.then(|| access_lines(stdout)).transpose().context("cannot start the access log")?;
    let (access, writer) = access.unzip();
    tracing_subscriber::registry().with(people).with(decisions).with(access).init();
    Ok(writer)
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Hub(args) => runtime()?.block_on(hub::run(*args)),
        Command::Ca(command) => runtime()?.block_on(ca::run(command)),
        Command::Certs(command) => runtime()?.block_on(certs::run(command)),
        Command::Status(args) => runtime()?.block_on(status::run(args)).map_err(with_role),
        Command::Gateway(command) => runtime()?.block_on(explain::run(command)).map_err(with_role),
        Command::Check(args) => runtime()?.block_on(check::run(args)).map_err(with_role),
        #[cfg(feature = "demo")]
        Command::Demo(args) => runtime()?.block_on(demo::run(args)),
        Command::Crd => {
            output::print(&addon_signer_api::crd_yaml()?);
            Ok(())
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "addon-signer", &mut std::io::stdout());
            Ok(())
        }
        Command::ManualPages { folder } => clap_mangen::generate_to(Cli::command(), &folder)
            .with_context(|| format!("cannot write manual pages into {}", folder.display())),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the asynchronous runtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_manifests_arguments_are_understood() {
        // Kubernetes writes the namespace into the arguments.
        let manifest = include_str!("../../deploy/install.yaml").replace("$(ADDON_SIGNER_NAMESPACE)", "addon-signer");
        let arguments = crate::output::container_arguments(&manifest);
        assert!(Cli::try_parse_from(["addon-signer".to_owned()].into_iter().chain(arguments)).is_ok());
    }
}
