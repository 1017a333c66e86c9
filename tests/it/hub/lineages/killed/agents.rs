//! Agents that renew their certificates and call through the gateway all the time. Each failure of one that is eligible
//! counts.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use addon_signer_agent::store::Store;
use addon_signer_agent::{Agent, Outcome};
use addon_signer_core::ca::bundle::Purpose;
use addon_signer_core::names::LABEL_CLUSTER_NAME;
use addon_signer_platform::clock::Clock;
use hyper::{Method, StatusCode};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use test_kit::crds::MANAGED_CLUSTERS;
use test_kit::hub::{TIMEOUT, certificate};
use test_kit::wait::wait_or_explain;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinSet;
use tokio::time::sleep;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::super::kit::OnServer;
use crate::whole::client::ClientPair;
use crate::whole::ours::{pair, settings};

const RECEIVE: &str = "/addons/telemetry/api/v1/receive";
/// An agent whose clock is so far ahead renews a certificate of 24 hours at once.
const AHEAD: Duration = Duration::from_secs(18 * 3_600);
/// Pause after a call, and after a renewal.
const CALL_PAUSE: Duration = Duration::from_millis(20);
const RENEWAL_PAUSE: Duration = Duration::from_millis(100);

/// What became of calls and renewals.
#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    renewals: AtomicU64,
    /// Calls with a certificate of an authority that the test has revoked.
    shut_out: AtomicU64,
    failed: Mutex<Vec<String>>,
    /// The certificate of each CSR of an agent, by the CSR's UID.
    given: Mutex<HashMap<String, Vec<String>>>,
    /// The issuers of certificates that do not count any more.
    revoked: Mutex<Vec<String>>,
}

/// Agents that go on until they are dropped.
pub(super) struct Agents {
    counts: Arc<Counts>,
    pairs: Vec<Arc<Mutex<ClientPair>>>,
    /// Whoever renews holds it for reading.
    renewing: Arc<RwLock<()>>,
    tasks: JoinSet<()>,
}

impl Agents {
    /// Enrols the agents of these clusters.
    pub(super) async fn start(
        hub: &TestHub,
        admin: &Client,
        dir: &Path,
        gateway: SocketAddr,
        clusters: &[&str],
    ) -> Self {
        let mut agents =
            Self { counts: Arc::default(), pairs: Vec::new(), renewing: Arc::default(), tasks: JoinSet::new() };
        for cluster in clusters {
            accept_cluster(admin, cluster).await;
            install_addon(admin, cluster, "telemetry").await;
            let agent = RenewingAgent::enrol(hub, admin, dir, cluster, gateway, agents.counts.clone()).await;
            agents.pairs.push(agent.stored.clone());
            agents.tasks.spawn(call(agent.stored.clone(), gateway, agents.counts.clone()));
            agents.tasks.spawn(agent.renew(agents.renewing.clone()));
        }
        agents
    }

    /// Lets no agent renew while the returned value lives.
    pub(super) async fn pause_renewals(&self) -> OwnedRwLockWriteGuard<()> {
        self.renewing.clone().write_owned().await
    }

    /// Waits until every agent has a certificate of this authority.
    pub(super) async fn wait_hold(&self, lineage: &OnServer, authority: &str) {
        let what = format!("every agent to have a certificate of {authority}");
        let have = async || {
            let bundle = lineage.bundle().await?;
            let now = Clock::default().now();
            let holds = |pair: &Arc<Mutex<ClientPair>>| {
                let signed = bundle.verify(&pair.lock().leaf(), Purpose::Client, now);
                signed.is_ok_and(|by| by.id().as_str() == authority)
            };
            self.pairs.iter().all(holds).then_some(())
        };
        wait_or_explain(TIMEOUT, &what, have, || self.counts.failed.lock().join("\n")).await;
    }

    /// Says that the certificates that agents have now are about to be revoked with their authority.
    pub(super) fn give_up(&self) {
        let issuers = self.pairs.iter().map(|pair| issuer(&pair.lock()));
        self.counts.revoked.lock().extend(issuers);
    }

    /// Panics if an agent that is eligible was refused.
    pub(super) fn assert_served(&self) {
        let failed = self.counts.failed.lock();
        assert!(failed.is_empty(), "{} failed: {}", failed.len(), failed.join("\n"));
    }

    /// The certificate of each CSR of an agent, by the CSR's UID.
    pub(super) fn given(&self) -> HashMap<String, Vec<String>> {
        self.counts.given.lock().clone()
    }

