//! PKCS#10 requests (RFC 2986): reads them strictly and checks that the requester holds the key.
//!
//! A [`CertificateRequest`] exists only if its bytes are one PEM block, nothing is left over at any level, every
//! attribute and extension appears once, the key is of a known kind and not weak, and the signature proves that the
//! requester holds the key. `policy` decides whether the content may be signed.

use std::net::IpAddr;

use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, PrintableStringRef, Utf8StringRef};
use der::{Decode, Encode, Tag};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use crate::encoding::asn1;
use crate::keys::public::{KeyKind, PublicKeyError};

pub mod build;
#[cfg(test)]
mod tests;

/// The largest request that is read, in bytes of PEM. An RSA-4096 request with all allowed names has 3 KiB.
pub const MAX_PEM_BYTES: usize = 16 * 1024;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// Why a request cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// Larger than [`MAX_PEM_BYTES`]. The hub drops most of a request that is too large before it is read here.
    #[error("the request is larger than {MAX_PEM_BYTES} bytes, or its labels and annotations are")]
    TooLarge,
    /// Not one PEM block of type CERTIFICATE REQUEST and nothing else.
    #[error("the request must be exactly one PEM block CERTIFICATE REQUEST, with nothing before or after it")]
    NotOnePemBlock,
    /// The block's content is not a PKCS#10 request in DER, or bytes are left over inside it.
    #[error("the request is not a well-formed PKCS#10 request in DER: {0}")]
    Malformed(String),
    /// RFC 2986 has only version 1, encoded as 0.
    #[error("the request has version {0}; only version 0 exists")]
    Version(u8),
    /// The key is of a kind or quality that is never certified.
    #[error(transparent)]
    PublicKey(#[from] PublicKeyError),
    /// The signature algorithm is broken or unknown here.
    #[error("the request is signed with the algorithm {0}; use ECDSA or RSA PKCS#1 with SHA-256 or better, or Ed25519")]
    SignatureAlgorithm(String),
    /// The signature does not verify, so the requester has not proven that it holds the key.
    #[error("the request's signature does not verify with its own public key: possession of the key is not proven")]
    Possession,
    /// A subject attribute is not a UTF8String or PrintableString.
    #[error("the subject's attribute {0} is not a UTF8String or PrintableString")]
    SubjectText(String),
    /// An attribute other than the extension request.
    #[error("the request has the attribute {0}; only an extension request is understood")]
    UnknownAttribute(String),
    /// More than one extension request.
    #[error("the request has more than one extension request")]
    DuplicateExtensionRequest,
    /// The same extension twice.
    #[error("the request asks for the extension {0} twice")]
    DuplicateExtension(String),
    /// An extension's value does not have the form of its kind.
    #[error("the requested extension {0} is malformed")]
    MalformedExtension(&'static str),
}

impl From<der::Error> for CsrError {
    fn from(error: der::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// The subject's attributes, in the order of the request. Separate and multi-valued RDNs mean the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Common names (CN).
    pub common_names: Vec<String>,
    /// Organizations (O): Kubernetes' groups.
    pub organizations: Vec<String>,
    /// Organizational units (OU).
    pub organizational_units: Vec<String>,
    /// Object identifiers of all other attributes.
    pub others: Vec<String>,
}

/// The content of the extension request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedExtensions {
    /// DNS names of the SAN.
    pub dns_names: Vec<String>,
    /// IP addresses of the SAN.
    pub ip_addresses: Vec<IpAddr>,
    /// Kinds of the other SAN entries.
    pub other_names: Vec<&'static str>,
    /// Whether BasicConstraints asks for CA:TRUE or a path length.
    pub ca: bool,
    /// Names of the bits of KeyUsage.
    pub key_usages: Vec<&'static str>,
    /// Object identifiers of ExtendedKeyUsage.
    pub extended_key_usages: Vec<String>,
    /// Object identifiers of extensions other than the four above.
    pub unknown: Vec<String>,
}

/// A well-formed request whose requester has proven that it holds the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    subject: Subject,
    subject_der: Vec<u8>,
    public_key_der: Vec<u8>,
    key_kind: KeyKind,
    extensions: RequestedExtensions,
}

impl CertificateRequest {
    /// Reads `spec.request`: PEM of at most [`MAX_PEM_BYTES`].
    ///
    /// # Errors
    /// The [`CsrError`] of the first broken rule.
    pub fn from_pem(pem: &[u8]) -> Result<Self, CsrError> {
        if pem.len() > MAX_PEM_BYTES {
            return Err(CsrError::TooLarge);
        }
        Self::from_der(&single_block(pem)?)
    }

