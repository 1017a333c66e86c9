//! `ca csr` and `ca import`: an authority whose key the hub keeps, and whose certificate a CA above it issues.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::{ArgGroup, Args};
use rustls_pki_types::CertificateDer;

use super::connection::{Ca, ConnectionArgs, ReportArgs};
use super::report::{LineageName, LineageReport};
use crate::cli::caller::CommandUser;
use crate::cli::signer_object;
use crate::output::print;
use addon_signer_api::status::AuthorityState;
use addon_signer_core::ca::authority::{Authority, AuthorityId};
use addon_signer_core::ca::chain::{Certified, NotUsable};
use addon_signer_core::csr::CertificateRequest;
use addon_signer_core::encoding::pem;
use addon_signer_core::names::ANNOTATION_IMPORT;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_hub::authorities::lineage_report::NOT_USED;
use addon_signer_platform::clock::Clock;

/// The largest accepted file: a chain of five certificates has some 10 KiB.
const MOST_BYTES: usize = 64 * 1024;

/// A lineage whose authorities may come from outside.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("one").required(true).args(["signer", "serving"])))]
struct IssuedLineage {
    /// The AddOnSigner's name.
    #[arg(value_parser = signer_object)]
    signer: Option<String>,
    /// The authority of the gateway's certificate for agents.
    #[arg(long)]
    serving: bool,
}

impl IssuedLineage {
    fn name(&self) -> LineageName {
        match &self.signer {
            Some(signer) => LineageName::Signer(signer.clone()),
            None => LineageName::Gateway(GatewayCertificate::Serving),
        }
    }
}

/// Arguments of `ca csr`.
#[derive(Debug, Clone, Args)]
pub struct CsrArgs {
    #[command(flatten)]
    lineage: IssuedLineage,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Arguments of `ca import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    lineage: IssuedLineage,
    /// The certificate for the CSR of `ca csr`, followed by those above it up to the root, in PEM; - is standard input.
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    #[command(flatten)]
    report: ReportArgs,
}

pub(super) async fn csr(args: CsrArgs) -> anyhow::Result<()> {
    let ca = Ca::connect(&args.connection).await?;
    let name = args.lineage.name();
    let report = ca.lineage(&name).await?;
    match report.request {
        Some(request) => print(&request),
        None => bail!("{}", no_request(&report)),
    }
    Ok(())
}

pub(super) async fn import(args: ImportArgs) -> anyhow::Result<()> {
    let chain = read(&args.cert)?;
    let ca = Ca::connect(&args.report.connection).await?;
    let name = args.lineage.name();
    let before = ca.lineage(&name).await?;
    let Some(request) = before.request.clone() else { bail!("{}", no_request(&before)) };
    // If this authority was imported before, its CSR no longer exists.
    let first = chain.first().and_then(|der| Authority::from_der(der).ok());
    if let Some(id) = first.map(|it| it.id().clone()).filter(|id| before.authority(id.as_str()).is_some()) {
        bail!("{id} is an authority of {} already; `addon-signer ca csr {name}` prints the next CSR", before.lineage);
    }
    let (text, id) = certified(&chain, &request).with_context(|| unusable(&args.cert))?;
    let (user, now) = (CommandUser::ask(&ca.client).await.user, Clock::default().now().to_string());
    ca.annotate(&name, &before, ANNOTATION_IMPORT, |_| format!("{now} {user}\n{text}")).await?;
    let signs = match before.to_revoke() {
        Some(doomed) => {
            format!("If it may be used, it signs at once, and {}, which is to be revoked, is gone.", doomed.id)
        }
        None => "If it may be used, it signs as soon as all that must trust it do.".to_owned(),
    };
    let sentence = format!("Asked the hub to check {id}. {signs}");
    args.report.asked(&before, id.as_str(), &sentence)?;
    if !ca.follows(&args.report).await {
        return Ok(());
    }
    let has = |report: &LineageReport| report.authorities.iter().any(|it| it.id == id.as_str());
    let signs =
        |report: &LineageReport| report.in_state(AuthorityState::Active).is_some_and(|active| active.id == id.as_str());
    // The sentence names the authority and the time of the import, so that the refusal of an earlier import is not
    // mistaken for this one's.
    let this = format!("({id}, {now})");
    let refusal = |report: &LineageReport| {
        let reasons = [report.not_used.clone(), report.problem.clone()].into_iter().flatten();
        reasons.into_iter().find(|it| it.contains(NOT_USED) && it.contains(&this))
    };
    let is_refused = |report: &LineageReport| refusal(report).is_some();
    let is_over = |it: &LineageReport| signs(it) || is_refused(it);
    let begun = |it: &LineageReport| has(it) || is_refused(it);
    let end = ca.follow(&name, args.report.output, before.not_used.as_ref(), is_over, begun).await?;
    if signs(&end) { Ok(()) } else { bail!(refusal(&end).unwrap_or_default()) }
}

fn no_request(report: &LineageReport) -> String {
    format!(
        "{} has no CSR: its issuer must be Imported without a Secret, and a hub must have seen that",
        report.lineage
    )
}

fn unusable(file: &Path) -> String {
    format!("{} cannot be used", file.display())
}

fn read(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let mut text = Vec::new();
    match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut text).map(drop),
        false => std::fs::read(file).map(|read| text = read),
    }
    .with_context(|| unusable(file))?;
    if text.len() > MOST_BYTES {
        bail!("{} is larger than a chain of certificates: {} bytes", file.display(), text.len());
    }
    pem::certificates(&text).with_context(|| unusable(file))
}

/// The certificates in PEM, and the id of the authority for this CSR. The hub checks the rest.
fn certified(chain: &[CertificateDer<'static>], request: &str) -> anyhow::Result<(String, AuthorityId)> {
    let request = CertificateRequest::from_pem(request.as_bytes()).context("the hub's CSR")?;
    let certified = Certified::brought(chain, request.public_key_der()).map_err(|error| match error {
        NotUsable::OtherKey(name) => {
            anyhow!("the first certificate, {name:?}, is not for the CSR that `addon-signer ca csr` prints")
        }
        other => other.into(),
    })?;
    Ok((certified.pem(), certified.authority().id().clone()))
}
