//! The hub of a test: a real API server, or the stand-in.

use std::net::SocketAddr;

use ::stand_in::{Backup, StandIn};
use addon_signer_platform::clock::Clock;
use hyper::Request;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::crds::{self, MANAGED_CLUSTERS};
use crate::moved;
use crate::needed::{Needed, has};
use crate::objects;
use crate::real::{RealHub, WITHOUT_FSYNC, assets};

/// Which version of ManagedClusterAddOn the hub serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddOnApi {
    /// The version that agents up to OCM 1.2 read.
    V1alpha1,
    /// The version that agents from OCM 1.3 on read.
    V1beta1,
}

/// The hub of a test: a real one if `KUBEBUILDER_ASSETS` names the binaries, otherwise the stand-in.
pub enum TestHub {
    StandIn(StandIn),
    Real(Box<RealHub>),
}

impl TestHub {
    /// The stand-in with these objects, whose clock is `clock`. Also returns the objects of kinds that it lacks.
    pub async fn moved_here(objects: Vec<Value>, clock: &Clock) -> (Self, Vec<Value>) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let hub = StandIn::start(any).await.unwrap();
        let left_out = hub.load(objects, moved::ahead(clock));
        (Self::StandIn(hub), left_out)
    }

    /// A hub with OCM's CRDs and ours, and nothing else; a real one serves ManagedClusterAddOn in v1alpha1.
    pub async fn start() -> Self {
        Self::start_with(AddOnApi::V1alpha1).await
    }

    /// The same; a real one serves ManagedClusterAddOn in `api` only, the stand-in has a fixed table of resources.
    pub async fn start_with(api: AddOnApi) -> Self {
        match assets() {
            Some(_) => Self::Real(Box::new(RealHub::shared(api).await)),
            None => Self::stand_in().await,
        }
    }

    /// The same, but a real one has no CRD of ours.
    pub async fn start_without_ours() -> Self {
        match assets() {
            Some(_) => Self::with_ocm(RealHub::start(&[WITHOUT_FSYNC]).await, AddOnApi::V1alpha1).await,
            None => Self::stand_in().await,
        }
    }

    async fn stand_in() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::StandIn(StandIn::start(any).await.unwrap())
    }

    /// Installs OCM's resources on a real hub.
    pub async fn with_ocm(hub: RealHub, api: AddOnApi) -> Self {
        let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;
        crds::install(&admin, &hub.binary(""), api).await;
        crds::grant_agent_rights(&admin).await;
        Self::Real(Box::new(hub))
    }

    /// A kubeconfig for any user with any groups.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        match self {
            Self::StandIn(hub) => hub.kubeconfig(user, groups),
            Self::Real(hub) => hub.kubeconfig(user, groups),
        }
    }

    /// A client that may do everything.
    pub async fn admin(&self) -> Client {
        self.client_as("admin", &["system:masters"]).await
    }

    /// A client that is this user, with these groups and `system:authenticated`.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        client(self.kubeconfig(user, groups)).await
    }

    /// A client that is the registration agent of a cluster, as OCM names it.
    pub async fn as_cluster_agent(&self, cluster: &str, agent_id: &str) -> Client {
        let user = format!("system:open-cluster-management:{cluster}:{agent_id}");
        let group = format!("system:open-cluster-management:{cluster}");
        self.client_as(&user, &[&group, MANAGED_CLUSTERS]).await
    }

    /// A client for a hub with this clock, with which the API server's clock moves: see `moved.rs`.
    pub async fn client_at(&self, user: &str, groups: &[&str], clock: &Clock) -> Client {
        let clock = clock.clone();
        let stamps = matches!(self, Self::StandIn(hub) if hub.ahead() != 0);
        let client = self.client_as(user, groups).await;
        let service = tower::service_fn(move |request: Request<Body>| {
            let client = client.clone();
            let clock = clock.clone();
            // What it has stamped itself has the right time.
            let path = if stamps { String::new() } else { request.uri().path().to_owned() };
            async move { client.send(request).await.map(|answer| moved::moved(answer, &path, &clock)) }
        });
        Client::new(service, "default")
    }

    /// Whether RBAC, schemas and everything else of a real API server are in force.
    pub fn is_real(&self) -> bool {
        self.real().is_some()
    }

    /// The real hub, for what only a real one has.
    pub fn real(&self) -> Option<&RealHub> {
        match self {
            Self::StandIn(_) => None,
            Self::Real(hub) => Some(hub),
        }
    }

    /// The same; without one, says that the test is skipped.
    pub fn real_or_skip(&self) -> Option<&RealHub> {
        let real = self.real();
        has(Needed::ApiServer, real.is_some());
        real
    }

    /// Poisons an object (`objects::poison`), twice: the API server gives the first entry a time of its own. The
    /// stand-in keeps none of it.
    pub async fn spoil(&self, admin: &Client, path: &str) {
        if self.is_real() {
            objects::poison(admin, path, |_| {}).await;
            let written = objects::poison(admin, path, |_| {}).await;
            assert!(written.contains("9999-12-31"), "{written}");
        }
    }

    /// Copies what etcd has; `None` for a real one, which tests share.
    pub fn back_up(&self) -> Option<Backup> {
        match self {
            Self::StandIn(hub) => Some(hub.back_up()),
            Self::Real(_) => None,
        }
    }

    /// Restores etcd from such a copy.
    pub fn restore(&self, backup: Backup) {
        match self {
            Self::StandIn(hub) => hub.restore(backup),
            Self::Real(_) => panic!("a real etcd is shared with other tests"),
        }
    }

    /// Stops the API server: its connections break, and new ones are refused.
    pub async fn pause(&self) {
        match self {
            Self::StandIn(hub) => hub.pause().await,
            Self::Real(hub) => hub.stop_api_server(),
        }
    }

    /// Starts the API server again at the same address, with the same state.
    pub async fn resume(&self) {
        match self {
            Self::StandIn(hub) => hub.resume().await,
            Self::Real(hub) => hub.start_api_server().await,
        }
    }
}

/// A client that uses this kubeconfig.
pub async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    addon_signer_platform::connection::connect(config).unwrap()
}
