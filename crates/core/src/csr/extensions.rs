//! The extension request of a PKCS#10 CSR: read strictly, each extension once and in DER.

use std::net::IpAddr;

use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier};
use der::{Decode, Encode};

use super::CsrError;
use crate::encoding::asn1;

/// The content of the extension request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedExtensions {
    /// DNS names of the SAN.
    pub dns_names: Vec<String>,
    /// IP addresses of the SAN.
    pub ip_addresses: Vec<IpAddr>,
    /// Kinds of the other SAN entries.
    pub other_names: Vec<&'static str>,
    /// Whether BasicConstraints asks for CA:TRUE or a path length.
    pub ca: bool,
    /// Names of the bits of KeyUsage.
    pub key_usages: Vec<&'static str>,
    /// Object identifiers of ExtendedKeyUsage.
    pub extended_key_usages: Vec<String>,
    /// Object identifiers of extensions other than the four above.
    pub unknown: Vec<String>,
}

pub(super) fn read_attributes(info: &asn1::RequestInfo<'_>) -> Result<RequestedExtensions, CsrError> {
    let mut requested = None;
    for attribute in info.attributes.iter() {
        if attribute.oid != asn1::EXTENSION_REQUEST {
            return Err(CsrError::UnknownAttribute(attribute.oid.to_string()));
        }
        if attribute.values.is_empty() {
            return Err(CsrError::Malformed("the extension request has no value".to_owned())); // RFC 2986: SIZE (1..MAX)
        }
        for value in attribute.values.iter() {
            if requested.is_some() {
                return Err(CsrError::DuplicateExtensionRequest);
            }
            requested = Some(read_extensions(value)?);
        }
    }
    Ok(requested.unwrap_or_default())
}

fn read_extensions(value: &AnyRef<'_>) -> Result<RequestedExtensions, CsrError> {
    let mut requested = RequestedExtensions::default();
    let mut seen: Vec<ObjectIdentifier> = Vec::new();
    for value in value.decode_as::<Vec<AnyRef<'_>>>()? {
        let extension: asn1::Extension<'_> = value.decode_as()?;
        check_der(&extension.oid, &extension, &value.to_der()?)?;
        if seen.contains(&extension.oid) {
            return Err(CsrError::DuplicateExtension(extension.oid.to_string()));
        }
        seen.push(extension.oid);
        read_extension(&mut requested, &extension)?;
    }
    Ok(requested)
}

/// Refuses a value that `der` reads, and writes in another way: it also reads a default that is spelled out.
fn check_der<T: Encode>(oid: &ObjectIdentifier, read: &T, bytes: &[u8]) -> Result<(), CsrError> {
    if read.to_der()? == bytes { Ok(()) } else { Err(CsrError::ExtensionNotDer(oid.to_string())) }
}

fn read_extension(requested: &mut RequestedExtensions, extension: &asn1::Extension<'_>) -> Result<(), CsrError> {
    let value = extension.value.as_bytes();
    match extension.oid {
        asn1::SUBJECT_ALT_NAME => read_alt_names(requested, value),
        asn1::KEY_USAGE => {
            let bits = BitStringRef::from_der(value).map_err(|_| CsrError::MalformedExtension("key usage"))?;
            requested.key_usages = key_usages(&bits);
            if ends_with_a_one(&bits) { Ok(()) } else { Err(CsrError::ExtensionNotDer(extension.oid.to_string())) }
        }
        asn1::EXTENDED_KEY_USAGE => {
            let malformed = || CsrError::MalformedExtension("extended key usage");
            let oids = Vec::<ObjectIdentifier>::from_der(value).map_err(|_| malformed())?;
            if oids.is_empty() {
                return Err(malformed()); // RFC 5280: SIZE (1..MAX)
            }
            requested.extended_key_usages = oids.iter().map(ToString::to_string).collect();
            Ok(())
        }
        asn1::BASIC_CONSTRAINTS => {
            let constraints = asn1::BasicConstraints::from_der(value)
                .map_err(|_| CsrError::MalformedExtension("basic constraints"))?;
            requested.ca = constraints.ca || constraints.path_length.is_some();
            check_der(&extension.oid, &constraints, value)
        }
        other => {
            requested.unknown.push(other.to_string());
            Ok(())
        }
    }
}

/// The names of the bits of KeyUsage, in their order (RFC 5280 section 4.2.1.3).
const KEY_USAGES: [&str; 9] = [
    "digital signature",
    "content commitment",
    "key encipherment",
    "data encipherment",
    "key agreement",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
];

