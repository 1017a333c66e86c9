//! The process's limit of open files. Each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as the process may, and logs it if the result is below `needed`.
pub(crate) fn raise(needed: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "The limit of open files could not be raised");
    }
    // `None` means no limit.
    if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < needed) {
        tracing::warn!(
            limit,
            needed,
            "The open-file limit is too low for this many connections: raise the hard limit on open files, or lower \
             --gateway-connections"
        );
    }
}
