//! How long to wait after failures.

use std::time::Duration;

/// `shortest`, doubled once for each of `failures`, but never more than `longest`.
pub fn doubled(shortest: Duration, failures: u32, longest: Duration) -> Duration {
    shortest.saturating_mul(2_u32.saturating_pow(failures)).min(longest)
}
