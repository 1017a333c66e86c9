//! Metrics of the ledger.

use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{Health, Location};
use addon_signer_telemetry::metrics;
use addon_signer_telemetry::metrics::Registry;

metrics! {
    /// Whether the ledger can be written to, how long that takes, and how much space is left.
    #[derive(Debug, Clone)]
    pub struct LedgerMetrics {
        /// 1 if the last attempt to record something succeeded; 0 while nothing is signed, also in a hub that waits for
        /// the Lease.
        up: Gauge = add("ledger_up"),
        /// Number of the ledger's last entry.
        entries: Gauge = add("ledger_entries"),
        /// Bytes left on the disk of a ledger in SQLite; absent with PostgreSQL.
        available: Family<[(&'static str, &'static str); 0], Gauge> = add("ledger_available_bytes"),
        /// Time until a transaction of the ledger was durable.
        commit: Histogram = add_seconds("ledger_commit", 5e-4, 16),
    }
}

/// Metrics that are not exported.
impl Default for LedgerMetrics {
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}

impl LedgerMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        Self::add_all(registry)
    }

    pub(super) fn committed(&self, time: Duration) {
        self.commit.observe(time.as_secs_f64());
    }

    /// Sets the gauges to the ledger's present state.
    pub fn observe(&self, health: &Health, location: &Location) {
        let tip = match health {
            Health::Up { tip, .. } => Some(tip.seq),
            Health::Starting | Health::Down(_) => None,
        };
        self.up.set(i64::from(tip.is_some()));
        if let Some(last) = tip {
            self.entries.set(i64::try_from(last).unwrap_or(i64::MAX));
        }
        if let Some(bytes) = location.available() {
            self.available.get_or_create(&[]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }
}
