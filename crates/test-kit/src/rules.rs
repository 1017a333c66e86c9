//! The inputs of policy: a signer's rules, the registry, and what the API server says about a request. Benchmarks use
//! this file too, so that they measure what is tested.

use std::time::Duration;

use addon_signer_core::identity::{AddOnName, ClusterName, Convention};
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{RequesterKind, SignerRules, Submission};
use addon_signer_core::registry::{AddOnFacts, ClusterFacts, Registry};

/// The rules of a signer that sets only its name and its addons.
pub fn mk_rules<const N: usize>(signer_name: &str, addons: [AddOnName; N]) -> SignerRules {
    SignerRules {
        signer_name: signer_name.parse().unwrap(),
        addons: addons.into(),
        convention: Convention::default(),
        requesters: [RequesterKind::Cluster].into(),
        organizational_units: [].into(),
        keys: KeyKind::ALL.into(),
        duration: Duration::from_secs(86_400),
        max_duration: Duration::from_secs(604_800),
        grpc_proxy: None,
    }
}

/// A registry with one accepted cluster that has these addons.
pub fn mk_registry<const N: usize>(cluster: &ClusterName, addons: [AddOnName; N]) -> Registry {
    let mut registry = Registry::default();
    let accepted = ClusterFacts::ACCEPTED;
    registry.set_cluster(cluster.clone(), Some(accepted));
    for addon in addons {
        registry.set_addon(cluster.clone(), addon, Some(AddOnFacts::Installed));
    }
    registry.complete_clusters(|_| true);
    registry.complete_addons(|_| true);
    registry
}

/// A request as OCM's agent of this cluster submits it.
pub fn mk_submission(cluster: &ClusterName, addon: &AddOnName, request: &[u8]) -> Submission {
    Submission {
        username: format!("system:open-cluster-management:{cluster}:a1"),
        groups: vec![format!("system:open-cluster-management:{cluster}"), "system:authenticated".to_owned()],
        cluster_label: Some(cluster.to_string()),
        addon_label: Some(addon.to_string()),
        usages: ["digital signature", "key encipherment", "client auth"].map(str::to_owned).to_vec(),
        request: request.to_vec(),
        ..Submission::default()
    }
}
