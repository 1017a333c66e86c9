//! A hub is killed in the middle of a CSR, and its addon is revoked before the next hub continues with the CSR.

use addon_signer_platform::clock::Clock;
use kube::api::{Patch, PatchParams};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::books::{assert_whole, rows};
use super::boundaries::{BOUNDARIES, CutBoundary, Ledger, bring_to, mk_ledger, row_of};
use super::kit::CrashWorld;
use test_kit::hub::{TIMEOUT, certificate, condition, wait_csr, wait_ready};
use test_kit::objects::managed_cluster_addons;
use test_kit::wait_until;

/// Revokes everything up to now while no hub runs; returns that time.
async fn revoke(world: &CrashWorld) -> i64 {
    let now = Clock::default().now();
    let addons = managed_cluster_addons(&world.admin, "spoke1").await;
    let patch = json!({ "metadata": { "annotations": { "addon-signer.io/revoke-before": now.to_string() } } });
    addons.patch("telemetry", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    now.unix()
}

/// Brings a CSR to the boundary, kills the hub there, and revokes; returns the CSR's UID and the time.
async fn kill_and_revoke(boundary: &CutBoundary, world: &CrashWorld, ledger: &Ledger) -> (String, i64) {
    let child = world.start_hub(&ledger.through);
    wait_ready(&world.admin, "telemetry", "True").await;
    let warm = format!("{}-warm", boundary.name);
    world.submit("spoke1", &warm).await;
    wait_csr(&world.admin, &warm, "issued", certificate).await;
    let uid = bring_to(boundary, world, ledger).await;
    child.kill();
    world.delete_lease().await;
    let revoked = revoke(world).await;
    ledger.proxy.open();
    (uid, revoked)
}

fn boundary(name: &str) -> &'static CutBoundary {
    BOUNDARIES.iter().find(|boundary| boundary.name == name).unwrap()
}

#[tokio::test]
async fn what_was_decided_before_a_revocation_is_not_signed_after_it() {
    let Some(ledger) = mk_ledger().await else { return };
    let world = CrashWorld::start(&["spoke1"]).await;
    let decided = boundary("intent-durable");
    let (uid, revoked) = kill_and_revoke(decided, &world, &ledger).await;
    let before = row_of(&ledger.direct, &uid).await.unwrap();
    assert_eq!(before.state, "intent");

    let child = world.start_hub(&ledger.through);
    let issued = wait_csr(&world.admin, decided.name, "issued", certificate).await;
    child.kill();
    world.delete_lease().await;
    let leaf = CertificateDer::from_pem_slice(issued.as_bytes()).unwrap();
    let begins = X509Certificate::from_der(&leaf).unwrap().1.validity().not_before.timestamp();
    assert!(begins >= revoked, "{begins} is before {revoked}");
    let all = rows(&ledger.direct).await;
    let of_request: Vec<_> = all.iter().filter(|row| row.uid == uid).collect();
    assert_eq!(of_request.len(), 2, "{of_request:?}");
    assert_eq!((&of_request[0].serial, of_request[0].state.as_str()), (&before.serial, "abandoned"));
    assert_eq!(of_request[1].certificate.as_deref(), Some(leaf.as_ref()));
    assert_whole(&ledger.direct, world.dir()).await;
}

/// One CSR never gets two certificates (invariant I13), so the hub refuses it, and its agent may make a new one.
#[tokio::test]
async fn certificate_signed_before_revocation_is_not_published() {
    let Some(ledger) = mk_ledger().await else { return };
    let world = CrashWorld::start(&["spoke1"]).await;
    let signed = boundary("signed-durable");
    let (uid, _) = kill_and_revoke(signed, &world, &ledger).await;
    assert_eq!(row_of(&ledger.direct, &uid).await.unwrap().state, "signed");

    let child = world.start_hub(&ledger.through);
    let refused = wait_csr(&world.admin, signed.name, "refused", |csr| condition(csr, "Denied")).await;
    assert_eq!(refused.0, "CertificateOutdated");
    assert!(certificate(&world.requests().get(signed.name).await.unwrap()).is_none());
    wait_until(TIMEOUT, "the row to come to its end", async || {
        row_of(&ledger.direct, &uid).await.filter(|row| row.state == "unpublished")
    })
    .await;
    child.kill();
    assert_whole(&ledger.direct, world.dir()).await;
}
