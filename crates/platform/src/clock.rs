//! The only place that reads the time of day. All other code receives a [`Clock`] or a [`Timestamp`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use addon_signer_core::timestamp::Timestamp;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

/// The system's time of day, which tests can shift.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    ahead: Arc<AtomicI64>,
}

impl Clock {
    /// The time now. A system clock before 1970 reads as 1970: every certificate is then not yet valid.
    pub fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_unix(seconds.saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    /// Moves this clock and all its clones ahead, so that a test need not wait for a certificate to expire.
    pub fn advance(&self, by: Duration) {
        self.ahead.fetch_add(i64::try_from(by.as_secs()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Moves this clock and all its clones back, so that a test can make something that is already old.
    pub fn set_back(&self, by: Duration) {
        self.ahead.fetch_sub(i64::try_from(by.as_secs()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

/// So a TLS connection judges certificates by the same clock as everything else.
impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.now().unix()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
