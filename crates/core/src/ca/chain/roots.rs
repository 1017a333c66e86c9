//! The roots that agents may trust for authorities below them.

use std::fmt;

use ring::digest::{SHA256, digest};

use super::{NotUsable, links};
use crate::ca::authority::Authority;
use crate::encoding::pem;

/// The roots that agents may trust.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roots(Vec<Authority>);

impl Roots {
    /// Reads certificates in PEM.
    ///
    /// # Errors
    /// [`NotUsable::Pem`] without a certificate or with anything else, [`NotUsable::Certificate`] or
    /// [`NotUsable::NoSubject`] if one cannot be an anchor.
    pub fn from_pem(text: &[u8]) -> Result<Self, NotUsable> {
        let certificates = pem::certificates(text)?;
        for (number, der) in (1..).zip(&certificates) {
            links::check_subject((number, &links::read(der)?))?;
        }
        Ok(Self(certificates.iter().map(|der| Authority::from_der(der)).collect::<Result<_, _>>()?))
    }

    /// Whether this very certificate is among them.
    pub fn has(&self, root: &Authority) -> bool {
        self.0.iter().any(|known| known.certificate() == root.certificate())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<&'a Authority> for Roots {
    fn from_iter<I: IntoIterator<Item = &'a Authority>>(roots: I) -> Self {
        let mut all = Self::default();
        for root in roots {
            if !all.has(root) {
                all.0.push(root.clone());
            }
        }
        all
    }
}

/// Each by its subject, and by what `openssl x509 -fingerprint -sha256` prints.
impl fmt::Display for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, root) in self.0.iter().enumerate() {
            let fingerprint = digest(&SHA256, root.certificate());
            let bytes: Vec<String> = fingerprint.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{:?} (SHA-256 {})", root.name(), bytes.join(":"))?;
        }
        Ok(())
    }
}
