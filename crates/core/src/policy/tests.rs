//! Tests of the rules with OCM's own CSR. Each test varies one thing. `tests/it/requests/` runs the whole corpus.

use super::*;
use crate::registry::{AddOnFacts, ClusterFacts, NotRegistered};

const OCM_REQUEST: &[u8] = include_bytes!("../../../../certs/requests/good/ocm-agent-v1.3.pem");

pub(crate) fn mk_rules() -> SignerRules {
    SignerRules {
        signer_name: "example.com/telemetry".parse().unwrap(),
        addons: BTreeSet::from(["telemetry".parse().unwrap()]),
        convention: Convention::default(),
        requesters: [RequesterKind::Cluster].into(),
        organizational_units: BTreeSet::new(),
        keys: KeyKind::ALL.into_iter().collect(),
        duration: Duration::from_secs(86_400),
        max_duration: Duration::from_secs(604_800),
        grpc_proxy: None,
    }
}

fn mk_submission() -> Submission {
    let groups = ["system:open-cluster-management:spoke1", "system:open-cluster-management:managed-clusters"];
    let usages = ["digital signature", "key encipherment", "client auth"];
    Submission {
        username: "system:open-cluster-management:spoke1:a1".to_owned(),
        groups: groups.map(str::to_owned).to_vec(),
        cluster_label: Some("spoke1".to_owned()),
        addon_label: Some("telemetry".to_owned()),
        usages: usages.map(str::to_owned).to_vec(),
        request: OCM_REQUEST.to_vec(),
        ..Submission::default()
    }
}

fn mk_registry() -> Registry {
    let mut registry = Registry::default();
    registry.complete_clusters(|_| false);
    registry.complete_addons(|_| false);
    registry.set_cluster("spoke1".parse().unwrap(), Some(ClusterFacts::ACCEPTED));
    registry.set_addon("spoke1".parse().unwrap(), "telemetry".parse().unwrap(), Some(AddOnFacts::Installed));
    registry
}

fn refusal(change: impl FnOnce(&mut SignerRules, &mut Submission, &mut Registry)) -> Refusal {
    let mut rules = mk_rules();
    let mut submission = mk_submission();
    let mut registry = mk_registry();
    change(&mut rules, &mut submission, &mut registry);
    evaluate(&rules, &submission, &registry).unwrap_err()
}

#[test]
fn a_requester_that_is_not_a_cluster_is_refused() {
    for user in [
        "",
        "admin",
        "system:open-cluster-management:spoke1",
        "system:open-cluster-management:spoke1:",
        "system:open-cluster-management:spoke1:a:b",
        "xsystem:open-cluster-management:spoke1:a",
        "system:open-cluster-management:SPOKE1:a",
    ] {
        let refused = refusal(|_, submission, _| submission.username = user.to_owned());
        assert_eq!(refused, Refusal::Requester(user.to_owned()));
        assert_eq!(refused.rule(), 1);
    }
}

/// OCM approves the hub identity of an addon by the beginning of the requester's name.
#[test]
fn an_addon_of_a_cluster_whose_name_begins_anothers_may_not_ask() {
    const HUB_USER: &str = "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:x7k2p";
    let rules = SignerRules { requesters: [RequesterKind::Cluster, RequesterKind::AddOn].into(), ..mk_rules() };
    let by = |user: &str, group: &str| Submission {
        username: user.to_owned(),
        groups: vec![group.to_owned()],
        ..mk_submission()
    };
    let addon = by(HUB_USER, "system:open-cluster-management:cluster:spoke1:addon:telemetry");
    let cluster = by("system:open-cluster-management:spoke1:a1", "system:open-cluster-management:spoke1");
    let mut registry = mk_registry();
    let facts =
        crate::registry::ClusterFacts { accepted: false, deleting: true, ..crate::registry::ClusterFacts::ACCEPTED };
    for (other, refused) in [("spoke", false), ("spoke2", false), ("xspoke1", false), ("spoke12", true)] {
        let other: crate::identity::ClusterName = other.parse().unwrap();
        registry.set_cluster(other.clone(), Some(facts));
        let refusal = Refusal::RequesterOfSeveral { cluster: "spoke1".parse().unwrap(), other: other.to_string() };
        assert_eq!(evaluate(&rules, &addon, &registry).err(), refused.then_some(refusal), "{other}");
        assert!(evaluate(&rules, &cluster, &registry).is_ok(), "{other}: the cluster itself may ask");
    }
    for name in ["c", "clus", "cluster"] {
        let user = HUB_USER.replace("spoke1", name);
        let group = format!("system:open-cluster-management:cluster:{name}:addon:telemetry");
        let refused = evaluate(&rules, &by(&user, &group), &mk_registry()).unwrap_err();
        assert_eq!(refused.reason(), "RequesterOfSeveralClusters", "{name}");
    }
}

