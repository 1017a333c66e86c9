//! An in-process stand-in for a hub's Kubernetes API, for `addon-signer demo` and the fast tests.
//!
//! It speaks enough of the API over HTTPS for the `kube` client and for kubectl: discovery, create,
//! get, list in pages, watch with bookmarks, replace, the patch formats, delete with finalizers, the
//! `status` and `approval` subresources, selectors, tables, and kube-apiserver's rules for
//! CertificateSigningRequests. Where it differs from a real server, it is wrong; these differences are
//! known and left:
//!
//! - No RBAC: every known token may do everything. Impersonation is for `system:masters`.
//! - No CRD machinery: the custom resources of the table are always there, without schema, defaults, CEL rules or
//!   pruning. A CustomResourceDefinition is stored as a plain object.
//! - No aggregation: an APIService is stored, and nothing is proxied to its Service.
//! - No controllers: no garbage collection by owner, no built-in signers, no CSR cleaner. A deleted namespace takes its
//!   content along at once.
//! - Of the patch formats merge patch and JSON patch: no strategic merge, no server-side apply. Bodies are JSON or
//!   YAML, no protobuf.
//! - Discovery in its older form only.
//! - Later pages of a list show the present, not a snapshot, under the first page's resourceVersion.
//! - Only CSRs, Secrets, ConfigMaps and Leases are checked for the types of their fields; unknown fields are stored.
//!   Words of a refusal may differ where its code, reason and field are the same.
//! - `Impersonate-Extra-…` is ignored.
//! - Possession of P-521 and other keys that ring does not verify is not checked.
//!
//! # The files
//!
//! `resources` is the table of what is served. `store`, `selectors`, `patch`, `admission`, `checks`,
//! `write`, `writes`, `deletion`, `events`, `table`, `target` and `discovery` are pure; `server` accepts connections,
//! `handlers` turns requests into verbs, `watch` keeps streams open, `state` is what they share.

mod admission;
mod answers;
mod auth;
mod checks;
mod deletion;
mod discovery;
mod events;
mod handlers;
mod listing;
mod objects;
mod patch;
mod query;
mod resources;
mod selectors;
mod server;
mod state;
mod status;
mod store;
mod table;
mod target;
mod watch;
mod write;
mod writes;

use std::net::SocketAddr;
use std::sync::Arc;

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use auth::User;
use server::Command;
use state::Hub;

/// Why an stand-in did not start.
#[derive(Debug, thiserror::Error)]
pub enum StandInError {
    /// The stand-in has no RBAC, so it is for this machine alone.
    #[error("the stand-in listens on loopback only, not on {0}; use 127.0.0.1 or [::1] with a port, or port 0")]
    NotLoopback(SocketAddr),
    /// The address is in use or not there.
    #[error("the stand-in cannot listen on {address}: {source}; choose another address or port 0")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its own certificates could not be made.
    #[error("the stand-in's certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Its TLS configuration was refused.
    #[error("the stand-in's TLS configuration is wrong: {0}")]
    Tls(#[from] rustls::Error),
    /// Something that does not happen on a working system: no random numbers.
    #[error("the stand-in failed inside: {0}")]
    Internal(String),
}

/// A running stand-in. Dropping it closes every connection and frees the port; the objects are gone.
#[derive(Debug)]
pub struct StandIn {
    address: SocketAddr,
    ca_pem: String,
    hub: Arc<Hub>,
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl StandIn {
    /// Starts a hub on a loopback address; port 0 picks a free one. It has the namespaces `default`,
    /// `kube-system`, `kube-public` and `kube-node-lease` and nothing else.
    ///
    /// # Errors
    /// If the address is not loopback or cannot be listened on.
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

    /// A kubeconfig for a user in these groups, with a bearer token of its own. As in Kubernetes, the
    /// server adds `system:authenticated`; `system:masters` may impersonate.
    #[must_use]
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        let name = || "embedded".to_owned();
        let cluster = Cluster {
            server: Some(self.url()),
            certificate_authority_data: Some(objects::base64(self.ca_pem.as_bytes())),
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

    /// The API server goes away: open connections are closed and new ones too, the port stays taken,
    /// and the objects stay. Returns when it is done.
    pub async fn pause(&self) {
        self.command(false).await;
    }

    /// The API server comes back with the objects that it had.
    pub async fn resume(&self) {
        self.command(true).await;
    }

    async fn command(&self, serve: bool) {
        let (done, finished) = oneshot::channel();
        if self.commands.send(Command { serve, done }).await.is_ok() {
            // An error means that the accept loop ended, which only a dropped runtime does.
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
