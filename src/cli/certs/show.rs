//! `certs show`.

use clap::Args;

use super::{LedgerSource, SourceArgs, text};
use crate::output::{Format, print, print_json};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::view::{Details, Written};
use addon_signer_platform::clock::Clock;
use addon_signer_platform::terminal;

/// Arguments of `certs show`.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// A serial number, or the name or the UID of a CSR.
    #[arg(value_name = "SERIAL|CSR")]
    name: String,
    #[command(flatten)]
    source: SourceArgs,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(super) async fn run(args: ShowArgs) -> anyhow::Result<()> {
    let details = LedgerSource::open(args.source).await?.details(&args.name).await?;
    match args.output {
        Format::Table => print(&as_text(&details, Clock::default().now())),
        Format::Json => print_json(&details)?,
    }
    Ok(())
}

fn as_text(details: &Details, now: Timestamp) -> String {
    let mut text: String =
        facts(details, now).into_iter().map(|(name, fact)| format!("{name:<12}{}\n", terminal::line(&fact))).collect();
    if let Some(pem) = &details.pem {
        text.push_str("\nCertificate\n");
        text.push_str(&text::certificate(pem));
        text.push_str(&format!("\n{pem}"));
    }
    text.push_str(&format!("\nRequest\n\n{}\n", details.csr.trim_end()));
    if let Some(pem) = &details.issuer_pem {
        text.push_str(&format!("\nAuthority\n{}\n{pem}", text::certificate(pem)));
    }
    text
}

fn facts(details: &Details, now: Timestamp) -> Vec<(&'static str, String)> {
    let certificate = &details.certificate;
    let holder = match certificate.cluster.as_str() {
        "" => "the gateway".to_owned(),
        cluster => format!("cluster {cluster}, addon {}, agent {}", certificate.addon, certificate.agent),
    };
    let signer = &certificate.signer;
    let generation = &details.generation;
    let mut facts = vec![
        ("serial", certificate.serial.clone()),
        ("state", state(details, now)),
        ("holder", holder),
        ("valid", format!("{} to {}", certificate.not_before, certificate.not_after)),
        ("last seen", last_seen(details)),
        ("signer", format!("{signer} ({}), rules of generation {generation}", details.signer_name)),
        ("issuer", certificate.issuer.clone()),
        ("CSR", format!("{}, UID {}, made {}", certificate.request, certificate.uid, details.requested)),
        ("requester", requester(details)),
        ("decided", written(&details.decided)),
        ("tbs", format!("SHA-256 {}", details.tbs)),
    ];
    facts.extend(details.signed.as_ref().map(|signed| ("signed", written(signed))));
    facts.extend(details.ended.as_ref().map(|ended| (certificate.state.name(), written(ended))));
    facts.extend(details.reason.as_ref().map(|reason| ("because", reason.clone())));
    facts
}

fn requester(details: &Details) -> String {
    let csr_user = details.csr_user.as_ref().map(|user| format!(", for {user} (csr-user)"));
    format!("{}{}", details.requester, csr_user.unwrap_or_default())
}

fn state(details: &Details, now: Timestamp) -> String {
    let certificate = &details.certificate;
    let at = certificate.published_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let expired = if certificate.is_expired(now) { ", expired" } else { "" };
    format!("{}{at}{expired}", certificate.state)
}

fn last_seen(details: &Details) -> String {
    match (&details.certificate.last_seen, &details.certificate.last_seen_from) {
        (Some(at), Some(from)) => format!("{at} from {from}"),
        (Some(at), None) => at.to_string(),
        (None, _) => "never, or only at gateways apart from the signer, which report no uses".to_owned(),
    }
}

fn written(written: &Written) -> String {
    let Written { seq, time, replica, epoch } = written;
    format!("{time} by {replica}, epoch {epoch}, row {seq}")
}
