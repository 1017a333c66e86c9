//! The binaries of the real parts.

use std::env;
use std::path::PathBuf;

use crate::needed::{Needed, lacks, skip};

/// The variable that names the directory with the binaries, as for Kubernetes' envtest.
pub(super) const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// The directory that `tests/real/build.sh` printed, if the tests are to run on real parts.
pub fn assets() -> Option<PathBuf> {
    let assets = env::var_os(ASSETS).filter(|value| !value.is_empty()).map(PathBuf::from);
    if assets.is_none() {
        lacks(Needed::ApiServer);
    }
    assets
}

/// Whether one of the binaries was built; if not, says that the test is skipped.
#[track_caller]
pub fn has_or_skip(binary: &str, needed: Needed) -> bool {
    let there = assets().is_some_and(|assets| assets.join(binary).exists());
    if !there {
        skip(needed);
    }
    there
}
