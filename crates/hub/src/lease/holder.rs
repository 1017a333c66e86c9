//! Takes the Lease, renews it, releases it: the thin shell around [`step`].

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Announcer, Leadership, Leading, channel};
use addon_signer_core::keys::private::KeyError;
use addon_signer_core::lease::{LEASE_NAME, LeaseAction, LeaseRecord, Loss, NewestVersion, Ours, SeenLease, step};
use addon_signer_core::names::ANNOTATION_VERSION;
use addon_signer_ledger::Location;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;
use addon_signer_platform::version::VERSION;

/// How soon the hub reads the Lease again after another client has changed it.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a hub that ends tries to release the Lease. If that fails, the next hub waits for the whole duration.
const FAREWELL: Duration = Duration::from_secs(2);

/// How the Lease is held.
#[derive(Debug, Clone)]
pub struct LeaseSettings {
    /// Where the Lease is.
    pub namespace: String,
    /// The holder's name, unique to this start of the process; see [`identity`].
    pub identity: String,
    /// How long the Lease is valid without a renewal. Kubernetes counts in whole seconds, at least one.
    pub duration: Duration,
    /// The ledger, which has epochs too: the next epoch is larger than all of those, even if the Lease was deleted.
    pub ledger: Location,
}

/// Creates a name for this start of the process: a restarted process is another holder and has another epoch.
///
/// # Errors
/// [`KeyError::Random`] when the system has no random numbers.
pub fn identity(replica: &str) -> Result<String, KeyError> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::Random)?;
    Ok(format!("{replica}_{}", data_encoding::HEXLOWER.encode(&bytes)))
}

/// Holds the Lease, or waits for it.
pub struct Holder {
    api: Api<Lease>,
    settings: LeaseSettings,
    clock: Clock,
    announcer: Announcer,
    started: Instant,
    seen: Option<SeenLease>,
    newest: NewestVersion,
    /// The Lease as the API server returned it last.
    current: Option<Lease>,
    epoch: Option<u32>,
    /// The largest epoch that the ledger is known to have.
    floor: u32,
    /// Until when this hub is sure that no other hub leads.
    until: Instant,
}

impl Holder {
    /// Makes a holder that does nothing before [`Self::run`].
    pub fn new(client: Client, clock: Clock, settings: LeaseSettings) -> (Self, Leading) {
        let (announcer, leading) = channel();
        let api = Api::namespaced(client, &settings.namespace);
        let now = Instant::now();
        let holder = Self {
            api,
            settings,
            clock,
            announcer,
            started: now,
            seen: None,
            newest: NewestVersion::default(),
            current: None,
            epoch: None,
            floor: 0,
            until: now,
        };
        (holder, leading)
    }

    /// Takes the Lease when that is possible and keeps it until it is lost, or until `stop` is cancelled; then the hub
    /// releases it.
    pub async fn run(mut self, stop: CancellationToken) {
        let until_lost = async {
            // This waits for a slow ledger; `raise_floor` later has a timeout.
            self.floor = u32::try_from(self.settings.ledger.last_epoch().await).unwrap_or(u32::MAX);
            while let Some(pause) = self.round().await {
                sleep(pause).await;
            }
        };
        if stop.run_until_cancelled(until_lost).await.is_none() {
            self.release().await;
        }
    }

    /// How often a leader renews, and how long it waits for a response.
    fn renewal(&self) -> Duration {
        self.settings.duration / 3
    }

    /// How often the other hubs check the Lease, and how soon a failed request is retried: once a second by default.
    fn look(&self) -> Duration {
        self.settings.duration / 15
    }

    /// Makes one exchange with the API server; returns the pause before the next one, or `None` if the Lease is lost.
    async fn round(&mut self) -> Option<Duration> {
        let sent = Instant::now();
        match timeout(self.renewal(), self.exchange(sent)).await {
            Ok(Ok(Some(pause))) => Some(pause.saturating_sub(sent.elapsed())),
            Ok(Ok(None)) => None,
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => {
                self.current = None;
                Some(AGAIN)
            }
            // The Lease was deleted: the next round reads that, and the hub stops, because another hub may lead by now.
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() && self.epoch.is_some() => {
                self.current = None;
                Some(AGAIN)
            }
            Ok(Err(error)) => Some(self.fail(&explain(&error))),
            Err(_) => Some(self.fail("the API server does not answer in time")),
        }
    }

    async fn exchange(&mut self, sent: Instant) -> Result<Option<Duration>, kube::Error> {
        // A leader need not read its own last write: if another client has changed the Lease, the API server refuses
        // the next write.
        if self.epoch.is_none() || self.current.is_none() {
            self.current = self.api.get_opt(LEASE_NAME).await?;
            let version = self.current.as_ref().and_then(ResourceExt::resource_version);
            if let Err(loss) = self.newest.note(&version.unwrap_or_default()) {
                return Ok(self.stop(loss));
            }
        }
        let now = self.started.elapsed();
        let record = self.current.as_ref().map(|lease| self.record(lease));
        self.seen = record.map(|record| SeenLease::follow(self.seen.take(), record, now));
        let mut action = step(self.seen.as_ref(), self.side(), now);
        if matches!(action, LeaseAction::Create { .. } | LeaseAction::TakeOver { .. }) {
            self.raise_floor().await;
            // Decide again: the next epoch must be larger than any in the ledger.
            action = step(self.seen.as_ref(), self.side(), now);
        }
        let (epoch, written) = match action {
            LeaseAction::Create { epoch } => (epoch, self.api.create(&PostParams::default(), &self.ours(epoch)).await?),
            LeaseAction::TakeOver { epoch } | LeaseAction::Renew { epoch } => {
                (epoch, self.replace(&self.ours(epoch)).await?)
            }
            LeaseAction::Wait { holder } => {
                let waiting = Leadership::Waiting(format!("held by {holder}"));
                if self.announcer.leadership() != waiting {
                    info!(holder, "Another hub holds the Lease; this hub waits");
                }
                self.announcer.step_back(waiting);
                return Ok(Some(self.look()));
            }
            LeaseAction::Stop(loss) => return Ok(self.stop(loss)),
        };
        if let Err(loss) = self.newest.note(&written.resource_version().unwrap_or_default()) {
            return Ok(self.stop(loss));
        }
        self.lead(epoch, written, sent);
        Ok(Some(self.renewal()))
    }

