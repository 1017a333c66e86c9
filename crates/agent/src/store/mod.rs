//! Where the credentials are kept: a Secret, or a directory.

mod directory;
mod secret;

use std::path::PathBuf;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::Client;

use super::api_error::ApiError;
use addon_signer_core::credentials::Credentials;
use addon_signer_core::identity::AddOnName;
use directory::Directory;
use secret::SecretStore;

/// Why credentials could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The managed cluster's API server refused or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There is nowhere to put the Secret.
    #[error("the namespace {0} does not exist on the managed cluster; create it")]
    NamespaceMissing(String),
    /// The Secret may not change.
    #[error("the Secret {0} is marked immutable; delete it, or give the agent another namespace")]
    Immutable(String),
    /// Somebody else writes the same Secret all the time.
    #[error("the Secret {0} was changed by somebody else each time it was about to be written")]
    Contended(String),
    /// A file operation failed.
    #[error("cannot {0} {path}: {2}", path = .1.display())]
    File(&'static str, PathBuf, std::io::Error),
}

/// One of the two.
pub struct Store(Kind);

enum Kind {
    Secret(SecretStore),
    Directory(Directory),
}

impl Store {
    /// The Secret `<addon>-client-cert` in `namespace`.
    pub fn secret(client: Client, namespace: &str, addon: &AddOnName) -> Self {
        Self(Kind::Secret(SecretStore::new(client, namespace, addon)))
    }

    /// Files in `path`, which is made if need be.
    pub fn directory(path: PathBuf) -> Self {
        Self(Kind::Directory(Directory::new(path)))
    }

    /// What is stored; `None` when there is nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn load(&self) -> Result<Option<Credentials>, StoreError> {
        match &self.0 {
            Kind::Secret(secret) => secret.load().await,
            Kind::Directory(directory) => directory.load(),
        }
    }

    /// Replaces everything in one step; on an error what was there is still there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn save(&self, credentials: &Credentials) -> Result<(), StoreError> {
        match &self.0 {
            Kind::Secret(secret) => secret.save(credentials).await,
            // A few kilobytes, synced once per renewal: not worth a thread of its own.
            Kind::Directory(directory) => directory.save(credentials),
        }
    }

    /// An item whenever what is stored may have changed. A directory is silent: it is looked at in intervals.
    pub(crate) fn changes(&self) -> BoxStream<'static, ()> {
        match &self.0 {
            Kind::Secret(secret) => secret.changes(),
            Kind::Directory(_) => stream::pending().boxed(),
        }
    }
}
