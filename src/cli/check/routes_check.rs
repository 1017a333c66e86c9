//! Checks AddOnRoutes: what the hub reports about them, and whether the gateway may connect to their backends.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, Resource, ResourceExt};

use super::reported::outdated;
use super::{Finding, Inspection, Verdict, unknown};
use addon_signer_api::ocm::created_at;
use addon_signer_api::route::{CONDITION_ACCEPTED, CONDITION_PROGRAMMED, CONDITION_RESOLVED_REFS, REASON_NO_ENDPOINT};
use addon_signer_api::{AddOnRoute, Guarded};
use addon_signer_core::conditions::{NO_PARENT, NOT_ALLOWED};
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::names::LABEL_UPSTREAM;
use addon_signer_core::oldest::{MOST_ROUTES, Oldest};
use addon_signer_platform::listing::{self, Selector};

impl Inspection {
    /// Every AddOnRoute.
    pub(super) async fn routes(&self) -> Vec<Finding> {
        let routes: Api<Guarded<AddOnRoute>> = Api::all(self.client.clone());
        let routes = match listing::all(routes, Selector::all()).await {
            Ok(routes) => routes,
            Err(error) => return vec![unknown("AddOnRoutes".to_owned(), &error)],
        };
        if routes.is_empty() {
            let sentence = "none exists, so the gateway passes no requests on: see deploy/example/route.yaml";
            return vec![Finding::new(Verdict::Unknown, "AddOnRoutes", sentence)];
        }
        let left_out = left_out(&routes);
        let mut found = Vec::new();
        for route in routes {
            let name = name_of(&route);
            let about = format!("AddOnRoute {name}");
            if left_out.contains(&name) {
                let sentence =
                    format!("it takes no effect: the namespace has {MOST_ROUTES} older ones, which is the most");
                found.push(Finding::bad(&about, sentence));
                continue;
            }
            match route.read() {
                Ok(route) => found.extend(self.route(&about, &route).await),
                Err(error) => {
                    let sentence = format!("it cannot be read: {error}; docs/reference.md has its fields");
                    found.push(Finding::bad(&about, sentence));
                }
            }
        }
        found
    }

    async fn route(&self, about: &str, route: &AddOnRoute) -> Vec<Finding> {
        let status = route.status.clone().unwrap_or_default();
        let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
        let kinds = [CONDITION_ACCEPTED, CONDITION_RESOLVED_REFS, CONDITION_PROGRAMMED];
        let holds = |condition: &&Condition| condition.status == "True";
        // The first false condition is the cause of the later ones.
        let problem = kinds.iter().filter_map(|kind| condition(kind)).find(|condition| !holds(condition));
        let has_no_endpoint = condition(CONDITION_RESOLVED_REFS).is_some_and(|it| it.reason == REASON_NO_ENDPOINT);
        let mut found = vec![match (problem, condition(CONDITION_PROGRAMMED)) {
            (Some(problem), _) => {
                let Condition { type_, reason, message, .. } = problem;
                Finding::bad(about, format!("{type_} is False, {reason}: {message}"))
            }
            (None, Some(_)) if has_no_endpoint => Finding::bad(
                about,
                format!("{} has no ready endpoint: its requests are answered with 503", status.backend),
            ),
            (None, Some(_)) => Finding::good(about, format!("the gateway passes its requests to {}", status.backend)),
            (None, None) => Finding::bad(about, "no hub has reported on it: is one running?"),
        }];
        found.extend(outdated(about, &route.metadata, status.observed_generation, self.now));
        let namespace = route.namespace().unwrap_or_default();
        if route.spec.backend.service.is_some() {
            found.extend(self.unreachable(about, &namespace).await);
        }
        found
    }

    /// Whether the NetworkPolicy of the chart keeps the gateway from connecting to the namespace.
    async fn unreachable(&self, about: &str, namespace: &str) -> Option<Finding> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.get_metadata(namespace).await {
            Ok(found) if found.labels().get(LABEL_UPSTREAM).is_some_and(|value| value == "true") => None,
            Ok(_) => Some(Finding::new(
                Verdict::Unknown,
                about,
                format!(
                    "the NetworkPolicy of the chart blocks the gateway from its backend, except on ports 443 and 6443, \
                     until you `kubectl label namespace {namespace} {LABEL_UPSTREAM}=true`"
                ),
            )),
            Err(error) => Some(unknown(format!("{about}, its namespace"), &error)),
        }
    }
}

/// The reason and the message of the condition, if it is False by the hub's report.
pub(in crate::cli) fn reported_by_hub<'r>(route: &'r AddOnRoute, condition: &str) -> Option<(&'r str, String)> {
    let conditions = &route.status.as_ref()?.conditions;
    let refused = conditions.iter().find(|it| it.type_ == condition && it.status == "False")?;
    let is_about_this = refused.observed_generation == route.metadata.generation;
    is_about_this.then(|| (refused.reason.as_str(), refused.message.trim_end_matches('.').to_owned()))
}

/// The AddOnRoutes that take no effect because of older ones in their namespaces. The hub counts only those that may
/// attach to their AddOnSigner.
pub(in crate::cli) fn left_out(routes: &[Guarded<AddOnRoute>]) -> BTreeSet<RouteName> {
    let may_attach = |route: &AddOnRoute| {
        let reported = reported_by_hub(route, CONDITION_ACCEPTED);
        reported.is_none_or(|(reason, _)| ![NO_PARENT, NOT_ALLOWED].contains(&reason))
    };
    let counted = || routes.iter().filter(|route| route.object.0.as_ref().is_ok_and(may_attach));
    let mut oldest = Oldest::new(MOST_ROUTES);
    for route in counted() {
        oldest.put(&route.namespace().unwrap_or_default(), &route.name_any(), created_at(route.meta()));
    }
    counted().map(name_of).filter(|name| !oldest.is_chosen(&name.namespace, &name.name)).collect()
}

pub(in crate::cli) fn name_of(route: &Guarded<AddOnRoute>) -> RouteName {
    RouteName { namespace: route.namespace().unwrap_or_default(), name: route.name_any() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The AddOnRoute `ns/r<at>`, created at `at`; `refused` is the hub's reason why it may not attach.
    fn mk_route(at: usize, refused: Option<&str>) -> Guarded<AddOnRoute> {
        let time = format!("2026-01-01T00:{:02}:{:02}Z", at / 60, at % 60);
        let condition = |reason: &str| {
            json!({
                "type": "Accepted", "status": "False", "reason": reason, "message": "", "lastTransitionTime": time,
            })
        };
        let object = json!({
            "apiVersion": "addon-signer.io/v1alpha1",
            "kind": "AddOnRoute",
            "metadata": { "name": format!("r{at}"), "namespace": "ns", "creationTimestamp": time },
            "spec": { "signer": "s", "match": { "http": [{ "path": "/x" }] }, "backend": {} },
            "status": { "conditions": refused.map(condition).into_iter().collect::<Vec<_>>() },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn only_routes_that_may_attach_take_the_place_of_younger_ones() {
        let names = |refused: &str| -> Vec<String> {
            let routes: Vec<_> = (0..=MOST_ROUTES).map(|at| mk_route(at, (at == 0).then_some(refused))).collect();
            left_out(&routes).into_iter().map(|name| name.name).collect()
        };
        assert_eq!(names(NOT_ALLOWED), [""; 0]);
        assert_eq!(names(NO_PARENT), [""; 0]);
        assert_eq!(names("UnsupportedValue"), ["r64"]);
    }
}
