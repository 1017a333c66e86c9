//! Kubernetes clients.

use kube::Client;

use crate::contacts::Contacts;
use crate::kubeconfig::{Access, ClusterAddress, KubeconfigError, Plugins, find};

/// A client, and the cluster that it is for.
#[derive(Clone)]
pub struct Connected {
    /// The client.
    pub client: Client,
    /// The cluster.
    pub target: ClusterAddress,
}

/// A client for commands. It runs credential plugins.
pub async fn client(access: &Access) -> Result<Client, KubeconfigError> {
    Ok(connect(access).await?.client)
}

/// Like [`client`], for a command that prints which cluster it changes.
pub async fn connect(access: &Access) -> Result<Connected, KubeconfigError> {
    connected(access, Plugins::Run, Contacts::default()).await
}

/// A client that notes in `contacts` when it hears from the API server.
pub async fn connected(access: &Access, plugins: Plugins, contacts: Contacts) -> Result<Connected, KubeconfigError> {
    let found = find(access, plugins).await?;
    let client = found.connect(contacts).await?;
    Ok(Connected { client, target: found.target })
}
