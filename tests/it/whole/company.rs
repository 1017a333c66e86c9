//! Authorities below a company's root: who is an identity, and what a rotation below the root costs.

use std::collections::BTreeMap;
use std::time::Duration;

use addon_signer_api::authority::AuthoritySource;
use addon_signer_core::ca::authority::BACKDATE;
use addon_signer_core::encoding::pem;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::HubConfig;
use addon_signer_hub::authorities::supply::{ServingSource, Trusted};
use addon_signer_platform::clock::Clock;
use hyper::{Method, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::json;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::client::ClientPair;
use super::ours::{Traffic, enrolled};
use super::{Whole, options};
use crate::gateway::backend;
use crate::hub::issuers::put_authority_in;
use test_kit::company::{CompanyCa, ca_params, chain};
use test_kit::deploy::{apply, part};
use test_kit::hub::{TIMEOUT, create_route, create_signer, deploy};
use test_kit::issue::{Ca, Leaf};
use test_kit::objects::{manifest_works, serve_manifest_works};
use test_kit::{TestHub, wait_until};

const HOUR: Duration = Duration::from_secs(3_600);

/// A hub whose authorities are below this root: the client authority, and the serving one, which agents trust by its
/// root. The hub writes ManifestWorks.
async fn mk_whole(hub: &TestHub, root: &CompanyCa, client: &CompanyCa) -> (Client, Whole) {
    deploy(hub).await;
    let admin = hub.admin().await;
    if hub.is_real() {
        apply(&admin, &part("manifest-works")).await;
    } else {
        serve_manifest_works(&admin).await;
    }
    put_authority_in(&admin, "company", client, &[], root).await;
    let middle = root.signs(ca_params("Gateway Issuing CA", HOUR * 24 * 800));
    let serving = middle.signs(ca_params("Gateway CA 1", HOUR * 24 * 700));
    put_authority_in(&admin, "serving", &serving, &[&middle], root).await;
    let issuer = json!({ "type": "Imported", "secretName": "company" });
    let spec = json!({
        "signerName": "example.com/telemetry",
        "addOns": ["telemetry"],
        "authority": { "issuer": issuer },
        "gateway": { "routesFrom": { "namespaces": ["default"] } },
    });
    create_signer(&admin, "telemetry", spec).await;
    create_route(&admin, backend::start().await, "/api/v1/receive", &["POST"]).await;
    let serving_source = ServingSource {
        source: AuthoritySource::Secret("serving".to_owned()),
        trusted: Trusted::Root(Some(root.roots())),
    };
    let clock = Clock::default();
    let connection = hub.client_at(test_kit::accounts::HUB_USER, &test_kit::accounts::HUB_GROUPS, &clock).await;
    let options = options();
    let config = HubConfig { serving_source, ..options.hub };
    let options = addon_signer::process::HubOptions { hub: config, ..options };
    (admin, Whole::start_with(connection, options, clock).await)
}

/// The version of everything that brings trust to clusters.
async fn trust_versions(admin: &Client) -> BTreeMap<String, String> {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let anchors = maps.get("addon-signer-trust").await.unwrap().data.unwrap().remove("ca.crt").unwrap();
    let mut versions = BTreeMap::from([("anchors".to_owned(), anchors)]);
    for cluster in ["spoke1", "spoke2"] {
        let work = wait_until(TIMEOUT, "the ManifestWork", async || {
            manifest_works(admin, cluster).get_opt("addon-signer-telemetry-trust").await.unwrap()
        });
        versions.insert(cluster.to_owned(), work.await.metadata.resource_version.unwrap());
    }
    versions
}

async fn shown_issuer(pair: &ClientPair, whole: &Whole) -> Option<String> {
    let leaf = pair.shown(whole.gateway).await?;
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    Some(leaf.issuer().to_string())
}

#[tokio::test]
async fn another_intermediate_of_the_root_needs_no_new_trust() {
    let (hub, root) = (TestHub::start().await, CompanyCa::root());
    let client = root.authority("Telemetry CA");
    let (admin, whole) = mk_whole(&hub, &root, &client).await;
    let dir = tempfile::tempdir().unwrap();
    let first = enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    enrolled(&hub, &admin, dir.path(), "spoke2", whole.gateway).await;
    assert_eq!(String::from_utf8(first.anchors.clone()).unwrap(), chain(&[&root.der]), "the root alone");
    let stored = std::fs::read(dir.path().join("spoke1/tls.crt")).unwrap();
    assert_eq!(pem::certificates(&stored).unwrap()[1..], [client.der], "with its chain");
    assert_eq!(shown_issuer(&first, &whole).await.as_deref(), Some("CN=Gateway CA 1"));
    let before = trust_versions(&admin).await;
    let traffic = Traffic::start(whole.gateway, first.clone());
    put_authority_in(&admin, "serving", &root.authority("Gateway CA 2"), &[], &root).await;
    wait_until(TIMEOUT, "the gateway to serve under the second authority", async || {
        (shown_issuer(&first, &whole).await? == "CN=Gateway CA 2").then_some(())
    })
    .await;
    let (sent, failed) = traffic.stop().await;
    assert!(sent > 0 && failed == 0, "{failed} of {sent} failed");
    assert_eq!(trust_versions(&admin).await, before, "nothing was written for any cluster");
}

fn pair(leaf: &Leaf, above: &[&CompanyCa], anchors: &[u8]) -> ClientPair {
    let above: Vec<_> = above.iter().map(|ca| &ca.der).collect();
    ClientPair::of_leaf(leaf, &above, anchors)
}

/// Invariant I14.
#[tokio::test]
async fn only_what_the_authority_itself_has_signed_is_an_identity() {
    let (hub, root) = (TestHub::start().await, CompanyCa::root());
    let client = root.authority("Telemetry CA");
    let (admin, whole) = mk_whole(&hub, &root, &client).await;
    let dir = tempfile::tempdir().unwrap();
    let own = enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    // It begins now: what begins before the addon was installed is revoked.
    let now = Timestamp::from_unix(k8s_openapi::jiff::Timestamp::now().as_second()).plus(BACKDATE);
    let whoami = async |pair: &ClientPair| pair.call(whole.gateway, Method::GET, "/v1/whoami").await;
    let leaf_of = |ca: &CompanyCa| Ca::of_company(ca).client("spoke1", "telemetry", now, HOUR);

    let good = pair(&leaf_of(&client), &[&client], &own.anchors);
    let (status, body) = whoami(&good).await.unwrap();
    assert_eq!(status, StatusCode::OK, "{body}");
    let sister = root.authority("Sister CA");
    let namesake = root.authority("Telemetry CA");
    for other in [&sister, &namesake, &root] {
        let refused = whoami(&pair(&leaf_of(other), &[other, &root], &own.anchors)).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    let below = client.signs(ca_params("Below CA", HOUR * 48));
    let (status, _) = whoami(&pair(&leaf_of(&below), &[&below, &client], &own.anchors)).await.unwrap();
    assert_eq!(status, StatusCode::FORBIDDEN, "the chain is good, but another CA has signed");
}
