//! The to-be-signed part of a leaf: our template, with the CSR's subject and key byte for byte (invariant I3).

use std::time::Duration;

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, ObjectIdentifier, OctetStringRef, UintRef, UtcTime};
use der::{Decode, Encode};

use crate::ca::authority::{Authority, key_identifier};
use crate::encoding::asn1::{self, Extension};
use crate::keys::public::KeyKind;
use crate::policy::{Approved, Profile};
use crate::timestamp::Timestamp;

/// The parts of a leaf that policy does not decide: serial number, times and issuer.
pub(crate) struct Frame<'f> {
    pub(crate) serial: &'f [u8],
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    pub(crate) issuer: &'f Authority,
    pub(crate) algorithm: asn1::Algorithm<'f>,
}

/// Encodes the part of the certificate that will be signed. Only the profile decides the extensions.
pub(crate) fn encode(approved: &Approved, frame: &Frame<'_>) -> Result<Vec<u8>, der::Error> {
    let values = extension_values(approved, frame.issuer)?;
    let extensions = values
        .iter()
        .map(|(oid, critical, value)| {
            Ok(Extension { oid: *oid, critical: *critical, value: OctetStringRef::new(value)? })
        })
        .collect::<Result<Vec<_>, der::Error>>()?;
    let not_before = time(frame.not_before)?;
    let not_after = time(frame.not_after)?;
    asn1::TbsCertificate {
        version: 2, // v3
        serial: UintRef::new(frame.serial)?,
        algorithm: frame.algorithm,
        issuer: AnyRef::from_der(frame.issuer.subject_der())?,
        validity: asn1::Validity {
            not_before: AnyRef::from_der(&not_before)?,
            not_after: AnyRef::from_der(&not_after)?,
        },
        subject: AnyRef::from_der(approved.subject_der())?,
        public_key: AnyRef::from_der(approved.public_key_der())?,
        extensions,
    }
    .to_der()
}

/// UTCTime up to 2049, GeneralizedTime from 2050 (RFC 5280 section 4.1.2.5).
fn time(at: Timestamp) -> Result<Vec<u8>, der::Error> {
    let since = Duration::from_secs(u64::try_from(at.unix()).unwrap_or(0));
    match UtcTime::from_unix_duration(since) {
        Ok(time) => time.to_der(),
        Err(_) => GeneralizedTime::from_unix_duration(since)?.to_der(),
    }
}

type Value = (ObjectIdentifier, bool, Vec<u8>);

fn extension_values(approved: &Approved, issuer: &Authority) -> Result<Vec<Value>, der::Error> {
    let purpose = match approved.profile() {
        Profile::Client { .. } | Profile::GatewayClient => asn1::CLIENT_AUTH,
        Profile::Serving { .. } => asn1::SERVER_AUTH,
    };
    let not_a_ca = asn1::BasicConstraints { ca: false, path_length: None };
    let mut values = vec![
        (asn1::KEY_USAGE, true, key_usage(approved.key_kind())?),
        (asn1::EXTENDED_KEY_USAGE, false, vec![purpose].to_der()?),
        (asn1::BASIC_CONSTRAINTS, true, not_a_ca.to_der()?),
        (asn1::SUBJECT_KEY_IDENTIFIER, false, octets(&key_identifier(approved.public_key_der()))?),
        (asn1::AUTHORITY_KEY_IDENTIFIER, false, authority_key_id(issuer.key_id())?),
    ];
    if let Some(names) = alt_names(approved.profile())? {
        values.push((asn1::SUBJECT_ALT_NAME, false, names));
    }
    Ok(values)
}

/// digitalSignature; RSA keys may also be used for key encipherment (RFC 5280 section 4.2.1.3).
fn key_usage(kind: KeyKind) -> Result<Vec<u8>, der::Error> {
    let (unused, bits): (u8, &'static [u8]) = match kind {
        KeyKind::EcdsaP256 | KeyKind::EcdsaP384 | KeyKind::Ed25519 => (7, &[0b1000_0000]),
        KeyKind::Rsa2048 | KeyKind::Rsa3072 | KeyKind::Rsa4096 => (5, &[0b1010_0000]),
    };
    BitStringRef::new(unused, bits)?.to_der()
}

fn octets(bytes: &[u8]) -> Result<Vec<u8>, der::Error> {
    OctetStringRef::new(bytes)?.to_der()
}

/// AuthorityKeyIdentifier with `keyIdentifier [0]` only.
fn authority_key_id(key_id: &[u8]) -> Result<Vec<u8>, der::Error> {
    asn1::sequence(&[asn1::implicit(0, key_id)?])
}

fn alt_names(profile: &Profile) -> Result<Option<Vec<u8>>, der::Error> {
    match profile {
        Profile::Client { dns_names, .. } => asn1::general_names(dns_names, &[]),
        Profile::Serving { dns_names, ip_addresses } => asn1::general_names(dns_names, ip_addresses),
        Profile::GatewayClient => Ok(None),
    }
}
