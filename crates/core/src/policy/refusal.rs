//! The refusals of policy: a variant for each broken rule, with its CamelCase reason and its text.

use std::net::IpAddr;

use crate::csr::CsrError;
use crate::identity::{AddOnName, ClusterName, IdentityError};
use crate::keys::public::KeyKind;
use crate::registry::NotRegistered;

use super::RequesterKind;

/// A broken rule, with the facts that broke it. The text is a lower-case sentence without a period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Rule 1: the requester is neither a cluster's registration agent nor an addon's own hub identity.
    #[error("the requester {0:?} is neither a cluster's registration agent nor an addon's own hub identity")]
    Requester(String),
    /// Rule 1: the requester is of a kind that the configuration does not allow.
    #[error("the requester is {}; to allow it, add {:?} to identity.requesters of the AddOnSigner", kind(*.0), .0)]
    RequesterKind(RequesterKind),
    /// Rule 1: the requester is an account of OCM's token driver, whose name does not prove an addon.
    #[error("the requester {0:?} is a service account, like those of OCM's token driver; use the csr driver")]
    RequesterToken(String),
    /// Rule 1: another cluster can have the hub identity of this cluster's addon, because OCM approves it by the prefix
    /// of the requester's name (addon-framework v1.3.0 `pkg/utils/csr_helpers.go`, `DefaultCSRApprover`).
    #[error(
        "OCM also gives the hub identity of an addon on {cluster} to clusters whose names begin with {cluster}, such \
         as {other}; let the cluster's registration agent make the request"
    )]
    RequesterOfSeveral {
        /// The cluster of the requester.
        cluster: ClusterName,
        /// A cluster whose name begins with its name.
        other: String,
    },
    /// Rule 1: the requester is not in the group of its cluster or addon.
    #[error("the requester is not in the group {0:?}")]
    RequesterGroup(String),
    /// Rule 1: the gRPC proxy did not name the user on whose behalf it asks.
    #[error("the gRPC proxy's CSR has no annotation open-cluster-management.io/csr-user")]
    ProxiedUserMissing,
    /// Rule 1: the gRPC proxy's CSR predates what the hub knows about the policy that protects its annotation.
    #[error(
        "the CSR may have been made before the ValidatingAdmissionPolicy addon-signer-grpc-account was in force, \
         so anyone may have changed its annotation open-cluster-management.io/csr-user; make a new CSR"
    )]
    ProxiedUserUnproven,
    /// Rule 1, serving: the requester is not the gateway.
    #[error("the requester {0:?} is not the gateway's account")]
    NotTheGateway(String),
    /// Rule 1, serving: the pod that made the CSR is gone or ends, so the holder of the key may not be the gateway.
    #[error("the pod {0} that made the CSR is gone or ends")]
    PodGone(String),
    /// Rule 2: the subject does not have exactly one common name.
    #[error("the subject has {0} common names; it must have exactly one")]
    CommonNames(usize),
    /// Rule 2: the common name does not follow the convention.
    #[error("the subject's common name is refused: {0}")]
    CommonName(#[source] IdentityError),
    /// Rule 2: the subject names another cluster than the requester's.
    #[error("the subject names the cluster {subject}, but the requester belongs to {requester}")]
    AnotherCluster {
        /// The cluster in the common name.
        subject: ClusterName,
        /// The cluster of the requester.
        requester: ClusterName,
    },
    /// Rule 2: the subject names an addon other than the requester's.
    #[error("the subject names the addon {subject}, but the requester is the addon {requester}")]
    AnotherAddOn {
        /// The addon in the common name.
        subject: AddOnName,
        /// The addon that asks.
        requester: AddOnName,
    },
    /// Rule 2: an addon that this signer does not serve.
    #[error("the addon {0} is not one of this signer's addOns")]
    AddOnNotOfSigner(AddOnName),
    /// Rule 2: a group outside the convention.
    #[error("the subject's organization {0:?} is not one of the convention's groups")]
    Organization(String),
    /// Rule 2: an organizational unit that the configuration does not name.
    #[error("the subject's organizational unit {0:?} is not configured")]
    OrganizationalUnit(String),
    /// Rule 2: an attribute other than CN, O and OU.
    #[error("the subject has the attribute {0}; only CN, O and OU are allowed")]
    SubjectAttribute(String),
    /// Rule 2, serving: the subject is not the gateway's.
    #[error("the subject must be CN=addon-signer-gateway and nothing else")]
    GatewaySubject,
    /// Rule 3: a DNS name outside the convention.
    #[error("the DNS name {0:?} is not one of the allowed names")]
    DnsName(String),
    /// Rule 3: an address that is not configured.
    #[error("the IP address {0} is not one of the allowed addresses")]
    IpAddress(IpAddr),
    /// Rule 3: a SAN of another kind.
    #[error("a subject alternative name of the kind {0} is not allowed")]
    OtherName(&'static str),
    /// Rule 3, serving: a configured name is missing.
    #[error("the CSR must name every DNS name and address of the gateway")]
    GatewayNamesMissing,
    /// Rule 3: a CA certificate.
    #[error("the CSR asks for a CA certificate")]
    CaRequested,
    /// Rule 3: a key usage inside the CSR.
    #[error("the CSR asks for the key usage {0:?}; only digital signature and key encipherment are allowed")]
    KeyUsage(&'static str),
    /// Rule 3: an extended key usage inside the CSR.
    #[error("the CSR asks for the extended key usage {0}, which does not match this signer's purpose")]
    ExtendedKeyUsage(String),
    /// Rule 3: an unknown extension.
    #[error("the CSR asks for the extension {0}; only names, usages and CA:FALSE are understood")]
    UnknownExtension(String),
    /// Rules 2, 3 and 4: the CSR cannot be read, possession of the key is not proven, or the key is weak.
    #[error(transparent)]
    Request(#[from] CsrError),
    /// Rule 4: a kind of key that the configuration does not allow.
    #[error("keys of the kind {0} are not allowed by this signer (certificate.keys)")]
    KeyNotAllowed(KeyKind),
    /// Rule 5: the addon is not eligible on that cluster.
    #[error(transparent)]
    Registration(#[from] NotRegistered),
    /// Rule 5: cluster or addon were created, perhaps anew and by another user, after the CSR.
    #[error(
        "the CSR is older than the ManagedCluster or the ManagedClusterAddOn, so an earlier cluster of that name \
         may have made it; make a new CSR"
    )]
    RequestTooOld,
    /// Rule 5: the label contradicts the proven cluster.
    #[error("the label open-cluster-management.io/cluster-name says {0:?}, which is not the requester's cluster")]
    ClusterLabel(String),
    /// Rule 5: the label contradicts the proven addon.
    #[error("the label open-cluster-management.io/addon-name says {0:?}, which is not the subject's addon")]
    AddOnLabel(String),
    /// Rule 6: a usage in `spec.usages` that is not allowed.
    #[error("the usage {0:?} is not allowed")]
    Usage(String),
    /// Rule 6: the signer's purpose is missing from `spec.usages`.
    #[error("spec.usages must include {0:?}")]
    UsageMissing(&'static str),
    /// Rule 6: the requested lifetime is too short.
    #[error("expirationSeconds is {0}; the minimum is 600")]
    ExpirationTooShort(i32),
}

impl Refusal {
    /// The number of the broken rule; `certs/requests/README.md` lists the rules.
    pub fn rule(&self) -> u8 {
        self.rule_and_reason().0
    }

    /// The CamelCase reason of the condition on the CSR.
    pub fn reason(&self) -> &'static str {
        self.rule_and_reason().1
    }

    fn rule_and_reason(&self) -> (u8, &'static str) {
        match self {
            Self::Requester(_) | Self::RequesterKind(_) => (1, "RequesterNotAllowed"),
            Self::RequesterToken(_) => (1, "RequesterOfTokenDriver"),
            Self::RequesterOfSeveral { .. } => (1, "RequesterOfSeveralClusters"),
            Self::RequesterGroup(_) => (1, "RequesterNotInGroup"),
            Self::ProxiedUserMissing => (1, "ProxiedUserMissing"),
            Self::ProxiedUserUnproven => (1, "ProxiedUserUnproven"),
            Self::NotTheGateway(_) => (1, "RequesterNotTheGateway"),
            Self::PodGone(_) => (1, "RequesterPodGone"),
            Self::CommonNames(_) => (2, "CommonNameNotSingle"),
            Self::CommonName(_) => (2, "CommonNameNotConvention"),
            Self::AnotherCluster { .. } => (2, "SubjectOfAnotherCluster"),
            Self::AnotherAddOn { .. } => (2, "SubjectOfAnotherAddOn"),
            Self::AddOnNotOfSigner(_) => (2, "AddOnNotOfSigner"),
            Self::Organization(_) => (2, "OrganizationNotAllowed"),
            Self::OrganizationalUnit(_) => (2, "OrganizationalUnitNotAllowed"),
            Self::SubjectAttribute(_) => (2, "SubjectAttributeNotAllowed"),
            Self::GatewaySubject => (2, "SubjectNotTheGateway"),
            Self::DnsName(_) => (3, "DNSNameNotAllowed"),
            Self::IpAddress(_) => (3, "IPAddressNotAllowed"),
            Self::OtherName(_) => (3, "AlternativeNameNotAllowed"),
            Self::GatewayNamesMissing => (3, "GatewayNamesMissing"),
            Self::CaRequested => (3, "CARequested"),
            Self::KeyUsage(_) => (3, "KeyUsageNotAllowed"),
            Self::ExtendedKeyUsage(_) => (3, "ExtendedKeyUsageNotAllowed"),
            Self::UnknownExtension(_) => (3, "ExtensionNotAllowed"),
            Self::Request(error) => csr_rule_and_reason(error),
            Self::KeyNotAllowed(_) => (4, "KeyKindNotAllowed"),
            Self::Registration(error) => (5, error.reason()),
            Self::RequestTooOld => (5, "RequestTooOld"),
            Self::ClusterLabel(_) => (5, "ClusterLabelContradicts"),
            Self::AddOnLabel(_) => (5, "AddOnLabelContradicts"),
            Self::Usage(_) => (6, "UsageNotAllowed"),
            Self::UsageMissing(_) => (6, "UsageMissing"),
            Self::ExpirationTooShort(_) => (6, "ExpirationTooShort"),
        }
    }

    /// Whether the decision would stay the same if the hub waited.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Registration(cause) if cause.is_unknown())
    }

    /// The text as a sentence for people, with a capital letter and a period.
    pub fn sentence(&self) -> String {
        let text = self.to_string();
        let mut chars = text.chars();
        let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
        format!("{first}{}.", chars.as_str())
    }
}

fn kind(kind: RequesterKind) -> &'static str {
    match kind {
        RequesterKind::Cluster => "a cluster's registration agent",
        RequesterKind::AddOn => "an addon's own hub identity",
    }
}

fn csr_rule_and_reason(error: &CsrError) -> (u8, &'static str) {
    match error {
        CsrError::SubjectText(_) => (2, "SubjectNotText"),
        CsrError::DuplicateSubjectAttribute(_) => (2, "DuplicateSubjectAttribute"),
        CsrError::UnknownAttribute(_) => (3, "AttributeNotAllowed"),
        CsrError::DuplicateExtensionRequest => (3, "DuplicateExtensionRequest"),
        CsrError::DuplicateExtension(_) => (3, "DuplicateExtension"),
        CsrError::MalformedExtension(_) => (3, "ExtensionMalformed"),
        CsrError::ExtensionNotDer(_) => (3, "ExtensionNotDER"),
        CsrError::TooLarge => (4, "RequestTooLarge"),
        CsrError::NotOnePemBlock => (4, "RequestNotOnePEMBlock"),
        CsrError::Malformed(_) => (4, "RequestMalformed"),
        CsrError::Version(_) => (4, "RequestVersion"),
        CsrError::PublicKey(_) => (4, "PublicKeyNotAllowed"),
        CsrError::SignatureAlgorithm(_) => (4, "SignatureAlgorithmNotAllowed"),
        CsrError::Possession => (4, "PossessionNotProven"),
    }
}
