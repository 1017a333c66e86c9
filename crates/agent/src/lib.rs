//! The managed-cluster side: keeps an addon's client certificate, its key and the gateway's anchors valid, and never
//! breaks what is there.
//!
//! [`plan`] of the core judges what is stored. [`Agent`] performs: a new key and a request on the hub
//! (`enrol`), a proof at the gateway (`gateway`), then one write (`store`). Until that write the old pair stays. What
//! was issued and could not be proven or stored yet is held in memory and tried again without another request.
//!
//! That a certificate is revoked only the gateway knows. The agent asks it for its anchors now and then, and once when
//! it starts; when the answer is that, the certificate counts as unusable and is replaced like one that is missing,
//! with the same pauses.

pub mod api_error;
pub mod cli;
pub mod enrol;
pub mod gateway;
mod order;
mod retry;
pub mod store;

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use ring::rand::SystemRandom;
use rustls_pki_types::CertificateDer;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use addon_signer_core::credentials::Credentials;
use addon_signer_core::credentials::plan::{Plan, Unusable, Usable, Wanted, plan};
use addon_signer_core::identity::{Convention, PeerIdentity};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;
use enrol::{EnrolError, Enroller};
use gateway::{Gateway, GatewayError};
use order::Order;
use retry::{Backoff, jittered};
use store::{Store, StoreError};

/// Many events in a row are answered once.
const SETTLE: Duration = Duration::from_millis(50);

/// How often things are done.
#[derive(Debug, Clone)]
pub struct Timing {
    /// The longest pause between two looks at what is stored and at the clock, which may jump.
    pub poll: Duration,
    /// How long one wait for the hub's answer is; a request that is pending then is taken up again.
    pub answer: Duration,
    /// The pause after the first failure, doubled with each further one.
    pub retry_first: Duration,
    /// The longest pause after a failure.
    pub retry_cap: Duration,
    /// Between two questions for the gateway's anchors.
    pub refresh: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            retry_first: Duration::from_secs(30),
            retry_cap: Duration::from_secs(600),
            refresh: Duration::from_secs(300),
        }
    }
}

/// What an agent is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose certificate.
    pub identity: PeerIdentity,
    /// How the signer writes identities.
    pub convention: Convention,
    /// `spec.signerName` of the requests.
    pub signer_name: String,
    /// The life to ask for, in seconds; `None` leaves it to the signer.
    pub expiration_seconds: Option<i32>,
    /// The cluster's kubeconfig for the hub, read anew for every request.
    pub hub_kubeconfig: PathBuf,
    /// Where the certificate is used.
    pub gateway: Gateway,
    /// How often.
    pub timing: Timing,
}

/// Why there is no new certificate in the store.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The hub issued none.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// The gateway does not accept the new one. The old one is still good and stays.
    #[error("the new certificate is held back and the old one kept: {0}")]
    NotProven(GatewayError),
    /// The signer and the gateway do not agree on the time, or on what is revoked.
    #[error("the hub issued a certificate that its own gateway calls revoked; another one is asked for later")]
    RevokedAtOnce,
}

/// What one look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// What is stored is good.
    Valid {
        /// From when on a new one is due.
        renew_at: Timestamp,
    },
    /// A new certificate is stored.
    Enrolled {
        /// From when on the next one is due.
        renew_at: Timestamp,
    },
}

/// Keeps one store.
pub struct Agent {
    identity: PeerIdentity,
    wanted: Wanted,
    gateway: Gateway,
    timing: Timing,
    store: Store,
    clock: Clock,
    enroller: Enroller,
    /// Issued, not stored yet.
    candidate: Option<Credentials>,
    /// The stored certificate that the gateway called revoked.
    revoked: Option<CertificateDer<'static>>,
    backoff: Backoff,
    /// No attempt before.
    resume_at: Instant,
    /// The next question for anchors.
    refresh_at: Instant,
}

impl Agent {
    /// An agent that has done nothing yet.
    pub fn new(settings: Settings, store: Store, clock: Clock) -> Self {
        let Settings { identity, convention, signer_name, expiration_seconds, hub_kubeconfig, gateway, timing } =
            settings;
        let wanted = Wanted::new(&convention, &identity);
        let order = Order {
            cluster: identity.cluster.clone(),
            addon: identity.addon.clone(),
            signer_name,
            expiration_seconds,
            wanted: wanted.clone(),
        };
        let now = Instant::now();
        Self {
            identity,
            wanted,
            gateway,
            store,
            clock,
            enroller: Enroller::new(order, hub_kubeconfig),
            candidate: None,
            revoked: None,
            backoff: Backoff::new(timing.retry_first, timing.retry_cap),
            resume_at: now,
            refresh_at: now,
            timing,
        }
    }

    /// Enrols or renews if that is due.
    ///
    /// # Errors
    /// [`AgentError`]: nothing was changed.
    pub async fn once(&mut self) -> Result<Outcome, AgentError> {
        let stored = self.store.load().await?;
        if let Plan::Keep(usable) = self.judge(stored.as_ref()) {
            // Whatever else it answers, or if it does not: what is stored is good as far as anybody knows.
            let proven = self.gateway.prove(&usable, &self.wanted.user).await;
            self.note_revoked(&usable, proven.as_ref().err());
        }
        match self.judge(stored.as_ref()) {
            Plan::Keep(usable) => Ok(Outcome::Valid { renew_at: usable.renew_at }),
            Plan::Renew(old) => self.replace(Some(&old)).await,
            Plan::Enrol(reason) => {
                info!(id = %self.identity, %reason, "Enrolling");
                self.replace(None).await
            }
        }
    }

