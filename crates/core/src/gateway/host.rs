//! Hosts and the names of a gateway, compared as addresses and names: an IPv6 address has many spellings.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// An address, or a DNS name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name in lower case, without a final dot.
    Name(String),
}

/// The text is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a DNS name or an IP address, without a port")]
pub struct NoHost;

impl Host {
    /// The host of an authority, which may have a port (RFC 3986 section 3.2). Only IPv6 addresses have brackets, and a
    /// port has no zeros before it: backends get what was sent, and may read such text differently.
    #[must_use]
    pub fn of_authority(authority: &str) -> Option<Self> {
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                (Self::Address(address.parse::<Ipv6Addr>().ok()?.into()), port)
            }
            None => {
                let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
                (host.parse().ok()?, port)
            }
        };
        let is_port = |text: &str| text.is_empty() || text.parse::<u16>().is_ok_and(|port| port.to_string() == text);
        let is_sound = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        is_sound.then_some(host)
    }
}

impl FromStr for Host {
    type Err = NoHost;

    /// Reads a host as people write it, an IPv6 address with or without brackets.
    fn from_str(text: &str) -> Result<Self, NoHost> {
        if let Some(address) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().map(|address| Self::Address(address.into())).map_err(|_| NoHost);
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if name.split('.').all(is_label) { Ok(Self::Name(name.to_ascii_lowercase())) } else { Err(NoHost) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_host_is_the_same_host() {
        for (spellings, read) in [
            (&["2001:db8::7", "2001:DB8:0:0::7", "[2001:0db8::0007]", "2001:db8::0.0.0.7"][..], "2001:db8::7"),
            (&["::1", "0:0:0:0:0:0:0:1", "[::0:1]"], "::1"),
            (&["192.0.2.7"], "192.0.2.7"),
            (&["Gateway.Example", "gateway.example."], "gateway.example"),
            (&["localhost", "LOCALHOST."], "localhost"),
            (&["a_b.1-2"], "a_b.1-2"),
        ] {
            for spelling in spellings {
                let host: Host = spelling.parse().unwrap();
                assert_eq!((&host, &*host.to_string()), (&read.parse().unwrap(), read), "{spelling}");
            }
        }
        assert_ne!("::ffff:192.0.2.7".parse::<Host>(), "192.0.2.7".parse());
    }

    #[test]
    fn text_that_is_no_host_is_refused() {
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a..",
            "*",
            "*.a",
            "a b",
            "a:1",
            "a/b",
            "u@a",
            "é",
            "[a]",
            "[192.0.2.7]",
            "[::1",
            "::1]",
            "[[::1]]",
            "fe80::1%eth0",
            "::g",
            "1:2",
            "192.0.2.7:1",
            "[::1]:1",
        ] {
            assert_eq!(text.parse::<Host>(), Err(NoHost), "{text}");
        }
    }

    #[test]
    fn an_authority_is_a_host_and_perhaps_a_port() {
        for (authority, host) in [
            ("Gateway.Example:8443", "gateway.example"),
            ("gateway.example.:1", "gateway.example"),
            ("gateway.example:", "gateway.example"),
            ("192.0.2.7:65535", "192.0.2.7"),
            ("[2001:DB8:0::7]:443", "2001:db8::7"),
            ("[::1]", "::1"),
        ] {
            assert_eq!(Host::of_authority(authority), host.parse().ok(), "{authority}");
        }
        for authority in [
            "",
            ":1",
            "a:b",
            "a:+1",
            "a:65536",
            "a:-1",
            "a:1:1",
            "a:1@b",
            "u@a",
            "a/b",
            "::1",
            "2001:db8::7:443",
            "[::1]1",
            "[::1]:1]",
            "[127.0.0.1]",
            "[127.0.0.1]:1",
            "[a]:1",
            "[fe80::1%25eth0]",
            "a:01",
            "127.0.0.1:0443",
        ] {
            assert_eq!(Host::of_authority(authority), None, "{authority}");
        }
        let many = format!("127.0.0.1:{}1", "0".repeat(1_000));
        assert_eq!([Host::of_authority(&many), Host::of_authority(&format!("[{many}"))], [None, None]);
    }
}
