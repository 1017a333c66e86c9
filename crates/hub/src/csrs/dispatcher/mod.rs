//! Watches all CSRs once, and gives each in its turn to the signer of its signer name.
//!
//! One watch serves all signers, because an API server allows few streams per connection. Clusters take turns, so that
//! one with many CSRs does not delay another. A CSR that must wait has one entry with a time of its own, so that it is
//! never in work twice at once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::HubError;
use crate::authorities::state::LineageState;
use crate::csrs::action::{self, KnownAccounts};
use crate::csrs::foreign::{ForeignReport, Origins};
use crate::csrs::newest::NewestCsrs;
use crate::csrs::room::{KnownCsr, KnownCsrs, Rereads};
use crate::csrs::signer::{Changes, Failures, Outcome, Signer};
use crate::csrs::unrecorded::{IssuedBefore, compare};
use crate::tasks::{ChangedEligibility, EligibilityWatch};
use addon_signer_api::request::BoundedCsr;
use addon_signer_core::doubling::doubled;
use addon_signer_core::policy::tenant_of_cluster;
use addon_signer_core::queue::FairQueue;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::listing::{Selector, watch as watch_objects};
use addon_signer_telemetry::pulse::Pulse;
use orders::Order;
pub(crate) use orders::Signing;

mod orders;

/// How many CSRs are in work at once. Some wait for the ledger; the others keep one API server busy without queueing in
/// it.
const CONCURRENCY: usize = 32;
/// How many of them may belong to one cluster.
const OF_A_CLUSTER: usize = 8;
/// Pauses of a CSR that waits for something in the hub. A change of that wakes it earlier.
const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(30);
/// The pauses after a failure.
const RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// Backoff for CSRs of a rate-limited cluster.
const LIMITED: Duration = Duration::from_secs(5);
const LAST_LIMITED: Duration = Duration::from_secs(600);
/// The longest pause of a CSR whose row of the ledger cannot be used: an administrator has to find the cause.
const QUARANTINED: Duration = Duration::from_secs(300);

/// The shortest time between two lists that find further CSRs of tenants that had too many.
const LIST_PAUSE: Duration = Duration::from_secs(300);

/// How often the dispatcher gives a sign of life when nothing happens.
const ROUND: Duration = Duration::from_secs(10);

/// The dispatcher's ends of its links to other tasks of the hub.
pub(crate) struct DispatcherLinks {
    /// Whose eligibility has changed.
    pub(crate) eligibility: EligibilityWatch,
    /// Receives the AddOnSigners whose CSRs the API server has forbidden the hub to answer.
    pub(crate) forbidden: mpsc::Sender<String>,
    /// Receives the certificates that another program signed.
    pub(crate) foreign: watch::Sender<ForeignReport>,
    /// Receives the newest CSR of each addon.
    pub(crate) newest: Arc<Mutex<NewestCsrs>>,
}

struct ServedSigner {
    signer: Arc<Signer>,
    stop: CancellationToken,
}

/// Watches and dispatches.
pub(crate) struct Dispatcher {
    api: Api<BoundedCsr>,
    rereads: Rereads,
    accounts: KnownAccounts,
    orders: mpsc::UnboundedReceiver<Order>,
    served: BTreeMap<String, ServedSigner>,
    known: KnownCsrs,
    queue: FairQueue<Instant>,
    work: JoinSet<(Arc<str>, Option<Outcome>)>,
    /// Waits, for each signer, for a change of what its CSRs may wait for.
    changes: JoinSet<Option<(String, Changes)>>,
    failures: Failures,
    eligibility: EligibilityWatch,
    forbidden: mpsc::Sender<String>,
    /// When all CSRs may be listed again at the earliest.
    next_list: Instant,
    origins: Origins,
    newest: Arc<Mutex<NewestCsrs>>,
    issued_before: IssuedBefore,
    /// Compares them with the ledger.
    comparing: JoinSet<()>,
}

impl Dispatcher {
    /// A dispatcher without signers.
    pub(crate) fn new(
        client: &Client,
        clock: Clock,
        accounts: KnownAccounts,
        links: DispatcherLinks,
    ) -> (Self, Signing) {
        let (signing, orders) = Signing::channel();
        let dispatcher = Self {
            api: Api::all(client.clone()),
            rereads: Rereads::new(client),
            accounts,
            orders,
            served: BTreeMap::new(),
            known: KnownCsrs::default(),
            queue: FairQueue::new(OF_A_CLUSTER),
            work: JoinSet::new(),
            changes: JoinSet::new(),
            failures: Failures::new(clock.clone()),
            eligibility: links.eligibility,
            forbidden: links.forbidden,
            next_list: Instant::now(),
            origins: Origins::new(clock, links.foreign),
            newest: links.newest,
            issued_before: IssuedBefore::default(),
            comparing: JoinSet::new(),
        };
        (dispatcher, signing)
    }

