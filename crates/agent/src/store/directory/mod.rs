//! Credentials in a directory, laid out like the kubelet's volumes: `tls.crt`, `tls.key` and `ca.crt` are links into
//! `..data`, which is a link to a directory. That directory is complete before the link names it, and it never changes.
//! One `rename` of `..data` makes a new set current.
//!
//! A reader that resolves `..data` once and reads below it never sees the key of another certificate. A reader that
//! opens `tls.crt` and then `tls.key` can see a change between the two, as with every such volume. It must read again
//! if they do not match.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tracing::warn;
use zeroize::Zeroizing;

use super::StoreError;
use addon_signer_core::credentials::{BUNDLE, CERTIFICATE, Credentials, KEY};
use addon_signer_platform::errors::explain;

/// The link to the current directory.
const CURRENT: &str = "..data";
/// The prefix of directories and temporary links that the agent makes.
const OURS: &str = "..addon-signer-";
/// How long a write may take.
const WRITING: Duration = Duration::from_secs(60);

pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn load(&self) -> Result<Option<Credentials>, StoreError> {
        let certificate = self.read(CERTIFICATE)?;
        let key = self.read(KEY)?;
        let bundle = self.read(BUNDLE)?;
        if certificate.is_none() && key.is_none() && bundle.is_none() {
            return Ok(None);
        }
        let key = key.unwrap_or_default();
        let certificate = certificate.unwrap_or_default();
        let bundle = bundle.unwrap_or_default();
        Ok(Some(Credentials { certificate: certificate.to_vec(), key, bundle: bundle.to_vec() }))
    }

    fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::File("read", path, error)),
        }
    }

    pub(super) fn save(&self, credentials: &Credentials) -> Result<(), StoreError> {
        make_directory(&self.path)?;
        let version = format!("{OURS}{}", random_suffix()?);
        let path = self.path.join(&version);
        self.write_version(&path, credentials).inspect_err(|_| {
            let _ = fs::remove_dir_all(&path); // or a later write removes what is left
        })?;
        let before = fs::read_link(self.path.join(CURRENT)).ok(); // none, or something else of that name
        self.link(Path::new(&version), CURRENT)?;
        for (name, _) in credentials.files() {
            let target = Path::new(CURRENT).join(name);
            let path = self.path.join(name);
            // `ok`: an absent link and a file that is not a link are both replaced.
            if fs::read_link(&path).ok() != Some(target.clone()) {
                self.link(&target, name)?;
            }
        }
        sync(&self.path)?;
        // The new set is current; what is left over does no harm.
        if let Err(error) = self.remove_older(&version, before.as_deref()) {
            warn!(error = explain(&error), "Could not remove older credentials");
        }
        Ok(())
    }

    fn write_version(&self, path: &Path, credentials: &Credentials) -> Result<(), StoreError> {
        make_directory(path)?;
        for (name, bytes) in credentials.files() {
            let path = path.join(name);
            let mode = if name == KEY { 0o600 } else { 0o644 };
            let written =
                OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).and_then(|mut file| {
                    file.write_all(bytes)?;
                    file.sync_all()
                });
            written.map_err(|error| StoreError::File("write", path, error))?;
        }
        sync(path)
    }

    /// Makes `name` a link to `target` in one step, even if `name` exists.
    fn link(&self, target: &Path, name: &str) -> Result<(), StoreError> {
        let path = self.path.join(name);
        let fresh = self.path.join(format!("{OURS}{}", random_suffix()?));
        let linked = symlink(target, &fresh).and_then(|()| fs::rename(&fresh, &path));
        linked.map_err(|error| StoreError::File("write", path, error))
    }

    /// Removes the version that was current before, and what earlier writes left, including writes that did not
    /// complete. What is about as young as the current version may be of another agent, which is about to link it.
    fn remove_older(&self, current: &str, before: Option<&Path>) -> Result<(), StoreError> {
        let failed = |error| StoreError::File("read", self.path.clone(), error);
        let written = |path: PathBuf| fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        let made = written(self.path.join(current)).map_err(failed)?;
        let mut outcome = Ok(());
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let (entry, mut removed) = (entry.map_err(failed)?, Ok(()));
            let name = entry.file_name();
            if name == current || !name.to_string_lossy().starts_with(OURS) {
                continue;
            }
            let is_older = written(entry.path()).is_ok_and(|time| time + WRITING < made);
            if is_older || before == Some(Path::new(&name)) {
                let is_directory = entry.file_type().map_err(failed)?.is_dir();
                removed = if is_directory { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
            }
            if let Err(error) = removed.or_else(unless_gone) {
                outcome = Err(StoreError::File("remove", entry.path(), error));
            }
        }
        outcome
    }
}

/// Another agent may have removed it.
fn unless_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Creates the directory if it does not exist, with access for the owner only.
fn make_directory(path: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| StoreError::File("make the directory", path.to_owned(), error))
}

fn sync(path: &Path) -> Result<(), StoreError> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| StoreError::File("write", path.to_owned(), error))
}

fn random_suffix() -> Result<String, StoreError> {
    let mut bytes = [0; 8];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| StoreError::File("name", PathBuf::new(), std::io::Error::other("no random bytes")))?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}

#[cfg(test)]
mod tests;
