//! The program on the managed cluster. It keeps an addon's client certificate, its key and the gateway's anchors valid,
//! and it never replaces working credentials with ones that do not work.
//!
//! [`plan`] of the core judges the stored credentials. [`Agent`] acts: it makes a new key and a CSR on the hub
//! (`enrol`), proves the certificate at the gateway (`gateway`), then writes once (`store`). The old certificate and
//! key stay until that write. A certificate that could not be proven or stored yet stays in memory, and the agent tries
//! again without another CSR.
//!
//! Stored credentials that are good are published: a directory that is a copy of the Secret gets them, `/readyz`
//! reports them (`probe`), and then the command of `--on-renew` runs. It runs beside the rest, which it never delays.
//!
//! Only the gateway knows that a certificate is revoked. The agent asks it from time to time, and once when it
//! starts. If the gateway answers that the certificate is revoked, the agent replaces it like a missing one, with the
//! same pauses. If the authority is tainted, the gateway tells the agent to renew (`retry`). If the gateway publishes
//! other anchors (`outdated`), the agent gets a new certificate, which brings the present ones. Anchors come from the
//! hub alone: a gateway that was taken over can make the agent renew, and cannot change whom it trusts. Whom the stored
//! anchors do not verify may be a stranger: the agent reads on the hub whether that gives out others (`published`).

pub mod api_error;
pub mod cli;
pub mod enrol;
pub mod gateway;
pub mod health;
pub mod on_renew;
mod order;
mod outcome;
mod outdated;
pub mod owner;
pub mod probe;
mod published;
mod publisher;
mod retry;
mod settings;
pub mod store;

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use ring::rand::SystemRandom;
use rustls_pki_types::CertificateDer;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use addon_signer_core::credentials::{Credentials, Plan, Unusable, Usable, Wanted, plan};
use addon_signer_core::identity::PeerIdentity;
use addon_signer_platform::clock::Clock;
use enrol::{EnrolError, Enroller};
use gateway::{Gateway, GatewayError, GatewayNews};
use health::HealthLease;
use on_renew::OnRenew;
use order::CsrTemplate;
use outdated::Outdated;
use probe::Probe;
use publisher::Publisher;
use retry::{Backoff, RenewalHint, jittered, until};
use store::Store;

pub use outcome::{AgentError, Outcome};
pub use settings::{Settings, Timing};

/// How long the agent waits after a change of the store, so that it handles many events in a row once.
const COALESCE: Duration = Duration::from_millis(50);

/// Keeps the credentials of one store valid.
pub struct Agent {
    identity: PeerIdentity,
    wanted: Wanted,
    gateway: Gateway,
    timing: Timing,
    store: Store,
    clock: Clock,
    enroller: Enroller,
    /// New credentials that are not stored yet.
    candidate: Option<Credentials>,
    /// The stored certificate that the gateway reported as revoked.
    revoked: Option<CertificateDer<'static>>,
    outdated: Outdated,
    hint: RenewalHint,
    backoff: Backoff,
    /// When the next attempt may start.
    resume_at: Instant,
    /// When the gateway is to be asked for news again.
    refresh_at: Instant,
    health: Option<HealthLease>,
    /// When the next renewal of the health Lease is due.
    health_at: Instant,
    publisher: Publisher,
}

impl Agent {
    /// An agent that has done nothing yet.
    pub fn new(settings: Settings, store: Store, clock: Clock) -> Self {
        let Settings { identity, convention, signer_name, expiration_seconds, gateway, timing, .. } = settings;
        let wanted = Wanted::new(&convention, &identity);
        let order = CsrTemplate {
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
            publisher: Publisher::new(Probe::new(clock.clone())),
            clock,
            enroller: Enroller::new(order, settings.hub_kubeconfig, settings.plugins),
            candidate: None,
            revoked: None,
            outdated: Outdated::new(timing.retry_first),
            hint: RenewalHint::default(),
            backoff: Backoff::new(timing.retry_first, timing.retry_cap),
            resume_at: now,
            refresh_at: now,
            health: None,
            health_at: now,
            timing,
        }
    }

