//! The identity of an addon's agent (cluster, addon, agent), and the convention that writes it into a certificate.
//!
//! Names are parsed here once, and compared with `==` everywhere else. A [`Convention`] is a set of templates with
//! `{cluster}`, `{addon}` and `{agent}`. An identity can be read back from it without ambiguity, because a character
//! that no name can have stands between any two placeholders.

use std::fmt;
use std::str::FromStr;

mod template;

use template::{Placeholder, Template};

/// OCM's convention for the user of an addon agent (`ocm` `pkg/registration/register/csr/csr.go`).
pub const DEFAULT_USER: &str = "system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}";
/// OCM's convention for the groups of an addon agent.
pub const DEFAULT_GROUPS: [&str; 2] =
    ["system:open-cluster-management:cluster:{cluster}:addon:{addon}", "system:open-cluster-management:addon:{addon}"];
/// The DNS name that OCM's registration agent adds to every addon's CSR.
pub const DEFAULT_DNS_NAMES: [&str; 1] = ["{addon}.addon.open-cluster-management.io"];

/// The signer name of the gateway's serving certificate.
pub const GATEWAY_SERVING_SIGNER: &str = "addon-signer.io/gateway-serving";
/// The signer name of the gateway's client certificate, for backends.
pub const GATEWAY_CLIENT_SIGNER: &str = "addon-signer.io/gateway-client";

const SIGNER_MAX: usize = 571; // as in OCM: a domain of 253, a slash and a name
const LABEL_MAX: usize = 63; // an RFC 1123 label, because a cluster's namespace has the same name

fn is_label(text: &str) -> bool {
    text.len() <= LABEL_MAX && has_form_of_label(text)
}

fn has_form_of_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_agent(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= LABEL_MAX
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// OCM's pattern of `signerName` (`addon/v1beta1/types_managedclusteraddon.go`), without the domains of Kubernetes and
/// of this program.
fn is_signer(text: &str) -> bool {
    let Some((domain, name)) = text.split_once('/') else { return false };
    let Some((labels, last)) = domain.rsplit_once('.') else { return false };
    let is_named = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let has_form = labels.split('.').all(|label| label.len() > 1 && has_form_of_label(label))
        && !last.is_empty()
        && last.bytes().all(|byte| byte.is_ascii_lowercase())
        && !name.is_empty()
        && name.bytes().all(is_named);
    let is_reserved = ["kubernetes.io", "addon-signer.io"].contains(&domain) || domain.ends_with(".kubernetes.io");
    has_form && !is_reserved && text.len() <= SIGNER_MAX
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $check:ident, $error:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdentityError;
            fn from_str(text: &str) -> Result<Self, IdentityError> {
                if $check(text) { Ok(Self(text.into())) } else { Err($error(text.to_owned())) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// The name of a managed cluster: an RFC 1123 label, because OCM gives each cluster a namespace of that name.
    ClusterName, is_label, |text| IdentityError::NotALabel(text, "cluster")
);
name_type!(
    /// The name of an addon: an RFC 1123 label, because it is part of a DNS name and of label values.
    AddOnName, is_label, |text| IdentityError::NotALabel(text, "addon")
);
name_type!(
    /// The last part of the convention: an addon's name (OCM 1.3 and later) or the klusterlet's agent id (before).
    AgentName, is_agent, IdentityError::NotAnAgent
);
name_type!(
    /// `spec.signerName` of CSRs. Parsing refuses the names that an AddOnSigner may not have.
    SignerName, is_signer, |_| IdentityError::NotASignerName
);

impl AgentName {
    /// The agent that has its addon's name, as OCM's agents have since v1.3. Every label is an agent name.
    pub fn of_addon(addon: &AddOnName) -> Self {
        Self(addon.0.clone())
    }
}

impl SignerName {
    /// The signer name of the gateway's serving certificate, which no AddOnSigner may have.
    pub fn gateway_serving() -> Self {
        Self(GATEWAY_SERVING_SIGNER.into())
    }

    /// The signer name of the gateway's client certificate, which no AddOnSigner may have.
    pub fn gateway_client() -> Self {
        Self(GATEWAY_CLIENT_SIGNER.into())
    }
}

/// One addon on one cluster: a ManagedClusterAddOn.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddOnKey {
    /// The managed cluster.
    pub cluster: ClusterName,
    /// The addon.
    pub addon: AddOnName,
}

impl fmt::Display for AddOnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.addon)
    }
}

