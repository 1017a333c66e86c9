//! `addon-signer check`: checks the installation. It asks the Kubernetes API with the caller's kubeconfig, and connects
//! to the gateway from the caller's side.

mod apis;
mod authorities;
mod gateway_check;
mod policies;
mod reported;
pub(super) mod routes_check;

use anyhow::bail;
use clap::Args;
use kube::Client;
use serde::Serialize;

use crate::cli::caller::CommandUser;
use crate::cli::certs::{LedgerSource, SourceArgs};
use crate::output::{Format, print, print_json};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;
use addon_signer_platform::kubernetes;
use addon_signer_platform::terminal;
use gateway_check::GatewayAddress;

/// Arguments of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The gateway's address as agents use it, https://HOST[:PORT]; may be repeated.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    gateway: Vec<GatewayAddress>,
    /// Fail only if the installation is bad: of agents without a certificate or the trust bundle, and of AddOnRoutes,
    /// it only says so. `helm test` sets this flag.
    #[arg(long)]
    installation: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    source: SourceArgs,
    /// The hub's namespace.
    #[arg(long, env = "ADDON_SIGNER_NAMESPACE", default_value = "addon-signer")]
    namespace: String,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    /// It could not be checked, or an administrator has to judge; the sentence explains why.
    Unknown,
    Bad,
}

/// One finding, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    verdict: Verdict,
    /// What it is about, such as the name of an AddOnSigner.
    about: String,
    /// What was found, and what to do about it if it is bad.
    finding: String,
}

impl Finding {
    fn new(verdict: Verdict, about: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { verdict, about: about.into(), finding: finding.into() }
    }

    fn good(about: impl Into<String>, finding: impl Into<String>) -> Self {
        Self::new(Verdict::Good, about, finding)
    }

    fn bad(about: impl Into<String>, finding: impl Into<String>) -> Self {
        Self::new(Verdict::Bad, about, finding)
    }

    fn line(&self) -> String {
        let mark = match self.verdict {
            Verdict::Good => "ok ",
            Verdict::Unknown => "?  ",
            Verdict::Bad => "BAD",
        };
        format!("{mark}  {}: {}\n", self.about, terminal::line(&self.finding))
    }
}

/// A finding about what the API server does not show the caller.
fn unknown(about: String, error: &kube::Error) -> Finding {
    Finding::new(Verdict::Unknown, about, format!("it could not be checked: {}", explain(error)))
}

/// The API server to ask, and the time.
struct Inspection {
    client: Client,
    namespace: String,
    now: Timestamp,
    /// Whether what agents and AddOnRoutes lack is not bad.
    spares_others: bool,
}

impl Inspection {
    /// The finding, about agents or AddOnRoutes.
    fn of_others(&self, found: Finding) -> Finding {
        let is_spared = found.verdict == Verdict::Bad && self.spares_others;
        if is_spared { Finding { verdict: Verdict::Unknown, ..found } } else { found }
    }
}

/// Checks everything, reports what it finds, and fails if something is bad.
///
/// # Errors
/// Something is bad, or the API server cannot be asked.
pub async fn run(args: CheckArgs) -> anyhow::Result<()> {
    args.source.location()?; // wrong usage is reported before anything is asked
    let client = kubernetes::client(&args.source.access).await?;
    // The API server's clock wrote the times of the objects.
    let now = CommandUser::ask(&client).await.now.unwrap_or_else(|| Clock::default().now());
    let inspection = Inspection { client, namespace: args.namespace, now, spares_others: args.installation };
    let mut findings = Vec::new();
    let mut say = |found: Vec<Finding>| {
        if args.output == Format::Table {
            print(&found.iter().map(Finding::line).collect::<String>());
        }
        findings.extend(found);
    };
    say(inspection.apis().await?);
    say(inspection.crds().await);
    say(inspection.namespace_label().await);
    say(inspection.lease().await);
    say(inspection.signers().await);
    say(inspection.routes().await.into_iter().map(|found| inspection.of_others(found)).collect());
    say(inspection.gateway_lineages().await);
    say(inspection.trust_bundle().await);
    say(inspection.anchors().await);
    say(inspection.manifest_works().await);
    say(inspection.grpc_account().await);
    say(inspection.inventory().await);
    say(inspection.certificates(LedgerSource::open(args.source).await).await);
    say(inspection.gateways(&args.gateway).await);
    if args.output == Format::Json {
        print_json(&findings)?;
    }
    let bad = findings.iter().filter(|finding| finding.verdict == Verdict::Bad).count();
    if bad > 0 {
        bail!("{bad} of {} checks failed", findings.len());
    }
    Ok(())
}
