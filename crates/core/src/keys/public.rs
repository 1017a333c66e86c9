//! Public keys that may be certified: their kinds, and the check for weak keys.

use std::str::FromStr;

use der::{Decode, Encode};

use crate::encoding::asn1;
use crate::named;

named! {
    /// A kind of public key, in the order of preference.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum KeyKind {
        /// NIST P-256.
        EcdsaP256 = "ECDSA-P256",
        /// NIST P-384.
        EcdsaP384 = "ECDSA-P384",
        /// Ed25519, RFC 8410.
        Ed25519 = "Ed25519",
        /// RSA with a modulus of 2048 bits.
        Rsa2048 = "RSA-2048",
        /// RSA with a modulus of 3072 bits.
        Rsa3072 = "RSA-3072",
        /// RSA with a modulus of 4096 bits.
        Rsa4096 = "RSA-4096",
    }
    /// The name in an `AddOnSigner`.
    pub fn as_str(self) -> &'static str;
}

impl KeyKind {
    /// Reads SubjectPublicKeyInfo and finds its kind.
    ///
    /// # Errors
    /// [`PublicKeyError`] if the key is of an unknown kind, malformed or weak.
    pub fn of_public_key(der: &[u8]) -> Result<Self, PublicKeyError> {
        let info = asn1::PublicKeyInfo::from_der(der).map_err(|_| PublicKeyError::Malformed)?;
        let key = info.key.as_bytes().ok_or(PublicKeyError::Malformed)?;
        match info.algorithm.oid {
            asn1::EC_PUBLIC_KEY => curve_kind(&info.algorithm, key),
            asn1::ED25519 if info.algorithm.parameters.is_none() && key.len() == 32 => Ok(Self::Ed25519),
            asn1::RSA_ENCRYPTION if info.algorithm.parameters.is_some_and(|p| p.is_null()) => rsa_kind(key),
            asn1::ED25519 | asn1::RSA_ENCRYPTION => Err(PublicKeyError::Malformed),
            other => Err(PublicKeyError::UnknownAlgorithm(other.to_string())),
        }
    }
}

impl FromStr for KeyKind {
    type Err = PublicKeyError;
    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| PublicKeyError::UnknownAlgorithm(text.to_owned()))
    }
}

/// Why a public key is never certified, regardless of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// The key does not have the form of its algorithm.
    #[error("the public key is malformed")]
    Malformed,
    /// Not EC, RSA or Ed25519.
    #[error(
        "the key algorithm {0} is not supported: use ECDSA P-256 or P-384, Ed25519, or RSA of 2048, 3072 or 4096 bits"
    )]
    UnknownAlgorithm(String),
    /// A curve that is not P-256 or P-384.
    #[error("the key's curve {0} is not supported: use P-256 or P-384")]
    UnknownCurve(String),
    /// A modulus of another size.
    #[error("an RSA key of {0} bits is not supported: use 2048, 3072 or 4096")]
    RsaSize(usize),
    /// An exponent other than 65537 (CA/Browser Forum BR 6.1.6; Boulder's `goodkey` requires the same).
    #[error("the RSA key's public exponent is not 65537")]
    RsaExponent,
    /// The modulus is divisible by a small prime, because its generator was broken.
    #[error("the RSA key's modulus is divisible by {0}")]
    RsaSmallFactor(u32),
    /// The key has the structure of keys from Infineon's faulty library.
    #[error("the RSA key has the fingerprint of ROCA (CVE-2017-15361)")]
    RsaRoca,
}

fn curve_kind(algorithm: &asn1::Algorithm<'_>, point: &[u8]) -> Result<KeyKind, PublicKeyError> {
    let curve = algorithm.parameters.and_then(|any| any.decode_as().ok()).ok_or(PublicKeyError::Malformed)?;
    // Only uncompressed points (SEC 1 section 2.3.3): 0x04 and two coordinates. ring checks that the point is on the
    // curve when it verifies the signature.
    let (kind, length) = match curve {
        asn1::CURVE_P256 => (KeyKind::EcdsaP256, 65),
        asn1::CURVE_P384 => (KeyKind::EcdsaP384, 97),
        other => return Err(PublicKeyError::UnknownCurve(other.to_string())),
    };
    if point.len() == length && point.first() == Some(&4) { Ok(kind) } else { Err(PublicKeyError::Malformed) }
}

fn rsa_kind(key: &[u8]) -> Result<KeyKind, PublicKeyError> {
    let rsa = asn1::RsaPublicKey::from_der(key).map_err(|_| PublicKeyError::Malformed)?;
    let modulus = rsa.modulus.as_bytes();
    let leading = modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
    let kind = match (modulus.len() * 8).saturating_sub(leading) {
        2048 => KeyKind::Rsa2048,
        3072 => KeyKind::Rsa3072,
        4096 => KeyKind::Rsa4096,
        other => return Err(PublicKeyError::RsaSize(other)),
    };
    if rsa.exponent.as_bytes() != [1, 0, 1] {
        return Err(PublicKeyError::RsaExponent);
    }
    if let Some(prime) = SMALL_PRIMES.iter().find(|prime| remainder(modulus, **prime) == 0) {
        return Err(PublicKeyError::RsaSmallFactor(*prime));
    }
    if ROCA_PRIMES.iter().all(|prime| is_power_of_65537(remainder(modulus, *prime), *prime)) {
        return Err(PublicKeyError::RsaRoca);
    }
    Ok(kind)
}

