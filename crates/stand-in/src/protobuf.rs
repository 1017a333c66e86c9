//! Reads the protobuf bodies that kubectl sends. Pure.
//!
//! kubectl 1.32 writes its typed requests (`certificate approve`, `create secret`, …) as
//! `application/vnd.kubernetes.protobuf` and does not fall back to JSON on 415. Kubernetes' protobuf
//! is `k8s\0` followed by a `runtime.Unknown` whose `raw` is the object. The field numbers below are
//! those of `generated.proto` in k8s.io/api and k8s.io/apimachinery 0.36. Fields that are not listed
//! are skipped. Answers are always JSON, which every client takes.

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

mod kinds;

use super::objects;
use kinds::{Field, KINDS, Type};

/// A protobuf body that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtobufError {
    #[error("the body does not start with the Kubernetes protobuf prefix")]
    Prefix,
    #[error("the protobuf body is truncated or malformed")]
    Malformed,
    #[error("protobuf bodies of kind {0:?} are not read by this stand-in; send JSON")]
    Kind(String),
}

const PREFIX: &[u8] = b"k8s\0";
/// Messages nest five deep in what we read; anything deeper is not ours.
const DEPTH_LIMIT: usize = 16;

/// `runtime.Unknown`; `raw` is taken apart separately.
const UNKNOWN: &[Field] = &[(1, "typeMeta", Type::Message(&[(1, "apiVersion", Type::Text), (2, "kind", Type::Text)]))];

/// The JSON form of a protobuf body.
pub(super) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(PREFIX).ok_or(ProtobufError::Prefix)?;
    let unknown = message(envelope, UNKNOWN, 0)?;
    let raw = Reader(envelope)
        .find_map(|entry| match entry {
            Ok((2, Wire::Bytes(raw))) => Some(raw),
            _ => None,
        })
        .unwrap_or_default();
    let kind = objects::text(&unknown, "typeMeta.kind");
    let (_, fields) =
        KINDS.iter().find(|(known, _)| *known == kind).ok_or_else(|| ProtobufError::Kind(kind.to_owned()))?;
    let mut object = message(raw, fields, 0)?;
    for field in ["apiVersion", "kind"] {
        let value = objects::text(&unknown, &format!("typeMeta.{field}"));
        objects::set(&mut object, field, value);
    }
    Ok(object)
}

fn message(bytes: &[u8], fields: &[Field], depth: usize) -> Result<Value, ProtobufError> {
    if depth > DEPTH_LIMIT {
        return Err(ProtobufError::Malformed);
    }
    let mut object = Map::new();
    for entry in Reader(bytes) {
        let (number, wire) = entry?;
        if let Some((_, name, kind)) = fields.iter().find(|(n, _, _)| *n == number) {
            store(&mut object, name, *kind, &wire, depth)?;
        }
    }
    Ok(Value::Object(object))
}

fn store(
    object: &mut Map<String, Value>,
    name: &str,
    kind: Type,
    wire: &Wire<'_>,
    depth: usize,
) -> Result<(), ProtobufError> {
    let value = match kind {
        // Go writes empty strings of required fields; JSON's `omitempty` leaves them out.
        Type::Text | Type::Bytes if wire.bytes()?.is_empty() => return Ok(()),
        Type::Text => json!(wire.text()?),
        Type::Number => json!(wire.number()?.cast_signed()),
        Type::Bool => json!(wire.number()? != 0),
        Type::Bytes => json!(ByteString(wire.bytes()?.to_vec())),
        Type::Message(fields) => message(wire.bytes()?, fields, depth + 1)?,
        Type::Time => match time(wire.bytes()?)? {
            Some(time) => json!(time),
            None => return Ok(()),
        },
        Type::Texts => return push(object, name, json!(wire.text()?)),
        Type::Messages(fields) => {
            return push(object, name, message(wire.bytes()?, fields, depth + 1)?);
        }
        Type::TextMap => return entry(object, name, wire, Type::Text, depth),
        Type::BytesMap => return entry(object, name, wire, Type::Bytes, depth),
        Type::ListMap => {
            const ITEMS: Type = Type::Message(&[(1, "items", Type::Texts)]);
            return entry(object, name, wire, ITEMS, depth);
        }
    };
    object.insert(name.to_owned(), value);
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), ProtobufError> {
    match object.entry(name).or_insert_with(|| json!([])) {
        Value::Array(list) => list.push(value),
        _ => return Err(ProtobufError::Malformed),
    }
    Ok(())
}

