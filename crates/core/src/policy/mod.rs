//! Decides whether a certificate is issued: a pure function for each kind of certificate, a [`Refusal`] for each rule.
//!
//! Names are compared as parsed parts with `==`; there are no prefix tests. Only this module makes an [`Approved`]
//! (invariant I1). It holds everything that a certificate takes from a CSR: the key and the validated subject,
//! nothing else (invariant I3).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::csr::{CertificateRequest, Subject};
use crate::identity::{AddOnName, Convention, PeerIdentity, SignerName};
use crate::keys::public::KeyKind;
use crate::registry::Registry;
use crate::timestamp::Timestamp;
use requester::Requester;

mod gateway_csr;
mod refusal;
mod requester;
#[cfg(test)]
pub(crate) mod tests;

pub use gateway_csr::{GATEWAY_COMMON_NAME, GatewayCertificate, GatewayRules, evaluate_gateway};
pub use refusal::Refusal;
pub use requester::{RequesterKind, cluster_of, tenant, tenant_of_cluster};

/// The shortest lifetime that a CSR may ask for: the API server's minimum for `expirationSeconds`.
pub const MIN_LIFETIME: Duration = Duration::from_secs(600);

/// The extended key usages of TLS clients and servers (RFC 5280 section 4.2.1.12).
const CLIENT_AUTH: &str = "1.3.6.1.5.5.7.3.2";
const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";

/// OCM up to v1.2 asks for this group too (addon-framework#359 removed it); it grants nothing at the gateway.
pub const AUTHENTICATED: &str = "system:authenticated";

/// What one AddOnSigner allows. `api::rules` makes it from the `spec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerRules {
    /// `spec.signerName`.
    pub signer_name: SignerName,
    /// `spec.addOns`.
    pub addons: BTreeSet<AddOnName>,
    /// `spec.identity`.
    pub convention: Convention,
    /// `spec.identity.requesters`.
    pub requesters: BTreeSet<RequesterKind>,
    /// `spec.identity.organizationalUnits`.
    pub organizational_units: BTreeSet<String>,
    /// `spec.certificate.keys`.
    pub keys: BTreeSet<KeyKind>,
    /// `spec.certificate.duration`: the lifetime of a certificate whose CSR does not ask for one.
    pub duration: Duration,
    /// `spec.certificate.maxDuration`: a longer requested lifetime is cut to it, as Kubernetes' own signers do.
    pub max_duration: Duration,
    /// The only account whose annotation `open-cluster-management.io/csr-user` replaces the username.
    pub grpc_proxy: Option<String>,
}

/// A CertificateSigningRequest as the API server has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Submission {
    /// `spec.username`, set by the API server.
    pub username: String,
    /// `spec.groups`, set by the API server.
    pub groups: Vec<String>,
    /// The annotation `open-cluster-management.io/csr-user`.
    pub csr_user: Option<String>,
    /// Whether the hub knows that no client could have changed that annotation since the CSR was made.
    pub is_guarded: bool,
    /// The label `open-cluster-management.io/cluster-name`: a hint that any client can set.
    pub cluster_label: Option<String>,
    /// The label `open-cluster-management.io/addon-name`: a hint that any client can set.
    pub addon_label: Option<String>,
    /// `spec.usages`.
    pub usages: Vec<String>,
    /// `spec.expirationSeconds`.
    pub expiration_seconds: Option<i32>,
    /// `spec.request`: PEM.
    pub request: Vec<u8>,
    /// `metadata.creationTimestamp`, set by the API server.
    pub requested: Timestamp,
}

/// What a certificate is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Profile {
    /// An addon agent's client certificate.
    Client {
        /// Its holder.
        identity: PeerIdentity,
        /// The DNS names that the convention gives it.
        dns_names: Vec<String>,
    },
    /// The gateway's serving certificate.
    Serving {
        /// DNS names.
        dns_names: Vec<String>,
        /// Addresses.
        ip_addresses: Vec<IpAddr>,
    },
    /// The gateway's client certificate, for backends.
    GatewayClient,
}

/// Evidence that policy allows one certificate. Only this module makes one (invariant I1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    profile: Profile,
    subject_der: Vec<u8>,
    public_key_der: Vec<u8>,
    key_kind: KeyKind,
    lifetime: Duration,
    valid_from: Option<Timestamp>,
}

