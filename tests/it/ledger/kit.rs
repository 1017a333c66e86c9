//! A running writer of the ledger, and bounded waits for its state.

use addon_signer_core::journal::entry::Tip;
use addon_signer_core::journal::record::Intended;
use addon_signer_ledger::{Health, Ledger, LedgerError, LedgerMetrics, Location, WriterOptions};
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::metrics::Metrics;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Open, mk_intent, mk_signed, options, start};
use test_kit::hub::TIMEOUT;
use test_kit::wait_until;

/// A running writer. It ends some time after this value is dropped, or in [`RunningWriter::stop`].
pub(super) struct RunningWriter {
    pub(super) ledger: Ledger,
    pub(super) clock: Clock,
    metrics: (Metrics, LedgerMetrics, Location),
    writer: JoinHandle<Result<(), LedgerError>>,
}

impl RunningWriter {
    /// Starts the writer of the first leader.
    pub(super) fn start(url: &str) -> Self {
        Self::start_as(url, "hub-0", 1)
    }

    pub(super) fn start_as(url: &str, replica: &str, epoch: u64) -> Self {
        let (metrics, owned) = Metrics::new(LedgerMetrics::register);
        let location: Location = url.parse().unwrap();
        let options = WriterOptions { metrics: owned.clone(), ..options(&location, replica) };
        let clock = options.clock.clone();
        let Open { ledger, writer } = start(options, epoch);
        Self { ledger, clock, metrics: (metrics, owned, location), writer }
    }

    /// The metrics as /metrics shows them at this moment.
    pub(super) fn metrics(&self) -> String {
        let (metrics, owned, location) = &self.metrics;
        owned.observe(&self.ledger.health().borrow(), location);
        metrics.render().unwrap()
    }

    /// Waits until the writer can write; returns the last durable entry.
    pub(super) async fn up(&self) -> Tip {
        match self.health(|health| matches!(health, Health::Up { .. })).await {
            Health::Up { tip, .. } => tip,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until it records an intent. After a write that failed, only another one says that the writer can write.
    pub(super) async fn writes(&self, number: u64) {
        wait_until(TIMEOUT, "a write to succeed", async || self.ledger.intend(mk_intent(number)).await.ok()).await;
        self.up().await;
    }

    /// Waits until the writer cannot write; returns why.
    pub(super) async fn down(&self) -> LedgerError {
        self.down_by(|_| true).await
    }

    /// Waits until the writer cannot write by such an error; returns it.
    pub(super) async fn down_by(&self, is_it: impl Fn(&LedgerError) -> bool) -> LedgerError {
        match self.health(|health| matches!(health, Health::Down(error) if is_it(error))).await {
            Health::Down(error) => error,
            other => panic!("{other:?}"),
        }
    }

    async fn health(&self, wanted: impl FnMut(&Health) -> bool) -> Health {
        let mut health = self.ledger.health();
        let found = timeout(TIMEOUT, health.wait_for(wanted)).await;
        found.expect("the ledger gets there in time").expect("the writer runs").clone()
    }

    /// Waits until the writer ends by itself; returns its error.
    pub(super) async fn ended(self) -> LedgerError {
        let ended = timeout(TIMEOUT, self.writer).await.expect("the writer ends in time");
        ended.unwrap().expect_err("it ended by an error")
    }

    /// Lets the writer end normally.
    pub(super) async fn stop(self) {
        drop(self.ledger);
        timeout(TIMEOUT, self.writer).await.expect("the writer ends in time").unwrap().unwrap();
    }

    /// Records an intent and its certificate.
    pub(super) async fn issue(&self, number: u64) {
        assert_eq!(self.ledger.intend(mk_intent(number)).await, Ok(Intended::Recorded));
        self.ledger.append(mk_signed(number), "").await.unwrap();
    }
}
