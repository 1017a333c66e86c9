//! Connections that are refused: they have places of their own, stay refused, and hide no refusal of others.

use addon_signer_core::registry::{AddOnFacts, ClusterFacts};
use addon_signer_gateway::Limits;
use futures::future::{join_all, select};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};

use test_kit::gateway::{GatewayWorld, HOUR, SOON, get};
use test_kit::issue::Leaf;
use test_kit::log::capture_audit;
use test_kit::wait_until;

/// A good certificate of the addon on a cluster that is not registered.
fn stranger(world: &GatewayWorld, cluster: &str) -> Leaf {
    world.telemetry.client(cluster, "telemetry", world.clock.now(), HOUR)
}

fn whoami() -> Request<Full<Bytes>> {
    Request::get("https://gateway.example/v1/whoami").body(Full::default()).unwrap()
}

#[tokio::test]
async fn connections_that_are_refused_take_no_session_permits() {
    let limits = Limits { max_connections: 4, max_handshakes: 8, ..Limits::default() };
    let world = GatewayWorld::start_with(Vec::new(), limits).await;
    let one = stranger(&world, "c9");
    let mut silent = Vec::new();
    let some_are_cut = async || {
        silent.extend(join_all((0..8).map(|_| world.connect(&one))).await);
        (world.stats.refusals_unanswered.get() > 0).then_some(())
    };
    wait_until(SOON, "a refused connection to lose its place", some_are_cut).await;
    assert_eq!(world.try_get(Some(&world.agent()), "/v1/whoami").await, Ok(StatusCode::OK));
    assert_eq!(world.stats.over_capacity.get(), 0);
}

/// Behind a load balancer all clusters have one address.
#[tokio::test]
async fn a_cluster_that_is_refused_hides_no_refusal_of_another() {
    let limits = Limits { max_handshakes: 32, ..Limits::default() }; // so there are 4 places for refusals
    let world = GatewayWorld::start_with(Vec::new(), limits).await;
    let (flooding, other) = (stranger(&world, "c9"), stranger(&world, "c8"));
    let flood = async || {
        let mut silent = Vec::new();
        loop {
            silent.push(world.connect(&flooding).await);
        }
    };
    let floods = join_all((0..8).map(|_| flood()));
    let asking = async {
        let begun = async || (world.stats.refusals_unanswered.get() > 0).then_some(());
        wait_until(SOON, "a refused connection to lose its place", begun).await;
        for _ in 0..20 {
            assert_eq!(world.try_get(Some(&other), "/v1/whoami").await, Ok(StatusCode::FORBIDDEN));
            let answer = world.connect_h2(&other).await.send_request(whoami()).await.unwrap();
            assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        }
    };
    select(Box::pin(asking), Box::pin(floods)).await;
}

/// It has no place of a session, so it must not become one.
#[tokio::test]
async fn a_connection_that_was_refused_stays_refused() {
    let (log, _, _guard) = capture_audit();
    let world = GatewayWorld::start(Vec::new()).await;
    let register = |facts: Option<ClusterFacts>| {
        world.registry.write(|registry| {
            registry.set_cluster("c9".parse().unwrap(), facts);
            registry.set_addon("c9".parse().unwrap(), "telemetry".parse().unwrap(), Some(AddOnFacts::Installed));
        });
    };
    let refusals = || log.json().iter().filter(|line| line["event"] == "refused-connection").count();
    let answered = async || {
        register(None);
        let before = refusals();
        let mut refused = world.connect(&stranger(&world, "c9")).await;
        wait_until(SOON, "the connection to be refused", async || (refusals() > before).then_some(())).await;
        register(Some(ClusterFacts::ACCEPTED));
        refused.send(get("/v1/whoami")).await.ok() // it may have ended already
    };
    let answer = wait_until(SOON, "a refused connection to be answered", answered).await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}
