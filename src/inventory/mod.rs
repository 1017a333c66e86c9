//! The ledger's inventory as a read-only API of the hub's Kubernetes: `v1alpha1.ledger.addon-signer.io`, an aggregated
//! API.
//!
//! ```text
//! kubeconfig ─► kube-apiserver (authentication, RBAC, audit) ─► its front proxy ─► server ─► routes ─► ledger
//!                     │ APIService: which Service, which CA          │ client certificate
//!               ca_bundle keeps that CA                        front_proxy checks it
//! ```
//!
//! - Only the API server's front proxy gets a handshake: a client certificate of the CA and with a name that the
//!   ConfigMap `kube-system/extension-apiserver-authentication` holds (`front_proxy`). The header `X-Remote-User` then
//!   names the user.
//! - Kubernetes has authorized each request that it forwards, and the inventory answers only what was authorized:
//!   `get` and `list` of two resources, cluster-wide, without selectors (`routes`).
//! - The serving certificate is the gateway's, which also has the Service's name. A certificate of a new serving CA is
//!   used only when that CA is in the APIService (`tls`).

use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use addon_signer_core::trust::Trust;
use addon_signer_ledger::Reader;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::listen;
use addon_signer_telemetry::audit::Audit;

mod ca_bundle;
mod front_proxy;
mod resources;
mod routes;
mod server;
mod tls;

pub use resources::{InventoryProblem, PATHS};
pub(crate) use server::OPEN_FILES;

/// The API group, which the rules of Kubernetes' RBAC name.
pub const GROUP: &str = "ledger.addon-signer.io";
/// Its one version.
pub const VERSION: &str = "v1alpha1";
/// The APIService, whose name Kubernetes derives from version and group.
pub const API_SERVICE: &str = "v1alpha1.ledger.addon-signer.io";
/// The path of the version, below which the resources are.
pub const BASE: &str = "/apis/ledger.addon-signer.io/v1alpha1";

/// The inputs of the inventory.
pub struct InventoryInputs {
    /// A client with the hub's account.
    pub client: Client,
    /// Its serving anchors go into the APIService.
    pub trust: watch::Receiver<Arc<Trust>>,
    /// The gateway's own certificate, which holds the name of the inventory's Service; `None` until there is one.
    pub serving: watch::Receiver<Option<Arc<CertifiedKey>>>,
    /// The time of day.
    pub clock: Clock,
    /// Records the requests.
    pub audit: Audit,
    /// Reads the ledger.
    pub reader: Reader,
}

/// Why the inventory does not run.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// The address is in use, or does not belong to this machine.
    #[error("the inventory cannot listen on {address}: {source}; choose another --inventory-listen")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// One of the inputs ended, so the inventory would use outdated values.
    #[error("the inventory stopped, because it no longer gets updates on {0}")]
    InputEnded(&'static str),
}

/// An inventory that listens but does not accept yet.
#[derive(Debug)]
pub struct Inventory {
    listener: TcpListener,
    address: SocketAddr,
}

impl Inventory {
    /// Binds the address, so that an address in use is found before anything runs.
    ///
    /// # Errors
    /// [`InventoryError::Listen`] names the address.
    pub async fn bind(address: SocketAddr) -> Result<Self, InventoryError> {
        let failed = |source| InventoryError::Listen { address, source };
        let listener = listen::bind(address, None).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// The address, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled, and then finishes requests in flight for a few seconds. It is not an error if
    /// the API server is unavailable, or if the APIService or the ConfigMap is missing: no client can ask meanwhile,
    /// and the log has the reason.
    ///
    /// # Errors
    /// [`InventoryError::InputEnded`] if a sender of the inputs is dropped before `stop`.
    pub async fn run(self, inputs: InventoryInputs, stop: CancellationToken) -> Result<(), InventoryError> {
        let resources = resources::router(inputs.reader, inputs.clock.clone());
        let (callers, whose) = watch::channel(None);
        let (registered, anchors) = watch::channel(None);
        let (publish, in_effect) = watch::channel(None);
        let tls =
            tls::Sources { front_proxy: whose, registered: anchors, serving: inputs.serving, clock: inputs.clock };
        let inputs_end = async {
            tokio::select! {
                () = front_proxy::follow(inputs.client.clone(), callers) => "the front proxy's certificates",
                () = ca_bundle::keep(inputs.client.clone(), inputs.trust, registered) => "the serving anchors",
                ended = tls::keep_in_effect(tls, publish) => ended,
            }
        };
        let router = routes::router(resources, inputs.audit.clone());
        let serve = server::run(self.listener, router, in_effect, inputs.audit, stop.clone());
        tokio::pin!(serve);
        tokio::select! {
            biased;
            () = &mut serve => Ok(()),
            ended = inputs_end => {
                if stop.is_cancelled() {
                    serve.await; // the inputs stop together with the inventory; requests in flight still drain
                    return Ok(());
                }
                Err(InventoryError::InputEnded(ended))
            }
        }
    }
}