/// The group of a cluster's own agents on the hub, which the API server sets (OCM's registration).
pub fn cluster_group(cluster: &ClusterName) -> String {
    format!("system:open-cluster-management:{cluster}")
}

/// The group of an addon's agents on one cluster: of OCM's convention, and of the addon's own hub identity, to which
/// OCM gives it (`ocm` `pkg/registration/register/csr/csr.go`).
pub fn addon_group(AddOnKey { cluster, addon }: &AddOnKey) -> String {
    format!("system:open-cluster-management:cluster:{cluster}:addon:{addon}")
}

/// One agent of one addon on one cluster: the identity in a client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// The managed cluster.
    pub cluster: ClusterName,
    /// The addon.
    pub addon: AddOnName,
    /// The agent.
    pub agent: AgentName,
}

impl PeerIdentity {
    /// The addon on its cluster, without the agent.
    #[must_use]
    pub fn addon_key(&self) -> AddOnKey {
        AddOnKey { cluster: self.cluster.clone(), addon: self.addon.clone() }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cluster, self.addon, self.agent)
    }
}

/// How one signer writes identities into certificates.
///
/// The user template always has the cluster and the addon. So a certificate maps back to exactly one identity, and no
/// two identities share a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Convention {
    user: Template,
    groups: Vec<Template>,
    dns_names: Vec<Template>,
}

impl Convention {
    /// Reads the templates of `spec.identity`.
    ///
    /// # Errors
    /// The [`IdentityError`] names the template and what is wrong with it.
    pub fn new<S: AsRef<str>>(user: &str, groups: &[S], dns_names: &[S]) -> Result<Self, IdentityError> {
        let user = Template::parse(user)?;
        let once = user.count(Placeholder::Cluster) == 1 && user.count(Placeholder::AddOn) == 1;
        if !once || user.count(Placeholder::Agent) > 1 {
            return Err(IdentityError::UserIncomplete(user.source));
        }
        Ok(Self { user, groups: parse_agentless(groups)?, dns_names: parse_agentless(dns_names)? })
    }

    /// Checks that no other signer has these users and groups: each template is one of OCM's convention, in which the
    /// addon distinguishes signers, or begins with the signer's name and a colon, which no signer name contains.
    ///
    /// # Errors
    /// [`IdentityError::NotOfSigner`] for the first other template.
    pub fn check_signer(&self, signer: &SignerName) -> Result<(), IdentityError> {
        let own = format!("{signer}:");
        let groups = self.groups.iter().map(|template| (template, &DEFAULT_GROUPS[..]));
        let foreign = [(&self.user, &[DEFAULT_USER][..])].into_iter().chain(groups).find(|(template, of_ocm)| {
            !template.source.starts_with(&own) && !of_ocm.contains(&template.source.as_str())
        });
        foreign.map_or(Ok(()), |(template, _)| Err(IdentityError::NotOfSigner(template.source.clone(), own)))
    }

    /// The common name of a certificate for `id`.
    pub fn user(&self, id: &PeerIdentity) -> String {
        self.user.render(id.cluster.as_str(), id.addon.as_str(), id.agent.as_str())
    }

    /// The organizations of a certificate for any agent of `addon` on `cluster`.
    pub fn groups(&self, cluster: &ClusterName, addon: &AddOnName) -> Vec<String> {
        self.groups.iter().map(|t| t.render(cluster.as_str(), addon.as_str(), "")).collect()
    }

