//! Reads the bytes as `spec.request`, and as the DER in it. Random bytes have no valid signature, so only the seeds are
//! approved.
#![no_main]

use addon_signer_core::csr::CertificateRequest;
use addon_signer_fuzz::{pem, submit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    submit(data);
    if let Ok(request) = CertificateRequest::from_der(data) {
        let appears = |part: &[u8]| data.windows(part.len()).any(|window| window == part);
        assert!(appears(request.public_key_der()));
        assert!(appears(request.subject_der()));
        submit(&pem(data));
    }
});
