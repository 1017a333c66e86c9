//! The access log: one line for each request that has ended.

use std::time::Duration;

use addon_signer_core::gateway::route::Protocol;
use addon_signer_core::registry::AddOnFacts;
use addon_signer_gateway::Limits;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::backend;
use super::http_backend::HttpBackend;
use super::upgrades::{agree, ends, says, switched};
use test_kit::gateway::{GatewayWorld, SOON, get, route};
use test_kit::log::{Log, capture_access};
use test_kit::wait_until;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

async fn lines(log: &Log, number: usize) -> Vec<Value> {
    wait_until(SOON, "the lines", async || {
        let lines = log.json();
        (lines.len() >= number).then_some(lines)
    })
    .await
}

/// These members of a line.
fn pick(line: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| line[*name].clone()).collect()
}

#[tokio::test]
async fn each_request_that_has_ended_is_one_line() {
    let (log, _, _guard) = capture_access();
    let backend = format!("http://{}", backend::start().await);
    let world = GatewayWorld::start_telling(vec![route("/api", &backend)], Limits::default()).await;
    let agent = world.agent();
    let mut connection = world.connect(&agent).await;
    let upload =
        Request::post("/api/upload?password=x").header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let answer = connection.send(upload.body(Full::from("content")).unwrap()).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "7");
    let long = format!("/api/{}", "x".repeat(8_000));
    connection.get(&long).await;
    connection.get("/v1/whoami").await;
    connection.get("/nothing").await;
    let lines = lines(&log, 4).await;
    let times = ["time", "own_ms", "backend_ms", "duration_ms"].map(|name| lines[0][name].clone());
    let expected = json!({
        "time": times[0], "event": "access", "cluster": "c1", "addon": "telemetry", "agent": "telemetry",
        "serial": agent.serial.to_string(), "protocol": "HTTP/1.1", "method": "POST", "path": "/api/upload",
        "host": "gateway.example", "route": "observability/receive", "status": 200, "received": 7, "sent": 1,
        "own_ms": times[1], "backend_ms": times[2], "duration_ms": times[3], "trace_id": TRACE, "problem": "",
        "ended": "complete",
    });
    assert_eq!(lines[0], expected);
    let [own, backend, whole] = [1, 2, 3].map(|at: usize| times[at].as_f64().unwrap());
    assert!(own > 0.0 && backend > 0.0 && own + backend <= whole, "{own} + {backend} <= {whole}");
    let text = log.text();
    assert!(!text.contains("password"), "{text}");
    assert!(text.lines().all(|line| line.len() < 1_000), "{text}");
    assert!(lines[1]["path"].as_str().unwrap().ends_with("x…"), "{}", lines[1]);
    let names = ["route", "status", "backend_ms", "trace_id", "problem", "ended"];
    assert_eq!(pick(&lines[2], &names), json!(["whoami", 200, 0.0, "", "", "complete"]));
    assert_eq!(pick(&lines[3], &names), json!(["none", 404, 0.0, "", "no-route", "complete"]));
}

#[tokio::test]
async fn a_line_says_how_its_call_ended() {
    let (log, _, _guard) = capture_access();
    let backend = format!("http://{}", backend::start().await);
    let routed = || vec![route("/", &backend)];
    let short = Limits { drain_timeout: Duration::from_millis(100), ..Limits::default() };
    let world = GatewayWorld::start_telling(routed(), short).await;
    let begun = async |path: &str| {
        let mut connection = world.connect(&world.agent()).await;
        let mut body = connection.send(get(path)).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        (connection, body)
    };
    drop(begun("/endless").await);
    assert_eq!(pick(&lines(&log, 1).await[0], &["status", "ended"]), json!([200, "client gone"]));
    let endless = begun("/endless").await;
    world.set_routes(Vec::new());
    assert_eq!(lines(&log, 2).await[1]["ended"], "route gone");
    drop(endless);
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    world.set_routes(vec![route("/", &format!("http://{}", backend::start_garbage(cut).await))]);
    let broken = begun("/x").await.1.collect().await;
    assert!(broken.is_err());
    assert_eq!(pick(&lines(&log, 3).await[2], &["status", "sent", "ended"]), json!([200, 3, "backend gone"]));
    world.set_routes(routed());
    let (connection, endless) = begun("/endless").await;
    world.detach();
    assert_eq!(lines(&log, 4).await[3]["ended"], "session ended");
    drop((connection, endless));
    world.registry.write(|registry| {
        registry.set_addon("c1".parse().unwrap(), "telemetry".parse().unwrap(), Some(AddOnFacts::Installed));
    });
    let _endless = begun("/endless").await;
    world.stop.cancel();
    assert_eq!(lines(&log, 5).await[4]["ended"], "session ended", "its time to drain is over");
}

#[tokio::test]
async fn an_upgraded_connection_is_one_line_when_it_ends() {
    let (log, writer, _guard) = capture_access();
    let plain = HttpBackend::start(agree).await;
    let world = GatewayWorld::start_telling(vec![plain.route(Protocol::Http)], Limits::default()).await;
    let mut tls = switched(&world).await;
    says(&mut tls, b"ping").await;
    writer.finish();
    assert_eq!(log.text(), "", "it has not ended");
    tls.shutdown().await.unwrap();
    ends(tls).await;
    let names = ["status", "received", "sent", "ended"];
    assert_eq!(pick(&lines(&log, 1).await[0], &names), json!([101, 4, 9, "complete"]));
    let mut tls = switched(&world).await;
    says(&mut tls, b"ping").await;
    world.detach();
    ends(tls).await;
    assert_eq!(pick(&lines(&log, 2).await[1], &names), json!([101, 4, 9, "session ended"]));
}

#[tokio::test]
async fn without_an_access_log_there_is_no_line() {
    let (log, writer, _guard) = capture_access();
    let world = GatewayWorld::start(Vec::new()).await;
    assert_eq!(world.connect(&world.agent()).await.get("/v1/whoami").await.status, 200);
    wait_until(SOON, "the request to end", async || (world.stats.requests.get() == 0).then_some(())).await;
    writer.finish();
    assert_eq!(log.text(), "");
}
