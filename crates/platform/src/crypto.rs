//! One TLS and crypto implementation for everything in the process: ring.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

/// The provider, for a TLS configuration.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Makes it the process's own: what builds a TLS configuration without naming a provider uses it.
pub fn install_provider() {
    // Fails only if a provider is installed already, which is then this one: no other is linked.
    let _ = ring::default_provider().install_default();
}
