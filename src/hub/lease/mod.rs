//! The Lease `addon-signer` in the hub's namespace: one hub leads, the others wait (coordination.k8s.io/v1).
//!
//! Each change of holder has a larger **epoch**, the Lease's `leaseTransitions`. A Lease is no lock: a hub that was
//! frozen may wake up after another has taken over. So whoever writes is given a [`Leads`] and asks it right before
//! each write: it looks at a deadline on our own monotonic clock as well. And every write carries the `resourceVersion`
//! of what was read.

mod holder;

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use addon_signer_core::lease::Loss;
pub use holder::{Holder, LeaseSettings, identity};

/// How long a Lease counts that is not renewed (client-go's default). Others wait that long after a leader that did not
/// end cleanly.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(15);

/// What this hub is to the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// Another hub leads, or the Lease cannot be taken; the text says which, as in "held by pod-1".
    Waiting(String),
    /// This hub leads.
    Leader {
        /// Larger than that of every leader before.
        epoch: u32,
    },
    /// It led, and cannot tell whether it still does, because the API server does not answer: it takes no step.
    Unsure {
        /// Goes on with the same one if nobody else led meanwhile.
        epoch: u32,
    },
    /// It led and never will again.
    Lost(Loss),
    /// It gave the Lease back, because it ends.
    Released,
}

#[derive(Debug, Clone)]
struct LeaseState {
    leadership: Leadership,
    /// Until when a leader is sure that nobody else leads.
    until: Instant,
}

/// Tells what this hub is to the Lease.
#[derive(Debug)]
pub struct Announcer(watch::Sender<LeaseState>);

/// Knows what this hub is to the Lease.
#[derive(Debug, Clone)]
pub struct Leading(watch::Receiver<LeaseState>);

/// That this hub leads: whoever writes what must be one hub's alone is given it. Only [`Leading::leads`] makes one.
///
/// Time passes between a decision and its write, so the writer asks [`Self::still`] right before each write.
#[derive(Debug, Clone)]
pub struct Leads {
    leading: Leading,
    epoch: u32,
}

/// This hub does not lead, or cannot tell whether it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this hub does not lead, or cannot tell whether it does")]
pub struct NotLeading;

/// Why something that must be one hub's alone was not written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// Another hub may lead.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl Leads {
    /// Whether this hub leads for certain at this moment, and has led since.
    ///
    /// # Errors
    /// [`NotLeading`], also in a hub that was frozen and has not noticed yet.
    pub fn still(&self) -> Result<(), NotLeading> {
        if self.leading.epoch() == Some(self.epoch) { Ok(()) } else { Err(NotLeading) }
    }
}

/// A pair of both, which begins as waiting.
pub fn channel() -> (Announcer, Leading) {
    let held = LeaseState { leadership: Leadership::Waiting("not read yet".to_owned()), until: Instant::now() };
    let (sender, receiver) = watch::channel(held);
    (Announcer(sender), Leading(receiver))
}

impl Announcer {
    /// A leader until that moment, if nothing is said before.
    pub fn lead(&self, epoch: u32, until: Instant) {
        self.announce(Leadership::Leader { epoch }, until);
    }

    /// What was said last.
    fn leadership(&self) -> Leadership {
        self.0.borrow().leadership.clone()
    }

    /// Anything but a leader.
    fn step_back(&self, leadership: Leadership) {
        self.announce(leadership, Instant::now());
    }

    fn announce(&self, leadership: Leadership, until: Instant) {
        // A renewal moves the deadline, which wakes nobody.
        self.0.send_if_modified(|held| {
            let differs = held.leadership != leadership;
            *held = LeaseState { leadership, until };
            differs
        });
    }
}

impl Leading {
    /// The evidence that whoever writes needs, if this hub leads for certain at this moment.
    ///
    /// # Errors
    /// [`NotLeading`].
    pub fn leads(&self) -> Result<Leads, NotLeading> {
        let epoch = self.epoch().ok_or(NotLeading)?;
        Ok(Leads { leading: self.clone(), epoch })
    }

    /// The epoch, if this hub leads for certain at this moment.
    ///
    /// A hub that was frozen gets `None` before it has even noticed.
    pub fn epoch(&self) -> Option<u32> {
        let held = self.0.borrow();
        match held.leadership {
            Leadership::Leader { epoch } if Instant::now() < held.until => Some(epoch),
            _ => None,
        }
    }

    /// What this hub is, as it was announced last.
    pub fn leadership(&self) -> Leadership {
        self.0.borrow().leadership.clone()
    }

    /// Waits for the next change of [`Self::leadership`].
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await // there will be none
        }
    }

    /// Waits until this hub leads; returns its epoch.
    ///
    /// # Errors
    /// [`Loss`] when it never will.
    pub async fn acquired(&mut self) -> Result<u32, Loss> {
        let led = |held: &LeaseState| matches!(held.leadership, Leadership::Leader { .. } | Leadership::Lost(_));
        match self.0.wait_for(led).await.map(|held| held.leadership.clone()) {
            Ok(Leadership::Leader { epoch }) => Ok(epoch),
            Ok(Leadership::Lost(loss)) => Err(loss),
            Ok(_) | Err(_) => Err(self.abandoned().await),
        }
    }

    /// Waits until this hub has lost the Lease. It never does after it has given it back.
    pub async fn lost(&mut self) -> Loss {
        let lost = |held: &LeaseState| matches!(held.leadership, Leadership::Lost(_));
        match self.0.wait_for(lost).await.map(|held| held.leadership.clone()) {
            Ok(Leadership::Lost(loss)) => loss,
            Ok(_) | Err(_) => self.abandoned().await,
        }
    }

    /// The other end is gone: as it should be after the Lease was given back, a fault otherwise.
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
        assert_eq!(leading.leadership(), Leadership::Leader { epoch: 7 }, "nobody has said otherwise yet");
        assert_eq!((leading.epoch(), leads.still()), (None, Err(NotLeading)));
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
    async fn the_end_of_whoever_renews_is_a_loss_unless_the_lease_was_given_back() {
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
