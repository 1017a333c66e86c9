//! The gateway's lineage: a new serving authority waits until every agent has the new anchor.

use std::time::Duration;

use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::timestamp::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::kit::{OnServer, issue};
use crate::hub::signers::change;
use crate::hub::{MOMENT, mk_csr_of, mk_ready, mk_ready_with, mk_served};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::{
    RunningHub, RunningHubOptions, TIMEOUT, certificate, fresh_ledger, telemetry, wait_csr, wait_ready,
};
use test_kit::quick::pass;
use test_kit::{TestHub, wait_until};

pub(in crate::hub) fn not_after(leaf: &CertificateDer<'_>) -> Timestamp {
    let (_, leaf) = X509Certificate::from_der(leaf).unwrap();
    Timestamp::from_unix(leaf.validity().not_after.timestamp())
}

/// Asks for the gateway's own certificate; returns the name of the CSR.
pub(super) async fn gateway_request(hub: &TestHub) -> String {
    let wish = CsrParams {
        common_name: "addon-signer-gateway".to_owned(),
        dns_names: vec!["gateway.example".to_owned()],
        ..CsrParams::default()
    };
    let mut csr = mk_csr_of("spoke1", "telemetry", &wish);
    csr.metadata.labels = None;
    csr.spec.signer_name = "addon-signer.io/gateway-serving".to_owned();
    csr.spec.usages = Some(["digital signature", "key encipherment", "server auth"].map(str::to_owned).to_vec());
    let api: Api<CertificateSigningRequest> = Api::all(hub.client_as(HUB_USER, &HUB_GROUPS).await);
    api.create(&PostParams::default(), &csr).await.unwrap().metadata.name.unwrap()
}

pub(super) async fn activate_after(lineage: &OnServer) -> Timestamp {
    let seconds = wait_until(TIMEOUT, "the time of the next authority", async || {
        lineage.members().await?.iter().find(|m| m["state"] == "Next")?["activateAfter"].as_i64()
    })
    .await;
    Timestamp::from_unix(seconds)
}

pub(in crate::hub) async fn report(lineage: &OnServer) -> Value {
    let map = lineage.maps.get(lineage.map).await.unwrap();
    serde_json::from_str(&map.data.unwrap()["status.json"]).unwrap()
}

#[tokio::test]
async fn serving_authority_waits_for_last_certificate_without_it() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::serving(&admin);
    let first = lineage.wait(&["Active"]).await;
    let leaf = issue(&hub, &admin).await;
    wait_csr(&admin, &gateway_request(&hub).await, "issued", certificate).await;
    lineage.rotate_by_map("r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    assert_eq!(ids[1], first[0]);
    lineage.wait_bundle(&ids).await;
    let end = activate_after(&lineage).await;
    assert!(end >= not_after(&leaf));
    wait_until(TIMEOUT, "the report", async || {
        let waiting = report(&lineage).await["rotation"]["waitingFor"].as_str()?.to_owned();
        let end = format!("the last certificate issued without the new anchor to expire at {end}, because");
        waiting.starts_with(&end).then_some(())
    })
    .await;
    assert_eq!(report(&lineage).await["handledRequest"], "r1");
    running.clock.advance(Duration::from_secs(86_400 - 600));
    lineage.reconcile().await;
    lineage.wait(&["Next", "Active"]).await;
    assert_eq!(running.trust.borrow().serving_active, Some(first[0].as_str().into()));
    running.clock.advance(Duration::from_secs(5 * 3_600));
    lineage.poke().await;
    // The gateway's old certificate has expired by then, so the old authority is removed at once.
    assert_eq!(lineage.wait(&["Active"]).await, ids[..1]);
    wait_until(TIMEOUT, "the gateway to be told", async || {
        (running.trust.borrow().serving_active == Some(ids[0].as_str().into())).then_some(())
    })
    .await;
    wait_until(TIMEOUT, "the report", async || report(&lineage).await["rotation"].is_null().then_some(())).await;
}