fn key_usages(bits: &BitStringRef<'_>) -> Vec<&'static str> {
    let named = |(index, set)| if set { Some(KEY_USAGES.get(index).copied().unwrap_or("unknown")) } else { None };
    bits.bits().enumerate().filter_map(named).collect()
}

/// Whether the last used bit is a one and all unused bits are zero, as DER demands of bits that have names (X.690
/// section 11.2). `der` checks neither.
fn ends_with_a_one(bits: &BitStringRef<'_>) -> bool {
    bits.raw_bytes().last().is_none_or(|last| last.trailing_zeros() == u32::from(bits.unused_bits()))
}

/// The kinds of GeneralName by tag number (RFC 5280 section 4.2.1.6).
const GENERAL_NAMES: [&str; 9] = [
    "other name",
    "email address",
    "DNS name",
    "X.400 address",
    "directory name",
    "EDI party name",
    "URI",
    "IP address",
    "registered ID",
];

fn read_alt_names(requested: &mut RequestedExtensions, value: &[u8]) -> Result<(), CsrError> {
    let malformed = || CsrError::MalformedExtension("subject alternative name");
    let names = Vec::<AnyRef<'_>>::from_der(value).map_err(|_| malformed())?;
    if names.is_empty() {
        return Err(malformed()); // RFC 5280: SIZE (1..MAX)
    }
    for name in names {
        let tag = der::Tagged::tag(&name);
        // Only structures have a constructed tag: 0, 3 and 5 are sequences, and 4 is a CHOICE (RFC 5280).
        let structure = matches!(tag.number().value(), 0 | 3 | 4 | 5);
        if tag.class() != der::Class::ContextSpecific || tag.is_constructed() != structure {
            return Err(malformed());
        }
        match (tag.number().value(), name.value()) {
            (2, bytes) if bytes.is_ascii() => requested.dns_names.push(String::from_utf8_lossy(bytes).into_owned()),
            (7, bytes) => requested.ip_addresses.push(ip_address(bytes).ok_or_else(malformed)?),
            (number, _) => {
                let kind = usize::try_from(number).ok().and_then(|index| GENERAL_NAMES.get(index));
                requested.other_names.push(kind.copied().ok_or_else(malformed)?);
            }
        }
    }
    Ok(())
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_usages_are_named_in_the_order_of_their_bits() {
        let names = |der: &[u8]| key_usages(&BitStringRef::from_der(der).unwrap());
        assert_eq!(names(&[3, 2, 5, 0xa0]), ["digital signature", "key encipherment"]);
        assert_eq!(names(&[3, 2, 1, 6]), ["cert sign", "crl sign"]);
        assert_eq!(names(&[3, 3, 7, 0, 0x80]), ["decipher only"]);
        assert_eq!(names(&[3, 3, 6, 0, 0x40]), ["unknown"]);
        assert_eq!(names(&[3, 1, 0]), [""; 0]);
    }

    fn not_der<T>(oid: &str) -> Result<T, CsrError> {
        Err(CsrError::ExtensionNotDer(oid.to_owned()))
    }

    #[test]
    fn an_extension_that_is_not_in_der_is_refused() {
        let read_one = |extension: &[u8]| {
            let length = u8::try_from(extension.len()).unwrap();
            let list = [&[0x30, length + 2, 0x30, length], extension].concat();
            read_extensions(&AnyRef::from_der(&list).unwrap())
        };
        let usage =
            |bits: &[u8]| read_one(&[b"\x06\x03\x55\x1d\x0f\x04\x04", bits].concat()).map(|read| read.key_usages);
        assert_eq!(usage(&[3, 2, 5, 0xa0]), Ok(vec!["digital signature", "key encipherment"]));
        assert_eq!(usage(&[3, 2, 4, 0xa0]), not_der("2.5.29.15"));
        assert_eq!(usage(&[3, 2, 5, 0xa1]), not_der("2.5.29.15"));
        assert_eq!(usage(&[3, 2, 0, 0x00]), not_der("2.5.29.15"));
        let constraints = |tail: &[u8]| read_one(&[b"\x06\x03\x55\x1d\x13", tail].concat()).map(|read| read.ca);
        assert_eq!(constraints(b"\x04\x02\x30\x00"), Ok(false));
        assert_eq!(constraints(b"\x01\x01\xff\x04\x02\x30\x00"), Ok(false));
        assert_eq!(constraints(b"\x01\x01\x00\x04\x02\x30\x00"), not_der("2.5.29.19"));
        assert_eq!(constraints(b"\x04\x05\x30\x03\x01\x01\x00"), not_der("2.5.29.19"));
    }
}
