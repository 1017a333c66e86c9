//! AddOnSigner: what an addon author and an administrator configure. One object describes one signer, its authority,
//! and which namespaces may attach routes to it.
//!
//! The schema and its CEL rules check what the API server can check. Durations and quantities are text here;
//! [`addon_signer_core::units`] reads them. Every list and string is bounded, which also keeps the CEL rules inside
//! the API server's cost budget.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function body")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::authority::AuthoritySpec;
use super::identity::IdentitySpec;
use super::status::AddOnSignerStatus;

/// A signer for the agents of one or more addons.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "addon-signer.io",
    version = "v1alpha1",
    kind = "AddOnSigner",
    plural = "addonsigners",
    shortname = "ads",
    category = "addon-signer",
    doc = "AddOnSigner makes addon-signer sign the certificate requests of the agents of some addons and lets those \
           agents in at the gateway.",
    status = "AddOnSignerStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Signer", "type": "string", "jsonPath": ".spec.signerName"}"#,
    printcolumn = r#"{"name": "AddOns", "type": "string", "jsonPath": ".status.addOnList"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string",
                       "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string",
                       "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name": "Agents", "type": "string", "jsonPath": ".status.agents.summary"}"#,
    printcolumn = r#"{"name": "Active CA notAfter", "type": "string",
                       "jsonPath": ".status.authorities[?(@.state==\"Active\")].notAfter"}"#,
    printcolumn = r#"{"name": "Rotation", "type": "string", "priority": 1, "jsonPath": ".status.rotation.phase"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[x_kube(validation = Rule::new("duration(self.certificate.maxDuration) < duration(self.authority.duration)")
    .message("authority.duration must be longer than certificate.maxDuration: no certificate outlives its authority")
    .field_path(".authority.duration"),
    validation = Rule::new(
        "self.identity.user == 'system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}' \
         || self.identity.user.startsWith(self.signerName + ':')"
    )
    .message(
        "identity.user must be OCM's convention, or begin with signerName and a colon, so no two signers share one"
    )
    .field_path(".identity.user"),
    validation = Rule::new(
        "self.identity.groups.all(group, group == 'system:open-cluster-management:addon:{addon}' \
         || group == 'system:open-cluster-management:cluster:{cluster}:addon:{addon}' \
         || group.startsWith(self.signerName + ':'))"
    )
    .message(
        "identity.groups must be OCM's convention, or begin with signerName and a colon, so no two signers share one"
    )
    .field_path(".identity.groups"))]
#[serde(rename_all = "camelCase")]
pub struct AddOnSignerSpec {
    /// spec.signerName of the CSRs: your domain, a slash and a name, such as example.com/telemetry. It cannot be
    /// changed. With AddOnTemplates it has at most 58 characters.
    #[schemars(length(min = 5, max = 571), regex(pattern = r"^([a-z0-9][a-z0-9-]*[a-z0-9]\.)+[a-z]+\/[a-z0-9-\.]+$"))]
    #[x_kube(
        validation = Rule::new("self == oldSelf").message("signerName is immutable: create another AddOnSigner"),
        validation = Rule::new("!self.startsWith('kubernetes.io/') && !self.split('/')[0].endsWith('.kubernetes.io')")
            .message("signerName must not be in the domain kubernetes.io, which is reserved for Kubernetes"),
        validation = Rule::new("!self.startsWith('addon-signer.io/')")
            .message(
                "signerName must not be in the domain addon-signer.io, which is reserved for the gateway's own signer"
            )
    )]
    pub signer_name: String,
    /// Names of the ManagedClusterAddOns whose agents may have certificates, 1 to 64. An addon belongs to one
    /// AddOnSigner: of several, to the one that had it first.
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub add_ons: Vec<String>,
    /// Name of another AddOnSigner that may have the same addons, so that their agents move to it without an
    /// interruption. The successor inherits them. Name only an AddOnSigner that exists, and remove the field when it is
    /// deleted: anyone who creates one with that name is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub successor: Option<String>,
    /// Who approves valid CSRs. Automatic: the hub. External: another approver; the hub still validates before it
    /// signs.
    #[serde(default)]
    pub approval: Approval,
    /// Who writes this signer into status.registrations of the ManagedClusterAddOns. Managed: the hub, where no other
    /// program registers the addon. External: the addon's own controller; the hub never does.
    #[serde(default)]
    pub registration: RegistrationMode,
    /// Subject and names that a CSR must have.
    #[serde(default)]
    pub identity: IdentitySpec,
    /// Lifetime and keys of the agents' certificates.
    #[serde(default)]
    pub certificate: CertificateSpec,
    /// The certificate authority that signs the agents' certificates.
    #[serde(default)]
    pub authority: AuthoritySpec,
    /// How the gateway's trust bundle reaches the gateway's clients.
    #[serde(default)]
    pub trust: TrustSpec,
    /// What these agents reach through the gateway.
    #[serde(default)]
    pub gateway: GatewaySpec,
}

