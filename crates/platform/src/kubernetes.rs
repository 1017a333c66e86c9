//! Kubernetes clients from kubeconfigs.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::errors::explain;

/// Why there is no client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The file is missing, unreadable or no kubeconfig.
    #[error("the kubeconfig {} cannot be used: {cause}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The one that was found where one usually is cannot be used.
    #[error("the kubeconfig cannot be used: {0}")]
    Found(String),
    /// No file was named, and none is where one usually is.
    #[error("no kubeconfig: give --kubeconfig, set KUBECONFIG, or run in a pod: {0}")]
    Missing(String),
}

/// The settings of a client: of the file, else of `KUBECONFIG`, else of `~/.kube/config`, else of the pod's own
/// account.
///
/// # Errors
/// [`KubeconfigError`].
pub async fn config(file: Option<&Path>) -> Result<Config, KubeconfigError> {
    let Some(path) = file else {
        return Config::infer().await.map_err(|error| KubeconfigError::Missing(explain(&error)));
    };
    let unusable = |cause: String| KubeconfigError::Unusable { path: path.to_owned(), cause };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unusable(explain(&error)))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.map_err(|error| unusable(explain(&error)))
}

/// A client of [`config`].
///
/// # Errors
/// [`KubeconfigError`].
pub async fn client(file: Option<&Path>) -> Result<Client, KubeconfigError> {
    let config = config(file).await?;
    Client::try_from(config).map_err(|error| match file {
        Some(path) => KubeconfigError::Unusable { path: path.to_owned(), cause: explain(&error) },
        None => KubeconfigError::Found(explain(&error)),
    })
}
