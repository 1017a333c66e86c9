//! The agent's credentials as PEM: a certificate, its key, and the anchors of the gateway; and whether stored ones are
//! kept, renewed or replaced. Pure functions.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use ring::digest;
use ring::rand::SecureRandom;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use zeroize::Zeroizing;

use crate::ca::authority::AuthorityId;
use crate::ca::bundle::{Bundle, BundleError};
use crate::encoding::pem;
use crate::identity::{Convention, PeerIdentity};
use crate::keys::private::{KeyError, PrivateKey};
use crate::timestamp::Timestamp;

/// The name of the certificate in a Secret or a directory.
pub const CERTIFICATE: &str = "tls.crt";
/// The name of the private key.
pub const KEY: &str = "tls.key";
/// The name of the file with the anchors that the gateway's certificate must chain to.
pub const BUNDLE: &str = "ca.crt";

/// The three files, not checked yet. An absent file is empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `tls.crt`: one PEM block CERTIFICATE; further blocks are ignored.
    pub certificate: Vec<u8>,
    /// `tls.key`: one PEM block PRIVATE KEY (PKCS#8).
    pub key: Zeroizing<Vec<u8>>,
    /// `ca.crt`: PEM blocks CERTIFICATE.
    pub bundle: Vec<u8>,
}

impl Credentials {
    /// Each file with its name.
    pub fn files(&self) -> [(&'static str, &[u8]); 3] {
        [(CERTIFICATE, &self.certificate), (KEY, &self.key), (BUNDLE, &self.bundle)]
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate, key: _, bundle } = self;
        write!(f, "Credentials({} bytes of certificate, private key, {} bytes of CA)", certificate.len(), bundle.len())
    }
}

/// Renewal is due at a random point of the certificate's lifetime in this range, in ten-thousandths. So a fleet that
/// enrolled within one minute spreads its renewals over a tenth of the lifetime.
const RENEW_AT: (u64, u64) = (6_000, 7_000);

/// The identity that the certificate must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// CN.
    pub user: String,
    /// O: exactly these, in any order.
    pub groups: BTreeSet<String>,
    /// DNS names of the SAN: at least these, because the signer adds all names of its convention to a certificate.
    pub dns_names: BTreeSet<String>,
}

impl Wanted {
    /// What `convention` requires of `identity`.
    pub fn new(convention: &Convention, identity: &PeerIdentity) -> Self {
        let cluster = &identity.cluster;
        let addon = &identity.addon;
        Self {
            user: convention.user(identity),
            groups: convention.groups(cluster, addon).into_iter().collect(),
            dns_names: convention.dns_names(cluster, addon).into_iter().collect(),
        }
    }
}

/// Why stored credentials cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Nothing is stored.
    #[error("no certificate is stored")]
    Missing,
    /// One of the three files is absent or empty.
    #[error("{0} is missing or empty")]
    Absent(&'static str),
    /// The certificate is not PEM or not X.509.
    #[error("{CERTIFICATE} cannot be read as a certificate")]
    Certificate,
    /// The key is not PEM, or not of a kind that the agent makes.
    #[error("{KEY} cannot be used: {0}")]
    Key(KeyError),
    /// The key belongs to another certificate.
    #[error("{KEY} is not the key of {CERTIFICATE}")]
    KeyMismatch,
    /// The certificate has another identity.
    #[error("the certificate is for {0:?}, not for the expected user and groups")]
    OtherIdentity(String),
    /// A DNS name is missing from the certificate.
    #[error("the certificate lacks the DNS name {0:?}")]
    DnsName(String),
    /// TLS servers would refuse the certificate.
    #[error("the certificate is not for client authentication")]
    NotForClients,
    /// The certificate begins in the future by this machine's clock.
    #[error("the certificate is not valid before {0}; check this machine's clock")]
    NotYetValid(Timestamp),
    /// The certificate has expired.
    #[error("the certificate expired at {0}")]
    Expired(Timestamp),
    /// The gateway reports the certificate as revoked. The certificate itself does not show it.
    #[error("the certificate is revoked")]
    Revoked,
    /// The anchors cannot be used.
    #[error("ca.crt cannot be used: {0}")]
    Bundle(#[from] BundleError),
}

/// Credentials that are complete, consistent, valid now and of the wanted identity.
pub struct Usable {
    /// The certificate, DER.
    pub certificate: CertificateDer<'static>,
    /// The certificates that follow it, for servers that trust only the root above its authority.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its private key, PKCS#8, DER.
    pub pkcs8: Zeroizing<Vec<u8>>,
    /// The trust bundle of the gateway's lineage.
    pub bundle: Bundle,
    /// When renewal is due.
    pub renew_at: Timestamp,
    /// The last second in which the certificate is valid.
    pub not_after: Timestamp,
}

impl fmt::Debug for Usable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate: _, chain: _, pkcs8: _, bundle: _, renew_at, not_after } = self;
        write!(f, "Usable(private key, renew at {renew_at}, not after {not_after})")
    }
}

