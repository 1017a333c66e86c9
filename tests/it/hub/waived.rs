//! `ca advance`: a new authority of the gateway does not wait for clusters that an administrator names.

use std::path::Path;

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::distribution::{APPLIED_FOR, mk_world, published, say_applied, wait_condition, wait_manifest};
use crate::cli::{run, write};
use k8s_openapi::api::core::v1::ConfigMap;
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, telemetry};
use test_kit::{TestHub, wait_until};

#[tokio::test]
async fn administrator_waives_absent_cluster_and_ledger_says_who() {
    let hub = TestHub::start().await;
    let admin = mk_world(&hub, telemetry()).await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("ledger.db");
    let ledger = Some(format!("sqlite://{}", file.display()).parse().unwrap());
    let running = RunningHub::start_with(&hub, RunningHubOptions { ledger, ..RunningHubOptions::default() }).await;
    published(&admin).await;
    for cluster in ["spoke1", "spoke2"] {
        wait_manifest(&admin, cluster, "the work", |_| true).await;
    }
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let ca = async |arguments: &[&str]| {
        run(home.path(), &[&["ca"], arguments, &["--serving", "--kubeconfig", &kubeconfig]].concat()).await
    };
    let early = ca(&["advance", "--except", "spoke2"]).await;
    assert_eq!(early.code, 1);
    assert!(early.stderr.contains("no authority of (serving) is waiting to sign"), "{}", early.stderr);

    assert_eq!(ca(&["rotate"]).await.code, 0);
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "addon-signer");
    let report = async || maps.get("addon-signer-trust").await.unwrap().data.unwrap()["status.json"].clone();
    // A word about another authority does not count.
    let other = json!({ "metadata": { "annotations": {
        "addon-signer.io/advance-without": "0123456789abcdef spoke2 2026-11-23T00:00:00Z ann",
    } } });
    maps.patch("addon-signer-trust", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    wait_until(TIMEOUT, "the report to name the clusters", async || {
        report().await.contains("0 of 2 addons have it, and not yet: spoke1/telemetry, spoke2/telemetry").then_some(())
    })
    .await;
    say_applied(&admin, "spoke1").await;
    wait_condition(&admin, "one cluster", |reported| {
        reported.is_some_and(|reported| reported.message.contains("1 of 2"))
    })
    .await;
    wait_until(2 * TIMEOUT, "the report to name the one that is away", async || {
        report().await.contains("1 of 2 addons have it, and not yet: spoke2/telemetry").then_some(())
    })
    .await;

    let reported = ca(&["status"]).await.stdout;
    let waits = "(serving) is waiting for: clusters to apply the new anchor: 1 of 2 addons have it, and not yet: \
         spoke2/telemetry";
    assert!(reported.contains(waits), "{reported}");

    let all = ca(&["advance", "--except", "all"]).await;
    assert_eq!(all.code, 3, "{}", all.stderr);
    assert!(all.stderr.contains("\nspoke2   telemetry  "), "the list comes first: {}", all.stderr);
    assert!(all.stderr.contains("without a terminal, name the clusters of --except"), "{}", all.stderr);
    running.clock.advance(APPLIED_FOR);
    let advanced = ca(&["advance", "--except", "spoke2", "--watch"]).await;
    assert_eq!(advanced.code, 0, "{}", advanced.stderr);
    assert!(advanced.stderr.contains("without waiting for: spoke2."), "{}", advanced.stderr);
    assert!(!report().await.contains("\"Next\""));
    running.stop().await;
    assert_eq!(waived(&file).await, 1);

    // As if that hub had ended before it could record its step.
    let file = home.path().join("another.db");
    let ledger = Some(format!("sqlite://{}", file.display()).parse().unwrap());
    let running = RunningHub::start_with(&hub, RunningHubOptions { ledger, ..RunningHubOptions::default() }).await;
    wait_until(TIMEOUT, "the ledger to say who waived", async || (waived(&file).await == 1).then_some(())).await;
    assert_eq!(ca(&["rotate"]).await.code, 0);
    wait_until(TIMEOUT, "the next rotation", async || report().await.contains("\"Next\"").then_some(())).await;
    running.stop().await;
    assert_eq!(waived(&file).await, 1, "the exception is about one authority");
}

/// How many entries say that ann waived the evidence from a cluster; each is about the step to which it belongs.
async fn waived(file: &Path) -> usize {
    let Ok(mut ledger) = SqliteConnectOptions::new().filename(file).connect().await else { return 0 };
    let entries: Vec<String> =
        sqlx::query_scalar("SELECT entry FROM entries").fetch_all(&mut ledger).await.unwrap_or_default();
    ledger.close().await.unwrap();
    let waived: Vec<_> = entries.iter().filter(|entry| entry.contains("without spoke2")).collect();
    let is_whole = |entry: &&String| entry.contains("ann (without spoke2)\"") && entry.contains("activated");
    assert!(waived.iter().all(is_whole), "{waived:#?}");
    waived.len()
}
