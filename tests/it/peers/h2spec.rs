//! h2spec, which tests servers of HTTP/2 and HPACK against their RFCs, with its strict cases too.

use addon_signer_core::gateway::route::Protocol;
use test_kit::gateway::GatewayWorld;

use super::Peers;

/// What it finds: hyper-util's `serve_connection_with_upgrades` ignores `http2_only`, so a connection that has chosen
/// h2 (ALPN) may speak HTTP/1.1.
const KNOWN: [&str; 1] = ["\u{d7} 2: Sends invalid connection preface"];

#[tokio::test]
async fn h2spec_finds_nothing_new() {
    let Some(peers) = Peers::find() else { return };
    let server = peers.serve(&["http-server"]).await;
    let world = GatewayWorld::start(vec![server.route(Protocol::Http)]).await;
    let report = peers.call(&world, &["h2spec"]).await;
    let failures = report.split_once("Failures:").map_or("", |(_, failures)| failures);
    let found: Vec<_> = failures.lines().map(str::trim).filter(|line| line.starts_with('\u{d7}')).collect();
    assert_eq!(found, KNOWN, "{failures}");
    assert!(report.trim_end().ends_with("146 tests, 145 passed, 0 skipped, 1 failed"), "{report}");
}
