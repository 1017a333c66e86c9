//! What the hub knows of one AddOnSigner, and what it has reported of how far the trust bundle has reached.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{PERMISSION_AGE, ROUND};
use crate::authorities::reconciler::{LineagePlan, Reserve};
use crate::authorities::state::LineageState;
use crate::conditions::Validity;
use crate::distribution::steps::Reached;
use addon_signer_api::AddOnSigner;
use addon_signer_api::rules::SignerConfig;
use addon_signer_api::status::ConditionValue;
use addon_signer_core::doubling::doubled;

/// An AddOnSigner: its object, and what the hub does for it.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) read: Read,
    /// `metadata.uid` of the object that [`Self::state`] belongs to.
    pub(super) uid: Option<String>,
    pub(super) state: SignerState,
    /// Whether it has a lineage of authorities, or may create one.
    pub(super) has_lineage: bool,
}

/// What the watch last showed.
#[derive(Default)]
pub(super) enum Read {
    /// A readable object.
    Object(Box<AddOnSigner>),
    /// An unreadable object.
    Undecodable {
        error: String,
        /// Whether its status has the error, or a call that writes it is under way.
        is_reported: bool,
    },
    /// No object that takes effect: it was deleted, is being deleted, or exceeds the limit.
    #[default]
    Removed,
}

/// What the hub does for the object.
pub(super) enum SignerState {
    /// Nothing, and no reason is reported. Like `Refused` it keeps the last configuration with which it was served.
    Idle(Option<Arc<SignerConfig>>),
    /// It does not serve the object, for this reason and with this message.
    Refused((&'static str, String), Option<Arc<SignerConfig>>),
    /// It serves the object.
    Served(Served),
}

impl Default for SignerState {
    fn default() -> Self {
        Self::Idle(None)
    }
}

/// What runs for an AddOnSigner that the hub serves.
pub(super) struct Served {
    pub(super) lineage: watch::Sender<LineageState>,
    pub(super) plan: watch::Sender<LineagePlan>,
    pub(super) config: watch::Sender<Arc<SignerConfig>>,
    pub(super) reserve: mpsc::Sender<Reserve>,
    /// Whether the hub's account may sign for it, by the API server's last response, and its lineage has a permit.
    pub(super) permission: Validity,
    /// When the API server was last asked.
    pub(super) asked: Option<Instant>,
    pub(super) keeping: CancellationToken,
    /// The last report of how far the trust bundle has reached.
    pub(super) paced: Option<Paced>,
}

impl Entry {
    pub(super) fn object(&self) -> Option<&AddOnSigner> {
        match &self.read {
            Read::Object(object) => Some(object),
            Read::Undecodable { .. } | Read::Removed => None,
        }
    }

    pub(super) fn object_mut(&mut self) -> Option<&mut AddOnSigner> {
        match &mut self.read {
            Read::Object(object) => Some(object),
            Read::Undecodable { .. } | Read::Removed => None,
        }
    }

    pub(super) fn is_undecodable(&self) -> bool {
        matches!(self.read, Read::Undecodable { .. })
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.read, Read::Removed)
    }

    pub(super) fn served(&self) -> Option<&Served> {
        match &self.state {
            SignerState::Served(served) => Some(served),
            SignerState::Idle(_) | SignerState::Refused(..) => None,
        }
    }

    pub(super) fn served_mut(&mut self) -> Option<&mut Served> {
        match &mut self.state {
            SignerState::Served(served) => Some(served),
            SignerState::Idle(_) | SignerState::Refused(..) => None,
        }
    }

    /// Stops serving it, for this reason. Returns whether the reason is new.
    pub(super) fn refuse(&mut self, refusal: (&'static str, String)) -> bool {
        let is_new = !matches!(&self.state, SignerState::Refused((reason, _), _) if *reason == refusal.0);
        self.state = SignerState::Refused(refusal, self.take_last());
        is_new
    }

    /// Takes the last configuration with which it was served, unless it is served now.
    pub(super) fn take_last(&mut self) -> Option<Arc<SignerConfig>> {
        match &mut self.state {
            SignerState::Idle(last) | SignerState::Refused(_, last) => last.take(),
            SignerState::Served(_) => None,
        }
    }
}

impl Served {
    /// Whether the right to sign is missing, or was last asked about long ago.
    pub(super) fn is_unsure(&self) -> bool {
        self.permission.is_err() || self.asked.is_none_or(|asked| asked.elapsed() >= PERMISSION_AGE)
    }

    /// Whether the last review is old enough for a refusal of the API server to be news.
    pub(super) fn may_have_changed(&self) -> bool {
        self.asked.is_none_or(|asked| asked.elapsed() >= ROUND)
    }
}

/// The pauses between two changes double between these. After the longest pause without a change they start again with
/// the shortest.
const SHORTEST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(600);

/// What was reported for one AddOnSigner.
pub(super) struct Paced {
    pub(super) condition: ConditionValue,
    /// The digest of that trust bundle.
    bundle: String,
    /// The largest number of addons that had it.
    most: usize,
    /// The number of changes that were no progress.
    times: u32,
    /// When the next such change may be reported.
    again: Instant,
}

impl Paced {
    /// What to report now, after `before`. A new maximum of addons with the bundle is reported at once, so that
    /// administrators can follow a rotation; so is the first change after a quiet time.
    pub(super) fn say(before: Option<Self>, reached: Reached, bundle: String) -> Self {
        let (now, most) = (Instant::now(), reached.present());
        let condition = reached.condition();
        let before = match before {
            Some(before) if before.bundle == bundle => before,
            _ => return Self { condition, bundle, most, times: 0, again: now },
        };
        let is_progress = most > before.most;
        if condition == before.condition || (!is_progress && now < before.again) {
            return before;
        }
        if is_progress {
            return Self { condition, most, ..before };
        }
        let times = if now >= before.again + LONGEST { 0 } else { before.times };
        Self { condition, again: now + doubled(SHORTEST, times, LONGEST), times: times.saturating_add(1), ..before }
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
            let before = paced.condition.clone();
            paced = say(Some(paced), 100 - (round + 1) % 2, "a");
            if paced.condition != before {
                changes.push(15 * round);
            }
            tokio::time::advance(SHORTEST).await;
        }
        assert_eq!(changes, [0, 15, 60, 135, 270, 525, 1020, 1635, 2250, 2865, 3480], "in an hour");
        tokio::time::advance(2 * LONGEST).await;
        let calm = say(Some(say(Some(paced), 90, "a")), 90, "a");
        tokio::time::advance(SHORTEST).await;
        assert_eq!(say(Some(calm), 91, "a").condition, Reached::of(91, 100).condition(), "it begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn progress_and_another_bundle_are_said_at_once() {
        let mut paced = say(None, 100, "a");
        for present in 0..=100 {
            paced = say(Some(paced), present, "b");
            assert_eq!(paced.condition, Reached::of(present, 100).condition());
        }
        paced = say(Some(paced), 99, "b");
        assert_eq!(say(Some(paced), 98, "b").condition, Reached::of(99, 100).condition(), "that is no progress");
    }
}
