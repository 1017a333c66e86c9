//! An issuer of cert-manager signs the authorities of a lineage, after somebody has approved that. The controllers are
//! real; where the issuer is one of another project, the test plays it.

use std::time::Duration;

use addon_signer_api::authority::AuthoritySource;
use addon_signer_api::cert_manager::IssuerRef;
use addon_signer_hub::authorities::supply::{ServingSource, Trusted};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use rcgen::{CertificateParams, IsCa};
use serde_json::{Value, json};

use super::requested::point;
use super::{NAMESPACE, change, telemetry_of, touch, wait_issued, wait_reported};
use crate::hub::lineages::{OnServer, issue, rotate};
use crate::hub::mk_served;
use test_kit::cert_manager::{Approver, CertManager, GROUP, PROGRAM, requests};
use test_kit::company::{CompanyCa, ca_params, chain};
use test_kit::deploy::{apply, part};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, fresh_ledger, telemetry, wait_ready};
use test_kit::needed::Needed;
use test_kit::pki::{TestCa, base64};
use test_kit::real::has_or_skip;
use test_kit::{TestHub, wait_until};

const DAY: Duration = Duration::from_secs(86_400);

fn by(issuer: Value) -> Value {
    telemetry_of(json!({ "type": "CertManager", "issuerRef": issuer }))
}

/// A hub cluster with this signer and an Issuer `corporate`; no hub runs yet. `None` without cert-manager.
async fn mk_cluster(signer: Value) -> Option<(TestHub, Client, CertManager)> {
    if !has_or_skip(PROGRAM, Needed::Issuers) {
        return None;
    }
    let hub = TestHub::start().await;
    let cert_manager = CertManager::start(hub.real()?, Approver::Test).await;
    cert_manager.add_ca_issuer(NAMESPACE, "corporate", &TestCa::named("corporate root").pair()).await;
    let admin = mk_served(&hub, signer).await;
    apply(&admin, &part("cert-manager")).await;
    Some((hub, admin, cert_manager))
}

/// Waits for the only CertificateRequest, of which `is_wanted` holds.
async fn wait_request(admin: &Client, is_wanted: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
    wait_until(TIMEOUT, "one CertificateRequest", async || {
        let all = requests(admin, NAMESPACE).list(&Default::default()).await.ok()?.items;
        let [request] = <[DynamicObject; 1]>::try_from(all).ok()?;
        is_wanted(&request).then_some(request)
    })
    .await
}

async fn wait_no_request(admin: &Client) {
    wait_until(TIMEOUT, "no CertificateRequest", async || {
        let all = requests(admin, NAMESPACE).list(&Default::default()).await.ok()?.items;
        all.is_empty().then_some(())
    })
    .await;
}

/// The id of the authority for which a CSR is.
fn id(request: &DynamicObject) -> String {
    request.name_any().rsplit('-').next().unwrap().to_owned()
}

#[tokio::test]
async fn an_issuer_signs_once_approved_and_again_to_rotate() {
    let Some((hub, admin, cert_manager)) = mk_cluster(by(json!({ "name": "corporate" }))).await else { return };
    let (_dir, ledger) = fresh_ledger();
    let start = || {
        RunningHub::start_with(&hub, RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() })
    };
    let running = start().await;
    let first = wait_request(&admin, |_| true).await;
    let wanted = json!({
        "isCA": true, "usages": ["cert sign", "crl sign"], "duration": "8760h0m0s",
        "request": first.data["spec"]["request"],
        "issuerRef": { "name": "corporate", "kind": "Issuer", "group": GROUP },
    });
    assert_eq!(first.data["spec"], wanted);
    assert_eq!(first.labels()["addon-signer.io/signer"], "telemetry");
    let expected = format!("The lineage waits for the CertificateRequest {} to be approved.", first.name_any());
    wait_reported(&admin, &expected).await;
    running.stop().await;

    let _running = start().await;
    let lineage = OnServer::client(&admin);
    let unanswered = cert_manager.requests(NAMESPACE).get(&first.name_any()).await.unwrap();
    assert!(unanswered.data.get("status").is_none() && lineage.members().await.is_none());
    cert_manager.decide(NAMESPACE, &first.name_any(), "Approved").await;
    cert_manager.answered(NAMESPACE, &first.name_any(), "Issued").await;
    assert_eq!(lineage.wait(&["Active"]).await, [id(&first)], "the hub that was started again asks for nothing new");
    wait_ready(&admin, "telemetry", "True").await;
    issue(&hub, &admin).await;
    wait_no_request(&admin).await;

    rotate(&admin, "r1").await;
    let second = wait_request(&admin, |_| true).await;
    assert_ne!(id(&second), id(&first), "each authority has a key of its own");
    let waits = format!("Waiting for: the CertificateRequest {} to be approved.", second.name_any());
    wait_until(TIMEOUT, &waits, async || {
        let conditions = lineage.status().await.conditions;
        conditions.into_iter().find(|it| it.type_ == "Rotating" && it.message == waits)
    })
    .await;
    assert_eq!(lineage.wait(&["Active"]).await, [id(&first)]);
    cert_manager.decide(NAMESPACE, &second.name_any(), "Approved").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    assert_eq!(ids, [id(&second), id(&first)]);
    lineage.wait_signs(&ids).await;
    issue(&hub, &admin).await;
    wait_no_request(&admin).await;
    wait_issued(&lineage, "True", "Every authority").await;
}

