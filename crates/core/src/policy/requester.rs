//! The requester of a certificate, by the name and the groups that the API server gives it.

use super::{Refusal, SignerRules, Submission};
use crate::identity::{AddOnKey, AddOnName, AgentName, ClusterName, addon_group, cluster_group};

/// A kind of requester that an AddOnSigner can allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequesterKind {
    /// A cluster's registration agent: `system:open-cluster-management:<cluster>:<agent-id>` (OCM
    /// `pkg/registration/hub/user/identity.go`). It may ask for every addon of its cluster.
    Cluster,
    /// An addon's own hub identity, which OCM's registration agent keeps where the addon has a registration of the type
    /// `KubeClient`: `system:open-cluster-management:cluster:<cluster>:addon:<addon>:agent:<agent>` (OCM
    /// `pkg/registration/register/csr/csr.go`). It may ask for this addon on this cluster only.
    AddOn,
}

/// A requester whose cluster is proven, and whose addon too if it is an addon's identity.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Requester {
    pub(super) cluster: ClusterName,
    /// `None` for a cluster's registration agent.
    pub(super) addon: Option<AddOnName>,
}

impl Requester {
    fn of(username: &str) -> Option<Self> {
        let parts: Vec<&str> = username.split(':').collect();
        match parts.as_slice() {
            ["system", "open-cluster-management", cluster, agent] if !agent.is_empty() => {
                Some(Self { cluster: cluster.parse().ok()?, addon: None })
            }
            ["system", "open-cluster-management", "cluster", cluster, "addon", addon, "agent", agent] => {
                agent.parse::<AgentName>().ok()?;
                Some(Self { cluster: cluster.parse().ok()?, addon: Some(addon.parse().ok()?) })
            }
            _ => None,
        }
    }

    fn kind(&self) -> RequesterKind {
        if self.addon.is_some() { RequesterKind::AddOn } else { RequesterKind::Cluster }
    }

    /// The group that the requester must be in according to the API server.
    fn group(&self) -> String {
        match &self.addon {
            Some(addon) => addon_group(&AddOnKey { cluster: self.cluster.clone(), addon: addon.clone() }),
            None => cluster_group(&self.cluster),
        }
    }
}

/// Rule 1: the requester is exactly of one of the allowed kinds, and in its group. The gRPC proxy does not pass on the
/// groups of its user.
pub(super) fn authenticate(rules: &SignerRules, submission: &Submission) -> Result<Requester, Refusal> {
    let proxied = rules.grpc_proxy.as_ref().is_some_and(|account| *account == submission.username);
    let username = match (&submission.csr_user, proxied) {
        (Some(_), true) if !submission.is_guarded => return Err(Refusal::ProxiedUserUnproven),
        (Some(user), true) => user,
        (None, true) => return Err(Refusal::ProxiedUserMissing),
        (_, false) => &submission.username,
    };
    let Some(requester) = Requester::of(username) else {
        let of_token_driver = matches!(
            username.split(':').collect::<Vec<_>>().as_slice(),
            ["system", "serviceaccount", _, name] if name.ends_with("-agent")
        );
        let refuse = if of_token_driver { Refusal::RequesterToken } else { Refusal::Requester };
        return Err(refuse(username.clone()));
    };
    if !rules.requesters.contains(&requester.kind()) {
        return Err(Refusal::RequesterKind(requester.kind()));
    }
    // The names of all addons' hub identities begin this way, and OCM would mistake them for agents of such a cluster.
    if requester.addon.is_some() && "cluster".starts_with(requester.cluster.as_str()) {
        return Err(Refusal::RequesterOfSeveral { cluster: requester.cluster, other: "cluster".to_owned() });
    }
    let group = requester.group();
    if proxied || submission.groups.contains(&group) { Ok(requester) } else { Err(Refusal::RequesterGroup(group)) }
}

/// The tenant that must wait when a requester sends too many CSRs: its cluster, or the account itself if it belongs to
/// no cluster. The requester chooses no part of the name. `grpc_proxy` is that of [`SignerRules`].
#[must_use]
pub fn tenant(username: &str, csr_user: Option<&str>, grpc_proxy: Option<&str>) -> String {
    let user = actual_user(username, csr_user, grpc_proxy);
    Requester::of(user).map_or_else(|| format!("account {user}"), |requester| tenant_of_cluster(&requester.cluster))
}

/// The [`tenant`] of a cluster's requesters. No account of another kind can have this name.
#[must_use]
pub fn tenant_of_cluster(cluster: &ClusterName) -> String {
    format!("cluster {cluster}")
}

/// The cluster to which a requester belongs.
#[must_use]
pub fn cluster_of(username: &str, csr_user: Option<&str>, grpc_proxy: Option<&str>) -> Option<ClusterName> {
    Requester::of(actual_user(username, csr_user, grpc_proxy)).map(|requester| requester.cluster)
}

fn actual_user<'u>(username: &'u str, csr_user: Option<&'u str>, grpc_proxy: Option<&str>) -> &'u str {
    csr_user.filter(|_| grpc_proxy == Some(username)).unwrap_or(username)
}
