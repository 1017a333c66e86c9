//! Tests the publisher against an API server of a few lines, on a clock that the test moves.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use hyper::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;

use super::*;
use crate::lease;
use crate::links::mk_links;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::ca::bundle::Bundle;

const ANCHORS: &str = include_str!("../../../../../certs/profiles/serving-ca.pem");
const OTHERS: &str = include_str!("../../../../../certs/profiles/client-ca.pem");
const VERSION: &str = VERSIONS[0];

fn mk_trust(anchors: &str) -> Arc<Trust> {
    Arc::new(Trust { serving_anchors: Some(Bundle::from_pem(anchors.as_bytes()).unwrap()), ..Trust::default() })
}

/// The AddOnSigners with these names, each with its `trust.clusterTrustBundle`.
fn mk_signers(served: &[(&str, &str)]) -> Signers {
    let mk = |(name, mode): &(&str, &str)| {
        let spec = json!({ "signerName": "aa.b/c", "addOns": ["a"], "trust": { "clusterTrustBundle": mode } });
        let config = SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap();
        ((*name).to_owned(), Arc::new(config))
    };
    let served: BTreeMap<_, _> = served.iter().map(mk).collect();
    Signers { served: Arc::new(served), is_whole: true, ..Signers::default() }
}

/// A publisher that leads; its writes get this status code.
struct Publishing {
    publisher: BundlePublisher,
    api: Api<ClusterTrustBundle>,
    writes: Arc<Mutex<usize>>,
    report: watch::Receiver<Report>,
    trust: watch::Sender<Arc<Trust>>,
    _leads: lease::Announcer,
}

fn mk_publishing(code: StatusCode) -> Publishing {
    let writes = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&writes);
    let service = tower::service_fn(move |request: Request<Body>| {
        let counted = Arc::clone(&counted);
        async move {
            let sent = request.into_body().collect_bytes().await.unwrap();
            *counted.lock().unwrap() += 1;
            let refused = json!({ "kind": "Status", "status": "Failure", "code": code.as_u16(), "message": "no",
                                  "reason": code.canonical_reason() });
            let answer = if code.is_success() { sent.to_vec() } else { refused.to_string().into_bytes() };
            Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(Body::from(answer)).unwrap())
        }
    });
    let client = Client::new(service, "default");
    let (report, reported) = watch::channel(Report::AsBefore);
    let (trust, trusted) = watch::channel(mk_trust(ANCHORS));
    let signers = watch::channel(Some(mk_signers(&[("a", "Auto")]))).1;
    let (announcer, leading) = lease::channel();
    announcer.lead(1, Instant::now() + Duration::from_secs(100_000));
    let inputs = PublisherInputs { signers, trust: trusted, report };
    let publisher = BundlePublisher::new(&mk_links(client.clone(), leading), inputs);
    let api = Api::all_with(client, &resource(VERSION));
    Publishing { publisher, api, writes, report: reported, trust, _leads: announcer }
}

impl Publishing {
    /// Whether it is published, by the report.
    fn reported(&self) -> Option<bool> {
        match &*self.report.borrow() {
            Report::ConditionValue((holds, ..)) => Some(*holds),
            Report::Nothing | Report::AsBefore => None,
        }
    }

    /// Shows these anchors; returns whether the publisher overwrote them.
    async fn is_written_over(&mut self, anchors: Option<&str>) -> Result<bool, String> {
        let before = *self.writes.lock().unwrap();
        let mut found = anchors.map(|anchors| body(VERSION, anchors));
        self.publisher.settle(&self.api, VERSION, &mut found).await?;
        Ok(*self.writes.lock().unwrap() > before)
    }
}

