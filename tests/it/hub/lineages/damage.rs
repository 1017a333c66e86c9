//! Secrets and ConfigMaps that are deleted or broken: signing stops with a reason, and nothing is replaced silently.

use std::collections::BTreeMap;
use std::time::Duration;

use addon_signer_core::ca::authority::Authority;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::watch_object;
use ring::rand::SystemRandom;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::distrust::Person;
use super::kit::{OnServer, issue};
use super::serving::report;
use crate::hub::{MOMENT, mk_csr, mk_ready, submit};
use test_kit::hub::{RunningHub, TIMEOUT, certificate, wait_csr, wait_ready};
use test_kit::quick::pass;
use test_kit::wait_until;

type Data = BTreeMap<String, ByteString>;

async fn unhealthy(lineage: &OnServer) -> String {
    wait_until(TIMEOUT, "AuthorityHealthy to be False", async || {
        let conditions = lineage.status().await.conditions;
        let healthy = conditions.into_iter().find(|condition| condition.type_ == "AuthorityHealthy")?;
        (healthy.status == "False").then_some(healthy.reason)
    })
    .await
}

#[tokio::test]
async fn a_deleted_authority_stops_signing_and_is_not_made_anew() {
    let (hub, admin, running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    issue(&hub, &admin).await;
    let active = lineage.wait(&["Active"]).await;
    // The status names the certificate's end before the Secret is deleted.
    wait_until(TIMEOUT, "the status to know of the certificate", async || {
        lineage.status().await.authorities[0].last_leaf_expires.is_some().then_some(())
    })
    .await;
    let mut backup = lineage.secrets.get(lineage.secret).await.unwrap();
    lineage.secrets.delete(lineage.secret, &Default::default()).await.unwrap();
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert_eq!(reason, "AuthorityMissing");
    assert!(message.contains("telemetry-client-authorities is gone"), "{message}");
    assert_eq!(unhealthy(&lineage).await, "AuthorityMissing");
    let trusted = running.trust.borrow().signers[0].client_anchors.authorities()[0].id().to_string();
    assert_eq!(trusted, active[0], "still trusted");
    let waiting = submit(&hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let csrs: Api<k8s_openapi::api::certificates::v1::CertificateSigningRequest> = Api::all(admin.clone());
    let nothing_happens = async || {
        pass(MOMENT).await;
        assert!(lineage.secrets.get_opt(lineage.secret).await.unwrap().is_none(), "made anew");
        assert_eq!(certificate(&csrs.get(&waiting).await.unwrap()), None);
    };
    nothing_happens().await;
    drop(running);
    // The hub still knows after a restart and after the loss of the ConfigMap.
    lineage.maps.delete(lineage.map, &Default::default()).await.unwrap();
    let _running = RunningHub::start(&hub).await;
    nothing_happens().await;
    assert_eq!(wait_ready(&admin, "telemetry", "False").await.0, "AuthorityMissing");
    assert_eq!(lineage.status().await.authorities[0].id, active[0], "status still names it");
    let output = Person::ann(&hub).ca(&["revoke", "telemetry", &active[0], "--yes"]).await;
    let sentence = "nothing was asked: the hub takes no step of telemetry until it can read its Secret. ";
    assert_eq!((output.code, output.stderr.contains(sentence)), (1, true), "{}", output.stderr);
    backup.metadata.resource_version = None;
    backup.metadata.uid = None;
    lineage.secrets.create(&PostParams::default(), &backup).await.unwrap();
    wait_ready(&admin, "telemetry", "True").await;
    wait_csr(&admin, &waiting, "issued", certificate).await;
    assert_eq!(lineage.wait(&["Active"]).await, active);
}

/// What else the report of a gateway's lineage says, such as that an authority signs without evidence, is no reason.
#[tokio::test]
async fn authorities_of_the_gateway_are_revoked_unless_unreadable() {
    let (hub, admin, _running) = mk_ready().await;
    let (lineage, ann) = (OnServer::serving(&admin), Person::ann(&hub));
    let mut ids = lineage.wait(&["Active"]).await;
    issue(&hub, &admin).await; // an agent that may not have the next anchor
    for _ in 0..2 {
        let output = ann.ca(&["revoke", "--serving", &ids[0], "--yes"]).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        ids = wait_until(TIMEOUT, "another authority, and its problem", async || {
            let now = report(&lineage).await;
            let id = now["authorities"][0]["id"].as_str().filter(|id| *id != ids[0])?;
            now["problem"].is_string().then(|| vec![id.to_owned()])
        })
        .await;
    }
    lineage.secrets.delete(lineage.secret, &Default::default()).await.unwrap();
    wait_until(TIMEOUT, "the loss to be reported", async || {
        report(&lineage).await["problem"].as_str()?.contains("is gone").then_some(())
    })
    .await;
    let output = ann.ca(&["revoke", "--serving", &ids[0], "--yes"]).await;
    let sentence = "nothing was asked: the hub takes no step of (serving) until it can read its Secret. ";
    assert_eq!((output.code, output.stderr.contains(sentence)), (1, true), "{}", output.stderr);
}

/// One way to break the Secret, and what the message must name.
struct Damage {
    what: &'static str,
    names: String,
    data: Data,
}

fn damages(good: &Data, id: &str) -> Vec<Damage> {
    let crt = format!("{id}.crt");
    let key = format!("{id}.key");
    let rng = SystemRandom::new();
    let (other_key, other_pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let now = addon_signer_platform::clock::Clock::default().now();
    let other = Authority::self_signed("other", &other_key, now, Duration::from_secs(86_400), &rng).unwrap();
    let other_key_pem = pem_of_key(&other_pkcs8);
    let state = |change: &dyn Fn(&mut Value)| {
        let mut lineage: Value = serde_json::from_slice(&good["line.json"].0).unwrap();
        change(&mut lineage);
        ByteString(lineage.to_string().into_bytes())
    };
    let with = |what, names: &str, name: &str, bytes: ByteString| {
        let mut data = good.clone();
        data.insert(name.to_owned(), bytes);
        Damage { what, names: names.to_owned(), data }
    };
    let without = |what, name: &str| {
        let mut data = good.clone();
        data.remove(name);
        Damage { what, names: name.to_owned(), data }
    };
    let next = |lineage: &mut Value| {
        let member = json!({"id": other.id().as_str(), "state": "Next", "since": now.unix()});
        lineage["authorities"].as_array_mut().unwrap().push(member);
    };
    let mut keyless_next = with("a Next without its key", &format!("{}.key", other.id()), "line.json", state(&next));
    keyless_next.data.insert(format!("{}.crt", other.id()), ByteString(other.pem().into_bytes()));
    let text = |text: &str| ByteString(text.as_bytes().to_vec());
    vec![
        without("no key", &key),
        without("no certificate", &crt),
        without("no states", "line.json"),
        with("another key", &key, &key, ByteString(other_key_pem.into_bytes())),
        with("a key that is none", &key, &key, text("please")),
        with("states that are not JSON", "line.json", "line.json", text("{")),
        with(
            "an unknown state",
            "Sleepy",
            "line.json",
            state(&|lineage| lineage["authorities"][0]["state"] = json!("Sleepy")),
        ),
        with("no authority", "line.json", "line.json", state(&|lineage| lineage["authorities"] = json!([]))),
        with("a certificate of another id", &crt, &crt, ByteString(other.pem().into_bytes())),
        with("a certificate that is none", &crt, &crt, text("please")),
        keyless_next,
    ]
}

fn pem_of_key(pkcs8: &[u8]) -> String {
    let base64 = serde_json::to_value(ByteString(pkcs8.to_vec())).unwrap();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", base64.as_str().unwrap())
}

#[tokio::test]
async fn every_damage_is_named_and_nothing_is_overwritten() {
    let (_hub, admin, _running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    let id = lineage.wait(&["Active"]).await.remove(0);
    let good = lineage.data().await;
    for damage in damages(&good, &id) {
        lineage.set_data(damage.data.clone()).await;
        let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
        assert_eq!(reason, "AuthorityUnreadable", "{}: {message}", damage.what);
        assert!(message.contains("the Secret telemetry-client-authorities cannot be used"), "{message}");
        assert!(message.contains(&damage.names), "{}: {message}", damage.what);
        assert_eq!(unhealthy(&lineage).await, "AuthorityUnreadable");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(lineage.data().await, damage.data, "{}: overwritten", damage.what);
        lineage.set_data(good.clone()).await;
        wait_ready(&admin, "telemetry", "True").await;
    }
}

#[tokio::test]
async fn secrets_say_what_they_are() {
    let (_hub, admin, _running) = mk_ready().await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    let labels = |secret: &Secret| json!(secret.metadata.labels);
    let client = secrets.get("telemetry-client-authorities").await.unwrap();
    assert_eq!(client.type_.as_deref(), Some("addon-signer.io/authorities"));
    let managed = "addon-signer";
    let expected = json!({"app.kubernetes.io/managed-by": managed, "addon-signer.io/line": "client",
        "addon-signer.io/signer": "telemetry"});
    assert_eq!(labels(&client), expected);
    let serving = secrets.get("addon-signer-serving-authorities").await.unwrap();
    assert_eq!(serving.type_.as_deref(), Some("addon-signer.io/authorities"));
    assert_eq!(labels(&serving), json!({"app.kubernetes.io/managed-by": managed, "addon-signer.io/line": "serving"}));
}

/// Undoes each write of the hub at once; returns when it has done that so often.
async fn undo(maps: &Api<ConfigMap>, map: &str, times: usize) -> Vec<Instant> {
    let edit = Patch::Merge(json!({ "data": { "ca.crt": "another program's", "theirs": "x" } }));
    let mut seen = watch_object(maps.clone(), map).boxed();
    let mut undone = Vec::new();
    while undone.len() < times {
        let found = seen.next().await.unwrap().unwrap().unwrap().data.unwrap();
        if found["ca.crt"] != "another program's" {
            assert!(undone.is_empty() || found["theirs"] == "x", "what others add stays");
            undone.push(Instant::now());
            maps.patch(map, &PatchParams::default(), &edit).await.unwrap();
        }
    }
    undone
}

#[tokio::test]
async fn program_that_keeps_changing_anchors_meets_growing_pauses() {
    let (_hub, admin, running) = mk_ready().await;
    let lineage = OnServer::client(&admin);
    lineage.wait(&["Active"]).await;
    let undone = undo(&lineage.maps, lineage.map, 5).await;
    // The hub puts its own back at once, after 1 and after 2 seconds.
    assert!(undone[4].duration_since(undone[2]) >= Duration::from_secs(3), "{undone:?}");
    running.stop().await;
}
