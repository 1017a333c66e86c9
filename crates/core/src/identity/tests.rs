//! Tests of names, templates, and conventions that are written and read back.

use super::*;
use proptest::prelude::*;

fn identity(cluster: &str, addon: &str, agent: &str) -> PeerIdentity {
    PeerIdentity { cluster: cluster.parse().unwrap(), addon: addon.parse().unwrap(), agent: agent.parse().unwrap() }
}

#[test]
fn default_convention_is_ocms() {
    let convention = Convention::default();
    let id = identity("spoke1", "telemetry", "telemetry");
    assert_eq!(convention.user(&id), "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:telemetry");
    assert_eq!(
        convention.groups(&id.cluster, &id.addon),
        [
            "system:open-cluster-management:cluster:spoke1:addon:telemetry",
            "system:open-cluster-management:addon:telemetry"
        ]
    );
    assert_eq!(convention.dns_names(&id.cluster, &id.addon), ["telemetry.addon.open-cluster-management.io"]);
}

#[test]
fn names_outside_ocms_rules_are_refused() {
    for bad in ["", "-a", "a-", "A", "a_b", "a.b", "a:b", "ä", &"a".repeat(64)] {
        assert!(bad.parse::<ClusterName>().is_err(), "{bad:?}");
        assert!(bad.parse::<AddOnName>().is_err(), "{bad:?}");
    }
    for bad in ["", ".a", "a:", "a:b", "a/b", "a b", &"a".repeat(64)] {
        assert!(bad.parse::<AgentName>().is_err(), "{bad:?}");
    }
    for good in ["a", "0", "a-b", &"a".repeat(63)] {
        assert!(good.parse::<ClusterName>().is_ok(), "{good:?}");
    }
    assert!("X7-y_z.1".parse::<AgentName>().is_ok());
}

#[test]
fn signer_names_of_kubernetes_and_of_the_gateway_are_refused() {
    for bad in [
        "",
        "telemetry",
        "kubernetes.io/kubelet-serving",
        "a.kubernetes.io/b",
        GATEWAY_SERVING_SIGNER,
        GATEWAY_CLIENT_SIGNER,
        "addon-signer.io/other",
        "example/x",
        "example.c0m/x",
        "-a.com/x",
        "example.com/",
        "example.com/X",
        "example.com/a/b",
    ] {
        assert_eq!(bad.parse::<SignerName>(), Err(IdentityError::NotASignerName), "{bad:?}");
    }
    for good in ["example.com/telemetry", "notkubernetes.io/a", "a-1.example.com/-x.y"] {
        assert_eq!(good.parse::<SignerName>().unwrap().as_str(), good);
    }
    assert_eq!(SignerName::gateway_serving().as_str(), GATEWAY_SERVING_SIGNER);
    assert_eq!(SignerName::gateway_client().as_str(), GATEWAY_CLIENT_SIGNER);
}

#[test]
fn users_outside_the_convention_are_refused() {
    let convention = Convention::default();
    for bad in [
        "",
        "system:open-cluster-management:spoke1:a1",
        "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:",
        "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:a:b",
        "system:open-cluster-management:cluster::addon:telemetry:agent:a",
        "system:open-cluster-management:cluster:a:addon:b:addon:c:agent:d",
        "xsystem:open-cluster-management:cluster:spoke1:addon:telemetry:agent:a",
        "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:a\n",
    ] {
        assert!(convention.identify(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn templates_that_lose_the_identity_are_refused() {
    let new = |user: &str| Convention::new(user, &[] as &[&str], &[]);
    assert!(matches!(new("x:{addon}"), Err(IdentityError::UserIncomplete(_))));
    assert!(matches!(new("x:{cluster}"), Err(IdentityError::UserIncomplete(_))));
    assert!(matches!(new("{cluster}:{cluster}:{addon}"), Err(IdentityError::UserIncomplete(_))));
    assert!(matches!(new("{cluster}{addon}"), Err(IdentityError::Ambiguous(_))));
    assert!(matches!(new("{cluster}-{addon}"), Err(IdentityError::Ambiguous(_))));
    assert!(matches!(new("{cluster}:{addon}:{host}"), Err(IdentityError::UnknownPlaceholder(_))));
    assert!(matches!(new("{cluster}:{addon"), Err(IdentityError::UnknownPlaceholder(_))));
    assert!(matches!(new("}{cluster}:{addon}"), Err(IdentityError::UnknownPlaceholder(_))));
    assert!(matches!(new(""), Err(IdentityError::TemplateLength(_))));
    assert!(matches!(new("{cluster}:\n{addon}"), Err(IdentityError::TemplateLength(_))));
    let groups = Convention::new("{cluster}:{addon}", &["{agent}"], &[]);
    assert!(matches!(groups, Err(IdentityError::AgentNotAllowed(_))));
}

#[test]
fn a_suffix_after_the_last_placeholder_may_be_any_text() {
    let convention = Convention::new("{addon}:{cluster}.clusters.example", &[] as &[&str], &[]).unwrap();
    let id = convention.identify("telemetry:c1.clusters.example").unwrap();
    assert_eq!(id, identity("c1", "telemetry", "telemetry"));
    assert!(convention.identify("telemetry:c1.clusters.example.clusters.example").is_err());
}

proptest! {
    #[test]
    fn print_then_parse_is_identity(
        cluster in "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?",
        addon in "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?",
        agent in "[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?",
        user in prop::sample::select(vec![DEFAULT_USER, "{agent}@{addon}@{cluster}", "x/{cluster}/{agent}/{addon}-y"]),
    ) {
        let convention = Convention::new(user, &[] as &[&str], &[]).unwrap();
        let id = identity(&cluster, &addon, &agent);
        prop_assert_eq!(convention.identify(&convention.user(&id)).unwrap(), id);
    }

    #[test]
    fn parse_then_print_is_identity(text in "[ -~]{0,80}") {
        if let Ok(id) = Convention::default().identify(&text) {
            prop_assert_eq!(Convention::default().user(&id), text);
        }
    }
}

#[test]
fn a_signer_names_nobody_but_its_own() {
    let signer: SignerName = "example.com/telemetry".parse().unwrap();
    let check =
        |user: &str, groups: &[&str]| Convention::new(user, groups, &DEFAULT_DNS_NAMES).unwrap().check_signer(&signer);
    let own = "example.com/telemetry:{cluster}:{addon}";
    for (user, groups) in [
        (DEFAULT_USER, &DEFAULT_GROUPS[..]),
        (own, &["example.com/telemetry:all", "system:open-cluster-management:addon:{addon}"]),
        (own, &[]),
    ] {
        assert_eq!(check(user, groups), Ok(()), "{user} {groups:?}");
    }
    for user in [
        "example.com/telemetry-2:{cluster}:{addon}",
        "example.com/telemetry{cluster}:{addon}",
        "{cluster}:{addon}",
        "system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:x",
        "system:open-cluster-management:cluster:x:addon:telemetry:agent:{cluster}:{addon}",
    ] {
        let expected = IdentityError::NotOfSigner(user.to_owned(), "example.com/telemetry:".to_owned());
        assert_eq!(check(user, &[]), Err(expected));
    }
    for group in [
        "system:masters",
        "system:open-cluster-management:addon:search",
        "system:open-cluster-management:{cluster}",
        "x",
    ] {
        assert!(matches!(check(own, &[group]), Err(IdentityError::NotOfSigner(..))), "{group}");
    }
}
