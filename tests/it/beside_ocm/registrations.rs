//! Runs the hub beside the programs that write `status.registrations` on a real hub: OCM's addon-manager and addons of
//! addon-framework, in either order of starting, with restarts. After a while nobody writes any more, and the agents of
//! the addons that name the signer have their Secret.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::hub::registrations::templates::{self, mk_management_addon, mk_template};
use crate::hub::registrations::wait_registered;
use crate::hub::{mk_csr, submit};
use addon_signer_api::ocm::AddOnApi as Version;
use addon_signer_core::names::LABEL_HUB_TRUST;
use test_kit::accounts::HUB_USER;
use test_kit::audit_log::Write;
use test_kit::deploy::{apply, part};
use test_kit::hub::{RunningHub, TIMEOUT, addon, certificate, create_signer, deploy, wait_csr, wait_ready};
use test_kit::objects::{managed_cluster_addons, manifest_works};
use test_kit::ocm::{ADDON_NAMESPACE, OcmAgent};
use test_kit::process::Process;
use test_kit::programs::{Registers, start_addon_manager, start_addon_webhook, start_framework_addon};
use test_kit::real::{RealHub, assets};
use test_kit::{AddOnApi, TestHub, accept_cluster, crds, install_addon, wait_until};

const SIGNER: &str = "example.com/telemetry";
/// Addons with AddOnTemplates: one does not name the signer, and one does.
const TEMPLATES: [(&str, &[&str]); 2] = [("template-without", &[]), ("template-with", &[SIGNER])];
/// Addons with a controller of their own, and what it registers.
const FRAMEWORK: [(&str, Registers); 3] = [
    ("framework-nothing", Registers::Nothing),
    ("framework-other", Registers::KubeClient),
    ("framework-with", Registers::Signer(SIGNER)),
];
/// An addon that nobody runs.
const ALONE: &str = "alone";
/// The addons whose agent must get a certificate: the template, the program or only our hub names the signer.
const NAMED: [&str; 4] = ["alone", "framework-nothing", "framework-with", "template-with"];
const REST: Duration = Duration::from_secs(60);
/// How long it may take until the hub has noticed that an API has changed, if its watch falls silent.
const NOTICED: Duration = Duration::from_secs(240);
/// How long it may take until nobody writes any more.
const SETTLED: Duration = Duration::from_secs(240);

fn addons() -> Vec<&'static str> {
    let templated = TEMPLATES.iter().map(|(name, _)| *name);
    templated.chain(FRAMEWORK.iter().map(|(name, _)| *name)).chain([ALONE]).collect()
}

/// Makes every addon on the cluster spoke1, with ClusterManagementAddOns for the templates, and a signer for all
/// addons. Nothing runs yet.
async fn mk_world(hub: &TestHub) -> Client {
    deploy(hub).await;
    let admin = hub.admin().await;
    apply(&admin, &part("manifest-works")).await;
    accept_cluster(&admin, "spoke1").await;
    for (name, signers) in TEMPLATES {
        mk_template(&admin, name, signers).await;
        mk_management_addon(&admin, name, name).await;
    }
    for name in addons() {
        install_addon(&admin, "spoke1", name).await;
    }
    create_signer(&admin, "telemetry", json!({ "signerName": SIGNER, "addOns": addons() })).await;
    admin
}

