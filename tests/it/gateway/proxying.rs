//! What reaches a backend, and what comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use addon_signer_core::gateway::headers::rules::{REQUEST_HEADERS, Treatment};
use addon_signer_core::gateway::route::{Backend, Protocol, Route, RouteLimits};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper::{Request, StatusCode};
use tokio::net::TcpListener;

use super::backend;
use test_kit::gateway::{ANY, FullAnswer, GatewayWorld, LIMITS, collect, get, mk_backend, route};

async fn world_of(backend: &str) -> GatewayWorld {
    GatewayWorld::start(vec![route("/api", backend)]).await
}

fn body_of(size: usize) -> Full<Bytes> {
    Full::new(Bytes::from(vec![b'x'; size]))
}

#[tokio::test]
async fn a_backend_is_told_who_asks_by_the_gateway_alone() {
    let address = backend::start().await;
    let host = format!("receive.observability.svc:{}", address.port());
    let backend = Backend { authority: host.clone(), ..mk_backend(address, Protocol::Http) };
    let route = Route { backend: Ok(Arc::new(backend)), ..route("/api", "http://127.0.0.1:1") };
    let world = GatewayWorld::start(vec![route]).await;
    let agent = world.agent();
    let request = Request::post("/addons/telemetry/api/seen%20it?q=1")
        .header("host", "gateway.example")
        .header("connection", "keep-alive, x-hop")
        .header("x-hop", "1")
        .header("x-kept", "1");
    // As many as a request may have, each in two spellings.
    let forged = REQUEST_HEADERS.iter().filter(|rule| rule.treatment != Treatment::Passed).map(|rule| rule.name);
    let forged = forged.filter(|name| {
        ["x-remote", "x-addon", "x-forw", "client-cert", "remote", "x-user"].iter().any(|start| name.starts_with(start))
    });
    let forged: Vec<String> = forged.map(|name| name.replace('*', "x")).collect();
    let forged = forged.iter().cloned().chain(forged.iter().map(|name| name.replace('-', "_")));
    let request = forged.fold(request, |request, name| request.header(name, "system:masters"));
    let mut connection = world.connect(&agent).await;
    let answer = connection.send(request.body(body_of(3)).unwrap()).await.unwrap();
    let FullAnswer { status, headers, body: seen } = collect(answer).await;
    assert_eq!((status, headers.get("x-backend").is_some()), (StatusCode::OK, true));
    assert!(headers.get("keep-alive").is_none(), "hop-by-hop headers of the backend are its own");
    let mut lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines.remove(0), "POST /api/seen%20it?q=1");
    lines.sort_unstable();
    let certificate = test_kit::issue::base64(&agent.certificate);
    let hash = ring::digest::digest(&ring::digest::SHA256, &agent.certificate);
    let ocm = "system:open-cluster-management";
    let of_cluster = format!("{ocm}:cluster:c1:addon:telemetry");
    let subject = format!("CN={of_cluster}:agent:telemetry,O={ocm}:addon:telemetry,O={of_cluster}");
    let hash = data_encoding::HEXLOWER.encode(hash.as_ref());
    let names = "DNS=telemetry.addon.open-cluster-management.io";
    let mut expected = vec![
        format!("client-cert: :{certificate}:"),
        format!("x-forwarded-client-cert: Hash={hash};Subject=\"{subject}\";{names}"),
        "content-length: 3".to_owned(),
        format!("host: {host}"),
        "x-addon-signer-addon: telemetry".to_owned(),
        "x-addon-signer-agent: telemetry".to_owned(),
        "x-addon-signer-cluster: c1".to_owned(),
        "x-addon-signer-route: observability/receive".to_owned(),
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
        ("/", 404, "no-route"),
        ("/crl/telemetry.crl", 404, "no-route"),
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
        assert_eq!(answer.problem(), (502, "backend".to_owned()));
        assert!(!answer.body.contains(&address.port().to_string()), "{}", answer.body);
    }
}

