//! Rule 1: who makes the request.

use super::{Case, Fixture, refused_around};
use crate::requests::pkcs10::{ADDON_GROUP, CLUSTER_GROUP, USER};
use test_kit::accounts::GRPC_PROXY;

const GROUP: &str = "system:open-cluster-management:spoke1";
const CSR_USER: &str = "open-cluster-management.io/csr-user";

pub(super) fn cases() -> Vec<Case> {
    [users(), groups(), proxied(), addons()].concat()
}

fn users() -> Vec<Case> {
    let by = |name: &str, comment: &str, user: &str| {
        refused_around(&format!("rule1-requester-{name}"), "RequesterNotAllowed", comment).by(user, &[GROUP])
    };
    vec![
        by("administrator", "a person with every right is not an agent", "kubernetes-admin"),
        by("addon-agent", "an addon's own hub identity, which this signer does not allow", USER),
        by("service-account", "a service account of the hub", "system:serviceaccount:spoke1:default"),
        by("without-agent-id", "the agent id is missing", "system:open-cluster-management:spoke1"),
        by("empty-agent-id", "the agent id is empty", "system:open-cluster-management:spoke1:"),
        by("extra-part", "one part too many", "system:open-cluster-management:spoke1:a1:x"),
        by("longer-prefix", "text before the convention", "xsystem:open-cluster-management:spoke1:a1"),
        by("upper-case", "a cluster name in capitals", "system:open-cluster-management:SPOKE1:a1"),
        by("empty-cluster", "the cluster is empty", "system:open-cluster-management::a1"),
        by("bootstrap", "the bootstrap account of a cluster that wants to join", "system:bootstrap:abcdef"),
    ]
}

fn groups() -> Vec<Case> {
    let with = |name: &str, comment: &str, groups: &[&str]| {
        refused_around(&format!("rule1-group-{name}"), "RequesterNotInGroup", comment)
            .by("system:open-cluster-management:spoke1:a1", groups)
    };
    vec![
        with("missing", "not in its cluster's group", &["system:open-cluster-management:managed-clusters"]),
        with("of-shorter-cluster", "in the group of spoke, a prefix", &["system:open-cluster-management:spoke"]),
        with("of-longer-cluster", "in the group of spoke12", &["system:open-cluster-management:spoke12"]),
        with("masters", "in the administrators' group instead", &["system:masters"]),
    ]
}

fn proxied() -> Vec<Case> {
    let by_proxy = |name: &str, reason: &str, comment: &str| {
        refused_around(&format!("rule1-proxy-{name}"), reason, comment).by(GRPC_PROXY, &["system:serviceaccounts"])
    };
    vec![
        by_proxy("not-configured", "RequesterNotAllowed", "a gRPC proxy that the configuration does not name")
            .annotation(CSR_USER, "system:open-cluster-management:spoke1:a1"),
        by_proxy("without-user", "ProxiedUserMissing", "the proxy does not say for whom it asks")
            .with(Fixture::GrpcProxy),
        by_proxy("names-addon-agent", "RequesterNotAllowed", "the proxied user is not a registration agent")
            .annotation(CSR_USER, USER)
            .with(Fixture::GrpcProxy),
        by_proxy("older-than-policy", "ProxiedUserUnproven", "made before nobody could change the proxied user")
            .annotation(CSR_USER, "system:open-cluster-management:spoke1:a1")
            .with(Fixture::GrpcProxyLate),
    ]
}

/// The signer lets addons ask for themselves.
fn addons() -> Vec<Case> {
    let by = |name: &str, reason: &str, comment: &str, user: &str, group: &str| {
        refused_around(name, reason, comment).by(user, &[group]).with(Fixture::AddonRequester)
    };
    let not_allowed = |name: &str, comment: &str, user: &str| {
        by(&format!("rule1-addon-{name}"), "RequesterNotAllowed", comment, user, CLUSTER_GROUP)
    };
    let search = USER.replace("telemetry", "search");
    let elsewhere = USER.replace("spoke1", "spoke2");
    let group_of = |user: &str| user.rsplit_once(":agent:").unwrap().0.to_owned();
    vec![
        not_allowed("agent-empty", "the agent is empty", USER.strip_suffix("telemetry").unwrap()),
        not_allowed("extra-part", "one part too many", &format!("{USER}:x")),
        not_allowed("longer-prefix", "text before the convention", &format!("x{USER}")),
        by("rule1-addon-in-its-clusters-group", "RequesterNotInGroup", "in its cluster's group alone", USER, GROUP),
        by(
            "rule1-addon-in-the-addons-group",
            "RequesterNotInGroup",
            "in the group of all agents of the addon",
            USER,
            ADDON_GROUP,
        ),
        by(
            "rule1-token-driver",
            "RequesterOfTokenDriver",
            "an account of OCM's token driver",
            "system:serviceaccount:spoke1:telemetry-agent",
            "system:serviceaccounts:spoke1",
        ),
        by(
            "rule1-addon-of-cluster-clus",
            "RequesterOfSeveralClusters",
            "a cluster whose name is the beginning of all addons' hub identities",
            &USER.replace("spoke1", "clus"),
            &CLUSTER_GROUP.replace("spoke1", "clus"),
        ),
        by(
            "rule2-addon-another-asks",
            "SubjectOfAnotherAddOn",
            "search asks for telemetry",
            &search,
            &group_of(&search),
        ),
        by(
            "rule2-cluster-of-another-addon-agent",
            "SubjectOfAnotherCluster",
            "telemetry on spoke2 asks for telemetry on spoke1",
            &elsewhere,
            &group_of(&elsewhere),
        ),
    ]
}
