//! Tests the distributor against an API server of a few lines, on a clock that the test moves.

use std::collections::BTreeMap;
use std::sync::Mutex;

use hyper::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::lease;
use crate::links::mk_links;
use addon_signer_api::manifest_work::body;
use addon_signer_api::ocm::AddOnApi;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::registry::{AddOnFacts, ClusterFacts, SharedRegistry};

const ANCHORS: &str = include_str!("../../../../certs/profiles/serving-ca.pem");

pub(super) fn key(number: usize) -> AddOnKey {
    AddOnKey { cluster: format!("c{number}").parse().unwrap(), addon: "telemetry".parse().unwrap() }
}

fn put_addon(known: &Known, number: usize) {
    let addon = json!({ "metadata": { "name": "telemetry", "namespace": format!("c{number}"), "uid": "u" } });
    known.put_addon(&serde_json::from_value(addon).unwrap());
}

/// A registry in which the addon is registered on this many clusters.
fn live(clusters: usize) -> SharedRegistry {
    let registry = SharedRegistry::default();
    let accepted = ClusterFacts::ACCEPTED;
    registry.write(|registry| {
        for AddOnKey { cluster, addon } in (0..clusters).map(key) {
            registry.set_cluster(cluster.clone(), Some(accepted));
            registry.set_addon(cluster, addon, Some(AddOnFacts::Installed));
        }
        registry.complete_clusters(|_| true);
        registry.complete_addons(|_| true);
    });
    registry
}

/// When each cluster's work was written.
type Writes = Arc<Mutex<Vec<(String, Instant)>>>;

/// Accepts every write, and responds with the new object.
async fn answer(request: Request<Body>, writes: Writes) -> Response<Body> {
    let cluster = request.uri().path().split('/').nth(5).unwrap().to_owned();
    let is_new = request.method() == Method::POST;
    let mut work: Value = serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
    work["metadata"]["name"] = "addon-signer-telemetry-trust".into();
    work["metadata"]["namespace"] = cluster.as_str().into();
    work["metadata"]["resourceVersion"] = "8".into();
    writes.lock().unwrap().push((cluster, Instant::now()));
    let mut response = Response::new(Body::from(work.to_string().into_bytes()));
    *response.status_mut() = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    response
}

/// Shows a work with these anchors.
fn put_work(known: &Known, number: usize, namespace: &str, anchors: &str) {
    let mut work = body(&key(number), AddOnApi::V1Alpha1, "u", namespace, anchors);
    work["metadata"]["resourceVersion"] = "7".into();
    known.put_work(&serde_json::from_value(work).unwrap());
}

/// A distributor that leads and knows this many clusters with the addon, with its writes and its report.
fn mk_distributor(clusters: usize) -> (Distributor, Known, Writes, watch::Receiver<Distribution>, lease::Announcer) {
    let writes = Writes::default();
    let taken = Arc::clone(&writes);
    let service = tower::service_fn(move |request| {
        let taken = Arc::clone(&taken);
        async move { Ok::<_, std::convert::Infallible>(answer(request, taken).await) }
    });
    let (mut distributor, known, reported, leads) = mk_distributor_of(Client::new(service, "default"), clusters);
    (distributor.right.last, distributor.right.at) =
        (Some(Right::Guarded), Instant::now() + Duration::from_secs(9_999));
    (distributor, known, writes, reported, leads)
}

/// A distributor that has not checked its right yet.
pub(super) fn mk_distributor_of(
    client: Client,
    clusters: usize,
) -> (Distributor, Known, watch::Receiver<Distribution>, lease::Announcer) {
    let spec = json!({ "signerName": "example.com/telemetry", "addOns": ["telemetry"] });
    let config = Arc::new(SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap());
    let served = BTreeMap::from([("telemetry".to_owned(), config)]);
    let signers = Signers { served: Arc::new(served), ..Signers::default() };
    let bundle = Bundle::from_pem(ANCHORS.as_bytes()).unwrap();
    let trust = Trust { serving_anchors: Some(bundle), ..Trust::default() };
    let known = Known::default();
    (0..clusters).for_each(|number| put_addon(&known, number));
    known.complete_addons(|_| true);
    known.complete_works(|_| true);
    let (report, reported) = watch::channel(Distribution::default());
    let inputs = DistributorInputs {
        namespace: "addon-signer".to_owned(),
        known: known.clone(),
        signers: watch::channel(Some(signers)).1,
        trust: watch::channel(Arc::new(trust)).1,
        report,
    };
    let (announcer, leading) = lease::channel();
    announcer.lead(1, Instant::now() + Duration::from_secs(100_000));
    let links = HubLinks { registry: live(clusters + 1), ..mk_links(client, leading) };
    let distributor = Distributor::new(&links, AddOnApi::V1Alpha1.into(), inputs);
    (distributor, known, reported, announcer)
}

