//! Reads untrusted JSON in bounded memory. An object may be as large as an API server accepts, and a reader that keeps
//! all of it needs a dozen times as much memory as its text has bytes. Unwanted parts are skipped while reading, and
//! cost nothing.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Memory of an element of a list: lists grow to twice their size.
const ELEMENT: usize = 2 * size_of::<Value>();
/// Memory of an entry of an object in addition to its texts: the nodes of its tree may be half empty.
const ENTRY: usize = 2 * (size_of::<String>() + size_of::<Value>());
/// Memory of the first node of an object's tree, which holds eleven entries.
const NODE: usize = 11 * (size_of::<String>() + size_of::<Value>());
/// What an allocator needs in addition to a text.
const TEXT: usize = 16;
/// How deeply kept values may be nested: each level is a call, and serde_json gives up after 128 of them.
const DEPTH: u8 = 16;

/// What to keep of a value. A value of another kind is skipped.
#[derive(Debug)]
pub enum Keep {
    /// A text of at most this many bytes, a number or a boolean. A longer text is truncated.
    Scalar(usize),
    /// As much of the value as fits into about this many bytes, in memory and as JSON.
    All(usize),
    /// These fields of an object.
    Fields(&'static [(&'static str, Keep)]),
    /// These fields of an object in full, and as much of the others as fits into this many bytes.
    FieldsAnd(&'static [(&'static str, Keep)], usize),
    /// This many elements of a list, and this of each.
    Each(usize, &'static Keep),
}

/// What to keep of an object: the scalars of these names, each with at most so many bytes, and then of further fields
/// what is said: `keep!(64; "name", "uid"; "labels" => Keep::All(1024))`.
#[macro_export]
macro_rules! keep {
    ($most:expr; $($scalar:expr),+ $(,)? $(; $($name:expr => $kept:expr),+ $(,)?)?) => {
        $crate::bounded::Keep::Fields(&[
            $(($scalar, $crate::bounded::Keep::Scalar($most)),)+
            $($(($name, $kept),)+)?
        ])
    };
}

/// The kept part of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptValue {
    /// The value; `Null` if nothing was wanted of it.
    pub value: Value,
    /// Whether something that was wanted is missing, because it was too large.
    pub is_cut: bool,
}

/// Reads a value.
///
/// # Errors
/// The text is not JSON.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D, wanted: &'static Keep) -> Result<KeptValue, D::Error> {
    let cut = Cell::new(false);
    let value = KeepReader { wanted, cut: &cut }.deserialize(deserializer)?.unwrap_or_default();
    Ok(KeptValue { value, is_cut: cut.get() })
}

/// Reads the wanted parts of one value.
#[derive(Clone, Copy)]
struct KeepReader<'c> {
    wanted: &'static Keep,
    cut: &'c Cell<bool>,
}

impl<'c> KeepReader<'c> {
    fn of(self, wanted: &'static Keep) -> Self {
        Self { wanted, ..self }
    }

    fn scalar<E>(self, value: impl Into<Value>) -> Result<Option<Value>, E> {
        Ok(matches!(self.wanted, Keep::Scalar(_) | Keep::All(_)).then(|| value.into()))
    }

    fn fields<'de, A: MapAccess<'de>>(
        self,
        named: &'static [(&'static str, Keep)],
        others: Option<MemoryBudget<'_>>,
        mut entries: A,
    ) -> Result<Option<Value>, A::Error> {
        let mut map = Map::new();
        while let Some(field) = entries.next_key_seed(FieldReader { named, others })? {
            let (key, value) = match (field, others) {
                (KeptField::Named(key, wanted), _) => (key.to_owned(), entries.next_value_seed(self.of(wanted))?),
                (KeptField::Other(key), Some(budget)) => (key, entries.next_value_seed(budget)?),
                (KeptField::Other(_) | KeptField::Skipped, _) => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            map.extend(value.map(|value| (key, value)));
        }
        Ok(Some(Value::Object(map)))
    }
}

