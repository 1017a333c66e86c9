//! The Lease of a gateway in a process of its own. It reports that the gateway is alive, and what it trusts.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use k8s_openapi::jiff;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use addon_signer_core::gateway::replicas::LARGEST_BOUND;
use addon_signer_core::lease::{Loss, NewestVersion};
use addon_signer_core::names::{ANNOTATION_TRUSTS, LABEL_GATEWAY};
use addon_signer_core::trust::Trust;
use addon_signer_platform::backoff::Pauses;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::contacts::Contacts;
use addon_signer_platform::errors::explain;
use addon_signer_telemetry::pulse::Pulse;

/// How often the Lease is renewed, at least.
const RENEWAL: Duration = Duration::from_secs(10);
/// Timeout of one write.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The name of these writes in the contacts.
pub const LEASES: &str = "leases";
/// The pauses between attempts.
const SHORTEST: Duration = Duration::from_millis(200);
/// How long a gateway that ends tries to release its Lease. If that fails, the signer waits for the whole bound.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a gateway keeps its Lease.
#[derive(Debug, Clone)]
pub struct GatewayLease {
    /// Where the Lease is.
    pub namespace: String,
    /// Its name: that of the pod.
    pub name: String,
    /// `metadata.uid` of the pod, so that the Lease is deleted together with it.
    pub pod_uid: Option<String>,
    /// The holder's name, unique to this start of the process.
    pub identity: String,
    /// How long after the API server's last response this gateway refuses all clients.
    pub bound: Duration,
}

/// Why a gateway must end.
#[derive(Debug, thiserror::Error)]
pub enum GatewayLeaseError {
    /// Another process has the same name.
    #[error("{holder} holds the Lease {name} now: each gateway needs a --replica of its own")]
    Taken {
        /// The Lease.
        name: String,
        /// Its holder.
        holder: String,
    },
    /// etcd was restored from a backup.
    #[error("the gateway must read everything again: {0}")]
    Restored(Loss),
}

/// Keeps the Lease of a gateway.
pub struct LeaseKeeper {
    api: Api<Lease>,
    lease: GatewayLease,
    clock: Clock,
    /// The trust that the gateway has in effect.
    trusted: watch::Receiver<Arc<Trust>>,
    /// Its writes are noted here: a gateway with an old Lease must stop serving, because signers no longer wait for it.
    contacts: Contacts,
    /// Whether the Lease has been written.
    registered: watch::Sender<bool>,
    newest: NewestVersion,
    /// The Lease as the API server returned it last.
    current: Option<Lease>,
}

impl LeaseKeeper {
    /// Makes a keeper, and a receiver that shows when the Lease exists.
    pub fn new(
        client: Client,
        lease: GatewayLease,
        clock: Clock,
        trusted: watch::Receiver<Arc<Trust>>,
        contacts: Contacts,
    ) -> (Self, watch::Receiver<bool>) {
        let (registered, is_registered) = watch::channel(false);
        let api = Api::namespaced(client, &lease.namespace);
        let newest = NewestVersion::default();
        (Self { api, lease, clock, trusted, contacts, registered, newest, current: None }, is_registered)
    }

    /// Writes the Lease at once, after each change of what the gateway trusts, and every ten seconds, until `stop` is
    /// cancelled; then releases it.
    pub async fn run(mut self, stop: CancellationToken, pulse: Pulse) -> Result<(), GatewayLeaseError> {
        if let Some(error) = stop.run_until_cancelled(self.keep(pulse)).await {
            return Err(error);
        }
        self.release().await;
        Ok(())
    }

    /// Returns why the gateway must end.
    async fn keep(&mut self, pulse: Pulse) -> GatewayLeaseError {
        let mut pauses = Pauses::new(SHORTEST, RENEWAL);
        loop {
            pulse.beat();
            self.trusted.mark_unchanged();
            let sent = Instant::now();
            let written = timeout(TIMEOUT, self.write(Some(self.lease.identity.clone()))).await;
            let failure = match written {
                Ok(Ok(())) => None,
                Ok(Err(NotWritten::Ends(error))) => return error,
                Ok(Err(NotWritten::Api(error))) => Some(explain(&error)),
                Err(_) => Some("the API server does not answer in time".to_owned()),
            };
            match failure {
                None => {
                    pauses = Pauses::new(SHORTEST, RENEWAL);
                    self.registered.send_replace(true);
                    self.contacts.answered(LEASES, sent);
                    // If the sender has ended, the gateway's task reports that.
                    let renewal = RENEWAL.min(self.lease.bound / 3);
                    if let Ok(Err(_)) = timeout(renewal, self.trusted.changed()).await {
                        sleep(renewal).await;
                    }
                }
                Some(error) => {
                    warn!(name = self.lease.name, error, "Could not write the gateway's Lease; the gateway retries");
                    // The write may have succeeded, so the next one reads the Lease first.
                    self.current = None;
                    sleep(pauses.after_failure()).await;
                }
            }
        }
    }

