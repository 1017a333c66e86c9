//! Identifies a file that should be PEM and is not.

use std::fmt;

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::blocks::decode;

/// A known form of certificates or keys that is no PEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// Text with two bytes for each character.
    Utf16,
    /// Text with four bytes for each character.
    Utf32,
    /// PEM in Base64, such as a field of `kubectl get secret -o yaml`.
    TwiceBase64,
    /// DER in Base64.
    Bare,
    /// A certificate in DER.
    Certificate,
    /// PKCS#7 or CMS (RFC 5652), as Windows exports a chain.
    Pkcs7,
    /// PKCS#12 (RFC 7292).
    Pkcs12,
    /// A keystore of Java.
    Keystore,
    /// A private key in DER.
    PrivateKey,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Utf16 => "text in UTF-16",
            Self::Utf32 => "text in UTF-32",
            Self::TwiceBase64 => "PEM that is encoded in Base64 once more",
            Self::Bare => "Base64 without BEGIN and END lines",
            Self::Certificate => "a certificate in DER",
            Self::Pkcs7 => "PKCS#7 (.p7b)",
            Self::Pkcs12 => "PKCS#12 (.p12, .pfx)",
            Self::Keystore => "a keystore of Java",
            Self::PrivateKey => "a private key in DER",
        })
    }
}

impl Container {
    /// How to get the certificates.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Utf16 | Self::Utf32 => "save it as UTF-8",
            Self::TwiceBase64 => "decode it first (`base64 -d`)",
            Self::Bare => "put -----BEGIN CERTIFICATE----- before it and -----END CERTIFICATE----- after it",
            Self::Certificate => "`openssl x509 -inform DER -in FILE` converts it",
            Self::Pkcs7 => "`openssl pkcs7 -print_certs -in FILE` writes its certificates (a binary FILE: -inform DER)",
            Self::Pkcs12 => "`openssl pkcs12 -nokeys -in FILE` writes its certificates",
            Self::Keystore => "`keytool -exportcert -rfc` writes a certificate of it",
            Self::PrivateKey => "the certificate is needed instead",
        }
    }

    /// The form of these bytes, which have no PEM block.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xff, 0xfe, 0, 0, ..] | [0, 0, ..] | [b'-', 0, 0, ..] => Some(Self::Utf32),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [b'-', 0, ..] | [0, b'-', ..] => Some(Self::Utf16),
            [0xfe, 0xed, 0xfe, 0xed, ..] | [0xce, 0xce, 0xce, 0xce, ..] => Some(Self::Keystore),
            _ => Self::of_der(bytes).or_else(|| {
                let decoded = decode(bytes)?;
                match decoded.starts_with(b"-----BEGIN ") {
                    true => Some(Self::TwiceBase64),
                    false => Self::of_der(&decoded).map(|_| Self::Bare),
                }
            }),
        }
    }

    /// The form of this DER, or of BER, as Windows writes it.
    pub(super) fn of_der(der: &[u8]) -> Option<Self> {
        let ([0x30, 0x81, _, content @ ..]
        | [0x30, 0x82, _, _, content @ ..]
        | [0x30, 0x83, _, _, _, content @ ..]
        | [0x30, 0x00..=0x80, content @ ..]) = der
        else {
            return None;
        };
        match content {
            [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, ..] => Some(Self::Pkcs7),
            [0x02, 0x01, 0x03, ..] => Some(Self::Pkcs12),
            [0x02, 0x01, 0x00 | 0x01, ..] => Some(Self::PrivateKey),
            _ => X509Certificate::from_der(der).is_ok().then_some(Self::Certificate),
        }
    }
}
