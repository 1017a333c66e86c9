//! Rule 4: kinds and quality of keys, algorithms of signatures. `openssl/` has the keys that ring cannot make.

use super::{Case, Fixture, refused};
use crate::requests::pkcs10::{Key, Request};
use crate::requests::tlv::{NULL, bits, oid, sequence, tlv};

macro_rules! made_by_openssl {
    ($($name:literal, $reason:literal, $comment:literal;)*) => {
        vec![$(refused(
            concat!("rule4-", $name),
            $reason,
            $comment,
            include_bytes!(concat!("../openssl/", $name, ".pem")).to_vec(),
        )),*]
    };
}

pub(super) fn cases() -> Vec<Case> {
    let openssl = made_by_openssl! {
        "rsa-1024", "PublicKeyNotAllowed", "RSA of 1024 bits";
        "rsa-2056", "PublicKeyNotAllowed", "RSA of a size between those that exist";
        "rsa-exponent-3", "PublicKeyNotAllowed", "RSA with the public exponent 3";
        "rsa-small-factor", "PublicKeyNotAllowed", "an RSA modulus that is divisible by 751";
        "rsa-roca", "PublicKeyNotAllowed", "an RSA key as Infineon's faulty library made them (CVE-2017-15361)";
        "rsa-pss-key", "PublicKeyNotAllowed", "an RSA key for PSS only";
        "p521", "PublicKeyNotAllowed", "a curve that ring does not know";
        "secp256k1", "PublicKeyNotAllowed", "a curve that TLS does not have";
        "p256-compressed", "PublicKeyNotAllowed", "a compressed point";
        "p256-explicit", "PublicKeyNotAllowed", "the curve's parameters written out (CVE-2020-0601)";
        "ed448", "PublicKeyNotAllowed", "Ed448";
        "dsa", "PublicKeyNotAllowed", "DSA";
        "p256-sha1", "SignatureAlgorithmNotAllowed", "ECDSA with SHA-1";
        "p256-sha512", "SignatureAlgorithmNotAllowed", "ECDSA with SHA-512, which ring cannot verify for P-256";
        "rsa-sha1", "SignatureAlgorithmNotAllowed", "RSA with SHA-1";
        "rsa-pss-signature", "SignatureAlgorithmNotAllowed", "an ordinary RSA key that signs with PSS";
    };
    [openssl, malformed(), configured()].concat()
}

/// Requests with an invalid SubjectPublicKeyInfo. Such a key cannot sign, so another key has signed them.
fn malformed() -> Vec<Case> {
    let case = |name: &str, reason: &str, comment: &str, public_key: Vec<u8>| {
        let request = Request { public_key, ..Request::good() };
        refused(&format!("rule4-key-{name}"), reason, comment, request.pem())
    };
    let not_allowed = "PublicKeyNotAllowed";
    let p256 = sequence(&[oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7")]);
    let off_the_curve = [&[4][..], &[7; 64]].concat();
    let ed25519_null = sequence(&[oid("1.3.101.112"), vec![NULL, 0]]);
    let rsa_without_null = sequence(&[oid("1.2.840.113549.1.1.1")]);
    vec![
        case(
            "off-the-curve",
            "PossessionNotProven",
            "a point that is not on its curve",
            sequence(&[p256.clone(), bits(&off_the_curve)]),
        ),
        case("point-at-infinity", not_allowed, "the point at infinity", sequence(&[p256.clone(), bits(&[0])])),
        case(
            "without-curve",
            not_allowed,
            "an EC key without its curve",
            sequence(&[sequence(&[oid("1.2.840.10045.2.1")]), bits(&off_the_curve)]),
        ),
        case(
            "unused-bits",
            not_allowed,
            "a key that is no whole number of bytes",
            sequence(&[p256, tlv(3, &[&[1, 4], &[8; 64]])]),
        ),
        case("ed25519-parameters", not_allowed, "Ed25519 with parameters", sequence(&[ed25519_null, bits(&[9; 32])])),
        case("rsa-without-null", not_allowed, "RSA without its NULL", sequence(&[rsa_without_null, bits(&[9; 32])])),
        case(
            "rsa-not-a-key",
            not_allowed,
            "RSA without modulus and exponent",
            sequence(&[sequence(&[oid("1.2.840.113549.1.1.1"), vec![NULL, 0]]), bits(&[9; 32])]),
        ),
    ]
}

fn configured() -> Vec<Case> {
    let only = |name: &str, comment: &str, request: Vec<u8>| {
        refused(&format!("rule4-kind-{name}"), "KeyKindNotAllowed", comment, request).with(Fixture::EcdsaP256Only)
    };
    vec![
        only("p384", "a P-384 key where P-256 is demanded", Request::with_key(Key::p384()).pem()),
        only("ed25519", "an Ed25519 key where P-256 is demanded", Request::with_key(Key::ed25519()).pem()),
        only("rsa-2048", "an RSA key where P-256 is demanded", include_bytes!("../openssl/rsa-2048.pem").to_vec()),
    ]
}
