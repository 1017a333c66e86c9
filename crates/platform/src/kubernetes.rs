//! Kubernetes clients from kubeconfigs.

use std::path::{Path, PathBuf};

use kube::config::{self, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::connection::connect_noting;
use crate::contacts::Contacts;
use crate::errors::explain;

/// Why no client could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The file is missing or unreadable, or it is not a kubeconfig.
    #[error("the kubeconfig {} cannot be used: {cause}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// No file was named, and the kubeconfig found in a default location cannot be used.
    #[error("the kubeconfig cannot be used: {0}")]
    Found(String),
    /// No file was named, and no default location has a readable kubeconfig.
    #[error("no kubeconfig can be used; give --kubeconfig, set KUBECONFIG, or run in a pod: {0}")]
    Missing(String),
}

/// The settings of a client. They come from `file`. Without a file they come from `KUBECONFIG`, then
/// `~/.kube/config`, then the pod's own service account.
///
/// # Errors
/// [`KubeconfigError`].
pub async fn config(file: Option<&Path>) -> Result<Config, KubeconfigError> {
    let Some(path) = file else {
        return match Config::from_kubeconfig(&KubeConfigOptions::default()).await {
            Ok(config) => Ok(config),
            Err(error) => Config::incluster().map_err(|in_pod| {
                KubeconfigError::Missing(format!("{}; not in a pod: {}", describe(&error), explain(&in_pod)))
            }),
        };
    };
    let unusable = |cause: String| KubeconfigError::Unusable { path: path.to_owned(), cause };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unusable(describe(&error)))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.map_err(|error| unusable(describe(&error)))
}

/// What is wrong with a kubeconfig. The text of a YAML error would show the surrounding lines, with any tokens, keys
/// and passwords in them.
fn describe(error: &config::KubeconfigError) -> String {
    let config::KubeconfigError::Parse(error) = error else { return explain(error) };
    match error.location() {
        Some(at) => format!("it is not a kubeconfig in YAML; see line {}, column {}", at.line(), at.column()),
        None => "it is not a kubeconfig in YAML".to_owned(),
    }
}

/// A client with the settings of [`config()`].
///
/// # Errors
/// [`KubeconfigError`].
pub async fn client(file: Option<&Path>) -> Result<Client, KubeconfigError> {
    client_noting(file, Contacts::default()).await
}

/// As [`client`]; the client notes in `contacts` when it hears from the API server.
///
/// # Errors
/// [`KubeconfigError`].
pub async fn client_noting(file: Option<&Path>, contacts: Contacts) -> Result<Client, KubeconfigError> {
    let config = config(file).await?;
    connect_noting(config, contacts).map_err(|error| match file {
        Some(path) => KubeconfigError::Unusable { path: path.to_owned(), cause: explain(&error) },
        None => KubeconfigError::Found(explain(&error)),
    })
}
