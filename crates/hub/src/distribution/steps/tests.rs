use std::sync::Arc;
use std::time::Duration;

use ring::rand::SystemRandom;
use serde_json::{Value, json};

use super::super::known::Known;
use super::*;
use addon_signer_api::manifest_work::{body, digest_of};
use addon_signer_api::ocm::AddOnApi;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::lineage::{Agents, Lineage};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::registry::Registry;
use addon_signer_core::timestamp::Timestamp;

const API: AddOnApi = AddOnApi::V1Alpha1;

fn key(cluster: &str) -> AddOnKey {
    AddOnKey { cluster: cluster.parse().unwrap(), addon: "telemetry".parse().unwrap() }
}

fn mk_config(mode: &str) -> Arc<SignerConfig> {
    let spec = json!({
        "signerName": "example.com/telemetry", "addOns": ["telemetry"], "trust": { "manifestWork": mode },
    });
    Arc::new(SignerConfig::read(&serde_json::from_value(spec).unwrap(), None).unwrap())
}

fn mk_signers(modes: &[&str]) -> Signers {
    let served = modes.iter().map(|mode| ((*mode).to_owned(), mk_config(mode))).collect();
    Signers { served: Arc::new(served), ..Signers::default() }
}

/// The listed objects: an addon on each of these clusters, each with its UID.
fn listed(addons: &[(&str, &str, Value)], works: &[Value]) -> Known {
    let known = Known::default();
    for (cluster, uid, more) in addons {
        let annotations = &more["metadata"]["annotations"];
        let addon = json!({
            "metadata": {
                "name": "telemetry", "namespace": cluster, "uid": uid, "annotations": annotations,
                "deletionTimestamp": more["metadata"]["deletionTimestamp"],
            },
            "spec": more["spec"],
            "status": more["status"],
        });
        known.put_addon(&serde_json::from_value(addon).unwrap());
    }
    known.complete_addons(|_| true);
    for work in works {
        known.put_work(&serde_json::from_value(work.clone()).unwrap());
    }
    known.complete_works(|_| true);
    known
}

/// A work as the hub has written it, applied.
fn mk_work(cluster: &str, uid: &str, namespace: &str, anchors: &str) -> Value {
    let mut work = body(&key(cluster), API, uid, namespace, anchors);
    work["metadata"]["resourceVersion"] = "7".into();
    work["metadata"]["generation"] = 1.into();
    work["status"] = json!({ "conditions": [{ "type": "Applied", "status": "True", "observedGeneration": 1 }] });
    work
}

fn look(known: &Known, signers: &Signers) -> Planned {
    let anchors = digest_of("PEM");
    known.with(|known| plan(known, signers, &anchors, |_| true, |_| None)).unwrap()
}

impl Distribution {
    /// What a Next with this anchor waits for, as the status shows it, if all addons are awaited or none, and `last` is
    /// the end of the last certificate without the anchor; empty if it may sign.
    pub(crate) fn waits(&self, anchor: &Authority, is_awaited: bool, last: Option<Timestamp>) -> String {
        let now = Timestamp::from_unix(0);
        let last = last.unwrap_or_else(|| now.minus(Duration::from_secs(1)));
        let lineage = Lineage::default().prepare(anchor.clone(), None, now).hold_next_until(last, now);
        let works = self.works();
        let keys = works.iter().flat_map(|works| works.unapplied.iter().chain(&works.recent).chain(&works.without));
        let excepted = keys.filter(|_| !is_awaited).map(|key| key.cluster.clone()).collect();
        let agents = Agents { unknown: None, works, excepted, registry: &Registry::default() };
        agents.have_next(&lineage, now).map_or_else(|waits| waits.to_string(), |()| String::new())
    }
}

fn mk_anchor() -> Authority {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    Authority::self_signed("serving", &key, Timestamp::from_unix(0), Duration::from_secs(9), &rng).unwrap()
}

/// The trust with this anchor of the gateway.
fn mk_trust(anchor: &Authority) -> Arc<Trust> {
    let serving_anchors = Some(Bundle::new(vec![anchor.clone()]).unwrap());
    Arc::new(Trust { serving_anchors, ..Trust::default() })
}

