//! Tests the questions about the right against an API server of a few lines, on a clock that the test moves.

use std::sync::{Arc, Mutex};

use hyper::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tokio::sync::watch;

use super::super::plan::Distribution;
use super::super::tests::{key, mk_distributor_of};
use super::super::{DOUBT, Distributor};
use super::*;
use crate::hub::lease::Announcer;

/// What the API server has, and what it was asked.
#[derive(Default)]
struct TrialServer {
    is_served: bool,
    /// How it answers a trial of what the policy forbids.
    trial: Trial,
    /// Whether an AddOnSigner has the condition.
    is_told: bool,
    trials: usize,
    written: usize,
    deleted: usize,
}

#[derive(Default, Clone, Copy)]
enum Trial {
    #[default]
    Refused,
    Taken,
    IsThere,
    Failed,
}

fn status(code: u16, reason: &str, message: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), status)
}

fn try_out(trial: Trial) -> (StatusCode, Value) {
    match trial {
        Trial::Refused => status(422, "Invalid", "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
        Trial::Taken => (StatusCode::CREATED, probe()),
        Trial::IsThere => status(409, "AlreadyExists", "already exists"),
        Trial::Failed => status(403, "Forbidden", "admission webhook denied the request"),
    }
}

fn answer(server: &mut TrialServer, method: &Method, path: &str, query: &str) -> (StatusCode, Value) {
    let list = |kind: &str, items: Value| {
        let metadata = json!({ "resourceVersion": "7" });
        (StatusCode::OK, json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "items": items }))
    };
    let version = json!({ "groupVersion": "work.open-cluster-management.io/v1", "version": "v1" });
    let resource = json!({ "name": "manifestworks", "singularName": "", "namespaced": true, "kind": "ManifestWork",
                           "verbs": [] });
    let told = json!([{ "type": "TrustDistributed", "status": "True" }]);
    match (method, path) {
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
            server.trials += 1;
            try_out(server.trial)
        }
        (&Method::GET, "/apis/addon-signer.io/v1alpha1/addonsigners") => {
            let conditions = if server.is_told { told } else { json!([]) };
            let signer = json!({ "metadata": { "name": "s" }, "status": { "conditions": conditions } });
            list("AddOnSignerList", json!([signer]))
        }
        (&Method::GET, _) => list("ManifestWorkList", json!([])),
        (&Method::DELETE, _) => {
            server.deleted += 1;
            status(404, "NotFound", "not found")
        }
        _ => {
            server.written += 1;
            status(500, "InternalError", "no room")
        }
    }
}

fn mk_client(server: TrialServer) -> (Client, Arc<Mutex<TrialServer>>) {
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

/// A hub with one cluster that runs, until the returned task is dropped.
fn mk_running(server: TrialServer) -> (Running, Arc<Mutex<TrialServer>>) {
    let (client, server) = mk_client(server);
    let (distributor, _known, reported, leads) = mk_distributor_of(client, 1);
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

    /// Whether the policy is in force, as the hub reports.
    fn is_guarded(&self) -> Option<bool> {
        match &*self.reported.borrow() {
            Distribution::Reached { is_guarded, .. } => Some(*is_guarded),
            Distribution::Starting | Distribution::Off => None,
        }
    }
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn only_a_policys_refusal_says_that_the_right_is_narrowed() {
    let asked = async |is_served, trial| {
        let (client, _server) = mk_client(TrialServer { is_served, trial, ..TrialServer::default() });
        ask(&client, "addon-signer").await.ok()
    };
    assert_eq!(asked(false, Trial::Refused).await, Some(Right::Missing));
    assert_eq!(asked(true, Trial::Refused).await, Some(Right::Guarded));
    assert_eq!(asked(true, Trial::Taken).await, Some(Right::Unguarded));
    assert_eq!(asked(true, Trial::IsThere).await, Some(Right::Unguarded));
    assert_eq!(asked(true, Trial::Failed).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_goes_is_noticed_in_ten_minutes_and_one_that_comes_back_in_one() {
    let (hub, server) = mk_running(TrialServer { is_served: true, ..TrialServer::default() });
    hub.pass(SOON).await;
    assert_eq!(hub.is_guarded(), Some(true));
    let written = |server: &Arc<Mutex<TrialServer>>| server.lock().unwrap().written;
    assert!(written(&server) > 0);
    server.lock().unwrap().trial = Trial::Failed;
    hub.pass(RIGHT_AGE).await;
    assert_eq!(hub.is_guarded(), Some(true), "nobody says that it is gone");
    server.lock().unwrap().trial = Trial::Taken;
    hub.pass(2 * UNKNOWN).await;
    assert_eq!(hub.is_guarded(), Some(false));
    let before = written(&server);
    hub.pass(2 * RIGHT_AGE).await;
    assert_eq!((hub.is_guarded(), written(&server)), (Some(false), before), "nothing is written");
    let trials = server.lock().unwrap().trials;
    hub.pass(10 * ASK_AGAIN).await;
    let more = server.lock().unwrap().trials - trials;
    assert!((8..=11).contains(&more), "{more} in ten minutes");
    server.lock().unwrap().trial = Trial::Refused;
    hub.pass(ASK_AGAIN + SOON).await;
    assert_eq!(hub.is_guarded(), Some(true));
    hub.pass(RIGHT_AGE).await;
    assert!(written(&server) > before);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_does_not_know_whether_the_policy_is_in_force_writes_nothing() {
    let (hub, server) = mk_running(TrialServer { is_served: true, trial: Trial::Failed, ..TrialServer::default() });
    hub.pass(SOON).await;
    assert_eq!((hub.is_guarded(), server.lock().unwrap().written), (None, 0));
    server.lock().unwrap().trial = Trial::Refused;
    hub.pass(2 * UNKNOWN).await;
    assert_eq!(hub.is_guarded(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn without_the_policy_what_nobody_wants_goes_all_the_same() {
    let (client, server) = mk_client(TrialServer { is_served: true, trial: Trial::Taken, ..TrialServer::default() });
    let (mut distributor, known, _reported, _leads) = mk_distributor_of(client, 1);
    distributor.right.ask().await.unwrap();
    assert_eq!(distributor.look(), []);
    known.remove_addon(&key(0));
    let work = crate::api::manifest_work::body(&key(0), crate::api::ocm::AddOnApi::V1Alpha1, "u", "agents", "PEM");
    known.put_work(&serde_json::from_value(work).unwrap());
    let steps = distributor.look();
    distributor.perform(steps).await.unwrap();
    let server = server.lock().unwrap();
    assert_eq!((server.written, server.deleted), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_starts_doubts_that_the_right_is_gone_if_a_hub_before_it_had_it() {
    let (hub, _server) = mk_running(TrialServer { is_told: true, ..TrialServer::default() });
    hub.pass(DOUBT - SOON).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Starting);
    hub.pass(ASK_AGAIN + SOON).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Off);
    let (hub, _server) = mk_running(TrialServer::default());
    hub.pass(SOON).await;
    assert_eq!(*hub.reported.borrow(), Distribution::Off, "no hub had it");
}
