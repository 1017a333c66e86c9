//! The binaries of the real parts.

use std::path::PathBuf;

use crate::needed::{Needed, asks, has, real_parts};

/// The directory that `tests/real/build.sh` printed, if the tests are to run on real parts.
pub fn assets() -> Option<PathBuf> {
    let assets = real_parts();
    asks(Needed::ApiServer, assets.is_some());
    assets
}

/// Whether one of the binaries was built; if not, says that the test is skipped.
#[track_caller]
pub fn has_or_skip(binary: &str, needed: Needed) -> bool {
    has(needed, real_parts().is_some_and(|assets| assets.join(binary).exists()))
}
