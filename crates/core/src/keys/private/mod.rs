//! A private key in memory. It signs, it is never printed, and it is wiped when dropped (invariant I9).

mod key_pem;

use std::fmt;

use der::asn1::AnyRef;
use ring::rand::SecureRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use zeroize::Zeroizing;

use crate::encoding::asn1;
use crate::encoding::pem::{Container, PemError};
use crate::keys::public::{self, KeyKind};

/// Why a key cannot be made, read or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The kind is RSA. RSA keys are read, but not made.
    #[error("a key of the kind {0} is not made here: use ECDSA-P256, ECDSA-P384 or Ed25519")]
    Kind(KeyKind),
    /// The key is of no supported kind, or it is inconsistent.
    #[error("the private key is not of the kind ECDSA-P256, ECDSA-P384, Ed25519 or RSA of 2048, 3072 or 4096 bits")]
    Unreadable,
    /// The text has no private key in PEM.
    #[error("there is no private key in PEM (PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE KEY)")]
    NotPem,
    /// The text is no PEM, but something known.
    #[error("it is {0}, and a private key in PEM is needed (PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE KEY)")]
    Container(Container),
    /// The text is PEM that cannot be read.
    #[error("{0}")]
    Damaged(PemError),
    /// The key is encrypted, and this program cannot ask for the passphrase.
    #[error("the private key is encrypted: decrypt it first (openssl pkey)")]
    Encrypted,
    /// The operating system gave no random bytes, or the operation failed inside ring.
    #[error("the key could not be made or used: the system gave no random bytes, or ring failed")]
    Random,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A key as ring holds it.
enum Held {
    Wiped(WipedPair),
    /// ring keeps it on the heap, in vectors that cannot be reached. Only authorities from outside have such keys.
    Rsa(Box<RsaKeyPair>),
}

/// Holds a ring key and overwrites its bytes on drop, because ring 0.17 leaves the scalar in freed memory.
struct WipedPair(Box<Pair>);

impl Drop for WipedPair {
    fn drop(&mut self) {
        const { assert!(!std::mem::needs_drop::<Pair>(), "a wiped pair is never dropped") };
        let pair: *mut Pair = &raw mut *self.0;
        // SAFETY: the pair is uniquely borrowed and never read again, because the box's own drop glue has nothing to
        // do for its content: ring's key pairs are arrays of integers and references to statics, without Drop, so
        // that any bit pattern may be deallocated. `zeroize_flat_type` asks for exactly that.
        #[expect(unsafe_code, reason = "ring offers no way to wipe a key; wiped_keys_leave_no_copy tests this one")]
        unsafe {
            zeroize::zeroize_flat_type(pair);
        }
    }
}

/// How much of the stack is wiped after an operation of ring, in bytes: three times what was found to be enough.
const STACK_BYTES: usize = 16 * 1024;

/// Overwrites the stack that `operation` has used, because ring leaves scalars, nonces and digest states there.
/// `operation` must not return a secret by value.
fn on_wiped_stack<T>(operation: impl FnOnce() -> T) -> T {
    let result = call(operation);
    wipe_stack();
    result
}

/// Has a separate stack frame below the caller's, so that the frame of `wipe_stack` covers it.
#[inline(never)]
fn call<T>(operation: impl FnOnce() -> T) -> T {
    operation()
}

#[inline(never)]
fn wipe_stack() {
    let zeros = [0_u8; STACK_BYTES];
    std::hint::black_box(&zeros);
}

/// A private key of a CA, the gateway or an agent, ready to sign.
pub struct PrivateKey {
    kind: KeyKind,
    pair: Held,
    raw_public: Vec<u8>,
    public_key_der: Vec<u8>,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, pair: _, raw_public: _, public_key_der: _ } = self;
        write!(f, "PrivateKey({kind}, private)")
    }
}

impl PrivateKey {
    /// Makes a new key. The PKCS#8 bytes are for the store, and are wiped when dropped.
    ///
    /// # Errors
    /// [`KeyError::Kind`] for RSA, [`KeyError::Random`] if the system has no random bytes.
    pub fn generate(kind: KeyKind, rng: &dyn SecureRandom) -> Result<(Self, Zeroizing<Vec<u8>>), KeyError> {
        let pkcs8 = on_wiped_stack(|| Self::generate_pkcs8(kind, rng))?;
        Ok((Self::from_pkcs8(&pkcs8, rng)?, pkcs8))
    }

