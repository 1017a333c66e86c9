//! The TLS configuration. It is built from one trust snapshot and one serving certificate, and replaced as a whole on
//! every change.

use std::sync::Arc;

use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;

use crate::listener;
use addon_signer_core::trust::Trust;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::crypto;

/// ALPN names (RFC 7301), the preferred one first.
pub(super) const H2: &[u8] = b"h2";
pub(super) const HTTP_1_1: &[u8] = b"http/1.1";

/// Why no TLS configuration can be built, in which case nothing is served.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error("no signer has a client CA: nobody could be let in")]
    NoAnchors,
    #[error("the gateway has no serving certificate yet")]
    NoServingCertificate,
    #[error("the verifier of client certificates could not be built: {0}")]
    Verifier(#[from] VerifierBuilderError),
    #[error("the TLS configuration could not be built: {0}")]
    Config(#[from] rustls::Error),
}

/// The trust snapshot that is in effect, and the TLS configuration that was built from it.
#[derive(Debug)]
pub(super) struct InEffect {
    pub(super) trust: Arc<Trust>,
    pub(super) tls: Arc<ServerConfig>,
}

/// Where a new configuration goes, and where the trust snapshot that it applies goes.
pub(super) struct Outputs {
    pub(super) publish: watch::Sender<Option<Arc<InEffect>>>,
    pub(super) applied: watch::Sender<Arc<Trust>>,
}

/// Follows trust and serving certificate until one of their senders is dropped, and returns what that one was sending.
///
/// While no configuration can be built, none is in effect, and the gateway rejects all clients (invariant I11). The
/// next one is built from the snapshot that was reported last, or from a newer one.
pub(super) async fn keep_in_effect(
    mut trust: watch::Receiver<Arc<Trust>>,
    mut serving: watch::Receiver<Option<Arc<CertifiedKey>>>,
    clock: Clock,
    outputs: Outputs,
) -> &'static str {
    loop {
        let snapshot = Arc::clone(&trust.borrow_and_update());
        let certificate = serving.borrow_and_update().clone();
        match build(&snapshot, certificate, &clock) {
            Ok(config) => {
                let in_effect = InEffect { trust: Arc::clone(&snapshot), tls: Arc::new(config) };
                outputs.publish.send_replace(Some(Arc::new(in_effect)));
                outputs.applied.send_replace(snapshot);
            }
            Err(error) => {
                // Before the first configuration this is normal.
                if outputs.publish.send_replace(None).is_some() {
                    tracing::warn!(%error, "The gateway refuses all connections");
                } else {
                    tracing::info!(%error, "The gateway does not accept connections yet");
                }
                // Without a configuration the gateway rejects all clients, so it cannot trust more than this snapshot
                // does, and a rotation need not wait for it.
                outputs.applied.send_replace(snapshot);
            }
        }
        tokio::select! {
            changed = trust.changed() => if changed.is_err() { return "whom to trust" },
            changed = serving.changed() => if changed.is_err() { return "its serving certificate" },
        }
    }
}

/// Builds a configuration that requires a client certificate of any signer's CA.
fn build(trust: &Trust, serving: Option<Arc<CertifiedKey>>, clock: &Clock) -> Result<ServerConfig, TlsError> {
    let anchors = trust.signers.iter().flat_map(|signer| signer.client_anchors.anchors());
    let roots = RootCertStore { roots: anchors.cloned().collect() };
    if roots.is_empty() {
        return Err(TlsError::NoAnchors);
    }
    let serving = serving.ok_or(TlsError::NoServingCertificate)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto::provider());
    // The names of the CAs would disclose every signer to strangers, and some 550 of them do not fit into a handshake.
    let verifier = verifier.clear_root_hint_subjects().build()?;
    let mut config = listener::server_config(verifier, serving, clock)?;
    config.alpn_protocols = vec![H2.to_vec(), HTTP_1_1.to_vec()];
    Ok(config)
}