#[tokio::test(start_paused = true)]
async fn rate_limited_fleet_writes_do_not_delay_new_addons() {
    const CLUSTERS: usize = 1_000;
    let (mut distributor, known, writes, _reported, _leads) = mk_distributor(CLUSTERS);
    (0..CLUSTERS).for_each(|number| put_work(&known, number, "open-cluster-management-agent-addon", "older"));
    let began = Instant::now();
    let late = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        put_addon(&known, CLUSTERS);
        let put = Instant::now();
        let written = || writes.lock().unwrap().iter().find(|(cluster, _)| *cluster == "c1000").map(|found| found.1);
        loop {
            if let Some(at) = written() {
                return at - put;
            }
            tokio::time::sleep(PACE).await;
        }
    };
    let all = async {
        while writes.lock().unwrap().len() <= CLUSTERS {
            tokio::time::sleep(PACE).await;
        }
    };
    let waited = tokio::select! {
        () = distributor.write() => panic!("it ended"),
        (waited, ()) = async { tokio::join!(late, all) } => waited,
    };
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
    let took = began.elapsed().as_millis();
    let least = PACE.as_millis() * (CLUSTERS as u128);
    assert!(took >= least, "{took} ms for {CLUSTERS} works");
    assert!(took <= 2 * least, "{took} ms for {CLUSTERS} works");
    let clusters: HashSet<_> = writes.lock().unwrap().iter().map(|(cluster, _)| cluster.clone()).collect();
    assert_eq!(clusters.len(), CLUSTERS + 1, "each once");
}

