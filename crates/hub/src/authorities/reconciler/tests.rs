//! Tests how often a reconciler asks an API server that fails, on a clock that the test moves.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::*;
use crate::HubLinks;
use crate::authorities::store::{AuthorityStore, LineageNames};
use crate::authorities::supply::SupplyPlan;
use crate::authorities::supply::Trusted;
use crate::authorities::trust_publisher::TrustPublisher;
use crate::authorities::versions;
use crate::lease;
use crate::links::mk_links;
use addon_signer_api::authority::AuthoritySource;
use addon_signer_api::rules::AuthorityPlan;
use addon_signer_core::ca::bundle::Purpose;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_ledger::{LedgerWriter, WriterOptions};
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::pulse::Pulses;

const DAY: Duration = Duration::from_secs(86_400);
const ALWAYS: u32 = u32::MAX;

/// A server with one Secret and no ConfigMap. It sends the moment of each request for the Secret, and answers only the
/// request of this number, counted from 1, or all.
fn mk_client(good: u32) -> (Client, mpsc::UnboundedReceiver<Instant>) {
    let (asked, moments) = mpsc::unbounded_channel();
    let state = Arc::new(Mutex::new((None::<Value>, 0)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (asked, state) = (asked.clone(), Arc::clone(&state));
        async move {
            let is_secret = request.uri().path().contains("/secrets");
            let is_get = request.method() == Method::GET;
            let body = request.into_body().collect_bytes().await.unwrap();
            let (secret, questions) = &mut *state.lock().unwrap();
            let status = |code: u16, reason: &str| (code, json!({ "kind": "Status", "code": code, "reason": reason }));
            let (code, object) = match (is_get, is_secret) {
                (false, _) => {
                    let mut made: Value = serde_json::from_slice(&body).unwrap();
                    made["metadata"]["resourceVersion"] = json!("1");
                    if is_secret {
                        *secret = Some(made.clone());
                    }
                    (201, made)
                }
                (true, false) => status(404, "NotFound"),
                (true, true) => {
                    asked.send(Instant::now()).unwrap();
                    *questions += 1;
                    secret
                        .clone()
                        .filter(|_| [*questions, ALWAYS].contains(&good))
                        .map_or_else(|| status(500, "InternalError"), |secret| (200, secret))
                }
            };
            let body = Body::from(object.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (Client::new(service, "default"), moments)
}

fn mk_plan() -> LineagePlan {
    let authority =
        AuthorityPlan { key: KeyKind::EcdsaP256, duration: 365 * DAY, renew_before: 30 * DAY, deferral: DAY };
    let supply = SupplyPlan {
        source: AuthoritySource::SelfSigned,
        trusted: Trusted::Authority,
        longest: DAY,
        purpose: Purpose::Client,
        dns_names: Vec::new(),
        addresses: Vec::new(),
    };
    LineagePlan { authority, supply, asked: RequestedSteps::default(), remembered: false, may_create: true }
}

/// A reconciler that has just made its lineage, and its inputs, which must live as long. Its ledger never answers.
async fn mk_reconciler(client: Client, lineage_plan: LineagePlan) -> (LineageReconciler, impl Sized) {
    let clock = Clock::default();
    let (announcer, leading) = lease::channel();
    announcer.lead(1, Instant::now() + DAY);
    let location = "sqlite:///nowhere".parse().unwrap();
    let replica = "hub-a".to_owned();
    let (writer, ledger) =
        LedgerWriter::new(WriterOptions { location, replica, clock: clock.clone(), metrics: Default::default() });
    let (versions, objects) = versions::channel();
    let (planned, plan) = watch::channel(lineage_plan);
    let (effects, in_effect) = watch::channel(Default::default());
    let (reserve, reservations) = mpsc::channel(1);
    let links = ReconcilerLinks {
        hub: HubLinks { ledger, ..mk_links(client.clone(), leading) },
        store: AuthorityStore::new(&client, "addon-signer"),
        trust_publisher: TrustPublisher::new(watch::Sender::new(Arc::default()), SharedRegistry::default()),
        objects,
    };
    let lineage = ReconcilerLineage {
        names: LineageNames::client("telemetry", "example.com/telemetry"),
        plan,
        activation: ActivationCheck::of_gateways(in_effect),
        state: watch::Sender::new(LineageState::Starting),
        reservations,
        pulse: Pulses::default().start("authorities"),
    };
    let mut reconciler = LineageReconciler::new(links, lineage);
    reconciler.begin(&mk_plan(), None, clock.now()).await.unwrap();
    (reconciler, (announcer, writer, versions, planned, effects, reserve))
}

/// Keeps an existing lineage while the ledger does not answer; returns the seconds between its requests.
async fn pauses_of(count: usize, good: u32) -> Vec<u64> {
    let (client, mut moments) = mk_client(good);
    let (mut reconciler, _links) = mk_reconciler(client, mk_plan()).await;
    reconciler.forget_steps(); // as if an earlier process had made it
    let running = tokio::spawn(reconciler.run());
    let mut asked = Vec::new();
    while asked.len() <= count {
        asked.push(moments.recv().await.unwrap());
    }
    running.abort();
    asked.windows(2).map(|pair| (pair[1] - pair[0] + Duration::from_millis(500)).as_secs()).collect() // rounded
}

#[tokio::test(start_paused = true)]
async fn failing_api_server_is_asked_less_often_until_it_succeeds() {
    const NEVER: u32 = 0;
    assert_eq!(pauses_of(6, NEVER).await, [2, 4, 8, 15, 15, 15]);
    // After the sixth request, which is answered, the reconciler waits a second for the ledger, and then as long as for
    // a ledger that has not compared the lineage.
    assert_eq!(pauses_of(8, 6).await, [2, 4, 8, 15, 15, 3, 2, 4]);
}

#[tokio::test(start_paused = true)]
async fn new_line_has_no_effect_before_it_is_recorded() {
    let (client, _moments) = mk_client(ALWAYS);
    let (reconciler, _links) = mk_reconciler(client, mk_plan()).await;
    let mut state = reconciler.states();
    let running = tokio::spawn(reconciler.run());
    assert!(tokio::time::timeout(10 * ROUND, state.wait_for(|state| state.ready().is_some())).await.is_err());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_line_takes_no_step_before_it_is_compared_with_the_ledger() {
    let (client, _moments) = mk_client(ALWAYS);
    let plan = LineagePlan {
        asked: RequestedSteps { rotate: Some("r1".to_owned()), ..RequestedSteps::default() },
        ..mk_plan()
    };
    let (mut reconciler, _links) = mk_reconciler(client, plan).await;
    reconciler.forget_steps(); // as if an earlier process had made it
    let mut state = reconciler.states();
    let running = tokio::spawn(reconciler.run());
    let ready = state.wait_for(|state| state.ready().is_some()).await.unwrap().ready().cloned().unwrap();
    assert_eq!(ready.lineage().members().len(), 1, "a Next was made");
    assert_eq!(ready.waiting, Some(WaitsFor::Ledger));
    running.abort();
}
