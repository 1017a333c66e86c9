//! Tests the supervisor by itself, and against an API server that takes its time, on a clock that the test moves.

use std::convert::Infallible;

use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::api::ocm::AddOnApi;
use crate::api::signer::RegistrationMode;
use crate::hub::requests::dispatcher::{Dispatcher, DispatcherLinks};
use crate::hub::standings::Standings;
use crate::hub::{Hub, HubEnds, HubParts, lease};
use crate::pulse::{HANGS_AFTER, Pulses};
use crate::telemetry::Metrics;
use addon_signer_core::policy::ServingRules;
use addon_signer_core::rate::Rate;
use addon_signer_platform::clock::Clock;

const SIGNERS: usize = 60;
/// How long each answer takes.
const SLOW: Duration = Duration::from_secs(60);

/// A server that allows everything and writes nothing.
fn mk_client() -> Client {
    let service = tower::service_fn(async |request: Request<Body>| {
        tokio::time::sleep(SLOW).await;
        let is_review = request.uri().path().ends_with("selfsubjectaccessreviews");
        let (code, body) = match is_review {
            true => (StatusCode::CREATED, json!({ "metadata": {}, "spec": {}, "status": { "allowed": true } })),
            false => (StatusCode::SERVICE_UNAVAILABLE, json!({ "kind": "Status", "code": 503, "message": "later" })),
        };
        let body = Body::from(body.to_string().into_bytes());
        Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
    });
    Client::new(service, "default")
}

fn mk_supervisor(pulses: &Pulses) -> (Supervisor, lease::Announcer, HubEnds) {
    let (announcer, leading) = lease::channel();
    announcer.lead(1, Instant::now() + Duration::from_secs(1_000_000));
    let parts = HubParts {
        client: mk_client(),
        clock: Clock::default(),
        leading,
        metrics: Metrics::new(|_| {}),
        ledger: "sqlite:///nowhere".parse().unwrap(),
        replica: "hub-a".to_owned(),
        pulses: pulses.clone(),
    };
    let settings = HubSettings {
        namespace: "addon-signer".to_owned(),
        grpc_proxy: None,
        allow_loopback_upstreams: false,
        retention: Duration::from_secs(3600),
        rate: Rate { burst: 1, interval: Duration::from_secs(1) },
        serving: ServingRules {
            account: "hub".to_owned(),
            dns_names: BTreeSet::new(),
            ip_addresses: BTreeSet::new(),
            duration: Duration::from_secs(3600),
        },
    };
    let (Hub { links, .. }, ends) = Hub::wire(parts);
    let (refused, forbidden) = mpsc::channel(1);
    let (signed, foreign) = watch::channel(Default::default());
    let news = DispatcherLinks { standings: Standings::default(), forbidden: refused, foreign: signed };
    let (_, signing) = Dispatcher::new(&links.client, links.clock.clone(), None, news);
    let links_of_supervisor = SupervisorLinks {
        signers: watch::channel(None).0,
        registrations: watch::channel(None).1,
        distributed: watch::channel(Default::default()).1,
        published: watch::channel(status::Report::AsBefore).1,
        signing,
        forbidden,
        foreign,
        objects: crate::hub::authorities::objects::channel().1,
        notes: Notes::default(),
    };
    (Supervisor::new(links, settings, AddOnApi::V1Beta1.into(), links_of_supervisor), announcer, ends)
}

fn mk_object(name: &str) -> AddOnSigner {
    let spec = json!({ "signerName": format!("example.com/{name}"), "addOns": ["telemetry"] });
    AddOnSigner::new(name, serde_json::from_value(spec).unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_of_many_slow_calls_is_a_sign_of_life() {
    let pulses = Pulses::default();
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&pulses);
    supervisor.objects = (0..SIGNERS).map(|n| format!("a{n}")).map(|name| (name.clone(), mk_object(&name))).collect();
    let began = Instant::now();
    let watching = async {
        while !pulses.silent(HANGS_AFTER).contains(&"supervisor".to_owned()) {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    tokio::select! {
        () = supervisor.settle() => {}
        () = watching => panic!("silent after {:?}", began.elapsed()),
    }
    assert!(began.elapsed() > 2 * HANGS_AFTER, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_signer_that_the_ledger_knows_is_gone_only_if_no_object_may_be_it() {
    let (mut supervisor, _announcer, _ends) = mk_supervisor(&Pulses::default());
    let mut specs = ["here", "gone", "left"].map(|name| mk_object(name).spec);
    specs[2].registration = RegistrationMode::External;
    supervisor.recorded = watch::channel(specs.to_vec()).1;
    supervisor.objects = BTreeMap::from([("renamed".to_owned(), mk_object("here"))]);
    // What this hub has seen itself.
    let mut seen = |name: &str| {
        let config = SignerConfig::read(&mk_object(name).spec, None).unwrap();
        supervisor.deleted.insert(config.rules.signer_name.clone(), Arc::new(config));
    };
    seen("here");
    seen("seen");
    let gone = |supervisor: &mut Supervisor| {
        supervisor.tell_signers();
        let signers = supervisor.signers.borrow().clone().unwrap();
        signers.deleted.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(gone(&mut supervisor), ["example.com/gone", "example.com/seen"]);
    supervisor.undecodable.insert("any".to_owned(), String::new());
    assert_eq!(gone(&mut supervisor), ["example.com/seen"]);
}
