//! What issues the certificate of another's CA, at work without our hub: a real cert-manager. A test whose
//! programs are missing passes at once.

use rcgen::{CertificateParams, DnType, KeyPair};
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

mod cert_manager;

/// A new key's request in PEM, which asks for this name alone: who issues a CA's certificate says what it may do.
fn mk_request(name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

/// The certificates of a PEM text.
fn certificates(pem: &str) -> Vec<Vec<u8>> {
    Pem::iter_from_buffer(pem.as_bytes()).map(|block| block.unwrap().contents).collect()
}

/// Checks that this is a CA's certificate of this name, signed by `issuer`, and returns the path length that it allows.
fn path_length_of_ca(certificate: &[u8], name: &str, issuer: &[u8]) -> Option<u32> {
    let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
    let (_, issuer) = X509Certificate::from_der(issuer).unwrap();
    assert_eq!(certificate.subject().to_string(), format!("CN={name}"));
    assert_eq!(certificate.issuer(), issuer.subject());
    certificate.verify_signature(Some(issuer.public_key())).unwrap();
    assert!(certificate.is_ca());
    let usage = certificate.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && usage.crl_sign(), "{usage}");
    certificate.basic_constraints().unwrap().unwrap().value.path_len_constraint
}
