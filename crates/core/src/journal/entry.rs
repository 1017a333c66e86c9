//! One entry: a line of JSON in one fixed form, and its hash.

use std::collections::BTreeMap;
use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::timestamp::Timestamp;

/// SHA-256 over the bytes of an entry's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    /// What stands in the first entry for the one before it.
    pub const ZERO: Self = Self([0; 32]);

    /// The hash of a text.
    pub fn of(text: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
        Self(hash)
    }

    /// A stored hash; `None` unless it has 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// 64 lower-case hexadecimal digits; `None` for anything else.
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
    /// Its number; 0 of an empty ledger.
    pub seq: u64,
    /// Its hash; [`Hash::ZERO`] of an empty ledger.
    pub hash: Hash,
    /// Its time; an entry is never older than the one before it.
    pub time: Timestamp,
}

impl Tip {
    /// Nothing was recorded yet.
    pub const EMPTY: Self = Self { seq: 0, hash: Hash::ZERO, time: Timestamp::from_unix(0) };
}

/// What an entry says, in the order of its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// 1 for the first, one more for each.
    pub seq: u64,
    /// The hash of the entry before, in hexadecimal.
    pub previous: String,
    /// RFC 3339 in UTC, whole seconds. Never before the entry before.
    pub time: String,
    /// What kind of decision it is; [`crate::journal::record`] has them.
    pub kind: String,
    /// The transition count of the Lease under which it was written.
    pub epoch: u64,
    /// Which process wrote it.
    pub replica: String,
    /// Who asked for it, where that is known.
    pub actor: String,
    /// What was decided, by name in byte order.
    pub details: BTreeMap<String, String>,
}

/// Why a text is not an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Not JSON with the members of an entry.
    #[error("it is not an entry: {0}")]
    Unreadable(String),
    /// The same content in another form.
    #[error("it is not in the one form that an entry has")]
    NotCanonical,
}

impl Entry {
    /// The text that is stored and hashed: one JSON object without white space, members in the order of the struct.
    pub fn text(&self) -> String {
        // A struct of integers and strings: nothing of it can fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a text, and refuses one that [`Entry::text`] would not have written.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn parse(text: &str) -> Result<Self, EntryError> {
        let entry: Self = serde_json::from_str(text).map_err(|error| EntryError::Unreadable(error.to_string()))?;
        if entry.text() == text { Ok(entry) } else { Err(EntryError::NotCanonical) }
    }

    /// One detail; empty where the entry has none of this name.
    pub fn detail(&self, name: &str) -> &str {
        self.details.get(name).map_or("", String::as_str)
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
        let expected = format!(
            r#"{{"seq":1,"previous":"{zeros}","time":"2026-11-20T23:10:11Z","kind":"opened","epoch":3,"replica":"hub-0","actor":"","details":{{"a":"","b":"x\n\u001fé\"\\"}}}}"#
        );
        assert_eq!(text, expected);
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
