//! What reaches a backend, and what comes back.

use std::time::{Duration, Instant};

use addon_signer_core::trust::Route;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use tokio::net::TcpListener;

use super::backend;
use test_kit::gateway::{ANY, FullAnswer, GatewayWorld, collect, get, route};

async fn world_of(backend: &str) -> GatewayWorld {
    GatewayWorld::start(vec![route("/api", backend)]).await
}

fn body_of(size: usize) -> Full<Bytes> {
    Full::new(Bytes::from(vec![b'x'; size]))
}

#[tokio::test]
async fn a_backend_is_told_who_asks_by_the_gateway_alone() {
    let backend = format!("http://{}/base", backend::start().await);
    let world = world_of(&backend).await;
    let agent = world.agent();
    let request = Request::post("/addons/telemetry/api/seen%20it?q=1")
        .header("host", "gateway.example")
        .header("connection", "keep-alive, x-hop")
        .header("x-hop", "1")
        .header("x-kept", "1");
    let forged = [
        "X-Remote-User",
        "x_remote_user",
        "X-Remote-Group",
        "X-Remote-Extra-Foo",
        "Client-Cert",
        "client_cert",
        "Client-Cert-Chain",
        "X-Addon-Signer-Cluster",
        "X-Addon_Signer-Agent",
        "X-Forwarded-Client-Cert",
        "X-Forwarded-For",
        "Forwarded",
        "X-HTTP-Method-Override",
        "x_original_url",
        "X-Forwarded-Prefix",
    ];
    let request = forged.iter().fold(request, |request, name| request.header(*name, "system:masters"));
    let mut connection = world.connect(&agent).await;
    let answer = connection.send(request.body(body_of(3)).unwrap()).await.unwrap();
    let FullAnswer { status, headers, body: seen } = collect(answer).await;
    assert_eq!((status, headers.get("x-backend").is_some()), (StatusCode::OK, true));
    assert!(headers.get("keep-alive").is_none(), "hop-by-hop headers of the backend are its own");
    let mut lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines.remove(0), "POST /base/api/seen%20it?q=1");
    lines.sort_unstable();
    let certificate = test_kit::issue::base64(&agent.certificate);
    let host = backend.trim_start_matches("http://").trim_end_matches("/base");
    let mut expected = vec![
        format!("client-cert: :{certificate}:"),
        "content-length: 3".to_owned(),
        format!("host: {host}"),
        "x-addon-signer-addon: telemetry".to_owned(),
        "x-addon-signer-agent: telemetry".to_owned(),
        "x-addon-signer-cluster: c1".to_owned(),
        "x-addon-signer-signer: telemetry".to_owned(),
        "x-forwarded-for: 127.0.0.1".to_owned(),
        "x-forwarded-host: gateway.example".to_owned(),
        "x-forwarded-proto: https".to_owned(),
        "x-kept: 1".to_owned(),
        "x-remote-group: system:open-cluster-management:addon:telemetry".to_owned(),
        "x-remote-group: system:open-cluster-management:cluster:c1:addon:telemetry".to_owned(),
        "x-remote-user: system:open-cluster-management:cluster:c1:addon:telemetry:agent:telemetry".to_owned(),
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn requests_outside_the_routes_are_refused() {
    let backend = format!("http://{}", backend::start().await);
    let post_only = Route { methods: ["POST".to_owned()].into(), ..route("/api/write", &backend) };
    let world = GatewayWorld::start(vec![route("/api", &backend), post_only]).await;
    let mut connection = world.connect(&world.agent()).await;
    for (path, status, kind) in [
        ("/addons/search/api", 403, "another-addon"),
        ("/addons/telemetry/other", 404, "no-route"),
        ("/addons/telemetry/apis", 404, "no-route"),
        ("/addons/telemetry", 404, "no-route"),
        ("/addons", 404, "not-found"),
        ("/", 404, "not-found"),
        ("/v1/whoami/", 404, "not-found"),
        ("/addons/telemetry/api/../../search/api", 400, "bad-path"),
        ("/addons/telemetry/api/%2e%2e/x", 400, "bad-path"),
        ("/addons/telemetry/api%2fx", 400, "bad-path"),
        ("/addons/telemetry/api;v=1/x", 400, "bad-path"),
        ("/addons/telemetry/%2561pi/x", 400, "bad-path"),
        ("/addons//telemetry/api", 400, "bad-path"),
    ] {
        assert_eq!(connection.get(path).await.problem(), (status, kind.to_owned()), "{path}");
    }
    let answer = connection.get("/addons/telemetry/api/wr%69te").await;
    assert_eq!((answer.problem(), &answer.headers["allow"]), ((405, "method".to_owned()), &"POST".parse().unwrap()));
    let upgrade = Request::get("/addons/telemetry/api").header("connection", "upgrade").header("upgrade", "websocket");
    let answer = collect(connection.send(upgrade.body(Full::default()).unwrap()).await.unwrap()).await;
    assert_eq!(answer.problem(), (501, "upgrade".to_owned()));
}

#[tokio::test]
async fn a_backend_that_is_down_or_speaks_garbage_is_a_bad_gateway() {
    let closed = TcpListener::bind(ANY).await.unwrap();
    let down = closed.local_addr().unwrap();
    drop(closed);
    let garbage = backend::start_garbage("what do you want?\n\n").await;
    let silent = backend::start_garbage("").await;
    let half = backend::start_garbage("HTTP/1.1 200 OK\r\ncontent-le").await;
    let switching = backend::start_garbage("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n").await;
    for address in [down, garbage, silent, half, switching] {
        let world = world_of(&format!("http://{address}")).await;
        let answer = world.connect(&world.agent()).await.get("/addons/telemetry/api").await;
        assert_eq!(answer.problem(), (502, "upstream".to_owned()));
        assert!(!answer.body.contains(&address.port().to_string()), "{}", answer.body);
    }
    let world = world_of("not a url").await;
    let answer = world.connect(&world.agent()).await.get("/addons/telemetry/api").await;
    assert_eq!(answer.problem(), (502, "upstream".to_owned()));
}

#[tokio::test]
async fn no_backend_is_on_loopback_unless_it_is_allowed() {
    let port = backend::start().await.port();
    for host in ["127.0.0.1", "localhost"] {
        let routes = || vec![route("/api", &format!("http://{host}:{port}"))];
        let allowed = GatewayWorld::start(routes()).await;
        let answer = allowed.connect(&allowed.agent()).await.get("/addons/telemetry/api").await;
        assert_eq!(answer.status, StatusCode::OK);
        let refused = GatewayWorld::start_without_loopback(routes()).await;
        let answer = refused.connect(&refused.agent()).await.get("/addons/telemetry/api").await;
        assert_eq!(answer.problem(), (502, "upstream".to_owned()));
    }
}

#[tokio::test]
async fn a_backend_that_is_slow_is_given_up() {
    let backend = format!("http://{}", backend::start().await);
    let hasty = Route { timeout: Duration::from_millis(300), ..route("/api", &backend) };
    let world = GatewayWorld::start(vec![hasty]).await;
    let mut connection = world.connect(&world.agent()).await;
    let started = Instant::now();
    let answer = connection.get("/addons/telemetry/api/never").await;
    assert_eq!(answer.problem(), (504, "upstream-slow".to_owned()));
    assert!(started.elapsed() < Duration::from_secs(2));
    // The backend stops in the middle: the body breaks off instead of ending normally.
    let mut body = connection.send(get("/addons/telemetry/api/one-tick")).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(body.frame().await.unwrap().is_err());
    assert!(started.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_body_that_breaks_off_backend_does_not_end_well() {
    let short = backend::start_garbage("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort").await;
    let world = world_of(&format!("http://{short}")).await;
    let mut connection = world.connect(&world.agent()).await;
    let answer = connection.send(get("/addons/telemetry/api")).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
}

#[tokio::test]
async fn events_arrive_unbuffered() {
    let backend = format!("http://{}", backend::start().await);
    let world = world_of(&backend).await;
    let mut connection = world.connect(&world.agent()).await;
    let answer = connection.send(get("/addons/telemetry/api/ticks")).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut body = answer.into_body();
    let mut text = String::new();
    let mut arrivals = Vec::new();
    while let Some(frame) = body.frame().await {
        text += std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap();
        arrivals.push(Instant::now());
    }
    assert_eq!(text, "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n");
    assert_eq!(arrivals.len(), 5, "each event in a piece of its own");
    let apart = arrivals.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(50)).count();
    assert!(apart >= 3, "{arrivals:?}");
}

#[tokio::test]
async fn bodies_up_to_the_limit_pass_and_longer_ones_are_refused() {
    let backend = format!("http://{}", backend::start().await);
    let small = Route { max_body: 100_000, ..route("/api", &backend) };
    let world = GatewayWorld::start(vec![small]).await;
    let agent = world.agent();
    let upload = |size| Request::post("/addons/telemetry/api/upload").body(body_of(size)).unwrap();
    let mut connection = world.connect(&agent).await;
    let answer = collect(connection.send(upload(100_000)).await.unwrap()).await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "100000"));
    let answer = collect(connection.send(upload(100_001)).await.unwrap()).await;
    assert_eq!(answer.problem(), (413, "too-large".to_owned()));
    // The answer arrives although the client is still sending.
    for _ in 0..5 {
        let answer = world.connect(&agent).await.send(upload(20_000_000)).await.unwrap();
        assert_eq!(collect(answer).await.problem(), (413, "too-large".to_owned()));
    }
    // Send bodies without a length, so that the gateway has to count.
    let piece = || Ok::<_, std::convert::Infallible>(hyper::body::Frame::data(Bytes::from(vec![b'x'; 10_000])));
    for (pieces, expected) in [(10, StatusCode::OK), (11, StatusCode::PAYLOAD_TOO_LARGE)] {
        let body = http_body_util::StreamBody::new(futures::stream::iter((0..pieces).map(move |_| piece())));
        let tls = world.tls(world.client_config(Some(&agent))).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(tls);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("/addons/telemetry/api/upload").body(body).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), expected);
    }
}