    /// Keeps this Lease too, while the certificate is good.
    #[must_use]
    pub fn with_health(self, health: Option<HealthLease>) -> Self {
        Self { health, ..self }
    }

    /// Reports the stored certificate to this probe.
    #[must_use]
    pub fn with_probe(mut self, probe: Probe) -> Self {
        self.publisher.probe = probe;
        self
    }

    /// Runs this command when the stored certificate or the anchors have changed.
    #[must_use]
    pub fn with_on_renew(mut self, on_renew: Option<OnRenew>) -> Self {
        self.publisher.on_renew = on_renew;
        self
    }

    /// Enrols or renews if that is due. Then it runs the command, even if nothing has changed: an earlier run may have
    /// failed.
    pub async fn once(&mut self) -> Result<Outcome, AgentError> {
        let stored = self.store.load().await?;
        let plan = self.judge(stored.as_ref());
        if let (Some(stored), Plan::Keep(usable) | Plan::Renew(usable)) = (&stored, &plan) {
            self.announce(stored, usable); // even if the hub is away
        }
        if let Plan::Keep(usable) = plan {
            self.refresh_at = Instant::now();
            self.refresh(&usable).await;
        }
        let outcome = match self.judge(stored.as_ref()) {
            Plan::Keep(usable) => Outcome::Valid { renew_at: usable.renew_at },
            Plan::Renew(old) => match self.replace(Some(&old)).await {
                // The stored certificate is good; the agent wanted another one only for its anchors.
                Err(error @ AgentError::NotProven(_)) if self.clock.now() < old.renew_at => {
                    warn!(id = %self.identity, %error, "A new certificate does not help; keeping the old one");
                    Outcome::Valid { renew_at: old.renew_at }
                }
                replaced => replaced?,
            },
            Plan::Enrol(reason) => {
                info!(id = %self.identity, %reason, "Enrolling");
                self.replace(None).await?
            }
        };
        let stored = self.store.load().await?;
        if let (Some(stored), Plan::Keep(usable) | Plan::Renew(usable)) = (&stored, self.judge(stored.as_ref())) {
            self.keep_health(&usable).await;
            self.publisher.publish(&self.store, stored, &usable)?;
            self.publisher.run_command().await?;
        }
        Ok(outcome)
    }

    /// Keeps the stored credentials valid forever, and runs the command after each change. It logs errors and retries.
    /// Dropping the future kills a command that is running.
    pub async fn run(mut self) -> Infallible {
        let telling = self.publisher.follow();
        tokio::select! {
            never = self.keep() => never,
            never = telling => never,
        }
    }

    async fn keep(&mut self) -> Infallible {
        let mut changes = self.store.changes();
        loop {
            let pause = self.tend().await;
            tokio::select! {
                () = sleep(pause) => {}
                Some(()) = changes.next() => sleep(COALESCE).await,
            }
        }
    }

    /// Does one round and returns the pause before the next.
    async fn tend(&mut self) -> Duration {
        let stored = match self.store.load().await {
            Ok(stored) => stored,
            Err(error) => {
                warn!(id = %self.identity, %error, "Cannot read the stored credentials");
                return jittered(self.timing.poll);
            }
        };
        if let (Some(found), Plan::Keep(usable) | Plan::Renew(usable)) = (&stored, self.judge(stored.as_ref())) {
            self.announce(found, &usable); // before the gateway takes its time
            self.refresh(&usable).await;
        }
        match self.judge(stored.as_ref()) {
            Plan::Keep(usable) => {
                self.keep_health(&usable).await;
                let due = self.clock.now().until(usable.renew_at).min(self.rest_by_hint(&usable));
                due.min(until(self.refresh_at)).min(self.timing.poll)
            }
            Plan::Renew(usable) => {
                self.keep_health(&usable).await;
                self.attempt(Some(&usable)).await
            }
            Plan::Enrol(reason) => {
                self.publisher.withdraw(&reason);
                // Only the gateway reports a revocation, and a false gateway could report one of each certificate. So
                // this pause holds here too.
                if matches!(reason, Unusable::Revoked) {
                    self.resume_at = self.resume_at.max(Instant::now() + self.outdated.rest(Instant::now()));
                }
                if until(self.resume_at).is_zero() {
                    info!(id = %self.identity, %reason, "Enrolling");
                }
                self.attempt(None).await
            }
        }
    }

