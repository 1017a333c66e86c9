//! The hub: signers, authorities, registrations. One task per line of authorities, one per signer name, two watches for the
//! registry; [`supervisor`] starts and stops them as AddOnSigners come and go.

pub mod answers;
pub mod board;
pub mod keeper;
pub mod plan;
pub mod registration;
pub mod registry;
pub mod signer;
pub mod status;
pub mod store;
pub mod supervisor;

use std::time::Duration;

use kube::runtime::watcher::ExponentialBackoff;

/// How soon a watch that failed is tried again. kube's own default goes up to a minute, which is how long nobody would get a
/// certificate, and a detached cluster would stay in, after the API server is back.
fn watch_backoff() -> ExponentialBackoff {
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(3), 2.0, true)
}