#[tokio::test]
async fn a_denied_request_stays_until_somebody_deletes_it() {
    let Some((hub, admin, cert_manager)) = mk_cluster(by(json!({ "name": "corporate" }))).await else { return };
    let _running = RunningHub::start(&hub).await;
    let first = wait_request(&admin, |_| true).await;
    let name = first.name_any();
    cert_manager.decide(NAMESPACE, &name, "Denied").await;
    touch(&admin, "1").await;
    let text = format!(
        "There is no authority yet. The CertificateRequest {name} has failed (Denied: by the test); delete that \
         CertificateRequest, and the hub makes another one."
    );
    assert_eq!(wait_reported(&admin, "has failed").await, text);
    let api = cert_manager.requests(NAMESPACE);
    assert_eq!(api.get(&name).await.unwrap().uid(), first.uid(), "nobody is asked again");
    api.delete(&name, &Default::default()).await.unwrap();
    touch(&admin, "2").await;
    let again = wait_request(&admin, |request| request.uid() != first.uid()).await;
    assert_eq!(again.name_any(), name);
    cert_manager.decide(NAMESPACE, &name, "Approved").await;
    wait_ready(&admin, "telemetry", "True").await;
}

#[tokio::test]
async fn an_issuer_that_is_missing_is_said_and_replaced() {
    let Some((hub, admin, cert_manager)) = mk_cluster(by(json!({ "name": "nothing" }))).await else { return };
    let _running = RunningHub::start(&hub).await;
    let first = wait_request(&admin, |_| true).await;
    cert_manager.decide(NAMESPACE, &first.name_any(), "Approved").await;
    cert_manager.answered(NAMESPACE, &first.name_any(), "Pending").await;
    touch(&admin, "1").await;
    let text = format!(
        "waits for the Issuer nothing to answer the CertificateRequest {} (Referenced \"Issuer\" not found: ",
        first.name_any()
    );
    wait_reported(&admin, &text).await;
    let to =
        |kind: &str, name: &str| json!({ "authority": { "issuer": { "issuerRef": { "kind": kind, "name": name } } } });
    change(&admin, to("ClusterIssuer", &cert_manager.self_signed)).await;
    let second = wait_request(&admin, |request| request.uid() != first.uid()).await;
    cert_manager.decide(NAMESPACE, &second.name_any(), "Approved").await;
    cert_manager.answered(NAMESPACE, &second.name_any(), "Failed").await;
    touch(&admin, "2").await;
    wait_reported(&admin, "has failed (Failed: ").await;
    change(&admin, to("Issuer", "corporate")).await;
    let third = wait_request(&admin, |request| request.uid() != second.uid()).await;
    assert_eq!(third.name_any(), first.name_any(), "the key is the same");
    cert_manager.decide(NAMESPACE, &third.name_any(), "Approved").await;
    wait_ready(&admin, "telemetry", "True").await;
}

