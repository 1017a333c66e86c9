//! What is shown best by much of it. `just soak` runs the long forms, a quarter of an hour; otherwise they are short.

use std::path::Path;

use addon_signer_core::gateway::route::{Protocol, Route, RouteLimits};
use test_kit::gateway::{GatewayWorld, LIMITS};
use test_kit::process::command_that_dies_with_us;
use test_kit::soak::soak;

use super::{Files, Peers, message, roomy};

async fn ping_pong(arguments: &[&str]) {
    let Some(peers) = Peers::find() else { return };
    let server = peers.serve(&["grpc-server"]).await;
    let world = GatewayWorld::start_with(vec![server.route(Protocol::H2c)], roomy()).await;
    let message = peers.call(&world, &[&["grpc-soak"], arguments].concat()).await;
    eprintln!("{message}");
    assert!(message.starts_with("ok ping_pong"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_streams_go_on_for_as_long_as_they_like() {
    ping_pong(&["--rounds=16", soak("--lasts=10m", "--lasts=2s")]).await;
}

/// gRPC waits until the gateway has room for a further stream.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_streams_share_a_connection() {
    ping_pong(&[soak("--rounds=10000", "--rounds=1000"), soak("--lasts=1m", "--lasts=1s")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_gibibytes_passes_both_ways() {
    let Some(peers) = Peers::find() else { return };
    let server = peers.serve(&["http-server"]).await;
    let bytes: u64 = soak(10 << 30, 256 << 20);
    let limits = RouteLimits { max_body: bytes, ..LIMITS };
    let world = GatewayWorld::start(vec![Route { limits, ..server.route(Protocol::Http) }]).await;
    let dir = tempfile::tempdir().unwrap();
    let Files { cert, key, ca } = Files::write(dir.path(), &world);
    let agent = format!("--cert {} --key {} --cacert {}", cert.display(), key.display(), ca.display());
    for version in ["--http1.1", "--http2"] {
        let curl = format!("curl --silent --show-error {version} {agent}");
        let url = format!("https://{}", world.address);
        let download = format!("{curl} '{url}/download?bytes={bytes}' | wc --bytes");
        let upload = format!("head --bytes={bytes} /dev/zero | {curl} --upload-file - --request POST '{url}/upload'");
        for (script, expected) in [(download, format!("{bytes}\n")), (upload, format!("{bytes} bytes\n"))] {
            let mut command = command_that_dies_with_us(None, Path::new("sh"));
            command.args(["-c", &script]);
            assert_eq!(message(command).await, expected, "{script}");
        }
    }
}
