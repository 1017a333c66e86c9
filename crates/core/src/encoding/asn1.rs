//! The DER structures that we read strictly and write ourselves (RFC 5280, RFC 2986), and their object identifiers.
//!
//! `der` rejects trailing bytes at every level. All bytes from outside are decoded with these types before
//! `x509-parser` reads them.

use std::net::IpAddr;

use der::asn1::{
    AnyRef, BitStringRef, ContextSpecific, Ia5StringRef, ObjectIdentifier, OctetStringRef, SetOfVec, UintRef,
};
use der::{Decode, Encode, Sequence, TagMode, TagNumber, ValueOrd};

macro_rules! oids {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: ObjectIdentifier = ObjectIdentifier::new_unwrap($text);)*
    };
}

oids! {
    EC_PUBLIC_KEY = "1.2.840.10045.2.1";
    CURVE_P256 = "1.2.840.10045.3.1.7";
    CURVE_P384 = "1.3.132.0.34";
    RSA_ENCRYPTION = "1.2.840.113549.1.1.1";
    ED25519 = "1.3.101.112";
    ECDSA_SHA256 = "1.2.840.10045.4.3.2";
    ECDSA_SHA384 = "1.2.840.10045.4.3.3";
    RSA_SHA256 = "1.2.840.113549.1.1.11";
    RSA_SHA384 = "1.2.840.113549.1.1.12";
    RSA_SHA512 = "1.2.840.113549.1.1.13";
    EXTENSION_REQUEST = "1.2.840.113549.1.9.14";
    SUBJECT_KEY_IDENTIFIER = "2.5.29.14";
    KEY_USAGE = "2.5.29.15";
    SUBJECT_ALT_NAME = "2.5.29.17";
    BASIC_CONSTRAINTS = "2.5.29.19";
    AUTHORITY_KEY_IDENTIFIER = "2.5.29.35";
    EXTENDED_KEY_USAGE = "2.5.29.37";
    SERVER_AUTH = "1.3.6.1.5.5.7.3.1";
    CLIENT_AUTH = "1.3.6.1.5.5.7.3.2";
    COMMON_NAME = "2.5.4.3";
    ORGANIZATION = "2.5.4.10";
    ORGANIZATIONAL_UNIT = "2.5.4.11";
}

/// AlgorithmIdentifier, RFC 5280 section 4.1.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Sequence)]
pub(crate) struct Algorithm<'a> {
    pub(crate) oid: ObjectIdentifier,
    pub(crate) parameters: Option<AnyRef<'a>>,
}

/// SubjectPublicKeyInfo, RFC 5280 section 4.1.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(crate) struct PublicKeyInfo<'a> {
    pub(crate) algorithm: Algorithm<'a>,
    pub(crate) key: BitStringRef<'a>,
}

/// RSAPublicKey, RFC 8017 appendix A.1.1.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(crate) struct RsaPublicKey<'a> {
    pub(crate) modulus: UintRef<'a>,
    pub(crate) exponent: UintRef<'a>,
}

/// One attribute of a name, RFC 5280 appendix A.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Sequence, ValueOrd)]
pub(crate) struct NameAttribute<'a> {
    pub(crate) oid: ObjectIdentifier,
    pub(crate) value: AnyRef<'a>,
}

/// RelativeDistinguishedName (RDN), RFC 5280 appendix A.1. Go puts all organizations into one.
pub(crate) type RelativeName<'a> = SetOfVec<NameAttribute<'a>>;

/// RDNSequence.
pub(crate) type Name<'a> = Vec<RelativeName<'a>>;

/// Extension, RFC 5280 section 4.1.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(crate) struct Extension<'a> {
    pub(crate) oid: ObjectIdentifier,
    #[asn1(default = "not_critical")]
    pub(crate) critical: bool,
    pub(crate) value: &'a OctetStringRef,
}

fn not_critical() -> bool {
    false
}

/// BasicConstraints, RFC 5280 section 4.2.1.9.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(crate) struct BasicConstraints {
    #[asn1(default = "not_critical")]
    pub(crate) ca: bool,
    pub(crate) path_length: Option<u32>,
}

/// Attribute of a request, RFC 2986 section 4.1.
#[derive(Debug, Clone, PartialEq, Eq, Sequence, ValueOrd)]
pub(crate) struct RequestAttribute<'a> {
    pub(crate) oid: ObjectIdentifier,
    pub(crate) values: SetOfVec<AnyRef<'a>>,
}

/// CertificationRequestInfo, RFC 2986 section 4.1.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(crate) struct RequestInfo<'a> {
    pub(crate) version: u8,
    pub(crate) subject: AnyRef<'a>,
    pub(crate) public_key: AnyRef<'a>,
    #[asn1(context_specific = "0", tag_mode = "IMPLICIT")]
    pub(crate) attributes: SetOfVec<RequestAttribute<'a>>,
}

/// CertificationRequest, RFC 2986 section 4.2, or Certificate, RFC 5280 section 4.1. The content stays raw, because the
/// signature covers its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(crate) struct Signed<'a> {
    pub(crate) content: AnyRef<'a>,
    pub(crate) algorithm: Algorithm<'a>,
    pub(crate) signature: BitStringRef<'a>,
}

/// Validity, RFC 5280 section 4.1.2.5.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(crate) struct Validity<'a> {
    pub(crate) not_before: AnyRef<'a>,
    pub(crate) not_after: AnyRef<'a>,
}

/// TBSCertificate, RFC 5280 section 4.1, without the two unique identifiers, which RFC 5280 forbids to CAs.
#[derive(Debug, Clone, PartialEq, Eq, Sequence)]
pub(crate) struct TbsCertificate<'a> {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    pub(crate) version: u8,
    pub(crate) serial: UintRef<'a>,
    pub(crate) algorithm: Algorithm<'a>,
    pub(crate) issuer: AnyRef<'a>,
    pub(crate) validity: Validity<'a>,
    pub(crate) subject: AnyRef<'a>,
    pub(crate) public_key: AnyRef<'a>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT")]
    pub(crate) extensions: Vec<Extension<'a>>,
}

/// Subject alternative names (RFC 5280 section 4.2.1.6): GeneralNames with DNS names and addresses. `None` if there are
/// none, because the sequence must not be empty.
pub(crate) fn general_names(dns_names: &[String], addresses: &[IpAddr]) -> Result<Option<Vec<u8>>, der::Error> {
    let dns = dns_names.iter().map(|name| implicit(2, Ia5StringRef::new(name)?.as_bytes()));
    let ips = addresses.iter().map(|address| match address {
        IpAddr::V4(v4) => implicit(7, &v4.octets()),
        IpAddr::V6(v6) => implicit(7, &v6.octets()),
    });
    let names = dns.chain(ips).collect::<Result<Vec<_>, _>>()?;
    if names.is_empty() { Ok(None) } else { sequence(&names).map(Some) }
}

/// A primitive value with the context-specific tag `number` instead of its own tag.
pub(crate) fn implicit(number: u32, content: &[u8]) -> Result<Vec<u8>, der::Error> {
    let value = OctetStringRef::new(content)?;
    ContextSpecific { tag_number: TagNumber(number), tag_mode: TagMode::Implicit, value }.to_der()
}

/// A SEQUENCE of encoded values.
pub(crate) fn sequence(items: &[Vec<u8>]) -> Result<Vec<u8>, der::Error> {
    items.iter().map(|item| AnyRef::from_der(item)).collect::<Result<Vec<_>, _>>()?.to_der()
}
