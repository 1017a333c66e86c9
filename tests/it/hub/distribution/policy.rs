//! The policy for ManifestWorks: what it leaves to the hub's account, and what the hub does without it.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::spoilt::{BAD, mk_good};
use super::{NAME, mk_world, published, rotate, rotation, wait_condition, wait_manifest};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::deploy::{api, apply, of_kind, part};
use test_kit::hub::{RunningHub, TIMEOUT, telemetry};
use test_kit::log::capture;
use test_kit::objects::{manifest_works, policy_bindings};
use test_kit::{TestHub, accept_cluster, wait_until};

/// The name of the policy and of its binding.
const POLICY: &str = "addon-signer-manifest-works";

/// The policy for ManifestWorks, on a real API server.
#[tokio::test]
async fn the_hubs_account_can_write_nothing_but_the_trust_bundle() {
    let hub = TestHub::start().await;
    if hub.real_or_skip().is_none() {
        return;
    }
    let admin = mk_world(&hub, telemetry()).await;
    let account = hub.client_as(HUB_USER, &HUB_GROUPS).await;
    // Tests may not write one object without end, so they take turns.
    let clusters: Vec<String> = (1..=8).map(|n| format!("spoke{n}")).collect();
    for cluster in &clusters {
        accept_cluster(&admin, cluster).await;
    }
    let all: Vec<_> = clusters.iter().map(|cluster| manifest_works(&account, cluster)).collect();
    let create = async |ours: &Api<DynamicObject>, work: &Value| {
        ours.create(&PostParams::default(), &serde_json::from_value(work.clone()).unwrap()).await
    };
    let refused = |error: kube::Error| error.to_string().contains("addon-signer-manifest-works");
    let mut tries = 0..;
    wait_until(TIMEOUT, "the policy to be in effect", async || {
        let mut other = mk_good();
        other["metadata"]["name"] = format!("other-{}", tries.next().unwrap()).into();
        create(&all[0], &other).await.err().filter(|error| error.to_string().contains("addon-signer-manifest-works"))
    })
    .await;
    for ((what, change, output), ours) in BAD.into_iter().zip(all.iter().cycle()) {
        let mut work = mk_good();
        change(&mut work);
        let error = create(ours, &work).await.expect_err(what).to_string();
        assert!(error.contains(POLICY), "{what}: {error}");
        assert!(error.contains(output), "{what}: {error}");
    }
    for ours in &all {
        create(ours, &mk_good()).await.unwrap();
    }
    // A merge patch removes no label, and the first four are about the name and the label.
    for ((what, change, output), ours) in BAD.into_iter().zip(all.iter().cycle()).skip(4) {
        let mut work = mk_good();
        change(&mut work);
        work["metadata"].as_object_mut().unwrap().remove("name");
        let patched = ours.patch(NAME, &PatchParams::default(), &Patch::Merge(&work)).await;
        let error = patched.expect_err(what).to_string();
        assert!(error.contains(POLICY), "{what}: {error}");
        assert!(error.contains(output), "{what}: {error}");
    }
    check_what_others_added(&admin, &account, "spoke8").await;
    check_subresources(&admin, &account, "spoke7").await;
    let theirs = manifest_works(&admin, "spoke1");
    let mut another = mk_good();
    another["metadata"] = json!({ "name": "theirs" });
    theirs.create(&PostParams::default(), &serde_json::from_value(another).unwrap()).await.unwrap();
    let ours = &all[0];
    let adopt = json!({ "metadata": { "labels": { "addon-signer.io/hub-trust": "telemetry" } } });
    assert!(refused(ours.patch("theirs", &PatchParams::default(), &Patch::Merge(&adopt)).await.unwrap_err()));
    assert!(refused(ours.delete("theirs", &DeleteParams::default()).await.unwrap_err()));
    ours.delete(NAME, &DeleteParams::default()).await.unwrap();
    // It concerns nobody else.
    theirs.delete("theirs", &DeleteParams::default()).await.unwrap();
}

