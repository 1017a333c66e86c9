//! Certificates that a TLS client can present to the gateway, and texts that a store can have as a trust bundle.
//!
//! The bytes are read in three ways: as a certificate; as PEM anchors; and as the parts of a certificate that our CA
//! signs: the length of the subject in two bytes, the subject, a validity, extensions. The gateway reads these parts
//! only behind a valid signature, which random bytes never have.
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