    /// Ends calls and renewals; fails if one failed.
    pub(super) async fn stop(&mut self) -> String {
        let _idle = self.pause_renewals().await;
        self.tasks.shutdown().await;
        self.assert_served();
        let Counts { calls, renewals, shut_out, .. } = &*self.counts;
        let [calls, renewals, shut_out] = [calls, renewals, shut_out].map(|count| count.load(Ordering::Relaxed));
        assert!(calls > 0 && renewals > 0, "{calls} calls, {renewals} renewals");
        format!(
            "{calls} calls and {renewals} renewals of entitled agents, 0 failed; {shut_out} calls by agents whose \
             authority was revoked"
        )
    }
}

/// Waits until the gateway knows the routes of the signer.
async fn wait_routed(pair: &ClientPair, gateway: SocketAddr) {
    wait_until(TIMEOUT, "a call to pass", async || {
        let (status, _) = pair.call(gateway, Method::POST, RECEIVE).await.ok()?;
        (status == StatusCode::OK).then_some(())
    })
    .await;
}

async fn call(stored: Arc<Mutex<ClientPair>>, gateway: SocketAddr, counts: Arc<Counts>) {
    loop {
        let pair = stored.lock().clone();
        let fault = match pair.call(gateway, Method::POST, RECEIVE).await {
            Ok((StatusCode::OK, _)) => None,
            Ok((status, body)) => Some(format!("{status}: {body}")),
            Err(error) => Some(error.to_string()),
        };
        match fault {
            Some(_) if counts.revoked.lock().contains(&issuer(&pair)) => {
                counts.shut_out.fetch_add(1, Ordering::Relaxed);
            }
            Some(fault) => counts.failed.lock().push(format!("a call with {}: {fault}", issuer(&pair))),
            None => {
                counts.calls.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(CALL_PAUSE).await;
    }
}

/// An agent whose clock is ahead, so that it renews whenever it looks.
struct RenewingAgent {
    agent: Agent,
    dir: PathBuf,
    cluster: String,
    stored: Arc<Mutex<ClientPair>>,
    requests: Api<CertificateSigningRequest>,
    counts: Arc<Counts>,
}

impl RenewingAgent {
    async fn enrol(
        hub: &TestHub,
        admin: &Client,
        dir: &Path,
        cluster: &str,
        gateway: SocketAddr,
        counts: Arc<Counts>,
    ) -> Self {
        let group = format!("system:open-cluster-management:{cluster}");
        let kubeconfig = hub.kubeconfig(&format!("{group}:a1"), &[&group, MANAGED_CLUSTERS]);
        let clock = Clock::default();
        clock.advance(AHEAD);
        let store = Store::directory(dir.join(cluster));
        let mut agent = Agent::new(settings(&kubeconfig, dir, cluster, gateway), store, clock);
        let first = wait_until(TIMEOUT, "the agent to enrol", async || {
            agent.once().await.ok()?; // an addon that is not known yet is refused
            pair(dir, cluster)
        })
        .await;
        wait_routed(&first, gateway).await;
        let stored = Arc::new(Mutex::new(first));
        Self {
            agent,
            dir: dir.to_owned(),
            cluster: cluster.to_owned(),
            stored,
            requests: Api::all(admin.clone()),
            counts,
        }
    }

    async fn renew(mut self, renewing: Arc<RwLock<()>>) {
        loop {
            let may_renew = renewing.read().await;
            match self.agent.once().await {
                Ok(Outcome::Enrolled { .. }) => {
                    *self.stored.lock() = pair(&self.dir, &self.cluster).unwrap();
                    self.counts.renewals.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Outcome::Valid { .. }) => self.fail("it did not renew"),
                Err(error) => self.fail(&error.to_string()),
            }
            if let Err(error) = self.clear_away().await {
                self.fail(&error.to_string());
            }
            drop(may_renew);
            sleep(RENEWAL_PAUSE).await;
        }
    }

    fn fail(&self, why: &str) {
        self.counts.failed.lock().push(format!("a renewal of {}: {why}", self.cluster));
    }

    /// Deletes what was answered, as Kubernetes does after an hour: an agent makes no CSR beside ten others.
    async fn clear_away(&self) -> kube::Result<()> {
        let ours = ListParams::default().labels(&format!("{LABEL_CLUSTER_NAME}={}", self.cluster));
        for request in self.requests.list(&ours).await? {
            let given = certificate(&request).into_iter().collect();
            self.counts.given.lock().insert(request.uid().unwrap(), given);
            self.requests.delete(&request.name_any(), &Default::default()).await?;
        }
        Ok(())
    }
}

fn issuer(pair: &ClientPair) -> String {
    let leaf = pair.leaf();
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    leaf.issuer().to_string()
}
