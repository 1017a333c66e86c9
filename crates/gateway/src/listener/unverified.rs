//! What the certificate of a refused client says of itself, for the audit log. rustls reports only why it refused it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::NoHandshake;
use addon_signer_core::gateway::authz::unverified;

tokio::task_local! {
    /// What the certificate that the verifier refused in this handshake says of itself.
    static REFUSED: RefCell<String>;
}

/// Makes a handshake, whose error has what the certificate says of itself if the verifier refused it.
pub(super) async fn shake<T, S>(
    handshake: impl Future<Output = Result<T, (io::Error, S)>>,
) -> Result<T, (NoHandshake, S)> {
    let handshake = async {
        let failed = |(error, socket)| (NoHandshake::of(error, REFUSED.with(RefCell::take)), socket);
        handshake.await.map_err(failed)
    };
    REFUSED.scope(RefCell::default(), handshake).await
}

/// Verifies as the inner verifier does, and notes what a certificate that it refuses says of itself.
#[derive(Debug)]
pub(super) struct NotingUnverified(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for NotingUnverified {
    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify_client_cert(leaf, intermediates, now).inspect_err(|_| {
            // A handshake outside of `shake` has nobody to tell.
            let _ = REFUSED.try_with(|refused| refused.replace(unverified(leaf)));
        })
    }

    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
