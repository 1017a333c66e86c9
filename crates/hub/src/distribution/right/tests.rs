//! Tests how the hub checks its right, against an API server of a few lines, on a clock that the test moves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tokio::sync::watch;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;

use super::super::steps::Distribution;
use super::super::tests::{key, mk_distributor_of};
use super::super::{CONFIRMED_AFTER, Distributor};
use super::*;
use crate::dry_run::{ASK_AGAIN, BELIEVED, RIGHT_AGE, UNKNOWN};
use crate::lease::Announcer;

/// The API server's state, and the requests that it got.
#[derive(Default)]
struct DryRunServer {
    is_served: bool,
    dry_run: DryRun,
    /// Whether an AddOnSigner has the condition.
    is_reported: bool,
    /// Whether it does not answer.
    is_down: bool,
    /// Whether it refuses every write, as with an exhausted quota.
    is_full: bool,
    dry_runs: usize,
    written: usize,
    deleted: usize,
}

/// Its response to a dry run of what the policy forbids.
#[derive(Clone, Copy)]
enum DryRun {
    Taken,
    Refused(u16, &'static str),
}

impl Default for DryRun {
    fn default() -> Self {
        BY_THE_POLICY
    }
}

const BY_THE_POLICY: DryRun = DryRun::Refused(
    422,
    "manifestworks.work.open-cluster-management.io \"addon-signer-probe\" is forbidden: ValidatingAdmissionPolicy \
     'addon-signer-manifest-works' with binding 'addon-signer-manifest-works' denied request: no",
);
const IS_THERE: DryRun = DryRun::Refused(409, "already exists");
const BY_A_WEBHOOK: DryRun =
    DryRun::Refused(400, "admission webhook \"owners.example.com\" denied the request: no owner");
const LATER: DryRun = DryRun::Refused(503, "no room");

fn status(code: u16, message: &str) -> (StatusCode, Value) {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "AlreadyExists",
        422 => "Invalid",
        _ => "",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), status)
}

