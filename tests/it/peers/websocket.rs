//! WebSockets of Go: coder/websocket on both sides.

use addon_signer_core::gateway::route::Protocol;
use test_kit::gateway::GatewayWorld;

use super::Peers;

#[tokio::test]
async fn websockets_carry_messages_pings_and_close_codes() {
    let Some(peers) = Peers::find() else { return };
    let server = peers.serve(&["ws-server"]).await;
    let world = GatewayWorld::start(vec![server.route(Protocol::Http)]).await;
    let message = peers.call(&world, &["ws-client", "--path=/addons/telemetry/chat?room=1"]).await;
    let expected = "\
ok plain messages
ok compressed messages
ok closed by the server with 1000
ok closed by the server with 1001
ok closed by the server with 4321
";
    assert_eq!(message, expected);
    server.says("closed: failed to get reader: received close frame: status = StatusNormalClosure").await;
}
