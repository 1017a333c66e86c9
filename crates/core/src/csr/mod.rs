//! PKCS#10 CSRs (RFC 2986): reads them strictly and checks that the requester holds the key.
//!
//! A [`CertificateRequest`] exists only if its bytes are one PEM block, nothing is left over at any level, every
//! attribute and extension appears once, the key is of a known kind and not weak, and the signature proves that the
//! requester holds the key. `policy` decides whether the content may be signed.

use der::asn1::{AnyRef, ObjectIdentifier, PrintableStringRef, Utf8StringRef};
use der::{Decode, Encode, Tag};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

pub mod build;
mod extensions;
#[cfg(test)]
mod tests;

use crate::encoding::asn1;
use crate::keys::public::{KeyKind, PublicKeyError};

pub use extensions::RequestedExtensions;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// The subject's attributes, in the order of the CSR. Separate and multi-valued RDNs mean the same.
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

/// A well-formed CSR whose requester has proven that it holds the key.
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

    /// Reads one PKCS#10 CSR in DER.
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
        let extensions = extensions::read_attributes(&info)?;
        check_signature(&signed)?;
        let (rest, request) =
            X509CertificationRequest::from_der(bytes).map_err(|error| CsrError::Malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(CsrError::Malformed("bytes are left over after the CSR".to_owned()));
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

/// The same CSR in the shortest PEM: a requester may pad its own with line breaks. Text that cannot be read is
/// returned as it is.
#[must_use]
pub fn normalised(pem: &[u8]) -> String {
    match single_block(pem) {
        Ok(der) => crate::encoding::pem::encode("CERTIFICATE REQUEST", &der),
        Err(_) => String::from_utf8_lossy(pem).into_owned(),
    }
}

/// Reads strict PEM (RFC 7468): there is one block, which begins a line, and only white space before and after it.
fn single_block(pem: &[u8]) -> Result<CertificateSigningRequestDer<'static>, CsrError> {
    let text = std::str::from_utf8(pem).map_err(|_| CsrError::NotOnePemBlock)?;
    let block = text.trim();
    let body = block.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).ok_or(CsrError::NotOnePemBlock)?;
    if body.contains("-----") || !text.split('\n').any(|line| line.starts_with(BEGIN)) {
        return Err(CsrError::NotOnePemBlock);
    }
    if !is_lines_of_base64(body) {
        return Err(CsrError::Malformed("the PEM block is not just lines of padded base64".to_owned()));
    }
    CertificateSigningRequestDer::from_pem_slice(block.as_bytes())
        .map_err(|error| CsrError::Malformed(format!("{error:?}")))
}

/// Whether there are lines of base64 between the first and the last line of a block, each ended by LF or CR LF.
/// Anything else (CR alone, an empty line, spaces, no padding) is unreadable to some parser.
fn is_lines_of_base64(body: &str) -> bool {
    let lines: Vec<&str> = body.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let ["", inner @ .., ""] = lines.as_slice() else { return false };
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let length: usize = inner.iter().map(|line| line.len()).sum();
    length.is_multiple_of(4) && inner.iter().all(|line| !line.is_empty() && line.bytes().all(base64))
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
    for relative in name {
        read_relative_name(&mut subject, relative)?;
    }
    Ok(subject)
}

/// Adds the attributes of one relative name. Some parsers refuse a relative name that has an attribute with the same
/// text twice, even if its two types differ (Python's cryptography: "duplicate attributes are not allowed").
fn read_relative_name(subject: &mut Subject, relative: &asn1::RelativeName<'_>) -> Result<(), CsrError> {
    let mut seen: Vec<(ObjectIdentifier, &str)> = Vec::new();
    for attribute in relative.iter() {
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
        // A repeated group adds nothing, and would allow certificates and headers of any size.
        let is_repeated = attribute.oid != asn1::COMMON_NAME && list.iter().any(|known| known == text);
        if is_repeated || seen.contains(&(attribute.oid, text)) {
            return Err(CsrError::DuplicateSubjectAttribute(attribute.oid.to_string()));
        }
        seen.push((attribute.oid, text));
        list.push(text.to_owned());
    }
    Ok(())
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

/// The largest CSR that is read, in bytes of PEM. An RSA-4096 CSR with all allowed names has 3 KiB.
pub const MAX_PEM_BYTES: usize = 16 * 1024;

/// Why a CSR cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// Larger than [`MAX_PEM_BYTES`]. The hub drops most of a CSR that is too large before it is read here.
    #[error("the CSR is larger than {MAX_PEM_BYTES} bytes, or its labels and annotations are")]
    TooLarge,
    /// Not one PEM block of type CERTIFICATE REQUEST and nothing else.
    #[error("the CSR must be exactly one CERTIFICATE REQUEST PEM block, with nothing before or after it")]
    NotOnePemBlock,
    /// The block's content is not a PKCS#10 request in DER, or bytes are left over inside it.
    #[error("the CSR is not well-formed PKCS#10 in DER: {0}")]
    Malformed(String),
    /// RFC 2986 has only version 1, encoded as 0.
    #[error("the CSR has version {0}; only version 0 exists")]
    Version(u8),
    /// The key's kind or quality is never certified.
    #[error(transparent)]
    PublicKey(#[from] PublicKeyError),
    /// The signature algorithm is broken or unknown.
    #[error("the CSR is signed with the algorithm {0}; use ECDSA or RSA PKCS#1 with SHA-256 or better, or Ed25519")]
    SignatureAlgorithm(String),
    /// The signature does not verify, so the requester has not proven that it holds the key.
    #[error("the CSR's signature does not verify with its own public key, so possession of the key is not proven")]
    Possession,
    /// A subject attribute is not a UTF8String or PrintableString.
    #[error("the subject's attribute {0} is not a UTF8String or PrintableString")]
    SubjectText(String),
    /// The subject has the same organization or unit twice, or one relative name (RDN) the same common name.
    #[error("the subject has the attribute {0} with the same text twice")]
    DuplicateSubjectAttribute(String),
    /// An attribute other than the extension request.
    #[error("the CSR has the attribute {0}; only an extension request is understood")]
    UnknownAttribute(String),
    /// More than one extension request.
    #[error("the CSR has more than one extension request")]
    DuplicateExtensionRequest,
    /// The same extension twice.
    #[error("the CSR asks for the extension {0} twice")]
    DuplicateExtension(String),
    /// An extension's value does not have the form of its kind.
    #[error("the requested extension {0} is malformed")]
    MalformedExtension(&'static str),
    /// An extension is in BER and not in DER: a default is spelled out, or bits have zeros at the end.
    #[error("the requested extension {0} is not in DER: leave out defaults, and zero bits at the end")]
    ExtensionNotDer(String),
}

impl From<der::Error> for CsrError {
    fn from(error: der::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}
