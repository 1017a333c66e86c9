//! The Lease `addon-signer` in the hub's namespace: one hub leads, the others wait (coordination.k8s.io/v1).
//!
//! Each change of holder increases the **epoch**, the Lease's `leaseTransitions`. A Lease is no lock: a hub that was
//! frozen may wake up after another hub has taken over. So code that writes needs a [`Leads`] and makes its call by
//! [`Leads::write`], which also checks a deadline on this process's monotonic clock. Every write but the status of an
//! AddOnRoute carries the `resourceVersion` of what was read.

mod holder;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use addon_signer_core::lease::Loss;
pub use holder::{Holder, LeaseSettings, identity};

/// How long a Lease is valid without a renewal (client-go's default). After a leader crashed, the other hubs wait that
/// long.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(15);

/// Whether this hub leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// Another hub leads, or the Lease cannot be taken; the text is the reason, such as "held by pod-1".
    Waiting(String),
    /// This hub leads.
    Leader {
        /// Larger than the epoch of every earlier leader.
        epoch: u32,
    },
    /// This hub led and cannot tell whether it still leads, because the API server does not answer. It signs and writes
    /// nothing.
    Unsure {
        /// The epoch in which it led, and in which it continues if no other hub has led since.
        epoch: u32,
    },
    /// This hub has lost the Lease and will never lead again.
    Lost(Loss),
    /// This hub released the Lease before it ended.
    Released,
}

#[derive(Debug, Clone)]
struct LeaseState {
    leadership: Leadership,
    /// Until when a leader is sure that no other hub leads.
    until: Instant,
}

/// Announces whether this hub leads.
#[derive(Debug)]
pub struct Announcer(watch::Sender<LeaseState>);

/// Reads whether this hub leads.
#[derive(Debug, Clone)]
pub struct Leading(watch::Receiver<LeaseState>);

/// Evidence that this hub leads, for code that writes what only the leader may write. Only [`Leading::leads`] makes it.
///
/// Time passes between a decision and its write, so [`Self::write`] checks again right before the call.
#[derive(Debug, Clone)]
pub struct Leads {
    leading: Leading,
    epoch: u32,
}

/// This hub does not lead, or cannot tell whether it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this hub does not lead, or cannot tell whether it does")]
pub struct NotLeading;

/// What kube-apiserver says of a JSON patch that it cannot apply (`NewGenericServerResponse` in `apimachinery`).
const INAPPLICABLE: &str = "the server rejected our request due to an error in our request";

/// Why something that only the leader may write was not written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// Another hub may lead.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server refused the write or did not answer.
    #[error("{}", addon_signer_platform::errors::explain(.0))]
    Api(#[from] kube::Error),
}

impl NotWritten {
    /// Whether the API server will probably refuse the same write again: it did respond, no other client was faster,
    /// and it is not overloaded.
    pub fn is_lasting(&self) -> bool {
        let Self::Api(kube::Error::Api(status)) = self else { return false };
        // A JSON patch whose test fails because another client was faster gets no 409.
        let is_outdated = status.code == 422 && status.message == INAPPLICABLE;
        !is_outdated && ![404, 409, 429, 503, 504].contains(&status.code)
    }
}

impl Leads {
    /// Checks that this hub certainly leads now, in the epoch of this evidence.
    ///
    /// # Errors
    /// [`NotLeading`], also in a hub that was frozen and has not noticed yet.
    pub fn still(&self) -> Result<(), NotLeading> {
        if self.leading.epoch() == Some(self.epoch) { Ok(()) } else { Err(NotLeading) }
    }

    /// Makes one call that writes, if this hub still leads right before.
    pub async fn write<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, NotWritten> {
        self.still()?;
        Ok(call.await?)
    }
}

/// Makes an announcer and its reader; the hub waits at first.
pub fn channel() -> (Announcer, Leading) {
    let held =
        LeaseState { leadership: Leadership::Waiting("which is not read yet".to_owned()), until: Instant::now() };
    let (sender, receiver) = watch::channel(held);
    (Announcer(sender), Leading(receiver))
}

impl Announcer {
    /// Announces that this hub leads until then, unless something else is announced earlier.
    pub fn lead(&self, epoch: u32, until: Instant) {
        self.announce(Leadership::Leader { epoch }, until);
    }

    fn leadership(&self) -> Leadership {
        self.0.borrow().leadership.clone()
    }

    /// Announces that this hub does not lead.
    fn step_back(&self, leadership: Leadership) {
        self.announce(leadership, Instant::now());
    }

    fn announce(&self, leadership: Leadership, until: Instant) {
        // A renewal only moves the deadline, so it wakes no reader.
        self.0.send_if_modified(|held| {
            let differs = held.leadership != leadership;
            *held = LeaseState { leadership, until };
            differs
        });
    }
}

