//! An AddOnSigner of which Vault was to issue the authorities: an earlier version asked it.

use serde_json::json;

use super::{change, wait_issued};
use crate::cli::{run, write};
use crate::hub::lineages::{OnServer, issue, rotate};
use crate::hub::mk_ready;

const SAID: &str = "The hub asks Vault only through cert-manager: set spec.authority.issuer to the type CertManager";

#[tokio::test]
async fn a_signer_of_vault_goes_on_with_its_authorities() {
    let (hub, admin, _running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    let before = lineage.wait(&["Active"]).await;
    change(&admin, json!({ "authority": { "issuer": { "type": "Vault", "vault": { "path": "pki" } } } })).await;
    let message = wait_issued(&lineage, "False", SAID).await;
    assert!(message.ends_with("The lineage continues with its present authorities."), "{message}");
    rotate(&admin, "r1").await;
    issue(&hub, &admin).await;
    assert_eq!(lineage.wait(&["Active"]).await, before, "there is no other authority");
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let check = run(home.path(), &["check", "--kubeconfig", &kubeconfig]).await;
    assert!(check.stdout.contains(SAID), "{}", check.stdout);
    change(&admin, json!({ "authority": { "issuer": { "type": "SelfSigned", "vault": null } } })).await;
    lineage.wait(&["Active", "Old"]).await;
}

#[tokio::test]
async fn the_flags_of_vault_are_refused_with_where_to_go() {
    let home = tempfile::tempdir().unwrap();
    for flag in ["--vault-address=https://vault", "--vault-role=x", "--serving-issuer=Vault:pki"] {
        let output = run(home.path(), &["hub", "--gateway-name=localhost", flag]).await;
        let message = "the hub asks Vault only through cert-manager; see docs/runbooks/company-root.md";
        assert!(output.code == 2 && output.stderr.contains(message), "{flag}: {}", output.stderr);
    }
}
