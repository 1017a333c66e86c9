//! What the watches have shown: AddOnRoutes as the core reads them, and what they refer to.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use kube::{Resource, ResourceExt};
use tokio::time::Instant;

use super::watches::{NamespaceEvent, RouteEvent};
use crate::relist::{News, Relist};
use addon_signer_api::ocm::created_at;
use addon_signer_api::route::{AddOnRouteStatus, CONDITION_ACCEPTED};
use addon_signer_api::route_rules::route_plan;
use addon_signer_api::{AddOnRoute, Guarded};
use addon_signer_core::gateway::attachment::Labels;
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::gateway::routing::{References, RoutePlan};
use addon_signer_core::oldest::{MOST_ROUTES, Oldest, Place};

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

impl KnownRoute {
    /// Whether the status says that it was accepted.
    pub(super) fn was_accepted(&self) -> bool {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions.filter(|condition| condition.type_ == CONDITION_ACCEPTED).any(|condition| condition.status == "True")
    }
}

/// What the watches have shown so far.
#[derive(Debug)]
pub(super) struct Reading {
    /// Services, their endpoints, and the settings.
    pub(super) references: References,
    routes: BTreeMap<RouteName, Arc<KnownRoute>>,
    namespaces: BTreeMap<String, Labels>,
    list_of_routes: Relist<RouteName>,
    list_of_namespaces: Relist<String>,
    /// Which AddOnRoutes take effect.
    pub(super) oldest: Oldest,
    has_routes: bool,
    has_namespaces: bool,
}

impl Reading {
    pub(super) fn new(networks: Vec<IpNet>) -> Self {
        Self {
            references: References { networks, ..References::default() },
            routes: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            list_of_routes: Relist::default(),
            list_of_namespaces: Relist::default(),
            oldest: Oldest::new(MOST_ROUTES),
            has_routes: false,
            has_namespaces: false,
        }
    }

    /// Whether all AddOnRoutes were listed once.
    pub(super) fn has_routes(&self) -> bool {
        self.has_routes
    }

    /// Whether a list of AddOnRoutes is under way.
    pub(super) fn is_listing(&self) -> bool {
        self.list_of_routes.is_listing()
    }

    /// Whether AddOnRoutes must be listed again, because one has come to take effect of which only the name is known.
    pub(super) fn must_list_again(&self, not_before: Instant) -> bool {
        self.has_routes && !self.is_listing() && self.oldest.has_vacancy() && Instant::now() >= not_before
    }

    /// Whether all namespaces were listed since they are watched.
    pub(super) fn has_namespaces(&self) -> bool {
        self.has_namespaces
    }

    /// The labels of the namespaces that are known.
    pub(super) fn namespaces(&self) -> &BTreeMap<String, Labels> {
        &self.namespaces
    }

    /// What all AddOnRoutes that can be read ask for.
    pub(super) fn plans(&self) -> impl Iterator<Item = &RoutePlan> {
        self.routes.values().filter_map(|route| route.plan.as_ref().ok())
    }

    /// All AddOnRoutes.
    pub(super) fn routes(&self) -> impl Iterator<Item = (&RouteName, &Arc<KnownRoute>)> {
        self.routes.iter()
    }

    pub(super) fn observe_route(&mut self, event: RouteEvent) {
        let name = |route: &Guarded<AddOnRoute>| RouteName {
            namespace: route.namespace().unwrap_or_default(),
            name: route.name_any(),
        };
        match self.list_of_routes.news(event, |route| Some(name(route))) {
            None => self.oldest.begin_list(),
            Some(News::Gone(route)) => self.forget(&name(&route)),
            Some(News::Listed(shown)) => {
                self.routes.retain(|name, _| shown.contains(name));
                let exists = |namespace: &str, name: &str| {
                    shown.contains(&RouteName { namespace: namespace.to_owned(), name: name.to_owned() })
                };
                self.oldest.retain(exists);
                self.has_routes = true;
            }
            // One that is being deleted is out of effect at once.
            Some(News::There(route)) if route.meta().deletion_timestamp.is_some() => self.forget(&name(&route)),
            Some(News::There(route)) => {
                let (name, created) = (name(&route), created_at(route.meta()));
                match self.oldest.put(&name.namespace, &name.name, created) {
                    Place::TooMany => drop(self.routes.remove(&name)),
                    Place::Chosen(younger) => {
                        let younger = younger.map(|name_of| RouteName { name: name_of, ..name.clone() });
                        younger.iter().for_each(|younger| drop(self.routes.remove(younger)));
                        self.routes.insert(name, Arc::new(known_route(route)));
                    }
                }
            }
        }
    }

    fn forget(&mut self, name: &RouteName) {
        self.oldest.remove(&name.namespace, &name.name);
        self.routes.remove(name);
    }

    /// Labels that are too many to be kept are not known, so they select nothing.
    pub(super) fn observe_namespace(&mut self, event: NamespaceEvent) {
        match self.list_of_namespaces.news(event, |namespace| Some(namespace.name_any())) {
            None => {}
            Some(News::Gone(namespace)) => drop(self.namespaces.remove(&namespace.name_any())),
            Some(News::Listed(shown)) => {
                self.namespaces.retain(|name, _| shown.contains(name));
                self.has_namespaces = true;
            }
            Some(News::There(namespace)) if namespace.doubt.is_none() => {
                self.namespaces.insert(namespace.name_any(), namespace.labels().clone());
            }
            Some(News::There(namespace)) => drop(self.namespaces.remove(&namespace.name_any())),
        }
    }
}

fn known_route(object: Guarded<AddOnRoute>) -> KnownRoute {
    let (uid, generation) = (object.uid(), object.meta().generation);
    match object.read() {
        Ok(route) => {
            let plan = route_plan(&route).map_err(|error| error.to_string());
            KnownRoute { uid, generation, plan, status: route.status }
        }
        Err(error) => KnownRoute { uid, generation, plan: Err(format!("it cannot be read: {error}")), status: None },
    }
}
