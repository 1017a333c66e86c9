//! The interoperability tests of gRPC, by grpc-go on both sides.

use addon_signer_core::gateway::route::{Backend, BackendTls, Protocol};
use test_kit::gateway::{GatewayWorld, mk_backend};
use test_kit::issue::Ca;

use super::{Peers, roomy, route_to};

/// Its cases are the lines of what the client says.
const CASES: &str = "\
ok empty_unary
ok large_unary
ok client_streaming
ok server_streaming
ok ping_pong
ok empty_stream
ok cancel_after_begin
ok cancel_after_first_response
ok timeout_on_sleeping_server
ok status_code_and_message
ok special_status_message
ok custom_metadata
ok unimplemented_method
ok unimplemented_service
";

#[tokio::test]
async fn grpc_go_passes_its_interop_tests_over_h2c() {
    let Some(peers) = Peers::find() else { return };
    let server = peers.serve(&["grpc-server"]).await;
    let world = GatewayWorld::start_with(vec![server.route(Protocol::H2c)], roomy()).await;
    assert_eq!(peers.call(&world, &["grpc-client"]).await, CASES);
}

#[tokio::test]
async fn grpc_go_passes_its_interop_tests_over_tls() {
    let Some(peers) = Peers::find() else { return };
    let world = GatewayWorld::start_with(Vec::new(), roomy()).await;
    let ca = Ca::new("backends", world.clock.now());
    let [cert, key] = peers.pair(&ca.server(&["grpc.svc"], &[], world.clock.now()), "backend");
    let server = peers.serve(&["grpc-server", &cert, &key]).await;
    let anchors = vec![ca.authority().certificate().clone()];
    let tls = BackendTls { anchors: anchors.into(), server_name: "grpc.svc".to_owned(), client_certificate: false };
    for protocol in [Protocol::H2, Protocol::Https] {
        world.set_routes(vec![route_to(Backend { tls: Some(tls.clone()), ..mk_backend(server.address, protocol) })]);
        assert_eq!(peers.call(&world, &["grpc-client"]).await, CASES, "{protocol:?}");
    }
}

#[tokio::test]
async fn grpc_go_passes_them_many_times_side_by_side() {
    let Some(peers) = Peers::find() else { return };
    let server = peers.serve(&["grpc-server"]).await;
    let world = GatewayWorld::start_with(vec![server.route(Protocol::H2c)], roomy()).await;
    assert_eq!(peers.call(&world, &["grpc-client", "--rounds=20"]).await, CASES);
}