impl<'de> DeserializeSeed<'de> for KeepReader<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeepReader<'_> {
    type Value = Option<Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match *self.wanted {
            Keep::Scalar(most) => {
                let kept = text.get(..text.floor_char_boundary(most)).unwrap_or_default();
                self.cut.set(self.cut.get() || kept.len() < text.len());
                Ok(Some(kept.into()))
            }
            Keep::All(bytes) => MemoryBudget::new(&Cell::new(bytes), self.cut).visit_str(text),
            _ => Ok(None),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        match *self.wanted {
            Keep::All(bytes) => MemoryBudget::new(&Cell::new(bytes), self.cut).visit_seq(elements),
            Keep::Each(most, wanted) => {
                let mut list = Vec::new();
                while list.len() < most {
                    match elements.next_element_seed(self.of(wanted))? {
                        Some(element) => list.push(element.unwrap_or_default()),
                        None => return Ok(Some(Value::Array(list))),
                    }
                }
                if skip_elements(elements)? {
                    self.cut.set(true);
                }
                Ok(Some(Value::Array(list)))
            }
            _ => skip_elements(elements).map(|_| None),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        match *self.wanted {
            Keep::All(bytes) => MemoryBudget::new(&Cell::new(bytes), self.cut).visit_map(entries),
            Keep::Fields(named) => self.fields(named, None, entries),
            Keep::FieldsAnd(named, bytes) => {
                let left = Cell::new(bytes);
                self.fields(named, Some(MemoryBudget::new(&left, self.cut)), entries)
            }
            _ => skip_entries(entries).map(|_| None),
        }
    }
}

/// Which field of an object comes next.
enum KeptField {
    Named(&'static str, &'static Keep),
    Other(String),
    Skipped,
}

/// Reads the name of a field, and keeps it only if the field is kept.
struct FieldReader<'b> {
    named: &'static [(&'static str, Keep)],
    others: Option<MemoryBudget<'b>>,
}

impl<'de> DeserializeSeed<'de> for FieldReader<'_> {
    type Value = KeptField;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<KeptField, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldReader<'_> {
    type Value = KeptField;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<KeptField, E> {
        if let Some((name, wanted)) = self.named.iter().find(|(named, _)| *named == name) {
            return Ok(KeptField::Named(name, wanted));
        }
        let kept = self.others.filter(|budget| budget.take(ENTRY + TEXT + as_json(name)));
        Ok(kept.map_or(KeptField::Skipped, |_| KeptField::Other(name.to_owned())))
    }
}

/// The size of a text as JSON: whoever keeps it may write it again (RFC 8259 section 7).
fn as_json(text: &str) -> usize {
    let of_byte = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => "\\u0000".len(),
        _ => 1,
    };
    text.bytes().map(of_byte).sum()
}

/// Reads everything for as long as memory is left.
#[derive(Clone, Copy)]
struct MemoryBudget<'b> {
    left: &'b Cell<usize>,
    cut: &'b Cell<bool>,
    depth: u8,
}

impl<'b> MemoryBudget<'b> {
    fn new(left: &'b Cell<usize>, cut: &'b Cell<bool>) -> Self {
        Self { left, cut, depth: 0 }
    }

    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    /// Whether this much memory is left. If not, nothing is kept from here on.
    fn take(&self, bytes: usize) -> bool {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or(0));
        self.cut.set(self.cut.get() || left.is_none());
        left.is_some()
    }

    /// Whether values nested at this depth may be kept.
    fn is_open(&self) -> bool {
        self.depth < DEPTH && self.left.get() > 0
    }
}

impl<'de> DeserializeSeed<'de> for MemoryBudget<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MemoryBudget<'_> {
    type Value = Option<Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Some(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(Number::from_f64(value).into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.take(TEXT + as_json(text)).then(|| text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while self.is_open() {
            match elements.next_element_seed(self.deeper())? {
                Some(element) => list.extend(element.filter(|_| self.take(ELEMENT))),
                None => return Ok(Some(Value::Array(list))),
            }
        }
        if skip_elements(elements)? {
            self.cut.set(true);
        }
        Ok(Some(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = Map::new();
        while self.is_open() {
            let Some(key) = entries.next_key_seed(self.deeper())? else { return Ok(Some(Value::Object(map))) };
            let value = entries.next_value_seed(self.deeper())?;
            if let (Some(Value::String(key)), Some(value)) = (key, value)
                && self.take(if map.is_empty() { NODE } else { ENTRY })
            {
                map.insert(key, value);
            }
        }
        if skip_entries(entries)? {
            self.cut.set(true);
        }
        Ok(Some(Value::Object(map)))
    }
}

/// Skips the rest of a list. Returns whether there was one.
fn skip_elements<'de, A: SeqAccess<'de>>(mut elements: A) -> Result<bool, A::Error> {
    let mut any = false;
    while elements.next_element::<IgnoredAny>()?.is_some() {
        any = true;
    }
    Ok(any)
}

/// Skips the rest of an object. Returns whether there was one.
fn skip_entries<'de, A: MapAccess<'de>>(mut entries: A) -> Result<bool, A::Error> {
    let mut any = false;
    while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
        any = true;
    }
    Ok(any)
}

#[cfg(test)]
mod tests;
