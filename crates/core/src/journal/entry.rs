//! An entry of the ledger: a line of JSON in one fixed form, and its hash.

use std::collections::BTreeMap;
use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest;
use serde::{Deserialize, Serialize};

use super::record::{self, Topic};
use crate::timestamp::Timestamp;

/// SHA-256 over the bytes of an entry's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The `previous` of the first entry.
    pub const ZERO: Self = Self([0; 32]);

    /// The hash of a text.
    pub fn of(text: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
        Self(hash)
    }

    /// Reads a stored hash. `None` unless it has 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Reads 64 lower-case hexadecimal digits. `None` for any other text.
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let mut hash = [0; 32];
        if text.len() != 64 {
            return None;
        }
        HEXLOWER.decode_mut(text, &mut hash).ok()?;
        Some(Self(hash))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

/// The last entry of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tip {
    /// Its number; 0 for an empty ledger.
    pub seq: u64,
    /// Its hash; [`Hash::ZERO`] for an empty ledger.
    pub hash: Hash,
    /// Its time. The next entry never has an earlier time.
    pub time: Timestamp,
}

impl Tip {
    /// The tip of an empty ledger.
    pub const EMPTY: Self = Self { seq: 0, hash: Hash::ZERO, time: Timestamp::from_unix(0) };
}

/// An entry, with its members in the order of its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its number: 1 for the first entry, then one more for each.
    pub seq: u64,
    /// The hash of the entry before, in hexadecimal.
    pub previous: String,
    /// Its time: RFC 3339 in UTC, whole seconds. It is never earlier than that of the entry before.
    pub time: String,
    /// The kind of the decision; [`crate::journal::record`] lists the kinds.
    pub kind: String,
    /// The transition count of the Lease when it was written.
    pub epoch: u64,
    /// The process that wrote it.
    pub replica: String,
    /// The user or program that asked for the decision; empty if that is not known.
    pub actor: String,
    /// The details of the decision, by name in byte order.
    pub details: BTreeMap<String, String>,
}

/// Why a text is not an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The text is not JSON with the members of an entry.
    #[error("it is not an entry: {0}")]
    Unreadable(String),
    /// The text has the content of an entry, but another form.
    #[error("it is not in the canonical form of an entry")]
    NotCanonical,
}

impl Entry {
    /// The text that is stored and hashed: one JSON object without white space, members in the order of the struct.
    pub fn text(&self) -> String {
        // Writing does not fail, because the struct has only integers and strings.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a text, and refuses it if [`Entry::text`] would write it in another form.
    pub fn parse(text: &str) -> Result<Self, EntryError> {
        let entry: Self = serde_json::from_str(text).map_err(|error| EntryError::Unreadable(error.to_string()))?;
        if entry.text() == text { Ok(entry) } else { Err(EntryError::NotCanonical) }
    }

    /// The detail of this name; empty if the entry does not have it.
    pub fn detail(&self, name: &str) -> &str {
        self.details.get(name).map_or("", String::as_str)
    }

    /// What this entry sets, if it was written because that had changed.
    pub fn topic(&self) -> Option<Topic> {
        record::topic(&self.kind, &self.details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_entry() -> Entry {
        Entry {
            seq: 1,
            previous: Hash::ZERO.to_string(),
            time: "2026-11-20T23:10:11Z".to_owned(),
            kind: "opened".to_owned(),
            epoch: 3,
            replica: "hub-0".to_owned(),
            actor: String::new(),
            details: [("b", "x\n\u{1f}\u{e9}\"\\"), ("a", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        }
    }

    #[test]
    fn an_entry_has_one_form() {
        let text = mk_entry().text();
        let zeros = "0".repeat(64);
        let head = format!(r#"{{"seq":1,"previous":"{zeros}","time":"2026-11-20T23:10:11Z","kind":"opened","epoch":3"#);
        let tail = r#","replica":"hub-0","actor":"","details":{"a":"","b":"x\n\u001fé\"\\"}}"#;
        assert_eq!(text, head + tail);
        assert_eq!(Entry::parse(&text), Ok(mk_entry()));
    }

    #[test]
    fn other_forms_are_refused() {
        let text = mk_entry().text();
        for (from, to) in [(":1,", ": 1,"), ("é", "\\u00e9"), (r#""a":"","#, ""), (r#""epoch":3,"#, r#""epoch":03,"#)]
        {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            assert_ne!(Entry::parse(&other), Ok(mk_entry()), "{other}");
        }
        assert!(matches!(Entry::parse("{}"), Err(EntryError::Unreadable(_))));
        assert_eq!(Entry::parse(&text.replacen(":1,", ": 1,", 1)), Err(EntryError::NotCanonical));
    }

    #[test]
    fn hashes_are_read_strictly() {
        let hash = Hash::of("x");
        assert_eq!(Hash::from_hex(hash.to_string().as_bytes()), Some(hash));
        assert_eq!(Hash::from_hex(hash.to_string().to_uppercase().as_bytes()), None);
        assert_eq!(Hash::from_hex(b"00"), None);
        assert_eq!(Hash::from_bytes(&[0; 31]), None);
    }
}
