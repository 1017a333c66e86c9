//! The errors of reading a CSR: a variant for each broken rule.

use crate::keys::public::PublicKeyError;

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