/// Primes below 752, as Boulder's `goodkey` tests them.
const SMALL_PRIMES: [u32; 133] = small_primes();

/// The primes of Infineon's faulty generator for which the residue of a modulus is always a power of 65537
/// (Nemec et al., "The Return of Coppersmith's Attack", 2017): the fingerprint uses those below 168.
const ROCA_PRIMES: [u32; 17] = [11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157];

const fn small_primes() -> [u32; 133] {
    let mut primes = [0; 133];
    let mut count = 0;
    let mut candidate = 2;
    while count < primes.len() {
        let mut divisor = 2;
        while divisor * divisor <= candidate && candidate % divisor != 0 {
            divisor += 1;
        }
        if divisor * divisor > candidate {
            #[expect(clippy::indexing_slicing, reason = "evaluated at compile time, bounded by the loop")]
            {
                primes[count] = candidate;
            }
            count += 1;
        }
        candidate += 1;
    }
    primes
}

fn remainder(modulus: &[u8], prime: u32) -> u32 {
    modulus.iter().fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % prime)
}

fn is_power_of_65537(residue: u32, prime: u32) -> bool {
    let generator = 65537 % prime;
    let mut power = 1;
    for _ in 0..prime {
        if power == residue {
            return true;
        }
        power = power * generator % prime;
    }
    false
}

/// SubjectPublicKeyInfo for a raw public key of `kind` (an EC point or an Ed25519 key).
///
/// # Errors
/// [`PublicKeyError::UnknownAlgorithm`] for RSA, which has no raw form here; [`PublicKeyError::Malformed`] if the key
/// cannot be encoded.
pub(crate) fn encode_public_key(kind: KeyKind, raw: &[u8]) -> Result<Vec<u8>, PublicKeyError> {
    let (oid, curve) = match kind {
        KeyKind::EcdsaP256 => (asn1::EC_PUBLIC_KEY, Some(asn1::CURVE_P256)),
        KeyKind::EcdsaP384 => (asn1::EC_PUBLIC_KEY, Some(asn1::CURVE_P384)),
        KeyKind::Ed25519 => (asn1::ED25519, None),
        KeyKind::Rsa2048 | KeyKind::Rsa3072 | KeyKind::Rsa4096 => {
            return Err(PublicKeyError::UnknownAlgorithm(kind.to_string()));
        }
    };
    let key = der::asn1::BitStringRef::from_bytes(raw).map_err(|_| PublicKeyError::Malformed)?;
    let parameters = curve.as_ref().map(der::asn1::AnyRef::from);
    let info = asn1::PublicKeyInfo { algorithm: asn1::Algorithm { oid, parameters }, key };
    info.to_der().map_err(|_| PublicKeyError::Malformed)
}

/// SubjectPublicKeyInfo for an RSAPublicKey in DER (RFC 8017 appendix A.1.1).
///
/// # Errors
/// [`PublicKeyError::Malformed`] if the key cannot be encoded.
pub(crate) fn encode_rsa_public_key(key: &[u8]) -> Result<Vec<u8>, PublicKeyError> {
    let key = der::asn1::BitStringRef::from_bytes(key).map_err(|_| PublicKeyError::Malformed)?;
    let algorithm = asn1::Algorithm { oid: asn1::RSA_ENCRYPTION, parameters: Some(der::asn1::AnyRef::NULL) };
    asn1::PublicKeyInfo { algorithm, key }.to_der().map_err(|_| PublicKeyError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_primes_are_those_below_752() {
        assert_eq!(SMALL_PRIMES[..10], [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert_eq!(SMALL_PRIMES[132], 751);
    }

    #[test]
    fn remainders_are_those_of_the_whole_number() {
        assert_eq!(remainder(&[], 7), 0);
        assert_eq!(remainder(&[1, 0, 1], 65_521), 65_537 - 65_521);
        assert_eq!(remainder(&[0xff; 256], 3), 0);
        assert_eq!(remainder(&[0xff; 256], 257), 0);
        assert_eq!(remainder(&[&[0xff; 256][..], &[4]].concat(), 257), 4);
    }

    #[test]
    fn powers_of_65537_are_recognised() {
        // 65537 is 10 modulo 11, and the powers of 10 are 1 and 10.
        let powers: Vec<u32> = (0..11).filter(|residue| is_power_of_65537(*residue, 11)).collect();
        assert_eq!(powers, [1, 10]);
    }

    #[test]
    fn names_of_kinds_are_read_back() {
        for kind in KeyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("ecdsa-p256".parse::<KeyKind>().is_err());
    }
}