/// addon-framework acts only on addons that their ClusterManagementAddOn owns.
async fn own_framework_addons(admin: &Client, api: AddOnApi) {
    for (name, _) in FRAMEWORK {
        let owner = templates::mk_plain_management_addon(admin, name, api).await;
        let reference = json!([{
            "apiVersion": owner.types.unwrap().api_version, "kind": "ClusterManagementAddOn", "name": name,
            "uid": owner.metadata.uid.unwrap(),
        }]);
        let body = json!({ "metadata": { "ownerReferences": reference } });
        let addons = managed_cluster_addons(admin, "spoke1").await;
        addons.patch(name, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    }
}

fn start_framework_addons(hub: &RealHub, api: AddOnApi) -> Vec<Process> {
    FRAMEWORK.iter().map(|(name, registers)| start_framework_addon(hub, api, name, *registers)).collect()
}

async fn start_programs(hub: &RealHub) -> Vec<Process> {
    let mut programs = start_framework_addons(hub, AddOnApi::V1alpha1);
    programs.push(start_addon_manager(hub).await);
    programs
}

/// The Secrets that OCM's agent keeps for our signer: their versions by addon.
async fn secrets(admin: &Client) -> BTreeMap<String, String> {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let suffix = "-example.com-telemetry-client-cert";
    let found = secrets.list(&ListParams::default()).await.unwrap().items.into_iter();
    let named = found.filter_map(|secret| {
        let name = secret.metadata.name?.strip_suffix(suffix)?.to_owned();
        Some((name, secret.metadata.resource_version?))
    });
    named.collect()
}

/// Waits until the agents of all addons that need one have a certificate.
async fn wait_secrets(admin: &Client) -> BTreeMap<String, String> {
    wait_until(SETTLED, "the Secrets", async || {
        Some(secrets(admin).await).filter(|there| there.keys().eq(NAMED.iter()))
    })
    .await
}

/// Waits for a minute in which nobody wrote an addon or an AddOnSigner, the hub wrote nothing except its Lease and the
/// checkpoint of its ledger, and the Secrets stayed the same.
async fn wait_rest(hub: &RealHub, admin: &Client) -> BTreeMap<String, String> {
    let deadline = Instant::now() + SETTLED;
    let counts = |write: &Write| {
        let object = write.object.as_deref().unwrap_or_default();
        let is_disputed = object.starts_with("managedclusteraddons/") || object.starts_with("addonsigners/");
        let is_life = object.starts_with("leases/") || object.ends_with("/addon-signer-ledger");
        let is_question = write.object.is_none();
        is_disputed || (write.user == HUB_USER && !is_life && !is_question)
    };
    let count = || hub.writes().iter().filter(|write| counts(write)).count();
    let mut writes = count();
    let mut there = secrets(admin).await;
    let mut since = Instant::now();
    assert!(writes > 0, "the audit log has what was done so far");
    while since.elapsed() < REST {
        let last = || hub.writes().into_iter().rev().filter(counts).take(12).collect::<Vec<_>>();
        assert!(Instant::now() < deadline, "it does not come to rest: {:#?}", last());
        sleep(Duration::from_millis(500)).await;
        let now = (count(), secrets(admin).await);
        if now != (writes, there.clone()) {
            (writes, there, since) = (now.0, now.1, Instant::now());
        }
    }
    there
}

async fn status(admin: &Client, name: &str) -> Value {
    addon(admin, "spoke1", name).await.data["status"].clone()
}

async fn signer_names(admin: &Client, name: &str) -> Vec<String> {
    let status = status(admin, name).await;
    let entries = status["registrations"].as_array().cloned().unwrap_or_default();
    let name = |entry: &Value| {
        let signer = if entry["customSigner"].is_null() { entry } else { &entry["customSigner"] };
        signer["signerName"].as_str().unwrap_or("kubernetes.io/kube-apiserver-client").to_owned()
    };
    entries.iter().map(name).collect()
}

/// Checks registrations, Secrets and conditions after everything has come to rest.
async fn assert_at_rest(admin: &Client, secrets: &BTreeMap<String, String>) {
    assert_eq!(secrets.keys().map(String::as_str).collect::<Vec<_>>(), NAMED);
    for name in NAMED {
        assert_eq!(signer_names(admin, name).await, [SIGNER], "{name}");
    }
    assert_eq!(signer_names(admin, "template-without").await, [""; 0]);
    let works = manifest_works(admin, "spoke1").list(&ListParams::default().labels(LABEL_HUB_TRUST)).await.unwrap();
    assert_eq!(works.items.len(), addons().len(), "every addon has the trust bundle");
    assert_left(admin).await;
    let (status, message) = wait_registered(admin, "TemplateLacksSigner").await;
    assert_eq!(status, "False");
    assert!(message.contains("AddOnTemplate template-without does not name this signer"), "{message}");
    assert!(message.contains("of 1 ManagedClusterAddOns (spoke1/framework-other)"), "{message}");
}

async fn says_left(admin: &Client, name: &str) -> bool {
    let conditions = status(admin, name).await["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "addon-signer.io/Registered")
}

/// Checks that the hub left the registrations of the addon whose program registers something else, and that the addon
/// says so.
async fn assert_left(admin: &Client) {
    wait_until(SETTLED, "the addon to say that it is left", async || {
        let is_left = signer_names(admin, "framework-other").await == ["kubernetes.io/kube-apiserver-client"];
        (is_left && says_left(admin, "framework-other").await).then_some(())
    })
    .await;
    for name in addons() {
        assert_eq!(says_left(admin, name).await, name == "framework-other", "{name}: {}", status(admin, name).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_coming_last_settles_and_stays_settled_after_restarts() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = mk_world(&hub).await;
    own_framework_addons(&admin, AddOnApi::V1alpha1).await;
    let _agent = OcmAgent::start(real, "spoke1", "a1").await;
    let mut programs = start_programs(real).await;
    wait_until(SETTLED, "the template's registration", async || {
        (signer_names(&admin, "template-with").await == [SIGNER]).then_some(())
    })
    .await;
    let running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    let first = wait_secrets(&admin).await;

    running.stop().await;
    let _running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "True").await;
    programs.clear();
    let _programs = start_programs(real).await;
    let last = wait_rest(real, &admin).await;
    assert_eq!(first, last, "the same Secrets, untouched, after restarts of the hub and of the programs");
    assert_at_rest(&admin, &last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_coming_first_settles_even_after_others_change_lists() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = mk_world(&hub).await;
    let _agent = OcmAgent::start(real, "spoke1", "a1").await;
    let _running = RunningHub::start(&hub).await;
    wait_until(SETTLED, "our registrations where nobody else writes", async || {
        (signer_names(&admin, "framework-other").await == [SIGNER]).then_some(())
    })
    .await;
    own_framework_addons(&admin, AddOnApi::V1alpha1).await;
    let programs = start_programs(real).await;
    let secrets = wait_rest(real, &admin).await;
    assert_at_rest(&admin, &secrets).await;

    drop(programs);
    let named = templates::registration(&["example.com/other"]);
    templates::patch(&admin, "AddOnTemplate", "template-with", json!({ "registration": named })).await;
    let _others = [("framework-other", Registers::Signer(SIGNER)), ("framework-with", Registers::KubeClient)]
        .map(|(name, registers)| start_framework_addon(real, AddOnApi::V1alpha1, name, registers));
    let _manager = start_addon_manager(real).await;
    wait_rest(real, &admin).await;
    for (name, expected) in [
        ("alone", SIGNER),
        ("framework-nothing", SIGNER),
        ("framework-other", SIGNER),
        ("framework-with", "kubernetes.io/kube-apiserver-client"),
        ("template-with", "example.com/other"),
    ] {
        assert_eq!(signer_names(&admin, name).await, [expected], "{name}");
    }
    let (_, message) = wait_registered(&admin, "TemplateLacksSigner").await;
    for reported in ["template-with does not name this signer", "template-without does not", "(spoke1/framework-with)"]
    {
        assert!(message.contains(reported), "{message}");
    }
}

/// OCM's API gets v1beta1 under a hub that reads v1alpha1, and then loses v1alpha1, which no version of OCM has done
/// yet. In between, OCM's programs go on with v1alpha1, and the webhook that converts is away for a while.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_of_ocms_api_under_a_running_hub_disturbs_nobody() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = mk_world(&hub).await;
    own_framework_addons(&admin, AddOnApi::V1alpha1).await;
    let agent = OcmAgent::start(real, "spoke1", "a1").await;
    let mut programs = start_programs(real).await;
    let running = RunningHub::start(&hub).await;
    let before = wait_secrets(&admin).await;

    let (assets, webhook) = (assets().unwrap(), start_addon_webhook(real).await);
    crds::upgrade(&admin, &assets, &webhook.url, &real.ca().pair().cert).await;
    enrol(&hub, &admin, "spoke2", Version::V1Beta1).await;
    let with_both = wait_rest(real, &admin).await;
    assert_eq!(before, with_both, "the same Secrets, untouched");
    assert_at_rest(&admin, &with_both).await;

    let _refusing = webhook.kill();
    enrol(&hub, &admin, "spoke3", Version::V1Alpha1).await;
    running.stop().await;
    let running = RunningHub::start(&hub).await;
    enrol(&hub, &admin, "spoke4", Version::V1Alpha1).await;

    drop(agent);
    programs.clear();
    let webhook = start_addon_webhook(real).await;
    crds::upgrade(&admin, &assets, &webhook.url, &real.ca().pair().cert).await;
    let unreadable = make_inconvertible(&admin, "spoke3").await;
    running.stop().await;
    let _running = RunningHub::start(&hub).await;
    enrol(&hub, &admin, "spoke5", Version::V1Alpha1).await;
    unreadable.delete(ALONE, &DeleteParams::default()).await.unwrap();

    crds::end_v1alpha1(&admin, &assets, &webhook.url, &real.ca().pair().cert).await;
    enrol(&hub, &admin, "spoke6", Version::V1Beta1).await;
    wait_rest(real, &admin).await;
}

fn addons_in(admin: &Client, cluster: &str, version: Version) -> Api<DynamicObject> {
    Api::namespaced_with(admin.clone(), cluster, &version.resource())
}

/// Writes what a cluster's agent may: a time that the API server takes and Go's library does not. So OCM's webhook
/// converts this addon for nobody.
async fn make_inconvertible(admin: &Client, cluster: &str) -> Api<DynamicObject> {
    let addons = addons_in(admin, cluster, Version::V1Alpha1);
    let condition = json!({
        "type": "Odd", "status": "True", "reason": "Odd", "message": "", "lastTransitionTime": "2026-01-01t00:00:00z",
    });
    let body = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    addons.patch_status(ALONE, &PatchParams::default(), &body).await.unwrap();
    let refused = addons_in(admin, cluster, Version::V1Beta1).get(ALONE).await.unwrap_err().to_string();
    assert!(refused.contains("conversion webhook"), "{refused}");
    addons
}

/// An addon comes to a new cluster: it is registered, gets the trust bundle, and its CSR is signed.
async fn enrol(hub: &TestHub, admin: &Client, cluster: &str, version: Version) {
    accept_cluster(admin, cluster).await;
    let addons = addons_in(admin, cluster, version);
    let object = DynamicObject::new(ALONE, &version.resource()).data(json!({ "spec": {} }));
    addons.create(&PostParams::default(), &object).await.unwrap();
    wait_until(NOTICED, &format!("the registration on {cluster}"), async || {
        addons.get(ALONE).await.unwrap().data.pointer("/status/registrations/0").map(drop)
    })
    .await;
    wait_until(TIMEOUT, "the ManifestWork", async || {
        manifest_works(admin, cluster).get_opt(&format!("addon-signer-{ALONE}-trust")).await.unwrap()
    })
    .await;
    let name = submit(hub, cluster, &mk_csr(cluster, ALONE)).await;
    wait_csr(admin, &name, "issued", certificate).await;
}

/// Runs without OCM's agent, because the agent that is built here reads v1alpha1.
#[tokio::test(flavor = "multi_thread")]
async fn beside_programs_that_write_v1beta1_it_comes_to_rest_as_well() {
    let hub = TestHub::start_with(AddOnApi::V1beta1).await;
    let Some(real) = hub.real_or_skip() else { return };
    deploy(&hub).await;
    let admin = hub.admin().await;
    accept_cluster(&admin, "spoke1").await;
    for (name, _) in FRAMEWORK {
        install_addon(&admin, "spoke1", name).await;
    }
    own_framework_addons(&admin, AddOnApi::V1beta1).await;
    let names: Vec<&str> = FRAMEWORK.iter().map(|(name, _)| *name).collect();
    create_signer(&admin, "telemetry", json!({ "signerName": SIGNER, "addOns": names })).await;
    let _running = RunningHub::start(&hub).await;
    let _programs = start_framework_addons(real, AddOnApi::V1beta1);
    wait_rest(real, &admin).await;
    assert_eq!(signer_names(&admin, "framework-with").await, [SIGNER]);
    assert_eq!(signer_names(&admin, "framework-nothing").await, [SIGNER]);
    assert_eq!(signer_names(&admin, "framework-other").await, ["kubernetes.io/kube-apiserver-client"]);
}
