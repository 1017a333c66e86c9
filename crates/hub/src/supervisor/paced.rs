//! Slows down the condition `TrustDistributed`. Each cluster can change its message as often as it likes, by reporting
//! in turn that it has applied its ManifestWork and that it has not.

use std::time::Duration;

use tokio::time::Instant;

use crate::distribution::steps::Reached;
use addon_signer_api::status::ConditionValue;
use addon_signer_core::doubling::doubled;

/// The pauses between two changes double between these. After the longest without a change the next is the shortest
/// again.
const SHORTEST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(600);

/// What was reported for one AddOnSigner.
pub(super) struct Paced {
    told: ConditionValue,
    /// The digest of the trust bundle that this was about.
    bundle: String,
    /// The most addons that had it.
    most: usize,
    /// How many changes were not progress.
    times: u32,
    /// When the next such change may be reported.
    again: Instant,
}

impl Paced {
    /// What to report now, after `before`. More addons with a bundle than ever before are reported at once, so that
    /// people can follow a rotation; so is the first change after a quiet time.
    pub(super) fn say(before: Option<Self>, reached: Reached, bundle: String) -> Self {
        let (now, most) = (Instant::now(), reached.present());
        let told = reached.condition();
        let before = match before {
            Some(before) if before.bundle == bundle => before,
            _ => return Self { told, bundle, most, times: 0, again: now },
        };
        let is_progress = most > before.most;
        if told == before.told || (!is_progress && now < before.again) {
            return before;
        }
        if is_progress {
            return Self { told, most, ..before };
        }
        let times = if now >= before.again + LONGEST { 0 } else { before.times };
        Self { told, again: now + doubled(SHORTEST, times, LONGEST), times: times.saturating_add(1), ..before }
    }

    pub(super) fn told(&self) -> ConditionValue {
        self.told.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(before: Option<Paced>, present: usize, bundle: &str) -> Paced {
        Paced::say(before, Reached::of(present, 100), bundle.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn flapping_cluster_changes_message_with_growing_pauses() {
        let mut paced = say(None, 100, "a");
        let mut changes = Vec::new();
        for round in 0..240_usize {
            let before = paced.told();
            paced = say(Some(paced), 100 - (round + 1) % 2, "a");
            if paced.told() != before {
                changes.push(15 * round);
            }
            tokio::time::advance(SHORTEST).await;
        }
        assert_eq!(changes, [0, 15, 60, 135, 270, 525, 1020, 1635, 2250, 2865, 3480], "in an hour");
        tokio::time::advance(2 * LONGEST).await;
        let calm = say(Some(say(Some(paced), 90, "a")), 90, "a");
        tokio::time::advance(SHORTEST).await;
        assert_eq!(say(Some(calm), 91, "a").told(), Reached::of(91, 100).condition(), "it begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn progress_and_another_bundle_are_said_at_once() {
        let mut paced = say(None, 100, "a");
        for present in 0..=100 {
            paced = say(Some(paced), present, "b");
            assert_eq!(paced.told(), Reached::of(present, 100).condition());
        }
        paced = say(Some(paced), 99, "b");
        assert_eq!(say(Some(paced), 98, "b").told(), Reached::of(99, 100).condition(), "that is no progress");
    }
}
