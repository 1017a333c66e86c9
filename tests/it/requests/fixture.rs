//! The fixtures by which cases are evaluated: the rules of two signers, and what the hub knows of cluster and addon.

use std::collections::BTreeSet;
use std::time::Duration;

use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{GatewayRules, RequesterKind, SignerRules};
use addon_signer_core::registry::{AddOnFacts, ClusterFacts, Registry};
use addon_signer_core::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

use test_kit::accounts::GRPC_PROXY;
use test_kit::rules::mk_rules;

/// The gateway's account.
pub(crate) const GATEWAY: &str = "system:serviceaccount:addon-signer:addon-signer";
/// The gateway's DNS name.
pub(crate) const GATEWAY_DNS: &str = "gateway.addon-signer.example.com";
/// The gateway's address.
pub(crate) const GATEWAY_IP: [u8; 4] = [192, 0, 2, 10];

/// The state of the hub and of the signer's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fixture {
    /// Cluster spoke1 is accepted, the addon telemetry is installed on it, the signer has its defaults.
    Installed,
    /// There is no ManagedCluster spoke1.
    ClusterUnknown,
    /// `hubAcceptsClient` of spoke1 is false.
    ClusterNotAccepted,
    /// The ManagedCluster spoke1 is being deleted.
    ClusterDeleting,
    /// The ManagedCluster spoke1 is younger than the request.
    ClusterRemade,
    /// There is no ManagedClusterAddOn telemetry in spoke1.
    AddonNotInstalled,
    /// The ManagedClusterAddOn is being deleted.
    AddonDeleting,
    /// The ManagedClusterAddOn has the annotation `addon-signer.io/suspended: "true"`.
    AddonSuspended,
    /// The ManagedClusterAddOn cannot be read.
    AddonUnreadable,
    /// The hub has not read clusters and addons yet.
    NotReady,
    /// Like `installed`, and the signer allows ECDSA-P256 keys only.
    EcdsaP256Only,
    /// Like `installed`, and the configuration names the organizational unit `edge`.
    UnitEdge,
    /// Like `installed`, and the configuration names the gRPC proxy's account. The policy that keeps its annotation was
    /// in force when the request was made.
    GrpcProxy,
    /// Like `grpc-proxy`, but the hub has seen that policy in force only after the request was made.
    GrpcProxyLate,
    /// Like `installed`, and the signer lets addons ask for themselves too.
    AddonRequester,
}

impl Fixture {
    /// The rules of the signer example.com/telemetry.
    pub(crate) fn rules(self) -> SignerRules {
        let mut rules = mk_rules("example.com/telemetry", ["telemetry".parse().unwrap()]);
        match self {
            Self::EcdsaP256Only => rules.keys = BTreeSet::from([KeyKind::EcdsaP256]),
            Self::UnitEdge => rules.organizational_units = BTreeSet::from(["edge".to_owned()]),
            Self::AddonRequester => rules.requesters = [RequesterKind::Cluster, RequesterKind::AddOn].into(),
            Self::GrpcProxy | Self::GrpcProxyLate => rules.grpc_proxy = Some(GRPC_PROXY.to_owned()),
            _ => {}
        }
        rules
    }

    /// The rules of the signer addon-signer.io/gateway-serving.
    pub(crate) fn gateway_rules() -> GatewayRules {
        GatewayRules {
            account: GATEWAY.to_owned(),
            dns_names: BTreeSet::from([GATEWAY_DNS.to_owned()]),
            ip_addresses: BTreeSet::from([GATEWAY_IP.into()]),
            duration: Duration::from_secs(86_400),
        }
    }

    /// The registry of the hub.
    pub(crate) fn registry(self) -> Registry {
        let mut registry = Registry::default();
        if self == Self::NotReady {
            return registry;
        }
        registry.complete_clusters(|_| false);
        registry.complete_addons(|_| false);
        let cluster = match self {
            Self::ClusterUnknown => None,
            Self::ClusterNotAccepted => Some(ClusterFacts { accepted: false, ..ClusterFacts::ACCEPTED }),
            Self::ClusterDeleting => Some(ClusterFacts { deleting: true, ..ClusterFacts::ACCEPTED }),
            Self::ClusterRemade => Some(ClusterFacts { created: Timestamp::from_unix(1), ..ClusterFacts::ACCEPTED }),
            _ => Some(ClusterFacts::ACCEPTED),
        };
        let addon = match self {
            Self::AddonNotInstalled => None,
            Self::AddonDeleting => Some(AddOnFacts::Deleting),
            Self::AddonSuspended => Some(AddOnFacts::Suspended),
            Self::AddonUnreadable => Some(AddOnFacts::Unreadable),
            _ => Some(AddOnFacts::Installed),
        };
        registry.set_cluster("spoke1".parse().unwrap(), cluster);
        registry.set_addon("spoke1".parse().unwrap(), "telemetry".parse().unwrap(), addon);
        registry
    }
}
