//! The common parts of all metrics. Each part of the process registers its own metrics when it is made, so that
//! counters exist from the start. Names begin with `addon_signer_`; the number of their labels is bounded by the
//! reasons, and by the signers that this process has served.

use std::hash::Hash;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry as Encoded, Unit};

/// A set of labels.
pub trait Labels {
    /// Their names.
    const NAMES: &'static [&'static str];
}

impl Labels for [(&'static str, &'static str); 0] {
    const NAMES: &'static [&'static str] = &[];
}

/// Declares a set of labels, whose names are those of its fields.
#[macro_export]
macro_rules! labels {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, ::prometheus_client::encoding::EncodeLabelSet)]
        $vis struct $name { $($field: $type,)+ }
        impl $crate::metrics::Labels for $name {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];
        }
    };
}

/// Declares metrics, each with its help text, and a function that registers them in this order:
/// `pub struct Metrics { /// Help. field: Type = add("name"), … }`. A field without a name is such a struct itself.
#[macro_export]
macro_rules! metrics {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[doc = $help:literal])+
          $of:vis $field:ident: $type:ty $(= $add:ident($metric:literal $(, $more:expr)*))?,)+
    }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[doc = $help])+ $of $field: $type,)+ }

        impl $name {
            fn add_all(to: &mut $crate::metrics::Registry) -> Self {
                Self { $($field: $crate::metrics!(to, $type, [$($help),+] $(, $add, $metric $(, $more)*)?),)+ }
            }
        }
    };
    ($to:ident, $type:ty, [$($help:literal),+]) => { <$type>::register($to) };
    ($to:ident, $type:ty, [$($help:literal),+], $add:ident, $metric:literal $(, $more:expr)*) => {
        $crate::metrics::$add($to, $metric, concat!($($help),+).trim_start().trim_end_matches('.') $(, $more)*)
    };
}

labels! {
    /// Label: which signer, by the name of its AddOnSigner.
    pub struct SignerLabel { signer: String, }
}

/// A metric whose type defines its kind and its labels.
pub trait Described: TypedMetric {
    /// The names of its labels.
    const LABELS: &'static [&'static str] = &[];
}

impl Described for Counter {}
impl Described for Gauge {}
impl Described for Histogram {}
impl<L: Labels + Clone + Eq + Hash, M: TypedMetric> Described for Family<L, M> {
    const LABELS: &'static [&'static str] = L::NAMES;
}

/// A metric: a row of `docs/reference.md`.
#[derive(Debug, Clone)]
pub struct Description {
    /// The name of its samples.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: MetricType,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts.
    pub help: String,
}

/// The registry of metrics, with their descriptions: metrics without a sample are not printed.
#[derive(Debug)]
pub struct Registry {
    encoded: Encoded,
    described: Vec<Description>,
}

/// A registry that is not exported.
impl Default for Registry {
    fn default() -> Self {
        Self { encoded: Encoded::with_prefix("addon_signer"), described: Vec::new() }
    }
}

impl Registry {
    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// When the text cannot be formatted.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.encoded)?;
        Ok(text)
    }

    fn describe<M: Described>(&mut self, name: &str, suffix: &str, help: &str) {
        let name = format!("addon_signer_{name}{suffix}");
        self.described.push(Description { name, kind: M::TYPE, labels: M::LABELS, help: help.to_owned() });
    }
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
    /// The metrics that `register` registers, and the handles that it returns.
    pub fn new<T>(register: impl FnOnce(&mut Registry) -> T) -> (Self, T) {
        let mut registry = Registry::default();
        let owners = register(&mut registry);
        (Self(Arc::new(registry)), owners)
    }

    /// The descriptions of all metrics, in the order of registration.
    pub fn described(&self) -> &[Description] {
        &self.0.described
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// When the text cannot be formatted.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        self.0.render()
    }
}

/// Registers a counter, a gauge, or a family of them.
pub fn add<M: Metric + Default + Clone + Described>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.describe::<M>(name, if matches!(M::TYPE, MetricType::Counter) { "_total" } else { "" }, help);
    registry.encoded.register(name, help, metric.clone());
    metric
}

/// Registers a histogram of durations in seconds, whose name gets the suffix `_seconds`. The bounds of its buckets
/// double from `first`.
pub fn add_seconds(registry: &mut Registry, name: &str, help: &str, first: f64, buckets: u16) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(first, 2.0, buckets));
    registry.describe::<Histogram>(name, "_seconds", help);
    registry.encoded.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}

/// Starts the counter of a signer at zero, unless it exists. `increase` would miss a count that is the counter's first
/// value.
pub fn at_zero(family: &Family<SignerLabel, Counter>, signer: &str) {
    drop(family.get_or_create(&SignerLabel::of(signer)));
}

/// A number as the value of a gauge.
pub fn count(things: usize) -> i64 {
    i64::try_from(things).unwrap_or(i64::MAX)
}
