//! Writes DER piece by piece, so that a case can make a piece wrong on purpose.

use der::Encode;
use der::asn1::ObjectIdentifier;

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const T61_STRING: u8 = 0x14;
pub(crate) const IA5_STRING: u8 = 0x16;
pub(crate) const BMP_STRING: u8 = 0x1e;
/// The attributes of a request: `[0]`, constructed.
pub(crate) const ATTRIBUTES: u8 = 0xa0;

/// A piece: tag, length in its shortest form, content.
pub(crate) fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=0x7f => out.push(short as u8),
        long => {
            let bytes: Vec<u8> = long.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    [out, content].concat()
}

/// A SEQUENCE or SET of pieces that are encoded already, in the order given.
pub(crate) fn list<P: AsRef<[u8]>>(tag: u8, items: &[P]) -> Vec<u8> {
    tlv(tag, &items.iter().map(AsRef::as_ref).collect::<Vec<_>>())
}

pub(crate) fn sequence<P: AsRef<[u8]>>(items: &[P]) -> Vec<u8> {
    list(SEQUENCE, items)
}

/// A SET OF, with its elements sorted as DER demands.
pub(crate) fn set(items: &[Vec<u8>]) -> Vec<u8> {
    let mut sorted = items.to_vec();
    sorted.sort();
    list(SET, &sorted)
}

pub(crate) fn oid(text: &str) -> Vec<u8> {
    ObjectIdentifier::new_unwrap(text).to_der().unwrap()
}

/// A BIT STRING of whole bytes.
pub(crate) fn bits(content: &[u8]) -> Vec<u8> {
    tlv(BIT_STRING, &[&[0], content])
}

/// The same constructed piece with an indefinite length, which BER allows and DER does not.
pub(crate) fn indefinite(piece: &[u8]) -> Vec<u8> {
    [&[piece[0], 0x80], body(piece), &[0, 0]].concat()
}

/// The same piece with its length in four bytes, which BER allows and DER does not.
pub(crate) fn long_length(piece: &[u8]) -> Vec<u8> {
    let content = body(piece);
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&[piece[0], 0x84], length.as_slice(), content].concat()
}

/// The same piece with `extra` after its last inner piece.
pub(crate) fn append(piece: &[u8], extra: &[u8]) -> Vec<u8> {
    tlv(piece[0], &[body(piece), extra])
}

/// The content of a piece with a definite length.
fn body(piece: &[u8]) -> &[u8] {
    match piece[1] {
        0..=0x7f => &piece[2..],
        long => &piece[2 + usize::from(long & 0x7f)..],
    }
}

/// The complete pieces inside a piece, if all lengths are definite.
pub(crate) fn children(piece: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = split(piece)?.1;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (header, content) = split(rest)?;
        let (child, tail) = rest.split_at(header + content.len());
        found.push(child);
        rest = tail;
    }
    Some(found)
}

/// The length of the header of the first piece, and its content.
fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (header, length) = match *bytes.get(1)? {
        short @ 0..=0x7f => (2, usize::from(short)),
        0x81 => (3, usize::from(*bytes.get(2)?)),
        0x82 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        _ => return None,
    };
    Some((header, bytes.get(header..)?.get(..length)?))
}
