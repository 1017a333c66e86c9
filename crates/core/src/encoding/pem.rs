//! Writes and reads PEM blocks (RFC 7468).

use der::pem::LineEnding;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use zeroize::Zeroizing;

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

/// All certificates of `text`. `None` if there is none, or if there is a block of another kind.
pub fn certificates(text: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let blocks = text.windows(11).filter(|window| window == b"-----BEGIN ").count();
    let found: Vec<_> = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>().ok()?;
    (!found.is_empty() && found.len() == blocks).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(der in prop::collection::vec(any::<u8>(), 1..300)) {
            let text = encode("CERTIFICATE", &der);
            prop_assert_eq!(certificates(text.as_bytes()), Some(vec![CertificateDer::from(der)]));
            prop_assert!(text.lines().all(|line| line.len() <= 64));
        }
    }

    #[test]
    fn other_blocks_are_not_certificates() {
        let mixed = encode("CERTIFICATE", b"x") + &encode("PRIVATE KEY", b"y");
        assert_eq!(certificates(mixed.as_bytes()), None);
        assert_eq!(certificates(b""), None);
    }
}
