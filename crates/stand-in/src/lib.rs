//! An in-process stand-in for a hub's Kubernetes API, for `addon-signer demo` and the fast tests.
//!
//! It serves enough of the API over HTTPS for the `kube` client and for kubectl: discovery, create, get, list in pages,
//! watch with bookmarks, replace, two patch formats, delete with finalizers, the `status` and `approval` subresources,
//! selectors, tables, and kube-apiserver's rules for CertificateSigningRequests. Every difference from a real server is
//! a bug, except these known ones:
//!
//! - No RBAC: every known token may do everything. Impersonation is for `system:masters`.
//! - The custom resources of the table are served without a CustomResourceDefinition, then without a schema;
//!   ManifestWorks only while their CustomResourceDefinition is stored. A CustomResourceDefinition is stored as a plain
//!   object. One with the name of ClusterTrustBundles stands for the flags that make a real Kubernetes 1.36 server
//!   serve them.
//! - While a CustomResourceDefinition with a schema is stored, objects of its kind are pruned, get defaults and are
//!   checked when they are written; what was stored earlier is shown as it is. Not checked: `allOf`, `anyOf`, `oneOf`,
//!   `not`, exclusive bounds, `multipleOf`, `format` except `date-time`, and embedded resources. CEL rules
//!   (`x-kubernetes-validations`) have no costs, no `messageExpression`, `reason` and `optionalOldSelf`, and of the
//!   functions of Kubernetes only `split`. Each item of a list that has changed is checked again. Unknown fields are
//!   pruned without a warning.
//! - No admission policies except three: while the ValidatingAdmissionPolicyBinding addon-signer-manifest-works is
//!   stored, the hub's account may create and change only ManifestWorks that have the hub's name and label; while that
//!   of addon-signer-grpc-account is stored, only OCM's gRPC server may name the user for whom it makes a CSR, and no
//!   account may change that; while that of addon-signer-trust-bundle is stored, only the hub may set the trust bundle
//!   on a CSR, and only with the certificate.
//! - No aggregation: an APIService is stored, and no request is proxied to its Service.
//! - No controllers: no garbage collection by owner, no built-in signers, no CSR cleaner. The content of a deleted
//!   namespace is deleted at once.
//! - Only merge patch and JSON patch: no strategic merge, no server-side apply. Bodies are JSON or YAML, not protobuf.
//! - Discovery only in its older form.
//! - Later pages of a list show the current objects, not a snapshot, with the first page's resourceVersion.
//! - Of kinds without such a schema, the types of fields are checked only for CSRs, ClusterTrustBundles, Secrets,
//!   ConfigMaps and Leases; unknown fields are stored. The text of a refusal may differ; its code, reason and field are
//!   the same.
//! - `Impersonate-Extra-…` is ignored.
//! - The signature of a CSR is not checked for P-521 and other keys that ring does not verify.
//!
//! # The files
//!
//! `resources` is the table of the resources that are served. `store`, `selectors`, `admission`, `checks`, `schema`,
//! `rules`, `policy`, `writes`, `deletion`, `table`, `target` and `discovery` are pure. `server` accepts connections,
//! `handlers` turns requests into verbs, `watch` serves watches, and `state` is what all connections share.

mod admission;
mod answers;
mod auth;
mod checks;
mod deletion;
mod discovery;
mod fields;
mod handlers;
mod listing;
mod policy;
mod resources;
mod rules;
mod schema;
mod selectors;
mod server;
mod state;
mod status;
mod store;
mod table;
mod target;
mod watch;
mod writes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use auth::User;
use server::Command;
use state::Hub;
use store::Key;

