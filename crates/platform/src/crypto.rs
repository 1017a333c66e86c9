//! The whole process uses one TLS and crypto implementation: ring.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

/// The provider, for a TLS configuration.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Makes ring the process default, for code that builds a TLS configuration without naming a provider.
pub fn install_provider() {
    // This fails only if a provider is already installed. That one is ring too, because no other is linked.
    let _ = ring::default_provider().install_default();
}
