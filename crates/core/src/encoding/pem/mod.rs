//! Writes and reads PEM blocks (RFC 7468).

mod blocks;
mod container;

use der::pem::LineEnding;
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use blocks::Block;

pub(crate) use blocks::blocks;
pub use container::Container;

/// Why a text has no certificates to use. It says what was found and what to do, as a sentence about the text without a
/// period, and quotes nothing of it but a label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// There is nothing but white space.
    #[error("it is empty")]
    Empty,
    /// It is no PEM, and nothing else that is known.
    #[error("it has no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoBlock,
    /// It is no PEM, but something known.
    #[error("it is {0}, and certificates in PEM are needed: {advice}", advice = .0.advice())]
    Container(Container),
    /// A block is labelled `CERTIFICATE` and contains something else.
    #[error("the CERTIFICATE block in line {0} contains {1}: {advice}", advice = .1.advice())]
    Content(usize, Container),
    /// A block of another kind.
    #[error("it has {what} in line {line}: {advice}")]
    Label {
        /// Where it begins.
        line: usize,
        /// What it is.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// A line that begins like the first or last one of a block.
    #[error("line {0} begins or ends a block that is not whole: check that nothing is missing there")]
    Boundary(usize),
    /// The content of a block is not Base64.
    #[error("the block in line {0} is damaged: its content is not Base64")]
    Damaged(usize),
}

/// Writes one block with lines of 64 characters and a final newline. For private keys use [`encode_private`].
pub fn encode(label: &str, der: &[u8]) -> String {
    // Encoding does not fail, because the labels are constants and the data fits into memory.
    der::pem::encode_string(label, LineEnding::LF, der).unwrap_or_default()
}

/// Writes the block of a private key. The text is wiped when dropped. It is written into a buffer that never grows, so
/// no copy is left behind.
pub fn encode_private(der: &[u8]) -> Zeroizing<String> {
    let mut buffer = Zeroizing::new(vec![0_u8; der.len() * 2 + 128]);
    let text = der::pem::encode("PRIVATE KEY", LineEnding::LF, der, &mut buffer);
    Zeroizing::new(text.unwrap_or_default().to_owned())
}

/// Reads one block `PRIVATE KEY` (PKCS#8) in constant time. The DER is wiped when dropped. `None` for any other text.
pub fn decode_private(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut buffer = Zeroizing::new(vec![0_u8; text.len()]);
    let (label, der) = der::pem::decode(text, &mut buffer).ok()?;
    (label == "PRIVATE KEY").then(|| Zeroizing::new(der.to_vec()))
}

/// All certificates of `text`, whatever stands between them (RFC 7468 section 2).
///
/// # Errors
/// [`PemError`] if there is none, or a block of another kind.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    blocks(text)?.iter().map(Block::certificate).collect()
}

#[cfg(test)]
mod kinds;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(der in prop::collection::vec(any::<u8>(), 1..300)) {
            let text = encode("CERTIFICATE", &der);
            prop_assert_eq!(certificates(text.as_bytes()), Ok(vec![CertificateDer::from(der)]));
            prop_assert!(text.lines().all(|line| line.len() <= 64));
        }
    }
}
