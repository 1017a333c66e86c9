//! An authority becomes Next, Active, Old, and is removed: each step is taken once, and on its evidence.

use std::time::Duration;

use addon_signer_api::status::{AuthorityState, RotationPhase};
use addon_signer_core::names::{ANNOTATION_TRUSTS, LABEL_GATEWAY};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::kit::{OnServer, issue, rotate, signed_by};
use crate::hub::{MOMENT, mk_csr, mk_ready, mk_ready_with, submit, wait_event, wait_note};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT};
use test_kit::lease::leases;
use test_kit::quick::pass;
use test_kit::{TestHub, wait_until};

/// After the end of every certificate that is valid for a day, and after the end that is reserved for further ones.
pub(super) const PAST_ALL_LEAVES: Duration = Duration::from_secs(28 * 3_600);

/// A hub whose gateway applies new trust only when the test tells it to.
pub(super) async fn mk_held() -> (TestHub, Client, RunningHub) {
    mk_ready_with(RunningHubOptions { follow: false, ..RunningHubOptions::default() }).await
}

fn trusted(running: &RunningHub) -> Vec<String> {
    let trust = running.trust.borrow().clone();
    trust.signers[0].client_anchors.authorities().iter().map(|a| a.id().to_string()).collect()
}

#[tokio::test]
async fn an_anchor_is_published_and_trusted_before_its_key_signs() {
    let (hub, admin, running) = mk_held().await;
    let lineage = OnServer::client(&admin);
    running.follow_once();
    let [first] = &lineage.wait(&["Active"]).await[..] else { panic!() };
    issue(&hub, &admin).await;
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    assert_eq!(ids[1], *first);
    lineage.wait_bundle(&ids).await;
    wait_until(TIMEOUT, "both to be handed to the gateway", async || (trusted(&running).len() == 2).then_some(()))
        .await;
    pass(MOMENT).await;
    lineage.poke().await;
    let leaf = issue(&hub, &admin).await;
    let bundle = lineage.bundle().await.unwrap();
    assert_eq!(signed_by(&bundle, &leaf, running.clock.now()), *first, "the gateway does not trust the next one yet");
    lineage.wait(&["Next", "Active"]).await;
    let rotation = lineage.status().await.rotation.unwrap();
    assert_eq!(rotation.phase, RotationPhase::Activate);
    assert_eq!(
        rotation.waiting_for.as_deref(),
        Some("1 of 1 gateways to trust the new authority: the one in the hub's process")
    );
    let (_, note) = wait_event(&admin, "AuthorityPrepared").await;
    assert_eq!(note, format!("The authority {} was created, and signs once it is trusted.", ids[0]));
    running.follow_once();
    lineage.wait(&["Active", "Old"]).await;
    // The step has its effect after it is recorded and published; the status comes after that.
    wait_until(TIMEOUT, "the status to say that the next one is active", async || {
        let authorities = lineage.status().await.authorities;
        authorities.iter().any(|it| it.id == ids[0] && it.state == AuthorityState::Active).then_some(())
    })
    .await;
    let leaf = issue(&hub, &admin).await;
    assert_eq!(signed_by(&bundle, &leaf, running.clock.now()), ids[0]);
    let signs = format!("The authority {} is now signing.", ids[0]);
    wait_note(&admin, "AuthorityActivated", |note| note.starts_with(&signs)).await;
}

/// The Lease of a gateway in another process, which trusts these authorities.
fn mk_apart(name: &str, trusts: &str) -> Lease {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": { LABEL_GATEWAY: "true" }, "annotations": { ANNOTATION_TRUSTS: trusts },
        },
        "spec": { "holderIdentity": "a", "leaseDurationSeconds": 600 },
    }))
    .unwrap()
}

async fn now_trusts(admin: &Client, name: &str, trusts: &str) {
    let change = Patch::Merge(json!({ "metadata": { "annotations": { ANNOTATION_TRUSTS: trusts } } }));
    leases(admin).patch(name, &PatchParams::default(), &change).await.unwrap();
}

/// An administrator who moves gateways out of the hub has both for a while.
#[tokio::test]
async fn next_waits_for_the_gateway_here_and_for_those_apart() {
    let (hub, admin, running) = mk_held().await;
    let lineage = OnServer::client(&admin);
    running.follow_once();
    let [first] = &lineage.wait(&["Active"]).await[..] else { panic!() };
    issue(&hub, &admin).await;
    leases(&admin).create(&Default::default(), &mk_apart("gateway-1", first)).await.unwrap();
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Next", "Active"]).await;
    let waits_for = async |what: &str| {
        wait_until(TIMEOUT, what, async || {
            let rotation = lineage.status().await.rotation?;
            (rotation.waiting_for? == what).then_some(())
        })
        .await;
    };
    waits_for("2 of 2 gateways to trust the new authority: gateway-1, the one in the hub's process").await;
    now_trusts(&admin, "gateway-1", &ids.join(" ")).await;
    waits_for("1 of 2 gateways to trust the new authority: the one in the hub's process").await;
    now_trusts(&admin, "gateway-1", first).await; // it has started again and read an older status
    waits_for("2 of 2 gateways to trust the new authority: gateway-1, the one in the hub's process").await;
    running.follow_once();
    waits_for("1 of 2 gateways to trust the new authority: gateway-1").await;
    now_trusts(&admin, "gateway-1", &ids.join(" ")).await;
    lineage.wait(&["Active", "Old"]).await;
}

