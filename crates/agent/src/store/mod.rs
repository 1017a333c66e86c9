//! Stores of credentials: a Secret, or a directory; or a Secret with a directory that is a copy of it.

mod directory;
mod secret;

use std::path::PathBuf;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::Client;

use super::api_error::ApiError;
use super::owner::OwnerName;
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
    /// The namespace of the Secret does not exist.
    #[error("the namespace {0} does not exist on the managed cluster; create it")]
    NamespaceMissing(String),
    /// The Secret is immutable.
    #[error("the Secret {0} is marked immutable; delete it, or give the agent another namespace")]
    Immutable(String),
    /// Something else keeps writing the same Secret.
    #[error("the Secret {0} could not be written, because something else changed it on every attempt")]
    Contended(String),
    /// A file operation failed.
    #[error("cannot {0} {path}: {2}", path = .1.display())]
    File(&'static str, PathBuf, std::io::Error),
}

/// A Secret or a directory, with a directory that is a copy of it, or without.
pub struct Store {
    kind: Kind,
    copy: Option<Directory>,
}

enum Kind {
    Secret(Box<SecretStore>),
    Directory(Directory),
}

impl Store {
    /// The Secret `<addon>-client-cert` in `namespace`.
    pub fn secret(client: Client, namespace: &str, addon: &AddOnName) -> Self {
        Self { kind: Kind::Secret(Box::new(SecretStore::new(client, namespace, addon))), copy: None }
    }

    /// The same store; the Secret belongs to this object, if there is one.
    #[must_use]
    pub fn owned_by(self, owner: Option<OwnerName>) -> Self {
        let kind = match self.kind {
            Kind::Secret(secret) => Kind::Secret(Box::new(secret.owned_by(owner))),
            directory @ Kind::Directory(_) => directory,
        };
        Self { kind, ..self }
    }

    /// The same store; the directory `path` is a copy, from which nothing is ever loaded.
    #[must_use]
    pub fn copied_to(self, path: PathBuf) -> Self {
        Self { copy: Some(Directory::new(path)), ..self }
    }

    /// Files in the directory `path`, which the first write creates.
    pub fn directory(path: PathBuf) -> Self {
        Self { kind: Kind::Directory(Directory::new(path)), copy: None }
    }

    /// The stored credentials, or `None` if there are none.
    pub async fn load(&self) -> Result<Option<Credentials>, StoreError> {
        match &self.kind {
            Kind::Secret(secret) => secret.load().await,
            Kind::Directory(directory) => directory.load(),
        }
    }

    /// Replaces the stored credentials in one step. After an error the old ones are still there.
    pub async fn save(&self, credentials: &Credentials) -> Result<(), StoreError> {
        match &self.kind {
            Kind::Secret(secret) => secret.save(credentials).await,
            // This blocks the thread, but it writes only a few kilobytes once per renewal.
            Kind::Directory(directory) => directory.save(credentials),
        }
    }

    /// Copies the credentials into the directory that is a copy, if there is one and its content differs. Returns
    /// whether it wrote.
    pub(crate) fn copy(&self, credentials: &Credentials) -> Result<bool, StoreError> {
        let Some(directory) = &self.copy else { return Ok(false) };
        // Files that cannot be read are written again.
        if directory.load().is_ok_and(|found| found.as_ref() == Some(credentials)) {
            return Ok(false);
        }
        directory.save(credentials)?;
        Ok(true)
    }

    /// Yields an item whenever the stored credentials may have changed. A directory yields none: the agent reads it at
    /// intervals.
    pub(crate) fn changes(&self) -> BoxStream<'static, ()> {
        match &self.kind {
            Kind::Secret(secret) => secret.changes(),
            Kind::Directory(_) => stream::pending().boxed(),
        }
    }
}
