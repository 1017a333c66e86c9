//! Whether a ValidatingAdmissionPolicy of the chart is in force. Nothing reports a policy that was deleted, not applied
//! or set to `Audit`, so the hub tries in a dry run what the policy forbids, and relies on the policy only while the
//! API server refuses that and names the policy.

use std::sync::Arc;
use std::time::Duration;

use kube::Error;
use kube::core::Status;
use tokio::time::Instant;
use tracing::{debug, warn};

use addon_signer_core::conditions::{POLICY_MISSING, POLICY_UNKNOWN, REFUSES_HUB};
use addon_signer_core::doubling::doubled;
use addon_signer_platform::errors::explain;

/// How often the hub asks while the policy is in force or not needed; after a refusal it asks at once.
pub(super) const RIGHT_AGE: Duration = Duration::from_secs(600);
/// How long a response counts without being confirmed.
pub(super) const BELIEVED: Duration = Duration::from_secs(2 * RIGHT_AGE.as_secs());
/// How often the hub asks while the policy is needed and not in force.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(60);
/// The first pause after a dry run that the policy should have refused; the pauses double, because a policy takes
/// effect only some seconds after it was applied.
const SHORTEST: Duration = Duration::from_secs(1);
/// Pause after a dry run without a response.
pub(super) const UNKNOWN: Duration = Duration::from_secs(15);
/// How often a dry run without a response is logged.
const WARNING: Duration = Duration::from_secs(60);

/// The most bytes that are kept of a refusal's message.
const MESSAGE_MAX: usize = 512;

/// What the hub may do with a right that a policy must restrict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Right {
    /// Nothing.
    Missing,
    /// Possibly everything that the policy forbids.
    Unguarded(PolicyProblem),
    /// What the policy allows.
    Guarded,
}

/// Why the hub does not rely on a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyProblem {
    /// The API server accepts what the policy forbids.
    Missing,
    /// The dry run of what the policy forbids had another result.
    Unknown(Arc<str>),
    /// The policy lets only another account do what the hub does; its message says which.
    RefusesHub(Arc<str>),
}

impl PolicyProblem {
    /// The reason of a condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Missing => POLICY_MISSING,
            Self::Unknown(_) => POLICY_UNKNOWN,
            Self::RefusesHub(_) => REFUSES_HUB,
        }
    }
}

/// A policy, and how the hub tries it.
pub(super) trait PolicyDryRun {
    /// The name of the policy, to which an administrator may have added a prefix or a suffix.
    const POLICY: &'static str;

    /// Tries what the policy forbids. An error means that nothing was learned.
    async fn attempt(&self) -> Result<Right, Error>;

    /// Logs a new result.
    fn log(&self, right: &Right);
}

/// The meaning of a response to a dry run. An error means that nothing was learned.
pub(super) fn judge<A>(policy: &str, answer: Result<A, Error>) -> Result<Right, Error> {
    match answer {
        Ok(_) => Ok(Right::Unguarded(PolicyProblem::Missing)),
        Err(Error::Api(status)) if is_by(policy, &status) => Ok(Right::Guarded),
        // Admission accepted it: it comes before the storage, which happens to have an object of this name.
        Err(Error::Api(status)) if status.is_already_exists() => Ok(Right::Unguarded(PolicyProblem::Missing)),
        // A conflict means that another client changed the object in between.
        Err(Error::Api(status)) if !status.is_conflict() && is_lasting(&status) => {
            let mut text = status.message.clone();
            text.truncate(text.floor_char_boundary(MESSAGE_MAX));
            Ok(Right::Unguarded(PolicyProblem::Unknown(text.into())))
        }
        Err(error) => Err(error),
    }
}

/// Whether it is the policy's refusal. If several policies refuse, the API server names any one of them; if it names
/// another one, the hub does not know whether ours is in force. Source: k8s.io/apiserver
/// `pkg/admission/plugin/policy/validating/dispatcher.go`, and `policySource` for the order.
fn is_by(policy: &str, status: &Status) -> bool {
    let named = status.message.split_once("ValidatingAdmissionPolicy '").and_then(|(_, text)| text.split_once('\''));
    named.is_some_and(|(name, text)| name.contains(policy) && text.starts_with(" with binding '"))
}

/// The policy's message, if it is the policy's refusal.
pub(super) fn denial_of<'s>(policy: &str, status: &'s Status) -> Option<&'s str> {
    let text = status.message.split_once(" denied request: ").map(|(_, text)| text);
    text.filter(|_| is_by(policy, status))
}