    /// Keeps the store good for ever; errors are logged and tried again.
    pub async fn run(mut self) -> std::convert::Infallible {
        let mut changes = self.store.changes();
        loop {
            let pause = self.tend().await;
            tokio::select! {
                () = sleep(pause) => {}
                Some(()) = changes.next() => sleep(SETTLE).await,
            }
        }
    }

    /// One round; says how long to rest.
    async fn tend(&mut self) -> Duration {
        let stored = match self.store.load().await {
            Ok(stored) => stored,
            Err(error) => {
                warn!(id = %self.identity, %error, "Cannot read what is stored");
                return jittered(self.timing.poll);
            }
        };
        match self.judge(stored.as_ref()) {
            Plan::Keep(usable) => {
                self.refresh(stored.as_ref(), &usable).await;
                if self.is_revoked(&usable) {
                    return Duration::ZERO; // judged again, it is enrolled anew
                }
                let due = self.clock.now().until(usable.renew_at);
                due.min(until(self.refresh_at)).min(self.timing.poll)
            }
            Plan::Renew(usable) => {
                self.refresh(stored.as_ref(), &usable).await;
                let old = Some(&usable).filter(|usable| !self.is_revoked(usable));
                self.attempt(old).await
            }
            Plan::Enrol(reason) => {
                if until(self.resume_at).is_zero() {
                    info!(id = %self.identity, %reason, "Enrolling");
                }
                self.attempt(None).await
            }
        }
    }

    /// Replaces what is stored, unless the last attempt was too short ago.
    async fn attempt(&mut self, old: Option<&Usable>) -> Duration {
        let held = until(self.resume_at);
        if !held.is_zero() {
            return held.min(self.timing.poll);
        }
        let pause = match self.replace(old).await {
            Ok(_) => self.backoff.after_success(),
            Err(AgentError::Enrol(EnrolError::Pending(request))) => {
                info!(id = %self.identity, request, "The request is still pending");
                Duration::ZERO
            }
            Err(error) => {
                let pause = self.backoff.after_failure();
                warn!(id = %self.identity, %error, retry_in = ?pause, "No new certificate");
                pause
            }
        };
        self.resume_at = Instant::now() + pause;
        pause.min(self.timing.poll)
    }

    /// A new pair: issued, proven, stored, in that order. With an `old` pair that is good, an unproven one is held
    /// back.
    async fn replace(&mut self, old: Option<&Usable>) -> Result<Outcome, AgentError> {
        let (fresh, usable) = match self.take_candidate() {
            Some(held) => held,
            None => self.enroller.enrol(self.timing.answer, &self.clock).await?,
        };
        match (self.gateway.prove(&usable, &self.wanted.user).await, old) {
            (Ok(()), _) => {}
            // Not worth storing, nor holding: only another one helps, after a pause that grows.
            (Err(GatewayError::Revoked(_)), _) => return Err(AgentError::RevokedAtOnce),
            (Err(error), Some(_)) => {
                self.candidate = Some(fresh);
                return Err(AgentError::NotProven(error));
            }
            (Err(error), None) => {
                warn!(id = %self.identity, %error, "Storing a certificate that is not proven: there is no other");
            }
        }
        if let Err(error) = self.store.save(&fresh).await {
            self.candidate = Some(fresh);
            return Err(error.into());
        }
        info!(id = %self.identity, not_after = %usable.not_after, renew_at = %usable.renew_at, "Stored a new certificate");
        Ok(Outcome::Enrolled { renew_at: usable.renew_at })
    }

    fn note_revoked(&mut self, usable: &Usable, error: Option<&GatewayError>) {
        if let Some(GatewayError::Revoked(_)) = error {
            self.revoked = Some(usable.certificate.clone());
        }
    }

    fn is_revoked(&self, usable: &Usable) -> bool {
        self.revoked.as_ref() == Some(&usable.certificate)
    }

    /// What was issued earlier, as long as it is not itself due.
    fn take_candidate(&mut self) -> Option<(Credentials, Usable)> {
        let held = self.candidate.take()?;
        match self.judge(Some(&held)) {
            Plan::Keep(usable) => Some((held, usable)),
            Plan::Renew(_) | Plan::Enrol(_) => None,
        }
    }

    /// Takes over the anchors that the gateway publishes, so that a change of its CA reaches this cluster.
    async fn refresh(&mut self, stored: Option<&Credentials>, usable: &Usable) {
        let Some(stored) = stored.filter(|_| until(self.refresh_at).is_zero()) else { return };
        self.refresh_at = Instant::now() + jittered(self.timing.refresh);
        let bundle = match self.gateway.new_bundle(usable, self.clock.now()).await {
            Ok(Some(bundle)) => bundle,
            Ok(None) => return,
            Err(error) => {
                self.note_revoked(usable, Some(&error));
                warn!(id = %self.identity, %error, "Cannot refresh the gateway's anchors");
                return;
            }
        };
        let pem = bundle.pem();
        self.candidate = self.candidate.take().map(|held| held.with_bundle(&pem));
        match self.store.save(&stored.with_bundle(&pem)).await {
            Ok(()) => info!(id = %self.identity, digest = bundle.digest(), "Stored the gateway's new anchors"),
            Err(error) => warn!(id = %self.identity, %error, "Cannot store the gateway's new anchors"),
        }
    }

    fn judge(&self, stored: Option<&Credentials>) -> Plan {
        match plan(stored, &self.wanted, self.clock.now(), &SystemRandom::new()) {
            Plan::Keep(usable) | Plan::Renew(usable) if self.is_revoked(&usable) => Plan::Enrol(Unusable::Revoked),
            plan => plan,
        }
    }
}

fn until(instant: Instant) -> Duration {
    instant.saturating_duration_since(Instant::now())
}