/// How the gateway's trust bundle reaches the gateway's clients, besides the certificates' CSRs, the gateway and the
/// ConfigMap on the hub.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
// By its path: the copies that KubeSchema makes have no `Default`.
#[serde(rename_all = "camelCase", default = "TrustSpec::default")]
pub struct TrustSpec {
    /// Whether a ManifestWork writes ConfigMap ADDON-hub-trust with the trust bundle on each cluster of the addons.
    /// Auto: if the hub has the right (trust.manifestWorks of the chart). Never: no, and those of these addons are
    /// deleted, unless another AddOnSigner needs them.
    pub manifest_work: TrustMode,
    /// Whether a ClusterTrustBundle publishes the trust bundle to the pods of the hub cluster. There is one for all
    /// AddOnSigners. Auto: if the API server has ClusterTrustBundles and the hub the right (trust.clusterTrustBundle of
    /// the chart). Never: this AddOnSigner does not need it; it is deleted when none does.
    pub cluster_trust_bundle: TrustMode,
}

/// Whether the trust bundle goes one of its ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TrustMode {
    /// If the hub has the right (trust.manifestWorks, trust.clusterTrustBundle in the chart's values).
    #[default]
    Auto,
    /// No, and what is there is deleted, unless another AddOnSigner needs it.
    Never,
}

/// Who approves valid CSRs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    /// The hub approves what its policy allows.
    #[default]
    Automatic,
    /// Somebody else approves; the hub still validates before it signs.
    External,
}

/// Who writes `status.registrations` of the addons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RegistrationMode {
    /// The hub does, so that OCM's registration agent requests certificates.
    #[default]
    Managed,
    /// The addon's own controller does.
    External,
}

/// Lifetime and keys of the agents' certificates.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("duration(self.duration) >= duration('10m')")
        .message("certificate.duration must be at least 10m, Kubernetes' own minimum").field_path(".duration"),
    validation = Rule::new("duration(self.duration) <= duration(self.maxDuration)")
        .message("certificate.duration must not be longer than certificate.maxDuration").field_path(".duration"),
    validation = Rule::new("duration(self.maxDuration) <= duration('8760h')")
        .message("certificate.maxDuration must be at most 8760h, a year").field_path(".maxDuration")
)]
#[serde(rename_all = "camelCase", default = "CertificateSpec::default")]
pub struct CertificateSpec {
    /// Lifetime of a certificate whose CSR does not ask for one, such as 24h. At least 10m.
    #[schemars(length(min = 2, max = 20), regex(pattern = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"))]
    pub duration: String,
    /// Longest lifetime of a certificate; the hub caps longer requests (expirationSeconds) at it. At most 8760h. No
    /// certificate outlives the certificate authorities, the gateway's included. If you raise the longest maxDuration
    /// of all AddOnSigners, the gateway's authority is replaced earlier, possibly at once.
    #[schemars(length(min = 2, max = 20), regex(pattern = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$"))]
    pub max_duration: String,
    /// Kinds of keys that a CSR may use.
    #[schemars(length(min = 1, max = 6))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub keys: Vec<KeyKind>,
}

/// Kinds of keys of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum KeyKind {
    /// ECDSA on NIST P-256.
    #[serde(rename = "ECDSA-P256")]
    EcdsaP256,
    /// ECDSA on NIST P-384.
    #[serde(rename = "ECDSA-P384")]
    EcdsaP384,
    /// EdDSA on Curve25519.
    Ed25519,
    /// RSA with 2048 bits.
    #[serde(rename = "RSA-2048")]
    Rsa2048,
    /// RSA with 3072 bits.
    #[serde(rename = "RSA-3072")]
    Rsa3072,
    /// RSA with 4096 bits.
    #[serde(rename = "RSA-4096")]
    Rsa4096,
}

/// What agents of the signer reach through the gateway: AddOnRoutes say it, and this says which of them count.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default = "GatewaySpec::default")]
pub struct GatewaySpec {
    /// The namespaces that may attach AddOnRoutes. None by default.
    pub routes_from: RoutesFrom,
    /// Host names of the gateway that these AddOnRoutes may claim, in lower case, such as
    /// telemetry.gateway.example.com. The hub must have each as --gateway-name. Only agents of AddOnSigners that list a
    /// name may use it, except the hub's first --gateway-name, which all agents may use.
    #[schemars(
        length(max = 32),
        inner(
            length(min = 1, max = 253),
            regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")
        )
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub hostnames: Vec<String>,
}

/// Namespaces by their names, and by their labels.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutesFrom {
    /// Names of the namespaces that may attach AddOnRoutes. None by default.
    #[serde(default)]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub namespaces: Vec<String>,
    /// Labels of further namespaces. An empty selector selects all. With a selector, everyone who may label namespaces
    /// decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::label_selector")]
    pub selector: Option<LabelSelector>,
}

impl Default for CertificateSpec {
    fn default() -> Self {
        use KeyKind::{EcdsaP256, EcdsaP384, Ed25519, Rsa2048, Rsa3072, Rsa4096};
        Self {
            duration: "24h".to_owned(),
            max_duration: "168h".to_owned(),
            keys: vec![EcdsaP256, EcdsaP384, Ed25519, Rsa2048, Rsa3072, Rsa4096],
        }
    }
}

impl KeyKind {
    /// The core's kind.
    pub fn kind(self) -> addon_signer_core::keys::public::KeyKind {
        use addon_signer_core::keys::public::KeyKind as Core;
        match self {
            Self::EcdsaP256 => Core::EcdsaP256,
            Self::EcdsaP384 => Core::EcdsaP384,
            Self::Ed25519 => Core::Ed25519,
            Self::Rsa2048 => Core::Rsa2048,
            Self::Rsa3072 => Core::Rsa3072,
            Self::Rsa4096 => Core::Rsa4096,
        }
    }
}
