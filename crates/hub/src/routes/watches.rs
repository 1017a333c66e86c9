//! The watches of AddOnRoutes and of namespaces.

use futures::stream::{BoxStream, pending};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use tracing::warn;

use addon_signer_api::{AddOnRoute, Guarded, Lenient};
use addon_signer_platform::listing::{Selector, watch};

pub(super) type RouteEvent = Event<Guarded<AddOnRoute>>;
pub(super) type NamespaceEvent = Event<Lenient<PartialObjectMeta<Namespace>>>;

/// The watch of AddOnRoutes. A failure is logged, and the watch goes on.
pub(super) fn routes(client: &Client) -> BoxStream<'static, RouteEvent> {
    said("AddOnRoutes", watch(Api::all(client.clone()), Selector::all())).boxed()
}

/// The watch of namespaces. It begins when their labels decide anything, and stays: nobody can make others wait for its
/// list by turns.
pub(super) struct NamespaceWatch {
    client: Client,
    pub(super) is_on: bool,
    pub(super) events: BoxStream<'static, NamespaceEvent>,
}

impl NamespaceWatch {
    pub(super) fn new(client: Client) -> Self {
        Self { client, is_on: false, events: pending().boxed() }
    }

    /// Starts it. Returns whether that is new.
    pub(super) fn start(&mut self) -> bool {
        let is_new = !self.is_on;
        if is_new {
            self.is_on = true;
            self.events = said("namespaces", watch(Api::all(self.client.clone()), Selector::all())).boxed();
        }
        is_new
    }
}

fn said<E: Send + 'static>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<Event<E>>> + Send + 'static,
) -> impl Stream<Item = Event<E>> + Send + 'static {
    events.filter_map(move |event| async move {
        event.inspect_err(|error| warn!(%error, kind, "A watch for the gateway's routes failed; the hub retries")).ok()
    })
}
