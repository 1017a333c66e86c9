//! What the watches have shown: AddOnRoutes in the core's form, and what they refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use kube::{Resource, ResourceExt};
use tokio::time::Instant;

use super::{NamespaceEvent, RouteEvent};
use crate::relist::{News, Relist};
use addon_signer_api::ocm::created_at;
use addon_signer_api::route::{AddOnRouteStatus, CONDITION_ACCEPTED};
use addon_signer_api::route_rules::route_plan;
use addon_signer_api::{AddOnRoute, Guarded};
use addon_signer_core::gateway::attachment::{Attachment, Labels};
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::gateway::routing::{References, RoutePlan};
use addon_signer_core::oldest::{MOST_REFUSED_ROUTES, MOST_ROUTES, Oldest, Place};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::Trust;

/// The shortest time between two lists that find AddOnRoutes that have taken effect since.
const LIST_PAUSE: Duration = Duration::from_secs(30);
/// The same if an AddOnSigner or the labels of a namespace now let a route attach.
const CONSENT_PAUSE: Duration = Duration::from_secs(5);
/// How long after the first AddOnSigner a hub may not serve all AddOnSigners yet.
const START: Duration = Duration::from_secs(60);
/// Budget for the status of an AddOnRoute that may not attach.
const SMALL: usize = 16 << 10;
/// Budget for the reason why an AddOnRoute cannot be read.
const CAUSE: usize = 1 << 10;

/// An AddOnRoute, as far as the hub keeps it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownRoute {
    /// `metadata.uid`.
    pub(crate) uid: Option<String>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// What it asks for, or why it cannot be read: one sentence without a period. The plan of a route that may not
    /// attach has no paths, because no administrator has consented to their cost.
    pub(crate) plan: Result<RoutePlan, String>,
    /// Its status, if that can be read.
    pub(crate) status: Option<AddOnRouteStatus>,
}

impl KnownRoute {
    /// Whether it was accepted, by its status.
    pub(super) fn was_accepted(&self) -> bool {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions.filter(|condition| condition.type_ == CONDITION_ACCEPTED).any(|condition| condition.status == "True")
    }

    /// What is kept of a route that may not attach. The status is bounded too: only the hub should write it, but a
    /// tenant may have been granted all rights in its namespace.
    fn without_paths(self) -> Self {
        let is_small = |status: &AddOnRouteStatus| serde_json::to_vec(status).is_ok_and(|status| status.len() <= SMALL);
        Self { plan: self.plan.map(RoutePlan::without_paths), status: self.status.filter(is_small), ..self }
    }
}

/// What the watches have shown so far.
#[derive(Debug)]
pub(super) struct RouteWatches {
    /// Services, their endpoints, and the settings.
    pub(super) references: References,
    routes: BTreeMap<RouteName, Arc<KnownRoute>>,
    /// The labels of the known namespaces.
    pub(super) namespaces: BTreeMap<String, Labels>,
    list_of_routes: Relist<RouteName>,
    list_of_namespaces: Relist<String>,
    pub(super) trust: Arc<Trust>,
    /// Which AddOnRoutes take effect, of those that may attach, by namespaces.
    oldest: Oldest,
    /// The other AddOnRoutes whose status reports why they may not attach.
    refused: Oldest,
    /// Whether more AddOnRoutes may attach than when the last list began.
    has_new_consent: bool,
    /// Whether an AddOnRoute whose paths were not kept may now attach.
    pub(super) lacks_paths: bool,
    /// When all AddOnRoutes were last listed again.
    pub(super) listed: Option<Instant>,
    /// When the first AddOnSigner was served.
    serves_since: Instant,
    /// Whether all AddOnRoutes were listed once.
    pub(super) has_routes: bool,
    /// Whether all namespaces were listed since their watch began.
    pub(super) has_namespaces: bool,
}

