//! The API server refuses the ConfigMap with a lineage's anchors, and goes on to do so.

use addon_signer_core::ca::bundle::Purpose;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use test_kit::hub::TIMEOUT;
use test_kit::wait_until;

use super::kit::{OnServer, issue, revoke, signed_by};
use crate::hub::mk_ready;

/// Whoever causes that must not keep a revoked authority signing: a webhook, a quota, an immutable ConfigMap.
#[tokio::test]
async fn a_revocation_does_not_wait_for_its_publication() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    let first = lineage.wait(&["Active"]).await;
    let by_first = issue(&hub, &admin).await;
    let frozen = Patch::Merge(json!({ "immutable": true }));
    lineage.maps.patch(lineage.map, &PatchParams::default(), &frozen).await.unwrap();
    revoke(&admin, &first[0]).await;
    let trusted = || running.trust.borrow().signers[0].client_anchors.clone();
    wait_until(TIMEOUT, "the gateway to trust another authority alone", async || {
        let ids: Vec<_> = trusted().authorities().iter().map(|authority| authority.id().to_string()).collect();
        (ids.len() == 1 && ids != first).then_some(())
    })
    .await;
    assert!(trusted().verify(&by_first, Purpose::Client, running.clock.now()).is_err(), "its certificate has ended");
    assert_ne!(signed_by(&trusted(), &issue(&hub, &admin).await, running.clock.now()), first[0]);
    let metrics = async |line: &str| {
        let metrics = running.metrics.render().unwrap();
        metrics.lines().any(|it| it == line).then_some(())
    };
    let unpublished = |number| format!("addon_signer_anchors_unpublished{{signer=\"telemetry\"}} {number}");
    wait_until(TIMEOUT, "the metric", async || metrics(&unpublished(1)).await).await;
    metrics("addon_signer_signer_ready{signer=\"telemetry\"} 1").await.unwrap();
    lineage.maps.delete(lineage.map, &DeleteParams::default()).await.unwrap();
    let second = lineage.wait(&["Active"]).await;
    lineage.wait_bundle(&second).await;
    wait_until(TIMEOUT, "the metric", async || metrics(&unpublished(0)).await).await;
}