fn answer(server: &mut DryRunServer, method: &Method, path: &str, query: &str) -> (StatusCode, Value) {
    let list = |kind: &str, items: Value| {
        let metadata = json!({ "resourceVersion": "7" });
        (StatusCode::OK, json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "items": items }))
    };
    let version = json!({ "groupVersion": "work.open-cluster-management.io/v1", "version": "v1" });
    let resource = json!({ "name": "manifestworks", "singularName": "", "namespaced": true, "kind": "ManifestWork",
                           "verbs": [] });
    let report = json!([{ "type": "TrustDistributed", "status": "True" }]);
    match (method, path) {
        _ if server.is_down => status(503, "no room"),
        (&Method::GET, "/apis") => {
            let group = json!({ "name": WORK_GROUP, "versions": [version], "preferredVersion": version });
            let groups = if server.is_served { json!([group]) } else { json!([]) };
            (StatusCode::OK, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        (&Method::GET, "/apis/work.open-cluster-management.io/v1") => {
            let group = "work.open-cluster-management.io/v1";
            (StatusCode::OK, json!({ "kind": "APIResourceList", "groupVersion": group, "resources": [resource] }))
        }
        (&Method::POST, path) if path.ends_with("selfsubjectaccessreviews") => {
            (StatusCode::CREATED, json!({ "metadata": {}, "spec": {}, "status": { "allowed": true } }))
        }
        (&Method::POST, "/apis/work.open-cluster-management.io/v1/namespaces/addon-signer/manifestworks") => {
            assert!(query.contains("dryRun=All"), "{query}");
            server.dry_runs += 1;
            match server.dry_run {
                DryRun::Taken => (StatusCode::CREATED, probe()),
                DryRun::Refused(code, message) => status(code, message),
            }
        }
        (&Method::GET, "/apis/addon-signer.io/v1alpha1/addonsigners") => {
            let conditions = if server.is_reported { report } else { json!([]) };
            let signer = json!({ "metadata": { "name": "s" }, "status": { "conditions": conditions } });
            list("AddOnSignerList", json!([signer]))
        }
        (&Method::GET, _) => list("ManifestWorkList", json!([])),
        (&Method::DELETE, _) => {
            server.deleted += 1;
            status(404, "not found")
        }
        _ => {
            server.written += 1;
            if server.is_full { status(403, "exceeded quota") } else { status(500, "no room") }
        }
    }
}

fn mk_client(server: DryRunServer) -> (Client, Arc<Mutex<DryRunServer>>) {
    let server = Arc::new(Mutex::new(server));
    let asked = Arc::clone(&server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = Arc::clone(&asked);
        async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            if uri.query().is_some_and(|query| query.contains("watch=true")) {
                std::future::pending::<()>().await;
            }
            let (code, body) = {
                let mut server = asked.lock().unwrap();
                answer(&mut server, &method, uri.path(), uri.query().unwrap_or_default())
            };
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = code;
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    (Client::new(service, "default"), server)
}

/// A hub with one cluster, which runs until the returned task is dropped.
fn mk_running(server: DryRunServer) -> (Running, Arc<Mutex<DryRunServer>>) {
    mk_running_with(server, 1)
}

fn mk_running_with(server: DryRunServer, clusters: usize) -> (Running, Arc<Mutex<DryRunServer>>) {
    let (client, server) = mk_client(server);
    let (distributor, _known, reported, leads) = mk_distributor_of(client, clusters);
    (Running { task: tokio::spawn(Distributor::run(distributor)), reported, _leads: leads }, server)
}

struct Running {
    task: tokio::task::JoinHandle<()>,
    reported: watch::Receiver<Distribution>,
    _leads: Announcer,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Lets time pass.
    async fn pass(&self, time: Duration) {
        tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
    }

    /// Whether the policy is in force, by the hub's report.
    fn is_guarded(&self) -> Option<bool> {
        match &*self.reported.borrow() {
            Distribution::Reached { unguarded, .. } => Some(unguarded.is_none()),
            Distribution::Starting | Distribution::Off => None,
        }
    }

    /// The condition that reports why nothing is written.
    fn report(&self) -> (&'static str, String) {
        let reported = self.reported.borrow();
        let Distribution::Reached { unguarded: Some(why), .. } = &*reported else { panic!("{reported:?}") };
        let (holds, reason, sentence) = why.condition();
        assert!(!holds);
        (reason, sentence)
    }
}

const SOON: Duration = Duration::from_secs(5);

fn unknown(end: &str) -> Right {
    Right::Unguarded(PolicyProblem::Unknown(end.into()))
}

#[tokio::test]
async fn only_the_policys_own_refusal_says_that_the_right_is_narrowed() {
    let asked = async |is_served, dry_run| {
        let (client, _server) = mk_client(DryRunServer { is_served, dry_run, ..DryRunServer::default() });
        ask(&client, "addon-signer").await.ok()
    };
    assert_eq!(asked(false, BY_THE_POLICY).await, Some(Right::Missing));
    assert_eq!(asked(true, BY_THE_POLICY).await, Some(Right::Guarded));
    assert_eq!(asked(true, DryRun::Taken).await, Some(Right::Unguarded(PolicyProblem::Missing)));
    assert_eq!(asked(true, IS_THERE).await, Some(Right::Unguarded(PolicyProblem::Missing)));
    let renamed = [
        "ValidatingAdmissionPolicy 'prod-addon-signer-manifest-works' with binding 'prod-b' denied request: no",
        "ValidatingAdmissionPolicy 'addon-signer-manifest-works-2' with binding 'b-2' denied request: no",
    ];
    for message in renamed {
        assert_eq!(asked(true, DryRun::Refused(422, message)).await, Some(Right::Guarded), "{message}");
    }
    let by_others = [
        "ValidatingAdmissionPolicy 'owners' with binding 'b' denied request: no owner",
        "ValidatingAdmissionPolicy 'owners' with binding 'addon-signer-manifest-works' denied request: no owner",
        "ValidatingAdmissionPolicy 'owners' with binding 'b' denied request: unlike \
         ValidatingAdmissionPolicy 'addon-signer-manifest-works' with binding 'b'",
        "ValidatingAdmissionPolicy 'addon-signer-manifest-works' denied request: failed to configure policy: no",
        "admission webhook \"addon-signer-manifest-works\" denied the request: no owner",
    ];
    for message in by_others {
        for code in [400, 403, 422] {
            assert_eq!(asked(true, DryRun::Refused(code, message)).await, Some(unknown(message)), "{message}");
        }
    }
    for code in [429, 500, 503] {
        assert_eq!(asked(true, DryRun::Refused(code, "no room")).await, None, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_policy_is_noticed_in_ten_minutes_and_its_return_in_one() {
    let (hub, server) = mk_running(DryRunServer { is_served: true, ..DryRunServer::default() });
    hub.pass(SOON).await;
    assert_eq!(hub.is_guarded(), Some(true));
    let written = |server: &Arc<Mutex<DryRunServer>>| server.lock().unwrap().written;
    assert!(written(&server) > 0);
    server.lock().unwrap().dry_run = LATER;
    hub.pass(RIGHT_AGE).await;
    assert_eq!(hub.is_guarded(), Some(true), "nobody says that it is gone");
    server.lock().unwrap().dry_run = DryRun::Taken;
    hub.pass(2 * UNKNOWN).await;
    assert_eq!((hub.is_guarded(), hub.report().0), (Some(false), "PolicyMissing"));
    let before = written(&server);
    hub.pass(2 * RIGHT_AGE).await;
    assert_eq!((hub.is_guarded(), written(&server)), (Some(false), before), "nothing is written");
    let dry_runs = server.lock().unwrap().dry_runs;
    hub.pass(10 * ASK_AGAIN).await;
    let more = server.lock().unwrap().dry_runs - dry_runs;
    assert!((8..=11).contains(&more), "{more} in ten minutes");
    server.lock().unwrap().dry_run = BY_THE_POLICY;
    hub.pass(ASK_AGAIN + SOON).await;
    assert_eq!(hub.is_guarded(), Some(true));
    hub.pass(RIGHT_AGE).await;
    assert!(written(&server) > before);
}

/// Captures the log of this thread into the file.
fn capture(file: &tempfile::NamedTempFile) -> (Dispatch, tracing::subscriber::DefaultGuard) {
    // With a second subscriber no other test's thread decides whether lines of this one are written.
    let second = Dispatch::new(tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish());
    let lines = file.reopen().unwrap();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.try_clone().unwrap()).finish();
    (second, tracing::subscriber::set_default(log))
}

#[tokio::test(start_paused = true)]
async fn foreign_refusal_of_dry_run_is_logged_once_and_stops_writes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let _capturing = capture(&file);
    let (hub, server) = mk_running(DryRunServer { is_served: true, dry_run: BY_A_WEBHOOK, ..DryRunServer::default() });
    hub.pass(RIGHT_AGE).await;
    let expected = "The hub creates and changes no ManifestWork, because it cannot tell whether the \
                    ValidatingAdmissionPolicy addon-signer-manifest-works is in force. Its dry run of a \
                    ManifestWork addon-signer-probe that this policy must refuse ended with: admission webhook \
                    \"owners.example.com\" denied the request: no owner. First check that the chart has \
                    trust.manifestWorks. If it has, and another ValidatingAdmissionPolicy or something that changes \
                    new objects refuses the dry run, exempt the hub's account, or that name, from it.";
    assert_eq!((hub.report(), server.lock().unwrap().written), (("PolicyUnknown", expected.to_owned()), 0));
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(text.matches("no owner").count(), 1, "{text}");
    server.lock().unwrap().dry_run = BY_THE_POLICY;
    hub.pass(ASK_AGAIN + SOON).await;
    assert_eq!(hub.is_guarded(), Some(true));
    // A webhook refuses for a moment; the policy is still absent.
    server.lock().unwrap().dry_run = BY_A_WEBHOOK;
    hub.pass(BELIEVED - 2 * ASK_AGAIN).await;
    assert_eq!(hub.is_guarded(), Some(true));
    hub.pass(3 * ASK_AGAIN).await;
    assert_eq!(hub.report().0, "PolicyUnknown");
}

#[tokio::test(start_paused = true)]
async fn a_right_that_nobody_confirms_is_believed_for_twenty_minutes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let _capturing = capture(&file);
    let (hub, server) = mk_running(DryRunServer { is_served: true, ..DryRunServer::default() });
    hub.pass(SOON).await;
    server.lock().unwrap().dry_run = LATER;
    hub.pass(BELIEVED - 2 * SOON).await;
    assert_eq!(hub.is_guarded(), Some(true));
    let unanswered = |text: &str| text.matches("Could not check whether").count();
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!((8..=11).contains(&unanswered(&text)), "each minute of the last ten: {text}");
    hub.pass(2 * UNKNOWN).await;
    let (reason, sentence) = hub.report();
    assert!(sentence.contains("ended with: no answer for 20 minutes; the last error: no room. First"), "{sentence}");
    let before = server.lock().unwrap().written;
    hub.pass(RIGHT_AGE).await;
    assert_eq!((reason, server.lock().unwrap().written), ("PolicyUnknown", before), "nothing is written");
    server.lock().unwrap().dry_run = BY_THE_POLICY;
    hub.pass(2 * UNKNOWN).await;
    assert_eq!(hub.is_guarded(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn refused_writes_recheck_right_at_most_every_15_seconds() {
    let server = DryRunServer { is_served: true, is_full: true, ..DryRunServer::default() };
    let (hub, server) = mk_running_with(server, 400);
    hub.pass(4 * UNKNOWN).await;
    let DryRunServer { dry_runs, written, .. } = *server.lock().unwrap();
    assert!((2..=5).contains(&dry_runs), "{dry_runs} questions, {written} refused writes");
    assert!(written > 400, "{dry_runs} questions, {written} refused writes");
    server.lock().unwrap().dry_run = BY_A_WEBHOOK;
    hub.pass(4 * UNKNOWN).await;
    let more = server.lock().unwrap().dry_runs - dry_runs;
    assert!((2..=5).contains(&more), "{more} questions that have no answer");
    server.lock().unwrap().dry_run = DryRun::Taken;
    hub.pass(2 * UNKNOWN).await;
    assert_eq!(hub.is_guarded(), Some(false), "the policy went meanwhile");
}

/// An outdated response must not let a rotation pass.
#[tokio::test(start_paused = true)]
async fn that_there_is_no_right_is_believed_for_twenty_minutes() {
    let (hub, server) = mk_running(DryRunServer { is_reported: true, ..DryRunServer::default() });
    hub.pass(CONFIRMED_AFTER + ASK_AGAIN).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Off);
    server.lock().unwrap().is_down = true;
    hub.pass(BELIEVED - 2 * ASK_AGAIN).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Off);
    hub.pass(2 * ASK_AGAIN).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Starting);
    server.lock().unwrap().is_down = false;
    hub.pass(CONFIRMED_AFTER - SOON).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Starting, "it doubts anew");
    hub.pass(ASK_AGAIN + SOON).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Off);
}