    /// The DNS names of a certificate for any agent of `addon` on `cluster`.
    pub fn dns_names(&self, cluster: &ClusterName, addon: &AddOnName) -> Vec<String> {
        self.dns_names.iter().map(|t| t.render(cluster.as_str(), addon.as_str(), "")).collect()
    }

    /// Reads the identity from a common name. If the convention has no `{agent}`, the agent has the addon's name.
    ///
    /// # Errors
    /// [`IdentityError::NotConvention`] if the form differs, or the error of the part that is not a name.
    pub fn identify(&self, common_name: &str) -> Result<PeerIdentity, IdentityError> {
        let refused = || IdentityError::NotConvention(common_name.to_owned(), self.user.source.clone());
        let captures = self.user.captures(common_name).ok_or_else(refused)?;
        let part = |hole| captures.iter().find(|(found, _)| *found == hole).map(|(_, text)| *text);
        let addon = part(Placeholder::AddOn).ok_or_else(refused)?;
        Ok(PeerIdentity {
            cluster: part(Placeholder::Cluster).ok_or_else(refused)?.parse()?,
            addon: addon.parse()?,
            agent: part(Placeholder::Agent).unwrap_or(addon).parse()?,
        })
    }
}

impl Default for Convention {
    #[expect(clippy::expect_used, reason = "constants of this file; default_convention_is_ocms holds them to it")]
    fn default() -> Self {
        Self::new(DEFAULT_USER, &DEFAULT_GROUPS, &DEFAULT_DNS_NAMES).expect("OCM's convention is a convention")
    }
}

fn parse_agentless<S: AsRef<str>>(sources: &[S]) -> Result<Vec<Template>, IdentityError> {
    let parse = |source: &S| {
        let template = Template::parse(source.as_ref())?;
        match template.count(Placeholder::Agent) {
            0 => Ok(template),
            _ => Err(IdentityError::AgentNotAllowed(template.source)),
        }
    };
    sources.iter().map(parse).collect()
}

/// Why a text is not a name, a template or an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A cluster or addon name that is not an RFC 1123 label.
    #[error("{0:?} is not a {1} name: use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit")]
    NotALabel(String, &'static str),
    /// An agent name with a character outside the allowed set.
    #[error(
        "{0:?} is not an agent name: use 1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.', \
         starting and ending with a letter or digit"
    )]
    NotAnAgent(String),
    /// A signer name without a domain, or one that something other than an AddOnSigner serves.
    #[error("it must be <your domain>/<name> in lower case, and the domain must not be Kubernetes' or addon-signer.io")]
    NotASignerName,
    /// A template that is empty or too long.
    #[error("the template {0:?} must have 1 to 512 printable ASCII characters")]
    TemplateLength(String),
    /// A brace that is not part of one of the three placeholders.
    #[error("the template {0:?} has braces that are not {{cluster}}, {{addon}} or {{agent}}")]
    UnknownPlaceholder(String),
    /// Two placeholders that are not clearly separated.
    #[error("the template {0:?} must keep its placeholders apart by a character no name can hold, such as ':'")]
    Ambiguous(String),
    /// The user template does not map back to exactly one identity.
    #[error("the user template {0:?} must name {{cluster}} and {{addon}} exactly once and {{agent}} at most once")]
    UserIncomplete(String),
    /// A group or DNS template that depends on the agent, which the requester chooses.
    #[error("the template {0:?} must not name {{agent}}, because the requester chooses the agent's name")]
    AgentNotAllowed(String),
    /// A template with which a signer could name an identity of another signer, or of Kubernetes.
    #[error("the template {0:?} must be one of OCM's convention, or begin with {1:?}, so that it is the signer's own")]
    NotOfSigner(String, String),
    /// A common name that does not follow the convention's form.
    #[error("{0:?} does not follow the convention {1:?}")]
    NotConvention(String, String),
}

#[cfg(test)]
mod tests;