#[test]
fn addon_identity_asks_only_for_itself_on_its_own_cluster() {
    const HUB_USER: &str = "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:x7k2p";
    let ask = |kinds: &[RequesterKind], user: &str| {
        let rules = SignerRules { requesters: kinds.iter().copied().collect(), ..mk_rules() };
        let group = user.rsplit_once(":agent:").map(|(group, _)| group.to_owned());
        let submission =
            Submission { username: user.to_owned(), groups: group.into_iter().collect(), ..mk_submission() };
        evaluate(&rules, &submission, &mk_registry())
    };
    let both = [RequesterKind::Cluster, RequesterKind::AddOn];
    let approved = ask(&both, HUB_USER).unwrap();
    assert_eq!(approved.identity().unwrap().to_string(), "spoke1/telemetry/telemetry", "agents' names need not match");
    assert_eq!(ask(&[RequesterKind::Cluster], HUB_USER), Err(Refusal::RequesterKind(RequesterKind::AddOn)));
    let other = ask(&both, &HUB_USER.replace("telemetry", "search"));
    let [subject, requester] = ["telemetry", "search"].map(|name| name.parse().unwrap());
    assert_eq!(other, Err(Refusal::AnotherAddOn { subject, requester }));
    let elsewhere = ask(&both, &HUB_USER.replace("spoke1", "spoke2")).unwrap_err();
    assert!(matches!(elsewhere, Refusal::AnotherCluster { .. }), "{elsewhere}");
    for bad in [
        "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:",
        "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:a:b",
        "system:open-cluster-management:cluster:spoke1:addon:telemetry",
        "system:open-cluster-management:cluster::addon:telemetry:agent:a",
    ] {
        assert_eq!(ask(&both, bad), Err(Refusal::Requester(bad.to_owned())));
    }
    let refused = refusal(|rules, submission, _| {
        rules.requesters = both.into();
        HUB_USER.clone_into(&mut submission.username);
    });
    let group = "system:open-cluster-management:cluster:spoke1:addon:telemetry";
    assert_eq!(refused, Refusal::RequesterGroup(group.to_owned()), "the cluster's own group is not enough");
    let cluster = refusal(|rules, _, _| rules.requesters = [RequesterKind::AddOn].into());
    assert_eq!(cluster, Refusal::RequesterKind(RequesterKind::Cluster));
}

#[test]
fn token_driver_account_is_told_to_use_the_csr_driver() {
    let user = "system:serviceaccount:spoke1:telemetry-agent";
    let refused = refusal(|_, submission, _| user.clone_into(&mut submission.username));
    assert_eq!(refused, Refusal::RequesterToken(user.to_owned()));
    assert!(refused.sentence().ends_with("use the csr driver."), "{}", refused.sentence());
}

