//! Reads the identity of a client certificate's holder. Pure functions; the fuzzers call them with any bytes.
//!
//! A certificate is an identity only if a CA of its addon's own signer signed it (invariant I14). So the certificate is
//! verified with the anchors of each signer, and those of exactly one signer must accept it. Only that signer's
//! convention reads the identity.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::ca::authority::AuthorityId;
use crate::ca::bundle::Purpose;
use crate::ca::serial::Serial;
use crate::gateway::headers::{ConnectionHeaders, IdentityHeaders};
use crate::identity::{AddOnName, IdentityError, PeerIdentity};
use crate::timestamp::Timestamp;
use crate::trust::{SignerTrust, Trust};

/// OCM up to v1.2 asks for this group too. A certificate may have it, but it grants nothing at the gateway.
const AUTHENTICATED: &str = "system:authenticated";

/// Why a certificate is not an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnIdentity {
    /// The bytes are not exactly one certificate in DER, or a part of it cannot be read.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// It has expired.
    #[error("the certificate expired at {0}")]
    Expired(Timestamp),
    /// It is not valid yet.
    #[error("the certificate is not valid before {0}")]
    NotYetValid(Timestamp),
    /// Its BasicConstraints make it a CA certificate.
    #[error("the certificate is a CA certificate")]
    Authority,
    /// It lacks the extended key usage for TLS clients, such as a server's certificate.
    #[error("the certificate is not for TLS clients")]
    NotForClients,
    /// No signer's anchors verify it.
    #[error("no signer's CA verifies the certificate")]
    Untrusted,
    /// Two signers share an anchor, so the identity is ambiguous.
    #[error("the signers {0} and {1} share the CA that signed the certificate")]
    Ambiguous(String, String),
    /// Not exactly one common name.
    #[error("the certificate has {0} common names; it must have exactly one")]
    CommonNames(usize),
    /// The common name does not follow the signer's convention.
    #[error("the common name is not an identity: {0}")]
    CommonName(#[from] IdentityError),
    /// The signer whose CA signed it does not serve that addon (invariant I14).
    #[error("the CA of the signer {signer} does not certify the addon {addon}")]
    AddOnNotOfSigner {
        /// The addon that the certificate names.
        addon: AddOnName,
        /// The signer whose CA signed it.
        signer: String,
    },
    /// An organization outside the convention.
    #[error("the organization {0:?} is not one of the convention's groups")]
    Organization(String),
}

impl NotAnIdentity {
    /// The CamelCase name for the audit log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable => "CertificateUnreadable",
            Self::Expired(_) => "CertificateExpired",
            Self::NotYetValid(_) => "CertificateNotYetValid",
            Self::Authority => "CertificateOfAuthority",
            Self::NotForClients => "CertificateNotForClients",
            Self::Untrusted => "UnknownIssuer",
            Self::Ambiguous(..) => "SignerAmbiguous",
            Self::CommonNames(_) => "CommonNameNotSingle",
            Self::CommonName(_) => "CommonNameNotConvention",
            Self::AddOnNotOfSigner { .. } => "AddOnNotOfSigner",
            Self::Organization(_) => "OrganizationNotAllowed",
        }
    }
}

/// The holder of a client certificate, with the facts that the gateway passes to the backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Cluster, addon and agent.
    pub identity: PeerIdentity,
    /// The common name.
    pub user: String,
    /// The organizations, without `system:authenticated`.
    pub groups: Vec<String>,
    /// The signer whose CA signed the certificate.
    pub signer: Arc<SignerTrust>,
    /// The id of the authority that signed the certificate.
    pub issuer: AuthorityId,
    /// The serial number.
    pub serial: Serial,
    /// The first second in which the certificate is valid.
    pub not_before: Timestamp,
    /// The last second in which the certificate is valid.
    pub not_after: Timestamp,
    /// The headers that report this to backends.
    pub headers: IdentityHeaders,
}