/// Answers as an issuer of another project does.
async fn answer(admin: &Client, name: &str, certificates: &str, root: &CompanyCa, approved: bool) {
    let condition = |kind: &str| {
        let at = "2026-01-01T00:00:00Z";
        json!({ "type": kind, "status": "True", "reason": "test", "message": "by the test", "lastTransitionTime": at })
    };
    let mut conditions = vec![condition("Ready")];
    conditions.extend(approved.then(|| condition("Approved")));
    let ca = chain(&[&root.der]);
    let status = json!({
        "conditions": conditions, "certificate": base64(certificates.as_bytes()), "ca": base64(ca.as_bytes()),
    });
    let patch = Patch::Merge(json!({ "status": status }));
    requests(admin, NAMESPACE).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_is_said() {
    let by_another = json!({ "name": "theirs", "kind": "TestIssuer", "group": "issuers.example.com" });
    let Some((hub, admin, _cert_manager)) = mk_cluster(by(by_another)).await else { return };
    let _running = RunningHub::start(&hub).await;
    let request = wait_request(&admin, |_| true).await;
    let name = request.name_any();
    let csr = data_encoding::BASE64.decode(request.data["spec"]["request"].as_str().unwrap().as_bytes()).unwrap();
    let point = point(&String::from_utf8(csr).unwrap());
    let root = CompanyCa::root();
    let signed = |params: &CertificateParams| chain(&[&root.certifies(&point, params)]);
    let mut leaf = ca_params("leaf", DAY * 400);
    leaf.is_ca = IsCa::NoCa;
    let mut nameless = ca_params("", DAY * 400);
    nameless.distinguished_name = rcgen::DistinguishedName::new();
    let good = signed(&ca_params("Telemetry CA", DAY * 400));
    answer(&admin, &name, &good, &root, false).await;
    touch(&admin, "0").await;
    wait_reported(&admin, &format!("the CertificateRequest {name} to be approved")).await;
    for (certificates, why) in [
        (signed(&leaf), "\"CN=leaf\" is not a CA certificate (basic constraints and key usage)"),
        (
            chain(&[&root.authority("other").der]),
            "the private key is not the key of the first certificate, \"CN=other\"",
        ),
        (signed(&nameless), "certificate 1 has an empty subject"),
        (signed(&ca_params("short", DAY * 30)), "within renewBefore from now"),
        ("hello".to_owned(), "its certificate: it has no certificate in PEM"),
    ] {
        answer(&admin, &name, &certificates, &root, true).await;
        touch(&admin, why).await;
        let text = wait_reported(&admin, why).await;
        let begins = format!("There is no authority yet. The authority in the CertificateRequest {name} is not used: ");
        assert!(text.starts_with(&begins), "{text}");
        assert!(text.ends_with("; delete that CertificateRequest, and the hub makes another one."), "{text}");
    }
    answer(&admin, &name, &good, &root, true).await;
    assert_eq!(OnServer::client(&admin).wait(&["Active"]).await, [id(&request)]);
}

#[tokio::test]
async fn the_gateways_line_asks_an_issuer_as_well() {
    let Some((hub, admin, cert_manager)) = mk_cluster(telemetry()).await else { return };
    let issuer = IssuerRef { name: "corporate".to_owned(), kind: "Issuer".to_owned(), group: GROUP.to_owned() };
    let serving_source = ServingSource { source: AuthoritySource::CertManager(issuer), trusted: Trusted::Authority };
    let options = RunningHubOptions { serving_source, ..RunningHubOptions::default() };
    let _running = RunningHub::start_with(&hub, options).await;
    let request = wait_request(&admin, |_| true).await;
    assert_eq!(request.name_any(), format!("addon-signer-serving-authorities-{}", id(&request)));
    cert_manager.decide(NAMESPACE, &request.name_any(), "Approved").await;
    assert_eq!(OnServer::serving(&admin).wait(&["Active"]).await, [id(&request)]);
    wait_no_request(&admin).await;
}

#[tokio::test]
async fn without_cert_manager_or_the_right_the_hub_says_so() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, by(json!({ "name": "corporate" }))).await;
    let _running = RunningHub::start(&hub).await;
    if hub.is_real() {
        let text = wait_reported(&admin, "The hub may not use CertificateRequests: ").await;
        assert!(text.ends_with("(certManager.enabled in the chart's values allows it)."), "{text}");
        apply(&admin, &part("cert-manager")).await;
    }
    wait_reported(&admin, "cert-manager is not installed: the API server does not know CertificateRequests.").await;
}
