//! `spec.identity` of an AddOnSigner: who may send CSRs, and which names agents have.
#![expect(unreachable_pub, reason = "KubeSchema copies each struct into a function body")]

use addon_signer_core::identity;
use addon_signer_core::policy::RequesterKind;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identity convention. Each text is a template over `{cluster}`, `{addon}` and `{agent}`; the defaults are OCM's
/// convention (OCM `pkg/registration/register/csr/csr.go`). Texts are printable ASCII.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// By its path: the copies that KubeSchema makes have no `Default`.
#[serde(rename_all = "camelCase", default = "IdentitySpec::default")]
pub struct IdentitySpec {
    /// Who may send CSRs. Cluster: the cluster's registration agent, for all addons of its cluster. AddOn: the addon's
    /// own hub identity (system:open-cluster-management:cluster:CLUSTER:addon:ADDON:agent:AGENT, in OCM's group for
    /// that addon on that cluster), for itself alone, as addon-signer-agent does. An account of OCM's token driver may
    /// not.
    #[schemars(length(min = 1, max = 2))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub requesters: Vec<Requester>,
    /// Common name: a template with {cluster} and {addon} once each, and {agent} at most once. It is OCM's convention,
    /// the default, or begins with signerName and a colon, such as example.com/telemetry:{cluster}:{addon}. A change of
    /// user or groups takes effect at once: the gateway refuses certificates by the old ones.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^([ -z|~]|\{(cluster|addon|agent)\})+$"))]
    #[x_kube(
        validation = Rule::new("self.split('{cluster}').size() == 2")
            .message("identity.user must contain {cluster} once: an identity belongs to one cluster"),
        validation = Rule::new("self.split('{addon}').size() == 2")
            .message("identity.user must contain {addon} once: an identity belongs to one addon"),
        validation = Rule::new("self.split('{agent}').size() <= 2")
            .message("identity.user must contain {agent} at most once"),
        validation = Rule::new("!self.matches('[}]([{]|[A-Za-z0-9_.-][^{]*[{])')")
            .message("identity.user must keep placeholders apart by a character that no name has, such as a colon")
    )]
    pub user: String,
    /// Organizations that a CSR may have: the two of OCM's convention, or templates that begin with signerName and a
    /// colon. They have no {agent}.
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 512), regex(pattern = r"^([ -z|~]|\{(cluster|addon|agent)\})+$"))
    )]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new(
            "self.all(group, !group.contains('{agent}') && !group.matches('[}]([{]|[A-Za-z0-9_.-][^{]*[{])'))"
        )
        .message("identity.groups must not contain {agent}, which requesters choose, and must keep placeholders apart")
    )]
    pub groups: Vec<String>,
    /// DNS names that a CSR may have, as templates without {agent}. Every certificate gets them.
    #[schemars(
        length(max = 16),
        inner(length(min = 1, max = 253), regex(pattern = r"^([a-z0-9.-]|\{(cluster|addon|agent)\})+$"))
    )]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new(
            "self.all(name, !name.contains('{agent}') && !name.matches('[}]([{]|[A-Za-z0-9_.-][^{]*[{])'))"
        )
        .message("identity.dnsNames must not contain {agent}, which requesters choose, and keep placeholders apart")
    )]
    pub dns_names: Vec<String>,
    /// Organizational units that a CSR may have, literally.
    #[schemars(length(max = 16), inner(length(min = 1, max = 512)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub organizational_units: Vec<String>,
}

/// Who may ask for an agent's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Requester {
    /// The cluster's registration agent, for all addons of its cluster.
    Cluster,
    /// The addon's own hub identity, which OCM keeps where the addon registers for the API server too: for this addon
    /// on this cluster alone. OCM gives it to clusters whose names begin with that of this one as well, so while there
    /// is such a cluster, it may not ask.
    AddOn,
}

impl Default for IdentitySpec {
    fn default() -> Self {
        Self {
            requesters: vec![Requester::Cluster],
            user: identity::DEFAULT_USER.to_owned(),
            groups: identity::DEFAULT_GROUPS.map(str::to_owned).to_vec(),
            dns_names: identity::DEFAULT_DNS_NAMES.map(str::to_owned).to_vec(),
            organizational_units: Vec::new(),
        }
    }
}

impl Requester {
    /// The core's kind.
    pub fn kind(self) -> RequesterKind {
        match self {
            Self::Cluster => RequesterKind::Cluster,
            Self::AddOn => RequesterKind::AddOn,
        }
    }
}
