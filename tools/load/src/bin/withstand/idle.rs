//! The memory and the CPU that connections need which are open and make no requests.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio_rustls::TlsConnector;

use crate::strangers::{connect, enrol, pair, raise_open_files, request, start_gateway};
use crate::world::World;
use addon_signer_load::measure::{cpu_ms, resident_mb};
use test_kit::process::Process;

const CONNECTIONS: u32 = 2_000;
const REST: Duration = Duration::from_secs(20);

pub(crate) async fn run(program: &Path) {
    raise_open_files();
    println!("\n| protocol | hub resident before / after, MB | KiB per connection | CPU of 1,000 at rest, ms/s |");
    println!("|---|---|---|---|");
    for protocol in ["http/1.1", "h2"] {
        let world = World::start(program).await;
        let (hub, gateway) = start_gateway(&world, &[format!("--gateway-identity-connections={CONNECTIONS}")]).await;
        let dir = world.hub.real().unwrap().dir();
        enrol(&world, "honest", dir).await;
        measure(protocol, &pair(dir, "honest", protocol.as_bytes()), gateway, &hub).await;
    }
}

async fn measure(protocol: &str, pair: &TlsConnector, gateway: SocketAddr, hub: &Process) {
    let mut open = vec![call(protocol, pair, gateway).await]; // makes what all share
    let before = resident_mb(hub.id());
    for _ in 1..CONNECTIONS {
        open.push(call(protocol, pair, gateway).await);
    }
    let after = resident_mb(hub.id());
    let worked = cpu_ms(hub.id());
    tokio::time::sleep(REST).await;
    let cpu = (cpu_ms(hub.id()) - worked) / REST.as_secs_f64() / f64::from(CONNECTIONS) * 1e3;
    let each = (after - before) * 1e6 / 1024.0 / f64::from(CONNECTIONS - 1);
    println!("| {protocol} | {before:.1} / {after:.1} | {each:.1} | {cpu:.1} |");
}

/// What keeps a connection open.
enum Open {
    H1 { _sender: http1::SendRequest<Full<Bytes>> },
    H2 { _sender: http2::SendRequest<Full<Bytes>> },
}

/// Makes one request on a new connection, which stays open.
async fn call(protocol: &str, pair: &TlsConnector, gateway: SocketAddr) -> Open {
    let io = TokioIo::new(connect(pair, gateway).await.unwrap());
    let (answer, open) = if protocol == "h2" {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        (sender.send_request(request()).await, Open::H2 { _sender: sender })
    } else {
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        (sender.send_request(request()).await, Open::H1 { _sender: sender })
    };
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.unwrap();
    open
}
