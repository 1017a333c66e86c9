//! The gateway's audit log: one line for each decision, and few lines for decisions that anybody can provoke.

use std::time::Duration;

use addon_signer_core::ca::serial::Serial;
use addon_signer_gateway::Limits;
use addon_signer_telemetry::audit::QUOTA;
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use test_kit::gateway::{GatewayWorld, HOUR, SOON};
use test_kit::{log, wait_until};

/// These members of each line.
fn pick(lines: &[Value], names: &[&str]) -> Vec<Value> {
    lines.iter().map(|line| names.iter().map(|name| line[*name].clone()).collect()).collect()
}

#[tokio::test]
async fn each_connection_and_each_refusal_is_one_line() {
    let (log, _, _guard) = log::capture_audit();
    let world = GatewayWorld::start(Vec::new()).await;
    let agent = world.agent();
    let mut connection = world.connect(&agent).await;
    for path in ["/v1/whoami", "/v1/whoami", "/addons?password=x", "/addons/search/x"] {
        connection.get(path).await;
    }
    let expected = json!({
        "time": log.json()[0]["time"], "event": "admitted", "remote": log.json()[0]["remote"],
        "cluster": "c1", "addon": "telemetry", "agent": "telemetry", "signer": "telemetry",
        "issuer": world.telemetry.authority().id().as_str(), "serial": agent.serial.to_string(),
    });
    assert_eq!(log.json()[0], expected);
    let names = ["event", "cluster", "serial", "method", "path", "cause"];
    let serial = agent.serial.to_string();
    let expected = [
        json!(["refused-request", "c1", serial, "GET", "/addons", "NotFound"]),
        json!(["refused-request", "c1", serial, "GET", "/addons/search/x", "AnotherAddOn"]),
    ];
    assert_eq!(pick(&log.json()[1..], &names), expected);
}

#[tokio::test]
async fn a_connection_that_may_not_be_or_may_no_longer_be_is_one_line() {
    let (log, _, _guard) = log::capture_audit();
    let world = GatewayWorld::start(Vec::new()).await;
    let forged = world.search.client("c1", "telemetry", world.clock.now(), HOUR);
    let nowhere = world.telemetry.client("c2", "telemetry", world.clock.now(), HOUR);
    for leaf in [&forged, &nowhere] {
        assert_eq!(world.try_get(Some(leaf), "/v1/whoami").await, Ok(StatusCode::FORBIDDEN));
    }
    let mut connection = world.connect(&world.agent()).await;
    assert_eq!(connection.get("/v1/whoami").await.status, StatusCode::OK);
    world.detach();
    tokio::time::timeout(SOON, connection.driver).await.unwrap().unwrap().unwrap();
    let expected = [
        json!(["refused-connection", "", "", "AddOnNotOfSigner"]), // an identity that is only claimed is no identity
        json!(["refused-connection", "c2", nowhere.serial.to_string(), "ClusterUnknown"]),
        json!(["admitted", "c1", log.json()[2]["serial"], null]),
        json!(["ended-connection", "c1", log.json()[2]["serial"], "AddOnNotInstalled"]),
    ];
    assert_eq!(pick(&log.json(), &["event", "cluster", "serial", "cause"]), expected);
    assert!(unverified(&log.json()[0]).starts_with(&unverified_name("c1", &forged.serial)), "{}", log.json()[0]);
    assert!(log.json()[1..].iter().all(|line| unverified(line).is_empty()), "the others have an identity");
}

fn unverified(line: &Value) -> &str {
    line["unverified"].as_str().unwrap_or_default()
}

fn unverified_name(cluster: &str, serial: &Serial) -> String {
    let user = format!("system:open-cluster-management:cluster:{cluster}:addon:telemetry:agent:telemetry");
    format!("{user}, serial {serial}, valid from 20")
}

#[tokio::test]
async fn handshakes_that_fail_are_reported_by_cause() {
    let (log, _, _guard) = log::capture_audit();
    let limits = Limits {
        max_connections: 1,
        max_handshakes: 1,
        handshake_timeout: Duration::from_secs(3),
        ..Limits::default()
    };
    let world = GatewayWorld::start_with(Vec::new(), limits).await;
    assert!(world.try_get(None, "/").await.is_err());
    wait_until(SOON, "the place to be free", async || (log.json().len() == 1).then_some(())).await;
    let past = world.telemetry.client("c1", "telemetry", world.clock.now().minus(2 * HOUR), HOUR);
    assert!(world.try_get(Some(&past), "/").await.is_err());
    wait_until(SOON, "the place to be free", async || (log.json().len() == 2).then_some(())).await;
    assert_eq!(unverified(&log.json()[0]), "", "there is no certificate");
    assert!(unverified(&log.json()[1]).starts_with(&unverified_name("c1", &past.serial)), "{}", log.json()[1]);
    let mut silent = Vec::new();
    for _ in 0..9 {
        silent.push(TcpStream::connect(world.address).await.unwrap()); // eight may wait
    }
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    }
    wait_until(SOON, "the slow handshakes", async || (log.json().len() == 11).then_some(())).await;
    let mut causes = vec!["NoCertificate", "CertificateExpired", "HandshakeDisplaced"];
    causes.extend(["HandshakeSlow"; 8]);
    assert_eq!(
        pick(&log.json(), &["event", "cause"]),
        causes.into_iter().map(|cause| json!(["refused-connection", cause])).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn strangers_write_few_lines_and_the_counts_add_up() {
    const STRANGERS: u64 = 300;
    let (log, people, _guard) = log::capture_audit();
    let world = GatewayWorld::start(Vec::new()).await;
    let before = people.text().len();
    for _ in 0..STRANGERS {
        let mut stranger = TcpStream::connect(world.address).await.unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        // A reset also ends the connection.
        stranger.read_to_end(&mut Vec::new()).await.ok();
    }
    world.clock.advance(QUOTA.window);
    world.audit.write_due();
    let written = log.json().iter().filter(|line| line["event"] == "refused-connection").count() as u64;
    let sums: Vec<Value> = log.json().into_iter().filter(|line| line["event"] == "suppressed").collect();
    assert!(written <= 2 * u64::from(QUOTA.first), "a minute may have passed: {written}");
    assert!(sums.len() <= 2, "{sums:?}");
    assert!(sums[0]["cause"] == "NotTLS", "{sums:?}");
    assert!(sums[0]["of"] == "refused-connection", "{sums:?}");
    assert_eq!(written + sums.iter().filter_map(|sum| sum["count"].as_u64()).sum::<u64>(), STRANGERS);
    assert_eq!(&people.text()[before..], "", "nothing in the other log");
}
