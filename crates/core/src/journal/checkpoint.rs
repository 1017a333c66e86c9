//! A signed checkpoint. It proves that the rows up to its row are the same as when it was signed.

use data_encoding::BASE64;
use ring::rand::SecureRandom;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::journal::entry::Tip;
use crate::keys::private::{KeyError, PrivateKey};
use crate::keys::public::KeyKind;
use crate::timestamp::Timestamp;

/// SubjectPublicKeyInfo of an Ed25519 key without the 32 bytes of the key (RFC 8410 section 4).
const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A checkpoint as it is published: JSON with these members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The ledger's id, from its first entry.
    pub ledger: String,
    /// The number of the last entry that it vouches for.
    pub seq: u64,
    /// The hash of that entry, in hexadecimal.
    pub hash: String,
    /// When it was signed, RFC 3339.
    pub time: String,
    /// The Ed25519 key that signed it, as SubjectPublicKeyInfo in base64.
    pub key: String,
    /// The signature over [`Checkpoint::message`], in base64.
    pub signature: String,
}

/// Why a checkpoint is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The text is not the JSON of a checkpoint.
    #[error("it is not a signed checkpoint: {0}")]
    Unreadable(String),
    /// The key is not an Ed25519 key.
    #[error("its key is not an Ed25519 key in base64")]
    Key,
    /// The key did not make the signature.
    #[error("its signature is not valid")]
    Signature,
    /// Only Ed25519 keys sign checkpoints.
    #[error("a checkpoint is signed with an Ed25519 key, but this key is {0}")]
    Kind(KeyKind),
    /// The key could not sign.
    #[error(transparent)]
    Signing(#[from] KeyError),
}

impl Checkpoint {
    /// Signs a checkpoint for all entries up to `tip`.
    ///
    /// # Errors
    /// [`CheckpointError::Kind`] and [`CheckpointError::Signing`].
    pub fn sign(
        ledger: &str,
        tip: Tip,
        now: Timestamp,
        key: &PrivateKey,
        rng: &dyn SecureRandom,
    ) -> Result<Self, CheckpointError> {
        if key.kind() != KeyKind::Ed25519 {
            return Err(CheckpointError::Kind(key.kind()));
        }
        let mut checkpoint = Self {
            ledger: ledger.to_owned(),
            seq: tip.seq,
            hash: tip.hash.to_string(),
            time: now.to_string(),
            key: BASE64.encode(key.public_key_der()),
            signature: String::new(),
        };
        checkpoint.signature = BASE64.encode(&key.sign(&checkpoint.message(), rng)?);
        Ok(checkpoint)
    }

    /// Reads a checkpoint and verifies its signature with the embedded key. The caller must check whose key that is.
    pub fn read(json: &str) -> Result<Self, CheckpointError> {
        let checkpoint: Self =
            serde_json::from_str(json).map_err(|error| CheckpointError::Unreadable(error.to_string()))?;
        let key = BASE64.decode(checkpoint.key.as_bytes()).map_err(|_| CheckpointError::Key)?;
        let key = key.strip_prefix(&ED25519_SPKI).filter(|key| key.len() == 32).ok_or(CheckpointError::Key)?;
        let signature = BASE64.decode(checkpoint.signature.as_bytes()).map_err(|_| CheckpointError::Signature)?;
        UnparsedPublicKey::new(&ED25519, key)
            .verify(&checkpoint.message(), &signature)
            .map_err(|_| CheckpointError::Signature)?;
        Ok(checkpoint)
    }

    /// The signed bytes: a line that states their purpose, then ledger, number, hash and time, one line each.
    pub fn message(&self) -> Vec<u8> {
        let Self { ledger, seq, hash, time, key: _, signature: _ } = self;
        format!("addon-signer ledger head v1\n{ledger}\n{seq}\n{hash}\n{time}\n").into_bytes()
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        // Writing does not fail, because the struct has only integers and strings.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::entry::Hash;
    use ring::rand::SystemRandom;

    fn mk_checkpoint() -> Checkpoint {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::Ed25519, &rng).unwrap();
        let tip = Tip { seq: 7, hash: Hash::of("x"), time: Timestamp::from_unix(0) };
        Checkpoint::sign("abc", tip, Timestamp::from_unix(1_795_000_000), &key, &rng).unwrap()
    }

    #[test]
    fn a_checkpoint_is_read_back() {
        let checkpoint = mk_checkpoint();
        assert_eq!(Checkpoint::read(&checkpoint.json()), Ok(checkpoint));
    }

    #[test]
    fn an_altered_checkpoint_proves_nothing() {
        let checkpoint = mk_checkpoint();
        let altered = [
            Checkpoint { ledger: "abd".to_owned(), ..checkpoint.clone() },
            Checkpoint { seq: 8, ..checkpoint.clone() },
            Checkpoint { hash: Hash::of("y").to_string(), ..checkpoint.clone() },
            Checkpoint { time: "2026-11-18T11:06:41Z".to_owned(), ..checkpoint.clone() },
            Checkpoint { key: mk_checkpoint().key, ..checkpoint.clone() },
        ];
        for checkpoint in altered {
            assert_eq!(Checkpoint::read(&checkpoint.json()), Err(CheckpointError::Signature));
        }
        assert_eq!(
            Checkpoint::read(&Checkpoint { key: "eA==".to_owned(), ..checkpoint }.json()),
            Err(CheckpointError::Key)
        );
        assert!(matches!(Checkpoint::read("{}"), Err(CheckpointError::Unreadable(_))));
    }

    #[test]
    fn only_ed25519_signs_checkpoints() {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let signed = Checkpoint::sign("abc", Tip::EMPTY, Timestamp::from_unix(0), &key, &rng);
        assert_eq!(signed, Err(CheckpointError::Kind(KeyKind::EcdsaP256)));
    }
}