    /// Dispatches forever.
    ///
    /// # Errors
    /// The watch ended, or the work on a CSR panicked.
    pub(crate) async fn run(mut self, pulse: Pulse) -> Result<(), HubError> {
        let mut events = watch_objects(self.api.clone(), Selector::all());
        let mut rounds = tokio::time::interval(ROUND);
        loop {
            pulse.beat();
            self.start_work();
            let full = self.work.len() >= CONCURRENCY; // if so, finish some work first
            let due = self.queue.next_due().filter(|_| !full);
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.observe(event),
                    Some(Err(error)) => warn!(%error, "The watch of CSRs failed; the hub retries"),
                    None => return Err(HubError::TaskEnded("requests".to_owned())),
                },
                Some(order) = self.orders.recv() => self.handle_order(order),
                Some(ended) = self.work.join_next() => {
                    let (name, outcome) = ended?;
                    self.ended(&name, outcome);
                }
                Some(changed) = self.changes.join_next() => {
                    if let Some((signer_name, changes)) = changed? {
                        self.recheck(|request| *request.signer_name == *signer_name);
                        self.compare_origins(&signer_name);
                        self.await_change(signer_name, changes);
                    }
                }
                Some(compared) = self.comparing.join_next() => compared?,
                changed = self.eligibility.next() => self.recheck_clusters(changed),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                // `|`, because each of the two must take its flag: one list answers both.
                _ = rounds.tick() => if Instant::now() >= self.next_list
                    && self.known.wants_list() | self.origins.wants_list() {
                    self.next_list = Instant::now() + LIST_PAUSE;
                    events = watch_objects(self.api.clone(), Selector::all());
                },
            }
        }
    }

    fn observe(&mut self, event: Event<BoundedCsr>) {
        match event {
            Event::Init => {
                self.known.begin_list();
                self.origins.begin_list();
                self.newest.lock().begin_list();
                self.issued_before.begin();
            }
            Event::InitApply(request) => {
                if action::is_issued(&request.csr) {
                    self.issued_before.note(&request.csr);
                }
                self.seen(request);
            }
            Event::InitDone => {
                self.known.complete_list();
                self.origins.complete_list();
                self.newest.lock().complete_list();
                self.issued_before.complete();
                for (signer_name, served) in &self.served {
                    self.origins.compare(signer_name, &served.signer.lineage.borrow());
                    let issued = self.issued_before.take(signer_name);
                    self.comparing.spawn(compare(Arc::clone(&served.signer), issued));
                }
            }
            Event::Apply(request) => self.seen(request),
            Event::Delete(request) => {
                self.origins.gone(&request.csr, self.lineage_of(&request.csr).as_ref());
                self.newest.lock().remove(&request.csr, self.accounts.grpc_proxy.as_deref());
                self.finished(&request.csr);
            }
        }
    }

    fn seen(&mut self, request: BoundedCsr) {
        let csr = &request.csr;
        // Kubernetes' own signers are never ours, and they have most of the CSRs.
        let is_kubernetes = csr.spec.signer_name.starts_with("kubernetes.io/");
        if !is_kubernetes {
            self.newest.lock().note(csr, self.accounts.grpc_proxy.as_deref());
        }
        if action::is_issued(csr) {
            self.origins.note(csr, self.lineage_of(csr).as_ref());
            return self.finished(csr);
        }
        if is_kubernetes {
            return;
        }
        let name = csr.name_any();
        if !action::is_sane_name(&name) {
            return debug!(size = name.len(), "The hub ignores a CSR whose name is not a DNS subdomain");
        }
        let tenant = action::tenant_of(csr, &self.accounts);
        let csr = action::trimmed(request);
        let served = self.served.get(&csr.spec.signer_name);
        let is_served = served.is_some();
        if let Some(served) = served.filter(|_| action::is_refused(&csr)) {
            served.signer.unconfirmed.forget(&csr);
        }
        if self.known.put(&name, &tenant, csr) && is_served {
            self.queue.wake(&name, &tenant);
        }
    }

    /// Notes that a CSR has its certificate or was deleted.
    fn finished(&mut self, csr: &CertificateSigningRequest) {
        if let Some(served) = self.served.get(&csr.spec.signer_name) {
            served.signer.unconfirmed.forget(csr);
        }
        self.known.remove(&csr.name_any());
    }

    fn handle_order(&mut self, order: Order) {
        match order {
            Order::Serve(signer_name, signer) => {
                let changes = signer.changes();
                let issued = self.issued_before.take(&signer_name);
                self.comparing.spawn(compare(Arc::clone(&signer), issued));
                let served = ServedSigner { signer, stop: CancellationToken::new() };
                if let Some(before) = self.served.insert(signer_name.clone(), served) {
                    before.stop.cancel();
                }
                self.await_change(signer_name.clone(), changes);
                self.compare_origins(&signer_name);
                for (name, request) in self.known.iter().filter(|(_, request)| *request.signer_name == *signer_name) {
                    self.queue.wake(name, &request.tenant);
                }
            }
            Order::Stop { signer_name, name } => {
                if self.served.get(&signer_name).is_some_and(|served| served.signer.name() == name)
                    && let Some(served) = self.served.remove(&signer_name)
                {
                    served.stop.cancel();
                    self.origins.stop(&signer_name);
                }
            }
        }
    }

    fn await_change(&mut self, signer_name: String, mut changes: Changes) {
        let Some(served) = self.served.get(&signer_name) else { return };
        let stop = served.stop.clone();
        self.changes.spawn(stop.run_until_cancelled_owned(async move {
            changes.next().await;
            (signer_name, changes)
        }));
    }

    /// The lineage of the signer that serves a CSR.
    fn lineage_of(&self, csr: &CertificateSigningRequest) -> Option<LineageState> {
        self.served.get(&csr.spec.signer_name).map(|served| served.signer.lineage.borrow().clone())
    }

    /// Finds certificates of a signer that another program signed.
    fn compare_origins(&mut self, signer_name: &str) {
        if let Some(served) = self.served.get(signer_name) {
            self.origins.compare(signer_name, &served.signer.lineage.borrow());
        }
    }

    /// Checks the waiting CSRs of the clusters whose eligibility has changed.
    fn recheck_clusters(&mut self, changed: ChangedEligibility) {
        let ChangedEligibility::Of(clusters) = changed else { return self.recheck(|_| true) };
        let tenants: HashSet<String> = clusters.iter().map(tenant_of_cluster).collect();
        self.recheck(|request| tenants.contains(&*request.tenant));
    }

    /// Checks those of these CSRs that wait for something in the hub, because that has changed.
    fn recheck(&mut self, concerns: impl Fn(&KnownCsr) -> bool) {
        for (name, request) in self.known.iter_mut().filter(|(_, request)| concerns(request)) {
            if request.in_work {
                request.missed = true; // it may be decided on the old state
            } else if request.waits {
                self.queue.wake(name, &request.tenant);
            }
        }
    }

    fn start_work(&mut self) {
        while self.work.len() < CONCURRENCY {
            let Some(name) = self.queue.next(Instant::now()) else { return };
            let request = self.known.get_mut(&name);
            let served = request.as_ref().and_then(|request| self.served.get(&*request.signer_name));
            let (Some(request), Some(served)) = (request, served) else {
                self.queue.done(&name, None);
                continue;
            };
            // Asked here and not in the task, because a task may begin after the watch has shown the certificate.
            if let Some(pause) = request.object.as_ref().and_then(|csr| served.signer.awaits_watch(csr)) {
                self.queue.done(&name, Some(Instant::now() + pause));
                continue;
            }
            request.waits = false;
            request.in_work = true;
            request.missed = false;
            let (object, seen) = (request.object.clone(), request.seen);
            let signer = Arc::clone(&served.signer);
            let stop = served.stop.clone();
            let signer_name = Arc::clone(&request.signer_name);
            let rereads = self.rereads.clone();
            self.work.spawn(async move {
                let work = async {
                    match rereads.object(object, &name, &signer_name).await {
                        Ok(Some(object)) => signer.work(&object).await.unwrap_or_else(Outcome::Failed),
                        Ok(None) => Outcome::Done,
                        Err(error) => Outcome::Failed(error.into()),
                    }
                };
                let outcome = stop.run_until_cancelled(work).await;
                if matches!(outcome, Some(Outcome::Published)) {
                    signer.shared.links.metrics.csr_seconds.observe(seen.elapsed().as_secs_f64());
                }
                (name, outcome)
            });
        }
    }

    fn ended(&mut self, name: &str, outcome: Option<Outcome>) {
        let Some(request) = self.known.get_mut(name) else { return self.queue.done(name, None) };
        request.in_work = false;
        let kind = outcome.as_ref().map(std::mem::discriminant);
        let attempts = if std::mem::replace(&mut request.last, kind) == kind { request.attempts } else { 0 };
        request.attempts = attempts.saturating_add(1);
        let pause = match outcome {
            // The signer was stopped: its successor checks all its CSRs.
            None | Some(Outcome::Done | Outcome::Published) => None,
            Some(Outcome::AwaitChange | Outcome::Wait) if request.missed => Some(Duration::ZERO),
            Some(Outcome::AwaitChange) => {
                request.waits = true;
                None
            }
            Some(Outcome::Later(pause)) => Some(pause),
            // The pauses grow, because the cluster may have thousands of CSRs, of which only one at a time gets an
            // answer.
            Some(Outcome::Limited(pause)) => Some(doubled(LIMITED, attempts, LAST_LIMITED).max(pause)),
            Some(Outcome::Wait) => {
                request.waits = true;
                Some(doubled(SOON, attempts, LATE))
            }
            Some(Outcome::Quarantined) => Some(doubled(RETRY, attempts, QUARANTINED)),
            Some(Outcome::Failed(error)) => {
                let tenant = Arc::clone(&request.tenant);
                if let (true, Some(served)) = (error.is_forbidden(), self.served.get(&*request.signer_name)) {
                    // A full channel means that the supervisor will ask anyway.
                    let _ = self.forbidden.try_send(served.signer.name());
                }
                self.failures.report(name, &tenant, &error);
                Some(doubled(RETRY, attempts, LAST_RETRY))
            }
        };
        self.queue.done(name, pause.map(|pause| Instant::now() + pause));
    }
}

#[cfg(test)]
mod tests;
