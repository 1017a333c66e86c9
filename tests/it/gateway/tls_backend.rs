//! Backends over TLS.

use addon_signer_core::gateway::route::{Backend, BackendTls, Protocol};
use hyper::{Request, StatusCode};

use super::http_backend::{HttpBackend, mk_server_tls, mk_tls, route_to, text};
use test_kit::gateway::{GatewayWorld, collect, get, mk_backend};
use test_kit::issue::Ca;

/// Answers with the version of HTTP.
async fn start(ca: &Ca, world: &GatewayWorld, alpn: &[&str]) -> HttpBackend {
    let tls = mk_server_tls(ca, world, alpn);
    HttpBackend::start_with(Some(tls), async |request: Request<_>| text(format!("{:?}", request.version()))).await
}

fn backend(address: &HttpBackend, protocol: Protocol, tls: BackendTls) -> Backend {
    Backend { tls: Some(tls), ..mk_backend(address.address, protocol) }
}

#[tokio::test]
async fn the_backend_chooses_the_version_of_http() {
    let world = GatewayWorld::start(Vec::new()).await;
    let ca = Ca::new("backends", world.clock.now());
    for (protocol, alpn, expected) in [
        (Protocol::Https, &["h2", "http/1.1"][..], Some("HTTP/2.0")),
        (Protocol::Https, &["http/1.1"], Some("HTTP/1.1")),
        (Protocol::Https, &[], Some("HTTP/1.1")),
        (Protocol::H2, &["h2"], Some("HTTP/2.0")),
        (Protocol::H2, &[], None),
        (Protocol::Wss, &["h2", "http/1.1"], Some("HTTP/1.1")),
    ] {
        let address = start(&ca, &world, alpn).await;
        world.set_routes(vec![route_to(backend(&address, protocol, mk_tls(&ca, "receive.svc")))]);
        for _ in 0..3 {
            let answer = world.connect(&world.agent()).await.get("/x").await;
            match expected {
                Some(expected) => {
                    assert_eq!((answer.status, &*answer.body), (StatusCode::OK, expected), "{protocol:?}")
                }
                None => assert_eq!(answer.problem(), (502, "backend".to_owned())),
            }
        }
        assert!(expected.is_none() || address.connections() == 1, "{protocol:?} {alpn:?}");
    }
}

#[tokio::test]
async fn a_backend_with_another_certificate_gets_no_request() {
    let world = GatewayWorld::start(Vec::new()).await;
    let [ca, other] = ["backends", "others"].map(|name| Ca::new(name, world.clock.now()));
    let address = start(&ca, &world, &[]).await;
    let shows_certificate = BackendTls { client_certificate: true, ..mk_tls(&ca, "receive.svc") };
    for (tls, expected) in [
        (mk_tls(&ca, "other.svc"), (502, "backend".to_owned())),
        (mk_tls(&other, "receive.svc"), (502, "backend".to_owned())),
        (BackendTls { anchors: Vec::new(), ..mk_tls(&ca, "receive.svc") }, (502, "backend".to_owned())),
        (shows_certificate, (503, "no-backend".to_owned())),
    ] {
        world.set_routes(vec![route_to(backend(&address, Protocol::Https, tls))]);
        let answer = world.connect(&world.agent()).await.send(get("/x")).await.unwrap();
        assert_eq!(collect(answer).await.problem(), expected);
    }
}
