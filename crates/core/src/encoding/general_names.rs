//! Encodes subject alternative names (RFC 5280 section 4.2.1.6) for certificates and requests.

use std::net::IpAddr;

use der::asn1::{AnyRef, ContextSpecific, Ia5StringRef, OctetStringRef};
use der::{Decode, Encode, TagMode, TagNumber};

/// GeneralNames with DNS names and addresses. `None` if there are none, because the sequence must not be empty.
pub(crate) fn encode(dns_names: &[String], addresses: &[IpAddr]) -> Result<Option<Vec<u8>>, der::Error> {
    let dns = dns_names.iter().map(|name| implicit(2, Ia5StringRef::new(name)?.as_bytes()));
    let ips = addresses.iter().map(|address| match address {
        IpAddr::V4(v4) => implicit(7, &v4.octets()),
        IpAddr::V6(v6) => implicit(7, &v6.octets()),
    });
    let names = dns.chain(ips).collect::<Result<Vec<_>, _>>()?;
    if names.is_empty() { Ok(None) } else { sequence(&names).map(Some) }
}

/// A primitive value with the context-specific tag `number` instead of its own tag.
pub(crate) fn implicit(number: u32, content: &[u8]) -> Result<Vec<u8>, der::Error> {
    let value = OctetStringRef::new(content)?;
    ContextSpecific { tag_number: TagNumber(number), tag_mode: TagMode::Implicit, value }.to_der()
}

/// A SEQUENCE of encoded values.
pub(crate) fn sequence(items: &[Vec<u8>]) -> Result<Vec<u8>, der::Error> {
    items.iter().map(|item| AnyRef::from_der(item)).collect::<Result<Vec<_>, _>>()?.to_der()
}
