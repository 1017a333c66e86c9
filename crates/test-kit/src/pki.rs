//! The certificate authority of a test hub: client certificates with any user and groups, and the API server's serving
//! certificate.
//!
//! This module writes leaves as DER, because rcgen keeps only one organization of a subject.

use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, PublicKeyData, SigningKey};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const ECDSA_WITH_SHA256: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const COMMON_NAME: &[u8] = &[0x06, 3, 0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x06, 3, 0x55, 4, 10];
const SUBJECT_ALT_NAME: &[u8] = &[0x06, 3, 0x55, 0x1d, 17];
const EXTENDED_KEY_USAGE: &[u8] = &[0x06, 3, 0x55, 0x1d, 37];
const SERVER_AUTH: &[u8] = &[0x06, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u8] = &[0x06, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2];

/// A certificate and its key, both PEM.
pub struct PemPair {
    pub cert: String,
    pub key: String,
}

/// The name of a hub's CA.
const HUB: &str = "test-hub-ca";

/// A CA that signs P-256 leaves, which are valid from 2020 to 2049.
pub struct TestCa {
    key: KeyPair,
    cert: String,
    name: Vec<u8>,
    serial: AtomicU32,
}

impl Default for TestCa {
    fn default() -> Self {
        Self::named(HUB)
    }
}

impl TestCa {
    pub fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).unwrap().pem();
        Self::new(key, cert, name)
    }

    /// The CA that another program has made for a hub.
    pub fn of_hub(cert: String, key: &str) -> Self {
        Self::new(KeyPair::from_pem(key).unwrap(), cert, HUB)
    }

    fn new(key: KeyPair, cert: String, name: &str) -> Self {
        let name = relative_name(COMMON_NAME, name);
        Self { key, cert, name: tlv(SEQUENCE, &[&name]), serial: AtomicU32::new(1) }
    }

    /// The CA's own certificate and key, for `--cluster-signing-cert-file` and trust.
    pub fn pair(&self) -> PemPair {
        PemPair { cert: self.cert.clone(), key: self.key.serialize_pem() }
    }

    /// A client certificate: the user is the common name, the groups are organizations.
    pub fn client(&self, user: &str, groups: &[&str]) -> PemPair {
        let mut names: Vec<_> = groups.iter().map(|g| relative_name(ORGANIZATION, g)).collect();
        names.push(relative_name(COMMON_NAME, user));
        self.leaf(&names.concat(), &[usage(CLIENT_AUTH)])
    }

    /// A serving certificate for 127.0.0.1 and localhost.
    pub fn server(&self) -> PemPair {
        self.server_at([127, 0, 0, 1])
    }

    /// A serving certificate for this address and localhost.
    pub fn server_at(&self, address: [u8; 4]) -> PemPair {
        let both = tlv(SEQUENCE, &[&tlv(0x87, &[&address]), &tlv(0x82, &[b"localhost"])]);
        let names = tlv(SEQUENCE, &[SUBJECT_ALT_NAME, &tlv(0x04, &[&both])]);
        self.leaf(&relative_name(COMMON_NAME, "kube-apiserver"), &[usage(SERVER_AUTH), names])
    }

    fn leaf(&self, subject: &[u8], extensions: &[Vec<u8>]) -> PemPair {
        let key = KeyPair::generate().unwrap();
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let algorithm = tlv(SEQUENCE, &[ECDSA_WITH_SHA256]);
        let tbs = tlv(
            SEQUENCE,
            &[
                &[0xa0, 3, 2, 1, 2], // version 3
                &tlv(0x02, &[&[0x01], &serial.to_be_bytes()]),
                &algorithm,
                &self.name,
                &tlv(SEQUENCE, &[&tlv(0x17, &[b"200101000000Z"]), &tlv(0x17, &[b"491231235959Z"])]),
                &tlv(SEQUENCE, &[subject]),
                &key.subject_public_key_info(),
                &tlv(0xa3, &[&tlv(SEQUENCE, &[&extensions.concat()])]),
            ],
        );
        let signature = self.key.sign(&tbs).unwrap();
        let cert = tlv(SEQUENCE, &[&tbs, &algorithm, &tlv(0x03, &[&[0], &signature])]);
        PemPair { cert: pem("CERTIFICATE", &cert), key: key.serialize_pem() }
    }
}

/// Standard base64, by the encoder of Kubernetes' byte strings.
pub fn base64(bytes: &[u8]) -> String {
    let value = serde_json::to_value(ByteString(bytes.to_vec())).unwrap();
    value.as_str().unwrap().to_owned()
}

fn usage(purpose: &[u8]) -> Vec<u8> {
    tlv(SEQUENCE, &[EXTENDED_KEY_USAGE, &tlv(0x04, &[&tlv(SEQUENCE, &[purpose])])])
}

fn relative_name(attribute: &[u8], value: &str) -> Vec<u8> {
    tlv(SET, &[&tlv(SEQUENCE, &[attribute, &tlv(0x0c, &[value.as_bytes()])])])
}

/// One DER value: tag, definite length, the parts as content.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [.., high, low] = content.len().to_be_bytes();
    let mut der = match content.len() {
        0..0x80 => vec![tag, low],
        0x80..0x100 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    der.extend(content);
    der
}

/// One PEM block.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = base64(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
