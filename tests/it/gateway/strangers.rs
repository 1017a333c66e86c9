//! What strangers can take from clients: a place for a handshake for a moment, and no session.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use addon_signer_gateway::Limits;
use hyper::StatusCode;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use test_kit::gateway::{GatewayWorld, HOUR, SOON, signer};
use test_kit::issue::Ca;
use test_kit::wait_until;

/// Longer than a test: no stranger leaves because of its time.
const LONG: Duration = Duration::from_secs(60);

/// Connects from an address of loopback, and waits until the gateway has accepted.
async fn stranger(world: &GatewayWorld, source: [u8; 4]) -> TcpStream {
    let before = world.stats.connections.get();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((source, 0))).unwrap();
    let stranger = socket.connect(world.address).await.unwrap();
    let accepted = async || (world.stats.connections.get() > before).then_some(());
    wait_until(SOON, "the connection to be accepted", accepted).await;
    stranger
}

/// All have one source, as behind a load balancer.
#[tokio::test]
async fn strangers_hold_no_sessions() {
    let limits = Limits { max_connections: 2, max_handshakes: 1, handshake_timeout: LONG, ..Limits::default() };
    let world = GatewayWorld::start_with(Vec::new(), limits).await;
    let agent = world.agent();
    let mut first = world.connect(&agent).await;
    assert_eq!(first.get("/v1/whoami").await.status, StatusCode::OK);
    let mut strangers = Vec::new();
    for number in 0..12 {
        let mut stranger = stranger(&world, [127, 0, 0, 1]).await;
        if number % 2 == 0 {
            stranger.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap(); // the start of a ClientHello
        }
        strangers.push(stranger);
    }
    // Nobody has begun a handshake, so its place is free; it was not so when a silent stranger had it for a second.
    assert_eq!(world.try_get(Some(&agent), "/v1/whoami").await, Ok(StatusCode::OK));
    assert_eq!(first.get("/v1/whoami").await.status, StatusCode::OK);
    for refused in &mut strangers[..5] {
        refused.read_to_end(&mut Vec::new()).await.ok(); // a reset also ends the connection
    }
    assert_eq!(world.stats.handshakes_displaced.get(), 5, "eight may wait, and the agent was one of them");
    assert_eq!(world.stats.over_capacity.get(), 0);
}

#[tokio::test]
async fn flood_from_one_source_spares_handshakes_of_others() {
    let world = GatewayWorld::start_with(
        Vec::new(),
        Limits { max_handshakes: 1, handshake_timeout: LONG, ..Limits::default() },
    )
    .await;
    let honest = stranger(&world, [127, 0, 0, 2]).await;
    let mut flood = Vec::new();
    for _ in 0..20 {
        flood.push(stranger(&world, [127, 0, 0, 9]).await);
    }
    let config = Arc::new(world.client_config(Some(&world.agent())));
    let name = ServerName::IpAddress(world.address.ip().into());
    let mut tls = TlsConnector::from(config).connect(name, honest).await.unwrap();
    tls.write_all(b"GET /v1/whoami HTTP/1.1\r\nhost: gateway.example\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tls.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// The gateway refuses such a client while that is still sending. A close at once would reset the connection: then
/// writing fails, and many a client reports that instead of the alert.
#[tokio::test]
async fn a_client_that_is_still_sending_gets_the_alert() {
    let world = GatewayWorld::start(Vec::new()).await;
    let past = world.clock.now().minus(2 * HOUR);
    let expired = world.telemetry.client("c1", "telemetry", past, HOUR);
    let stranger = Ca::new("telemetry", past).client("c1", "telemetry", past, 3 * HOUR);
    for (leaf, alert) in [
        (Some(&expired), AlertDescription::CertificateExpired),
        (Some(&stranger), AlertDescription::UnknownCA),
        (None, AlertDescription::CertificateRequired),
    ] {
        let config = Arc::new(world.client_config(leaf));
        for _ in 0..50 {
            let mut tls = world.tls_shared(config.clone()).await.unwrap();
            tls.write_all(&[b'x'; 4000]).await.unwrap();
            tls.get_ref().0.readable().await.unwrap(); // the alert has come, and the client has not looked yet
            for _ in 0..4 {
                tls.write_all(&[b'x'; 4000]).await.unwrap();
            }
            let error = tls.read(&mut [0]).await.unwrap_err().downcast::<rustls::Error>().unwrap();
            assert_eq!(error, rustls::Error::AlertReceived(alert));
        }
    }
    // It waits for no client for long, and not for one that sends without end.
    let mut tls = world.tls(world.client_config(None)).await.unwrap();
    let endless = async { while tls.write_all(&[b'x'; 4000]).await.is_ok() {} };
    timeout(SOON, endless).await.expect("the gateway to close");
}

/// What the gateway tells a client before it knows who that is.
#[derive(Debug, Default)]
struct Hints(Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for Hints {
    fn resolve(&self, names: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap().extend(names.iter().map(|name| name.to_vec()));
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// rustls would put the name of each authority into the handshake, whose length does not fit for some 550 of them.
#[tokio::test]
async fn a_handshake_names_no_signer_however_many_there_are() {
    let world = GatewayWorld::start(Vec::new()).await;
    let mut trust = world.mk_trust();
    let ca = Ca::new("another", world.clock.now());
    trust.signers.extend((0..600).map(|number| signer(&format!("another{number}"), &ca)));
    world.trust.send_replace(Arc::new(trust));
    world.wait_until_applied().await;
    assert_eq!(world.try_get(Some(&world.agent()), "/v1/whoami").await, Ok(StatusCode::OK));
    let hints = Arc::new(Hints::default());
    let mut config = world.client_config(None);
    config.client_auth_cert_resolver = hints.clone();
    // With TLS 1.3 the client's side of the handshake ends before the gateway refuses it.
    drop(world.tls(config).await);
    assert_eq!(*hints.0.lock().unwrap(), Vec::<Vec<u8>>::new());
}