/// A manifest that was saved from an AddOnSigner may ask for a rotation before there was any certificate.
#[tokio::test]
async fn early_rotation_does_not_hurry_the_first_certificate() {
    let (hub, admin, running) = mk_held().await;
    let lineage = OnServer::client(&admin);
    lineage.wait(&["Active"]).await;
    rotate(&admin, "r1").await;
    lineage.wait(&["Next", "Active"]).await;
    let csr = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    wait_until(TIMEOUT, "the first certificate to wait", async || {
        let conditions = lineage.status().await.conditions;
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        ready.message.contains("The first certificate waits for: 1 of 1 gateways").then_some(())
    })
    .await;
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let issued = async || requests.get(&csr).await.unwrap().status?.certificate;
    assert!(issued().await.is_none());
    running.follow_once();
    wait_until(TIMEOUT, "the certificate", &issued).await;
}

/// The first authority of an AddOnSigner is no Next: it signs once every gateway trusts it, one in another process too.
#[tokio::test]
async fn first_certificate_waits_for_gateways_to_trust_its_authority() {
    let (hub, admin, running) = mk_held().await;
    let lineage = OnServer::client(&admin);
    let [first] = &lineage.wait(&["Active"]).await[..] else { panic!() };
    leases(&admin).create(&Default::default(), &mk_apart("gateway-1", "")).await.unwrap();
    let ready = async |sentence: &str| {
        wait_until(TIMEOUT, sentence, async || {
            let conditions = lineage.status().await.conditions;
            let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
            ready.message.contains(sentence).then_some(())
        })
        .await;
    };
    ready("The first certificate waits for: 2 of 2 gateways to trust the new authority").await;
    let csr = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let issued = async || requests.get(&csr).await.unwrap().status?.certificate;
    running.follow_once();
    ready("The first certificate waits for: 1 of 2 gateways to trust the new authority: gateway-1").await;
    assert!(issued().await.is_none());
    now_trusts(&admin, "gateway-1", first).await;
    wait_until(TIMEOUT, "the certificate", &issued).await;
    // One that comes later reads whom to trust before it serves.
    leases(&admin).create(&Default::default(), &mk_apart("gateway-2", "")).await.unwrap();
    issue(&hub, &admin).await;
}

#[tokio::test]
async fn old_authority_goes_with_key_and_anchor_after_its_last_leaf() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    let leaf = issue(&hub, &admin).await;
    rotate(&admin, "r1").await;
    let ids = lineage.wait(&["Active", "Old"]).await;
    running.clock.advance(Duration::from_secs(86_400 - 600));
    lineage.poke().await;
    pass(MOMENT).await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids, "a leaf of it lives for ten more minutes");
    assert_eq!(signed_by(&lineage.bundle().await.unwrap(), &leaf, running.clock.now()), ids[1]);
    let rotation = lineage.status().await.rotation.unwrap();
    assert_eq!(rotation.phase, RotationPhase::Finish);
    assert!(rotation.waiting_for.unwrap().contains(&ids[1]), "it says whose certificate it waits for");
    running.clock.advance(PAST_ALL_LEAVES);
    lineage.poke().await;
    assert_eq!(lineage.wait(&["Active"]).await, ids[..1]);
    lineage.wait_bundle(&ids[..1]).await;
    let keys: Vec<String> = lineage.data().await.into_keys().collect();
    let mut expected = vec![format!("{}.crt", ids[0]), format!("{}.key", ids[0]), "line.json".to_owned()];
    expected.sort();
    assert_eq!(keys, expected, "the old key is gone");
    wait_until(TIMEOUT, "the gateway to be told", async || (trusted(&running) == ids[..1]).then_some(())).await;
    wait_until(TIMEOUT, "the status to say so", async || {
        let status = lineage.status().await;
        (status.rotation.is_none() && status.authorities.len() == 1).then_some(())
    })
    .await;
    let (_, note) = wait_event(&admin, "AuthorityRemoved").await;
    assert_eq!(note, format!("The authority {} was removed with its key.", ids[1]));
}
