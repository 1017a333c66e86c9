//! The version of ManagedClusterAddOn that the hub uses.

use std::sync::Arc;

use kube::runtime::watcher;
use tokio::sync::watch;

use addon_signer_api::ocm::AddOnApi;

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

/// What an overloaded API server answers, whatever the version is.
const TOO_MANY_REQUESTS: u16 = 429;

/// Whether the API server has refused a watch or its list, perhaps because it cannot read this version.
pub(super) fn is_refusal(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) => {
            status.code != TOO_MANY_REQUESTS
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_api_server_that_has_too_much_to_do_refuses_no_version() {
        let status = |code: u16| kube::Error::Api(Status { code, ..Status::success() }.boxed());
        for code in [403, 404, 406, 500] {
            assert!(is_refusal(&watcher::Error::InitialListFailed(status(code))), "{code}");
            assert!(is_refusal(&watcher::Error::WatchStartFailed(status(code))), "{code}");
        }
        assert!(!is_refusal(&watcher::Error::InitialListFailed(status(429))));
        assert!(!is_refusal(&watcher::Error::WatchStartFailed(status(429))));
        assert!(!is_refusal(&watcher::Error::NoResourceVersion), "nobody refuses anything");
    }
}
