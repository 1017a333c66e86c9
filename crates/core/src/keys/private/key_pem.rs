//! Finds the private key in a text of PEM blocks, and puts it into the one form that ring reads.

use der::asn1::{AnyRef, ObjectIdentifier, OctetStringRef};
use der::{Encode, Sequence};
use zeroize::Zeroizing;

use super::KeyError;
use crate::encoding::asn1;
use crate::encoding::pem::{self, PemError};

const MARK: &[u8] = b"Proc-Type: 4,ENCRYPTED";

/// PrivateKeyInfo, RFC 5208 section 5, without attributes.
#[derive(Sequence)]
struct PrivateKeyInfo<'a> {
    version: u8,
    algorithm: asn1::Algorithm<'a>,
    key: &'a OctetStringRef,
}

/// What the key of the text may be in PKCS#8. SEC 1 does not need to name the curve, so there is one for each. OpenSSL
/// may write the parameters of a curve before it.
pub(super) fn forms(text: &[u8]) -> Result<Vec<Zeroizing<Vec<u8>>>, KeyError> {
    let blocks = pem::blocks(text).map_err(|error| match error {
        PemError::Container(container) => KeyError::Container(container),
        PemError::NoBlock => KeyError::NotPem,
        damaged => KeyError::Damaged(damaged),
    })?;
    let block = blocks.iter().find(|block| block.label.ends_with("PRIVATE KEY")).ok_or(KeyError::NotPem)?;
    // The second is the older form of OpenSSL.
    let is_encrypted = block.whole.windows(MARK.len()).any(|window| window == MARK);
    if block.label == "ENCRYPTED PRIVATE KEY" || is_encrypted {
        return Err(KeyError::Encrypted);
    }
    let der = block.secret().map_err(KeyError::Damaged)?;
    let curve = |curve: ObjectIdentifier| wrap(asn1::EC_PUBLIC_KEY, AnyRef::from(&curve), &der);
    match block.label {
        "PRIVATE KEY" => Ok(vec![der]),
        "EC PRIVATE KEY" => Ok(vec![curve(asn1::CURVE_P256)?, curve(asn1::CURVE_P384)?]),
        "RSA PRIVATE KEY" => Ok(vec![wrap(asn1::RSA_ENCRYPTION, AnyRef::NULL, &der)?]),
        _ => Err(KeyError::NotPem),
    }
}

fn wrap(oid: ObjectIdentifier, parameters: AnyRef<'_>, key: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let algorithm = asn1::Algorithm { oid, parameters: Some(parameters) };
    let key = OctetStringRef::new(key).map_err(|_| KeyError::Unreadable)?;
    let info = PrivateKeyInfo { version: 0, algorithm, key };
    info.to_der().map(Zeroizing::new).map_err(|_| KeyError::Unreadable)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use crate::encoding::pem::PemError;
    use crate::keys::private::{KeyError, PrivateKey};
    use crate::keys::public::KeyKind;

    /// Made by OpenSSL 3.0: `genpkey`, and `pkey -traditional` for the older forms.
    const KEYS: [(KeyKind, &str); 7] = [
        (KeyKind::EcdsaP256, include_str!("../../../testdata/keys/p256-pkcs8.pem")),
        (KeyKind::EcdsaP256, include_str!("../../../testdata/keys/p256-sec1-with-parameters.pem")),
        (KeyKind::EcdsaP384, include_str!("../../../testdata/keys/p384-sec1.pem")),
        (KeyKind::Ed25519, include_str!("../../../testdata/keys/ed25519-pkcs8.pem")),
        (KeyKind::Rsa2048, include_str!("../../../testdata/keys/rsa2048-pkcs1.pem")),
        (KeyKind::Rsa3072, include_str!("../../../testdata/keys/rsa3072-pkcs8.pem")),
        (KeyKind::Rsa4096, include_str!("../../../testdata/keys/rsa4096-pkcs8.pem")),
    ];

    #[test]
    fn keys_of_openssl_are_read_in_every_form() {
        let rng = SystemRandom::new();
        for (kind, text) in KEYS {
            let (key, pkcs8) = PrivateKey::from_pem(text.as_bytes(), &rng).unwrap();
            let again = PrivateKey::from_pkcs8(&pkcs8, &rng).unwrap();
            assert_eq!((key.kind(), again.public_key_der()), (kind, key.public_key_der()));
            assert_eq!(KeyKind::of_public_key(key.public_key_der()), Ok(kind));
            assert!(!key.sign(b"message", &rng).unwrap().is_empty());
        }
    }

    #[test]
    fn lines_of_a_key_may_have_any_length() {
        let rng = SystemRandom::new();
        let text = KEYS[0].1;
        let mut lines = text.lines().collect::<Vec<_>>();
        let (first, last) = (lines.remove(0), lines.pop().unwrap());
        let digits = lines.concat();
        for length in [1, 32, 63, 76, digits.len()] {
            let content = digits.as_bytes().chunks(length).map(|line| std::str::from_utf8(line).unwrap());
            let content = content.collect::<Vec<_>>().join(" \r\n");
            let text = format!("{first}\r\n\r\n{content}\r\n{last}\r\n");
            assert!(PrivateKey::from_pem(text.as_bytes(), &rng).is_ok(), "{length}");
        }
    }

    #[test]
    fn what_is_no_usable_key_says_why() {
        let refused = |text: &str| PrivateKey::from_pem(text.as_bytes(), &SystemRandom::new()).unwrap_err();
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert_eq!(refused(encrypted), KeyError::Encrypted);
        let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
        assert_eq!(refused(older), KeyError::Encrypted);
        assert_eq!(refused(" \n"), KeyError::Damaged(PemError::Empty));
        for text in ["hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(refused(text), KeyError::NotPem, "{text}");
        }
        for (text, expected) in [
            ("PRIVATE KEY-----", KeyError::NotPem),
            ("-----BEGIN PRIVATE KEY-----", KeyError::Damaged(PemError::Boundary(1))),
            ("-----BEGIN PRIVATE KEY-----\n-----END ", KeyError::Damaged(PemError::Boundary(1))),
            ("-----BEGIN PRIVATE KEY-----\nAA!A\n-----END PRIVATE KEY-----", KeyError::Damaged(PemError::Damaged(1))),
        ] {
            assert_eq!(refused(text), expected, "{text}");
        }
        let p521 = include_str!("../../../testdata/keys/p521-pkcs8.pem");
        let small = include_str!("../../../testdata/keys/rsa1024-pkcs8.pem");
        assert_eq!([refused(p521), refused(small)], [KeyError::Unreadable, KeyError::Unreadable]);
    }
}