    /// Reads one PKCS#10 request in DER.
    ///
    /// # Errors
    /// The [`CsrError`] of the first broken rule.
    pub fn from_der(bytes: &[u8]) -> Result<Self, CsrError> {
        let signed = asn1::Signed::from_der(bytes)?;
        let info: asn1::RequestInfo<'_> = signed.content.decode_as()?;
        if info.version != 0 {
            return Err(CsrError::Version(info.version));
        }
        let subject_der = info.subject.to_der()?;
        let name = read_name(&subject_der)?;
        let public_key_der = info.public_key.to_der()?;
        let key_kind = KeyKind::of_public_key(&public_key_der)?;
        let extensions = read_attributes(&info)?;
        check_signature(&signed)?;
        let (rest, request) =
            X509CertificationRequest::from_der(bytes).map_err(|error| CsrError::Malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(CsrError::Malformed("bytes are left over after the request".to_owned()));
        }
        request.verify_signature().map_err(|_| CsrError::Possession)?;
        let subject = read_subject(&name)?;
        Ok(Self { subject, subject_der, public_key_der, key_kind, extensions })
    }

    /// The subject's attributes.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The subject as the requester encoded it.
    pub fn subject_der(&self) -> &[u8] {
        &self.subject_der
    }

    /// SubjectPublicKeyInfo as the requester encoded it.
    pub fn public_key_der(&self) -> &[u8] {
        &self.public_key_der
    }

    /// The kind of the key.
    pub fn key_kind(&self) -> KeyKind {
        self.key_kind
    }

    /// The content of the extension request.
    pub fn extensions(&self) -> &RequestedExtensions {
        &self.extensions
    }
}

/// The same request in PEM as short as it can be: a requester may pad its own with line breaks. Text that cannot be
/// read is returned as it is.
#[must_use]
pub fn normalised(pem: &[u8]) -> String {
    match single_block(pem) {
        Ok(der) => crate::encoding::pem::encode("CERTIFICATE REQUEST", &der),
        Err(_) => String::from_utf8_lossy(pem).into_owned(),
    }
}

/// Reads strict PEM (RFC 7468): there is one block, and only white space before and after it.
fn single_block(pem: &[u8]) -> Result<CertificateSigningRequestDer<'static>, CsrError> {
    let text = std::str::from_utf8(pem).map_err(|_| CsrError::NotOnePemBlock)?.trim();
    let body = text.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).ok_or(CsrError::NotOnePemBlock)?;
    if body.contains("-----") {
        return Err(CsrError::NotOnePemBlock);
    }
    CertificateSigningRequestDer::from_pem_slice(text.as_bytes())
        .map_err(|error| CsrError::Malformed(format!("{error:?}")))
}

/// Checks that the signature algorithm is known, that its parameters follow RFC 5758, 8410 or 4055, and that the
/// signature has whole bytes. The signature covers none of this, and x509-parser checks none of it: it even verifies
/// SHA-1.
fn check_signature(signed: &asn1::Signed<'_>) -> Result<(), CsrError> {
    let malformed = |what: &str| Err(CsrError::Malformed(what.to_owned()));
    let bare = signed.algorithm.parameters.is_none();
    let parameters_fit = match signed.algorithm.oid {
        asn1::ECDSA_SHA256 | asn1::ECDSA_SHA384 | asn1::ED25519 => bare,
        asn1::RSA_SHA256 | asn1::RSA_SHA384 | asn1::RSA_SHA512 => {
            bare || signed.algorithm.parameters.is_some_and(|parameters| parameters.is_null())
        }
        other => return Err(CsrError::SignatureAlgorithm(other.to_string())),
    };
    if !parameters_fit {
        return malformed("the signature's algorithm has parameters that do not belong there");
    }
    if signed.signature.as_bytes().is_none() {
        malformed("the signature is not a whole number of bytes")
    } else {
        Ok(())
    }
}

/// The subject's bytes become the certificate's, so they must be DER. `der` alone also reads a SET in the wrong order
/// and an empty SET, which RFC 5280 (SIZE 1..MAX) does not allow.
fn read_name(bytes: &[u8]) -> Result<asn1::Name<'_>, CsrError> {
    let name = asn1::Name::from_der(bytes)?;
    if name.iter().any(|relative| relative.is_empty()) || name.to_der()? != bytes {
        return Err(CsrError::Malformed("the subject is not in DER".to_owned()));
    }
    Ok(name)
}

fn read_subject(name: &asn1::Name<'_>) -> Result<Subject, CsrError> {
    let mut subject = Subject::default();
    for attribute in name.iter().flat_map(|relative| relative.iter()) {
        let list = match attribute.oid {
            asn1::COMMON_NAME => &mut subject.common_names,
            asn1::ORGANIZATION => &mut subject.organizations,
            asn1::ORGANIZATIONAL_UNIT => &mut subject.organizational_units,
            other => {
                subject.others.push(other.to_string());
                continue;
            }
        };
        let text = read_text(&attribute.value).ok_or_else(|| CsrError::SubjectText(attribute.oid.to_string()))?;
        list.push(text.to_owned());
    }
    Ok(subject)
}

/// Reads UTF8String and PrintableString (RFC 5280 section 4.1.2.4) and checks their alphabets. The alphabets of older
/// types are ambiguous.
fn read_text<'a>(value: &AnyRef<'a>) -> Option<&'a str> {
    match der::Tagged::tag(value) {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'a>>().ok().map(|text| text.as_str()),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'a>>().ok().map(|text| text.as_str()),
        _ => None,
    }
}