impl Approved {
    /// What the certificate is for.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }
    /// The holder of an agent's certificate; `None` for those of the gateway.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        match &self.profile {
            Profile::Client { identity, .. } => Some(identity),
            Profile::Serving { .. } | Profile::GatewayClient => None,
        }
    }
    /// The validated subject, as the requester encoded it.
    pub fn subject_der(&self) -> &[u8] {
        &self.subject_der
    }
    /// The key whose possession was proven.
    pub fn public_key_der(&self) -> &[u8] {
        &self.public_key_der
    }
    /// The kind of that key.
    pub fn key_kind(&self) -> KeyKind {
        self.key_kind
    }
    /// The lifetime of the certificate from now on.
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }
    /// The certificate must not begin before this time, because then it would be refused
    /// ([`Registry::valid_from`]). While this time is in the future, no certificate can be made.
    pub fn valid_from(&self) -> Option<Timestamp> {
        self.valid_from
    }
    /// That time, while it is in the future.
    pub fn waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.valid_from.filter(|until| now < *until)
    }
}

/// A CSR for an agent's client certificate whose requester, subject, names and key follow the rules. It is read
/// once, and it can be decided several times.
#[derive(Debug, Clone)]
pub struct Claim {
    identity: PeerIdentity,
    dns_names: Vec<String>,
    request: CertificateRequest,
    requested: Timestamp,
    /// Whether the addon's own hub identity made the CSR.
    by_addon: bool,
    /// The result of the rules that follow those of the registry.
    lifetime: Result<Duration, Refusal>,
}

impl Claim {
    /// Reads a CSR and checks the rules for requester, subject, names and key, in that order.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn read(rules: &SignerRules, submission: &Submission) -> Result<Self, Refusal> {
        let requester = requester::authenticate(rules, submission)?;
        let request = CertificateRequest::from_pem(&submission.request)?;
        let identity = subject_identity(rules, &requester, request.subject())?;
        let dns_names = rules.convention.dns_names(&identity.cluster, &identity.addon);
        check_names(&request, &dns_names, &[])?;
        check_request_usages(&request, CLIENT_AUTH)?;
        if !rules.keys.contains(&request.key_kind()) {
            return Err(Refusal::KeyNotAllowed(request.key_kind()));
        }
        let lifetime = check_labels(submission, &identity)
            .and_then(|()| check_usages(submission, "client auth"))
            .and_then(|()| lifetime(submission, rules.duration, rules.max_duration));
        let by_addon = requester.addon.is_some();
        Ok(Self { identity, dns_names, request, requested: submission.requested, by_addon, lifetime })
    }

    /// The identity that the certificate is requested for.
    #[must_use]
    pub fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// Checks the registry, and then the rules for labels, usages and lifetime.
    ///
    /// # Errors
    /// The first broken rule. [`Refusal::is_final`] is false if the decision may change later.
    pub fn decide(&self, registry: &Registry) -> Result<Approved, Refusal> {
        let cluster = &self.identity.cluster;
        let addon = &self.identity.addon;
        registry.check(cluster, addon)?;
        if registry.created(cluster, addon).is_some_and(|created| self.requested < created) {
            return Err(Refusal::RequestTooOld);
        }
        if let Some(other) = registry.longer_name(cluster).filter(|_| self.by_addon) {
            return Err(Refusal::RequesterOfSeveral { cluster: cluster.clone(), other: other.to_string() });
        }
        let lifetime = self.lifetime.clone()?;
        let profile = Profile::Client { identity: self.identity.clone(), dns_names: self.dns_names.clone() };
        Ok(approve(profile, &self.request, lifetime, registry.valid_from(cluster, addon)))
    }
}

/// Reads a CSR and decides on it at once.
///
/// # Errors
/// Those of [`Claim::read`] and [`Claim::decide`].
pub fn evaluate(rules: &SignerRules, submission: &Submission, registry: &Registry) -> Result<Approved, Refusal> {
    Claim::read(rules, submission)?.decide(registry)
}

fn approve(
    profile: Profile,
    request: &CertificateRequest,
    lifetime: Duration,
    valid_from: Option<Timestamp>,
) -> Approved {
    Approved {
        profile,
        subject_der: request.subject_der().to_vec(),
        public_key_der: request.public_key_der().to_vec(),
        key_kind: request.key_kind(),
        lifetime,
        valid_from,
    }
}

