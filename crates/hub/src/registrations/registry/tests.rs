use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};

use hyper::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::tasks::ChangedEligibility;
use addon_signer_core::registry::NotRegistered;
use addon_signer_platform::clock::Clock;

fn mk_page(suspended: bool, next: &str) -> Value {
    let annotations = json!({ ANNOTATION_SUSPENDED: suspended.to_string() });
    let created = "2026-01-01T00:00:00Z";
    let metadata = json!({
        "name": "telemetry", "namespace": "spoke1", "annotations": annotations, "creationTimestamp": created,
    });
    let addon = json!({ "metadata": metadata });
    json!({ "metadata": { "resourceVersion": "1", "continue": next }, "items": [addon] })
}

const DEFINITIONS: &str = "/customresourcedefinitions/";

/// Answers the first list at once, ends the first watch because it is too old, and answers only the first page of
/// the next list. Says nothing about the version.
async fn answer(request: Request<Body>, lists: Arc<AtomicU32>) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    let body = if request.uri().path().contains(DEFINITIONS) {
        std::future::pending().await
    } else if query.contains("watch=true") {
        json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "reason": "Expired" } })
    } else if query.contains("continue=") {
        std::future::pending().await
    } else {
        let is_first = lists.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first { mk_page(false, "") } else { mk_page(true, "more") }
    };
    Response::new(Body::from(body.to_string().into_bytes()))
}

/// Stores addons in v1beta1, from this time on in v1alpha1. Its watches never end.
async fn answer_stored(request: Request<Body>, from: Instant) -> Response<Body> {
    let is_old = Instant::now() >= from;
    let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage });
    let body = if request.uri().path().contains(DEFINITIONS) {
        let versions = [version("v1alpha1", is_old), version("v1beta1", !is_old)];
        json!({ "metadata": { "name": "managedclusteraddons" }, "spec": { "versions": versions } })
    } else if request.uri().query().unwrap_or_default().contains("watch=true") {
        std::future::pending().await
    } else {
        mk_page(request.uri().path().contains("/v1alpha1/"), "")
    };
    Response::new(Body::from(body.to_string().into_bytes()))
}

#[tokio::test(start_paused = true)]
async fn another_stored_version_is_read_although_the_watch_is_quiet() {
    let (from, registry) = (Instant::now() + ASKED / 2, SharedRegistry::default());
    let service =
        tower::service_fn(move |request| async move { Ok::<_, Infallible>(answer_stored(request, from).await) });
    let client = Client::new(service, "default");
    let version = AddOnVersion::from(discover(&client).await.unwrap());
    assert_eq!(version.now(), AddOnApi::V1Beta1);
    let recorded = Recorded { registry: registry.clone(), sinks: None };
    let (cluster, addon): (ClusterName, AddOnName) = ("spoke1".parse().unwrap(), "telemetry".parse().unwrap());
    recorded.write(|registry| registry.set_cluster(cluster.clone(), Some(ClusterFacts::ACCEPTED)));
    recorded.write(|registry| registry.complete_clusters(|_| true));
    let watching = watch_addons(client, version.clone(), recorded);
    assert!(timeout(ASKED + ANSWERED, watching).await.is_err(), "it goes on");
    assert_eq!(version.now(), AddOnApi::V1Alpha1);
    let found = registry.read(|registry| registry.check(&cluster, &addon));
    assert_eq!(found.err(), Some(NotRegistered::AddOnSuspended), "as it is in v1alpha1");
}

#[test]
fn a_cluster_without_a_time_of_creation_is_not_accepted() {
    let (metadata, spec) =
        (json!({ "creationTimestamp": "2026-01-01T00:00:00Z" }), json!({ "hubAcceptsClient": true }));
    let mut object: DynamicObject = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
    assert!(cluster_facts(&object).accepted);
    object.metadata.creation_timestamp = None;
    assert!(!cluster_facts(&object).accepted);
}

#[tokio::test(start_paused = true)]
async fn listed_suspension_counts_before_the_list_is_complete() {
    let lists = Arc::new(AtomicU32::new(0));
    let service = tower::service_fn(move |request| {
        let lists = Arc::clone(&lists);
        async move { Ok::<_, Infallible>(answer(request, lists).await) }
    });
    let eligibility = EligibilityWatch::default();
    let registry = SharedRegistry::default();
    let (seen, _waiting) = mpsc::channel(8);
    let sinks = Sinks {
        audit: Audit::new(Clock::default()),
        notes: Notes::default(),
        eligibility: eligibility.clone(),
        known: Known::default(),
        seen,
        all_again: Arc::default(),
    };
    let recorded = Recorded { registry: registry.clone(), sinks: Some(sinks) };
    let (cluster, addon): (ClusterName, AddOnName) = ("spoke1".parse().unwrap(), "telemetry".parse().unwrap());
    let accepted = ClusterFacts::ACCEPTED;
    recorded.write(|registry| registry.set_cluster(cluster.clone(), Some(accepted)));
    recorded.write(|registry| registry.complete_clusters(|_| true));
    let client = Client::new(service, "default");
    let watching = watch_addons(client, AddOnApi::V1Beta1.into(), recorded);
    let checks = async {
        let check = || registry.read(|registry| registry.check(&cluster, &addon));
        let (mut known, mut reported) = (vec![check().err()], Vec::new());
        while known.last() != Some(&Some(NotRegistered::AddOnSuspended)) {
            reported.push(eligibility.next().await);
            known.push(check().err());
        }
        (known, reported)
    };
    let (known, reported) = tokio::select! {
        ended = watching => panic!("{ended:?}"),
        checked = tokio::time::timeout(Duration::from_secs(60), checks) => checked.unwrap(),
    };
    assert_eq!(known, [Some(NotRegistered::NotReady), None, Some(NotRegistered::AddOnSuspended)]);
    let named = ChangedEligibility::Of([cluster.clone()].into());
    assert_eq!(reported, [ChangedEligibility::All, named], "a list that completes the registry, then one cluster");
}
