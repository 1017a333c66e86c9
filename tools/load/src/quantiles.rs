//! Quantiles of times.

use std::time::Duration;

/// Milliseconds.
pub struct Quantiles {
    pub half: f64,
    pub most: f64,
    pub longest: f64,
}

impl Quantiles {
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
        Self { half: at(50), most: at(99), longest: at(100) }
    }
}
