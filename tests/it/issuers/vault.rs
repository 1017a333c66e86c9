//! Vault signs an intermediate for an account of Kubernetes.

use std::time::Instant;

use serde_json::json;
use test_kit::needed::Needed;
use test_kit::real::{WITHOUT_FSYNC, has_or_skip};
use test_kit::vault::{AUDIENCE, PROGRAM, Vault, token};
use test_kit::{RealHub, client};

use super::{certificates, mk_request, path_length_of_ca};

const ACCOUNT: [&str; 2] = ["addon-signer", "addon-signer"];
const ROLE: &str = "addon-signer";
const SIGN: &str = "pki/root/sign-intermediate";
const NAME: &str = "example.com/telemetry";

#[tokio::test]
async fn vault_signs_an_intermediate_after_a_login_by_kubernetes() {
    if !has_or_skip(PROGRAM, Needed::Issuers) {
        return;
    }
    let hub = RealHub::start(&[WITHOUT_FSYNC]).await;
    let vault = Vault::start().await;
    let root = vault.make_root("corporate root").await;
    vault.let_sign(&hub, ROLE, ACCOUNT, "10m").await;
    let admin = client(hub.kubeconfig("admin", &["system:masters"])).await;

    let login = async |audience: &str| {
        let jwt = token(&admin, ACCOUNT, &[audience]).await;
        vault.write("auth/kubernetes/login", None, &json!({ "role": ROLE, "jwt": jwt })).await
    };
    let other = login("another").await;
    assert_eq!(other.status, 403, "{other:?}");
    let own = login(AUDIENCE).await;
    assert_eq!(own.body["auth"]["lease_duration"], 600, "{own:?}");
    let session = own.body["auth"]["client_token"].as_str();

    let wish = json!({ "csr": mk_request(NAME), "use_csr_values": true, "max_path_length": 0, "ttl": "2160h" });
    let signed = vault.write(SIGN, session, &wish).await.data();
    let chain: Vec<_> = signed["ca_chain"].as_array().unwrap().iter().map(|pem| pem.as_str().unwrap()).collect();
    let chain = certificates(&chain.join("\n"));
    assert_eq!(chain[1..], certificates(&root));
    assert_eq!(path_length_of_ca(&chain[0], NAME, &chain[1]), Some(0));
    assert_eq!(certificates(signed["certificate"].as_str().unwrap()), chain[..1]);

    let refused = vault.read("sys/mounts", session).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(vault.write("auth/token/revoke-self", session, &json!({})).await.status, 204);
    let revoked = vault.write(SIGN, session, &wish).await;
    assert_eq!(revoked.status, 403, "{revoked:?}");
}

#[tokio::test]
async fn vault_that_is_sealed_answers_503() {
    if !has_or_skip(PROGRAM, Needed::Issuers) {
        return;
    }
    let started = Instant::now();
    let vault = Vault::start().await;
    eprintln!("Vault ready after {:?}", started.elapsed());
    vault.make_root("corporate root").await;
    vault.seal().await;
    let answer = vault.write(SIGN, Some(vault.root_token()), &json!({ "csr": mk_request(NAME) })).await;
    assert_eq!((answer.status, &answer.body), (503, &json!({ "errors": ["Vault is sealed"] })));
    assert_eq!(vault.read("sys/seal-status", None).await.body["sealed"], true);
    vault.unseal().await;
    let wish = json!({ "csr": mk_request(NAME), "use_csr_values": true });
    vault.write(SIGN, Some(vault.root_token()), &wish).await.data();
}
