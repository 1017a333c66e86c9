//! OCM's addon-manager approves every CSR of an addon with an AddOnTemplate, and signs it where it has a key. Our
//! policy decides all the same.

use std::process::Command;
use std::time::Duration;

use addon_signer_api::AddOnSigner;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::templates::{create, mk_management_addon};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, condition, create_signer, deploy};
use test_kit::needed::{Needed, found};
use test_kit::ocm::OcmAgent;
use test_kit::programs::start_addon_manager;
use test_kit::{TestHub, install_addon, wait_until};

const SIGNER: &str = "example.com/telemetry";
const MANAGER: &str = "open-cluster-management-hub";
/// How long OCM's programs may take on a busy machine.
const OCM: Duration = Duration::from_secs(240);
/// What the addon-manager says when it approves.
const BY_OCM: &str = "AutoApprovedByHubCSRApprovingController";

/// Addons by what becomes of their CSRs.
const GOOD: &str = "good";
const REFUSED: &str = "refused";
const FOREIGN: &str = "foreign";

async fn mk_addon(admin: &Client, name: &str, subject: Value, signing_ca: &str) {
    let mut signer = json!({ "signerName": SIGNER, "signingCA": { "name": signing_ca, "namespace": MANAGER } });
    if !subject.is_null() {
        signer["subject"] = subject;
    }
    let spec = json!({
        "addonName": name,
        "agentSpec": { "workload": { "manifests": [] } },
        "registration": [{ "type": "CustomSigner", "customSigner": signer }],
    });
    create(admin, "AddOnTemplate", name, spec).await;
    mk_management_addon(admin, name, name).await;
    install_addon(admin, "spoke1", name).await;
}

/// A CA for the addon-manager, which signs with RSA keys in PKCS #1 only. `None` if there is no openssl.
fn mk_signing_ca(name: &str) -> Option<Secret> {
    let dir = tempfile::tempdir().unwrap();
    let commands =
        ["genrsa -traditional -out tls.key 2048", "req -x509 -key tls.key -out tls.crt -subj /CN=another -days 30"];
    for command in commands {
        let done = Command::new("openssl").args(command.split(' ')).current_dir(dir.path()).output().ok()?;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let file = |name: &str| (name.to_owned(), ByteString(std::fs::read(dir.path().join(name)).unwrap()));
    Some(Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([file("tls.crt"), file("tls.key")].into()),
        ..Secret::default()
    })
}

/// Waits for what becomes of the addon's CSR, which the addon-manager has approved.
async fn wait_request<T>(admin: &Client, addon: &str, pick: impl Fn(&CertificateSigningRequest) -> Option<T>) -> T {
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let of_addon = ListParams::default().labels(&format!("open-cluster-management.io/addon-name={addon}"));
    wait_until(OCM, &format!("the CSR of {addon}"), async || {
        // OCM's agent makes another one when the first was refused.
        let mut made = requests.list(&of_addon).await.unwrap().items.into_iter();
        let (request, found) = made.find_map(|request| Some((request.clone(), pick(&request)?)))?;
        assert_eq!(condition(&request, "Approved").unwrap().0, BY_OCM);
        Some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_addon_manager_approves_everything_and_policy_decides() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let signing_ca = mk_signing_ca("its-own");
    let Some(signing_ca) = found(Needed::Openssl, signing_ca) else { return };
    deploy(&hub).await;
    let admin = hub.admin().await;
    let _agent = OcmAgent::start(real, "spoke1", "a1").await;
    let _manager = start_addon_manager(real).await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), MANAGER);
    secrets.create(&PostParams::default(), &signing_ca).await.unwrap();
    mk_addon(&admin, FOREIGN, Value::Null, "its-own").await;
    mk_addon(&admin, REFUSED, json!({ "user": "", "groups": ["system:masters"] }), "not-used").await;
    wait_request(&admin, FOREIGN, certificate).await; // signed by the addon-manager: no hub of ours runs
    // Our hub denies what nobody has approved yet.
    wait_request(&admin, REFUSED, |request| condition(request, "Approved")).await;

    let spec = json!({ "signerName": SIGNER, "addOns": [FOREIGN, GOOD, REFUSED], "approval": "External",
                       "registration": "External" });
    create_signer(&admin, "telemetry", spec).await;
    let running = RunningHub::start(&hub).await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let text = wait_until(TIMEOUT, "the condition", async || {
        let conditions = signers.get("telemetry").await.unwrap().status?.conditions;
        conditions.into_iter().find(|reported| reported.type_ == "ForeignCertificates")
    })
    .await;
    assert!(text.message.contains("(issuer \"CN=another\")"), "{text:?}");

    mk_addon(&admin, GOOD, Value::Null, "not-used").await;
    let pem = wait_request(&admin, GOOD, certificate).await;
    assert!(pem.contains("BEGIN CERTIFICATE"));
    let (reason, message) = wait_request(&admin, REFUSED, |request| condition(request, "Failed")).await;
    assert!(message.contains("system:masters"), "{reason}: {message}");
    running.stop().await;
}
