//! The version of ManagedClusterAddOn that the hub uses.

use std::sync::Arc;

use kube::runtime::watcher;
use tokio::sync::watch;

use crate::api::ocm::AddOnApi;

/// The version that all tasks of the hub use. If the API server cannot read it any more, because an upgrade of OCM has
/// ended it or because the webhook that converts it is away, the watch of addons finds the other one.
#[derive(Clone, Debug)]
pub struct AddOnVersion(Arc<watch::Sender<AddOnApi>>);

impl From<AddOnApi> for AddOnVersion {
    fn from(api: AddOnApi) -> Self {
        Self(Arc::new(watch::Sender::new(api)))
    }
}

impl AddOnVersion {
    /// The version to use now.
    #[must_use]
    pub fn now(&self) -> AddOnApi {
        *self.0.borrow()
    }

    /// Returns whether that is another one than before.
    pub(super) fn set(&self, api: AddOnApi) -> bool {
        self.0.send_if_modified(|known| std::mem::replace(known, api) != api)
    }
}

/// Whether the API server has refused a watch or its list, perhaps because it cannot read this version.
pub(super) fn is_refusal(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    matches!(error, InitialListFailed(kube::Error::Api(_)) | WatchStartFailed(kube::Error::Api(_)))
}
