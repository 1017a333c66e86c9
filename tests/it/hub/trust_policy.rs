//! The policy for the trust bundle on requests: nobody but the hub chooses whom a new agent trusts.

use addon_signer_api::AddOnSigner;
use addon_signer_core::names::ANNOTATION_TRUST_BUNDLE;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::grpc_account::attack::accomplice;
use super::grpc_account::policy::{approver, refused};
use super::grpc_account::requests;
use super::{mk_csr, mk_served};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::deploy::{apply, part};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, telemetry, wait_csr, wait_ready};
use test_kit::objects::{bind_policy, policy_bindings, policy_objects};
use test_kit::{TestHub, wait_until};

const POLICY: &str = "addon-signer-trust-bundle";
const ANOTHER: &str = "denied request: only the account system:serviceaccount:addon-signer:addon-signer may set, \
                       change or remove the annotation addon-signer.io/trust-bundle, and this is ";
const LATE: &str = "denied request: the annotation addon-signer.io/trust-bundle may be set, changed or removed only in \
                    the update that brings the certificate";

/// Sets the trust bundle on a copy of the CSR, or removes it.
fn with_bundle(csr: &Csr, bundle: Option<&str>) -> Csr {
    let mut csr = csr.clone();
    let annotations = csr.metadata.annotations.get_or_insert_default();
    match bundle {
        Some(bundle) => _ = annotations.insert(ANNOTATION_TRUST_BUNDLE.to_owned(), bundle.to_owned()),
        None => _ = annotations.remove(ANNOTATION_TRUST_BUNDLE),
    }
    csr
}

/// Waits until the API server refuses what the policy forbids.
async fn wait_in_force(admin: &Client) {
    let dry_run = PostParams { dry_run: true, field_manager: None };
    let forbidden = with_bundle(&mk_csr("spoke1", "telemetry"), Some("x"));
    wait_until(TIMEOUT, "the policy to be in force", async || {
        requests(admin).create(&dry_run, &forbidden).await.err().filter(|error| error.to_string().contains(ANOTHER))
    })
    .await;
}

/// Waits until the condition TrustBundleProtected has this status and reason; returns its message.
async fn wait_protected(admin: &Client, status: &str, reason: &str) -> String {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    wait_until(3 * TIMEOUT, &format!("TrustBundleProtected to be {status}, {reason}"), async || {
        let conditions = signers.get("telemetry").await.unwrap().status?.conditions;
        let reported = conditions.into_iter().find(|condition| condition.type_ == "TrustBundleProtected")?;
        (reported.status == status && reported.reason == reason).then_some(reported.message)
    })
    .await
}

/// Makes a CSR of spoke1's agent.
async fn ask(hub: &TestHub) -> String {
    let agent = hub.as_cluster_agent("spoke1", "a1").await;
    let made = requests(&agent).create(&PostParams::default(), &mk_csr("spoke1", "telemetry")).await;
    made.unwrap().metadata.name.unwrap()
}

/// Those who may write requests.
struct Writers {
    admin: Client,
    hub: Client,
    approver: Client,
    other_signer: Client,
}

impl Writers {
    /// All try to set these trust bundles by all that they may write.
    async fn are_refused(&self, name: &str, bundles: &[Option<&str>]) {
        let admin = &self.admin;
        let writers = [
            ("approver", &self.approver, "approval", ANOTHER),
            ("another signer", &self.other_signer, "status", ANOTHER),
            ("administrator", admin, "approval", ANOTHER),
            ("administrator", admin, "status", ANOTHER),
            ("hub", &self.hub, "approval", LATE),
            ("hub", &self.hub, "status", LATE),
        ];
        for bundle in bundles {
            for (who, client, subresource, text) in writers {
                let csr = with_bundle(&requests(admin).get(name).await.unwrap(), *bundle);
                let tried = requests(client).replace_subresource(subresource, name, &Default::default(), &csr).await;
                let Err(error) = tried else { panic!("{who}, /{subresource}, {bundle:?}") };
                assert!(error.to_string().contains(text), "{who}, /{subresource}, {bundle:?}: {error}");
            }
            let patch = json!({ "metadata": { "annotations": { ANNOTATION_TRUST_BUNDLE: bundle } } });
            for subresource in ["status", "approval"] {
                let patch = Patch::Merge(&patch);
                refused(
                    requests(admin).patch_subresource(subresource, name, &Default::default(), &patch).await,
                    ANOTHER,
                );
            }
            refused(requests(admin).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await, ANOTHER);
        }
    }
}