/// Verifies `leaf` at `now` and reads its holder's identity.
///
/// # Errors
/// The [`NotAnIdentity`] of the first broken rule.
pub fn identify(trust: &Trust, leaf: &CertificateDer<'_>, now: Timestamp) -> Result<Peer, NotAnIdentity> {
    let (rest, parsed) = X509Certificate::from_der(leaf).map_err(|_| NotAnIdentity::Unreadable)?;
    if !rest.is_empty() {
        return Err(NotAnIdentity::Unreadable);
    }
    let (not_before, not_after) = check_form(&parsed, now)?;
    let (signer, issuer) = vouching_signer(trust, leaf, now)?;
    let user = common_name(&parsed)?;
    let identity = signer.convention.identify(user)?;
    if !signer.addons.contains(&identity.addon) {
        return Err(NotAnIdentity::AddOnNotOfSigner { addon: identity.addon, signer: signer.name.clone() });
    }
    let groups = groups(&parsed, signer, &identity)?;
    let named = ConnectionHeaders { identity: &identity, user, groups: &groups, signer: &signer.name };
    Ok(Peer {
        headers: IdentityHeaders::new(&named, leaf, &parsed).map_err(|_| NotAnIdentity::Unreadable)?,
        groups,
        user: user.to_owned(),
        identity,
        signer: Arc::clone(signer),
        issuer,
        serial: Serial::of_leaf(&parsed).ok_or(NotAnIdentity::Unreadable)?,
        not_before,
        not_after,
    })
}

/// What a certificate says of itself, whoever signed it: common name, serial number and times. Empty if it cannot be
/// read. Nothing may be decided by it.
#[must_use]
pub fn unverified(leaf: &[u8]) -> String {
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return String::new() };
    let name = common_name(&leaf).unwrap_or("no single common name");
    let [first, last] = [leaf.validity().not_before, leaf.validity().not_after].map(|it| it.timestamp());
    let [first, last] = [first, last].map(Timestamp::from_unix);
    let serial = Serial::of_leaf(&leaf).map(|serial| format!(", serial {serial}")).unwrap_or_default();
    format!("{name}{serial}, valid from {first} to {last}")
}

/// Checks times and purpose, so that each broken rule has its own error. webpki checks them again for each signer.
/// Returns the first and the last second in which the certificate is valid.
fn check_form(leaf: &X509Certificate<'_>, now: Timestamp) -> Result<(Timestamp, Timestamp), NotAnIdentity> {
    let validity = leaf.validity();
    let first = validity.not_before.timestamp();
    let last = validity.not_after.timestamp();
    if now.unix() > last {
        return Err(NotAnIdentity::Expired(Timestamp::from_unix(last)));
    }
    if now.unix() < first {
        return Err(NotAnIdentity::NotYetValid(Timestamp::from_unix(first)));
    }
    if leaf.is_ca() {
        return Err(NotAnIdentity::Authority);
    }
    match leaf.extended_key_usage() {
        Ok(Some(usage)) if usage.value.client_auth => Ok((Timestamp::from_unix(first), Timestamp::from_unix(last))),
        Ok(_) => Err(NotAnIdentity::NotForClients),
        Err(_) => Err(NotAnIdentity::Unreadable),
    }
}

fn vouching_signer<'t>(
    trust: &'t Trust,
    leaf: &CertificateDer<'_>,
    now: Timestamp,
) -> Result<(&'t Arc<SignerTrust>, AuthorityId), NotAnIdentity> {
    let vouches = |signer: &'t Arc<SignerTrust>| {
        let authority = signer.client_anchors.verify(leaf, Purpose::Client, now);
        // The errors are not needed, because all signers except one always refuse.
        authority.ok().map(|authority| (signer, authority.id().clone()))
    };
    let mut vouching = trust.signers.iter().filter_map(vouches);
    match (vouching.next(), vouching.next()) {
        (None, _) => Err(NotAnIdentity::Untrusted),
        (Some(only), None) => Ok(only),
        (Some((one, _)), Some((other, _))) => Err(NotAnIdentity::Ambiguous(one.name.clone(), other.name.clone())),
    }
}

fn common_name<'l>(leaf: &'l X509Certificate<'_>) -> Result<&'l str, NotAnIdentity> {
    let names: Vec<_> = leaf.subject().iter_common_name().collect();
    let [name] = names.as_slice() else { return Err(NotAnIdentity::CommonNames(names.len())) };
    name.as_str().map_err(|_| NotAnIdentity::Unreadable)
}

fn groups(
    leaf: &X509Certificate<'_>,
    signer: &SignerTrust,
    identity: &PeerIdentity,
) -> Result<Vec<String>, NotAnIdentity> {
    let allowed = signer.convention.groups(&identity.cluster, &identity.addon);
    let mut groups = Vec::new();
    for organization in leaf.subject().iter_organization() {
        let group = organization.as_str().map_err(|_| NotAnIdentity::Unreadable)?;
        if allowed.iter().any(|allowed| allowed == group) {
            groups.push(group.to_owned());
        } else if group != AUTHENTICATED {
            return Err(NotAnIdentity::Organization(group.to_owned()));
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests;
