//! Whether the stored anchors are outdated: the gateway that they verify publishes others, or they do not verify the
//! server at its address and the hub publishes others. A new certificate brings the current anchors. The agent believes
//! the gateway only so far: each CSR costs the hub an entry in its ledger, and a gateway that was taken over could make
//! all agents request one after another.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::enrol::Enroller;
use crate::retry::Backoff;
use addon_signer_core::credentials::Usable;

/// The longest pause between two CSRs made because of the gateway. Where a proxy terminates TLS in front of the
/// gateway, no certificate helps. OCM allows ten CSRs for an addon, and Kubernetes keeps each for up to two hours: with
/// these pauses there are eight at most.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The longest pause between two checks of the CSRs on the hub, which Kubernetes deletes an hour after they were
/// issued.
const LONGEST_POLL: Duration = Duration::from_secs(900);

/// What was last seen of the gateway's anchors, and when a certificate may be requested because of the gateway.
#[derive(Debug)]
pub(crate) struct Outdated {
    is_outdated: bool,
    requested: Instant,
    again: Instant,
    first_pause: Duration,
    pauses: Backoff,
    next_poll: Instant,
    polls: Backoff,
}

impl Outdated {
    pub(crate) fn new(first_pause: Duration) -> Self {
        let now = Instant::now();
        let [pauses, polls] = [LONGEST, LONGEST_POLL].map(|longest| Backoff::new(first_pause, longest));
        Self { is_outdated: false, requested: now, again: now, first_pause, pauses, next_poll: now, polls }
    }

    /// Notes whether the stored anchors are outdated. The pauses stay, because behind some load balancers only one of
    /// several gateways can be verified.
    pub(crate) fn saw(&mut self, is_outdated: bool) {
        self.is_outdated = is_outdated;
    }

    /// Whether to request a certificate now, because the anchors are outdated.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_outdated && self.rest(now).is_zero()
    }

    /// How long no certificate may be requested because of the gateway, whatever it reports.
    pub(crate) fn rest(&self, now: Instant) -> Duration {
        self.again.saturating_duration_since(now)
    }

    /// Asks the hub whether these anchors are outdated. They do not verify the server at the gateway's address.
    pub(crate) async fn compare(&mut self, enroller: &Enroller, usable: &Usable) {
        if !self.may_compare(Instant::now()) {
            return;
        }
        match enroller.may_have_newer_anchors(usable).await {
            Ok(may_have) => self.saw(may_have),
            Err(error) => warn!(%error, "Cannot ask the hub for its present anchors"),
        }
    }

    /// Whether the hub may be asked now. A stranger at the gateway's address makes agents ask.
    fn may_compare(&mut self, now: Instant) -> bool {
        let may = now >= self.next_poll;
        if may {
            self.next_poll = now + self.polls.after_failure();
        }
        may
    }

    /// Notes a new certificate. Its anchors are the current ones, whether they differ from the stored ones or not.
    pub(crate) fn came(&mut self, has_other_anchors: bool, now: Instant) {
        if has_other_anchors || now.duration_since(self.requested) >= 2 * LONGEST {
            self.pauses = Backoff::new(self.first_pause, LONGEST);
        }
        self.is_outdated = false;
        self.requested = now;
        self.again = now + self.pauses.after_failure();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes a certificate, and lets time pass until another one is due; returns the seconds.
    fn pause(outdated: &mut Outdated, has_other_anchors: bool, now: &mut Instant) -> u64 {
        outdated.came(has_other_anchors, *now);
        assert!(!outdated.is_due(*now + 2 * LONGEST), "they are the present ones");
        outdated.saw(true);
        let begun = *now;
        while !outdated.is_due(*now) {
            *now += Duration::from_secs(1);
        }
        now.duration_since(begun).as_secs()
    }

    #[test]
    fn certificates_that_do_not_help_are_requested_less_often() {
        let mut outdated = Outdated::new(Duration::from_secs(30));
        let mut now = Instant::now();
        assert!(!outdated.is_due(now), "nothing was seen");
        outdated.saw(true);
        assert!(outdated.is_due(now), "the first one at once");
        for expected in [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
            let pause = pause(&mut outdated, false, &mut now);
            assert!((expected * 4 / 5..=expected * 6 / 5 + 1).contains(&pause), "{pause} s, not {expected} s");
            outdated.saw(false);
            assert!(!outdated.is_due(now));
            outdated.saw(true);
        }
        assert!(pause(&mut outdated, true, &mut now) <= 37, "other anchors start over");
        now += 2 * LONGEST;
        assert!(pause(&mut outdated, false, &mut now) <= 37, "so does a long time");
    }
    #[test]
    fn the_hub_is_asked_less_often_and_four_times_an_hour() {
        let mut outdated = Outdated::new(Duration::from_secs(30));
        let begun = Instant::now();
        let seconds: Vec<u64> = (0..86_400).filter(|n| outdated.may_compare(begun + Duration::from_secs(*n))).collect();
        assert_eq!(seconds[0], 0, "the first time at once");
        assert!(seconds.windows(2).all(|pair| (24..=1_081).contains(&(pair[1] - pair[0]))), "{seconds:?}");
        assert!(seconds.len() < 140, "{seconds:?}");
    }
}
