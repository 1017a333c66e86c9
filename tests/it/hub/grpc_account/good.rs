//! With the policy, an agent behind OCM's gRPC server gets its certificate, and everybody sees who asked for whom.

use addon_signer::process::HubOptions;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::encoding::pem;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_hub::HubConfig;
use addon_signer_ledger::Reader;
use addon_signer_platform::clock::Clock;
use hyper::Method;
use k8s_openapi::ByteString;
use ring::rand::SystemRandom;
use serde_json::Value;

use super::{ask, guard_annotation, mk_proxied, proxy, user, wait_believed};
use crate::whole::client::ClientPair;
use crate::whole::{Whole, options, prepare, serving_anchors};
use test_kit::accounts::{GRPC_PROXY, HUB_GROUPS, HUB_USER};
use test_kit::hub::{certificate, condition, wait_csr, wait_ready};
use test_kit::log::capture_audit;
use test_kit::{TestHub, accept_cluster, install_addon};

#[tokio::test]
async fn agent_behind_grpc_server_gets_only_its_own_identity() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, ([127, 0, 0, 1], 1).into(), "24h").await;
    guard_annotation(&hub, &admin).await;
    accept_cluster(&admin, "spoke1").await;
    install_addon(&admin, "spoke1", "telemetry").await;
    let proxy = proxy(&hub).await;
    let (decisions, _, _capturing) = capture_audit();
    let client = hub.client_as(HUB_USER, &HUB_GROUPS).await;
    let options = options();
    let hub_config = HubConfig { grpc_proxy: Some(GRPC_PROXY.to_owned()), ..options.hub };
    let options = HubOptions { hub: hub_config, ..options };
    let whole = Whole::start_with(client, options, Clock::default()).await;
    wait_ready(&admin, "telemetry", "True").await;
    wait_believed(&hub, &admin).await;

    let rng = SystemRandom::new();
    let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let common_name = "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:telemetry".to_owned();
    let request = CsrParams { common_name, ..CsrParams::default() }.sign(&key, &rng).unwrap();
    let mut csr = mk_proxied("spoke1", &user("spoke1"));
    csr.spec.request = ByteString(request.into_bytes());
    let name = ask(&proxy, &csr).await;
    let issued = wait_csr(&admin, &name, "issued", certificate).await;
    let key = pem::encode("PRIVATE KEY", &pkcs8);
    let anchors = serving_anchors(&admin).await;
    let pair = ClientPair { certificate: issued.into(), key: key.into(), anchors: anchors.into() };
    let (status, reported) = pair.call(whole.gateway, Method::GET, "/v1/whoami").await.unwrap();
    let reported: Value = serde_json::from_str(&reported).unwrap();
    assert_eq!(
        (status.as_u16(), &reported["cluster"], &reported["addon"]),
        (200, &"spoke1".into(), &"telemetry".into())
    );

    let hostile = ask(&proxy, &mk_proxied("spoke1", &user("attacker"))).await;
    wait_csr(&admin, &hostile, "denied", |csr| condition(csr, "Denied")).await;
    // For whom the hub's own trial would be.
    let odd = ask(&proxy, &mk_proxied("spoke1", "addon-signer-probe")).await;
    let (reason, _) = wait_csr(&admin, &odd, "denied", |csr| condition(csr, "Denied")).await;
    assert_eq!(reason, "RequesterNotAllowed");
    let decisions = decisions.json();
    let of = |name: &str| decisions.iter().find(|line| line["csr"] == name).unwrap();
    for (name, event, asked_for) in [(&name, "granted", "spoke1"), (&hostile, "refused", "attacker")] {
        let line = of(name);
        assert_eq!((&line["event"], &line["requester"]), (&event.into(), &GRPC_PROXY.into()));
        assert_eq!(line["csr_user"], user(asked_for));
    }
    assert_eq!(of(&hostile)["cause"], "SubjectOfAnotherCluster");
    let ledger = format!("sqlite://{}/ledger.db", whole.ledger.path().display());
    let details = Reader::open(ledger.parse().unwrap()).await.unwrap().show(&name).await.unwrap().unwrap();
    assert_eq!((details.requester, details.csr_user), (GRPC_PROXY.to_owned(), Some(user("spoke1"))));
    whole.stop().await.unwrap();
}