/// One entry of a map: a message of key (1) and value (2).
fn entry(
    object: &mut Map<String, Value>,
    name: &str,
    wire: &Wire<'_>,
    kind: Type,
    depth: usize,
) -> Result<(), ProtobufError> {
    let fields = [(1, "key", Type::Text), (2, "value", kind)];
    let pair = message(wire.bytes()?, &fields, depth + 1)?;
    let key = objects::text(&pair, "key").to_owned();
    let value = pair.get("value").cloned().unwrap_or_else(|| json!(""));
    let value = value.get("items").cloned().unwrap_or(value);
    match object.entry(name).or_insert_with(|| json!({})) {
        Value::Object(map) => map.insert(key, value),
        _ => return Err(ProtobufError::Malformed),
    };
    Ok(())
}

/// `metav1.Time`: seconds (1) and nanoseconds (2), which JSON drops; the zero time is no time.
fn time(bytes: &[u8]) -> Result<Option<String>, ProtobufError> {
    let parts = message(bytes, &[(1, "seconds", Type::Number)], DEPTH_LIMIT)?;
    let seconds = parts.get("seconds").and_then(Value::as_i64);
    Ok(seconds.filter(|s| *s > 0).map(objects::timestamp))
}

/// One field's value on the wire.
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Wire<'a> {
    fn bytes(&self) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed => Err(ProtobufError::Malformed),
        }
    }

    fn text(&self) -> Result<&'a str, ProtobufError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ProtobufError::Malformed)
    }

    fn number(&self) -> Result<u64, ProtobufError> {
        match self {
            Self::Varint(number) => Ok(*number),
            Self::Bytes(_) | Self::Fixed => Err(ProtobufError::Malformed),
        }
    }
}

/// Iterates over the fields of a message; ends after the first malformed one.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, wire))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(ProtobufError::Malformed);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length-delimited field.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn mk_body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [PREFIX.to_vec(), field(1, &type_meta), field(2, raw)].concat()
    }

    #[test]
    fn a_secret_is_read() {
        let pair = [field(1, b"k"), field(2, b"v")].concat();
        let time = field(8, &[1 << 3, 0x80, 0x94, 0xeb, 0xdc, 0x03]);
        let meta = [field(1, b"s"), field(5, b""), time, field(11, &pair)].concat();
        let raw = [field(1, &meta), field(2, &pair), field(3, b"Opaque"), vec![5 << 3, 1]].concat();
        assert_eq!(
            decode(&mk_body("Secret", &raw)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
                "data": { "k": "dg==" },
                "metadata": { "name": "s", "labels": { "k": "v" },
                    "creationTimestamp": "2001-09-09T01:46:40Z" },
            })
        );
    }

    #[test]
    fn every_truncation_is_an_error_or_a_shorter_object_and_never_a_panic() {
        let meta = [field(1, b"s"), field(14, b"f"), field(14, b"g")].concat();
        let body = mk_body("Secret", &field(1, &meta));
        for length in 0..body.len() {
            let _ = decode(&body[..length]); // both outcomes are right
        }
        assert_eq!(decode(b"{}"), Err(ProtobufError::Prefix));
        assert_eq!(decode(&body[..body.len() - 1]), Err(ProtobufError::Malformed));
        let other = decode(&mk_body("Deployment", b""));
        assert_eq!(other, Err(ProtobufError::Kind("Deployment".into())));
    }
}