    /// Replaces the stored credentials, unless the pause after the last attempt is still running.
    async fn attempt(&mut self, old: Option<&Usable>) -> Duration {
        let held = until(self.resume_at);
        if !held.is_zero() {
            return held.min(self.timing.poll);
        }
        let pause = match self.replace(old).await {
            Ok(Outcome::Enrolled { renew_at }) if renew_at <= self.clock.now() => {
                let pause = self.less_often();
                warn!(id = %self.identity, retry_in = ?pause, "The new certificate is due already; check the clock");
                pause
            }
            Ok(_) => self.backoff.after_success(),
            Err(AgentError::Enrol(EnrolError::Pending(request))) => {
                info!(id = %self.identity, request, "The CSR is still pending");
                Duration::ZERO
            }
            Err(error) => {
                let pause =
                    if error.has_cost_a_certificate() { self.less_often() } else { self.backoff.after_failure() };
                warn!(id = %self.identity, %error, retry_in = ?pause, "Failed to get a new certificate");
                pause
            }
        };
        self.resume_at = Instant::now() + pause;
        pause.min(self.timing.poll)
    }

    /// The pause after a certificate that did not help: its cause, a false gateway or a wrong clock, may last.
    fn less_often(&mut self) -> Duration {
        self.backoff.after_failure().max(self.outdated.rest(Instant::now()))
    }

    /// Gets a new certificate, proves it, and stores it, in that order. If there is a good `old` certificate, the new
    /// one is stored only if it is proven.
    async fn replace(&mut self, old: Option<&Usable>) -> Result<Outcome, AgentError> {
        let (fresh, usable) = match self.take_candidate() {
            Some(held) => held,
            None => {
                let enrolled = self.enroller.enrol(self.timing.answer, &self.clock).await.map_err(AgentError::from);
                let has_other = |new: &Usable| old.is_some_and(|old| old.bundle.digest() != new.bundle.digest());
                match &enrolled {
                    Ok((_, new)) => self.outdated.came(has_other(new), Instant::now()),
                    Err(error) if error.has_cost_a_certificate() => self.outdated.came(false, Instant::now()),
                    Err(_) => {}
                }
                enrolled?
            }
        };
        let proven = self.gateway.prove(&usable, &self.wanted.user, &self.clock).await;
        self.note(&usable, proven.as_ref().err()).await;
        match (proven, old) {
            (Ok(()), _) => {}
            // The revoked certificate is dropped, because only another one helps; the pause before that grows.
            (Err(GatewayError::Revoked(_)), _) => return Err(AgentError::RevokedAtOnce),
            (Err(error), Some(_)) => {
                // The next certificate may bring other anchors.
                let is_useless = matches!(error, GatewayError::Untrusted(..)) && self.outdated.is_due(Instant::now());
                self.candidate = (!is_useless).then_some(fresh);
                return Err(AgentError::NotProven(error));
            }
            (Err(error), None) => {
                warn!(id = %self.identity, %error, "Storing an unproven certificate, because none other is available");
            }
        }
        if let Err(error) = self.store.save(&fresh).await {
            self.candidate = Some(fresh);
            return Err(error.into());
        }
        self.announce(&fresh, &usable);
        let Usable { not_after, renew_at, .. } = usable;
        info!(id = %self.identity, %not_after, %renew_at, "Stored a new certificate");
        Ok(Outcome::Enrolled { renew_at })
    }

