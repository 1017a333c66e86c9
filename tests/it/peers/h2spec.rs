//! h2spec, which tests servers of HTTP/2 and HPACK against their RFCs, with its strict cases too.

use std::collections::BTreeSet;

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
    let mut always: Option<BTreeSet<String>> = None;
    let mut all = String::new();
    // On a busy machine a stream may have ended before the frame that h2spec sends on it. What is wrong is wrong twice.
    for _ in 0..3 {
        let report = peers.call(&world, &["h2spec"]).await;
        assert!(report.contains("146 tests, ") && report.contains(", 0 skipped"), "{report}");
        let failures = report.split_once("Failures:").map_or("", |(_, failures)| failures);
        let found = failures.lines().map(str::trim).filter(|line| line.starts_with('\u{d7}')).map(str::to_owned);
        let found: BTreeSet<_> = found.collect();
        always = Some(always.map_or_else(|| found.clone(), |before| &before & &found));
        all.push_str(failures);
        if always.iter().flatten().eq(KNOWN) {
            return;
        }
    }
    assert_eq!(Vec::from_iter(always.unwrap()), KNOWN, "{all}");
}