#[tokio::test]
async fn http_2_is_proxied_too() {
    let backend = format!("http://{}", backend::start().await);
    let world = world_of(&backend).await;
    let mut h2 = world.connect_h2(&world.agent()).await;
    let request = Request::post("https://gateway.example/addons/telemetry/api/x").header("x-remote-user", "root");
    let FullAnswer { status, body: seen, .. } =
        collect(h2.send_request(request.body(body_of(3)).unwrap()).await.unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(seen.starts_with("POST /api/x\n"), "{seen}");
    assert!(seen.contains("\nx-forwarded-host: gateway.example\n"), "{seen}");
    assert!(seen.contains(":agent:telemetry\n"), "{seen}");
    assert!(!seen.contains("root"), "{seen}");
    // A backend would make links of the host.
    let request = Request::post("https://evil.example/addons/telemetry/api/x").body(body_of(3)).unwrap();
    let FullAnswer { status, body: seen, .. } = collect(h2.send_request(request).await.unwrap()).await;
    assert!(status == StatusCode::OK, "{seen}");
    assert!(!seen.contains("evil"), "{seen}");
    assert!(!seen.contains("x-forwarded-host"), "{seen}");
}

#[tokio::test]
async fn the_bundle_has_a_strong_etag() {
    let world = GatewayWorld::start(Vec::new()).await;
    let mut connection = world.connect(&world.agent()).await;
    let FullAnswer { status, headers, body } = connection.get("/v1/bundle").await;
    let anchors = world.serving_ca.bundle();
    assert_eq!((status, &body), (StatusCode::OK, &anchors.pem()));
    assert_eq!(headers["content-type"], "application/x-pem-file");
    let tag = headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", anchors.digest()));
    for (condition, expected) in [
        (tag.clone(), StatusCode::NOT_MODIFIED),
        (format!("\"x\", W/{tag}"), StatusCode::NOT_MODIFIED),
        ("*".to_owned(), StatusCode::NOT_MODIFIED),
        ("\"x\"".to_owned(), StatusCode::OK),
    ] {
        let request = Request::get("/v1/bundle").header("if-none-match", &condition).body(Full::default()).unwrap();
        let FullAnswer { status, headers, body } = collect(connection.send(request).await.unwrap()).await;
        assert_eq!(status, expected, "{condition}");
        assert_eq!((headers["etag"].to_str().unwrap(), body.is_empty()), (&*tag, expected != StatusCode::OK));
    }
    let answer = Request::post("/v1/bundle").body(Full::default()).unwrap();
    let answer = collect(connection.send(answer).await.unwrap()).await;
    assert_eq!(answer.problem(), (405, "method".to_owned()));
}
