//! The TLS configuration: built whole from one trust snapshot and one serving certificate, swapped whole on any change.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::trust::Trust;

/// ALPN names (RFC 7301), the preferred one first.
pub(super) const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Why nothing can be served under a snapshot.
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

/// A trust snapshot that is in effect, and the TLS configuration made of it.
#[derive(Debug)]
pub(super) struct InEffect {
    pub(super) trust: Arc<Trust>,
    pub(super) tls: Arc<ServerConfig>,
}

/// Where a configuration goes, and who is told of it.
pub(super) struct Outputs {
    pub(super) publish: watch::Sender<Option<Arc<InEffect>>>,
    pub(super) applied: watch::Sender<Arc<Trust>>,
}

/// Follows trust and serving certificate until one of their senders is gone, and says which.
///
/// Where no configuration can be built, none is in effect: the gateway then refuses everybody (invariant I11).
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
                // Before the first configuration this is how every start looks.
                if outputs.publish.send_replace(None).is_some() {
                    tracing::warn!(%error, "The gateway refuses all connections");
                } else {
                    tracing::info!(%error, "The gateway does not accept connections yet");
                }
            }
        }
        tokio::select! {
            changed = trust.changed() => if changed.is_err() { return "whom to trust" },
            changed = serving.changed() => if changed.is_err() { return "its serving certificate" },
        }
    }
}

/// TLS 1.3 only; a client certificate of any signer's CA is required; no resumption, no early data.
fn build(trust: &Trust, serving: Option<Arc<CertifiedKey>>, clock: &Clock) -> Result<ServerConfig, TlsError> {
    let anchors = trust.signers.iter().flat_map(|signer| signer.client_anchors.anchors());
    let roots = RootCertStore { roots: anchors.cloned().collect() };
    if roots.is_empty() {
        return Err(TlsError::NoAnchors);
    }
    let serving = serving.ok_or(TlsError::NoServingCertificate)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(ClockTime(clock.clone())))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(serving)));
    config.alpn_protocols = vec![H2.to_vec(), HTTP_1_1.to_vec()];
    // A resumed session skips the verifier: rustls copies the client's chain from the ticket, whatever became of its CA
    // since. So there are no tickets, and nothing to resume from; and a swap would forget them all.
    config.send_tls13_tickets = 0;
    config.max_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(config)
}

/// Our clock, as rustls asks it.
#[derive(Debug)]
struct ClockTime(Clock);

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().unix()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
