//! Our accounts on an API server, as the chart names them.

/// The hub's account, as the chart names it.
pub const HUB_USER: &str = "system:serviceaccount:addon-signer:addon-signer";
/// The groups that Kubernetes gives to that account.
pub const HUB_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:addon-signer"];
/// The ServiceAccount of gateways in processes of their own, in the hub's namespace.
pub const GATEWAY_ACCOUNT: &str = "addon-signer-gateway";
/// The same as a user.
pub const GATEWAY_USER: &str = "system:serviceaccount:addon-signer:addon-signer-gateway";
/// The agent's account on its managed cluster, as deploy/agent.yaml names it.
pub const AGENT_USER: &str = "system:serviceaccount:open-cluster-management-agent:addon-signer-agent";

/// The group of the addon's own hub identities, to which `requesters` in the chart gives its role.
pub const ADDON_GROUP: &str = "system:open-cluster-management:addon:telemetry";

/// The account of OCM's gRPC server, the only one that may name another user.
pub const GRPC_PROXY: &str = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa";