/// Rule 2: the subject follows the convention, for the requester's cluster and one of the signer's addons, which is the
/// requester's own if the requester is an addon.
fn subject_identity(rules: &SignerRules, requester: &Requester, subject: &Subject) -> Result<PeerIdentity, Refusal> {
    let [common_name] = subject.common_names.as_slice() else {
        return Err(Refusal::CommonNames(subject.common_names.len()));
    };
    let identity = rules.convention.identify(common_name).map_err(Refusal::CommonName)?;
    if identity.cluster != requester.cluster {
        return Err(Refusal::AnotherCluster { subject: identity.cluster, requester: requester.cluster.clone() });
    }
    if let Some(addon) = requester.addon.as_ref().filter(|addon| **addon != identity.addon) {
        return Err(Refusal::AnotherAddOn { subject: identity.addon, requester: addon.clone() });
    }
    if !rules.addons.contains(&identity.addon) {
        return Err(Refusal::AddOnNotOfSigner(identity.addon));
    }
    let groups = rules.convention.groups(&identity.cluster, &identity.addon);
    let foreign = |group: &&String| !groups.contains(group) && *group != AUTHENTICATED;
    if let Some(group) = subject.organizations.iter().find(foreign) {
        return Err(Refusal::Organization(group.clone()));
    }
    let unnamed = |unit: &&String| !rules.organizational_units.contains(*unit);
    if let Some(unit) = subject.organizational_units.iter().find(unnamed) {
        return Err(Refusal::OrganizationalUnit(unit.clone()));
    }
    match subject.others.first() {
        Some(oid) => Err(Refusal::SubjectAttribute(oid.clone())),
        None => Ok(identity),
    }
}

/// Rule 3, names: only DNS names and addresses, and only allowed ones.
fn check_names(request: &CertificateRequest, dns_names: &[String], addresses: &[IpAddr]) -> Result<(), Refusal> {
    let asked = request.extensions();
    if let Some(name) = asked.dns_names.iter().find(|name| !dns_names.contains(name)) {
        return Err(Refusal::DnsName(name.clone()));
    }
    if let Some(address) = asked.ip_addresses.iter().find(|address| !addresses.contains(address)) {
        return Err(Refusal::IpAddress(*address));
    }
    match asked.other_names.first() {
        Some(kind) => Err(Refusal::OtherName(kind)),
        None => Ok(()),
    }
}

/// Rule 3, extensions in the CSR: `purpose` is the object identifier of the only allowed extended key usage.
fn check_request_usages(request: &CertificateRequest, purpose: &str) -> Result<(), Refusal> {
    let asked = request.extensions();
    if asked.ca {
        return Err(Refusal::CaRequested);
    }
    let allowed = ["digital signature", "key encipherment"];
    if let Some(usage) = asked.key_usages.iter().find(|usage| !allowed.contains(usage)) {
        return Err(Refusal::KeyUsage(usage));
    }
    if let Some(oid) = asked.extended_key_usages.iter().find(|oid| *oid != purpose) {
        return Err(Refusal::ExtendedKeyUsage(oid.clone()));
    }
    match asked.unknown.first() {
        Some(oid) => Err(Refusal::UnknownExtension(oid.clone())),
        None => Ok(()),
    }
}

/// Rule 5, labels: a label must not contradict the proven identity.
fn check_labels(submission: &Submission, identity: &PeerIdentity) -> Result<(), Refusal> {
    let lies = |label: &Option<String>, truth: &str| label.as_ref().is_some_and(|label| label != truth);
    if lies(&submission.cluster_label, identity.cluster.as_str()) {
        return Err(Refusal::ClusterLabel(submission.cluster_label.clone().unwrap_or_default()));
    }
    if lies(&submission.addon_label, identity.addon.as_str()) {
        return Err(Refusal::AddOnLabel(submission.addon_label.clone().unwrap_or_default()));
    }
    Ok(())
}

/// Rule 6, `spec.usages`: only the two usages of TLS and `purpose`, which must be there.
fn check_usages(submission: &Submission, purpose: &'static str) -> Result<(), Refusal> {
    let allowed = ["digital signature", "key encipherment", purpose];
    if let Some(usage) = submission.usages.iter().find(|usage| !allowed.contains(&usage.as_str())) {
        return Err(Refusal::Usage(usage.clone()));
    }
    if submission.usages.iter().any(|usage| usage == purpose) { Ok(()) } else { Err(Refusal::UsageMissing(purpose)) }
}

/// Rule 6, lifetime: the requested lifetime, which must be at least [`MIN_LIFETIME`], or `usual` if the CSR asks
/// for none. Both are cut to `longest`.
fn lifetime(submission: &Submission, usual: Duration, longest: Duration) -> Result<Duration, Refusal> {
    let Some(seconds) = submission.expiration_seconds else {
        return Ok(usual.min(longest));
    };
    let asked = u64::try_from(seconds).map(Duration::from_secs).unwrap_or_default();
    if asked < MIN_LIFETIME { Err(Refusal::ExpirationTooShort(seconds)) } else { Ok(asked.min(longest)) }
}
