//! The watches of AddOnRoutes and of namespaces.

use futures::stream::{BoxStream, pending};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use tracing::warn;

use addon_signer_api::{AddOnRoute, Guarded, Lenient};
use addon_signer_platform::contacts::Contacts;
use addon_signer_platform::listing::{Selector, watch};

pub(super) type RouteEvent = Event<Guarded<AddOnRoute>>;
pub(super) type NamespaceEvent = Event<Lenient<PartialObjectMeta<Namespace>>>;

/// The watch of AddOnRoutes. A failure is logged, and the watch goes on.
pub(super) fn routes(client: &Client) -> BoxStream<'static, RouteEvent> {
    said("AddOnRoutes", watch(Api::all(client.clone()), Selector::all())).boxed()
}

/// The watch of namespaces, for as long as their labels decide anything.
pub(super) struct NamespaceWatch {
    client: Client,
    contacts: Contacts,
    pub(super) is_on: bool,
    pub(super) events: BoxStream<'static, NamespaceEvent>,
}

impl NamespaceWatch {
    pub(super) fn new(client: Client, contacts: Contacts) -> Self {
        Self { client, contacts, is_on: false, events: pending().boxed() }
    }

    /// Starts or ends it. Returns whether that is new.
    pub(super) fn turn(&mut self, on: bool) -> bool {
        if self.is_on == on {
            return false;
        }
        self.is_on = on;
        if on {
            self.events = said("namespaces", watch(Api::all(self.client.clone()), Selector::all())).boxed();
        } else {
            self.events = pending().boxed();
            self.contacts.forget("namespaces");
        }
        true
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