/// The role for ManifestWorks has no subresources; the policy refuses them even if another role has.
async fn check_subresources(admin: &Client, account: &Client, cluster: &str) {
    let metadata = json!({ "name": "status-of-works" });
    let rule = json!({ "apiGroups": ["work.open-cluster-management.io"], "resources": ["manifestworks/status"],
                       "verbs": ["patch"] });
    let reference =
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "status-of-works" });
    let user = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HUB_USER });
    let role = serde_json::from_value(json!({ "metadata": metadata, "rules": [rule] })).unwrap();
    let binding = json!({ "metadata": metadata, "roleRef": reference, "subjects": [user] });
    let params = PostParams::default();
    Api::<ClusterRole>::all(admin.clone()).create(&params, &role).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
    let applied = Patch::Merge(json!({ "status": { "conditions": [] } }));
    wait_until(TIMEOUT, "the policy to refuse the status", async || {
        let patched = manifest_works(account, cluster).patch_status(NAME, &PatchParams::default(), &applied).await;
        let refused = patched.expect_err("the policy lets the status pass").to_string();
        refused.contains("addon-signer may not write subresources of ManifestWorks").then_some(())
    })
    .await;
}

/// OCM's work agent adds a finalizer, and others add what they like. The hub changes its own, and adds no more.
async fn check_what_others_added(admin: &Client, account: &Client, cluster: &str) {
    let [theirs, ours] = [admin, account].map(|client| manifest_works(client, cluster));
    let added = json!({ "metadata": {
        "finalizers": ["cluster.open-cluster-management.io/manifest-work-cleanup"],
        "annotations": { "a": "b" }, "labels": { "c": "d" },
    } });
    theirs.patch(NAME, &PatchParams::default(), &Patch::Merge(&added)).await.unwrap();
    let mut change = mk_good();
    change["spec"]["workload"]["manifests"][0]["metadata"]["namespace"] = "elsewhere".into();
    let changed = ours.patch(NAME, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    assert_eq!(changed.metadata.finalizers.unwrap().len(), 1);
    let more = [
        (
            json!({ "finalizers": ["cluster.open-cluster-management.io/manifest-work-cleanup", "example.com/stay"] }),
            "finalizer example.com/stay",
        ),
        (json!({ "annotations": { "e": "f", "a": "c" } }), "annotation a"),
        (json!({ "labels": { "e": "f", "c": "e" } }), "label c"),
    ];
    for (metadata, what) in more {
        let patch = json!({ "metadata": metadata });
        let refused = ours.patch(NAME, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap_err();
        let expected = format!(
            "denied request: addon-signer may not write the {what} of a ManifestWork; if another program adds it to \
             what the hub writes, exempt ManifestWorks with the label addon-signer.io/hub-trust from that program"
        );
        assert!(refused.to_string().contains(&expected), "{metadata}: {refused}");
    }
    let none = json!({ "metadata": { "finalizers": [] } });
    theirs.patch(NAME, &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
}

/// Waits until the API server refuses, or takes, what the hub's account must not write.
async fn wait_policy(account: &Client, denies: bool) {
    let dry_run = PostParams { dry_run: true, field_manager: None };
    let mut tries = 0..;
    wait_until(TIMEOUT, "the policy to change", async || {
        let name = format!("other-{}", tries.next().unwrap());
        let expected = format!(
            "manifestworks.work.open-cluster-management.io \"{name}\" is forbidden: ValidatingAdmissionPolicy \
             '{POLICY}' with binding '{POLICY}' denied request: addon-signer may only write ManifestWorks \
             addon-signer-ADDON-trust with the label addon-signer.io/hub-trust that names ADDON"
        );
        let mut work = mk_good();
        work["metadata"] = json!({ "name": name });
        let work = serde_json::from_value(work).unwrap();
        match manifest_works(account, "addon-signer").create(&dry_run, &work).await {
            Err(kube::Error::Api(status)) if denies && status.message.contains("Policy") => {
                assert_eq!((status.code, &*status.reason, &*status.message), (422, "Invalid", &*expected));
                Some(())
            }
            tried => (tried.is_ok() && !denies).then_some(()),
        }
    })
    .await;
}

/// Lets the policy refuse nothing; returns the hub's account.
async fn switch_off(hub: &TestHub, admin: &Client) -> Client {
    let account = hub.client_as(HUB_USER, &HUB_GROUPS).await;
    wait_policy(&account, true).await;
    let audit = json!({ "spec": { "validationActions": ["Audit"] } });
    policy_bindings(admin).patch(POLICY, &PatchParams::default(), &Patch::Merge(&audit)).await.unwrap();
    wait_policy(&account, false).await;
    account
}

#[tokio::test]
async fn without_policy_nothing_is_written_and_rotation_says_so() {
    let hub = TestHub::start().await;
    let admin = mk_world(&hub, telemetry()).await;
    switch_off(&hub, &admin).await;

    let (log, _capturing) = capture("addon_signer=info");
    let output = || log.text().matches("addon-signer-manifest-works is not in force").count();
    let running = RunningHub::start(&hub).await;
    let before = published(&admin).await;
    wait_condition(&admin, "the condition", |reported| {
        reported.is_some_and(|reported| {
            reported.reason == "PolicyMissing" && reported.message.contains("Install the chart again")
        })
    })
    .await;
    policy_bindings(&admin).delete(POLICY, &DeleteParams::default()).await.unwrap();
    rotate(&admin).await;
    let waits = "the ValidatingAdmissionPolicy addon-signer-manifest-works to be in force";
    wait_until(TIMEOUT, waits, async || rotation(&admin).await.contains(waits).then_some(())).await;
    for cluster in ["spoke1", "spoke2"] {
        assert!(manifest_works(&admin, cluster).list(&ListParams::default()).await.unwrap().items.is_empty());
    }

    let binding = of_kind(&part("manifest-works"), "ValidatingAdmissionPolicyBinding")[0].clone();
    policy_bindings(&admin).create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let works = manifest_works(&admin, "spoke1");
    // The hub asks with growing pauses, of a minute at most.
    wait_until(3 * TIMEOUT, "the hub to write", async || works.get_opt(NAME).await.unwrap()).await;
    for cluster in ["spoke1", "spoke2"] {
        let both = |manifest: &Value| manifest["data"]["ca.crt"].as_str().unwrap().contains(before.trim());
        wait_manifest(&admin, cluster, "the work", both).await;
    }
    wait_condition(&admin, "the hub to write", |reported| {
        reported.is_some_and(|reported| reported.reason == "Distributing")
    })
    .await;
    assert_eq!(output(), 1);
    running.stop().await;
}

/// Somebody's object of admission control.
fn owners(kind: &str, spec: Value) -> Value {
    let version = "admissionregistration.k8s.io/v1";
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "owners" }, "spec": spec })
}