impl RouteWatches {
    pub(super) fn new(networks: Vec<IpNet>) -> Self {
        Self {
            references: References { networks, ..References::default() },
            routes: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            list_of_routes: Relist::default(),
            list_of_namespaces: Relist::default(),
            trust: Arc::default(),
            oldest: Oldest::new(MOST_ROUTES),
            refused: Oldest::new(MOST_REFUSED_ROUTES),
            has_new_consent: false,
            lacks_paths: false,
            listed: None,
            serves_since: Instant::now(),
            has_routes: false,
            has_namespaces: false,
        }
    }

    /// Whether a list of AddOnRoutes is under way.
    pub(super) fn is_listing(&self) -> bool {
        self.list_of_routes.is_listing()
    }

    /// Whether AddOnRoutes must be listed again: one takes effect now, or must report now why it does not, and too
    /// little of it was kept.
    pub(super) fn must_list_again(&self) -> bool {
        let may_be_unknown = self.has_new_consent && self.refused.exceeded().next().is_some();
        let lacks_some = may_be_unknown || self.oldest.has_vacancy() || self.refused.has_vacancy();
        let has_passed = |pause: Duration| self.listed.is_none_or(|listed| listed.elapsed() >= pause);
        let is_due = self.lacks_paths && has_passed(CONSENT_PAUSE) || lacks_some && has_passed(LIST_PAUSE);
        is_due && self.has_routes && !self.is_listing()
    }

    /// The oldest AddOnRoute without effect of each namespace that has too many.
    pub(super) fn left_out(&self) -> BTreeSet<RouteName> {
        self.oldest.exceeded().map(|(_, key, _)| name_of(key)).collect()
    }

    /// Notes the trust, and so which namespaces may attach.
    pub(super) fn observe_trust(&mut self, trust: Arc<Trust>) {
        if self.trust.signers.is_empty() {
            self.serves_since = Instant::now();
        }
        self.has_new_consent |= !consents(&self.trust).eq(consents(&trust));
        self.trust = trust;
    }

    /// The plans of all readable AddOnRoutes.
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
            None => {
                self.oldest.begin_list();
                self.refused.begin_list();
                self.has_new_consent = false;
            }
            Some(News::Deleted(route)) => self.forget(&name(&route)),
            Some(News::Listed(shown)) => {
                self.routes.retain(|name, _| shown.contains(name));
                self.oldest.retain(|_, key| shown.contains(&name_of(key)));
                self.refused.retain(|_, key| shown.contains(&name_of(key)));
                self.has_routes = true;
            }
            // A route that is being deleted loses its effect at once.
            Some(News::There(route)) if route.meta().deletion_timestamp.is_some() => self.forget(&name(&route)),
            Some(News::There(route)) => {
                let (name, created) = (name(&route), created_at(route.meta()));
                let (known, signer) = known_route(route);
                let is_consented = signer.is_some_and(|signer| self.may_attach(&signer, &name.namespace));
                let may_attach = is_consented || known.was_accepted() && self.is_starting();
                self.put(name, created, known, may_attach);
            }
        }
    }

    /// Whether the AddOnSigner lets the namespace attach.
    fn may_attach(&self, signer: &str, namespace: &str) -> bool {
        let signer = self.trust.signer(signer);
        signer.is_some_and(|signer| signer.attachment.allows(namespace, self.namespaces.get(namespace)))
    }

    /// Whether AddOnSigners that were served before, or that another hub serves, may still be missing.
    fn is_starting(&self) -> bool {
        self.trust.signers.is_empty() || self.serves_since.elapsed() < START
    }

    /// Keeps an AddOnRoute if it is among the oldest, and whole if it may attach.
    fn put(&mut self, name: RouteName, created: Option<Timestamp>, known: KnownRoute, may_attach: bool) {
        let key = name.to_string();
        let place = if may_attach {
            self.refused.remove("", &key);
            self.oldest.put(&name.namespace, &key, created)
        } else {
            self.oldest.remove(&name.namespace, &key);
            self.refused.put("", &key, created)
        };
        match place {
            Place::TooMany => drop(self.routes.remove(&name)),
            Place::Chosen(younger) => {
                younger.iter().for_each(|key| drop(self.routes.remove(&name_of(key))));
                self.routes.insert(name, Arc::new(if may_attach { known } else { known.without_paths() }));
            }
        }
    }

    fn forget(&mut self, name: &RouteName) {
        let key = name.to_string();
        self.oldest.remove(&name.namespace, &key);
        self.refused.remove("", &key);
        self.routes.remove(name);
    }

    /// Applies an event. Labels that exceed the budget are not kept, so they select nothing.
    pub(super) fn observe_namespace(&mut self, event: NamespaceEvent) {
        match self.list_of_namespaces.news(event, |namespace| Some(namespace.name_any())) {
            None => {}
            Some(News::Deleted(namespace)) => drop(self.namespaces.remove(&namespace.name_any())),
            Some(News::Listed(shown)) => {
                self.namespaces.retain(|name, _| shown.contains(name));
                self.has_namespaces = true;
            }
            Some(News::There(namespace)) if namespace.decode_error.is_none() => {
                let labels = namespace.labels();
                let before = self.namespaces.insert(namespace.name_any(), labels.clone());
                self.has_new_consent |= before.as_ref() != Some(labels);
            }
            Some(News::There(namespace)) => drop(self.namespaces.remove(&namespace.name_any())),
        }
    }
}

