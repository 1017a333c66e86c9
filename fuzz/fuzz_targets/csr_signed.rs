//! A CSR with a subject and attributes from the fuzzer, signed with our key. A hostile agent can make such
//! requests. The input is the length of the subject in two bytes, the subject, the attributes.
#![no_main]

use std::sync::LazyLock;

use addon_signer_core::csr::CertificateRequest;
use addon_signer_fuzz::{ED25519, bits, pem, submit, tlv};
use libfuzzer_sys::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair};

static KEY: LazyLock<Ed25519KeyPair> = LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed"));

fuzz_target!(|data: &[u8]| {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let Some((subject, attributes)) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length))) else { return };
    let public_key = tlv(0x30, &[&ED25519, &bits(KEY.public_key().as_ref())]);
    let content = tlv(0x30, &[&[2, 1, 0], subject, &public_key, attributes]);
    let der = tlv(0x30, &[&content, &ED25519, &bits(KEY.sign(&content).as_ref())]);
    if let Ok(request) = CertificateRequest::from_der(&der) {
        assert_eq!(request.public_key_der(), public_key);
        assert_eq!(request.subject_der(), subject);
        submit(&pem(&der));
    }
});
