//! Invariant I9: no byte of a key is in any log, condition or error.

use std::collections::BTreeMap;

use addon_signer::api::AddOnSigner;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client};

use super::kit::{OnServer, issue, rotate};
use crate::hub::mk_ready;
use crate::support::hub::wait_ready;
use crate::support::issue::base64;
use crate::support::log;

/// The base64 text of every private key that is stored, in pieces that cannot occur by chance.
async fn key_pieces(admin: &Client, pieces: &mut Vec<String>) {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    for secret in secrets.list(&ListParams::default()).await.unwrap() {
        for (name, bytes) in secret.data.unwrap_or_default() {
            let body: String = match str::from_utf8(&bytes.0) {
                Ok(text) => text.lines().filter(|line| !line.starts_with("-----")).collect(),
                // The key of the ledger is PKCS#8 in DER; the public key, which is no secret, begins after 48 bytes.
                Err(_) => base64(&bytes.0[..48]),
            };
            if name.ends_with(".key") {
                // The first 48 characters are the same in every PKCS#8 key of this kind.
                let secret = &body.as_bytes()[48..];
                pieces.extend(secret.chunks_exact(16).map(|piece| String::from_utf8(piece.to_vec()).unwrap()));
            }
        }
    }
}

#[tokio::test]
async fn no_key_reaches_a_log_or_a_status() {
    let (log, _guard) = log::capture("addon_signer=trace,audit=trace");
    let (hub, admin, running) = mk_ready().await;
    let line = OnServer::client(&admin);
    let serving = OnServer::serving(&admin);
    let mut pieces = Vec::new();
    key_pieces(&admin, &mut pieces).await;
    issue(&hub, &admin).await;
    rotate(&admin, "r1").await;
    serving.rotate_by_map("s1").await;
    line.wait(&["Active", "Old"]).await;
    serving.wait(&["Next", "Active"]).await;
    key_pieces(&admin, &mut pieces).await;
    // Put keys into wrong places, where an error could quote them.
    let good = line.data().await;
    let key = good.iter().find(|(name, _)| name.ends_with(".key")).unwrap().1.clone();
    for place in good.keys() {
        for bytes in [key.0.clone(), key.0[..key.0.len() / 2].to_vec(), [b"[\"", key.0.as_slice(), b"\"]"].concat()] {
            if good[place].0 == bytes {
                continue;
            }
            let mut data: BTreeMap<String, ByteString> = good.clone();
            data.insert(place.clone(), ByteString(bytes));
            line.set_data(data).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    wait_ready(&admin, "telemetry", "False").await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let status = serde_json::to_string(&signers.get("telemetry").await.unwrap()).unwrap();
    line.set_data(good).await;
    wait_ready(&admin, "telemetry", "True").await;
    drop(running);
    let text = log.text();
    assert!(text.contains("event=\"authority\""), "the log was captured: {text}");
    assert!(text.contains("AuthorityUnreadable") || text.contains("cannot be read"), "{text}");
    assert!(pieces.len() > 10);
    for haystack in [&text, &status] {
        assert!(!haystack.contains("PRIVATE KEY-----"), "{haystack}");
        for piece in &pieces {
            assert!(!haystack.contains(piece.as_str()), "{piece} is in {haystack}");
        }
    }
}
