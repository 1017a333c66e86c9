//! Backends that are the hub itself, or beside it. For that the test makes two networks of its own, with this process
//! in one and a backend in the other; where it may not, it passes at once.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use addon_signer_core::gateway::protected::{Addresses, ProtectedAddresses};
use addon_signer_core::gateway::route::{Backend, Protocol, Route};

use super::backend;
use test_kit::gateway::{GatewayWorld, SOON, mk_backend, route};
use test_kit::needed::{Needed, has};
use test_kit::wait_until;

/// Runs a command in a network with the addresses 198.51.100.1 and .2. It reaches another network, which has
/// 203.0.113.2 to .4 and a web server without any of the files that are asked for.
const NETWORKS: &str = r#"
set -e
ip link set lo up
ip address add 198.51.100.1/24 dev lo
ip address add 198.51.100.2/24 dev lo
unshare --net sh -c '
    until ip link set there up; do sleep 0.05; done
    for host in 2 3 4; do ip address add 203.0.113.$host/24 dev there; done
    exec python3 -m http.server 8080
' > /dev/null 2>&1 &
until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add here type veth peer name there netns $!
ip address add 203.0.113.1/24 dev here
ip link set here up
[ $# = 0 ] || exec "$@"
"#;

const INSIDE: &str = "ADDON_SIGNER_TEST_INSIDE";

/// Runs the rest of a command in networks that this script makes.
fn in_networks<'a>(script: &str, command: &'a mut Command) -> &'a mut Command {
    command.args(["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-c", script, "sh"])
}

/// Runs the test of this name in networks that this script makes, in a process of its own; inside, runs `test`. If this
/// process may not make networks, it passes.
pub(super) fn run_inside(script: &str, name: &str, test: impl Future<Output = ()>) {
    if std::env::var_os(INSIDE).is_some() {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
        return;
    }
    let made = in_networks(script, &mut Command::new("unshare")).output();
    if !has(Needed::Network, made.is_ok_and(|made| made.status.success())) {
        return;
    }
    let mut unshare = Command::new("unshare");
    let command = in_networks(script, &mut unshare).arg(std::env::current_exe().unwrap());
    let run = command.args([name, "--exact", "--nocapture"]).env(INSIDE, "yes").output().unwrap();
    let message = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{message}");
    assert!(message.contains("1 passed"), "{message}");
}

#[test]
fn connection_reaching_hub_or_its_namespace_carries_nothing() {
    let name = "gateway::protected::connection_reaching_hub_or_its_namespace_carries_nothing";
    run_inside(NETWORKS, name, inside());
}

async fn status(world: &GatewayWorld, path: &str) -> (u16, bool) {
    let answer = world.connect(&world.agent()).await.get(&format!("/addons/telemetry/{path}")).await;
    (answer.status.as_u16(), answer.headers.get("content-type").is_some_and(|kind| kind == "application/problem+json"))
}

async fn inside() {
    let own = backend::start_at(SocketAddr::from(([0, 0, 0, 0], 0))).await.port();
    let addresses = [
        ("own", format!("198.51.100.1:{own}")),
        ("own-second", format!("198.51.100.2:{own}")),
        ("pod", "203.0.113.2:8080".to_owned()),
        ("pod-as-v6", "[::ffff:203.0.113.2]:8080".to_owned()),
        ("service", "203.0.113.3:8080".to_owned()),
        ("elsewhere", "203.0.113.4:8080".to_owned()),
        ("loopback", format!("127.0.0.1:{own}")),
    ];
    let routes = |is_by_address| {
        let route = |(path, address): &(&str, String)| {
            let backend = Backend { is_by_address, ..mk_backend(address.parse().unwrap(), Protocol::Http) };
            Route { backend: Ok(Arc::new(backend)), ..route(&format!("/{path}"), "http://127.0.0.1:1") }
        };
        addresses.iter().map(route).collect::<Vec<_>>()
    };
    let (reached, refused, absent) = ((200, false), (502, true), (404, false));
    for is_by_address in [false, true] {
        let world = GatewayWorld::start(routes(is_by_address)).await;
        let serves = async || (status(&world, "elsewhere").await == absent).then_some(());
        wait_until(SOON, "the backend to serve", serves).await;
        let known = |address: &str| Some(Addresses::from([("a".to_owned(), vec![address.parse().unwrap()])]));
        world.protected.send_replace(ProtectedAddresses { pods: known("203.0.113.2"), services: None });
        assert_eq!(status(&world, "pod").await, refused, "Services are not listed yet");
        world.protected.send_replace(ProtectedAddresses { pods: known("203.0.113.2"), services: known("203.0.113.3") });
        assert_eq!(status(&world, "elsewhere").await, absent);
        for path in ["own", "own-second", "pod", "pod-as-v6", "service"] {
            assert_eq!(status(&world, path).await, refused, "{path}");
        }
        let of_loopback = if is_by_address { reached } else { refused };
        assert_eq!(status(&world, "loopback").await, of_loopback);
    }
}
