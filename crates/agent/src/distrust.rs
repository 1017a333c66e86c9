//! A gateway whose certificate the stored anchors do not verify: its line of authorities was replaced while the agent
//! was away. A new certificate brings the present anchors.

use std::time::Duration;

use tokio::time::Instant;

use crate::retry::Backoff;
use addon_signer_core::credentials::plan::Usable;

/// The longest pause between two requests because of it. Where something ends TLS before the gateway, no certificate
/// helps, and each request costs the hub an entry in its ledger.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Since the gateway's certificate did not verify.
#[derive(Debug)]
pub(crate) struct Distrust {
    /// The digest of the anchors that did not verify it.
    digest: String,
    /// When another certificate may be requested because of it.
    again: Instant,
    pauses: Backoff,
}

impl Distrust {
    /// A first certificate may be requested at once.
    pub(crate) fn new(usable: &Usable, first_pause: Duration) -> Self {
        Self { digest: usable.bundle.digest(), again: Instant::now(), pauses: Backoff::new(first_pause, LONGEST) }
    }

    /// Whether these are the anchors, and another certificate may be requested now.
    pub(crate) fn is_due(&self, usable: &Usable) -> bool {
        self.digest == usable.bundle.digest() && self.again <= Instant::now()
    }

    /// A new certificate with these anchors did not help either.
    pub(crate) fn repeat(&mut self, usable: &Usable) {
        self.digest = usable.bundle.digest();
        self.again = Instant::now() + self.pauses.after_failure();
    }
}
