//! Invariant I9: no byte of a key is in any log, condition or error, nor in the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use addon_signer_api::AddOnSigner;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;

use super::kit::{OnServer, issue, rotate};
use crate::hub::mk_ready_with;
use test_kit::hub::{RunningHubOptions, fresh_ledger, wait_ready};
use test_kit::log;
use test_kit::secrets::{find, private_bytes};

/// Adds the private bytes of every key that is stored.
async fn add_keys(admin: &Client, keys: &mut BTreeSet<Vec<u8>>) {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "addon-signer");
    for secret in secrets.list(&ListParams::default()).await.unwrap() {
        let data = secret.data.unwrap_or_default().into_iter();
        keys.extend(data.filter(|(name, _)| name.ends_with(".key")).map(|(_, bytes)| {
            // The key of the ledger is DER, the others are PEM.
            let pem = PrivatePkcs8KeyDer::from_pem_slice(&bytes.0);
            private_bytes(pem.as_ref().map_or(bytes.0.as_slice(), |key| key.secret_pkcs8_der()))
        }));
    }
}

/// The name of each ConfigMap of the hub's namespace, and what is in it.
async fn config_maps(admin: &Client) -> Vec<(String, Vec<u8>)> {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let maps = maps.list(&ListParams::default()).await.unwrap();
    maps.into_iter().map(|map| (map.name_any(), serde_json::to_vec(&map).unwrap())).collect()
}

/// The name of each file of the ledger, and what is in it. SQLite removes some of them itself.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let read = |file: PathBuf| match fs::read(&file) {
        Ok(bytes) => Some((file.display().to_string(), bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{}: {error}", file.display()),
    };
    files.filter_map(read).collect()
}

#[tokio::test]
async fn no_key_reaches_a_log_or_a_status() {
    let (log, _guard) = log::capture("addon_signer=trace,audit=trace");
    let (dir, ledger) = fresh_ledger();
    let (hub, admin, running) =
        mk_ready_with(RunningHubOptions { ledger: Some(ledger), ..RunningHubOptions::default() }).await;
    let lineage = OnServer::client(&admin);
    let serving = OnServer::serving(&admin);
    let mut keys = BTreeSet::new();
    add_keys(&admin, &mut keys).await;
    issue(&hub, &admin).await;
    rotate(&admin, "r1").await;
    serving.rotate_by_map("s1").await;
    lineage.wait(&["Active", "Old"]).await;
    serving.wait(&["Next", "Active"]).await;
    add_keys(&admin, &mut keys).await;
    // Put keys into wrong places, where an error could quote them.
    let good = lineage.data().await;
    let key = good.iter().find(|(name, _)| name.ends_with(".key")).unwrap().1.clone();
    for place in good.keys() {
        for bytes in [key.0.clone(), key.0[..key.0.len() / 2].to_vec(), [b"[\"", key.0.as_slice(), b"\"]"].concat()] {
            if good[place].0 == bytes {
                continue;
            }
            let mut data: BTreeMap<String, ByteString> = good.clone();
            data.insert(place.clone(), ByteString(bytes));
            lineage.set_data(data).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    wait_ready(&admin, "telemetry", "False").await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let status = serde_json::to_vec(&signers.get("telemetry").await.unwrap()).unwrap();
    lineage.set_data(good).await;
    wait_ready(&admin, "telemetry", "True").await;
    add_keys(&admin, &mut keys).await;
    drop(running);
    let text = log.text();
    assert!(text.contains("event=\"authority\""), "the log was captured: {text}");
    assert!(text.contains("AuthorityUnreadable") || text.contains("cannot be used"), "{text}");
    assert!(keys.len() >= 4, "two of each lineage");
    let mut places = vec![("the log".to_owned(), text.into_bytes()), ("the status".to_owned(), status)];
    places.extend(config_maps(&admin).await);
    places.extend(files(dir.path()));
    for (place, bytes) in places {
        for secret in keys.iter().map(Vec::as_slice).chain([b"BEGIN PRIVATE KEY".as_slice()]) {
            assert_eq!(find(secret, &bytes), None, "a key is in {place}: {}", String::from_utf8_lossy(&bytes));
        }
    }
}
