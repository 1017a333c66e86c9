//! The TLS configuration: the accepted clients, and the serving certificate. It is replaced as a whole on every change.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::front_proxy::{FrontProxy, FrontProxyError};
use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_gateway::listener;
use addon_signer_platform::clock::Clock;

/// The inputs of a configuration.
pub(super) struct Sources {
    pub(super) front_proxy: watch::Receiver<Option<FrontProxy>>,
    /// The anchors that the APIService is known to hold.
    pub(super) registered: watch::Receiver<Option<Bundle>>,
    pub(super) serving: watch::Receiver<Option<Arc<CertifiedKey>>>,
    pub(super) clock: Clock,
}

type Inputs = (FrontProxy, Arc<CertifiedKey>);

/// A configuration, with its verifier of clients.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) tls: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    clock: Clock,
}

impl Configuration {
    /// Checks whether a client with this chain would be accepted now.
    ///
    /// # Errors
    /// Why it would be refused.
    pub(super) fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let now = u64::try_from(self.clock.now().unix()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let (leaf, others) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.verify_client_cert(leaf, others, now).map(drop)
    }
}

/// Publishes a configuration after every change; `None` while the front proxy is not known or there is no certificate.
/// If a source ends, returns its name.
pub(super) async fn keep_in_effect(
    mut sources: Sources,
    publish: watch::Sender<Option<Arc<Configuration>>>,
) -> &'static str {
    let mut shown: Option<Arc<CertifiedKey>> = None;
    let mut built_from = None;
    loop {
        let front_proxy = sources.front_proxy.borrow_and_update().clone();
        let anchors = sources.registered.borrow_and_update().clone();
        let newest = sources.serving.borrow_and_update().clone();
        if let Some(newest) = newest.filter(|pair| is_known(pair, anchors.as_ref(), &sources.clock)) {
            shown = Some(newest);
        }
        let from = front_proxy.zip(shown.clone());
        if !is_same(built_from.as_ref(), from.as_ref()) {
            let config = from.as_ref().and_then(|(front_proxy, pair)| {
                build(front_proxy, Arc::clone(pair), &sources.clock)
                    .inspect_err(|error| tracing::warn!(%error, "The inventory is refusing everybody"))
                    .ok() // logged above
            });
            tracing::debug!(serves = config.is_some(), "The inventory has a new configuration");
            publish.send_replace(config.map(Arc::new));
            built_from = from;
        }
        tokio::select! {
            changed = sources.front_proxy.changed() => if changed.is_err() { return "the front proxy's certificates" },
            changed = sources.registered.changed() => if changed.is_err() { return "the CA of its APIService" },
            changed = sources.serving.changed() => if changed.is_err() { return "its serving certificate" },
        }
    }
}

/// Whether a configuration from `now` would equal the one from `before`. A different one ends all connections.
fn is_same(before: Option<&Inputs>, now: Option<&Inputs>) -> bool {
    match (before, now) {
        (Some((whose, pair)), Some((now_whose, now_pair))) => whose == now_whose && Arc::ptr_eq(pair, now_pair),
        (before, now) => before.is_none() && now.is_none(),
    }
}

/// Whether the API server will accept the certificate, by an anchor that is in the APIService (invariant I5).
fn is_known(pair: &CertifiedKey, anchors: Option<&Bundle>, clock: &Clock) -> bool {
    let leaf = pair.cert.first();
    anchors.zip(leaf).is_some_and(|(anchors, leaf)| anchors.verify(leaf, Purpose::Server, clock.now()).is_ok())
}

fn build(front_proxy: &FrontProxy, pair: Arc<CertifiedKey>, clock: &Clock) -> Result<Configuration, FrontProxyError> {
    let verifier = front_proxy.verifier()?;
    let mut config = listener::server_config(Arc::clone(&verifier), pair, clock)?;
    // Requests are few and answers are paged. With HTTP/1.1 there are no streams to bound.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Configuration { tls: Arc::new(config), verifier, clock: clock.clone() })
}
