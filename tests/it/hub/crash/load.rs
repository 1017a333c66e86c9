//! A load of CSRs from several clusters, some always in flight, that also watches the result of each CSR.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::books::{CertificateRow, Tally, assert_whole, compare, rows};
use super::kit::{CrashWorld, closes_all};
use crate::hub::mk_csr;
use test_kit::hub::{TIMEOUT, certificate};
use test_kit::wait::wait_or_explain;

/// How many CSRs wait for their certificate at any time.
const IN_FLIGHT: usize = 30;
/// How many CSRs are created or deleted at the same time.
const AT_ONCE: usize = 8;

/// Every certificate that was ever seen on each CSR, by the CSR's UID.
type Seen = HashMap<String, Vec<String>>;

/// A load that runs until it is dropped.
pub(super) struct Load {
    seen: Arc<Mutex<Memory>>,
    watching: JoinSet<()>,
    driving: JoinSet<()>,
}

#[derive(Default)]
struct Memory {
    certificates: Seen,
    names: HashMap<String, String>,
    issued: usize,
}

impl Memory {
    fn note(&mut self, csr: &CertificateSigningRequest) {
        let uid = csr.uid().unwrap();
        let name = csr.name_any();
        let known = self.certificates.entry(uid.clone()).or_default();
        if let Some(certificate) = certificate(csr)
            && !known.contains(&certificate)
        {
            known.push(certificate);
            self.issued += 1;
        }
        self.names.insert(uid, name);
    }

    fn waiting(&self) -> usize {
        self.certificates.values().filter(|certificates| certificates.is_empty()).count()
    }

    fn tell_waiting(&self) -> String {
        let waiting = self.certificates.iter().filter(|(_, certificates)| certificates.is_empty());
        let tell = |(uid, _): (&String, _)| format!("{uid} {:?}", self.names.get(uid));
        waiting.map(tell).collect::<Vec<_>>().join("\n")
    }
}

impl Load {
    pub(super) async fn start(world: &CrashWorld, clusters: &[&str]) -> Self {
        let seen = Arc::<Mutex<Memory>>::default();
        let mut watching = JoinSet::new();
        let mut driving = JoinSet::new();
        let memory = seen.clone();
        let requests = world.requests();
        watching.spawn(async move {
            let changes = watcher(requests, watcher::Config::default()).default_backoff().applied_objects();
            let noted = changes.try_for_each(async |csr| {
                memory.lock().note(&csr);
                Ok(())
            });
            panic!("the watch of the CSRs ended: {:?}", noted.await);
        });
        let mut agents = Vec::new();
        for cluster in clusters {
            let agent = world.hub.as_cluster_agent(cluster, "a1").await;
            agents.push(((*cluster).to_owned(), Api::<CertificateSigningRequest>::all(agent)));
        }
        let memory = seen.clone();
        driving.spawn(async move { drive(&agents, &memory).await });
        Self { seen, watching, driving }
    }

    /// The number of certificates so far.
    pub(super) fn issued(&self) -> usize {
        self.seen.lock().issued
    }

    /// Panics if the load has ended by itself.
    pub(super) fn assert_running(&mut self) {
        if let Some(ended) = self.watching.try_join_next().or_else(|| self.driving.try_join_next()) {
            panic!("the load ended: {ended:?}");
        }
    }

    /// Stops creating requests and waits until all have their certificates.
    pub(super) async fn settle(&mut self) {
        self.assert_running();
        self.driving.shutdown().await;
        let issued = async || (self.seen.lock().waiting() == 0).then_some(());
        let explain = || self.seen.lock().tell_waiting();
        wait_or_explain(2 * TIMEOUT, "every CSR to have its certificate", issued, explain).await;
    }

    /// Returns all certificates that were ever seen, including those that are there now.
    pub(super) async fn finish(mut self, world: &CrashWorld) -> Seen {
        let there = world.requests().list(&ListParams::default()).await.unwrap();
        self.watching.shutdown().await;
        let mut memory = self.seen.lock();
        there.items.iter().for_each(|csr| memory.note(csr));
        std::mem::take(&mut memory.certificates)
    }

    /// Lets a last hub finish everything: then every CSR has one certificate, which is the recorded one, and no row
    /// is open.
    pub(super) async fn conclude(mut self, world: &CrashWorld, ledger: &str) -> (Tally, Vec<CertificateRow>) {
        let running = world.last_hub(ledger).await;
        self.settle().await;
        let tally = compare(&self.finish(world).await, &rows(ledger).await);
        tally.assert_clean();
        closes_all(&running).await;
        running.stop().await;
        let rows = rows(ledger).await;
        assert!(rows.iter().all(|row| ["published", "abandoned"].contains(&row.state.as_str())), "{rows:?}");
        assert_whole(ledger, world.dir()).await;
        (tally, rows)
    }

    /// Deletes CSRs that have their certificate and whose row says so, so that the list does not grow without end.
    pub(super) async fn prune(&self, world: &CrashWorld, rows: &[CertificateRow]) {
        let done: HashSet<_> = rows.iter().filter(|row| row.state == "published").map(|row| &row.uid).collect();
        let names: Vec<_> = {
            let mut memory = self.seen.lock();
            let uids: Vec<_> = memory.names.keys().filter(|uid| done.contains(uid)).cloned().collect();
            uids.iter().filter_map(|uid| memory.names.remove(uid)).collect()
        };
        let requests = world.requests();
        let deleted = stream::iter(names).for_each_concurrent(AT_ONCE, |name| {
            let requests = requests.clone();
            async move {
                match requests.delete(&name, &Default::default()).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {} // a late event noted it again
                    deleted => drop(deleted.unwrap()),
                }
            }
        });
        deleted.await;
    }
}

async fn drive(agents: &[(String, Api<CertificateSigningRequest>)], memory: &Mutex<Memory>) {
    let mut turn = agents.iter().cycle();
    loop {
        let missing = IN_FLIGHT.saturating_sub(memory.lock().waiting());
        let mut created = Vec::new();
        for (cluster, api) in turn.by_ref().take(missing) {
            created.push(create(cluster, api));
        }
        let mut created = stream::iter(created).buffer_unordered(AT_ONCE);
        while let Some(csr) = created.next().await {
            csr.iter().for_each(|csr| memory.lock().note(csr)); // the watch shows it as well, later
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Creates a CSR; `None` if the name that the API server made up is taken.
async fn create(cluster: &str, api: &Api<CertificateSigningRequest>) -> Option<CertificateSigningRequest> {
    match api.create(&PostParams::default(), &mk_csr(cluster, "telemetry")).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => None,
        created => Some(created.unwrap()),
    }
}