const USUAL: &str = "open-cluster-management-agent-addon";

#[test]
fn nothing_is_done_before_both_kinds_were_listed() {
    let known = Known::default();
    let anchors = digest_of("PEM");
    let is_ready = || known.with(|known| plan(known, &mk_signers(&["Auto"]), &anchors, |_| true, |_| None)).is_some();
    assert!(!is_ready());
    known.complete_works(|_| true);
    assert!(!is_ready());
    known.complete_addons(|_| true);
    assert!(is_ready());
}

#[test]
fn a_work_is_made_brought_up_to_date_and_then_left_alone() {
    let addons = [("c1", "u1", Value::Null)];
    let signers = mk_signers(&["Auto"]);
    let (owner, namespace): (Box<str>, Box<str>) = ("u1".into(), USUAL.into());
    let made = look(&listed(&addons, &[]), &signers).steps;
    assert_eq!(made, [(key("c1"), Step::Create { owner: owner.clone(), namespace: namespace.clone() })]);
    let change = Step::Change { version: "7".into(), owner, namespace };
    let mut edited = mk_work("c1", "u1", USUAL, "PEM");
    edited["spec"]["workload"]["manifests"][0]["data"]["ca.crt"] = "another's".into();
    for old in [
        mk_work("c1", "u1", USUAL, "an older bundle"),
        mk_work("c1", "u1", "another-namespace", "PEM"),
        mk_work("c1", "of an addon that was deleted", USUAL, "PEM"),
        edited,
    ] {
        assert_eq!(look(&listed(&addons, &[old]), &signers).steps, [(key("c1"), change.clone())]);
    }
    let good = look(&listed(&addons, &[mk_work("c1", "u1", USUAL, "PEM")]), &signers);
    assert!(good.steps.is_empty());
    let reached = &good.report[&key("c1").addon];
    assert_eq!((reached.total, reached.present()), (1, 1));
}

/// For these addons, Next waits for the last certificate that was issued before.
#[test]
fn who_gets_no_manifest_work_is_known() {
    let hosted = json!({
        "metadata": { "annotations": { "addon.open-cluster-management.io/hosting-cluster-name": "hosting" } },
    });
    let addons = [("c1", "u1", hosted), ("c2", "u2", Value::Null), ("c3", "u3", Value::Null)];
    let known = listed(&addons, &[]);
    assert_eq!(look(&known, &mk_signers(&["Auto"])).others, [key("c1")].into());
    assert_eq!(look(&known, &mk_signers(&["Auto", "Never"])).others, [key("c1")].into(), "one of them brings it");
    assert_eq!(look(&known, &mk_signers(&["Never"])).others, ["c1", "c2", "c3"].map(key).into());
    let (anchors, signers) = (digest_of("PEM"), mk_signers(&["Never"]));
    let plan = known.with(|known| super::plan(known, &signers, &anchors, |of| *of == key("c2"), |_| None)).unwrap();
    assert_eq!(plan.others, [key("c2")].into(), "only those that are eligible");
    let anchor = mk_anchor();
    let reached = |others: BTreeSet<AddOnKey>| {
        let (trust, report, fresh) = (mk_trust(&anchor), TrustReport::new(), BTreeSet::new());
        Distribution::Reached { trust, report, is_whole: true, has_shrunk: false, unguarded: None, fresh, others }
    };
    let waits = |of: &Distribution, is_awaited: bool| of.waits(&anchor, is_awaited, Some(Timestamp::from_unix(0)));
    let last = "the last certificate issued without the new anchor to expire at 1970-01-01T00:00:00Z, because";
    let c2 = format!("{last} no ManifestWork brings it to c2/telemetry");
    assert_eq!(waits(&reached(plan.others.clone()), true), c2);
    assert_eq!(waits(&reached(plan.others), false), "");
    assert_eq!(waits(&reached(BTreeSet::new()), true), "");
    assert_eq!(waits(&Distribution::Starting, true), "the ManifestWorks to be read");
    let off = format!("{last} no ManifestWork brings it to agents");
    assert_eq!(waits(&Distribution::Off, false), off, "nobody knows who there is");
}

