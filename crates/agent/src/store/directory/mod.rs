//! Credentials in a directory, laid out like the kubelet's volumes: `tls.crt`, `tls.key` and `ca.crt` are links into
//! `..data`, which is a link to a directory. That directory is complete before the link names it, and it never changes.
//! One `rename` of `..data` makes a new set current.
//!
//! A reader that resolves `..data` once and reads below it never sees the key of another certificate. A reader that
//! opens `tls.crt` and then `tls.key` can see a change between the two, as with every such volume. It must read again
//! if they do not match.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use super::StoreError;
use addon_signer_core::credentials::{BUNDLE, CERTIFICATE, Credentials, KEY};

/// The link to the current directory.
const CURRENT: &str = "..data";
/// The prefix of directories and temporary links that the agent makes.
const OURS: &str = "..addon-signer-";

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
        self.write_version(&self.path.join(&version), credentials)?;
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
        self.remove_others(&version)
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

    /// Removes what earlier writes left, including writes that did not complete.
    fn remove_others(&self, current: &str) -> Result<(), StoreError> {
        let failed = |error| StoreError::File("read", self.path.clone(), error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name == current || !name.to_string_lossy().starts_with(OURS) {
                continue;
            }
            let directory = entry.file_type().map_err(failed)?.is_dir();
            let removed = if directory { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
            removed.map_err(|error| StoreError::File("remove", entry.path(), error))?;
        }
        Ok(())
    }
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