/// If the serving lineage can no longer sign, a hub that has read its anchors still publishes them; a hub that has
/// never read them cannot.
#[tokio::test]
async fn without_serving_anchors_nothing_is_signed_and_signer_says_so() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::serving(&admin);
    let mut backup = lineage.secrets.get(lineage.secret).await.unwrap();
    lineage.secrets.delete(lineage.secret, &Default::default()).await.unwrap();
    let text = async || {
        let problem = report(&lineage).await["problem"].as_str().map(str::to_owned);
        problem.filter(|problem| problem.contains("the Secret addon-signer-serving-authorities is gone"))
    };
    wait_until(TIMEOUT, "the report to say so", text).await;
    issue(&hub, &admin).await;
    drop(running);
    let _running = RunningHub::start(&hub).await;
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert_eq!(reason, "GatewayAuthorityBroken");
    wait_until(TIMEOUT, "the report to say so", text).await;
    assert!(message.contains("the Secret addon-signer-serving-authorities is gone"), "{message}");
    assert!(lineage.secrets.get_opt(lineage.secret).await.unwrap().is_none(), "not made anew");
    backup.metadata.resource_version = None;
    backup.metadata.uid = None;
    lineage.secrets.create(&PostParams::default(), &backup).await.unwrap();
    wait_ready(&admin, "telemetry", "True").await;
    assert_eq!(report(&lineage).await["problem"], Value::Null, "the round that can sign again takes the problem back");
    issue(&hub, &admin).await;
}

/// Nothing but time passes: no object changes, and no step is due.
#[tokio::test]
async fn report_drops_forced_once_everybody_trusts_the_authority() {
    let (_hub, admin, running) = mk_ready().await;
    let lineage = OnServer::serving(&admin);
    lineage.wait(&["Active"]).await;
    let until = running.clock.now().plus(Duration::from_secs(3_600));
    let mut data = lineage.data().await;
    let mut stored: Value = serde_json::from_slice(&data["line.json"].0).unwrap();
    stored["authorities"][0]["forced"] = json!(true);
    stored["authorities"][0]["activateAfter"] = json!(until.unix());
    data.insert("line.json".to_owned(), ByteString(serde_json::to_vec(&stored).unwrap()));
    lineage.set_data(data).await;
    wait_until(TIMEOUT, "the report to say so", async || {
        report(&lineage).await["problem"].as_str()?.contains("without evidence").then_some(())
    })
    .await;
    running.clock.advance(Duration::from_secs(3_601));
    wait_until(TIMEOUT, "the report to say it no more", async || {
        report(&lineage).await["problem"].is_null().then_some(())
    })
    .await;
}

/// A hub that starts may read the gateway's lineage before the client lineages, and one of these may be unreadable. It
/// must not conclude that there are no certificates.
#[tokio::test]
async fn a_restart_does_not_shorten_the_wait() {
    let (_dir, ledger) = fresh_ledger();
    let options = || RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() };
    let (hub, admin, running) = mk_ready_with(options()).await;
    let lineage = OnServer::serving(&admin);
    let clients = OnServer::client(&admin);
    let leaf = issue(&hub, &admin).await;
    drop(running);
    let good = clients.data().await;
    clients.set_data([("line.json".to_owned(), ByteString(b"{".to_vec()))].into()).await;
    lineage.rotate_by_map("r1").await;
    let _running = RunningHub::start_with(&hub, options()).await;
    lineage.wait(&["Next", "Active"]).await;
    pass(MOMENT).await;
    lineage.poke().await;
    pass(MOMENT).await;
    let next = lineage.members().await.unwrap().remove(0);
    assert_eq!(next["state"], "Next");
    assert!(next["activateAfter"].is_null(), "nobody knows yet whose certificate is the last: {next}");
    clients.set_data(good).await;
    wait_ready(&admin, "telemetry", "True").await;
    lineage.poke().await;
    assert!(activate_after(&lineage).await >= not_after(&leaf));
}

/// A signer whose AddOnSigner is invalid when the hub starts has no lineage there, and its agents have certificates.
#[tokio::test]
async fn agents_of_signer_invalid_at_start_are_waited_for() {
    let (_dir, ledger) = fresh_ledger();
    let options = || RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() };
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry()).await;
    let running = RunningHub::start_with(&hub, options()).await;
    let lineage = OnServer::serving(&admin);
    let leaf = issue(&hub, &admin).await;
    drop(running);
    let odd = json!({ "matchExpressions": [{ "key": "a", "operator": "Like" }] }); // the schema accepts it
    change(&admin, "telemetry", json!({ "gateway": { "routesFrom": { "selector": odd } } })).await;
    let running = RunningHub::start_with(&hub, options()).await;
    wait_ready(&admin, "telemetry", "False").await;
    lineage.rotate_by_map("r1").await;
    let awaited = "the AddOnSigner telemetry, which is not served, to be fixed or deleted";
    wait_until(TIMEOUT, "the report to name it", async || {
        report(&lineage).await["rotation"]["waitingFor"].as_str()?.contains(awaited).then_some(())
    })
    .await;
    lineage.wait(&["Next", "Active"]).await;
    drop(running);
    change(&admin, "telemetry", json!({ "gateway": { "routesFrom": null } })).await;
    let _running = RunningHub::start_with(&hub, options()).await;
    assert!(activate_after(&lineage).await >= not_after(&leaf));
}