    fn generate_pkcs8(kind: KeyKind, rng: &dyn SecureRandom) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let document = match kind {
            KeyKind::EcdsaP256 => EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_ASN1_SIGNING, rng),
            KeyKind::EcdsaP384 => EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P384_SHA384_ASN1_SIGNING, rng),
            KeyKind::Ed25519 => Ed25519KeyPair::generate_pkcs8(rng),
            KeyKind::Rsa2048 | KeyKind::Rsa3072 | KeyKind::Rsa4096 => return Err(KeyError::Kind(kind)),
        };
        Ok(Zeroizing::new(document.map_err(|_| KeyError::Random)?.as_ref().to_vec()))
    }

    /// Reads a PKCS#8 key of any supported kind.
    ///
    /// # Errors
    /// [`KeyError::Unreadable`], which has none of the bytes.
    pub fn from_pkcs8(pkcs8: &[u8], rng: &dyn SecureRandom) -> Result<Self, KeyError> {
        on_wiped_stack(|| Self::read_pkcs8(pkcs8, rng))
    }

    fn read_pkcs8(pkcs8: &[u8], rng: &dyn SecureRandom) -> Result<Self, KeyError> {
        let p256 = &signature::ECDSA_P256_SHA256_ASN1_SIGNING;
        let p384 = &signature::ECDSA_P384_SHA384_ASN1_SIGNING;
        let (kind, pair) = if let Ok(pair) = EcdsaKeyPair::from_pkcs8(p256, pkcs8, rng) {
            (KeyKind::EcdsaP256, Pair::Ecdsa(pair))
        } else if let Ok(pair) = EcdsaKeyPair::from_pkcs8(p384, pkcs8, rng) {
            (KeyKind::EcdsaP384, Pair::Ecdsa(pair))
        } else if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8) {
            (KeyKind::Ed25519, Pair::Ed25519(pair)) // OpenSSL writes it without the public key
        } else {
            return Self::read_rsa(pkcs8);
        };
        let raw_public = match &pair {
            Pair::Ecdsa(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        };
        let public_key_der = public::encode_public_key(kind, &raw_public).map_err(|_| KeyError::Unreadable)?;
        Ok(Self { kind, pair: Held::Wiped(WipedPair(Box::new(pair))), raw_public, public_key_der })
    }

    fn read_rsa(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let pair = RsaKeyPair::from_pkcs8(pkcs8).map_err(|_| KeyError::Unreadable)?;
        let raw_public = pair.public_key().as_ref().to_vec();
        let public_key_der = public::encode_rsa_public_key(&raw_public).map_err(|_| KeyError::Unreadable)?;
        let kind = KeyKind::of_public_key(&public_key_der).map_err(|_| KeyError::Unreadable)?;
        Ok(Self { kind, pair: Held::Rsa(Box::new(pair)), raw_public, public_key_der })
    }

    /// Reads a key in PEM, as OpenSSL, Go and cert-manager write it (PKCS#8, SEC 1 or PKCS#1), and returns its PKCS#8
    /// bytes too, which are wiped when dropped. Blocks before it that are no keys are skipped.
    ///
    /// # Errors
    /// [`KeyError::NotPem`], [`KeyError::Container`], [`KeyError::Damaged`], [`KeyError::Encrypted`] or
    /// [`KeyError::Unreadable`], which have none of the bytes.
    pub fn from_pem(text: &[u8], rng: &dyn SecureRandom) -> Result<(Self, Zeroizing<Vec<u8>>), KeyError> {
        let forms = key_pem::forms(text)?;
        let read = |pkcs8: Zeroizing<Vec<u8>>| Self::from_pkcs8(&pkcs8, rng).ok().map(|key| (key, pkcs8));
        forms.into_iter().find_map(read).ok_or(KeyError::Unreadable)
    }

    /// The kind of the key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// SubjectPublicKeyInfo.
    pub fn public_key_der(&self) -> &[u8] {
        &self.public_key_der
    }

    /// Signs `message` with the one algorithm of its kind.
    ///
    /// # Errors
    /// [`KeyError::Random`] if ring could not sign.
    pub fn sign(&self, message: &[u8], rng: &dyn SecureRandom) -> Result<Vec<u8>, KeyError> {
        on_wiped_stack(|| match &self.pair {
            Held::Wiped(pair) => match pair.0.as_ref() {
                Pair::Ecdsa(pair) => pair.sign(rng, message).map(|signature| signature.as_ref().to_vec()),
                Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            },
            Held::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, rng, message, &mut signature).map(|()| signature)
            }
        })
        .map_err(|_| KeyError::Random)
    }

    /// The signature algorithm: RFC 5758 for ECDSA and RFC 8410 for Ed25519, both without parameters; RFC 4055 for RSA,
    /// with NULL.
    pub(crate) fn algorithm(&self) -> asn1::Algorithm<'static> {
        let (oid, parameters) = match self.kind {
            KeyKind::EcdsaP256 => (asn1::ECDSA_SHA256, None),
            KeyKind::EcdsaP384 => (asn1::ECDSA_SHA384, None),
            KeyKind::Ed25519 => (asn1::ED25519, None),
            KeyKind::Rsa2048 | KeyKind::Rsa3072 | KeyKind::Rsa4096 => (asn1::RSA_SHA256, Some(AnyRef::NULL)),
        };
        asn1::Algorithm { oid, parameters }
    }
}

/// A key and the random numbers that it needs, in the form that rcgen needs for a self-signed certificate.
pub(crate) struct RcgenKey<'k> {
    pub(crate) key: &'k PrivateKey,
    pub(crate) rng: &'k dyn SecureRandom,
}

impl rcgen::PublicKeyData for RcgenKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        &self.key.raw_public
    }
    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        match self.key.kind {
            KeyKind::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
            KeyKind::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyKind::Rsa2048 | KeyKind::Rsa3072 | KeyKind::Rsa4096 => &rcgen::PKCS_RSA_SHA256,
        }
    }
}

impl rcgen::SigningKey for RcgenKey<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.key.sign(message, self.rng).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod memory_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;

    #[test]
    fn debug_of_a_key_shows_no_key() {
        let rng = SystemRandom::new();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        assert_eq!(format!("{key:?}"), "PrivateKey(ECDSA-P256, private)");
    }

    #[test]
    fn every_kind_survives_its_pkcs8() {
        let rng = SystemRandom::new();
        for kind in [KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::Ed25519] {
            let (key, pkcs8) = PrivateKey::generate(kind, &rng).unwrap();
            let again = PrivateKey::from_pkcs8(&pkcs8, &rng).unwrap();
            assert_eq!((again.kind(), again.public_key_der()), (kind, key.public_key_der()));
        }
        assert_eq!(PrivateKey::generate(KeyKind::Rsa2048, &rng).unwrap_err(), KeyError::Kind(KeyKind::Rsa2048));
        assert_eq!(PrivateKey::from_pkcs8(b"hello", &rng).unwrap_err(), KeyError::Unreadable);
    }
}
