//! What the certificate of an authority, or of one above it, permits.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, NameConstraints, ParsedExtension};

use super::links::name;
use super::{Demands, NotUsable};
use crate::ca::authority::AuthorityError;
use crate::ca::bundle::Purpose;

/// The extensions that may be critical: key usage, subject alternative name, basic constraints, name constraints and
/// extended key usage. rustls-webpki refuses others.
const KNOWN: [&str; 5] = ["2.5.29.15", "2.5.29.17", "2.5.29.19", "2.5.29.30", "2.5.29.37"];

/// Checks the certificate that is `depth` certificates above the authority; 0 is the authority's own.
pub(super) fn check(certificate: &X509Certificate<'_>, depth: usize, demands: &Demands<'_>) -> Result<(), NotUsable> {
    let named = || name(certificate);
    let signs = certificate.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
    if !certificate.is_ca() || !signs {
        return Err(AuthorityError::NotACa(named()).into());
    }
    let length = certificate.basic_constraints().ok().flatten().and_then(|it| it.value.path_len_constraint);
    if let Some(length) = length.filter(|length| usize::try_from(*length).is_ok_and(|length| length < depth)) {
        return Err(NotUsable::PathLength(named(), length));
    }
    if let Some(unknown) = certificate.iter_extensions().find(|it| it.critical && !is_known(&it.oid.to_id_string())) {
        return Err(NotUsable::Extension(named(), unknown.oid.to_id_string()));
    }
    let who = match demands.purpose {
        Purpose::Client => "client",
        Purpose::Server => "server",
    };
    // rustls-webpki does not accept anyExtendedKeyUsage in place of these.
    let is_for = |usage: &x509_parser::extensions::ExtendedKeyUsage<'_>| match demands.purpose {
        Purpose::Client => usage.client_auth,
        Purpose::Server => usage.server_auth,
    };
    match certificate.extended_key_usage() {
        Ok(None) => {}
        Ok(Some(usage)) if is_for(usage.value) => {}
        _ => return Err(NotUsable::Usage(named(), who)),
    }
    for extension in certificate.iter_extensions() {
        if let ParsedExtension::NameConstraints(constraints) = extension.parsed_extension() {
            check_names(constraints, demands).map_err(|what| NotUsable::Names(named(), what))?;
        } else if extension.oid.to_id_string() == "2.5.29.30" {
            return Err(NotUsable::Names(named(), "anything, because they cannot be read".to_owned()));
        }
    }
    Ok(())
}

fn is_known(oid: &str) -> bool {
    KNOWN.contains(&oid)
}

/// RFC 5280 section 4.2.1.10. A form of name without a permitted subtree is not restricted. The error names what is not
/// permitted.
fn check_names(constraints: &NameConstraints<'_>, demands: &Demands<'_>) -> Result<(), String> {
    let permitted: Vec<_> = constraints.permitted_subtrees.iter().flatten().map(|subtree| &subtree.base).collect();
    let excluded: Vec<_> = constraints.excluded_subtrees.iter().flatten().map(|subtree| &subtree.base).collect();
    for dns in demands.dns_names {
        let has = |base: &&GeneralName<'_>| matches!(base, GeneralName::DNSName(base) if is_below(dns, base));
        let is_restricted = permitted.iter().any(|base| matches!(base, GeneralName::DNSName(_)));
        if (is_restricted && !permitted.iter().any(has)) || excluded.iter().any(has) {
            return Err(format!("the DNS name {dns}"));
        }
    }
    let has_holes = |base: &&GeneralName<'_>| matches!(base, GeneralName::IPAddress(base) if has_holes(base));
    if !demands.addresses.is_empty() && permitted.iter().chain(&excluded).any(has_holes) {
        return Err("addresses, because a mask of theirs has holes".to_owned());
    }
    for address in demands.addresses {
        let has = |base: &&GeneralName<'_>| matches!(base, GeneralName::IPAddress(base) if is_in(*address, base));
        let is_restricted = permitted.iter().any(|base| matches!(base, GeneralName::IPAddress(_)));
        if (is_restricted && !permitted.iter().any(has)) || excluded.iter().any(has) {
            return Err(format!("the address {address}"));
        }
    }
    // Subjects follow OCM's convention, which no company's directory name includes; and rustls-webpki treats each
    // excluded directory name as if it included all of them.
    let is_directory = |base: &&GeneralName<'_>| matches!(base, GeneralName::DirectoryName(_));
    match permitted.iter().chain(&excluded).any(is_directory) {
        true => Err("the subjects of our certificates (directory names)".to_owned()),
        false => Ok(()),
    }
}

/// Whether the name is the base or below it. With a leading period only names below it are.
fn is_below(dns: &str, base: &str) -> bool {
    let (dns, base) = (dns.to_ascii_lowercase(), base.to_ascii_lowercase());
    let above = dns.strip_suffix(&base);
    above.is_some_and(|above| above.is_empty() || base.is_empty() || base.starts_with('.') || above.ends_with('.'))
}

/// Whether the address is in the base: address and mask, one after the other.
fn is_in(address: IpAddr, base: &[u8]) -> bool {
    let octets = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (network, mask) = base.split_at(base.len() / 2);
    network.len() == octets.len() && octets.iter().zip(network).zip(mask).all(|((a, b), mask)| a & mask == b & mask)
}

/// Whether the mask in the base has a one after a zero.
fn has_holes(base: &[u8]) -> bool {
    let (_, mask) = base.split_at(base.len() / 2);
    let bits = mask.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    bits.skip_while(|bit| *bit == 1).any(|bit| bit == 1)
}