/// Matches new ManifestWorks.
fn rule() -> Value {
    json!({ "apiGroups": ["work.open-cluster-management.io"], "apiVersions": ["*"], "operations": ["CREATE"],
            "resources": ["manifestworks"] })
}

/// Of two policies that refuse it, the API server names either, so only one denies here.
#[tokio::test]
async fn the_refusal_of_another_policy_is_said_and_nothing_is_written() {
    let hub = TestHub::start().await;
    if hub.real_or_skip().is_none() {
        return;
    }
    let admin = mk_world(&hub, telemetry()).await;
    let account = switch_off(&hub, &admin).await;
    let demands = json!({
        "matchConstraints": { "resourceRules": [rule()] },
        "validations": [{ "expression": "has(object.metadata.annotations)", "message": "no owner" }],
    });
    let binding = json!({ "policyName": "owners", "validationActions": ["Deny"] });
    let theirs = [owners("ValidatingAdmissionPolicy", demands), owners("ValidatingAdmissionPolicyBinding", binding)];
    apply(&admin, &theirs).await;
    let refusal = "ValidatingAdmissionPolicy 'owners' with binding 'owners' denied request: no owner";
    let dry_run = PostParams { dry_run: true, field_manager: None };
    let mut tries = 0..;
    wait_until(TIMEOUT, "the other policy to be in effect", async || {
        let mut work = mk_good();
        work["metadata"]["name"] = format!("other-{}", tries.next().unwrap()).into();
        let work = serde_json::from_value(work).unwrap();
        let refused = manifest_works(&account, "addon-signer").create(&dry_run, &work).await.err();
        refused.filter(|error| error.to_string().contains(refusal))
    })
    .await;

    let running = RunningHub::start(&hub).await;
    wait_condition(&admin, "the condition", |reported| {
        reported.is_some_and(|reported| reported.reason == "PolicyUnknown" && reported.message.contains(refusal))
    })
    .await;
    for cluster in ["spoke1", "spoke2"] {
        assert!(manifest_works(&admin, cluster).list(&ListParams::default()).await.unwrap().items.is_empty());
    }
    policy_bindings(&admin).delete("owners", &DeleteParams::default()).await.unwrap();
    let deny = json!({ "spec": { "validationActions": ["Deny"] } });
    policy_bindings(&admin).patch(POLICY, &PatchParams::default(), &Patch::Merge(&deny)).await.unwrap();
    let works = manifest_works(&admin, "spoke1");
    // The hub asks with growing pauses, of a minute at most.
    wait_until(3 * TIMEOUT, "the hub to write", async || works.get_opt(NAME).await.unwrap()).await;
    running.stop().await;
}

