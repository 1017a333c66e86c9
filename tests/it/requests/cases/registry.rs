//! Rules 5 and 6: eligibility, labels, usages and lifetime.

use super::{Case, Fixture, refused_around};

pub(super) fn cases() -> Vec<Case> {
    [eligibility(), labels(), usages(), lifetimes()].concat()
}

fn eligibility() -> Vec<Case> {
    let case = |name: &str, reason: &str, comment: &str, fixture: Fixture| {
        refused_around(&format!("rule5-{name}"), reason, comment).with(fixture)
    };
    vec![
        case("cluster-unknown", "ClusterUnknown", "the ManagedCluster is gone", Fixture::ClusterUnknown),
        case("cluster-not-accepted", "ClusterNotAccepted", "hubAcceptsClient is false", Fixture::ClusterNotAccepted),
        case("cluster-deleting", "ClusterDeleting", "the ManagedCluster is being deleted", Fixture::ClusterDeleting),
        case("addon-not-installed", "AddOnNotInstalled", "no ManagedClusterAddOn there", Fixture::AddonNotInstalled),
        case("addon-deleting", "AddOnDeleting", "the ManagedClusterAddOn is being deleted", Fixture::AddonDeleting),
        case("addon-suspended", "AddOnSuspended", "the addon is suspended on that cluster", Fixture::AddonSuspended),
        case(
            "addon-unreadable",
            "RegistrationUnreadable",
            "the ManagedClusterAddOn cannot be read",
            Fixture::AddonUnreadable,
        ),
        case(
            "cluster-remade",
            "RequestTooOld",
            "the ManagedCluster was made again after the request",
            Fixture::ClusterRemade,
        ),
        case(
            "not-ready",
            "RegistryNotReady",
            "nothing is known yet; the request waits, it is not denied",
            Fixture::NotReady,
        ),
    ]
}

fn labels() -> Vec<Case> {
    let cluster = |name: &str, comment: &str, value: &str| {
        refused_around(&format!("rule5-label-cluster-{name}"), "ClusterLabelContradicts", comment)
            .label("cluster-name", value)
    };
    let addon = |name: &str, comment: &str, value: &str| {
        refused_around(&format!("rule5-label-addon-{name}"), "AddOnLabelContradicts", comment)
            .label("addon-name", value)
    };
    vec![
        cluster("another", "the label names spoke2", "spoke2"),
        cluster("shorter", "the label names spoke, a prefix", "spoke"),
        cluster("longer", "the label names spoke12", "spoke12"),
        cluster("empty", "the label is empty", ""),
        addon("another", "the label names logging", "logging"),
        addon("empty", "the label is empty", ""),
    ]
}

fn usages() -> Vec<Case> {
    let beyond = |name: &str, comment: &str, usages: &[&str]| {
        refused_around(&format!("rule6-usage-{name}"), "UsageNotAllowed", comment).usages(usages)
    };
    let missing = |name: &str, comment: &str, usages: &[&str]| {
        refused_around(&format!("rule6-usage-{name}"), "UsageMissing", comment).usages(usages)
    };
    let tls = ["digital signature", "key encipherment"];
    vec![
        beyond("server-auth-too", "server auth beside client auth", &[tls[0], tls[1], "client auth", "server auth"]),
        beyond("server-auth", "a server certificate", &[tls[0], tls[1], "server auth"]),
        beyond("cert-sign", "signing certificates", &[tls[0], "client auth", "cert sign"]),
        beyond("any", "any usage", &["client auth", "any"]),
        beyond("signing", "an old name for digital signature", &["signing", "client auth"]),
        missing("client-auth-missing", "no client auth", &tls),
        missing("digital-signature-only", "one usage that is allowed, but not the signer's", &tls[..1]),
    ]
}

fn lifetimes() -> Vec<Case> {
    let case = |name: &str, comment: &str, seconds: i32| {
        refused_around(&format!("rule6-lifetime-{name}"), "ExpirationTooShort", comment).expires(seconds)
    };
    vec![
        case("too-short", "one second less than ten minutes", 599),
        case("zero", "no time at all", 0),
        case("negative", "a time in the past", -3600),
    ]
}