    /// Notes what a response of the gateway shows about these credentials.
    async fn note(&mut self, usable: &Usable, error: Option<&GatewayError>) {
        match error {
            Some(GatewayError::NotAsked(..)) => {} // it is unknown whether that was the gateway
            // The candidate's anchors are newer, so its result counts and not that of older credentials.
            Some(GatewayError::Untrusted(..)) if self.candidate.is_some() => {}
            Some(GatewayError::Untrusted(..)) => self.outdated.compare(&self.enroller, usable).await,
            _ => self.outdated.saw(false),
        }
    }

    /// The candidate, unless it has become unusable or due for renewal itself.
    fn take_candidate(&mut self) -> Option<(Credentials, Usable)> {
        let held = self.candidate.take()?;
        match self.judge_alone(Some(&held)) {
            Plan::Keep(usable) => Some((held, usable)),
            Plan::Renew(_) | Plan::Enrol(_) => None,
        }
    }

    /// Publishes credentials that are stored and good. If that fails, it is tried again in the next round.
    fn announce(&self, stored: &Credentials, usable: &Usable) {
        if let Err(error) = self.publisher.publish(&self.store, stored, usable) {
            warn!(id = %self.identity, %error, "Cannot copy the stored credentials to the directory");
        }
    }

    /// Asks the gateway for news, if that is due. The certificate stays good without a response, and after any response
    /// but that it is revoked.
    async fn refresh(&mut self, usable: &Usable) {
        if !until(self.refresh_at).is_zero() {
            return;
        }
        self.refresh_at = Instant::now() + jittered(self.timing.refresh);
        let news = self.gateway.news(usable, &self.clock).await;
        self.note(usable, news.as_ref().err()).await;
        if matches!(news, Err(GatewayError::Revoked(_))) {
            self.revoked = Some(usable.certificate.clone());
        }
        match news {
            Ok(GatewayNews { has_other_anchors, renew_within }) => {
                self.hint.hear(&usable.certificate, renew_within, Instant::now());
                self.outdated.saw(has_other_anchors);
            }
            Err(error) => warn!(id = %self.identity, %error, "Cannot ask the gateway for news"),
        }
    }

    /// Time until the certificate is to be renewed because of the gateway's hint.
    fn rest_by_hint(&self, usable: &Usable) -> Duration {
        self.hint.rest(&usable.certificate).max(self.outdated.rest(Instant::now()))
    }

    /// Renews the health Lease if that is due and the certificate is still good: since it was judged, the gateway may
    /// have taken long to respond.
    async fn keep_health(&mut self, usable: &Usable) {
        let now = self.clock.now();
        let is_due = until(self.health_at).is_zero() && now < usable.not_after;
        let Some(health) = self.health.as_ref().filter(|_| is_due) else { return };
        self.health_at = Instant::now() + jittered(self.timing.health);
        if let Err(error) = health.renew(now).await {
            warn!(id = %self.identity, %error, "Cannot renew the health Lease");
        }
    }

    /// What to do about the stored credentials.
    fn judge(&self, stored: Option<&Credentials>) -> Plan {
        match self.judge_alone(stored) {
            // The agent had a reason to get the candidate, and the gateway may accept it by now.
            Plan::Keep(usable) if self.candidate.is_some() => Plan::Renew(usable),
            Plan::Keep(usable) if self.outdated.is_due(Instant::now()) => Plan::Renew(usable),
            Plan::Keep(usable) if self.rest_by_hint(&usable).is_zero() => Plan::Renew(usable),
            plan => plan,
        }
    }

    /// The same, regardless of what the agent knows about the gateway.
    fn judge_alone(&self, credentials: Option<&Credentials>) -> Plan {
        match plan(credentials, &self.wanted, self.clock.now(), &SystemRandom::new()) {
            Plan::Keep(usable) | Plan::Renew(usable) if self.revoked.as_ref() == Some(&usable.certificate) => {
                Plan::Enrol(Unusable::Revoked)
            }
            plan => plan,
        }
    }
}
