//! Encodings: ASN.1 of requests and certificates, subject alternative names, PEM.

pub(crate) mod asn1;
pub mod pem;
