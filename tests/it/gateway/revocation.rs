//! Revoked certificates: nobody is let in with one, and nobody stays.

use std::time::{Duration, Instant};

use addon_signer_core::registry::{AddOn, AddOnFacts, ClusterFacts, Registry, Revocation};
use addon_signer_core::timestamp::Timestamp;
use http_body_util::BodyExt;
use hyper::StatusCode;
use tokio::time::timeout;

use super::backend;
use test_kit::gateway::{GatewayWorld, HOUR, get, route};
use test_kit::log::capture_audit;

fn revoke(world: &GatewayWorld, before: Option<Timestamp>) {
    let revocation = before.map(|before| Box::new(Revocation { before, by: "ann".to_owned() }));
    let found = AddOn { revocation, ..AddOnFacts::Installed.into() };
    world.registry.write(|registry| {
        registry.put_addon("c1".parse().unwrap(), "telemetry".parse().unwrap(), Some(found));
    });
}

/// Invariant I15, on connections that are idle and on responses under way.
#[tokio::test]
async fn sessions_end_within_two_seconds_of_a_revocation() {
    let backend = format!("http://{}", backend::start().await);
    let (log, _, _guard) = capture_audit();
    let world = GatewayWorld::start(vec![route("/", &backend)]).await;
    let agent = world.agent();
    let mut idle = world.connect(&agent).await;
    assert_eq!(idle.get("/v1/whoami").await.status, StatusCode::OK);
    let mut busy = world.connect(&agent).await;
    let mut body = busy.send(get("/addons/telemetry/endless")).await.unwrap().into_body();
    let search = world.search.client("c1", "search", world.clock.now(), HOUR);
    let mut other = world.connect(&search).await;
    assert_eq!(other.get("/v1/whoami").await.status, StatusCode::OK);

    revoke(&world, Some(world.clock.now()));
    let started = Instant::now();
    let ended = timeout(Duration::from_secs(4), async {
        // The connection may end with or without an error.
        (&mut idle.driver).await.unwrap().ok();
        while body.frame().await.unwrap().is_ok() {}
    });
    assert!(ended.await.is_ok(), "after {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(2), "after {:?}", started.elapsed());
    assert_eq!(other.get("/v1/whoami").await.status, StatusCode::OK, "another addon of that cluster stays");
    let reported = log.json().into_iter().filter(|line| line["event"] == "ended-connection");
    let causes: Vec<_> = reported.map(|line| line["cause"].as_str().unwrap().to_owned()).collect();
    assert_eq!(causes, ["CertificateRevoked", "CertificateRevoked"]);
}

#[tokio::test]
async fn revoked_certificate_is_refused_and_later_one_let_in() {
    let (log, _, _guard) = capture_audit();
    let world = GatewayWorld::start(Vec::new()).await;
    let now = world.clock.now();
    // A leaf begins 5 minutes before it is made.
    let begins = now.minus(Duration::from_secs(300));
    let agent = world.agent();
    let ask = async || world.try_get(Some(&agent), "/v1/whoami").await.unwrap();
    for (before, expected) in [
        (Some(begins), StatusCode::OK),
        (Some(begins.plus(Duration::from_secs(1))), StatusCode::FORBIDDEN),
        (Some(now.plus(HOUR)), StatusCode::FORBIDDEN),
        (None, StatusCode::OK),
    ] {
        revoke(&world, before);
        assert_eq!(ask().await, expected, "{before:?}");
    }
    revoke(&world, Some(now));
    let mut connection = world.connect(&agent).await;
    let answer = connection.get("/v1/whoami").await;
    assert_eq!(answer.problem(), (403, "revoked".to_owned()));
    assert_eq!(answer.headers["connection"], "close");
    let reported = log.json().into_iter().rfind(|line| line["event"] == "refused-connection").unwrap();
    assert_eq!((&reported["cause"], &reported["cluster"]), (&"CertificateRevoked".into(), &"c1".into()));
    assert_eq!(reported["serial"], agent.serial.to_string());
}

/// An agent that was revoked does not come back when its ManagedClusterAddOn is made anew without the annotation.
#[tokio::test]
async fn certificate_older_than_addon_object_is_refused() {
    older_is_refused(|registry, created| {
        let found = AddOn { created, ..AddOnFacts::Installed.into() };
        registry.put_addon("c1".parse().unwrap(), "telemetry".parse().unwrap(), Some(found));
    })
    .await;
}

/// A cluster that is made anew under its name may be somebody else's.
#[tokio::test]
async fn certificate_older_than_its_cluster_object_is_refused() {
    older_is_refused(|registry, created| {
        registry.set_cluster("c1".parse().unwrap(), Some(ClusterFacts { created, ..ClusterFacts::ACCEPTED }));
    })
    .await;
}

async fn older_is_refused(make: impl Fn(&mut Registry, Timestamp)) {
    let (log, _, _guard) = capture_audit();
    let world = GatewayWorld::start(Vec::new()).await;
    let begins = world.clock.now().minus(Duration::from_secs(300));
    let agent = world.agent();
    let make = |created| world.registry.write(|registry| make(registry, created));
    make(begins);
    assert_eq!(world.try_get(Some(&agent), "/v1/whoami").await.unwrap(), StatusCode::OK);
    make(begins.plus(Duration::from_secs(1)));
    let answer = world.connect(&agent).await.get("/v1/whoami").await;
    assert_eq!(answer.problem(), (403, "revoked".to_owned()), "so that agents enrol again");
    let reported = log.json().into_iter().rfind(|line| line["event"] == "refused-connection").unwrap();
    assert_eq!(reported["cause"], "CertificateOlderThanAddOn");
}
