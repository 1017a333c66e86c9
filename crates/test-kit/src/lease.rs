//! The Lease of a test's hubs. A hub that was killed does not give it back, and a test should not wait until it has
//! expired: so the next hub of the test finds the Lease free.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;

use addon_signer_core::lease::LEASE_NAME;
use addon_signer_hub::lease::{Announcer, Holder, Leading, LeaseSettings, channel, identity};
use addon_signer_ledger::Location;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::TestHub;

/// The hubs that were killed while they held a Lease, in this run of the tests.
static KILLED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A hub's hold on its Lease.
pub struct Holding {
    pub stop: CancellationToken,
    pub task: Option<JoinHandle<()>>,
    identity: String,
    /// For a hub that only believes that it leads.
    believes: Option<Announcer>,
}

impl Holding {
    /// Takes the Lease as `client`; without a duration the hub believes at once that it leads.
    pub async fn start(hub: &TestHub, client: Client, duration: Option<Duration>, ledger: Location) -> (Self, Leading) {
        let stop = CancellationToken::new();
        let identity = identity("hub").unwrap();
        let Some(duration) = duration else {
            let (announcer, leading) = channel();
            let holding = Self { stop, task: None, identity, believes: Some(announcer) };
            holding.believe(Some(1));
            return (holding, leading);
        };
        bury(&leases(&hub.admin().await)).await;
        let namespace = "addon-signer".to_owned();
        let settings = LeaseSettings { namespace, identity: identity.clone(), duration, ledger };
        let (holder, leading) = Holder::new(client, Clock::default(), settings);
        let task = Some(tokio::spawn(holder.run(stop.clone())));
        (Self { stop, task, identity, believes: None }, leading)
    }

    /// Makes a hub without a Lease believe that it leads in this epoch, or that its time as leader has ended.
    pub fn believe(&self, epoch: Option<u32>) {
        let until = Instant::now() + epoch.map_or(Duration::ZERO, |_| Duration::from_secs(3_600));
        self.believes.as_ref().unwrap().lead(epoch.unwrap_or(1), until);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
            KILLED.lock().insert(self.identity.clone());
        }
    }
}

pub fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "addon-signer")
}

/// Changes the Lease without regard to its holder; `None` if there is no Lease.
pub async fn change(leases: &Api<Lease>, change: impl Fn(&mut LeaseSpec)) -> Option<Lease> {
    loop {
        let mut lease = leases.get_opt(LEASE_NAME).await.unwrap()?;
        change(lease.spec.get_or_insert_default());
        match leases.replace(LEASE_NAME, &PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            written => return Some(written.unwrap()),
        }
    }
}

/// Frees the Lease if a killed hub holds it, as its expiry would do.
async fn bury(leases: &Api<Lease>) {
    change(leases, |spec| {
        let killed = KILLED.lock();
        if spec.holder_identity.as_ref().is_some_and(|holder| killed.contains(holder)) {
            spec.holder_identity = Some(String::new());
        }
    })
    .await;
}
