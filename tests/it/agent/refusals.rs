//! The agent names every failure and keeps what was good.

use std::time::Duration;

use addon_signer_agent::enrol::EnrolError;
use addon_signer_agent::gateway::GatewayError;
use addon_signer_agent::store::{Store, StoreError};
use addon_signer_agent::{AgentError, Outcome};
use addon_signer_platform::clock::Clock;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::parts::{AgentWorld, Mood, NAMESPACE, SOON};
use test_kit::objects::create_namespace;
use test_kit::quick::pass;
use test_kit::request::mk_csr;
use test_kit::wait_until;

/// An address where nobody listens.
const NOWHERE: &str = "https://127.0.0.1:1";

#[tokio::test]
async fn denial_is_reported_and_retried() {
    let world = AgentWorld::start().await;
    world.mood(Mood::Deny);
    let mut agent = world.agent(world.secret_store());
    let error = agent.once().await.unwrap_err().to_string();
    assert!(error.starts_with("the hub denied the CSR addon-cluster1-telemetry-"), "{error}");
    assert!(error.ends_with(": AddOnNotFound: The addon telemetry is not installed."), "{error}");
    let running = tokio::spawn(agent.run());
    wait_until(SOON, "a second request", async || (world.requests().await.len() >= 2).then_some(())).await;
    world.mood(Mood::Issue);
    let store = world.secret_store();
    wait_until(SOON, "the Secret", async || store.load().await.unwrap()).await;
    running.abort();
}

#[tokio::test]
async fn old_pair_stays_and_one_request_waits_for_approval() {
    let world = AgentWorld::start().await;
    let store = world.secret_store();
    world.agent(world.secret_store()).once().await.unwrap();
    let first = store.load().await.unwrap();
    world.mood(Mood::Ignore);
    world.make_due();
    let mut agent = world.hasty_agent();
    let error = agent.once().await.unwrap_err();
    assert!(matches!(error, AgentError::Enrol(EnrolError::Pending(_))), "{error}");
    let running = tokio::spawn(agent.run());
    pass(Duration::from_secs(4)).await;
    assert_eq!(world.requests().await.len(), 2, "the pending request is taken up, not repeated");
    assert_eq!(store.load().await.unwrap(), first);
    world.mood(Mood::Issue);
    wait_until(SOON, "the new pair", async || (store.load().await.unwrap() != first).then_some(())).await;
    assert_eq!(world.requests().await.len(), 2);
    running.abort();
}

#[tokio::test]
async fn new_pair_that_the_gateway_refuses_is_held_back() {
    let world = AgentWorld::start().await;
    let store = world.secret_store();
    let mut agent = world.agent(world.secret_store());
    agent.once().await.unwrap();
    let first = store.load().await.unwrap();
    world.make_due();
    world.gateway.answers.lock().unwrap().refuse = true;
    for _ in 0..3 {
        let error = agent.once().await.unwrap_err();
        assert!(matches!(error, AgentError::NotProven(GatewayError::Refused(..))), "{error}");
        assert!(error.to_string().contains("the cluster is not accepted"), "{error}");
    }
    assert_eq!(store.load().await.unwrap(), first);
    world.gateway.answers.lock().unwrap().refuse = false;
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
    assert_ne!(store.load().await.unwrap(), first);
    assert_eq!(world.requests().await.len(), 2, "what was held back is used");
}

#[tokio::test]
async fn without_an_old_pair_an_unproven_one_is_stored() {
    let world = AgentWorld::start().await;
    let mut agent = world.agent_at(world.secret_store(), NOWHERE);
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
    world.make_due();
    let error = agent.once().await.unwrap_err();
    assert!(matches!(error, AgentError::NotProven(GatewayError::NotAsked(..))), "{error}");
    assert!(error.to_string().contains("refused"), "names the cause: {error}");
}

const CLOCK: &str = "; check this machine's clock";

#[tokio::test]
async fn agent_whose_clock_is_days_ahead_is_told_so() {
    let world = AgentWorld::start().await;
    let clock = Clock::default();
    clock.advance(Duration::from_secs(3 * 86_400));
    let mut agent = world.agent_with_clock(clock.clone());
    for _ in 0..3 {
        let error = agent.once().await.unwrap_err();
        assert!(matches!(error, AgentError::Enrol(EnrolError::WrongClock { .. })), "{error}");
        let says = format!(", but this machine's clock says {}", clock.now().to_string().split('T').next().unwrap());
        assert!(error.to_string().contains(" expired at ") && error.to_string().contains(&says), "{error}");
    }
    assert_eq!(world.requests().await.len(), 1, "another certificate would not help");
    clock.set_back(Duration::from_secs(6 * 86_400));
    for _ in 0..3 {
        let error = agent.once().await.unwrap_err();
        assert!(error.to_string().contains(" is not valid before "), "{error}");
    }
    assert_eq!(world.requests().await.len(), 2, "the clock was set, so one more may help");
    clock.advance(Duration::from_secs(3 * 86_400));
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
    assert_eq!(world.requests().await.len(), 2, "what came is used");
}

#[tokio::test]
async fn gateway_with_an_expired_certificate_hints_at_the_clock() {
    let world = AgentWorld::start().await;
    let past = Clock::default();
    past.set_back(Duration::from_secs(270 * 86_400));
    world.publish(&world.replace_serving_at(&past));
    let mut agent = world.agent(world.secret_store());
    agent.once().await.unwrap();
    world.make_due();
    let error = agent.once().await.unwrap_err();
    assert!(matches!(error, AgentError::NotProven(GatewayError::NotAsked(..))), "{error}");
    assert!(error.to_string().ends_with(CLOCK), "{error}");
}

