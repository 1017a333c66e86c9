//! Finds the blocks of PEM in a text.

use data_encoding::BASE64;
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::{Container, PemError};

/// U+FEFF in UTF-8: editors on Windows write it at the beginning.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const LONGEST_LABEL: usize = 40;

/// A block, which lies in the text: nothing of it is copied, because it may be a private key.
pub(crate) struct Block<'t> {
    line: usize,
    pub(crate) label: &'t str,
    /// The block with its first and last line.
    pub(crate) whole: &'t [u8],
    content: &'t [u8],
}

/// A block whose end was not read yet.
struct Open<'t> {
    line: usize,
    label: &'t [u8],
    begin: usize,
    content: usize,
}

/// The blocks of a text, at least one. Only whole lines begin and end one: other text may quote such lines.
pub(crate) fn blocks(text: &[u8]) -> Result<Vec<Block<'_>>, PemError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let line_end = if text.contains(&b'\n') { b'\n' } else { b'\r' };
    let (mut found, mut open, mut at) = (Vec::new(), None::<Open<'_>>, 0);
    for (number, raw) in (1..).zip(text.split_inclusive(|byte| *byte == line_end)) {
        let (begin, line) = (at, raw.trim_ascii());
        at += raw.len();
        if let Some(rest) = line.strip_prefix(b"-----BEGIN ") {
            let label = rest.strip_suffix(b"-----").filter(|_| open.is_none()).ok_or(PemError::Boundary(number))?;
            open = Some(Open { line: number, label, begin, content: at });
        } else if let Some(rest) = line.strip_prefix(b"-----END ") {
            let label = rest.strip_suffix(b"-----");
            let block = open.take().filter(|block| label == Some(block.label)).ok_or(PemError::Boundary(number))?;
            let slice = |from, to| text.get(from..to).unwrap_or_default().trim_ascii();
            let (whole, content) = (slice(block.begin, at), slice(block.content, begin));
            let label = std::str::from_utf8(block.label).unwrap_or_default();
            found.push(Block { line: block.line, label, whole, content });
        }
    }
    match open {
        Some(block) => Err(PemError::Boundary(block.line)),
        None if found.is_empty() => Err(without_blocks(text)),
        None => Ok(found),
    }
}

fn without_blocks(text: &[u8]) -> PemError {
    match Container::of(text) {
        Some(container) => PemError::Container(container),
        None if text.trim_ascii().is_empty() => PemError::Empty,
        None => PemError::NoBlock,
    }
}

impl Block<'_> {
    /// The certificate in it.
    pub(super) fn certificate(&self) -> Result<CertificateDer<'static>, PemError> {
        // The second is OpenSSL's old label (RFC 7468 section 4); the content is the same.
        if !["CERTIFICATE", "X509 CERTIFICATE"].contains(&self.label) {
            let (what, advice) = self.other();
            return Err(PemError::Label { line: self.line, what, advice });
        }
        let der = decode(self.content).ok_or(PemError::Damaged(self.line))?;
        match Container::of_der(&der).filter(|container| *container != Container::Certificate) {
            Some(other) => Err(PemError::Content(self.line, other)),
            None => Ok(der.to_vec().into()),
        }
    }

    /// Its content, read in constant time, because it is a private key. Lines may have any length.
    pub(crate) fn secret(&self) -> Result<Zeroizing<Vec<u8>>, PemError> {
        let [first, last] = [b"-----BEGIN KEY-----", b"\n-----END KEY-----\n"];
        let mut text = Zeroizing::new(Vec::with_capacity(self.content.len() * 2 + first.len() + last.len()));
        text.extend_from_slice(first);
        for (column, digit) in self.content.iter().filter(|byte| !byte.is_ascii_whitespace()).enumerate() {
            if column % 64 == 0 {
                text.push(b'\n'); // the reader wants lines as RFC 7468 section 2 has them
            }
            text.push(*digit);
        }
        text.extend_from_slice(last);
        let mut buffer = Zeroizing::new(vec![0_u8; text.len()]);
        let (_, der) = der::pem::decode(&text, &mut buffer).map_err(|_| PemError::Damaged(self.line))?;
        Ok(Zeroizing::new(der.to_vec()))
    }

    /// What it is, if it is no certificate, and what to do.
    fn other(&self) -> (String, &'static str) {
        let shown = || self.label.escape_default().take(LONGEST_LABEL).collect::<String>();
        match self.label {
            key if key.ends_with("PRIVATE KEY") => {
                ("a private key".to_owned(), "remove it, only certificates belong here")
            }
            "CMS" => {
                let advice = "`sed 's/ CMS-/ PKCS7-/' FILE | openssl pkcs7 -print_certs` writes its certificates";
                ("CMS".to_owned(), advice)
            }
            "PKCS7" | "PKCS #7 SIGNED DATA" => (Container::Pkcs7.to_string(), Container::Pkcs7.advice()),
            "TRUSTED CERTIFICATE" => {
                let advice = "`openssl x509 -in FILE`, where FILE has only this block, writes it as CERTIFICATE";
                ("a TRUSTED CERTIFICATE of OpenSSL".to_owned(), advice)
            }
            request if request.ends_with("CERTIFICATE REQUEST") => {
                ("a certificate request".to_owned(), "the certificate that was issued for it is needed")
            }
            _ => (format!("a block {}", shown()), "remove it, only CERTIFICATE blocks belong here"),
        }
    }
}

/// Reads Base64, whose lines may have any length.
pub(super) fn decode(content: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let digits: Zeroizing<Vec<u8>> =
        Zeroizing::new(content.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect());
    BASE64.decode(&digits).ok().map(Zeroizing::new)
}