#[tokio::test]
async fn foreign_additions_to_works_are_named_until_they_end() {
    let hub = TestHub::start().await;
    if hub.real_or_skip().is_none() {
        return;
    }
    let admin = mk_world(&hub, telemetry()).await;
    let annotates = |constraints: Value| {
        let expression = "Object{metadata: Object.metadata{annotations: {'example.com/owner': 'nobody'}}}";
        let mutation = json!({ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } });
        let spec = json!({ "failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": [mutation],
                           "matchConstraints": constraints });
        owners("MutatingAdmissionPolicy", spec)
    };
    let everything = annotates(json!({ "resourceRules": [rule()] }));
    if api(&admin, &everything).await.is_err() {
        eprintln!("skipped: before 1.36 the API server serves no MutatingAdmissionPolicy");
        return;
    }
    let binding = owners("MutatingAdmissionPolicyBinding", json!({ "policyName": "owners" }));
    apply(&admin, &[everything, binding]).await;
    let theirs = manifest_works(&admin, "spoke1");
    let dry_run = PostParams { dry_run: true, field_manager: None };
    wait_until(TIMEOUT, "the other program to annotate", async || {
        let made = theirs.create(&dry_run, &serde_json::from_value(mk_good()).unwrap()).await;
        made.ok()?.metadata.annotations // a new policy may know the resource a moment later only
    })
    .await;

    let running = RunningHub::start(&hub).await;
    let refusal = "denied request: addon-signer may not write the annotation example.com/owner of a ManifestWork; if";
    wait_condition(&admin, "the cause", |reported| {
        reported.is_some_and(|reported| reported.reason == "WriteFailed" && reported.message.contains(refusal))
    })
    .await;
    let label = json!({ "key": "addon-signer.io/hub-trust", "operator": "DoesNotExist" });
    let exempt = json!({ "resourceRules": [rule()], "objectSelector": { "matchExpressions": [label] } });
    apply(&admin, &[annotates(exempt)]).await;
    wait_manifest(&admin, "spoke1", "the work", |_| true).await;
    running.stop().await;
}