#[tokio::test(start_paused = true)]
async fn repeatedly_undone_work_is_restored_with_growing_pauses() {
    let (mut distributor, known, _writes, _reported, _leads) = mk_distributor(1);
    put_work(&known, 0, "elsewhere", ANCHORS);
    let mut writes = Vec::new();
    for second in 0..1_020 {
        for (key, _) in distributor.look() {
            writes.push(second);
            distributor.note(key, None);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(writes, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_said_and_waits() {
    let (mut distributor, _known, _writes, reported, _leads) = mk_distributor(2);
    let steps = distributor.look();
    assert_eq!(steps.len(), 2);
    distributor.note(key(0), Some(NotTaken::new(Some("no room".to_owned()))));
    assert_eq!(distributor.look().len(), 1, "the other one does not wait");
    let Distribution::Reached { report, .. } = reported.borrow().clone() else { panic!() };
    let (_, _, sentence) = report[&key(0).addon].clone().condition();
    assert!(
        sentence.ends_with("Not yet: c0/telemetry, c1/telemetry. The last failure: c0/telemetry: no room."),
        "{sentence}"
    );
    tokio::time::advance(SHORTEST).await;
    assert_eq!(distributor.look().len(), 2);
}

/// Answers each write like this, after `meanwhile`.
fn mk_answering(
    status: StatusCode,
    meanwhile: impl Fn() + Send + Sync + 'static,
    object: Value,
) -> (Distributor, Known, watch::Receiver<Distribution>, lease::Announcer) {
    let body = object.to_string();
    let meanwhile = Arc::new(meanwhile);
    let service = tower::service_fn(move |_: Request<Body>| {
        let (body, meanwhile) = (body.clone(), Arc::clone(&meanwhile));
        async move {
            meanwhile();
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = status;
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let (mut distributor, known, reported, leads) = mk_distributor_of(Client::new(service, "default"), 1);
    distributor.right.last = Some(Right::Guarded);
    (distributor, known, reported, leads)
}

/// After a create whose response was lost, the next create finds the hub's own work before the watch has shown it.
#[tokio::test(start_paused = true)]
async fn others_are_blamed_only_if_existing_work_stays_unknown() {
    let there = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "already exists",
        "reason": "AlreadyExists", "code": 409,
    });
    let (mut distributor, _known, reported, _leads) = mk_answering(StatusCode::CONFLICT, || (), there);
    let mut failures = Vec::new();
    for _ in 0..2 {
        let steps = distributor.look();
        distributor.perform(steps).await.unwrap();
        distributor.look();
        let Distribution::Reached { report, .. } = reported.borrow().clone() else { panic!() };
        let (_, _, sentence) = report[&key(0).addon].clone().condition();
        failures.push(sentence.contains("somebody else created it"));
        tokio::time::advance(SHORTEST).await;
    }
    assert_eq!(failures, [false, true]);
}

/// A response that arrives late must not undo what the watch has shown since.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_watch_hides_nothing() {
    let made = |version: &str, anchors: &str| {
        let mut work = body(&key(0), AddOnApi::V1Alpha1, "u", "open-cluster-management-agent-addon", anchors);
        work["metadata"]["resourceVersion"] = version.into();
        work
    };
    let known_to_watch = Arc::new(Mutex::new(None::<Known>));
    let watching = Arc::clone(&known_to_watch);
    let edited = made("9", "edited");
    let meanwhile = move || {
        let known = watching.lock().unwrap().clone().unwrap();
        known.put_work(&serde_json::from_value(edited.clone()).unwrap());
    };
    let (mut distributor, known, _reported, _leads) = mk_answering(StatusCode::CREATED, meanwhile, made("8", ANCHORS));
    *known_to_watch.lock().unwrap() = Some(known);
    let steps = distributor.look();
    assert!(matches!(steps[..], [(_, Step::Create { .. })]), "{steps:?}");
    distributor.perform(steps).await.unwrap();
    tokio::time::advance(SHORTEST).await;
    let steps = distributor.look();
    assert!(matches!(&steps[..], [(_, Step::Change { version, .. })] if **version == *"9"), "{steps:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_work_is_remade_but_missing_api_proves_nothing() {
    for (details, is_absent) in [(json!({ "name": "addon-signer-telemetry-trust" }), true), (json!({}), false)] {
        let absent = json!({ "kind": "Status", "code": 404, "reason": "NotFound", "details": details });
        let (mut distributor, known, reported, _leads) = mk_answering(StatusCode::NOT_FOUND, || (), absent);
        put_work(&known, 0, "elsewhere", ANCHORS);
        let steps = distributor.look();
        assert!(matches!(steps[..], [(_, Step::Change { .. })]), "{steps:?}");
        distributor.perform(steps).await.unwrap();
        tokio::time::advance(SHORTEST).await;
        let steps = distributor.look();
        assert_eq!(matches!(steps[..], [(_, Step::Create { .. })]), is_absent, "{steps:?}");
        let Distribution::Reached { report, .. } = &*reported.borrow() else { panic!("{reported:?}") };
        let expected = if is_absent { "Distributing" } else { "WriteFailed" };
        assert_eq!(Reached::sum(report.values()).condition().1, expected);
    }
}

/// A hub that does not know which addons are eligible must not conclude that none is awaited.
#[tokio::test(start_paused = true)]
async fn nothing_is_reported_or_written_while_eligibility_is_unknown() {
    let (mut distributor, _known, _writes, reported, _leads) = mk_distributor(2);
    distributor.links.registry = SharedRegistry::default();
    assert_eq!((distributor.look(), reported.borrow().clone()), (Vec::new(), Distribution::Starting));
    distributor.links.registry = live(3);
    assert_eq!(distributor.look().len(), 2);
    assert!(matches!(*reported.borrow(), Distribution::Reached { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_no_signer_wants_goes_when_that_was_so_for_five_minutes() {
    let (mut distributor, known, _writes, _reported, _leads) = mk_distributor(1);
    put_work(&known, 0, "open-cluster-management-agent-addon", ANCHORS);
    let wanted = distributor.inputs.signers.borrow().clone();
    let nobody = || watch::channel(Some(Signers { is_whole: true, ..Signers::default() })).1;
    distributor.inputs.signers = nobody();
    assert_eq!(distributor.look(), []);
    tokio::time::advance(CONFIRMED_AFTER / 2).await;
    distributor.inputs.signers = watch::channel(wanted).1;
    assert_eq!(distributor.look(), [], "its AddOnSigner is back");
    distributor.inputs.signers = nobody();
    assert_eq!(distributor.look(), []);
    tokio::time::advance(CONFIRMED_AFTER - SHORTEST).await;
    assert_eq!(distributor.look(), [], "it begins anew");
    tokio::time::advance(SHORTEST).await;
    assert_eq!(distributor.look().len(), 1);
}

/// A kubelet shows a ConfigMap later than it was applied, and an agent asks the gateway later.
#[tokio::test(start_paused = true)]
async fn an_anchor_that_was_just_applied_is_not_yet_in_use_everywhere() {
    let (mut distributor, known, _writes, reported, _leads) = mk_distributor(1);
    let mut work = body(&key(0), AddOnApi::V1Alpha1, "u", "open-cluster-management-agent-addon", ANCHORS);
    work["metadata"]["generation"] = 2.into();
    let applied = json!({ "conditions": [{ "type": "Applied", "status": "True", "observedGeneration": 2 }] });
    let put = |status: &Value| {
        let mut work = work.clone();
        work["status"] = status.clone();
        known.put_work(&serde_json::from_value(work).unwrap());
    };
    let signers = distributor.inputs.signers.borrow().clone().map(|signers| Signers { is_whole: true, ..signers });
    distributor.inputs.signers = watch::channel(signers).1;
    let clock = distributor.links.clock.clone();
    let anchor = Bundle::from_pem(ANCHORS.as_bytes()).unwrap().authorities()[0].clone();
    let mut asked = |is_awaited: bool| {
        distributor.look();
        reported.borrow().waits(&anchor, is_awaited, None)
    };
    let recent = format!("pods and agents to use the new anchor: {}", key(0));
    put(&applied);
    assert_eq!(asked(true), recent);
    assert_eq!(asked(false), "");
    clock.advance(APPLIED_FOR);
    assert_eq!(asked(true), "");
    put(&json!({}));
    assert!(asked(true).starts_with("clusters to apply the new anchor"));
    put(&applied);
    assert_eq!(asked(true), recent, "it begins anew");
    clock.set_back(Duration::from_secs(86_400));
    assert_eq!(asked(true), recent);
    clock.advance(APPLIED_FOR);
    assert_eq!(asked(true), "", "a clock that was ahead costs a quarter of an hour");
}

/// A recreated AddOnSigner has agents with valid certificates, for which no rotation has waited meanwhile.
#[tokio::test(start_paused = true)]
async fn no_authority_activates_while_addon_may_be_unnamed_by_mistake() {
    let (mut distributor, _known, _writes, reported, _leads) = mk_distributor(1);
    let wanted = distributor.inputs.signers.borrow().clone().map(|signers| Signers { is_whole: true, ..signers });
    let anchor = Bundle::from_pem(ANCHORS.as_bytes()).unwrap().authorities()[0].clone();
    let mut look = |signers: Option<Signers>| {
        distributor.inputs.signers = watch::channel(signers).1;
        distributor.look();
        reported.borrow().waits(&anchor, true, None)
    };
    let nobody = || Some(Signers { is_whole: true, ..Signers::default() });
    let unapplied = format!("clusters to apply the new anchor: 0 of 1 addons have it, and not yet: {}", key(0));
    let unnamed = "five minutes to pass since an addon was removed from every AddOnSigner, possibly by mistake";
    assert_eq!(look(wanted.clone()), unapplied);
    assert_eq!(look(nobody()), unnamed);
    tokio::time::advance(CONFIRMED_AFTER - SHORTEST).await;
    assert_eq!(look(nobody()), unnamed);
    tokio::time::advance(SHORTEST).await;
    assert_eq!(look(nobody()), "", "nobody is waited for");
    assert_eq!(look(wanted), unapplied);
}