fn read_attributes(info: &asn1::RequestInfo<'_>) -> Result<RequestedExtensions, CsrError> {
    let mut requested = None;
    for attribute in info.attributes.iter() {
        if attribute.oid != asn1::EXTENSION_REQUEST {
            return Err(CsrError::UnknownAttribute(attribute.oid.to_string()));
        }
        if attribute.values.is_empty() {
            return Err(CsrError::Malformed("the extension request has no value".to_owned())); // RFC 2986: SIZE (1..MAX)
        }
        for value in attribute.values.iter() {
            if requested.is_some() {
                return Err(CsrError::DuplicateExtensionRequest);
            }
            requested = Some(read_extensions(value)?);
        }
    }
    Ok(requested.unwrap_or_default())
}

fn read_extensions(value: &AnyRef<'_>) -> Result<RequestedExtensions, CsrError> {
    let mut requested = RequestedExtensions::default();
    let mut seen: Vec<ObjectIdentifier> = Vec::new();
    for extension in value.decode_as::<Vec<asn1::Extension<'_>>>()? {
        if seen.contains(&extension.oid) {
            return Err(CsrError::DuplicateExtension(extension.oid.to_string()));
        }
        seen.push(extension.oid);
        read_extension(&mut requested, &extension)?;
    }
    Ok(requested)
}

fn read_extension(requested: &mut RequestedExtensions, extension: &asn1::Extension<'_>) -> Result<(), CsrError> {
    let value = extension.value.as_bytes();
    match extension.oid {
        asn1::SUBJECT_ALT_NAME => read_alt_names(requested, value),
        asn1::KEY_USAGE => {
            let bits = BitStringRef::from_der(value).map_err(|_| CsrError::MalformedExtension("key usage"))?;
            requested.key_usages = key_usages(&bits);
            Ok(())
        }
        asn1::EXTENDED_KEY_USAGE => {
            let malformed = || CsrError::MalformedExtension("extended key usage");
            let oids = Vec::<ObjectIdentifier>::from_der(value).map_err(|_| malformed())?;
            if oids.is_empty() {
                return Err(malformed()); // RFC 5280: SIZE (1..MAX)
            }
            requested.extended_key_usages = oids.iter().map(ToString::to_string).collect();
            Ok(())
        }
        asn1::BASIC_CONSTRAINTS => {
            let constraints = asn1::BasicConstraints::from_der(value)
                .map_err(|_| CsrError::MalformedExtension("basic constraints"))?;
            requested.ca = constraints.ca || constraints.path_length.is_some();
            Ok(())
        }
        other => {
            requested.unknown.push(other.to_string());
            Ok(())
        }
    }
}

/// The names of the bits of KeyUsage, in their order (RFC 5280 section 4.2.1.3).
const KEY_USAGES: [&str; 9] = [
    "digital signature",
    "content commitment",
    "key encipherment",
    "data encipherment",
    "key agreement",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
];

fn key_usages(bits: &BitStringRef<'_>) -> Vec<&'static str> {
    let named = |(index, set)| if set { Some(KEY_USAGES.get(index).copied().unwrap_or("unknown")) } else { None };
    bits.bits().enumerate().filter_map(named).collect()
}

/// The kinds of GeneralName by tag number (RFC 5280 section 4.2.1.6).
const GENERAL_NAMES: [&str; 9] = [
    "other name",
    "email address",
    "DNS name",
    "X.400 address",
    "directory name",
    "EDI party name",
    "URI",
    "IP address",
    "registered ID",
];

fn read_alt_names(requested: &mut RequestedExtensions, value: &[u8]) -> Result<(), CsrError> {
    let malformed = || CsrError::MalformedExtension("subject alternative name");
    let names = Vec::<AnyRef<'_>>::from_der(value).map_err(|_| malformed())?;
    if names.is_empty() {
        return Err(malformed()); // RFC 5280: SIZE (1..MAX)
    }
    for name in names {
        let tag = der::Tagged::tag(&name);
        // Only structures have a constructed tag: 0, 3 and 5 are sequences, and 4 is a CHOICE (RFC 5280).
        let structure = matches!(tag.number().value(), 0 | 3 | 4 | 5);
        if tag.class() != der::Class::ContextSpecific || tag.is_constructed() != structure {
            return Err(malformed());
        }
        match (tag.number().value(), name.value()) {
            (2, bytes) if bytes.is_ascii() => requested.dns_names.push(String::from_utf8_lossy(bytes).into_owned()),
            (7, bytes) => requested.ip_addresses.push(ip_address(bytes).ok_or_else(malformed)?),
            (number, _) => {
                let kind = usize::try_from(number).ok().and_then(|index| GENERAL_NAMES.get(index));
                requested.other_names.push(kind.copied().ok_or_else(malformed)?);
            }
        }
    }
    Ok(())
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
