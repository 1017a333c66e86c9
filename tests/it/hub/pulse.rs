//! The hub's tasks give signs of life also when nothing happens; otherwise Kubernetes would end the hub.

use std::time::Duration;

use tokio::time::Instant;

use super::mk_ready;
use test_kit::hub::TIMEOUT;
use test_kit::wait_until;

#[tokio::test]
async fn tasks_of_a_hub_at_rest_give_signs_of_life() {
    let (_hub, _admin, running) = mk_ready().await;
    let began = Instant::now();
    let mut tasks = running.pulses.silent(Duration::ZERO);
    tasks.sort();
    let expected = [
        "CAs of backends",
        "Leases of gateways",
        "Services of backends",
        "authorities of gateway-client",
        "authorities of gateway-serving",
        "authorities of telemetry",
        "certificates of agents",
        "policy of the trust bundle",
        "registrations",
        "requests",
        "routes of the gateway",
        "statuses of AddOnRoutes",
        "supervisor",
        "trust of the hub cluster",
        "trust on the clusters",
    ];
    assert_eq!(tasks, expected);
    wait_until(TIMEOUT, "a sign of life of every task", async || {
        running.pulses.silent(began.elapsed()).is_empty().then_some(())
    })
    .await;
}
