//! The watches of AddOnRoutes, and of Services, EndpointSlices and namespaces.

use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_objects};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tracing::warn;

use addon_signer_api::{AddOnRoute, Guarded, Lenient};
use addon_signer_platform::backoff::WatchBackoff;

/// How many objects a page of a list has. Whoever may write in any namespace may make each as large as etcd allows, 1.5
/// MiB, and decoding takes three times that.
const PAGE: u32 = 10;

/// An event of one of the watches.
pub(super) enum WatchEvent {
    Route(Event<Guarded<AddOnRoute>>),
    Service(Event<Guarded<Service>>),
    Slice(Event<Guarded<EndpointSlice>>),
    Namespace(Event<Lenient<PartialObjectMeta<Namespace>>>),
}

/// All watches; a failure is logged, and its watch begins again.
pub(super) fn all(client: &Client) -> BoxStream<'static, WatchEvent> {
    select_all([
        said("AddOnRoutes", objects(client)).map(WatchEvent::Route).boxed(),
        said("Services", objects(client)).map(WatchEvent::Service).boxed(),
        said("EndpointSlices", objects(client)).map(WatchEvent::Slice).boxed(),
        said("namespaces", objects(client)).map(WatchEvent::Namespace).boxed(),
    ])
    .boxed()
}

fn config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

fn objects<K>(client: &Client) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watch_objects(Api::<K>::all(client.clone()), config())
}

fn said<E: Send + 'static>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<Event<E>>> + Send + 'static,
) -> impl Stream<Item = Event<E>> + Send + 'static {
    events.backoff(WatchBackoff::default()).filter_map(move |event| async move {
        event.inspect_err(|error| warn!(%error, kind, "A watch for the gateway's routes failed; the hub retries")).ok()
    })
}
