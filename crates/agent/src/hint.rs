//! The gateway hints to the holder of a certificate from a tainted authority to renew it within some time. All agents
//! get the hint at about the same time, so each renews at a random moment within it.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;

/// When a certificate is to be renewed because the gateway said so.
#[derive(Debug, Default)]
pub(crate) struct RenewalHint(Option<(CertificateDer<'static>, Instant)>);

impl RenewalHint {
    /// Notes what the gateway has answered to the holder of this certificate. The first time counts: the moment does
    /// not move when the gateway says it again.
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
