//! What the watches of a namespace have shown of the Services that its AddOnRoutes name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use tracing::warn;

use crate::relist::{News, Relist};
use addon_signer_api::Guarded;
use addon_signer_api::route_rules::{endpoints, service_facts, service_of};
use addon_signer_core::gateway::routing::{Backends, Endpoints, ServiceFacts};

/// How many addresses and ports of a namespace's EndpointSlices are kept: some 200 KB. More are not used, so that a
/// namespace that may attach routes cannot fill the memory that all share.
const MOST: usize = 8 * 1024;

/// The state of the Services of a namespace.
pub(super) struct KnownServices {
    namespace: String,
    names: BTreeSet<String>,
    services: BTreeMap<String, ServiceFacts>,
    endpoints: BTreeMap<String, BTreeMap<String, Arc<Endpoints>>>,
    /// The Service of each EndpointSlice.
    slices: BTreeMap<String, String>,
    /// How many addresses and ports are kept in all.
    kept: usize,
    /// Whether an EndpointSlice did not fit.
    has_refused: bool,
    /// Whether it may fit now.
    has_room: bool,
    list_of_services: Relist<String>,
    list_of_slices: Relist<String>,
    /// Whether Services were listed once, and EndpointSlices.
    listed: [bool; 2],
}

impl KnownServices {
    pub(super) fn new(namespace: &str, names: BTreeSet<String>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            names,
            services: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            slices: BTreeMap::new(),
            kept: 0,
            has_refused: false,
            has_room: false,
            list_of_services: Relist::default(),
            list_of_slices: Relist::default(),
            listed: [false; 2],
        }
    }

    /// All of it; `None` before both kinds were listed once.
    pub(super) fn complete(&self) -> Option<Backends> {
        let services = self.names.iter().map(|name| (name.clone(), self.services.get(name).cloned()));
        let all = || Backends { services: services.collect(), endpoints: self.endpoints.clone(), refusal: None };
        (self.listed == [true; 2]).then(all)
    }

    /// Whether the EndpointSlices must be listed again, because one that did not fit may fit now.
    pub(super) fn wants_slices_again(&mut self) -> bool {
        let wants = std::mem::take(&mut self.has_room);
        self.has_refused &= !wants;
        wants
    }

    pub(super) fn observe_service(&mut self, event: Event<Guarded<Service>>) {
        match self.list_of_services.news(event, |service| Some(service.name_any())) {
            None => {}
            Some(News::Deleted(service)) => drop(self.services.remove(&service.name_any())),
            Some(News::Listed(shown)) => {
                self.services.retain(|name, _| shown.contains(name));
                self.listed[0] = true;
            }
            Some(News::There(service)) => {
                let name = service.name_any();
                self.services.remove(&name); // an unreadable Service counts as missing
                let facts = service.object.0.ok().filter(|_| self.names.contains(&name)).map(service_facts);
                self.services.extend(facts.map(|facts| (name, facts)));
            }
        }
    }

    pub(super) fn observe_slice(&mut self, event: Event<Guarded<EndpointSlice>>) {
        match self.list_of_slices.news(event, |slice| Some(slice.name_any())) {
            None => {}
            Some(News::Deleted(slice)) => self.forget_slice(&slice.name_any()),
            Some(News::Listed(shown)) => {
                let gone: Vec<_> = self.slices.keys().filter(|name| !shown.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.forget_slice(name));
                self.listed[1] = true;
            }
            Some(News::There(slice)) => {
                let name = slice.name_any();
                self.forget_slice(&name);
                let Ok(slice) = slice.object.0 else { return };
                let Some(service) = service_of(&slice).filter(|service| self.names.contains(*service)) else { return };
                self.keep(name, service.to_owned(), endpoints(slice));
            }
        }
    }

    /// Keeps usable EndpointSlices. One without an address or a port would still cost memory for its name.
    fn keep(&mut self, name: String, service: String, found: Endpoints) {
        if found.addresses.is_empty() || found.ports.is_empty() {
            return;
        }
        let kept = self.kept + size(&found);
        if kept > MOST {
            // Its author may edit it as often as he likes.
            if !std::mem::replace(&mut self.has_refused, true) {
                let namespace = &self.namespace;
                warn!(
                    namespace,
                    slice = name,
                    "An EndpointSlice is not used: those of its namespace have {MOST} addresses and ports"
                );
            }
            return;
        }
        self.kept = kept;
        self.endpoints.entry(service.clone()).or_default().insert(name.clone(), Arc::new(found));
        self.slices.insert(name, service);
    }

    fn forget_slice(&mut self, name: &str) {
        let Some(service) = self.slices.remove(name) else { return };
        let Some(slices) = self.endpoints.get_mut(&service) else { return };
        self.kept -= slices.remove(name).map_or(0, |found| size(&found));
        self.has_room |= self.has_refused;
        if slices.is_empty() {
            self.endpoints.remove(&service);
        }
    }
}

fn size(found: &Endpoints) -> usize {
    found.addresses.len() + found.ports.len()
}