impl Usable {
    /// Whether the authority with this id (the last part of its name) signed the certificate.
    pub fn issued_by(&self, authority: &AuthorityId) -> bool {
        let parsed = X509Certificate::from_der(&self.certificate);
        parsed.is_ok_and(|(_, leaf)| leaf.issuer().to_string().ends_with(&format!(" {authority}")))
    }
}

/// What the agent must do.
#[derive(Debug)]
pub enum Plan {
    /// Do nothing before [`Usable::renew_at`].
    Keep(Usable),
    /// Get a new certificate. The old one is still good.
    Renew(Usable),
    /// Get a new certificate. There is no good old one.
    Enrol(Unusable),
}

/// Decides what to do with the stored credentials at the time `now`.
pub fn plan(stored: Option<&Credentials>, wanted: &Wanted, now: Timestamp, rng: &dyn SecureRandom) -> Plan {
    match stored.ok_or(Unusable::Missing).and_then(|credentials| examine(credentials, wanted, now, rng)) {
        Ok(usable) if now < usable.renew_at => Plan::Keep(usable),
        Ok(usable) => Plan::Renew(usable),
        Err(reason) => Plan::Enrol(reason),
    }
}

/// Checks everything about credentials that can be checked without the gateway.
///
/// # Errors
/// The first [`Unusable`] reason found.
pub fn examine(
    credentials: &Credentials,
    wanted: &Wanted,
    now: Timestamp,
    rng: &dyn SecureRandom,
) -> Result<Usable, Unusable> {
    if let Some((name, _)) = credentials.files().into_iter().find(|(_, bytes)| bytes.trim_ascii().is_empty()) {
        return Err(Unusable::Absent(name));
    }
    let mut chain = pem::certificates(&credentials.certificate).map_err(|_| Unusable::Certificate)?;
    let certificate = chain.remove(0); // there is one
    let (rest, leaf) = X509Certificate::from_der(&certificate).map_err(|_| Unusable::Certificate)?;
    if !rest.is_empty() {
        return Err(Unusable::Certificate);
    }
    let pkcs8 = pem::decode_private(&credentials.key).ok_or(Unusable::Key(KeyError::Unreadable))?;
    let key = PrivateKey::from_pkcs8(&pkcs8, rng).map_err(Unusable::Key)?;
    if key.public_key_der() != leaf.public_key().raw {
        return Err(Unusable::KeyMismatch);
    }
    check_identity(&leaf, wanted)?;
    let not_before = Timestamp::from_unix(leaf.validity().not_before.timestamp());
    let not_after = Timestamp::from_unix(leaf.validity().not_after.timestamp());
    if now < not_before {
        return Err(Unusable::NotYetValid(not_before));
    }
    if now > not_after {
        return Err(Unusable::Expired(not_after));
    }
    let bundle = Bundle::from_pem(&credentials.bundle)?;
    let renew_at = renewal(&certificate, not_before, not_after);
    Ok(Usable { certificate, chain, pkcs8, bundle, renew_at, not_after })
}

fn check_identity(leaf: &X509Certificate<'_>, wanted: &Wanted) -> Result<(), Unusable> {
    let subject = leaf.subject();
    let users: Vec<_> = subject.iter_common_name().map(|cn| cn.as_str().unwrap_or_default()).collect();
    let groups: BTreeSet<_> = subject.iter_organization().map(|o| o.as_str().unwrap_or_default()).collect();
    let others = subject.iter_attributes().count() != users.len() + subject.iter_organization().count();
    if users != [wanted.user.as_str()] || !groups.iter().eq(&wanted.groups) || others {
        return Err(Unusable::OtherIdentity(subject.to_string()));
    }
    let names = dns_names(leaf);
    if let Some(lacking) = wanted.dns_names.iter().find(|name| !names.contains(name.as_str())) {
        return Err(Unusable::DnsName(lacking.clone()));
    }
    match leaf.extended_key_usage() {
        Ok(Some(usage)) if usage.value.client_auth => Ok(()),
        _ => Err(Unusable::NotForClients),
    }
}

fn dns_names<'c>(leaf: &'c X509Certificate<'_>) -> BTreeSet<&'c str> {
    let names = leaf.subject_alternative_name().ok().flatten().map(|extension| &extension.value.general_names);
    let dns = names.into_iter().flatten().filter_map(|name| match name {
        GeneralName::DNSName(text) => Some(*text),
        _ => None,
    });
    dns.collect()
}

/// Derived from the certificate's own bytes, which have 128 random bits. So it is the same after every restart.
fn renewal(certificate: &[u8], not_before: Timestamp, not_after: Timestamp) -> Timestamp {
    let drawn = digest::digest(&digest::SHA256, certificate);
    let drawn = drawn.as_ref().iter().take(2).fold(0, |number, byte| number * 256 + u64::from(*byte));
    let share = RENEW_AT.0 + (RENEW_AT.1 - RENEW_AT.0) * drawn / u64::from(u16::MAX);
    let life = not_before.until(not_after).as_secs();
    not_before.plus(Duration::from_secs(life / 10_000 * share + life % 10_000 * share / 10_000))
}

#[cfg(test)]
mod tests;
