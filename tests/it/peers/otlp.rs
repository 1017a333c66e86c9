//! OpenTelemetry's exporters of metrics, and a receiver made of its protocol.

use addon_signer_core::gateway::route::Protocol;
use test_kit::gateway::GatewayWorld;

use super::Peers;

/// The receiver refuses the first time. How the exporter learns when to come back is in the details of a status of
/// gRPC, or in a header: both must pass.
#[tokio::test]
async fn otlp_arrives_after_the_pause_that_its_receiver_wants() {
    let Some(peers) = Peers::find() else { return };
    let world = GatewayWorld::start(Vec::new()).await;
    for (over, protocol) in [("grpc", Protocol::H2c), ("http", Protocol::Http), ("http", Protocol::H2c)] {
        let over_flag = format!("--over={over}");
        let server = peers.serve(&["otlp-receive", &over_flag]).await;
        world.set_routes(vec![server.route(protocol)]);
        let message = peers.call(&world, &["otlp-send", &over_flag, "--path=/addons/telemetry/v1/metrics"]).await;
        assert_eq!(message, format!("ok exported over {over}\n"), "{protocol:?}");
        assert_eq!(server.says("received").await, format!("received over {over}: answers = 42"), "{protocol:?}");
    }
}
