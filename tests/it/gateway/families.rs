//! What `[::]` means on nodes of other families than this machine's, in networks that the tests make.

use std::net::{Ipv6Addr, SocketAddr};

use addon_signer_platform::listen;
use tokio::net::TcpStream;

use super::protected::run_inside;

/// Whether a client at this address of loopback reaches who listens on `[::]`.
async fn is_reached_by(address: &str) -> bool {
    let listener = listen::bind((Ipv6Addr::UNSPECIFIED, 0).into(), Some(65_536)).unwrap();
    let to = SocketAddr::new(address.parse().unwrap(), listener.local_addr().unwrap().port());
    TcpStream::connect(to).await.is_ok()
}

#[test]
fn every_address_has_both_families_whatever_the_sysctl_says() {
    let script = "set -e; ip link set lo up; echo 1 > /proc/sys/net/ipv6/bindv6only; [ $# = 0 ] || exec \"$@\"";
    let name = "gateway::families::every_address_has_both_families_whatever_the_sysctl_says";
    run_inside(script, name, async {
        assert!(is_reached_by("127.0.0.1").await);
        assert!(is_reached_by("::1").await);
    });
}

#[test]
fn every_address_is_of_ipv4_where_no_interface_has_ipv6() {
    let script = "set -e; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ip link set lo up; \
                  [ $# = 0 ] || exec \"$@\"";
    let name = "gateway::families::every_address_is_of_ipv4_where_no_interface_has_ipv6";
    run_inside(script, name, async {
        assert!(is_reached_by("127.0.0.1").await);
        assert!(!is_reached_by("::1").await);
    });
}

#[test]
fn every_address_is_of_ipv6_where_loopback_has_no_ipv4() {
    let script = "set -e; ip link set lo up; ip -4 address flush dev lo; [ $# = 0 ] || exec \"$@\"";
    let name = "gateway::families::every_address_is_of_ipv6_where_loopback_has_no_ipv4";
    run_inside(script, name, async {
        assert!(!is_reached_by("127.0.0.1").await);
        assert!(is_reached_by("::1").await);
    });
}
