//! A year and a half: with certificates that live for a year, an AddOnSigner that cannot be read, and agents that never
//! come back, there is always an authority that signs, and a serving certificate that everybody verifies whose own
//! certificate is valid.

use std::time::Duration;

use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_core::timestamp::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;

use super::kit::{OnServer, create_undecodable};
use super::serving::{gateway_request, not_after};
use crate::hub::{distribution, mk_csr, submit};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, create_signer, deploy, telemetry, wait_ready};
use test_kit::soak::soak;
use test_kit::{TestHub, accept_cluster, install_addon, wait_until};

const DAY: Duration = Duration::from_secs(86_400);
/// The gateway renews after 2/3 of the 24 hours that its certificate is valid.
const GATEWAY: Duration = Duration::from_secs(16 * 3_600);

/// How far the clock moves at most. `just soak` has the long form.
fn far() -> Duration {
    soak(5, 20) * DAY
}

/// How far it may move without going past what an authority does in its last days.
async fn until_due(lineage: &OnServer, now: Timestamp) -> Duration {
    now.until(lineage.active().await.not_after()).saturating_sub(8 * DAY).max(GATEWAY)
}

/// What an agent has stored.
struct StoredPair {
    ends: Timestamp,
    trusts: Bundle,
}

async fn issued(admin: &Client, name: &str) -> CertificateSigningRequest {
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let is_issued = |csr: Option<&CertificateSigningRequest>| csr.is_some_and(|csr| certificate(csr).is_some());
    tokio::time::timeout(TIMEOUT, await_condition(requests, name, is_issued)).await.unwrap().unwrap().unwrap()
}

fn leaf(csr: &CertificateSigningRequest) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(certificate(csr).unwrap().as_bytes()).unwrap()
}

async fn enrol(hub: &TestHub, admin: &Client) -> StoredPair {
    let name = submit(hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let csr = issued(admin, &name).await;
    let trusts = csr.metadata.annotations.as_ref().unwrap()["addon-signer.io/trust-bundle"].clone();
    StoredPair { ends: not_after(&leaf(&csr)), trusts: Bundle::from_pem(trusts.as_bytes()).unwrap() }
}

#[tokio::test]
async fn every_agent_trusts_gateway_for_a_year_and_a_half() {
    let hub = TestHub::start().await;
    if hub.is_real() {
        eprintln!("skipped: a real API server refuses an AddOnSigner that cannot be read");
        return;
    }
    deploy(&hub).await;
    let admin = hub.admin().await;
    accept_cluster(&admin, "spoke1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    let running = RunningHub::start(&hub).await;
    let lineages = [OnServer::client(&admin), OnServer::serving(&admin)];
    // The first authority of the gateway is made before there is any signer, and lives for a year as certificates do.
    lineages[1].wait(&["Active"]).await;
    create_undecodable(&admin, "broken").await;
    let mut spec = telemetry();
    spec["certificate"] = json!({"duration": "8760h", "maxDuration": "8760h"});
    spec["authority"] = json!({"duration": "8761h"});
    create_signer(&admin, "telemetry", spec).await;
    wait_ready(&admin, "telemetry", "True").await;

    let begin = running.clock.now();
    let mut agents = vec![enrol(&hub, &admin).await];
    let mut shown = leaf(&issued(&admin, &gateway_request(&hub).await).await);
    while begin.until(running.clock.now()) < 550 * DAY {
        let now = running.clock.now();
        let mut step = far();
        for lineage in &lineages {
            step = step.min(until_due(lineage, now).await);
        }
        running.clock.advance(step);
        let now = running.clock.now();
        agents.retain(|agent| agent.ends > now);
        if step == GATEWAY {
            let trusted = |agent: &StoredPair| agent.trusts.verify(&shown, Purpose::Server, now).is_ok();
            assert!(agents.iter().all(trusted), "{now}: the gateway's certificate before it is renewed");
        }
        for lineage in &lineages {
            lineage.reconcile().await;
        }
        // As the gateway does when another authority has become active.
        let active = lineages[1].active().await.id().clone();
        let mut trust = running.trust.clone();
        trust.wait_for(|trust| trust.serving_active.as_ref() == Some(&active)).await.unwrap();
        shown = leaf(&issued(&admin, &gateway_request(&hub).await).await);
        let trusted = |agent: &StoredPair| agent.trusts.verify(&shown, Purpose::Server, now).is_ok();
        assert!(agents.iter().all(trusted), "{now}: the gateway's certificate");
        agents.push(enrol(&hub, &admin).await);
    }
    let metrics = running.metrics.render().unwrap();
    assert!(metrics.contains("addon_signer_authorities_forced_total{signer=\"gateway-serving\"} 1"), "{metrics}");
    assert!(metrics.contains("addon_signer_authorities_forced_total{signer=\"telemetry\"} 0"), "{metrics}");
}

/// Its ManifestWork waits for it, however often authorities were replaced meanwhile.
#[tokio::test]
async fn cluster_off_for_a_year_finds_current_anchors_on_return() {
    let hub = TestHub::start().await;
    if hub.is_real() {
        eprintln!("skipped: a real API server's clock cannot be moved");
        return;
    }
    let admin = distribution::mk_world(&hub, telemetry()).await;
    let running = RunningHub::start(&hub).await;
    let lineage = OnServer::serving(&admin);
    let first = lineage.wait(&["Active"]).await;
    for cluster in ["spoke1", "spoke2"] {
        distribution::say_applied(&admin, cluster).await;
    }
    let all = |reported: Option<&Condition>| reported.is_some_and(|reported| reported.status == "True");
    distribution::wait_condition(&admin, "both clusters to be there", all).await;

    let begin = running.clock.now();
    let mut waited = false;
    while begin.until(running.clock.now()) < 380 * DAY {
        running.clock.advance(until_due(&lineage, running.clock.now()).await.min(far()));
        lineage.reconcile().await;
        if !waited && distribution::rotation(&admin).await.contains("\"Next\"") {
            wait_until(TIMEOUT, "the rotation to wait for the cluster that is off", async || {
                distribution::say_applied(&admin, "spoke1").await;
                let waits = "1 of 2 addons have it, and not yet: spoke2/telemetry";
                distribution::rotation(&admin).await.contains(waits).then_some(())
            })
            .await;
            waited = true;
        }
    }
    assert!(waited, "no rotation has waited for it");
    assert!(!lineage.wait(&["Active"]).await.contains(&first[0]));
    let present = distribution::published(&admin).await;
    let has_them = |manifest: &serde_json::Value| manifest["data"]["ca.crt"] == present.as_str();
    for cluster in ["spoke1", "spoke2"] {
        distribution::wait_manifest(&admin, cluster, "the present anchors", has_them).await;
        distribution::say_applied(&admin, cluster).await;
    }
    distribution::wait_condition(&admin, "the cluster to be back", all).await;
    let name = submit(&hub, "spoke2", &mk_csr("spoke2", "telemetry")).await;
    let csr = issued(&admin, &name).await;
    assert_eq!(csr.metadata.annotations.unwrap()["addon-signer.io/trust-bundle"], present);
    running.stop().await;
}