/// The kept form of an AddOnRoute, and the AddOnSigner that it names.
fn known_route(object: Guarded<AddOnRoute>) -> (KnownRoute, Option<String>) {
    let (uid, generation) = (object.uid(), object.meta().generation);
    let (plan, status, signer) = match object.read() {
        Ok(route) => (route_plan(&route).map_err(|error| error.to_string()), route.status, Some(route.spec.signer)),
        Err(error) => (Err(format!("it cannot be read: {error}")), None, None),
    };
    let plan = plan.map_err(|mut cause| {
        cause.truncate(cause.floor_char_boundary(CAUSE));
        cause
    });
    (KnownRoute { uid, generation, plan, status }, signer)
}

/// Which namespaces may attach to which AddOnSigners.
fn consents(trust: &Trust) -> impl Iterator<Item = (&String, &Attachment)> {
    trust.signers.iter().map(|signer| (&signer.name, &signer.attachment))
}

/// Parses a name. Neither of its parts has a slash.
fn name_of(key: &str) -> RouteName {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    RouteName { namespace: namespace.to_owned(), name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use addon_signer_core::ca::bundle::Bundle;
    use addon_signer_core::trust::SignerTrust;

    /// The AddOnSigner `s` lets these namespaces attach.
    fn mk_trust(namespaces: &[&str]) -> Arc<Trust> {
        let ca = include_bytes!("../../../../certs/profiles/client-ca.pem");
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        let signer = SignerTrust {
            name: "s".to_owned(),
            signer_name: "example.com/s".parse().unwrap(),
            addons: ["a".parse().unwrap()].into(),
            convention: Default::default(),
            client_anchors: Bundle::from_pem(ca).unwrap(),
            renew_within: Default::default(),
            attachment: Attachment { namespaces, ..Attachment::default() },
        };
        Arc::new(Trust { signers: vec![Arc::new(signer)], ..Trust::default() })
    }

    /// The AddOnRoute `namespace/r<at>`, created at `at`.
    fn mk_route(namespace: &str, at: i64, accepted: &str) -> Guarded<AddOnRoute> {
        let created = Timestamp::from_unix(at).to_string();
        let condition = json!({
            "type": "Accepted", "status": accepted, "reason": "A", "message": "", "lastTransitionTime": created,
        });
        let object = json!({
            "apiVersion": "addon-signer.io/v1alpha1",
            "kind": "AddOnRoute",
            "metadata": { "name": format!("r{at}"), "namespace": namespace, "creationTimestamp": created },
            "spec": {
                "signer": "s",
                "match": { "http": [{ "path": "/x" }] },
                "backend": { "service": { "name": "web", "port": 80 } },
            },
            "status": { "conditions": [condition] },
        });
        serde_json::from_value(object).unwrap()
    }

    fn list(reading: &mut RouteWatches, routes: Vec<Guarded<AddOnRoute>>) {
        let all = routes.into_iter().map(Event::InitApply);
        let events = [Event::Init].into_iter().chain(all).chain([Event::InitDone]);
        events.for_each(|event| reading.observe_route(event));
    }

    /// How many are kept whole, and how many not.
    fn kept(reading: &RouteWatches) -> (usize, usize) {
        let whole = reading.plans().filter(|plan| !plan.paths.is_empty()).count();
        (whole, reading.plans().count() - whole)
    }

    async fn mk_running(trust: Arc<Trust>) -> RouteWatches {
        let mut reading = RouteWatches::new(Vec::new());
        reading.observe_trust(trust);
        tokio::time::advance(START).await;
        reading
    }

    #[tokio::test(start_paused = true)]
    async fn routes_without_consent_cost_little_in_all_namespaces() {
        let mut reading = mk_running(mk_trust(&["mine"])).await;
        let others = (0..3000).map(|at| mk_route(&format!("other{}", at % 100), at, "True"));
        list(&mut reading, others.chain([mk_route("mine", 9000, "False")]).collect());
        assert_eq!(kept(&reading), (1, MOST_REFUSED_ROUTES));
        assert!(reading.routes.contains_key(&name_of("other0/r0")), "the oldest stay");
        assert!(!reading.must_list_again());
        reading.observe_trust(mk_trust(&["mine", "other"]));
        assert!(reading.must_list_again(), "one of which nothing is known may attach");
        reading.observe_route(Event::Init);
        assert!(!reading.must_list_again(), "it has begun");
    }

    #[tokio::test(start_paused = true)]
    async fn a_route_is_whole_from_when_it_may_attach() {
        let mut reading = mk_running(mk_trust(&[])).await;
        list(&mut reading, vec![mk_route("mine", 1, "True")]);
        assert_eq!(kept(&reading), (0, 1));
        reading.observe_trust(mk_trust(&["mine"]));
        reading.lacks_paths = true; // as the judgement finds
        assert!(reading.must_list_again());
        reading.listed = Some(Instant::now());
        assert!(!reading.must_list_again(), "an author who goes back and forth causes few lists");
        list(&mut reading, vec![mk_route("mine", 1, "False")]);
        assert_eq!(kept(&reading), (1, 0));
        reading.observe_trust(mk_trust(&[]));
        reading.observe_route(Event::Apply(mk_route("mine", 1, "False")));
        assert_eq!(kept(&reading), (0, 1));
        reading.observe_route(Event::Delete(mk_route("mine", 1, "False")));
        assert_eq!((kept(&reading), reading.refused.has_vacancy()), ((0, 0), false));
    }

    /// The gateway of a hub that has just started, or that does not lead, refuses no request to such routes.
    #[tokio::test(start_paused = true)]
    async fn routes_in_effect_stay_whole_until_the_signers_are_known() {
        let mut reading = mk_running(Arc::default()).await;
        list(&mut reading, vec![mk_route("mine", 1, "True"), mk_route("other", 2, "False")]);
        assert_eq!(kept(&reading), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_route_without_consent_no_large_status_is_kept() {
        let mut reading = mk_running(mk_trust(&[])).await;
        let mut route = mk_route("other", 1, "False");
        let status = route.object.0.as_mut().unwrap().status.as_mut().unwrap();
        status.gateway_client_ca = Some("x".repeat(SMALL));
        reading.observe_route(Event::Apply(route));
        assert_eq!(reading.routes().map(|(_, route)| route.status.clone()).collect::<Vec<_>>(), [None]);
    }
}