#[tokio::test(start_paused = true)]
async fn hub_unsure_whether_policy_is_in_force_writes_nothing() {
    let (hub, server) = mk_running(DryRunServer { is_served: true, dry_run: LATER, ..DryRunServer::default() });
    hub.pass(SOON).await;
    assert_eq!((hub.is_guarded(), server.lock().unwrap().written), (None, 0));
    hub.pass(BELIEVED + ASK_AGAIN).await;
    let (reason, sentence) = hub.report();
    assert!(reason == "PolicyUnknown", "{sentence}");
    assert!(sentence.contains("the last error: no room."), "{sentence}");
    assert_eq!(server.lock().unwrap().written, 0);
    server.lock().unwrap().dry_run = BY_THE_POLICY;
    hub.pass(2 * UNKNOWN).await;
    assert_eq!(hub.is_guarded(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn without_the_policy_what_nobody_wants_goes_all_the_same() {
    let (client, server) =
        mk_client(DryRunServer { is_served: true, dry_run: DryRun::Taken, ..DryRunServer::default() });
    let (mut distributor, known, _reported, _leads) = mk_distributor_of(client, 1);
    distributor.right.ask().await.unwrap();
    assert_eq!(distributor.look(), []);
    known.remove_addon(&key(0));
    let work =
        addon_signer_api::manifest_work::body(&key(0), addon_signer_api::ocm::AddOnApi::V1Alpha1, "u", "agents", "PEM");
    known.put_work(&serde_json::from_value(work).unwrap());
    let steps = distributor.look();
    distributor.perform(steps).await.unwrap();
    let server = server.lock().unwrap();
    assert_eq!((server.written, server.deleted), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn starting_hub_doubts_loss_of_right_its_predecessor_had() {
    let (hub, _server) = mk_running(DryRunServer { is_reported: true, ..DryRunServer::default() });
    hub.pass(CONFIRMED_AFTER - SOON).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Starting);
    hub.pass(ASK_AGAIN + SOON).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Off);
    let (hub, _server) = mk_running(DryRunServer::default());
    hub.pass(SOON).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Off, "no hub had it");
}