#[tokio::test]
async fn certificate_without_anchors_is_not_stored() {
    let world = AgentWorld::start().await;
    world.mood(Mood::WithoutTrust);
    let store = world.secret_store();
    let error = world.agent(world.secret_store()).once().await.unwrap_err();
    assert!(matches!(error, AgentError::Enrol(EnrolError::NoTrust(_))), "{error}");
    assert_eq!(store.load().await.unwrap(), None);
}

#[tokio::test]
async fn request_that_is_deleted_is_made_again() {
    let world = AgentWorld::start().await;
    world.mood(Mood::Ignore);
    let running = tokio::spawn(world.agent(world.secret_store()).run());
    world.wait_for_requests(1).await;
    let name = world.requests().await[0].name_any();
    let requests: Api<k8s_openapi::api::certificates::v1::CertificateSigningRequest> = Api::all(world.admin.clone());
    requests.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    wait_until(SOON, "another request", async || {
        world.requests().await.iter().any(|request| request.name_any() != name).then_some(())
    })
    .await;
    running.abort();
}

#[tokio::test]
async fn at_ten_requests_the_agent_stops() {
    let world = AgentWorld::start().await;
    world.mood(Mood::Deny);
    let mut agent = world.agent(world.secret_store());
    for _ in 0..10 {
        let error = agent.once().await.unwrap_err();
        assert!(matches!(error, AgentError::Enrol(EnrolError::Refused { .. })), "{error}");
    }
    let error = agent.once().await.unwrap_err();
    assert!(matches!(error, AgentError::Enrol(EnrolError::TooMany(10))), "{error}");
    assert_eq!(world.requests().await.len(), 10);
}

#[tokio::test]
async fn requests_of_others_with_our_labels_do_not_count() {
    let world = AgentWorld::start().await;
    world.mood(Mood::Deny);
    let mut agent = world.agent(world.secret_store());
    agent.once().await.unwrap_err();
    let ours = world.requests().await.remove(0);
    let stranger = world.hub.as_cluster_agent("cluster2", "a1").await;
    let requests: Api<k8s_openapi::api::certificates::v1::CertificateSigningRequest> = Api::all(stranger);
    for number in 0..10 {
        let mut copy = ours.clone();
        copy.metadata = kube::api::ObjectMeta {
            name: Some(format!("forged-{number}")),
            labels: ours.metadata.labels.clone(),
            ..kube::api::ObjectMeta::default()
        };
        copy.status = None;
        requests.create(&PostParams::default(), &copy).await.unwrap();
    }
    let error = agent.once().await.unwrap_err();
    assert!(matches!(error, AgentError::Enrol(EnrolError::Refused { .. })), "{error}");
}

#[tokio::test]
async fn oversized_page_of_others_prevents_no_enrolment() {
    let world = AgentWorld::start().await;
    world.mood(Mood::Ignore);
    let stranger = world.hub.as_cluster_agent("cluster2", "a1").await;
    let requests: Api<k8s_openapi::api::certificates::v1::CertificateSigningRequest> = Api::all(stranger);
    let mut padded = mk_csr("cluster1", "telemetry");
    padded.metadata.name = Some("a-padded-one".to_owned());
    padded.metadata.finalizers = Some((0..60_000).map(|n| format!("example.com/{n}")).collect());
    requests.create(&PostParams::default(), &padded).await.unwrap();
    let error = world.hasty_agent().once().await.unwrap_err();
    assert!(matches!(error, AgentError::Enrol(EnrolError::Pending(_))), "{error}");
}

#[tokio::test]
async fn missing_right_is_named() {
    let world = AgentWorld::start().await;
    if !world.hub.is_real() {
        return; // the stand-in knows no RBAC; the sentence has its unit test
    }
    world.write_kubeconfig("nobody", &[]);
    let error = world.agent(world.secret_store()).once().await.unwrap_err().to_string();
    let expected = "the hub does not let this kubeconfig list certificatesigningrequests.certificates.k8s.io";
    assert!(error.starts_with(expected), "{error}");
}

#[tokio::test]
async fn missing_namespace_is_named_and_costs_one_request() {
    let world = AgentWorld::start().await;
    let store = Store::secret(world.admin.clone(), "not-yet", &"telemetry".parse().unwrap());
    let mut agent = world.agent(store);
    for _ in 0..2 {
        let error = agent.once().await.unwrap_err();
        assert!(
            matches!(&error, AgentError::Store(StoreError::NamespaceMissing(name)) if name == "not-yet"),
            "{error}"
        );
    }
    create_namespace(&world.admin, "not-yet").await;
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
    assert_eq!(world.requests().await.len(), 1);
    assert_ne!(NAMESPACE, "not-yet");
}

#[tokio::test]
async fn hub_that_goes_away_is_waited_for() {
    let world = AgentWorld::start().await;
    world.hub.pause().await;
    let mut agent = world.agent(Store::directory(world.dir.path().join("out")));
    let error = agent.once().await.unwrap_err();
    assert!(matches!(error, AgentError::Enrol(EnrolError::Api(_))), "{error}");
    world.hub.resume().await;
    assert!(matches!(agent.once().await.unwrap(), Outcome::Enrolled { .. }));
}
