//! What a change of `spec.identity` does to certificates that agents hold (decision 12).

use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::gateway::authz::{NotAnIdentity, Peer, identify};
use kube::Client;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::{mk_csr, mk_csr_of, mk_ready, submit};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, change_signer, wait_csr};
use test_kit::wait_until;

/// Changes the identity of the signer telemetry, and waits until the gateway is told.
async fn change(admin: &Client, running: &RunningHub, identity: Value) {
    let convention = || running.trust.borrow().signers[0].convention.clone();
    let before = convention();
    change_signer(admin, json!({ "spec": { "identity": identity } })).await;
    wait_until(TIMEOUT, "the gateway to be told", async || (convention() != before).then_some(())).await;
}

fn who(running: &RunningHub, leaf: &CertificateDer<'_>) -> Result<Peer, NotAnIdentity> {
    identify(&running.trust.borrow(), leaf, running.clock.now())
}

#[tokio::test]
async fn identity_change_applies_at_once_to_earlier_certificates() {
    let (hub, admin, running) = mk_ready().await;
    let issue = async |csr| {
        let name = submit(&hub, "spoke1", &csr).await;
        let pem = wait_csr(&admin, &name, "issued", certificate).await;
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    };
    let before = issue(mk_csr("spoke1", "telemetry")).await;
    assert!(who(&running, &before).is_ok());
    change(&admin, &running, json!({ "dnsNames": ["{addon}.example.com"] })).await;
    assert!(who(&running, &before).is_ok(), "the gateway reads no DNS names");
    let group = "system:open-cluster-management:cluster:spoke1:addon:telemetry";
    change(&admin, &running, json!({ "groups": ["system:open-cluster-management:addon:{addon}"] })).await;
    assert_eq!(who(&running, &before), Err(NotAnIdentity::Organization(group.to_owned())));
    change(&admin, &running, json!({ "user": "example.com/telemetry:{cluster}:{addon}:{agent}", "groups": null }))
        .await;
    assert!(matches!(who(&running, &before), Err(NotAnIdentity::CommonName(_))));
    let wish = CsrParams {
        common_name: "example.com/telemetry:spoke1:telemetry:telemetry".to_owned(),
        organizations: Vec::new(),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
    };
    let after = issue(mk_csr_of("spoke1", "telemetry", &wish)).await;
    let identity = who(&running, &after).unwrap().identity;
    assert_eq!((identity.cluster.as_str(), identity.addon.as_str()), ("spoke1", "telemetry"));
    change(&admin, &running, json!({ "user": null })).await;
    assert!(who(&running, &before).is_ok(), "the change was taken back");
    assert!(who(&running, &after).is_err(), "the change was taken back");
}