#[test]
fn what_is_missing_comes_before_what_is_out_of_date() {
    let addons = [("c1", "u1", Value::Null), ("c2", "u2", Value::Null)];
    let works = [mk_work("c1", "u1", USUAL, "an older bundle"), mk_work("c3", "u3", USUAL, "PEM")];
    let plan = look(&listed(&addons, &works), &mk_signers(&["Auto"]));
    let order: Vec<_> = plan.steps.iter().map(|(key, _)| key.cluster.as_str()).collect();
    assert_eq!(
        (order, &plan.steps[2].1),
        (vec!["c2", "c1", "c3"], &Step::Delete { version: "7".into(), at_once: true })
    );
}

#[test]
fn a_work_goes_with_its_addon_and_when_no_signer_wants_it() {
    let there = [("c1", "u1", Value::Null)];
    let work = [mk_work("c1", "u1", USUAL, "PEM")];
    let steps = |addons: &[_], works: &[Value], signers: &Signers| look(&listed(addons, works), signers).steps;
    let delete = |at_once| [(key("c1"), Step::Delete { version: "7".into(), at_once })];
    let deleted = delete(true);
    assert_eq!(steps(&[], &work, &mk_signers(&["Auto"])), deleted);
    assert_eq!(steps(&there, &work, &mk_signers(&["Never"])), deleted);
    assert_eq!(steps(&there, &work, &mk_signers(&["Auto", "Never"])), [], "another signer needs it");
    assert_eq!(steps(&there, &work, &mk_signers(&[])), [], "its AddOnSigner may be invalid just now");
    let whole = |modes: &[&str]| Signers { is_whole: true, ..mk_signers(modes) };
    assert_eq!(steps(&there, &work, &whole(&[])), delete(false), "no AddOnSigner names the addon any more");
    assert_eq!(steps(&there, &work, &whole(&["Auto"])), []);
    let mut deleting = work.clone();
    deleting[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(steps(&[], &deleting, &mk_signers(&["Auto"])), [], "it goes already");
    assert_eq!(steps(&there, &deleting, &mk_signers(&["Auto"])), [], "it is made again when it has gone");
    let leaving = [("c1", "u1", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }))];
    assert_eq!(steps(&leaving, &[], &mk_signers(&["Auto"])), [], "nothing is made for an addon that leaves");
}

#[test]
fn the_namespace_is_the_one_that_ocm_chooses() {
    let status = json!({ "status": { "namespace": "said" } });
    let annotations = json!({ "addon.open-cluster-management.io/v1alpha1-install-namespace": "annotated" });
    let annotation = json!({ "metadata": { "annotations": annotations } });
    let spec = json!({ "spec": { "installNamespace": "specified" }, "status": { "namespace": "" } });
    let of = |more: &Value| {
        let plan = look(&listed(&[("c1", "u1", more.clone())], &[]), &mk_signers(&["Auto"]));
        plan.steps.into_iter().next().map(|(_, step)| step)
    };
    for (more, expected) in [(status, "said"), (annotation, "annotated"), (spec, "specified")] {
        let made = Step::Create { owner: "u1".into(), namespace: expected.into() };
        assert_eq!(of(&more), Some(made));
    }
    assert_eq!(of(&json!({ "status": { "namespace": "../kube-system" } })), None);
}

#[test]
fn hosted_addons_get_none_and_are_counted() {
    let hosted = json!({
        "metadata": { "annotations": { "addon.open-cluster-management.io/hosting-cluster-name": "hosting" } },
    });
    let addons = [("c1", "u1", hosted), ("c2", "u2", Value::Null)];
    let works = [mk_work("c1", "u1", USUAL, "PEM"), mk_work("c2", "u2", USUAL, "PEM")];
    let plan = look(&listed(&addons, &works), &mk_signers(&["Auto"]));
    assert_eq!(plan.steps, [(key("c1"), Step::Delete { version: "7".into(), at_once: true })]);
    let (holds, reason, sentence) = plan.report[&key("c1").addon].clone().condition();
    assert_eq!((holds, reason), (false, "Placeless"));
    assert_eq!(
        sentence,
        "By ManifestWork 1 of 2 addons on clusters have the present bundle. Not yet: c1/telemetry. 1 get none, because \
         their agents run on a hosting cluster or in a namespace without a legal name."
    );
}