#[test]
fn whatever_asks_for_a_cluster_waits_with_the_cluster() {
    let of_cluster = tenant("system:open-cluster-management:spoke1:a1", None, None);
    let of_addon = "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:a";
    assert_eq!(tenant(of_addon, None, None), of_cluster);
    assert_eq!(tenant("proxy", Some(of_addon), Some("proxy")), of_cluster);
    for other in ["cluster spoke1", "account cluster spoke1", "spoke1"] {
        assert_ne!(tenant(other, None, None), of_cluster, "{other}");
    }
}

#[test]
fn a_cluster_whose_name_is_a_prefix_is_another_cluster() {
    for cluster in ["spoke", "spoke12", "poke1"] {
        let refused = refusal(|_, submission, _| {
            submission.username = format!("system:open-cluster-management:{cluster}:a1");
            submission.groups = vec![format!("system:open-cluster-management:{cluster}")];
        });
        let expected =
            Refusal::AnotherCluster { subject: "spoke1".parse().unwrap(), requester: cluster.parse().unwrap() };
        assert_eq!(refused, expected);
    }
}

#[test]
fn only_the_configured_proxy_may_name_another_user() {
    let proxy = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa";
    let mut submission = Submission {
        username: proxy.to_owned(),
        groups: vec![],
        csr_user: Some("system:open-cluster-management:spoke1:a1".to_owned()),
        is_guarded: true,
        ..mk_submission()
    };
    let refused = evaluate(&mk_rules(), &submission, &mk_registry()).unwrap_err();
    assert_eq!(refused, Refusal::Requester(proxy.to_owned()));
    let rules = SignerRules { grpc_proxy: Some(proxy.to_owned()), ..mk_rules() };
    assert!(evaluate(&rules, &submission, &mk_registry()).is_ok());
    let open = Submission { is_guarded: false, ..submission.clone() };
    assert_eq!(evaluate(&rules, &open, &mk_registry()).unwrap_err(), Refusal::ProxiedUserUnproven);
    submission.csr_user = None;
    assert_eq!(evaluate(&rules, &submission, &mk_registry()).unwrap_err(), Refusal::ProxiedUserMissing);
    // The annotation has no effect on CSRs of others.
    let liar = Submission { csr_user: Some("system:open-cluster-management:other:a".into()), ..mk_submission() };
    assert!(evaluate(&rules, &liar, &mk_registry()).is_ok());
}

#[test]
fn labels_that_lie_are_refused() {
    let refused = refusal(|_, submission, _| submission.cluster_label = Some("spoke2".to_owned()));
    assert_eq!(refused, Refusal::ClusterLabel("spoke2".to_owned()));
    let refused = refusal(|_, submission, _| submission.addon_label = Some("other".to_owned()));
    assert_eq!(refused, Refusal::AddOnLabel("other".to_owned()));
    let unlabelled = Submission { cluster_label: None, addon_label: None, ..mk_submission() };
    assert!(evaluate(&mk_rules(), &unlabelled, &mk_registry()).is_ok());
}

#[test]
fn registrations_without_eligibility_are_refused() {
    let refused = refusal(|_, _, registry| drop(registry.set_cluster("spoke1".parse().unwrap(), None)));
    assert_eq!(refused, Refusal::Registration(NotRegistered::ClusterUnknown));
    let refused = refusal(|_, _, registry| *registry = Registry::default());
    assert_eq!(refused, Refusal::Registration(NotRegistered::NotReady));
    assert!(!refused.is_final());
}

#[test]
fn lifetime_is_honoured_within_its_bounds() {
    for seconds in [0, -1, i32::MIN, 599] {
        let refused = refusal(|_, submission, _| submission.expiration_seconds = Some(seconds));
        assert_eq!(refused, Refusal::ExpirationTooShort(seconds));
    }
    for (asked, granted) in [(600, 600), (3_600, 3_600), (604_801, 604_800), (i32::MAX, 604_800)] {
        let submission = Submission { expiration_seconds: Some(asked), ..mk_submission() };
        let approved = evaluate(&mk_rules(), &submission, &mk_registry()).unwrap();
        assert_eq!(approved.lifetime(), Duration::from_secs(granted));
    }
}
