//! What the watches have shown: AddOnRoutes as the core reads them, and what they refer to.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use super::watches::WatchEvent;
use crate::relist::{News, Relist};
use addon_signer_api::route::AddOnRouteStatus;
use addon_signer_api::route_refs::{endpoints, service_facts, service_of};
use addon_signer_api::route_rules::route_plan;
use addon_signer_api::{AddOnRoute, Guarded};
use addon_signer_core::gateway::attachment::Labels;
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::gateway::routing::{InNamespace, References, RoutePlan};

/// An AddOnRoute, as far as the hub keeps it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownRoute {
    /// `metadata.uid`.
    pub(crate) uid: Option<String>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// What it asks for, or why it cannot be read: one sentence without a period.
    pub(crate) plan: Result<RoutePlan, String>,
    /// Its status, if that can be read.
    pub(crate) status: Option<AddOnRouteStatus>,
}

/// What the watches have shown so far.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Services, their endpoints, and the settings.
    pub(super) references: References,
    routes: BTreeMap<RouteName, Arc<KnownRoute>>,
    namespaces: BTreeMap<String, Labels>,
    /// Of which Service each EndpointSlice is.
    slices: BTreeMap<InNamespace, InNamespace>,
    lists: Lists,
}

/// The lists under way, and which were complete once.
#[derive(Debug, Default)]
struct Lists {
    routes: List,
    services: List,
    slices: List,
    namespaces: List,
}

#[derive(Debug, Default)]
struct List {
    relist: Relist<InNamespace>,
    is_complete: bool,
}

/// What an event changes.
enum Change<O> {
    Put(InNamespace, O),
    Remove(InNamespace),
    /// All others are gone.
    Keep(HashSet<InNamespace>),
}

impl List {
    fn change<O: ResourceExt>(&mut self, event: Event<O>) -> Option<Change<O>> {
        let key = |object: &O| (object.namespace().unwrap_or_default(), object.name_any());
        Some(match self.relist.news(event, |object| Some(key(object)))? {
            News::There(object) => Change::Put(key(&object), object),
            News::Gone(object) => Change::Remove(key(&object)),
            News::Listed(shown) => {
                self.is_complete = true;
                Change::Keep(shown)
            }
        })
    }
}

impl Reading {
    pub(super) fn new(networks: Vec<IpNet>) -> Self {
        Self { references: References { networks, ..References::default() }, ..Self::default() }
    }

    /// The labels of all namespaces; `None` until all kinds were listed once.
    pub(super) fn complete(&self) -> Option<&BTreeMap<String, Labels>> {
        let Lists { routes, services, slices, namespaces } = &self.lists;
        [routes, services, slices, namespaces].iter().all(|list| list.is_complete).then_some(&self.namespaces)
    }

    /// What all AddOnRoutes that can be read ask for.
    pub(super) fn plans(&self) -> impl Iterator<Item = &RoutePlan> {
        self.routes.values().filter_map(|route| route.plan.as_ref().ok())
    }

    /// All AddOnRoutes.
    pub(super) fn routes(&self) -> impl Iterator<Item = (&RouteName, &Arc<KnownRoute>)> {
        self.routes.iter()
    }

    /// Takes an event.
    pub(super) fn observe(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Route(event) => {
                let change = self.lists.routes.change(event);
                apply(
                    change,
                    &mut self.routes,
                    |(namespace, name)| RouteName { namespace, name },
                    |object| known_route(object).map(Arc::new),
                );
            }
            WatchEvent::Service(event) => {
                let change = self.lists.services.change(event);
                apply(change, &mut self.references.services, |key| key, |object| object.read().ok().map(service_facts));
            }
            WatchEvent::Namespace(event) => {
                let change = self.lists.namespaces.change(event);
                apply(change, &mut self.namespaces, |(_, name)| name, |object| Some(object.labels().clone()));
            }
            WatchEvent::Slice(event) => self.observe_slice(event),
        }
    }

    fn observe_slice(&mut self, event: Event<Guarded<EndpointSlice>>) {
        match self.lists.slices.change(event) {
            None => {}
            Some(Change::Remove(key)) => self.forget_slice(&key),
            Some(Change::Keep(shown)) => {
                let gone: Vec<_> = self.slices.keys().filter(|key| !shown.contains(*key)).cloned().collect();
                gone.iter().for_each(|key| self.forget_slice(key));
            }
            Some(Change::Put(key, object)) => {
                self.forget_slice(&key);
                let Ok(slice) = object.read() else { return };
                let Some(service) = service_of(&slice) else { return };
                let of_service = self.references.endpoints.entry(service.clone()).or_default();
                of_service.insert(key.1.clone(), endpoints(slice));
                self.slices.insert(key, service);
            }
        }
    }

    fn forget_slice(&mut self, key: &InNamespace) {
        let Some(service) = self.slices.remove(key) else { return };
        let known = &mut self.references.endpoints;
        if let Some(slices) = known.get_mut(&service) {
            slices.remove(&key.1);
            if slices.is_empty() {
                known.remove(&service);
            }
        }
    }
}

/// Applies a change. An object of which nothing can be read is kept as if it were not there.
fn apply<O, K: Ord, V>(
    change: Option<Change<O>>,
    known: &mut BTreeMap<K, V>,
    key: impl Fn(InNamespace) -> K,
    read: impl FnOnce(O) -> Option<V>,
) {
    match change {
        None => {}
        Some(Change::Put(name, object)) => match read(object) {
            Some(value) => drop(known.insert(key(name), value)),
            None => drop(known.remove(&key(name))),
        },
        Some(Change::Remove(name)) => drop(known.remove(&key(name))),
        Some(Change::Keep(shown)) => {
            let shown: BTreeSet<K> = shown.into_iter().map(key).collect();
            known.retain(|name, _| shown.contains(name));
        }
    }
}

/// One that is being deleted is out of effect at once.
fn known_route(object: Guarded<AddOnRoute>) -> Option<KnownRoute> {
    let (uid, generation) = (object.uid(), object.meta().generation);
    if object.meta().deletion_timestamp.is_some() {
        return None;
    }
    Some(match object.read() {
        Ok(route) => {
            let plan = route_plan(&route).map_err(|error| error.to_string());
            KnownRoute { uid, generation, plan, status: route.status }
        }
        Err(error) => KnownRoute { uid, generation, plan: Err(format!("it cannot be read: {error}")), status: None },
    })
}