#[tokio::test]
async fn the_endpoints_of_a_service_are_not_on_loopback() {
    let mapped = |port| format!("[::ffff:127.0.0.1]:{port}").parse().unwrap();
    let address = backend::start().await;
    for address in [address, mapped(address.port())] {
        let by_address = mk_backend(address, Protocol::Http);
        for (is_by_address, expected) in [(true, StatusCode::OK), (false, StatusCode::BAD_GATEWAY)] {
            let backend = Backend { is_by_address, ..by_address.clone() };
            let route = Route { backend: Ok(Arc::new(backend)), ..route("/api", "http://127.0.0.1:1") };
            let world = GatewayWorld::start(vec![route]).await;
            let answer = world.connect(&world.agent()).await.get("/addons/telemetry/api").await;
            assert_eq!(answer.status, expected, "{address}");
        }
    }
}

#[tokio::test]
async fn a_route_without_a_backend_keeps_the_cause_from_agents() {
    let address = backend::start().await;
    let missing = Err("there is no Service receive".to_owned());
    let empty = Ok(Arc::new(Backend { addresses: Vec::new(), ..mk_backend(address, Protocol::Http) }));
    for backend in [missing, empty] {
        let world = GatewayWorld::start(vec![Route { backend, ..route("/api", "http://127.0.0.1:1") }]).await;
        let answer = world.connect(&world.agent()).await.get("/addons/telemetry/api").await;
        assert_eq!(answer.problem(), (503, "no-backend".to_owned()));
        assert!(!answer.body.contains("Service"), "{}", answer.body);
        assert_eq!(answer.headers["retry-after"], "1");
    }
}

#[tokio::test]
async fn a_backend_that_is_slow_is_given_up() {
    let backend = format!("http://{}", backend::start().await);
    let short = Duration::from_millis(300);
    let limits = RouteLimits { first_byte: short, idle: short, ..LIMITS };
    let hasty = Route { limits, ..route("/api", &backend) };
    let world = GatewayWorld::start(vec![hasty]).await;
    let mut connection = world.connect(&world.agent()).await;
    let started = Instant::now();
    let answer = connection.get("/addons/telemetry/api/never").await;
    assert_eq!(answer.problem(), (504, "backend-slow".to_owned()));
    assert!(started.elapsed() < Duration::from_secs(2));
    // The backend stops in the middle: the body breaks off instead of ending normally.
    let mut body = connection.send(get("/addons/telemetry/api/one-tick")).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(body.frame().await.unwrap().is_err());
    assert!(started.elapsed() < Duration::from_secs(4));
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
    let small = Route { limits: RouteLimits { max_body: 100_000, ..LIMITS }, ..route("/api", &backend) };
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
        let request =
            Request::post("/addons/telemetry/api/upload").header("host", "gateway.example").body(body).unwrap();
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
    let answer = collect(h2.send_request(request).await.unwrap()).await;
    assert_eq!(answer.problem(), (421, "misdirected".to_owned()));
}

#[tokio::test]
async fn holder_of_a_tainted_authoritys_certificate_is_told_to_renew() {
    let world = GatewayWorld::start(Vec::new()).await;
    let mut trust = world.mk_trust();
    let mut changed = (*trust.signers[0]).clone();
    let authority = changed.client_anchors.authorities()[0].id().clone();
    changed.renew_within = [(authority, 75), ("0123456789abcdef".into(), 60)].into();
    trust.signers[0] = Arc::new(changed);
    trust.signers.sort_by(|one, other| one.name.cmp(&other.name));
    let tag = format!("\"{}\"", world.serving_ca.bundle().digest());
    world.trust.send_replace(Arc::new(trust));
    world.wait_until_applied().await;
    let mut connection = world.connect(&world.agent()).await;
    for (condition, expected) in [("\"x\"", StatusCode::OK), (&*tag, StatusCode::NOT_MODIFIED)] {
        let request = Request::get("/v1/bundle").header("if-none-match", condition).body(Full::default()).unwrap();
        let FullAnswer { status, headers, .. } = collect(connection.send(request).await.unwrap()).await;
        assert_eq!((status, &headers["x-addon-signer-renew-within"]), (expected, &HeaderValue::from_static("75")));
    }
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
        assert!(!headers.contains_key("x-addon-signer-renew-within"));
    }
    let answer = Request::post("/v1/bundle").body(Full::default()).unwrap();
    let answer = collect(connection.send(answer).await.unwrap()).await;
    assert_eq!(answer.problem(), (405, "method".to_owned()));
}