#[tokio::test(start_paused = true)]
async fn new_anchors_skip_the_growing_pauses_after_undone_writes() {
    let mut running = mk_publishing(StatusCode::OK);
    let mut writes = Vec::new();
    for second in 0..1_020 {
        let found = (second % 2 == 0).then_some(OTHERS);
        if running.is_written_over(found).await.unwrap() {
            writes.push(second);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(writes, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511]);
    running.trust.send_replace(mk_trust(OTHERS));
    assert_eq!(running.is_written_over(Some(ANCHORS)).await, Ok(true));
    assert_eq!(running.is_written_over(Some(OTHERS)).await, Ok(false), "it has the present ones");
    assert_eq!(running.reported(), Some(false), "for how long?");
    tokio::time::advance(ROUND).await;
    assert_eq!(running.is_written_over(Some(OTHERS)).await, Ok(false));
    assert_eq!(running.reported(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn persistent_undoing_is_reported_steadily_and_one_edit_is_not() {
    let mut running = mk_publishing(StatusCode::OK);
    let mut reports = Vec::new();
    for second in 0..1_020 {
        // The other program takes half a second.
        let written = running.is_written_over(Some(OTHERS)).await.unwrap();
        if written {
            tokio::time::advance(Duration::from_millis(500)).await;
            running.is_written_over(Some(ANCHORS)).await.unwrap();
            tokio::time::advance(Duration::from_millis(500)).await;
        } else {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        if reports.last().is_none_or(|(_, last)| *last != running.reported()) {
            reports.push((second, running.reported()));
        }
    }
    assert_eq!(reports, [(0, Some(true)), (16, Some(false))], "the write of second 15 began a pause of 16 seconds");
    let Report::ConditionValue((_, reason, sentence)) = running.report.borrow().clone() else { panic!() };
    assert_eq!(reason, "NotPublished");
    assert!(sentence.starts_with(&format!("Somebody keeps changing the ClusterTrustBundle {TRUST_BUNDLE}, ")));
    tokio::time::advance(LONGEST).await;
    assert_eq!(running.is_written_over(Some(OTHERS)).await, Ok(true));
    running.is_written_over(Some(ANCHORS)).await.unwrap();
    tokio::time::advance(ROUND).await;
    running.is_written_over(Some(ANCHORS)).await.unwrap();
    assert_eq!(running.reported(), Some(true), "the other program has stopped");
}

#[tokio::test(start_paused = true)]
async fn failed_write_is_reported_and_delayed_unlike_a_conflict() {
    let mut running = mk_publishing(StatusCode::UNPROCESSABLE_ENTITY);
    let error = running.is_written_over(None).await.unwrap_err();
    let sentence = format!("The ClusterTrustBundle {TRUST_BUNDLE} cannot be written: {error}.");
    assert_eq!(*running.report.borrow(), Report::ConditionValue((false, "NotPublished", sentence)));
    assert_eq!(running.is_written_over(None).await, Ok(false));
    tokio::time::advance(SHORTEST).await;
    running.is_written_over(None).await.unwrap_err();
    for _ in 0..40 {
        tokio::time::advance(Duration::from_secs(1)).await;
        let _ = running.is_written_over(None).await; // it waits, or fails again
        let Report::ConditionValue((false, _, sentence)) = running.report.borrow().clone() else { panic!() };
        assert!(sentence.contains("cannot be written"), "nobody has changed it: {sentence}");
    }
    let mut running = mk_publishing(StatusCode::CONFLICT);
    assert_eq!(running.is_written_over(None).await, Ok(true));
    assert_eq!(*running.report.borrow(), Report::AsBefore);
}

#[tokio::test(start_paused = true)]
async fn without_the_lead_nothing_is_written() {
    let mut running = mk_publishing(StatusCode::OK);
    running._leads.lead(1, Instant::now());
    assert_eq!(running.is_written_over(None).await, Ok(false));
}

#[test]
fn bundle_goes_at_once_when_declined_and_late_if_signer_is_gone() {
    let mut wish = Desired::default();
    let now = Instant::now();
    let mut at = |second: u64, signers: &Signers| wish.is_granted(signers, now + Duration::from_secs(second));
    let nobody = mk_signers(&[("b", "Never")]);
    assert_eq!(at(0, &nobody), None, "who wanted it before this hub came is unknown");
    assert_eq!(at(CONFIRMED_AFTER.as_secs() - 1, &nobody), None);
    assert_eq!(at(CONFIRMED_AFTER.as_secs(), &nobody), Some(false));
    assert_eq!(at(1_000, &mk_signers(&[("a", "Auto"), ("b", "Never")])), Some(true));
    assert_eq!(at(1_001, &nobody), None, "the AddOnSigner may come back");
    assert_eq!(at(1_002, &mk_signers(&[("a", "Never"), ("b", "Never")])), Some(false));
    let invalid = Signers { is_whole: false, ..nobody.clone() };
    assert_eq!(at(2_000, &invalid), None, "it may want it");
    assert_eq!(at(2_001, &nobody), None, "it begins anew");
}

#[tokio::test(start_paused = true)]
async fn existing_bundle_is_kept_current_while_wishes_are_unknown() {
    let mut running = mk_publishing(StatusCode::OK);
    running.publisher.inputs.signers = watch::channel(Some(Signers::default())).1;
    assert_eq!(running.is_written_over(None).await, Ok(false));
    assert_eq!(running.is_written_over(Some(OTHERS)).await, Ok(true));
}

/// An API server that has ClusterTrustBundles in these versions, and allows every verb but one.
fn mk_api_server(versions: &'static [&str], denied: &'static str) -> (Client, Arc<Mutex<usize>>) {
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        *counted.lock().unwrap() += 1;
        async move {
            let path = request.uri().path().to_owned();
            let mut sent: Value =
                serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap_or_default();
            let group_version = |version: &&str| json!({ "groupVersion": "", "version": version });
            let all = ["v1", "v1beta1"].each_ref().map(group_version);
            let of_group = json!({ "name": CERTIFICATES_GROUP, "versions": all });
            let resource = json!({ "name": CLUSTER_TRUST_BUNDLES, "namespaced": false, "kind": "", "verbs": [] });
            let is_served = versions.iter().any(|version| path.ends_with(&format!("/{version}")));
            let answer = match &*path {
                "/apis" => json!({ "groups": [of_group] }),
                _ if path.ends_with("reviews") => {
                    sent["status"] = json!({ "allowed": sent["spec"]["resourceAttributes"]["verb"] != denied });
                    sent
                }
                _ => json!({ "groupVersion": "", "resources": if is_served { vec![resource] } else { vec![] } }),
            };
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test]
async fn hub_publishes_in_best_version_only_with_every_right() {
    let publishes = async |versions, denied| may_publish(&mk_api_server(versions, denied).0).await.unwrap();
    assert_eq!(publishes(&["v1beta1", "v1"], "").await, Some("v1"));
    assert_eq!(publishes(&["v1beta1"], "").await, Some("v1beta1"));
    assert_eq!(publishes(&[], "").await, None);
    for verb in ["create", "list", "watch", "update", "delete", "attest"] {
        assert_eq!(publishes(&["v1"], verb).await, None, "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn hub_without_the_right_says_so_once_and_asks_every_minute() {
    // With a second subscriber no other test's thread decides whether lines of this one are written.
    let _second = Dispatch::new(tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish());
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = file.reopen().unwrap();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.try_clone().unwrap()).finish();
    let _guard = tracing::subscriber::set_default(log);
    let Publishing { mut publisher, report, .. } = mk_publishing(StatusCode::OK);
    let (client, asked) = mk_api_server(&["v1"], "create");
    publisher.links.client = client;
    assert!(tokio::time::timeout(ASK_AGAIN * 10, publisher.run()).await.is_err(), "it goes on forever");
    assert_eq!((*asked.lock().unwrap(), report.borrow().clone()), (10 * 3, Report::Nothing));
    let message = std::fs::read_to_string(file.path()).unwrap();
    assert!(message.contains("The hub publishes no ClusterTrustBundle"), "{message}");
    assert!(message.lines().count() == 1, "{message}");
}
