//! A signed head: who has it can tell that the rows up to it are the ones that were there when it was made.

use data_encoding::BASE64;
use ring::rand::SecureRandom;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::journal::entry::Tip;
use crate::keys::private::{KeyError, PrivateKey};
use crate::keys::public::KeyKind;
use crate::timestamp::Timestamp;

/// SubjectPublicKeyInfo of an Ed25519 key up to its 32 bytes (RFC 8410 section 4).
const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// What is published, as JSON with these members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The ledger's id, from its first entry.
    pub ledger: String,
    /// The last entry that it vouches for.
    pub seq: u64,
    /// That entry's hash, in hexadecimal.
    pub hash: String,
    /// When it was signed, RFC 3339.
    pub time: String,
    /// The Ed25519 key that signed, as SubjectPublicKeyInfo in base64.
    pub key: String,
    /// Over [`Head::message`], in base64.
    pub signature: String,
}

/// Why a head proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Not the JSON of a head.
    #[error("it is not a signed head: {0}")]
    Unreadable(String),
    /// The key is not an Ed25519 key.
    #[error("its key is not an Ed25519 key in base64")]
    Key,
    /// The signature is not the key's.
    #[error("its signature is not good")]
    Signature,
    /// Only Ed25519 keys sign heads.
    #[error("a head is signed with an Ed25519 key, and this key is {0}")]
    Kind(KeyKind),
    /// The key could not sign.
    #[error(transparent)]
    Signing(#[from] KeyError),
}

impl Head {
    /// Vouches for everything up to `tip`.
    ///
    /// # Errors
    /// [`HeadError::Kind`] and [`HeadError::Signing`].
    pub fn sign(
        ledger: &str,
        tip: Tip,
        now: Timestamp,
        key: &PrivateKey,
        rng: &dyn SecureRandom,
    ) -> Result<Self, HeadError> {
        if key.kind() != KeyKind::Ed25519 {
            return Err(HeadError::Kind(key.kind()));
        }
        let mut head = Self {
            ledger: ledger.to_owned(),
            seq: tip.seq,
            hash: tip.hash.to_string(),
            time: now.to_string(),
            key: BASE64.encode(key.public_key_der()),
            signature: String::new(),
        };
        head.signature = BASE64.encode(&key.sign(&head.message(), rng)?);
        Ok(head)
    }

    /// Reads a head and checks its signature by the key in it. Whose key that is, its reader must know.
    ///
    /// # Errors
    /// [`HeadError`].
    pub fn read(json: &str) -> Result<Self, HeadError> {
        let head: Self = serde_json::from_str(json).map_err(|error| HeadError::Unreadable(error.to_string()))?;
        let key = BASE64.decode(head.key.as_bytes()).map_err(|_| HeadError::Key)?;
        let key = key.strip_prefix(&ED25519_SPKI).filter(|key| key.len() == 32).ok_or(HeadError::Key)?;
        let signature = BASE64.decode(head.signature.as_bytes()).map_err(|_| HeadError::Signature)?;
        UnparsedPublicKey::new(&ED25519, key).verify(&head.message(), &signature).map_err(|_| HeadError::Signature)?;
        Ok(head)
    }

    /// The bytes that are signed: a line that says what they are, then ledger, number, hash and time, a line each.
    pub fn message(&self) -> Vec<u8> {
        let Self { ledger, seq, hash, time, key: _, signature: _ } = self;
        format!("addon-signer ledger head v1\n{ledger}\n{seq}\n{hash}\n{time}\n").into_bytes()
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        // Integers and strings: nothing of it can fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::entry::Hash;
    use ring::rand::SystemRandom;

    fn mk_head() -> Head {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
        let tip = Tip { seq: 7, hash: Hash::of("x"), time: Timestamp::from_unix(0) };
        Head::sign("abc", tip, Timestamp::from_unix(1_795_000_000), &key, &rng).unwrap()
    }

    #[test]
    fn a_head_is_read_back() {
        let head = mk_head();
        assert_eq!(Head::read(&head.json()), Ok(head));
    }

    #[test]
    fn an_altered_head_proves_nothing() {
        let head = mk_head();
        let altered = [
            Head { ledger: "abd".to_owned(), ..head.clone() },
            Head { seq: 8, ..head.clone() },
            Head { hash: Hash::of("y").to_string(), ..head.clone() },
            Head { time: "2026-11-18T11:06:41Z".to_owned(), ..head.clone() },
            Head { key: mk_head().key, ..head.clone() },
        ];
        for head in altered {
            assert_eq!(Head::read(&head.json()), Err(HeadError::Signature));
        }
        assert_eq!(Head::read(&Head { key: "eA==".to_owned(), ..head }.json()), Err(HeadError::Key));
        assert!(matches!(Head::read("{}"), Err(HeadError::Unreadable(_))));
    }

    #[test]
    fn only_ed25519_signs_heads() {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let signed = Head::sign("abc", Tip::EMPTY, Timestamp::from_unix(0), &key, &rng);
        assert_eq!(signed, Err(HeadError::Kind(KeyKind::EcdsaP256)));
    }
}
