//! Tests the writer against an API server that misbehaves on demand, on a clock that the test moves.

use std::collections::BTreeMap;
use std::sync::Mutex;

use hyper::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::json;

use kube::Client;

use super::*;
use crate::lease;
use crate::links::mk_links;
use addon_signer_api::ocm::AddOnApi;
use addon_signer_api::rules::SignerConfig;
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::pulse::Pulses;

mod rivals;

/// What the server does with a write to the addon of a cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    Good,
    /// Another program removes the entry at once.
    Rival,
    /// Another program removes the conditions too.
    RivalOfConditions,
    /// Another program removes the entry after one and a half minutes.
    SlowRival,
    /// Another program reports at once that the addon is left.
    Liar,
    Refuses,
    /// Another client is always faster.
    Conflicts,
    NeverAnswers,
}

/// Addons, one per cluster, and the time of each write.
struct Server {
    manners: Mutex<BTreeMap<String, Manner>>,
    addons: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<(String, u64)>>,
    seen: mpsc::Sender<SeenAddOn>,
    began: Instant,
}

impl Server {
    fn object(cluster: &str, status: &Value) -> DynamicObject {
        Self::object_in(AddOnApi::V1Alpha1, cluster, status)
    }

    fn object_in(api: AddOnApi, cluster: &str, status: &Value) -> DynamicObject {
        let mut object = DynamicObject::new("telemetry", &api.resource()).within(cluster);
        object.data = json!({ "status": status });
        object
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let cluster = path.split('/').skip_while(|part| *part != "namespaces").nth(1).unwrap_or_default().to_owned();
        let api = if path.contains("/v1beta1/") { AddOnApi::V1Beta1 } else { AddOnApi::V1Alpha1 };
        if cluster.is_empty() {
            let addons = self.addons.lock().unwrap();
            let items: Vec<_> = addons.iter().map(|(name, status)| Self::object_in(api, name, status)).collect();
            return respond(StatusCode::OK, &json!({ "metadata": {}, "items": items }));
        }
        if request.method() == Method::PATCH {
            let body = request.into_body().collect_bytes().await.unwrap();
            return self.write(api, &cluster, &serde_json::from_slice(&body).unwrap()).await;
        }
        let status = self.addons.lock().unwrap()[&cluster].clone();
        respond(StatusCode::OK, &json!(Self::object_in(api, &cluster, &status)))
    }

    async fn write(self: Arc<Self>, api: AddOnApi, cluster: &str, change: &Value) -> Response<Body> {
        self.writes.lock().unwrap().push((cluster.to_owned(), self.began.elapsed().as_secs()));
        let manner = self.manners.lock().unwrap()[cluster];
        match manner {
            Manner::NeverAnswers => return std::future::pending().await,
            Manner::Refuses => return refuse(StatusCode::FORBIDDEN, "Forbidden", "it is forbidden"),
            Manner::Conflicts => return refuse(StatusCode::CONFLICT, "Conflict", "the object has been modified"),
            Manner::Good | Manner::Rival | Manner::RivalOfConditions | Manner::SlowRival | Manner::Liar => {}
        }
        let mut status = with(&self.addons.lock().unwrap()[cluster], &change["status"]);
        let answer = respond(StatusCode::OK, &json!(Self::object_in(api, cluster, &status)));
        match manner {
            Manner::Rival => status["registrations"] = json!([]),
            Manner::RivalOfConditions => status = json!({ "registrations": [] }),
            Manner::Liar => status = with(&status, &say_left(&status, true, "")),
            Manner::SlowRival => {
                let (server, cluster, mut status) = (Arc::clone(&self), cluster.to_owned(), status.clone());
                status["registrations"] = json!([]);
                tokio::spawn(async move {
                    pass(90).await;
                    server.set(api, &cluster, status).await;
                });
            }
            _ => {}
        }
        self.set(api, cluster, status).await;
        answer
    }

    /// Gives the addon this status, and shows it to the writer.
    async fn set(&self, api: AddOnApi, cluster: &str, status: Value) {
        self.addons.lock().unwrap().insert(cluster.to_owned(), status.clone());
        self.seen.send(SeenAddOn::There(Box::new(Self::object_in(api, cluster, &status).into()))).await.unwrap();
    }

