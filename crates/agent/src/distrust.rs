//! A gateway whose certificate the stored anchors do not verify: its line of authorities was replaced while the agent
//! was not running. A new certificate brings the present anchors.

use std::time::Duration;

use tokio::time::Instant;

use crate::retry::Backoff;

/// The longest pause between two requests made for this reason. Where something terminates TLS in front of the gateway,
/// no certificate helps, and each request costs the hub an entry in its ledger.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Whether the gateway's certificate verified when it was last seen, and when a certificate may be requested because it
/// did not.
#[derive(Debug)]
pub(crate) struct Distrust {
    is_untrusted: bool,
    requested: Instant,
    again: Instant,
    first_pause: Duration,
    pauses: Backoff,
}

impl Distrust {
    pub(crate) fn new(first_pause: Duration) -> Self {
        let (now, pauses) = (Instant::now(), Backoff::new(first_pause, LONGEST));
        Self { is_untrusted: false, requested: now, again: now, first_pause, pauses }
    }

    /// Notes whether the gateway's certificate verified. The pauses stay: behind some load balancers only one of
    /// several gateways can be verified.
    pub(crate) fn saw(&mut self, is_untrusted: bool) {
        self.is_untrusted = is_untrusted;
    }

    /// Whether a certificate may be requested now, because the gateway's did not verify.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_untrusted && self.again <= now
    }

    /// A certificate came, with other anchors than the stored ones or with the same.
    pub(crate) fn came(&mut self, has_other_anchors: bool, now: Instant) {
        if has_other_anchors || now.duration_since(self.requested) >= 2 * LONGEST {
            self.pauses = Backoff::new(self.first_pause, LONGEST);
        }
        self.requested = now;
        self.again = now + self.pauses.after_failure();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a certificate come, and time pass until another one is due; returns the seconds.
    fn pause(distrust: &mut Distrust, has_other_anchors: bool, now: &mut Instant) -> u64 {
        distrust.came(has_other_anchors, *now);
        let begun = *now;
        while !distrust.is_due(*now) {
            *now += Duration::from_secs(1);
        }
        now.duration_since(begun).as_secs()
    }

    #[test]
    fn certificates_that_do_not_help_are_requested_less_often() {
        let mut distrust = Distrust::new(Duration::from_secs(30));
        let mut now = Instant::now();
        assert!(!distrust.is_due(now), "nothing was seen");
        distrust.saw(true);
        assert!(distrust.is_due(now), "the first one at once");
        for expected in [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
            let pause = pause(&mut distrust, false, &mut now);
            assert!((expected * 4 / 5..=expected * 6 / 5 + 1).contains(&pause), "{pause} s, not {expected} s");
            distrust.saw(false);
            assert!(!distrust.is_due(now));
            distrust.saw(true);
        }
        assert!(pause(&mut distrust, true, &mut now) <= 37, "other anchors start over");
        now += 2 * LONGEST;
        assert!(pause(&mut distrust, false, &mut now) <= 37, "so does a long time");
    }
}
