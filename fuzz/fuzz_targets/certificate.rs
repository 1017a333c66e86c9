//! What a TLS client can show the gateway, and what a store can hold in place of a bundle.
//!
//! The bytes are read three times: as a certificate and as PEM anchors, as they are; and as the length of a subject in two
//! bytes, the subject, a validity and extensions, put into a certificate that a CA of ours rightly signs: what is certified is
//! looked at only behind a signature, where random bytes do not come.
#![no_main]

use std::sync::LazyLock;

use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_fuzz::gateway::{Gateway, NOW};
use libfuzzer_sys::fuzz_target;
use rustls_pki_types::CertificateDer;

static GATEWAY: LazyLock<Gateway> = LazyLock::new(Gateway::new);

fuzz_target!(|data: &[u8]| {
    GATEWAY.show(&CertificateDer::from(data));
    if let Ok(authority) = Authority::from_der(data) {
        assert_eq!(authority.certificate().as_ref(), data);
    }
    if let Ok(bundle) = Bundle::from_pem(data) {
        assert!(!bundle.anchors().is_empty());
        let again = Bundle::from_pem(bundle.pem().as_bytes()).expect("written by us");
        assert_eq!(again.digest(), bundle.digest());
    }
    let Some(leaf) = GATEWAY.certify(data) else { return };
    let verified = GATEWAY.anchors().verify(&leaf, Purpose::Client, NOW);
    assert!(!GATEWAY.show(&leaf) || verified.is_ok(), "an identity that nobody vouches for");
});
