//! How the certificates of a chain are linked: keys, signatures and times.

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::{Demands, MOST_ABOVE, NotUsable};
use crate::ca::authority::AuthorityError;
use crate::encoding::asn1;
use crate::keys::public::{KeyKind, PublicKeyError};
use crate::timestamp::Timestamp;

/// More roots than any installation has.
const MOST_ROOTS: usize = 16;

/// The curve of a P-521 key.
const CURVE_P521: &str = "1.3.132.0.35";

/// The signature algorithms that rustls-webpki verifies: SHA-256, SHA-384 and SHA-512 with RSA (PKCS #1 v1.5), SHA-256
/// and SHA-384 with ECDSA, and Ed25519.
const SIGNATURES: [der::asn1::ObjectIdentifier; 6] =
    [asn1::RSA_SHA256, asn1::RSA_SHA384, asn1::RSA_SHA512, asn1::ECDSA_SHA256, asn1::ECDSA_SHA384, asn1::ED25519];

const LONGEST_NAME: usize = 200;

pub(super) fn read<'d>(der: &'d CertificateDer<'_>) -> Result<X509Certificate<'d>, NotUsable> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(AuthorityError::Unreadable.into()),
    }
}

/// The subject for messages, at most 200 characters of it.
pub(super) fn name(certificate: &X509Certificate<'_>) -> String {
    certificate.subject().to_string().chars().take(LONGEST_NAME).collect()
}

/// The certificates from the authority, which has this key, to the root.
pub(super) fn path(
    chain: &[CertificateDer<'static>],
    roots: &[CertificateDer<'static>],
    public_key: &[u8],
) -> Result<Vec<CertificateDer<'static>>, NotUsable> {
    if chain.len() > MOST_ABOVE + 1 || roots.len() > MOST_ROOTS {
        return Err(NotUsable::TooMany(chain.len().max(roots.len()) - 1)); // before anything is verified
    }
    let parsed = check_owner(chain, public_key)?;
    let (Some(last), Some(last_der)) = (parsed.last(), chain.last()) else { return Err(NotUsable::Empty) };
    for certificate in &parsed {
        check_key(certificate)?;
    }
    for pair in parsed.windows(2) {
        let [certificate, issuer] = pair else { continue };
        check_signature(certificate)?;
        if !is_signed_by(certificate, issuer) {
            return Err(NotUsable::Link { name: name(certificate), issuer: name(issuer) });
        }
    }
    let mut path = chain.to_vec();
    let ends_with_root = roots.contains(last_der) || (roots.is_empty() && is_signed_by(last, last));
    if !ends_with_root {
        path.push(root_of(last, roots)?);
    }
    match path.len() - 1 {
        above if above > MOST_ABOVE => Err(NotUsable::TooMany(above)),
        _ => Ok(path),
    }
}

/// Reads a chain whose first certificate must have this key.
pub(super) fn check_owner<'d>(
    chain: &'d [CertificateDer<'_>],
    public_key: &[u8],
) -> Result<Vec<X509Certificate<'d>>, NotUsable> {
    let parsed: Vec<_> = chain.iter().map(read).collect::<Result<_, _>>()?;
    let has_key = |certificate: &&X509Certificate<'_>| certificate.public_key().raw == public_key;
    match (parsed.first(), parsed.iter().find(has_key)) {
        (None, _) => Err(NotUsable::Empty),
        (Some(first), _) if has_key(&first) => Ok(parsed),
        (Some(_), Some(owner)) => Err(NotUsable::Order(name(owner))),
        (Some(first), None) => Err(NotUsable::OtherKey(name(first))),
    }
}

/// Checks that a certificate has a subject. The first of a chain has the number 1.
pub(super) fn check_subject((number, certificate): (usize, &X509Certificate<'_>)) -> Result<(), NotUsable> {
    match certificate.subject().iter_attributes().next() {
        Some(_) => Ok(()),
        None => Err(NotUsable::NoSubject(number)),
    }
}

/// The root that has signed the last certificate of a chain.
fn root_of(
    last: &X509Certificate<'_>,
    roots: &[CertificateDer<'static>],
) -> Result<CertificateDer<'static>, NotUsable> {
    if roots.is_empty() {
        return Err(NotUsable::NoRoot);
    }
    check_signature(last)?;
    for der in roots {
        let root = read(der)?;
        if root.subject().as_raw() == last.issuer().as_raw() {
            check_key(&root)?;
            if is_signed_by(last, &root) {
                return Ok(der.clone());
            }
        }
    }
    Err(NotUsable::Missing { name: name(last), issuer: last.issuer().to_string() })
}

fn is_signed_by(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    certificate.issuer().as_raw() == issuer.subject().as_raw()
        && certificate.verify_signature(Some(issuer.public_key())).is_ok()
}

fn check_key(certificate: &X509Certificate<'_>) -> Result<(), NotUsable> {
    match KeyKind::of_public_key(certificate.public_key().raw) {
        Ok(_) => Ok(()),
        Err(PublicKeyError::UnknownCurve(curve)) if curve == CURVE_P521 => Err(NotUsable::P521(name(certificate))),
        Err(error) => Err(NotUsable::Key(name(certificate), error)),
    }
}

fn check_signature(certificate: &X509Certificate<'_>) -> Result<(), NotUsable> {
    let algorithm = certificate.signature_algorithm.algorithm.to_id_string();
    match SIGNATURES.iter().any(|known| known.to_string() == algorithm) {
        true => Ok(()),
        false => Err(NotUsable::Signature(name(certificate), algorithm)),
    }
}

/// The times of all certificates from the authority to the root.
pub(super) fn check_dates(path: &[X509Certificate<'_>], demands: &Demands<'_>) -> Result<(), NotUsable> {
    let end = |certificate: &X509Certificate<'_>| Timestamp::from_unix(certificate.validity().not_after.timestamp());
    for certificate in path {
        let begin = Timestamp::from_unix(certificate.validity().not_before.timestamp());
        if demands.now < begin {
            return Err(NotUsable::NotYet(name(certificate), begin));
        }
        if demands.now > end(certificate) {
            return Err(NotUsable::Expired(name(certificate), end(certificate)));
        }
    }
    for pair in path.windows(2) {
        let [certificate, issuer] = pair else { continue };
        let (end, issuer) = (end(certificate), end(issuer));
        if end > issuer {
            return Err(NotUsable::Outlives { name: name(certificate), end, issuer });
        }
    }
    let Some(authority) = path.first() else { return Ok(()) };
    let end = end(authority);
    if demands.now.plus(demands.longest) > end {
        return Err(NotUsable::EndsSoon(name(authority), end));
    }
    if demands.now.plus(demands.renew_before) >= end {
        return Err(NotUsable::RenewsAtOnce(name(authority), end));
    }
    Ok(())
}
