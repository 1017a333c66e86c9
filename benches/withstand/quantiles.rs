//! Quantiles of times.

use std::time::Duration;

/// Milliseconds.
pub(crate) struct Quantiles {
    pub(crate) half: f64,
    pub(crate) most: f64,
    pub(crate) longest: f64,
}

impl Quantiles {
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
        Self { half: at(50), most: at(99), longest: at(100) }
    }
}