    async fn write(&mut self, holder: Option<String>) -> Result<(), NotWritten> {
        if self.current.is_none() {
            self.current = self.api.get_opt(&self.lease.name).await?;
            if let Some(found) = self.current.as_ref().and_then(ResourceExt::resource_version) {
                self.note(&found)?;
            }
            self.check_holder()?;
        }
        let wanted = self.wanted(holder);
        let written = match &self.current {
            None => self.api.create(&PostParams::default(), &wanted).await?,
            Some(_) => self.api.replace(&self.lease.name, &PostParams::default(), &wanted).await?,
        };
        self.note(&written.resource_version().unwrap_or_default())?;
        self.current = Some(written);
        Ok(())
    }

    /// Notes the version of a Lease that was read or written. After a restore of etcd, the version of the Lease in the
    /// backup is always older; the version of the next write may be newer, if other clients have written much.
    fn note(&mut self, version: &str) -> Result<(), GatewayLeaseError> {
        self.newest.note(version).map_err(GatewayLeaseError::Restored)
    }

    /// The first write takes the Lease over, because the process that had this name before has ended. After that no
    /// other process may hold it.
    fn check_holder(&self) -> Result<(), GatewayLeaseError> {
        let has_held = *self.registered.borrow();
        let holder = self.current.as_ref().and_then(|lease| lease.spec.as_ref()?.holder_identity.clone());
        match holder.filter(|holder| has_held && !holder.is_empty() && *holder != self.lease.identity) {
            Some(holder) => Err(GatewayLeaseError::Taken { name: self.lease.name.clone(), holder }),
            None => Ok(()),
        }
    }

    fn wanted(&self, holder: Option<String>) -> Lease {
        let GatewayLease { name, pod_uid, bound, .. } = &self.lease;
        let trusts = self.trusted.borrow().authorities();
        let trusts = trusts.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" ");
        let owner = pod_uid.clone().map(|uid| OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name.clone(),
            uid,
            ..OwnerReference::default()
        });
        let version = self.current.as_ref().and_then(ResourceExt::resource_version);
        let now = jiff::Timestamp::from_second(self.clock.now().unix()).ok(); // only informative
        Lease {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some([(LABEL_GATEWAY.to_owned(), "true".to_owned())].into()),
                annotations: Some([(ANNOTATION_TRUSTS.to_owned(), trusts)].into()),
                owner_references: owner.map(|owner| vec![owner]),
                resource_version: version,
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder,
                lease_duration_seconds: i32::try_from(bound.min(&LARGEST_BOUND).as_secs()).ok(), // a day fits
                renew_time: now.map(MicroTime),
                ..LeaseSpec::default()
            }),
        }
    }

    async fn release(&mut self) {
        if !*self.registered.borrow() {
            return;
        }
        let farewell = async {
            match self.write(None).await {
                // The renewal that `stop` interrupted may have succeeded: then `current` is outdated.
                Err(NotWritten::Api(_)) => {
                    self.current = None;
                    self.write(None).await
                }
                written => written,
            }
        };
        match timeout(FAREWELL, farewell).await {
            Ok(Ok(())) => {}
            Ok(Err(NotWritten::Api(error))) => {
                let error = explain(&error);
                warn!(error, "Could not release the gateway's Lease: rotations wait until it is outdated");
            }
            Ok(Err(NotWritten::Ends(error))) => warn!(%error, "Could not release the gateway's Lease"),
            Err(_) => warn!("Could not release the gateway's Lease in time: rotations wait until it is outdated"),
        }
    }
}

/// Why the Lease was not written.
#[derive(Debug, thiserror::Error)]
enum NotWritten {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Ends(#[from] GatewayLeaseError),
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use addon_signer_telemetry::pulse::Pulses;

    /// Before the gateway's next write, other clients may have written as much as the restore has undone.
    #[tokio::test(start_paused = true)]
    async fn restore_shows_in_the_lease_that_is_read_after_a_conflict() {
        let lease = |version: &str| (200, json!({ "metadata": { "name": "gateway-1", "resourceVersion": version } }));
        let status = |code: u16, reason: &str| (code, json!({ "kind": "Status", "code": code, "reason": reason }));
        let answers = [status(404, "NotFound"), lease("9"), status(409, "Conflict"), lease("5"), lease("100")];
        let answers = Arc::new(Mutex::new(answers.into_iter()));
        let service = tower::service_fn(move |_: Request<Body>| {
            let (code, body) = answers.lock().next().unwrap();
            let body = Body::from(body.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        let lease = GatewayLease {
            namespace: "ns".to_owned(),
            name: "gateway-1".to_owned(),
            pod_uid: None,
            identity: "gateway-1_a".to_owned(),
            bound: Duration::from_secs(600),
        };
        let (_sender, trust) = watch::channel(Arc::new(Trust::default()));
        let client = Client::new(service, "default");
        let (mut keeper, _registered) = LeaseKeeper::new(client, lease, Clock::default(), trust, Contacts::default());
        let keeping = keeper.keep(Pulses::default().start("Lease"));
        let ended = timeout(Duration::from_secs(60), keeping).await.expect("it ends after the read");
        assert!(matches!(ended, GatewayLeaseError::Restored(_)), "{ended}");
    }
}
