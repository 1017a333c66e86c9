//! The process's limit of open files. Each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as the process may, and logs it if that is fewer than `needed`.
pub(crate) fn raise(needed: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "The limit of open files could not be raised");
    }
    // None is no limit.
    if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < needed) {
        tracing::warn!(
            limit,
            needed,
            "The hub may open fewer files than so many connections need: raise the hard limit of open files, or lower \
             --gateway-connections"
        );
    }
}
