//! What all metrics share. Each part of the process registers its own metrics when it is made, so that counters are
//! there from the start. Names begin with `addon_signer_`; labels are bounded by the number of reasons, and of the
//! signers that this process has served.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};

/// Label: which signer, by the name of its AddOnSigner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SignerLabel {
    signer: String,
}

impl SignerLabel {
    /// The label of this signer.
    pub fn of(signer: &str) -> Self {
        Self { signer: signer.to_owned() }
    }
}

/// All metrics of the process.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Registry>);

impl Metrics {
    /// The metrics that `register` registers, and what it returns: the handles of their owners.
    pub fn new<T>(register: impl FnOnce(&mut Registry) -> T) -> (Self, T) {
        let mut registry = Registry::with_prefix("addon_signer");
        let owners = register(&mut registry);
        (Self(Arc::new(registry)), owners)
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// When the text cannot be formatted.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0)?;
        Ok(text)
    }
}

/// Registers a counter, a gauge, or a family of them.
pub fn add<M: Metric + Default + Clone>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a histogram of durations in seconds, whose name gets the suffix `_seconds`. The bounds of its buckets
/// double from `first`.
pub fn add_seconds(registry: &mut Registry, name: &str, help: &str, first: f64, buckets: u16) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(first, 2.0, buckets));
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}

/// Puts the counter of a signer at zero, unless it is there. With the first count as its first value, `increase` would
/// miss it.
pub fn at_zero(family: &Family<SignerLabel, Counter>, signer: &str) {
    drop(family.get_or_create(&SignerLabel::of(signer)));
}

/// A number of things as a gauge has it.
pub fn count(things: usize) -> i64 {
    i64::try_from(things).unwrap_or(i64::MAX)
}
