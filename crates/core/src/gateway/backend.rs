//! Decides which addresses a backend may have. Pure functions.
//!
//! The author of an AddOnRoute chooses a Service, and the author of its EndpointSlices chooses the addresses. The
//! gateway must not give agents access to what only the hub's own pod or node can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The well-known prefix of NAT64 (RFC 6052): the last four bytes are an IPv4 address.
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];
/// The prefix for NAT64 inside a network (RFC 8215). Its operator chooses where in it the IPv4 address is.
const LOCAL_NAT64: [u16; 3] = [0x64, 0xff9b, 1];
/// AWS serves metadata and credentials below this prefix: instances at fd00:ec2::254, pods at fd00:ec2::23.
const AWS_SERVICES: [u16; 2] = [0xfd00, 0x0ec2];
/// The metadata services of clouds that are not on link-local addresses: Alibaba, Azure, Oracle, Google.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// An address that no backend may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {kind}, which no backend may have")]
pub struct RefusedAddress {
    /// The address, as it was given.
    pub address: IpAddr,
    /// What kind of address it is, with an article.
    pub kind: &'static str,
}

/// Checks the address of a backend.
///
/// # Errors
/// The address is a loopback, link-local, metadata, multicast, broadcast or unspecified one, even if written as an IPv6
/// address that embeds an IPv4 address; or one in the network for local NAT64.
pub fn check(address: IpAddr) -> Result<(), RefusedAddress> {
    kind(address).map_or(Ok(()), |kind| Err(RefusedAddress { address, kind }))
}

const LOOPBACK: &str = "a loopback address";

fn kind(address: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&address) {
        return Some("the address of a cloud's metadata service");
    }
    match address {
        IpAddr::V4(v4) => kind_of_v4(v4),
        IpAddr::V6(v6) => kind_of_v6(v6),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> Option<&'static str> {
    if address.is_loopback() {
        Some(LOOPBACK)
    } else if address.is_link_local() {
        Some("a link-local address") // also 169.254.169.254, the metadata service of most clouds
    } else if address.octets()[0] == 0 {
        Some("an unspecified address") // 0.0.0.0/8, "this network" (RFC 1122); Linux connects 0.0.0.0 to loopback
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if address.is_broadcast() {
        Some("the broadcast address")
    } else {
        None
    }
}

fn kind_of_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        Some(LOOPBACK)
    } else if address.is_unspecified() {
        Some("an unspecified address")
    } else if address.is_unicast_link_local() {
        Some("a link-local address")
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if address.segments().starts_with(&AWS_SERVICES) {
        Some("the address of a cloud's metadata service")
    } else if address.segments().starts_with(&LOCAL_NAT64) {
        Some("an address of a local NAT64")
    } else {
        inside(address).and_then(|inner| kind(IpAddr::V4(inner)))
    }
}

/// The IPv4 address in an address, if there is one; otherwise the address itself.
pub(super) fn inner(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => inside(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The IPv4 address in an IPv4-mapped (`::ffff:0:0/96`), IPv4-compatible (`::/96`) or NAT64 address.
fn inside(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    if address.segments().starts_with(&NAT64) { Some(Ipv4Addr::new(a, b, c, d)) } else { address.to_ipv4() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK_LOCAL: Option<&str> = Some("a link-local address");
    const METADATA_SERVICE: Option<&str> = Some("the address of a cloud's metadata service");
    const MULTICAST: Option<&str> = Some("a multicast address");
    const UNSPECIFIED: Option<&str> = Some("an unspecified address");

    #[test]
    fn backends_have_no_address_that_only_the_hub_can_reach() {
        for (address, expected) in [
            ("127.0.0.1", Some(LOOPBACK)),
            ("127.255.255.254", Some(LOOPBACK)),
            ("::1", Some(LOOPBACK)),
            ("::ffff:127.0.0.1", Some(LOOPBACK)),
            ("::127.0.0.1", Some(LOOPBACK)),
            ("64:ff9b::127.0.0.1", Some(LOOPBACK)),
            ("169.254.0.1", LINK_LOCAL),
            ("169.254.169.254", LINK_LOCAL),
            ("::ffff:169.254.169.254", LINK_LOCAL),
            ("64:ff9b::a9fe:a9fe", LINK_LOCAL),
            ("fe80::1", LINK_LOCAL),
            ("febf::1", LINK_LOCAL),
            ("fd00:ec2::254", METADATA_SERVICE),
            ("fd00:ec2::23", METADATA_SERVICE),
            ("fd20:ce::254", METADATA_SERVICE),
            ("100.100.100.200", METADATA_SERVICE),
            ("168.63.129.16", METADATA_SERVICE),
            ("192.0.0.192", METADATA_SERVICE),
            ("::ffff:168.63.129.16", METADATA_SERVICE),
            ("0.0.0.0", UNSPECIFIED),
            ("0.1.2.3", UNSPECIFIED),
            ("::", UNSPECIFIED),
            ("::ffff:0.0.0.0", UNSPECIFIED),
            ("224.0.0.1", MULTICAST),
            ("239.255.255.255", MULTICAST),
            ("ff02::1", MULTICAST),
            ("::ffff:224.0.0.1", MULTICAST),
            ("255.255.255.255", Some("the broadcast address")),
            ("64:ff9b:1::7f00:1", Some("an address of a local NAT64")),
            ("64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Some("an address of a local NAT64")),
            ("64:ff9b:2::7f00:1", None),
            ("10.0.0.1", None),
            ("192.168.1.1", None),
            ("169.253.255.255", None),
            ("128.0.0.1", None),
            ("::ffff:10.0.0.1", None),
            ("64:ff9b::10.0.0.1", None),
            ("fd00:ec3::254", None),
            ("fec0::1", None),
            ("2001:db8::1", None),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(check(address).err().map(|refused| refused.kind), expected, "{address}");
        }
    }
}