/// Why a stand-in did not start.
#[derive(Debug, thiserror::Error)]
pub enum StandInError {
    /// The address is not loopback. The stand-in has no RBAC, so only clients on this machine may reach it.
    #[error("the stand-in listens on loopback only, not on {0}; use 127.0.0.1 or [::1] with a port, or port 0")]
    NotLoopback(SocketAddr),
    /// The address is in use, or this machine does not have it.
    #[error("the stand-in cannot listen on {address}: {source}; choose another address or port 0")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Its own certificates could not be made.
    #[error("the stand-in's certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Its TLS configuration was refused.
    #[error("the stand-in's TLS configuration is wrong: {0}")]
    Tls(#[from] rustls::Error),
    /// A failure that does not happen on a healthy system, such as missing random numbers.
    #[error("internal error in the stand-in: {0}")]
    Internal(String),
}

/// The contents of etcd at one moment.
#[derive(Debug, Clone)]
pub struct Backup(store::Store);

/// A running stand-in. Dropping it closes every connection, frees the port and loses the objects.
#[derive(Debug)]
pub struct StandIn {
    address: SocketAddr,
    ca_pem: String,
    hub: Arc<Hub>,
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl StandIn {
    /// Starts a stand-in on a loopback address; port 0 picks a free port. It has the namespaces `default`,
    /// `kube-system`, `kube-public` and `kube-node-lease` and nothing else.
    ///
    /// # Errors
    /// If the address is not loopback, or the stand-in cannot listen on it.
    pub async fn start(listen: SocketAddr) -> Result<Self, StandInError> {
        if !listen.ip().is_loopback() {
            return Err(StandInError::NotLoopback(listen));
        }
        let listening = |source| StandInError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let (ca_pem, tls) = server::tls(address)?;
        let hub = Hub::new().map_err(|error| StandInError::Internal(error.to_string()))?;
        let hub = Arc::new(hub);
        let (commands, received) = mpsc::channel(1);
        let task = tokio::spawn(server::run(listener, tls, Arc::clone(&hub), received));
        Ok(Self { address, ca_pem, hub, commands, task })
    }

    /// `https://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of the CA that signed the server's certificate, in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        self.ca_pem.clone()
    }

    /// A kubeconfig for a user in these groups, with a new bearer token. As in Kubernetes, the server adds
    /// `system:authenticated`, and `system:masters` may impersonate.
    #[must_use]
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        let name = || "embedded".to_owned();
        let cluster = Cluster {
            server: Some(self.url()),
            certificate_authority_data: Some(fields::base64(self.ca_pem.as_bytes())),
            ..Cluster::default()
        };
        let auth_info = AuthInfo { token: Some(self.hub.admit(User::new(user, groups)).into()), ..AuthInfo::default() };
        let context = Context { cluster: name(), user: Some(user.to_owned()), ..Context::default() };
        Kubeconfig {
            api_version: Some("v1".to_owned()),
            kind: Some("Config".to_owned()),
            current_context: Some(name()),
            clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
            auth_infos: vec![NamedAuthInfo {
                name: user.to_owned(),
                auth_info: Some(auth_info),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
            ..Kubeconfig::default()
        }
    }

    /// Copies the current contents of etcd.
    #[must_use]
    pub fn back_up(&self) -> Backup {
        Backup(self.hub.read(Clone::clone))
    }

    /// Simulates that etcd is restored from a backup: objects and resource versions go back. As with a kube-apiserver,
    /// watches get nothing until the versions have grown past what they have seen.
    pub fn restore(&self, backup: Backup) {
        self.hub.write(|store| *store = backup.0);
    }

    /// Stores objects as they are, with their uids and times, like an etcd that is moved here. From now on the clock
    /// that stamps objects is `ahead` seconds ahead of the machine's. Returns the objects of kinds that it does not
    /// serve, which it does not store.
    pub fn load(&self, objects: Vec<Value>, ahead: i64) -> Vec<Value> {
        self.hub.ahead.store(ahead, Ordering::Relaxed);
        let (served, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(|object| Key::of(object).is_some());
        self.hub.write(|store| {
            for object in served {
                if let Some(key) = Key::of(&object) {
                    store.put(key, object);
                }
            }
        });
        others
    }

    /// How many seconds that clock is ahead.
    #[must_use]
    pub fn ahead(&self) -> i64 {
        self.hub.ahead.load(Ordering::Relaxed)
    }

    /// Simulates an API server that is down: closes open connections, and new ones at once. The port stays in use, and
    /// the objects stay. Returns when that is done.
    pub async fn pause(&self) {
        self.command(false).await;
    }

    /// Serves again, with the same objects.
    pub async fn resume(&self) {
        self.command(true).await;
    }

    async fn command(&self, serve: bool) {
        let (done, finished) = oneshot::channel();
        if self.commands.send(Command { serve, done }).await.is_ok() {
            // An error means that the accept loop ended. Only a dropped runtime ends it.
            let _ = finished.await;
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.hub.stop.cancel();
        self.task.abort();
    }
}
