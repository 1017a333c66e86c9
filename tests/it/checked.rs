//! `addon-signer check`: what is sound, what is not, and what to do then.

use std::path::Path;

use addon_signer::api::AddOnSigner;
use addon_signer_platform::clock::Clock;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cli::{Output, run, write};
use crate::support::TestHub;
use crate::support::hub::wait_ready;
use crate::support::objects::{create_namespace, create_service};
use crate::whole::{Whole, prepare, serving_anchors};

async fn check(hub: &TestHub, home: &Path, flags: &[&str]) -> Output {
    let kubeconfig = write(home, &hub.kubeconfig("admin", &["system:masters"])).display().to_string();
    run(home, &[&["check", "--kubeconfig", &kubeconfig], flags].concat()).await
}

#[tokio::test]
async fn a_sound_installation_is_good_line_by_line() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let whole = Whole::start(&hub, Clock::default()).await;
    wait_ready(&admin, "telemetry", "True").await;
    serving_anchors(&admin).await;
    let home = tempfile::tempdir().unwrap();
    let gateway = format!("https://{}", whole.gateway);
    let good = check(&hub, home.path(), &["--gateway", &gateway]).await;
    assert_eq!(good.code, 0, "{}{}", good.stdout, good.stderr);
    for line in [
        "ok   API: the API server serves AddOnSigner v1alpha1\n",
        "ok   Lease addon-signer: hub_",
        "ok   AddOnSigner telemetry: Requests for this signer are validated and signed.\n",
        "ok   inventory: it is not installed (deploy/inventory)\n",
        &format!("ok   gateway {}: it shows a certificate for this name that agents accept\n", whole.gateway),
    ] {
        assert!(good.stdout.contains(line), "{line}{}", good.stdout);
    }
    let port = whole.gateway.port();
    let other = check(&hub, home.path(), &["--gateway", &format!("https://localhost:{port}")]).await;
    assert_eq!(other.code, 1, "{}", other.stdout);
    let line = format!("BAD  gateway localhost:{port}: agents do not reach it by this name: ");
    assert!(other.stdout.contains(&line) && other.stderr.contains("1 of "), "{}{}", other.stdout, other.stderr);
    whole.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_not_sound_is_said_with_what_to_do() {
    let hub = TestHub::start().await;
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let routes = json!([{ "path": "/", "upstream": "http://receive.observability.svc:19291" }]);
    let patch = Patch::Merge(json!({ "spec": { "gateway": { "routes": routes } } }));
    signers.patch("telemetry", &PatchParams::default(), &patch).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let json = check(&hub, home.path(), &["--output", "json"]).await;
    assert_eq!(json.code, 1, "{}", json.stderr);
    let findings: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    let bad: Vec<_> = findings.iter().filter(|found| found["verdict"] == "bad").collect();
    let told: Vec<_> = bad.iter().map(|found| found["finding"].as_str().unwrap()).collect();
    for sentence in [
        "no hub leads in the namespace addon-signer: look at the hub's pods and their logs",
        "no hub has reported about it: is one running?",
        "no authority signs",
        "the upstream receive.observability.svc has no Service receive in the namespace observability; it may be a \
         name outside of this cluster",
    ] {
        assert!(told.contains(&sentence), "{sentence}: {told:?}");
    }
}

#[tokio::test]
async fn an_upstream_behind_the_network_policy_is_told_the_label() {
    let hub = TestHub::start().await;
    if !hub.is_real() {
        eprintln!("skipped: the stand-in has no Services");
        return;
    }
    let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    create_namespace(&admin, "observability").await;
    create_service(&admin, "observability", "receive").await;
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let routes = json!([{ "path": "/", "upstream": "http://receive.observability:19291" }]);
    let patch = Patch::Merge(json!({ "spec": { "gateway": { "routes": routes } } }));
    signers.patch("telemetry", &PatchParams::default(), &patch).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let command = "`kubectl label namespace observability addon-signer.io/upstream=true`";
    let kept = check(&hub, home.path(), &[]).await;
    assert!(kept.stdout.contains(command), "{}", kept.stdout);
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let label = Patch::Merge(json!({ "metadata": { "labels": { "addon-signer.io/upstream": "true" } } }));
    namespaces.patch("observability", &PatchParams::default(), &label).await.unwrap();
    let let_in = check(&hub, home.path(), &[]).await;
    assert!(let_in.stdout.contains("the upstream receive.observability has a Service"), "{}", let_in.stdout);
}

#[tokio::test]
async fn without_the_crd_the_one_thing_to_do_is_said() {
    let home = tempfile::tempdir().unwrap();
    let hub = TestHub::start().await;
    if !hub.is_real() {
        eprintln!("skipped: the stand-in has the CRD built in");
        return;
    }
    let missing = check(&hub, home.path(), &[]).await;
    assert_eq!((missing.code, missing.stdout.as_str()), (1, ""));
    assert!(missing.stderr.contains("apply deploy/ first (`kubectl apply -k deploy/`)"), "{}", missing.stderr);
}