    fn writes_of(&self, cluster: &str) -> Vec<u64> {
        let writes = self.writes.lock().unwrap();
        writes.iter().filter(|(name, _)| name == cluster).map(|(_, second)| *second).collect()
    }
}

/// The status after a merge patch of whole fields.
fn with(status: &Value, change: &Value) -> Value {
    let mut status = status.as_object().unwrap().clone();
    status.extend(change.as_object().unwrap().clone());
    Value::Object(status)
}

fn respond(code: StatusCode, body: &Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
}

fn refuse(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    respond(code, &json!({ "kind": "Status", "code": code.as_u16(), "reason": reason, "message": message }))
}

/// A running writer.
struct World {
    server: Arc<Server>,
    signers: watch::Sender<Option<Signers>>,
    templates: watch::Sender<Templates>,
    report: watch::Receiver<Option<RegistrationReport>>,
    all_again: Arc<Notify>,
    announcer: lease::Announcer,
    version: AddOnVersion,
    _writer: tokio::task::JoinHandle<()>,
}

/// The signer of the addon, with an organizational unit in the registrations.
fn mk_signers(unit: &str) -> Signers {
    let spec = json!({
        "signerName": "example.com/telemetry", "addOns": ["telemetry"], "identity": { "organizationalUnits": [unit] },
    });
    let mut config = SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap();
    config.generation = 1;
    let served = Arc::new(BTreeMap::from([("telemetry".to_owned(), Arc::new(config))]));
    Signers { served, ..Signers::default() }
}

impl World {
    /// Starts a writer that leads; the server has one addon per cluster.
    fn start(manners: &[(&str, Manner)], status: &Value) -> Self {
        let seen = mpsc::channel(64);
        let server = Arc::new(Server {
            manners: Mutex::new(manners.iter().map(|(name, manner)| ((*name).to_owned(), *manner)).collect()),
            addons: Mutex::new(manners.iter().map(|(name, _)| ((*name).to_owned(), status.clone())).collect()),
            writes: Mutex::default(),
            seen: seen.0.clone(),
            began: Instant::now(),
        });
        let answering = Arc::clone(&server);
        let service = tower::service_fn(move |request| {
            let server = Arc::clone(&answering);
            async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
        });
        let client = Client::new(service, "default");
        let (signers, of_signers) = watch::channel(None);
        let (templates, of_templates) = watch::channel(Templates::Starting);
        let (reporting, report) = watch::channel(None);
        let (announcer, leading) = lease::channel();
        announcer.lead(1, Instant::now() + Duration::from_secs(1_000_000));
        let all_again = Arc::new(Notify::new());
        let inputs = RegistrationInputs {
            seen,
            all_again: Arc::clone(&all_again),
            signers: of_signers,
            templates: of_templates,
            certifications: Default::default(),
            report: reporting,
        };
        let version = AddOnVersion::from(AddOnApi::V1Alpha1);
        let writer = RegistrationWriter::new(&mk_links(client, leading), version.clone(), inputs);
        let pulse = Pulses::default().start("registrations");
        let writer = tokio::spawn(async move { writer.keep(pulse).await.unwrap() });
        Self { server, signers, templates, report, all_again, announcer, version, _writer: writer }
    }

    fn know(&self) {
        self.signers.send_replace(Some(mk_signers("unit")));
        self.templates.send_replace(Templates::Read(Arc::default()));
    }

    fn status(&self) -> Value {
        self.server.addons.lock().unwrap()["c1"].clone()
    }

