//! A certificate request as a telemetry agent of spoke1 makes it. A case can replace every part of it.

use k8s_openapi::ByteString;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};

pub(crate) use test_kit::accounts::ADDON_GROUP;

use super::tlv::{ATTRIBUTES, INTEGER, OCTET_STRING, UTF8_STRING, bits, list, oid, sequence, set, tlv};

pub(crate) const CN: &str = "2.5.4.3";
pub(crate) const O: &str = "2.5.4.10";
pub(crate) const OU: &str = "2.5.4.11";
pub(crate) const USER: &str = "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:telemetry";
pub(crate) const CLUSTER_GROUP: &str = "system:open-cluster-management:cluster:spoke1:addon:telemetry";
pub(crate) const DNS_NAME: &str = "telemetry.addon.open-cluster-management.io";
pub(crate) const EXTENSION_REQUEST: &str = "1.2.840.113549.1.9.14";
pub(crate) const SUBJECT_ALT_NAME: &str = "2.5.29.17";

/// A key that signs its own request.
pub(crate) enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Key {
    pub(crate) fn p256() -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &SystemRandom::new());
        Self::P256(pair.unwrap())
    }

    pub(crate) fn p384() -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_ASN1_SIGNING, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_ASN1_SIGNING, pkcs8.as_ref(), &SystemRandom::new());
        Self::P384(pair.unwrap())
    }

    pub(crate) fn ed25519() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    /// The SubjectPublicKeyInfo.
    pub(crate) fn public(&self) -> Vec<u8> {
        let ec = "1.2.840.10045.2.1";
        let (algorithm, key) = match self {
            Self::P256(pair) => (sequence(&[oid(ec), oid("1.2.840.10045.3.1.7")]), pair.public_key().as_ref()),
            Self::P384(pair) => (sequence(&[oid(ec), oid("1.3.132.0.34")]), pair.public_key().as_ref()),
            Self::Ed25519(pair) => (sequence(&[oid("1.3.101.112")]), pair.public_key().as_ref()),
        };
        sequence(&[algorithm, bits(key)])
    }

    /// The AlgorithmIdentifier of its signatures.
    pub(crate) fn algorithm(&self) -> Vec<u8> {
        sequence(&[oid(match self {
            Self::P256(_) => "1.2.840.10045.4.3.2",
            Self::P384(_) => "1.2.840.10045.4.3.3",
            Self::Ed25519(_) => "1.3.101.112",
        })])
    }

    fn sign(&self, content: &[u8]) -> Vec<u8> {
        match self {
            Self::P256(pair) | Self::P384(pair) => pair.sign(&SystemRandom::new(), content).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(content).as_ref().to_vec(),
        }
    }
}

/// The parts of a request, each as the DER that will be written.
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) version: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    pub(crate) public_key: Vec<u8>,
    pub(crate) attributes: Vec<u8>,
    pub(crate) algorithm: Vec<u8>,
}

impl Request {
    /// The request that OCM's registration agent sends: both groups in one RDN, one DNS name.
    pub(crate) fn good() -> Self {
        Self::with_key(Key::p256())
    }

    pub(crate) fn with_key(key: Key) -> Self {
        let subject = name(&[rdn(&[text(O, ADDON_GROUP), text(O, CLUSTER_GROUP)]), rdn(&[text(CN, USER)])]);
        let attributes = attributes(&[extension_request(&[alt_names(&[dns(DNS_NAME)])])]);
        let public_key = key.public();
        let algorithm = key.algorithm();
        Self { key, version: tlv(INTEGER, &[&[0]]), subject, public_key, attributes, algorithm }
    }

    /// The good request with another subject.
    pub(crate) fn subject(rdns: &[Vec<u8>]) -> Self {
        Self { subject: name(rdns), ..Self::good() }
    }

    /// The good request with another common name.
    pub(crate) fn common_name(common_name: &str) -> Self {
        Self::subject(&[rdn(&[text(O, ADDON_GROUP), text(O, CLUSTER_GROUP)]), rdn(&[text(CN, common_name)])])
    }

    /// The good request with one more relative name.
    pub(crate) fn subject_and(extra: Vec<u8>) -> Self {
        let groups = rdn(&[text(O, ADDON_GROUP), text(O, CLUSTER_GROUP)]);
        Self::subject(&[groups, rdn(&[text(CN, USER)]), rdn(&[extra])])
    }