#[test]
fn anchor_counts_as_brought_only_when_every_addon_has_it() {
    let (anchor, other) = (mk_anchor(), mk_anchor());
    let mk =
        |brought: &Authority, is_applied: bool, is_whole: bool, unguarded: Option<Unguarded>, fresh: &[AddOnKey]| {
            let works = is_applied.then(|| mk_work("c1", "u1", USUAL, "PEM"));
            let known = listed(&[("c1", "u1", Value::Null)], works.as_slice());
            let report = look(&known, &mk_signers(&["Auto"])).report;
            let trust = mk_trust(brought);
            let fresh = fresh.iter().cloned().collect();
            let others = BTreeSet::new();
            Distribution::Reached { trust, report, is_whole, has_shrunk: false, unguarded, fresh, others }
        };
    let missing = || Some(Unguarded(PolicyProblem::Missing));
    let sentence = |distribution: &Distribution| distribution.waits(&anchor, true, None);
    assert_eq!(sentence(&mk(&anchor, true, true, None, &[])), "");
    assert_eq!(sentence(&mk(&anchor, true, true, missing(), &[])), "");
    assert_eq!(sentence(&Distribution::Off), "");
    for (distribution, waits_for) in [
        (Distribution::Starting, "the ManifestWorks to be read"),
        (mk(&anchor, true, false, None, &[]), "the AddOnSigners to be read"),
        (mk(&anchor, true, true, None, &[key("c1")]), "pods and agents to use the new anchor: c1/telemetry"),
        (mk(&other, true, true, None, &[]), "the ManifestWorks to be read"),
        (
            mk(&anchor, false, true, None, &[]),
            "clusters to apply the new anchor: 0 of 1 addons have it, and not yet: c1/telemetry",
        ),
        (
            mk(&anchor, false, true, missing(), &[]),
            "the ValidatingAdmissionPolicy addon-signer-manifest-works to be in force, without which the hub writes no \
             ManifestWork (TrustDistributed of the AddOnSigners says what to do)",
        ),
    ] {
        assert_eq!(sentence(&distribution), waits_for);
    }
}

#[test]
fn the_condition_counts_names_a_few_and_says_the_last_failure() {
    let addons: Vec<_> =
        ["c5", "c4", "c3", "c2", "c1"].map(|cluster| (cluster, "u", Value::Null)).into_iter().collect();
    let mut unapplied = mk_work("c2", "u", USUAL, "PEM");
    unapplied["metadata"]["generation"] = 2.into();
    let known = listed(&addons, &[mk_work("c1", "u", USUAL, "PEM"), unapplied]);
    let anchors = digest_of("PEM");
    let failed = |failed: &AddOnKey| (*failed == key("c4")).then(|| "no room".to_owned());
    let plan = known.with(|known| plan(known, &mk_signers(&["Auto"]), &anchors, |_| true, failed)).unwrap();
    let sum = Reached::sum(plan.report.values());
    assert_eq!((sum.total, sum.present()), (5, 1));
    assert_eq!(
        sum.condition(),
        (
            false,
            "WriteFailed",
            "By ManifestWork 1 of 5 addons on clusters have the present bundle. Not yet: c2/telemetry, c3/telemetry, \
             c4/telemetry and 1 more. The last failure: c4/telemetry: no room."
                .to_owned()
        )
    );
    let done = |done: &AddOnKey| (*done == key("c1")).then(|| "no answer".to_owned());
    let plan_after = known.with(|known| super::plan(known, &mk_signers(&["Auto"]), &anchors, |_| true, done)).unwrap();
    assert_eq!(Reached::sum(plan_after.report.values()).condition().1, "Distributing", "it has what it needs");
    let going_on = Reached { error: None, ..Reached::sum(plan.report.values()) };
    assert_eq!(going_on.condition().1, "Distributing");
    assert!(Reached::sum([].into_iter()).condition().0, "there is nothing to reach");
}