    fn left(&self) -> usize {
        self.report.borrow().as_ref().map_or(0, |report| report.left.len())
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_signers_and_templates_are_known() {
    let world = World::start(&[("c1", Manner::Good)], &json!({}));
    let seen = Server::object("c1", &json!({}));
    world.server.seen.send(SeenAddOn::There(Box::new(seen.clone().into()))).await.unwrap();
    pass(60).await;
    world.signers.send_replace(Some(mk_signers("unit")));
    pass(60).await;
    world.templates.send_replace(Templates::Unread("it is forbidden".to_owned()));
    world.server.seen.send(SeenAddOn::There(Box::new(seen.into()))).await.unwrap();
    pass(60).await;
    assert!(world.server.writes.lock().unwrap().is_empty());
    assert!(matches!(world.report.borrow().as_ref().unwrap().templates, Templates::Unread(_)), "and it says why");
    world.templates.send_replace(Templates::Read(Arc::default()));
    pass(60).await;
    assert_eq!(world.server.writes_of("c1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hub_unsure_whether_it_leads_writes_nothing() {
    let world = World::start(&[("c1", Manner::Good)], &json!({}));
    world.announcer.lead(1, Instant::now());
    world.know();
    pass(1).await;
    world.server.seen.send(SeenAddOn::There(Box::new(Server::object("c1", &json!({})).into()))).await.unwrap();
    pass(120).await;
    assert!(world.server.writes.lock().unwrap().is_empty());
    world.announcer.lead(1, Instant::now() + Duration::from_secs(1_000_000));
    pass(20).await;
    assert_eq!(world.server.writes_of("c1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_backs_off_is_reported_and_holds_up_nobody() {
    let manners = [("c1", Manner::Refuses), ("c2", Manner::Good), ("c3", Manner::Conflicts)];
    let world = World::start(&manners, &json!({}));
    world.know();
    pass(60).await;
    assert_eq!(world.server.writes_of("c2").len(), 1);
    for cluster in ["c1", "c3"] {
        let writes = world.server.writes_of(cluster);
        assert!((5..=10).contains(&writes.len()), "{writes:?}");
    }
    let failing = world.report.borrow().as_ref().unwrap().failing.clone();
    let c1 = ocm::addon_key(&Server::object("c1", &json!({}))).unwrap();
    assert_eq!(*failing, BTreeMap::from([(c1, "it is forbidden".to_owned())]), "a conflict is no failure");
    pass(3600).await;
    assert!(world.server.writes_of("c1").len() < 75);
    assert_eq!(world.left(), 0, "nobody takes it away");
}

#[tokio::test(start_paused = true)]
async fn events_do_not_make_a_refused_write_come_earlier() {
    let world = World::start(&[("c1", Manner::Refuses)], &json!({}));
    world.know();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.server.seen.send(SeenAddOn::There(Box::new(Server::object("c1", &json!({})).into()))).await.unwrap();
    }
    assert!(world.server.writes_of("c1").len() <= 10, "{:?}", world.server.writes_of("c1"));
}

#[tokio::test(start_paused = true)]
async fn addons_whose_writes_hang_hold_up_no_other() {
    let names: Vec<String> = (0..SIDE_BY_SIDE - 1).map(|n| format!("a{n}")).collect();
    let hanging = names.iter().map(|name| (name.as_str(), Manner::NeverAnswers));
    let manners: Vec<_> = hanging.chain([("z", Manner::Good)]).collect();
    let world = World::start(&manners, &json!({}));
    world.know();
    pass(1).await;
    assert_eq!(world.server.writes_of("z").len(), 1);
    pass(60).await;
    assert!(world.server.writes_of("a0").len() > 1, "what hangs is given up and tried again");
}

#[tokio::test(start_paused = true)]
async fn addon_seen_in_another_version_is_reread_before_it_is_judged() {
    let registered = |api| {
        let (addon, now) = (Server::object("c1", &json!({})), Clock::default().now());
        wanted_status(&addon, api, &mk_signers("unit"), &TemplatedAddOns::default(), now).unwrap()
    };
    let world = World::start(&[("c1", Manner::Good)], &registered(AddOnApi::V1Beta1));
    world.version.set(AddOnApi::V1Beta1);
    world.know();
    pass(20).await;
    let see_the_old = async || {
        let old = Server::object("c1", &registered(AddOnApi::V1Alpha1));
        world.server.seen.send(SeenAddOn::There(Box::new(old.into()))).await.unwrap();
        pass(5).await;
        world.server.writes_of("c1").len()
    };
    assert_eq!(see_the_old().await, 0, "it has its entry");
    world.server.addons.lock().unwrap().insert("c1".to_owned(), json!({}));
    assert_eq!(see_the_old().await, 1, "it has lost its entry");
    let status = world.server.addons.lock().unwrap()["c1"].clone();
    assert_eq!(status["registrations"], registered(AddOnApi::V1Beta1)["registrations"]);
}
