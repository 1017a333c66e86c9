//! Which certificates the gateway has seen in use.

use std::time::Duration;

use addon_signer_core::usage::LastUse;
use hyper::StatusCode;

use super::backend;
use test_kit::gateway::{GatewayWorld, HOUR, LOCALHOST, get, route};
use test_kit::issue::Leaf;
use test_kit::quick::pass;

const MINUTE: Duration = Duration::from_secs(60);

/// Checks that exactly one certificate was seen, from loopback and used just now.
fn expect_one(world: &GatewayWorld, agent: &Leaf) {
    let drained = world.usage.drain(world.clock.now());
    let [LastUse { serial, issuer, identity, at, from }] = drained.as_slice() else { panic!("{drained:?}") };
    assert_eq!((serial, issuer), (&agent.serial, world.telemetry.authority().id()));
    assert_eq!((identity.to_string().as_str(), *from), ("c1/telemetry/telemetry", LOCALHOST));
    assert!(at.until(world.clock.now()) <= Duration::from_secs(5), "{at}");
}

#[tokio::test]
async fn ten_thousand_requests_are_one_use() {
    let world = GatewayWorld::start(Vec::new()).await;
    let agent = world.agent();
    let mut connection = world.connect(&agent).await;
    for _ in 0..10_000 {
        assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
    }
    expect_one(&world, &agent);
    assert_eq!(world.sum("requests_total"), 10_000);
}

#[tokio::test]
async fn a_long_answer_is_a_use_for_as_long_as_it_takes() {
    let backend = format!("http://{}", backend::start().await);
    let world = GatewayWorld::start(vec![route("/", &backend)]).await;
    let agent = world.agent();
    let mut connection = world.connect(&agent).await;
    let _endless = connection.send(get("/addons/telemetry/endless")).await.unwrap();
    expect_one(&world, &agent);
    world.clock.advance(10 * MINUTE);
    pass(Duration::from_millis(1_500)).await; // the connection looks once a second
    expect_one(&world, &agent);
}

#[tokio::test]
async fn only_those_who_are_let_in_are_seen() {
    let world = GatewayWorld::start(Vec::new()).await;
    let forged = world.search.client("c1", "telemetry", world.clock.now(), HOUR);
    let nowhere = world.telemetry.client("c2", "telemetry", world.clock.now(), HOUR);
    for leaf in [&forged, &nowhere] {
        assert_eq!(world.try_get(Some(leaf), "/v1/whoami").await, Ok(StatusCode::FORBIDDEN));
    }
    assert_eq!(world.usage.drain(world.clock.now()), []);
}