impl Leading {
    /// The evidence that this hub leads, if it certainly leads now.
    pub fn leads(&self) -> Result<Leads, NotLeading> {
        let epoch = self.epoch().ok_or(NotLeading)?;
        Ok(Leads { leading: self.clone(), epoch })
    }

    /// The epoch, if this hub certainly leads now.
    ///
    /// A hub that was frozen gets `None` even before it has noticed that it was.
    pub fn epoch(&self) -> Option<u32> {
        let held = self.0.borrow();
        match held.leadership {
            Leadership::Leader { epoch } if Instant::now() < held.until => Some(epoch),
            _ => None,
        }
    }

    /// The leadership that was announced last.
    pub fn leadership(&self) -> Leadership {
        self.0.borrow().leadership.clone()
    }

    /// Waits for the next change of [`Self::leadership`].
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await // without the announcer there will be no change
        }
    }

    /// Waits until this hub leads; returns its epoch.
    ///
    /// # Errors
    /// [`Loss`] if this hub never will lead.
    pub async fn acquired(&mut self) -> Result<u32, Loss> {
        let led = |held: &LeaseState| matches!(held.leadership, Leadership::Leader { .. } | Leadership::Lost(_));
        match self.0.wait_for(led).await.map(|held| held.leadership.clone()) {
            Ok(Leadership::Leader { epoch }) => Ok(epoch),
            Ok(Leadership::Lost(loss)) => Err(loss),
            Ok(_) | Err(_) => Err(self.abandoned().await),
        }
    }

    /// Waits until this hub has lost the Lease. It waits forever after the hub has released the Lease.
    pub async fn lost(&mut self) -> Loss {
        let lost = |held: &LeaseState| matches!(held.leadership, Leadership::Lost(_));
        match self.0.wait_for(lost).await.map(|held| held.leadership.clone()) {
            Ok(Leadership::Lost(loss)) => loss,
            Ok(_) | Err(_) => self.abandoned().await,
        }
    }

    /// The announcer was dropped: that is normal after the Lease was released, and a fault otherwise.
    async fn abandoned(&self) -> Loss {
        if self.leadership() == Leadership::Released {
            std::future::pending().await
        }
        Loss::Abandoned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_was_frozen_does_not_act_when_it_wakes_up() {
        let (announcer, leading) = channel();
        assert_eq!(leading.epoch(), None);
        assert_eq!(leading.leads().err(), Some(NotLeading));
        announcer.lead(7, Instant::now() + Duration::from_secs(3_600));
        assert_eq!(leading.epoch(), Some(7));
        let leads = leading.leads().unwrap();
        assert_eq!(leads.still(), Ok(()));
        announcer.lead(7, Instant::now());
        assert_eq!(leading.leadership(), Leadership::Leader { epoch: 7 }, "nothing else was announced yet");
        assert_eq!((leading.epoch(), leads.still()), (None, Err(NotLeading)));
    }

    #[test]
    fn only_what_would_be_refused_again_is_lasting() {
        let refused = |code: u16, message: &str| {
            let status = kube::core::Status { code, message: message.to_owned(), ..Default::default() };
            NotWritten::Api(kube::Error::Api(Box::new(status))).is_lasting()
        };
        assert!(refused(422, "AddOnSigner \"a\" is invalid: spec: Required value"));
        assert!(refused(403, "forbidden") && refused(500, "etcdserver: request is too large"));
        assert!(!refused(422, INAPPLICABLE), "another client was faster");
        assert!(![404, 409, 429, 503, 504].into_iter().any(|code| refused(code, "")));
    }

    #[test]
    fn evidence_of_an_earlier_epoch_is_worth_nothing() {
        let (announcer, leading) = channel();
        let until = Instant::now() + Duration::from_secs(3_600);
        announcer.lead(7, until);
        let leads = leading.leads().unwrap();
        announcer.lead(9, until);
        assert_eq!((leading.epoch(), leads.still()), (Some(9), Err(NotLeading)));
    }

    #[tokio::test]
    async fn a_renewal_wakes_nobody() {
        let (announcer, mut leading) = channel();
        announcer.lead(1, Instant::now());
        leading.changed().await;
        announcer.lead(1, Instant::now() + Duration::from_secs(10));
        assert!(!leading.0.has_changed().unwrap());
        assert_eq!(leading.epoch(), Some(1));
    }

    #[tokio::test]
    async fn end_of_renewal_is_a_loss_unless_lease_was_given_back() {
        let (announcer, mut leading) = channel();
        drop(announcer);
        assert_eq!(leading.acquired().await, Err(Loss::Abandoned));
        assert_eq!(leading.lost().await, Loss::Abandoned);
        let (announcer, mut leading) = channel();
        announcer.step_back(Leadership::Released);
        drop(announcer);
        let lost = tokio::time::timeout(Duration::from_millis(10), leading.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
    }
}
