//! The whole loop with OCM's own, unmodified registration agent on a real API server.

use std::time::Duration;

use addon_signer_core::encoding::pem;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;
use hyper::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::gateway::backend;
use crate::hub::issuers::{change, put_authority_in};
use crate::whole::client::ClientPair;
use crate::whole::{Whole, active, prepare, serving_anchors};
use test_kit::company::{CompanyCa, ca_params};
use test_kit::hub::TIMEOUT;
use test_kit::objects::managed_cluster_addons;
use test_kit::ocm::{ADDON_NAMESPACE, OcmAgent};
use test_kit::{TestHub, install_addon, wait_until};

pub(super) const SECRET: &str = "telemetry-example.com-telemetry-client-cert";
const RECEIVE: &str = "/addons/telemetry/api/v1/receive";
/// How long a renewal may take. OCM's agent renews when a quarter or a fifth of the certificate's life is left. It
/// looks at its Secret when that changes, or every five minutes; this test changes it.
const RENEWAL: Duration = Duration::from_secs(480);

pub(super) async fn pair(admin: &Client, anchors: &str) -> Option<ClientPair> {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let mut data = secrets.get_opt(SECRET).await.unwrap()?.data?;
    let mut take = |name: &str| data.remove(name).map(|bytes| bytes.0).filter(|bytes| !bytes.is_empty());
    Some(ClientPair { certificate: take("tls.crt")?, key: take("tls.key")?, anchors: anchors.as_bytes().to_vec() })
}

/// The name of its issuer.
fn issuer(pair: &ClientPair) -> String {
    let leaf = pair.leaf();
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    leaf.issuer().to_string()
}

/// Changes the Secret in a way that does not matter, so that the agent looks at it.
async fn touch(admin: &Client, round: u32) {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    let body = json!({ "metadata": { "annotations": { "test.example.com/round": round.to_string() } } });
    secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
}

pub(super) async fn revoke(admin: &Client, before: Timestamp) {
    let addons = managed_cluster_addons(admin, "spoke1").await;
    let body = json!({ "metadata": { "annotations": { "addon-signer.io/revoke-before": before.to_string() } } });
    addons.patch("telemetry", &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
}

/// The authorities are below a CA of the company, so the agent keeps each certificate with its chain.
#[tokio::test]
async fn ocms_own_agent_enrols_is_let_in_and_renews_across_a_rotation() {
    let hub = TestHub::start().await;
    let Some(real) = hub.real_or_skip() else { return };
    let admin = prepare(&hub, backend::start().await, "10m").await;
    let root = CompanyCa::root();
    let middle = root.signs(ca_params("Issuing CA", Duration::from_secs(1_000 * 86_400)));
    let [one, two] = ["Telemetry CA 1", "Telemetry CA 2"].map(|name| middle.authority(name));
    put_authority_in(&admin, "company", &one, &[&middle], &root).await;
    change(&admin, json!({ "authority": { "issuer": { "type": "Imported", "secretName": "company" } } })).await;
    // Hub and API server are 4.5 minutes late, so a certificate of 10 minutes is 4.5 minutes old when it is made.
    let clock = Clock::default();
    clock.set_back(Duration::from_secs(270));
    let whole = Whole::start(&hub, clock.clone()).await;
    let agent = OcmAgent::start(real, "spoke1", "a1").await;
    install_addon(&admin, "spoke1", "telemetry").await;

    let anchors = serving_anchors(&admin).await;
    let first =
        agent.wait_until(Duration::from_secs(60), "the agent's Secret", async || pair(&admin, &anchors).await).await;
    let (status, body) = first.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap();
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"cluster\":\"spoke1\""), "{body}");
    assert_eq!(first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    assert_eq!(issuer(&first), "CN=Telemetry CA 1");
    let certificates = pem::certificates(&first.certificate).unwrap();
    assert_eq!(certificates[1..], [one.der.clone(), middle.der.clone()], "all but the root");

    put_authority_in(&admin, "company", &two, &[&middle], &root).await;
    wait_until(TIMEOUT, "the new authority to sign", async || active(&admin).await.filter(|id| *id == two.id())).await;
    assert_eq!(first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200, "the old one still counts");
    let mut round = 0;
    let renewed = agent
        .wait_until(RENEWAL, "the agent to renew", async || {
            round += 1;
            if round % 40 == 0 {
                touch(&admin, round).await;
            }
            pair(&admin, &anchors).await.filter(|pair| issuer(pair) == "CN=Telemetry CA 2")
        })
        .await;
    assert_eq!(renewed.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);

    revoke(&admin, clock.now().plus(Duration::from_secs(1))).await;
    let refuses = async || (renewed.call(whole.gateway, Method::POST, RECEIVE).await.ok()?.0 == 403).then_some(());
    agent.wait_until(Duration::from_secs(5), "the gateway to refuse it", refuses).await;
    // OCM's agent does not notice the revocation until its Secret is deleted.
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), ADDON_NAMESPACE);
    secrets.delete(SECRET, &Default::default()).await.unwrap();
    let fresh = agent.wait_until(RENEWAL, "another certificate", async || pair(&admin, &anchors).await).await;
    assert_eq!(fresh.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    whole.stop().await.unwrap();
}