#[tokio::test]
async fn nobody_but_the_hub_sets_the_trust_bundle_of_a_request() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    wait_in_force(&admin).await;
    let writers = Writers {
        admin: admin.clone(),
        hub: hub.client_as(HUB_USER, &HUB_GROUPS).await,
        approver: approver(&hub).await,
        other_signer: accomplice(&hub).await,
    };
    let agent = hub.as_cluster_agent("spoke1", "a1").await;
    for (client, text) in [(&agent, ANOTHER), (&admin, ANOTHER), (&writers.hub, LATE)] {
        let csr = with_bundle(&mk_csr("spoke1", "telemetry"), Some("x"));
        refused(requests(client).create(&PostParams::default(), &csr).await, text);
    }
    let name = ask(&hub).await;
    writers.are_refused(&name, &[Some("x")]).await;
    // One who may sign brings a certificate with a trust bundle of his own.
    let mut signed = with_bundle(&requests(&admin).get(&name).await.unwrap(), Some("x"));
    let pem = include_bytes!("../../../certs/profiles/client-leaf.pem").to_vec();
    signed.status.get_or_insert_default().certificate = Some(ByteString(pem));
    let tried = requests(&admin).replace_subresource("status", &name, &Default::default(), &signed).await;
    assert!(tried.unwrap_err().to_string().contains(ANOTHER));

    let running = RunningHub::start(&hub).await;
    wait_protected(&admin, "True", "PolicyInForce").await;
    wait_csr(&admin, &name, "signed", certificate).await;
    let issued = requests(&admin).get(&name).await.unwrap();
    let bundle = issued.metadata.annotations.as_ref().unwrap()[ANNOTATION_TRUST_BUNDLE].clone();
    writers.are_refused(&name, &[Some("x"), None]).await;
    // What leaves it alone goes on.
    let label = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } } });
    requests(&admin).patch(&name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    let now = requests(&admin).get(&name).await.unwrap();
    requests(&admin).replace_subresource("approval", &name, &Default::default(), &now).await.unwrap();
    let now = requests(&admin).get(&name).await.unwrap();
    assert_eq!(now.metadata.annotations.as_ref().unwrap()[ANNOTATION_TRUST_BUNDLE], bundle);
    requests(&admin).delete(&name, &DeleteParams::default()).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn without_the_policy_the_hub_signs_and_says_what_is_missing() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    wait_in_force(&admin).await;
    policy_bindings(&admin).delete(POLICY, &DeleteParams::default()).await.unwrap();
    let dry_run = PostParams { dry_run: true, field_manager: None };
    let forbidden = with_bundle(&mk_csr("spoke1", "telemetry"), Some("x"));
    wait_until(TIMEOUT, "the policy to be gone", async || requests(&admin).create(&dry_run, &forbidden).await.ok())
        .await;
    let running = RunningHub::start(&hub).await;
    let text = wait_protected(&admin, "False", "PolicyMissing").await;
    let sentence = "The ValidatingAdmissionPolicy addon-signer-trust-bundle is not in force, so whoever may update \
                    CSRs can choose whom a new agent trusts. Install the chart again; the binding must deny.";
    assert_eq!(text, sentence);
    let has_metric = |value: u8| {
        let metrics = running.metrics.render().unwrap();
        assert!(metrics.contains(&format!("addon_signer_trust_bundle_protected{{}} {value}\n")), "{metrics}");
    };
    has_metric(0);
    let name = ask(&hub).await;
    wait_csr(&admin, &name, "signed", certificate).await;
    assert_eq!(wait_ready(&admin, "telemetry", "True").await.0, "Signing");
    install(&hub, &admin, part("trust-bundle")).await;
    // The hub asks with growing pauses, of a minute at most.
    wait_protected(&admin, "True", "PolicyInForce").await;
    has_metric(1);
    running.stop().await;
}

/// Applies a policy with its binding.
async fn install(hub: &TestHub, admin: &Client, objects: Vec<Value>) {
    if hub.is_real() {
        apply(admin, &objects).await;
    } else {
        bind_policy(admin, "trust-bundle").await;
    }
}

/// The policy lets another account than the hub's set the trust bundle, as for a hub that runs outside of the cluster.
#[tokio::test]
async fn a_hub_that_the_policy_refuses_says_which_account_it_has() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    wait_in_force(&admin).await;
    let account = |expression: &str| {
        let path = "/spec/variables/0/expression";
        Patch::<Value>::Json(
            serde_json::from_value(json!([{ "op": "replace", "path": path, "value": expression }])).unwrap(),
        )
    };
    let policies = policy_objects(&admin, "ValidatingAdmissionPolicy");
    policies.patch(POLICY, &PatchParams::default(), &account("'outside'")).await.unwrap();
    let hubs = hub.client_as(HUB_USER, &HUB_GROUPS).await;
    let dry_run = PostParams { dry_run: true, field_manager: None };
    let forbidden = with_bundle(&mk_csr("spoke1", "telemetry"), Some("x"));
    wait_until(TIMEOUT, "the policy to name another account", async || {
        let tried = requests(&hubs).create(&dry_run, &forbidden).await.unwrap_err().to_string();
        tried.contains("only the account outside").then_some(())
    })
    .await;
    let running = RunningHub::start(&hub).await;
    let text = wait_protected(&admin, "False", "PolicyRefusesHub").await;
    let sentence = "No certificate can be given out, because the ValidatingAdmissionPolicy addon-signer-trust-bundle \
                    refuses the hub: only the account outside may set, change or remove the annotation \
                    addon-signer.io/trust-bundle, and this is system:serviceaccount:addon-signer:addon-signer. Name \
                    the hub's account in the chart's value hubAccount.";
    assert_eq!(text, sentence);
    assert_eq!(wait_ready(&admin, "telemetry", "False").await, ("PolicyRefusesHub".to_owned(), sentence.to_owned()));
    let name = ask(&hub).await;
    policies
        .patch(POLICY, &PatchParams::default(), &account("'system:serviceaccount:addon-signer:addon-signer'"))
        .await
        .unwrap();
    wait_protected(&admin, "True", "PolicyInForce").await;
    wait_ready(&admin, "telemetry", "True").await;
    wait_until(3 * TIMEOUT, "the certificate", async || certificate(&requests(&admin).get(&name).await.unwrap())).await;
    running.stop().await;
}