    /// Announces that this hub no longer leads, and ends.
    fn stop(&self, loss: Loss) -> Option<Duration> {
        self.announcer.step_back(Leadership::Lost(loss));
        None
    }

    fn side(&self) -> Ours<'_> {
        Ours { identity: &self.settings.identity, epoch: self.epoch, floor: self.floor }
    }

    /// Asks the ledger for its last epoch before each attempt to take the Lease, because other hubs may have led while
    /// this one waited. A ledger that is down must not keep this hub from leading; if it has a larger epoch, it refuses
    /// this hub's writes once it is up again.
    async fn raise_floor(&mut self) {
        match timeout(self.renewal() / 2, self.settings.ledger.last_epoch()).await {
            Ok(last) => self.floor = self.floor.max(u32::try_from(last).unwrap_or(u32::MAX)),
            Err(_) => debug!("The ledger did not return its last epoch in time"),
        }
    }

    /// Announces that this hub leads. Other hubs count the duration from when they saw the write, which is after
    /// `sent`. This hub leads for two thirds of it; the last third is for steps that are under way.
    fn lead(&mut self, epoch: u32, written: Lease, sent: Instant) {
        let before = self.epoch.replace(epoch);
        self.current = Some(written);
        self.until = sent + self.renewal() * 2;
        if before.is_none() {
            info!(epoch, identity = self.settings.identity, "This hub holds the Lease");
        } else if !matches!(self.announcer.leadership(), Leadership::Leader { .. }) {
            info!(epoch, "This hub is certain again that it holds the Lease");
        }
        self.announcer.lead(epoch, self.until);
    }

    /// Handles a failed request, which may have taken effect nevertheless; returns the pause before the next one.
    fn fail(&mut self, error: &str) -> Duration {
        debug!(error, "A request for the Lease failed; the hub retries");
        match self.epoch {
            Some(epoch) if Instant::now() >= self.until => {
                if self.announcer.leadership() != (Leadership::Unsure { epoch }) {
                    warn!(
                        error,
                        epoch,
                        "Cannot renew the Lease: the hub signs and writes nothing until it can; the gateway continues"
                    );
                }
                self.announcer.step_back(Leadership::Unsure { epoch });
            }
            Some(_) => {}
            None => {
                // Perhaps the holder could not reach the API server either, so it gets the whole duration again.
                self.seen = None;
                let waiting = Leadership::Waiting(format!("which cannot be taken: {error}"));
                if self.announcer.leadership() != waiting {
                    warn!(error, "Cannot take the Lease; the hub retries");
                }
                self.announcer.step_back(waiting);
            }
        }
        self.look()
    }

    fn record(&self, lease: &Lease) -> LeaseRecord {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        LeaseRecord {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            transitions: spec.lease_transitions.and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
            duration: seconds.map_or(self.settings.duration, Duration::from_secs),
            version: lease.resource_version().unwrap_or_default(),
        }
    }

    /// The Lease with this hub as its holder; fields that others added stay.
    fn ours(&self, epoch: u32) -> Lease {
        let metadata = ObjectMeta { name: Some(LEASE_NAME.to_owned()), ..ObjectMeta::default() };
        let mut lease = self.current.clone().unwrap_or(Lease { metadata, spec: None });
        lease.annotations_mut().insert(ANNOTATION_VERSION.to_owned(), format!("{VERSION} {}", self.settings.identity));
        let spec = lease.spec.get_or_insert_default();
        let now = self.time();
        if spec.holder_identity.as_deref() != Some(&self.settings.identity) {
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.settings.identity.clone());
        spec.lease_transitions = Some(i32::try_from(epoch).unwrap_or(i32::MAX));
        spec.lease_duration_seconds = Some(i32::try_from(self.settings.duration.as_secs()).unwrap_or(i32::MAX).max(1));
        spec.renew_time = Some(now);
        lease
    }

    /// The time of day, only informative: no hub decides by it, because clocks differ.
    fn time(&self) -> MicroTime {
        MicroTime(jiff::Timestamp::from_second(self.clock.now().unix()).unwrap_or(jiff::Timestamp::MAX))
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        self.api.replace(LEASE_NAME, &PostParams::default(), lease).await
    }

    async fn release(&self) {
        self.announcer.step_back(Leadership::Released);
        match timeout(FAREWELL, self.give_back()).await {
            Ok(Ok(())) => info!("This hub released the Lease"),
            Ok(Err(error)) => {
                warn!(error = explain(&error), "Could not release the Lease; the next hub waits until it has expired")
            }
            Err(_) => warn!("Could not release the Lease in time; the next hub waits until it has expired"),
        }
    }

    /// Releases the Lease. It is read first, because a write that was under way when this hub was stopped may have
    /// changed it.
    async fn give_back(&self) -> Result<(), kube::Error> {
        loop {
            let Some(mut lease) = self.api.get_opt(LEASE_NAME).await? else { return Ok(()) };
            let spec: &mut LeaseSpec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.settings.identity) {
                return Ok(());
            }
            spec.holder_identity = Some(String::new());
            spec.renew_time = Some(self.time());
            match self.replace(&lease).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => sleep(AGAIN).await,
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }
}
