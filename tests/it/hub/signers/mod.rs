//! AddOnSigners that are created, deleted, changed or wrong, and what the hub writes about them.

mod poisoned;
mod rights;

use std::time::Duration;

use addon_signer_api::{AddOnSigner, AddOnSignerStatus};
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_hub::lease::{self, NotWritten};
use addon_signer_hub::supervisor::status;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{MOMENT, mk_csr, mk_ready, submit, wait_event};
use test_kit::deploy::{apply, part};
use test_kit::hub::{
    RunningHub, TIMEOUT, certificate, condition, create_signer, deploy, telemetry, wait_csr, wait_ready,
};
use test_kit::quick::pass;
use test_kit::{TestHub, wait_until};

fn signers(admin: &Client) -> Api<AddOnSigner> {
    Api::all(admin.clone())
}

pub(super) async fn change(admin: &Client, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    signers(admin).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Gives the hub the right to sign for another signer name, as the chart does by `signers`.
pub(crate) async fn allow(hub: &TestHub, admin: &Client, signer_name: &str) {
    if !hub.is_real() {
        return;
    }
    let name = signer_name.replace('/', "-");
    let mut objects = part("signers");
    for object in &mut objects {
        object["metadata"]["name"] = json!(name);
        if object["kind"] == "ClusterRole" {
            object["rules"][0]["resourceNames"] = json!([signer_name]);
        } else {
            object["roleRef"]["name"] = json!(name);
        }
    }
    apply(admin, &objects).await;
}

/// Waits until the hub has handed exactly these signers to the gateway.
async fn wait_trust(running: &RunningHub, names: &[&str]) {
    wait_until(TIMEOUT, &format!("the gateway to know {names:?}"), async || {
        let trust = running.trust.borrow().clone();
        let known: Vec<_> = trust.signers.iter().map(|signer| signer.name.as_str()).collect();
        (known == names).then_some(())
    })
    .await;
}

async fn stays_unanswered(admin: &Client, name: &str) {
    pass(MOMENT).await;
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let status = api.get(name).await.unwrap().status.unwrap_or_default();
    assert!(status.certificate.is_none(), "{status:?}");
    assert!(status.conditions.is_none(), "{status:?}");
}

/// A selector of namespaces with an operator that there is not, which the schema accepts.
fn mk_odd_selector() -> Value {
    json!({"routesFrom": {"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}})
}

/// Specs that the schema accepts, so that only the hub can refuse them; the stand-in has no schema.
fn bad_specs(real: bool) -> Vec<(&'static str, Value, Value)> {
    let user = "system:open-cluster-management:cluster:{cluster}:addon:{addon}:agent:{agent}";
    let good = json!({"gateway": {"routesFrom": null}});
    let mut bad = vec![("spec.gateway.routesFrom.selector", json!({"gateway": mk_odd_selector()}), good)];
    if !real {
        for wrong in ["{cluster}{addon}", "example.com/other:{cluster}:{addon}"] {
            bad.push(("spec.identity", json!({"identity": {"user": wrong}}), json!({"identity": {"user": user}})));
        }
        let certificate = |duration: &str| json!({"certificate": {"duration": duration}});
        bad.push(("spec.certificate.duration", certificate("5m"), certificate("24h")));
        bad.push(("spec.addOns", json!({"addOns": []}), json!({"addOns": ["telemetry"]})));
        let renew = |before: &str| json!({"authority": {"renewBefore": before}});
        bad.push(("spec.authority.renewBefore", renew("9000h"), renew("2160h")));
    }
    bad
}

#[tokio::test]
async fn a_bad_object_signs_nothing_names_the_field_and_can_be_mended() {
    let (hub, admin, running) = mk_ready().await;
    for (field, bad, good) in bad_specs(hub.is_real()) {
        change(&admin, "telemetry", bad).await;
        let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
        assert_eq!(reason, "InvalidSpec");
        assert!(message.contains(field), "{message}");
        assert!(message.ends_with('.'), "{message}");
        let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
        stays_unanswered(&admin, &name).await;
        wait_trust(&running, &[]).await;
        change(&admin, "telemetry", good).await;
        wait_ready(&admin, "telemetry", "True").await;
        wait_csr(&admin, &name, "issued", certificate).await;
        wait_trust(&running, &["telemetry"]).await;
    }
    assert_eq!(wait_event(&admin, "InvalidSpec").await.0, "Warning");
    assert_eq!(wait_event(&admin, "Signing").await.0, "Normal");
}

/// An edit that takes an addon away and has a mistake elsewhere: the addon must not stay in effect because of that.
#[tokio::test]
async fn addon_removed_by_invalid_edit_is_out_at_once() {
    let (hub, admin, running) = mk_ready().await;
    let spec = json!({"addOns": ["search"], "gateway": mk_odd_selector()});
    change(&admin, "telemetry", spec).await;
    wait_trust(&running, &[]).await;
    wait_ready(&admin, "telemetry", "False").await;
    let authorities = async || signers(&admin).get("telemetry").await.unwrap().status.unwrap().authorities;
    let before = authorities().await;
    assert!(before[0].certificate.is_none(), "gateways trust what has a certificate there");
    running.stop().await;
    let again = RunningHub::start(&hub).await;
    let still_odd = json!({"gateway": {"hostnames": ["a.example"]}});
    change(&admin, "telemetry", still_odd).await;
    wait_until(TIMEOUT, "the hub to have looked", async || {
        let object = signers(&admin).get("telemetry").await.unwrap();
        (object.status?.observed_generation == object.metadata.generation).then_some(())
    })
    .await;
    assert!(again.trust.borrow().signers.is_empty());
    change(&admin, "telemetry", json!({"gateway": {"routesFrom": null}})).await;
    wait_ready(&admin, "telemetry", "True").await;
    wait_trust(&again, &["telemetry"]).await;
    let after = authorities().await;
    assert!(after[0].certificate.is_some());
    assert_eq!((after.len(), &after[0].id), (before.len(), &before[0].id));
}

/// Otherwise whoever may write one AddOnSigner could have agents that backends take for those of another one.
#[tokio::test]
async fn addon_belongs_to_one_signer_and_its_named_successor() {
    let (hub, admin, running) = mk_ready().await;
    let taken = wait_until(TIMEOUT, "the addon to be its", async || {
        let owned = signers(&admin).get("telemetry").await.unwrap().status?.add_ons;
        owned.contains("telemetry").then_some(owned)
    });
    assert_eq!(taken.await.len(), 1);
    allow(&hub, &admin, "example.com/alpha").await;
    create_signer(&admin, "alpha", json!({"signerName": "example.com/alpha", "addOns": ["telemetry"]})).await;
    let (reason, message) = wait_ready(&admin, "alpha", "False").await;
    assert_eq!(reason, "AddOnsOfOthers");
    assert!(message.contains("telemetry (AddOnSigner telemetry)"), "{message}");
    wait_trust(&running, &["telemetry"]).await;

    let served = || running.trust.borrow().signer("alpha").map(|signer| signer.addons.len());
    change(&admin, "alpha", json!({"addOns": ["telemetry", "search"]})).await;
    wait_until(TIMEOUT, "alpha to be served for the other", async || (served() == Some(1)).then_some(())).await;
    let (_, message) = wait_until(TIMEOUT, "the condition", async || {
        let conditions = signers(&admin).get("alpha").await.unwrap().status?.conditions;
        let found = conditions.into_iter().find(|condition| condition.type_ == "AddOnsConflicted")?;
        Some((found.status, found.message))
    })
    .await;
    let text = "Other AddOnSigners had 1 of these addons first: telemetry (AddOnSigner telemetry).";
    assert!(message.starts_with(text), "{message}");
    let mut csr = mk_csr("spoke1", "telemetry");
    csr.spec.signer_name = "example.com/alpha".to_owned();
    let name = submit(&hub, "spoke1", &csr).await;
    let (reason, _) = wait_csr(&admin, &name, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "AddOnNotOfSigner");

    change(&admin, "telemetry", json!({"successor": "alpha"})).await;
    wait_until(TIMEOUT, "alpha to be served for both", async || (served() == Some(2)).then_some(())).await;
    change(&admin, "telemetry", json!({"successor": null})).await;
    wait_until(TIMEOUT, "alpha to be served for one", async || (served() == Some(1)).then_some(())).await;
    signers(&admin).delete("telemetry", &Default::default()).await.unwrap();
    wait_until(TIMEOUT, "alpha to have both", async || (served() == Some(2)).then_some(())).await;
}

#[tokio::test]
async fn of_two_with_one_signer_name_the_one_that_had_it_signs() {
    let (hub, admin, running) = mk_ready().await;
    create_signer(&admin, "alpha", telemetry()).await;
    let (reason, message) = wait_ready(&admin, "alpha", "False").await;
    assert_eq!(reason, "DuplicateSignerName");
    assert!(message.contains("telemetry, which had it first"), "{message}");
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let csr = wait_csr(&admin, &name, "issued", |csr| certificate(csr).map(|_| csr.clone())).await;
    let approval = &csr.status.unwrap().conditions.unwrap()[0];
    assert!(approval.message.as_ref().unwrap().contains("AddOnSigner telemetry"), "{approval:?}");
    wait_trust(&running, &["telemetry"]).await;
    signers(&admin).delete("telemetry", &Default::default()).await.unwrap();
    wait_ready(&admin, "alpha", "True").await;
    wait_trust(&running, &["alpha"]).await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued by the other", certificate).await;
}

#[tokio::test]
async fn of_a_deleted_signer_nothing_is_trusted_and_nothing_answered() {
    let (hub, admin, mut running) = mk_ready().await;
    signers(&admin).delete("telemetry", &Default::default()).await.unwrap();
    wait_trust(&running, &[]).await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    stays_unanswered(&admin, &name).await;
    let ended = tokio::time::timeout(Duration::from_millis(1), running.ended()).await;
    assert!(ended.is_err(), "the hub goes on: {ended:?}");
    // A signer that is created again has its old authorities: they are not deleted with the object.
    let before = published(&admin).await;
    create_signer(&admin, "telemetry", telemetry()).await;
    wait_csr(&admin, &name, "issued", certificate).await;
    assert_eq!(published(&admin).await, before);
}

async fn published(admin: &Client) -> Bundle {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let map = maps.get("telemetry-client-ca").await.unwrap();
    Bundle::from_pem(map.data.unwrap()["ca.crt"].as_bytes()).unwrap()
}

#[tokio::test]
async fn same_object_name_with_new_signer_name_is_another_signer() {
    let (hub, admin, running) = mk_ready().await;
    allow(&hub, &admin, "example.com/new").await;
    signers(&admin).delete("telemetry", &Default::default()).await.unwrap();
    create_signer(&admin, "telemetry", json!({"signerName": "example.com/new", "addOns": ["telemetry"]})).await;
    let old = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let mut csr = mk_csr("spoke1", "telemetry");
    csr.spec.signer_name = "example.com/new".to_owned();
    let new = submit(&hub, "spoke1", &csr).await;
    // It does not get the authorities, whose certificates are of the agents of the other one.
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert_eq!(reason, "AuthorityUnreadable");
    let text = "has the authorities of example.com/telemetry; restore its own from a backup, or, if an AddOnSigner \
                that is gone has left them, give this AddOnSigner another name";
    assert!(message.contains(text), "{message}");
    wait_trust(&running, &[]).await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    maps.delete("telemetry-client-ca", &Default::default()).await.unwrap();
    secrets.delete("telemetry-client-authorities", &Default::default()).await.unwrap();
    wait_csr(&admin, &new, "issued", certificate).await;
    stays_unanswered(&admin, &old).await;
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_says_so_and_others_go_on() {
    let (hub, admin, _running) = mk_ready().await;
    if hub.is_real() {
        return; // the schema does not let it in
    }
    let resource = kube::api::ApiResource::erase::<AddOnSigner>(&());
    let any: Api<DynamicObject> = Api::all_with(admin.clone(), &resource);
    let mut spec = telemetry();
    spec["approval"] = "Sometimes".into();
    spec["signerName"] = "example.com/sometimes".into();
    spec["addOns"] = json!(["sometimes"]);
    let object = DynamicObject::new("sometimes", &resource).data(json!({ "spec": spec }));
    any.create(&PostParams::default(), &object).await.unwrap();
    let status: AddOnSignerStatus = wait_until(TIMEOUT, "the status of the bad object", async || {
        serde_json::from_value(any.get("sometimes").await.ok()?.data.get("status")?.clone()).ok()
    })
    .await;
    let ready = &status.conditions[0];
    assert_eq!((ready.type_.as_str(), ready.status.as_str(), ready.reason.as_str()), ("Ready", "False", "InvalidSpec"));
    assert!(ready.message.contains("Sometimes"), "{}", ready.message);
    pass(MOMENT).await;
    let version = any.get("sometimes").await.unwrap().metadata.resource_version;
    pass(MOMENT).await;
    assert_eq!(any.get("sometimes").await.unwrap().metadata.resource_version, version, "written again and again");
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
    let mend = Patch::Merge(json!({"spec": {"approval": "External"}}));
    any.patch("sometimes", &PatchParams::default(), &mend).await.unwrap();
    wait_ready(&admin, "sometimes", "True").await;
}

#[tokio::test]
async fn the_status_says_what_is() {
    let (hub, admin, _running) = mk_ready().await;
    let name = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_csr(&admin, &name, "issued", certificate).await;
    let object = wait_until(TIMEOUT, "the status to know of the certificate and of the registrations", async || {
        let object = signers(&admin).get("telemetry").await.unwrap();
        let status = object.status.as_ref()?;
        let is_registered = status.conditions.iter().any(|condition| condition.type_ == "Registered");
        // An API server knows a new policy some seconds late.
        let is_protected = status.conditions.iter().any(|condition| condition.reason == "PolicyInForce");
        let is_counted = status.agents.as_ref().is_some_and(|agents| agents.summary == "1/1");
        (is_counted && is_registered && is_protected && status.authorities.first()?.last_leaf_expires.is_some())
            .then_some(object)
    })
    .await;
    let status = object.status.clone().unwrap();
    assert_eq!(status.observed_generation, object.meta().generation);
    let text: Vec<_> =
        status.conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str())).collect();
    let expected = [
        ("Ready", "True", "Signing"),
        ("AuthorityHealthy", "True", "Readable"),
        ("Rotating", "False", "Settled"),
        ("Registered", "True", "Written"),
        ("TrustBundleProtected", "True", "PolicyInForce"),
    ];
    assert_eq!(text, expected);
    assert!(status.conditions.iter().all(|c| c.observed_generation == object.meta().generation));
    let bundle = published(&admin).await;
    let [authority] = &status.authorities[..] else { panic!("{status:?}") };
    let anchor = &bundle.authorities()[0];
    assert_eq!(authority.id, anchor.id().as_str());
    assert_eq!(authority.not_after, anchor.not_after());
    assert!(status.rotation.is_none());
    if hub.is_real() {
        assert_eq!(printed(&admin).await[..6], printed_as(&authority.not_after.to_string()));
    }
    // A status that has not changed is not written again.
    pass(MOMENT).await;
    let version = signers(&admin).get("telemetry").await.unwrap().metadata.resource_version;
    pass(MOMENT).await;
    assert_eq!(signers(&admin).get("telemetry").await.unwrap().metadata.resource_version, version);
}

fn printed_as(not_after: &str) -> Vec<Value> {
    ["example.com/telemetry", "telemetry", "True", "Signing", "1/1", not_after].map(Value::from).to_vec()
}

/// What `kubectl get addonsigners` prints, without the name.
async fn printed(admin: &Client) -> Vec<Value> {
    let request = hyper::Request::get("/apis/addon-signer.io/v1alpha1/addonsigners")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = admin.request(request).await.unwrap();
    table["rows"][0]["cells"].as_array().unwrap()[1..].to_vec()
}

/// A hub may be late: the object of this name is another one by now, or another hub has written its status.
#[tokio::test]
async fn status_is_written_only_into_this_version_of_its_object() {
    let hub = TestHub::start().await;
    deploy(&hub).await;
    let admin = hub.admin().await;
    let first = create_signer(&admin, "telemetry", telemetry()).await.metadata;
    signers(&admin).delete("telemetry", &Default::default()).await.unwrap();
    let second = create_signer(&admin, "telemetry", telemetry()).await.metadata;
    // A patch of another kind says the uid as well, and nobody compares it.
    let merged = Patch::Merge(json!({ "metadata": { "uid": &first.uid }, "status": { "addOns": ["telemetry"] } }));
    let third = signers(&admin).patch_status("telemetry", &PatchParams::default(), &merged).await.unwrap().metadata;
    let (announcer, leading) = lease::channel();
    announcer.lead(1, Instant::now() + 2 * TIMEOUT);
    let guarded = Api::all(admin.clone());
    let status = AddOnSignerStatus { observed_generation: Some(7), ..Default::default() };
    let write = async |of| status::write(&leading.leads().unwrap(), &guarded, "telemetry", of, &status).await;
    let known = async || signers(&admin).get("telemetry").await.unwrap().status.unwrap();
    for of in [&first, &second] {
        let refused = write(of).await.unwrap_err();
        assert!(matches!(&refused, NotWritten::Api(kube::Error::Api(status)) if status.code == 422), "{refused}");
        assert!(!refused.is_lasting(), "the next attempt knows the present version");
        assert_eq!(known().await.add_ons.len(), 1);
    }
    write(&third).await.unwrap();
    assert_eq!(known().await, status, "all of it");
}
