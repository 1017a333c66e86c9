//! When to try again. Pauses grow exponentially up to a cap, with jitter, so that the agents of a fleet do not all
//! retry at the same moment.

use std::time::Duration;

use addon_signer_core::doubling::doubled;
use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;

/// Pauses that double from `first` to `cap`.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, failures: 0 }
    }

    /// The pause after one more failure.
    pub(crate) fn after_failure(&mut self) -> Duration {
        let pause = doubled(self.first, self.failures, self.cap);
        self.failures = self.failures.saturating_add(1);
        jittered(pause)
    }

    /// The pause after a success. A later failure starts a new series.
    pub(crate) fn after_success(&mut self) -> Duration {
        self.failures = 0;
        jittered(self.first)
    }
}

/// The time until then.
pub(crate) fn until(instant: Instant) -> Duration {
    instant.saturating_duration_since(Instant::now())
}

/// Between 80 and 120 % of `pause`.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let mut byte = [128_u8];
    // Without random bytes the pause has no jitter. Nothing secret depends on it.
    let _ = SystemRandom::new().fill(&mut byte);
    let [byte] = byte;
    pause.saturating_mul(800 + u32::from(byte) * 400 / 255) / 1000
}

/// When a certificate is to be renewed because of the gateway's hint.
#[derive(Debug, Default)]
pub(crate) struct RenewalHint(Option<(CertificateDer<'static>, Instant)>);

impl RenewalHint {
    /// Notes the gateway's response to the client with this certificate. The first hint counts: a repeated one does not
    /// move the moment.
    pub(crate) fn hear(&mut self, certificate: &CertificateDer<'static>, within: Option<Duration>, now: Instant) {
        let Some(within) = within.filter(|_| self.moment(certificate).is_none()) else { return };
        self.0 = Some((certificate.clone(), now + within.mul_f64(part())));
    }

    /// Time until the gateway's renewal hint for this certificate; `MAX` without a hint.
    pub(crate) fn rest(&self, certificate: &CertificateDer<'_>) -> Duration {
        self.moment(certificate).map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    fn moment(&self, certificate: &CertificateDer<'_>) -> Option<Instant> {
        self.0.as_ref().filter(|(of, _)| of == certificate).map(|(_, moment)| *moment)
    }
}

/// At random, from 0 to 1.
fn part() -> f64 {
    let mut bytes = [u8::MAX; 4];
    let _ = SystemRandom::new().fill(&mut bytes); // without random bytes it renews at the end: nothing secret here
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(pause: Duration, seconds: u64) -> bool {
        let middle = Duration::from_secs(seconds);
        pause >= middle * 4 / 5 && pause <= middle * 6 / 5
    }

    #[test]
    fn pauses_double_up_to_the_cap_and_start_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(600));
        for expected in [30, 60, 120, 240, 480, 600, 600] {
            assert!(near(backoff.after_failure(), expected), "{expected}");
        }
        assert!(near(backoff.after_success(), 30));
        assert!(near(backoff.after_failure(), 30));
    }

    #[test]
    fn thousands_of_failures_stay_at_the_cap() {
        let mut backoff = Backoff::new(Duration::from_secs(30), Duration::from_secs(600));
        let last = (0..5000).map(|_| backoff.after_failure()).last().unwrap();
        assert!(near(last, 600));
    }

    #[test]
    fn a_moment_is_within_the_time_and_of_one_certificate() {
        let [one, other] = [1_u8, 2].map(|byte| CertificateDer::from(vec![byte]));
        let (now, within) = (Instant::now(), Duration::from_secs(1_000));
        let mut moments = Vec::new();
        for _ in 0..20 {
            let mut hint = RenewalHint::default();
            hint.hear(&one, None, now);
            assert_eq!(hint.moment(&one), None);
            hint.hear(&one, Some(within), now);
            let moment = hint.moment(&one).unwrap();
            assert!(moment >= now && moment <= now + within);
            hint.hear(&one, Some(within), now + within);
            assert_eq!((hint.moment(&one), hint.moment(&other)), (Some(moment), None), "it stays");
            assert!(hint.rest(&one) <= within && hint.rest(&other) == Duration::MAX);
            moments.push(moment);
        }
        moments.dedup();
        assert!(moments.len() > 10, "agents do not all renew at the same moment");
    }
}
