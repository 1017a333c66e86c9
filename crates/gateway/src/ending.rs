//! Ends a request from outside of it: its client has lost its eligibility, or its route was removed.

use std::sync::OnceLock;
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::record::{ROUTE_GONE, SESSION_ENDED};
use addon_signer_core::gateway::access::NotEligible;

/// Why a request must end.
#[derive(Debug, Clone)]
pub(super) enum EndCause {
    /// The caller has lost its eligibility (invariant I15).
    Eligibility(NotEligible),
    /// No route lets the caller in any more.
    Route,
}

impl EndCause {
    /// How the request ended, in the access log.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Eligibility(_) => SESSION_ENDED,
            Self::Route => ROUTE_GONE,
        }
    }
}

/// Whether a request must end, and the task to wake then.
#[derive(Debug, Default)]
pub(super) struct Ending {
    cause: OnceLock<EndCause>,
    task: AtomicWaker,
    /// The rest of the upload, which has a task of its own and continues while the response is not polled.
    upload: Mutex<Option<AbortHandle>>,
}

impl Ending {
    /// Ends the request. The first cause counts.
    pub(super) fn end(&self, cause: EndCause) {
        if self.cause.set(cause).is_ok() {
            self.task.wake();
            self.upload.lock().iter().for_each(AbortHandle::abort);
        }
    }

    /// Aborts this upload when the request must end.
    pub(super) fn aborts(&self, upload: AbortHandle) {
        let upload = self.upload.lock().insert(upload).clone();
        // It may have been set meanwhile.
        if self.cause.get().is_some() {
            upload.abort();
        }
    }

    /// Ready once the request must end.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<&EndCause> {
        if self.cause.get().is_none() {
            self.task.register(cx.waker());
        }
        // It may have been set meanwhile.
        self.cause.get().map_or(Poll::Pending, Poll::Ready)
    }
}