    /// The good request with other attributes.
    pub(crate) fn attributes(list: &[Vec<u8>]) -> Self {
        Self { attributes: attributes(list), ..Self::good() }
    }

    /// The good request with other extensions.
    pub(crate) fn extensions(extensions: &[Vec<u8>]) -> Self {
        Self::attributes(&[extension_request(extensions)])
    }

    /// The good request with one more extension.
    pub(crate) fn extensions_and(extra: Vec<u8>) -> Self {
        Self::extensions(&[alt_names(&[dns(DNS_NAME)]), extra])
    }

    /// The good request with another list of alternative names.
    pub(crate) fn names(names: &[Vec<u8>]) -> Self {
        Self::extensions(&[alt_names(names)])
    }

    /// The CertificationRequestInfo, which is signed.
    pub(crate) fn content(&self) -> Vec<u8> {
        sequence(&[&self.version, &self.subject, &self.public_key, &self.attributes])
    }

    /// The whole request, signed by its key.
    pub(crate) fn der(&self) -> Vec<u8> {
        self.signed_by(&self.key)
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        pem(&self.der())
    }

    /// The whole request, signed by `key`, which may be another key than the request's.
    pub(crate) fn signed_by(&self, key: &Key) -> Vec<u8> {
        let content = self.content();
        let signature = bits(&key.sign(&content));
        self.assembled(content, signature)
    }

    /// The whole request with this `content`, which is signed unchanged.
    pub(crate) fn around(&self, content: Vec<u8>) -> Vec<u8> {
        let signature = bits(&self.key.sign(&content));
        self.assembled(content, signature)
    }

    /// The signature of [`Self::content`], a BIT STRING.
    pub(crate) fn signature(&self) -> Vec<u8> {
        bits(&self.key.sign(&self.content()))
    }

    /// The CertificationRequest of these parts.
    pub(crate) fn assembled(&self, content: Vec<u8>, signature: Vec<u8>) -> Vec<u8> {
        sequence(&[content, self.algorithm.clone(), signature])
    }
}

/// RDNSequence.
pub(crate) fn name(rdns: &[Vec<u8>]) -> Vec<u8> {
    sequence(rdns)
}

/// One relative name.
pub(crate) fn rdn(attributes: &[Vec<u8>]) -> Vec<u8> {
    set(attributes)
}

/// A subject attribute as UTF8String.
pub(crate) fn text(kind: &str, value: &str) -> Vec<u8> {
    typed(kind, UTF8_STRING, value.as_bytes())
}

/// A subject attribute of any type.
pub(crate) fn typed(kind: &str, tag: u8, value: &[u8]) -> Vec<u8> {
    sequence(&[oid(kind), tlv(tag, &[value])])
}

/// `[0] SET OF Attribute`, in the order given.
pub(crate) fn attributes(items: &[Vec<u8>]) -> Vec<u8> {
    list(ATTRIBUTES, items)
}

/// One attribute of the request.
pub(crate) fn attribute(kind: &str, values: &[Vec<u8>]) -> Vec<u8> {
    sequence(&[oid(kind), set(values)])
}

pub(crate) fn extension_request(extensions: &[Vec<u8>]) -> Vec<u8> {
    attribute(EXTENSION_REQUEST, &[sequence(extensions)])
}

/// An extension that is not critical.
pub(crate) fn extension(kind: &str, value: &[u8]) -> Vec<u8> {
    sequence(&[oid(kind), tlv(OCTET_STRING, &[value])])
}

/// SubjectAltName of encoded GeneralNames.
pub(crate) fn alt_names(names: &[Vec<u8>]) -> Vec<u8> {
    extension(SUBJECT_ALT_NAME, &sequence(names))
}

/// GeneralName dNSName.
pub(crate) fn dns(name: &str) -> Vec<u8> {
    tlv(0x82, &[name.as_bytes()])
}

/// GeneralName iPAddress.
pub(crate) fn ip(address: &[u8]) -> Vec<u8> {
    tlv(0x87, &[address])
}

/// One PEM block with lines of 64 characters, as in RFC 7468.
pub(crate) fn pem(der: &[u8]) -> Vec<u8> {
    let encoded = base64(der);
    let lines: Vec<&str> = encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let lines = lines.join("\n");
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{lines}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
}

fn base64(bytes: &[u8]) -> String {
    // Kubernetes encodes byte fields as base64.
    let value = serde_json::to_value(ByteString(bytes.to_vec())).unwrap();
    value.as_str().unwrap().to_owned()
}
