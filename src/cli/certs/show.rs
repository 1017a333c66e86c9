//! `certs show`.

use clap::Args;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::revocations::Revocations;
use super::{LedgerSource, SourceArgs};
use crate::output::Format;
use addon_signer_core::keys::public::KeyKind;
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
    let access = args.source.access.clone();
    let source = LedgerSource::open(args.source).await?;
    let details = source.details(&args.name).await?;
    let cluster = details.certificate.cluster.parse().ok(); // the gateway's own has none
    let revocations = match &source {
        _ if args.output == Format::Json || cluster.is_none() => Revocations::default(),
        LedgerSource::Hub(client) => Revocations::or_none(Revocations::read(client, cluster)).await,
        LedgerSource::Ledger(_) => Revocations::or_none(Revocations::connect(&access, cluster)).await,
    };
    Ok(args.output.print(&details, |details| as_text(details, &revocations, Clock::default().now()))?)
}

fn as_text(details: &Details, revocations: &Revocations, now: Timestamp) -> String {
    let mut text: String = facts(details, revocations, now)
        .into_iter()
        .map(|(name, fact)| format!("{name:<12}{}\n", terminal::line(&fact)))
        .collect();
    if let Some(pem) = &details.pem {
        text.push_str("\nCertificate\n");
        text.push_str(&certificate(pem));
        text.push_str(&format!("\n{pem}"));
    }
    text.push_str(&format!("\nRequest\n\n{}\n", details.csr.trim_end()));
    // An authority that was revoked is in no trust bundle any more.
    if let Some(pem) = details.issuer_pem.as_ref().filter(|pem| !pem.is_empty()) {
        text.push_str(&format!("\nAuthority\n{}\n{pem}", certificate(pem)));
    }
    text
}

fn facts(details: &Details, revocations: &Revocations, now: Timestamp) -> Vec<(&'static str, String)> {
    let certificate = &details.certificate;
    let holder = match certificate.cluster.as_str() {
        "" => "the gateway".to_owned(),
        cluster => format!("cluster {cluster}, addon {}, agent {}", certificate.addon, certificate.agent),
    };
    let signer = &certificate.signer;
    let generation = &details.generation;
    let mut facts = vec![
        ("serial", certificate.serial.clone()),
        ("state", state(details, revocations, now)),
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

fn state(details: &Details, revocations: &Revocations, now: Timestamp) -> String {
    let certificate = &details.certificate;
    let at = certificate.published_at.map(|at| format!(" at {at}")).unwrap_or_default();
    let expired = if certificate.is_expired(now) { ", expired" } else { "" };
    let revoked = if revocations.revokes(certificate) { ", revoked" } else { "" };
    format!("{}{at}{expired}{revoked}", certificate.state)
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

/// The fields of a certificate, one on each line, indented by two blanks.
fn certificate(pem: &str) -> String {
    // The errors may be dropped: the text below reports an unreadable certificate, and its PEM is printed anyway.
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    let parsed = der.as_ref().and_then(|der| X509Certificate::from_der(der).ok()).map(|(_, certificate)| certificate);
    let (Some(der), Some(certificate)) = (&der, &parsed) else {
        return "  it cannot be read\n".to_owned();
    };
    let mut lines = vec![
        ("subject", certificate.subject().to_string()),
        ("issuer", certificate.issuer().to_string()),
        ("serial", colons(certificate.raw_serial().strip_prefix(&[0]).unwrap_or(certificate.raw_serial()))),
        ("not before", time(certificate.validity().not_before.timestamp())),
        ("not after", time(certificate.validity().not_after.timestamp())),
        ("key", key(certificate)),
    ];
    lines.extend(certificate.extensions().iter().filter_map(|extension| extension_text(extension.parsed_extension())));
    lines.push(("SHA-256", colons(ring::digest::digest(&ring::digest::SHA256, der).as_ref())));
    lines.into_iter().map(|(name, value)| format!("  {name:<20}{value}\n")).collect()
}

fn time(unix: i64) -> String {
    Timestamp::from_unix(unix).to_string()
}

fn key(certificate: &X509Certificate<'_>) -> String {
    KeyKind::of_public_key(certificate.public_key().raw)
        .map_or_else(|error| error.to_string(), |kind| kind.as_str().to_owned())
}

fn extension_text(extension: &ParsedExtension<'_>) -> Option<(&'static str, String)> {
    Some(match extension {
        ParsedExtension::SubjectAlternativeName(names) => {
            ("alternative names", names.general_names.iter().map(general_name).collect::<Vec<_>>().join(", "))
        }
        ParsedExtension::KeyUsage(usage) => ("key usage", usage.to_string()),
        ParsedExtension::ExtendedKeyUsage(usage) => {
            let known = [(usage.client_auth, "client authentication"), (usage.server_auth, "server authentication")];
            let known = known.into_iter().filter(|(set, _)| *set).map(|(_, name)| name.to_owned());
            let other = usage.other.iter().map(ToString::to_string);
            ("extended key usage", known.chain(other).collect::<Vec<_>>().join(", "))
        }
        ParsedExtension::BasicConstraints(constraints) => {
            ("is a CA", if constraints.ca { "yes" } else { "no" }.to_owned())
        }
        ParsedExtension::SubjectKeyIdentifier(id) => ("subject key id", colons(id.0)),
        ParsedExtension::AuthorityKeyIdentifier(id) => ("authority key id", colons(id.key_identifier.as_ref()?.0)),
        _ => return None,
    })
}

fn general_name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => format!("DNS {name}"),
        GeneralName::URI(name) => format!("URI {name}"),
        GeneralName::RFC822Name(name) => format!("email {name}"),
        GeneralName::IPAddress([a, b, c, d]) => format!("IP {a}.{b}.{c}.{d}"),
        GeneralName::IPAddress(bytes) => match <[u8; 16]>::try_from(*bytes) {
            Ok(bytes) => format!("IP {}", std::net::Ipv6Addr::from(bytes)),
            Err(_) => format!("IP {}", colons(bytes)),
        },
        other => other.to_string(),
    }
}

fn colons(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaf_of_the_profiles_is_read() {
        let text = certificate(include_str!("../../../certs/profiles/client-leaf.pem"));
        for word in [
            "subject             ",
            "key usage           Digital Signature",
            "client authentication",
            "ECDSA-P256",
            "SHA-256",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert_eq!(certificate("nonsense"), "  it cannot be read\n");
    }
}