/// Whether it answers the dry run. The API server returns 429 or 5xx if it, or a webhook, cannot answer now.
fn is_lasting(status: &Status) -> bool {
    status.code < 500 && status.code != 429
}

/// The state of a policy, and when the hub asks again.
pub(super) struct Asking<T> {
    pub(super) dry_run: T,
    /// The last result, while it counts.
    pub(super) last: Option<Right>,
    /// When the hub last asked.
    asked: Instant,
    /// When the API server last answered.
    answered: Instant,
    /// When the hub asks again.
    pub(super) at: Instant,
    /// How many times in a row the policy was not in force.
    in_turn: u32,
    /// When the API server last accepted what the policy forbids, although the dry run had shown the policy in force.
    refuted: Option<Instant>,
    /// When a dry run without a response was last logged.
    warned: Option<Instant>,
}

impl<T: PolicyDryRun> Asking<T> {
    pub(super) fn new(dry_run: T) -> Self {
        let now = Instant::now();
        Self { dry_run, last: None, asked: now, answered: now, at: now, in_turn: 0, refuted: None, warned: None }
    }

    /// The result after too long without a response: the hub may have the right, and cannot check the policy.
    pub(super) fn too_late(&self) -> Option<Right> {
        self.last.clone().filter(|last| matches!(last, Right::Unguarded(_)))
    }

    pub(super) fn is_due(&self) -> bool {
        self.at <= Instant::now()
    }

    /// Makes the hub ask again soon after the API server has refused a write. Either the hub has lost the right, or the
    /// refusal had another cause, for example a quota.
    pub(super) fn ask_soon(&mut self) {
        self.at = self.at.min(self.asked + UNKNOWN);
    }

    /// Treats the policy as missing, because the API server accepted what it forbids, and makes the hub ask again after
    /// a pause that doubles each time in a row.
    pub(super) fn refute(&mut self) {
        self.believe(Right::Unguarded(PolicyProblem::Missing));
        self.at = Instant::now() + doubled(SHORTEST, self.in_turn, ASK_AGAIN);
        self.in_turn = self.in_turn.saturating_add(1);
        self.refuted = Some(Instant::now());
    }

    /// Asks the API server, and logs what is new. `None` without a response: the last result then counts for a while
    /// longer.
    pub(super) async fn ask(&mut self) -> Option<Right> {
        self.asked = Instant::now();
        self.at = self.asked + UNKNOWN;
        match self.dry_run.attempt().await {
            // An API server that starts, or whose own authentication fails, refuses for a moment.
            Ok(Right::Unguarded(PolicyProblem::Unknown(text))) if self.is_confirmed() => {
                self.go_on_without(&text);
                None
            }
            Ok(right) => {
                let is_unguarded = matches!(right, Right::Unguarded(_));
                let pause = if is_unguarded { doubled(SHORTEST, self.in_turn, ASK_AGAIN) } else { RIGHT_AGE };
                if is_unguarded {
                    self.in_turn = self.in_turn.saturating_add(1);
                } else if self.refuted.is_none_or(|at| at.elapsed() >= RIGHT_AGE) {
                    self.in_turn = 0;
                }
                self.answered = Instant::now();
                self.at = self.answered + pause;
                self.believe(right.clone());
                Some(right)
            }
            Err(error) => {
                self.go_on_without(&explain(&error));
                None
            }
        }
    }

    /// Whether the policy was recently seen in force.
    fn is_confirmed(&self) -> bool {
        self.last == Some(Right::Guarded) && self.answered.elapsed() < BELIEVED
    }

    fn believe(&mut self, right: Right) {
        if self.last.as_ref() != Some(&right) {
            self.dry_run.log(&right);
        }
        self.last = Some(right);
    }

    fn go_on_without(&mut self, error: &str) {
        let policy = T::POLICY;
        if self.warned.is_none_or(|at| at.elapsed() >= WARNING) {
            self.warned = Some(Instant::now());
            warn!(policy, error, "Could not check whether a policy is in force; the hub retries");
        } else {
            debug!(policy, error, "Could not check whether a policy is in force; the hub retries");
        }
        if self.answered.elapsed() < BELIEVED {
            return;
        }
        match self.last {
            Some(Right::Guarded) | None => {
                let minutes = BELIEVED.as_secs() / 60;
                let end = format!("no answer for {minutes} minutes; the last error: {error}");
                self.believe(Right::Unguarded(PolicyProblem::Unknown(end.into())));
            }
            Some(Right::Missing) => (self.last, self.answered) = (None, Instant::now()),
            Some(Right::Unguarded(_)) => {}
        }
    }
}
