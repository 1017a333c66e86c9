//! Whom the listener lets in, and which certificate it shows.

use std::cell::Cell;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use addon_signer::inventory::API_SERVICE;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_telemetry::audit::QUOTA;

use super::kit::{Stage, nobody, pair, tell_front_proxy};
use crate::whole::serving_anchors;
use test_kit::hub::TIMEOUT;
use test_kit::log::capture_audit;
use test_kit::pki::TestCa;
use test_kit::{TestHub, wait_until};

#[tokio::test]
async fn only_the_api_servers_front_proxy_gets_a_handshake() {
    let (log, _, _guard) = capture_audit();
    let hub = TestHub::start().await;
    let stage = Stage::start(&hub).await;
    let front_proxy = stage.front_proxy(&hub, "front-proxy-client");
    stage.wait_served(&front_proxy).await;
    let (code, list) = stage.ask(&front_proxy, "alice", "/certificates").await.unwrap();
    // The certificate that the listener shows is in the ledger.
    assert_eq!((code, &list["items"][0]["signer"]), (200, &json!("gateway-serving")));
    let (code, status) = stage.ask(&front_proxy, "alice", "/certificates/0a1c").await.unwrap();
    assert_eq!((code, &status["kind"], &status["reason"]), (404, &json!("Status"), &json!("NotFound")));
    assert_eq!(stage.ask(&front_proxy, "", "/certificates").await.unwrap().0, 401);
    // The API server passes on some of these for every account, so they must not fill the audit log.
    for path in ["//", "//certificates", "/nothing", "/certificates/a/status"] {
        assert_eq!(stage.ask(&front_proxy, "mallory", path).await.unwrap().0, 404, "{path}");
    }
    let reported: Vec<_> = log.json().into_iter().filter(|line| line["event"] == "inventory").collect();
    let reported: Vec<_> = reported.iter().map(|line| (&line["user"], &line["request"], &line["status"])).collect();
    assert_eq!(reported[0], (&json!("alice"), &json!("/certificates"), &json!(200)));
    assert_eq!(reported[1].2, &json!(404));
    assert_eq!(reported[2..], [(&json!(""), &json!("/certificates"), &json!(401))]);

    let agent = pair(&TestCa::named("addon-signer client CA telemetry"), "front-proxy-client");
    let user = pair(&TestCa::default(), "front-proxy-client"); // from another CA with the same name
    for (caller, alert) in [
        (nobody(), "CertificateRequired"),
        (agent, "UnknownCA"),
        (user, "DecryptError"),
        (stage.front_proxy(&hub, "kube-apiserver-kubelet-client"), "AccessDenied"),
    ] {
        let refusal = stage.ask(&caller, "system:admin", "/certificates").await.unwrap_err();
        assert!(refusal.contains(alert), "{alert}: {refusal}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn strangers_write_few_lines_and_hold_no_sessions() {
    const STRANGERS: u64 = 100;
    const SILENT: usize = 300;
    let (log, people, _guard) = capture_audit();
    let hub = TestHub::start().await;
    let stage = Stage::start(&hub).await;
    let front_proxy = stage.front_proxy(&hub, "front-proxy-client");
    stage.wait_served(&front_proxy).await;
    for _ in 0..STRANGERS {
        let mut stranger = TcpStream::connect(stage.inventory).await.unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        // A reset also ends the connection.
        stranger.read_to_end(&mut Vec::new()).await.ok();
    }
    // More than the inventory has places for handshakes and sessions together.
    let silent: Vec<_> = join_all((0..SILENT).map(|_| TcpStream::connect(stage.inventory))).await;
    stage.wait_served(&front_proxy).await; // all have one source, so it takes the place of one that had its second
    drop(silent);
    stage.stop().await;
    let lines = log.json();
    let of = |line: &&Value, member: &str| line[member] == "refused-inventory-connection" && line["cause"] == "NotTLS";
    let written = lines.iter().filter(|line| of(line, "event")).count() as u64;
    let sums = lines.iter().filter(|line| of(line, "of"));
    assert!(written <= 2 * u64::from(QUOTA.first), "a minute may have passed: {written}");
    assert_eq!(written + sums.filter_map(|sum| sum["count"].as_u64()).sum::<u64>(), STRANGERS);
    assert!(!people.text().contains("handshake"), "nothing in the other log: {}", people.text());
}

#[tokio::test]
async fn another_front_proxy_is_followed_at_once() {
    let (log, _, _guard) = capture_audit();
    let hub = TestHub::start().await;
    if hub.is_real() {
        return; // a real API server puts its own CA back
    }
    let stage = Stage::start(&hub).await;
    let mut present = stage.front_proxy(&hub, "front-proxy-client");
    stage.wait_served(&present).await;
    let mut changes = 0;
    let first_question_of_a_former = async || {
        changes += 1;
        let mut silent = stage.connect(&present).await;
        let ca = TestCa::default();
        tell_front_proxy(&stage.admin, &ca).await;
        let former = std::mem::replace(&mut present, pair(&ca, "front-proxy-client"));
        stage.wait_served(&present).await;
        assert!(stage.ask(&former, "alice", "/certificates").await.is_err());
        let refusal = silent.ask().await.unwrap_err();
        // On a busy machine the connection may have ended already: it waits a second for its first question.
        refusal.contains("401").then_some(())
    };
    wait_until(TIMEOUT, "a former front proxy's first question to be answered", first_question_of_a_former).await;
    let invalid =
        |line: &&Value| line["event"] == "refused-inventory-connection" && line["cause"] == "CertificateInvalid";
    let reported = log.json().iter().filter(invalid).count();
    assert_eq!(reported, changes + 1, "each new connection, and one question: {}", log.text());
    stage.stop().await;
}

#[tokio::test]
async fn new_certificate_waits_until_api_service_holds_its_anchor() {
    let hub = TestHub::start().await;
    let stage = Stage::start(&hub).await;
    let front_proxy = stage.front_proxy(&hub, "front-proxy-client");
    stage.wait_served(&front_proxy).await;
    let services = stage.api_services();
    let mut service = services.get(API_SERVICE).await.unwrap();
    services.delete(API_SERVICE, &DeleteParams::default()).await.unwrap();
    let (before, after) = stage.rotate().await;
    assert_eq!(stage.issuer(stage.inventory, &front_proxy).await.unwrap(), before);
    service.metadata.resource_version = None;
    service.metadata.uid = None;
    services.create(&PostParams::default(), &APIService { status: None, ..service }).await.unwrap();
    wait_until(TIMEOUT, "the inventory to show the new certificate", async || {
        stage.issuer(stage.inventory, &front_proxy).await.filter(|id| *id == after)
    })
    .await;
    let registered = stage.registered().await.unwrap();
    assert!(registered.authorities().iter().any(|authority| *authority.id() == after));
    stage.stop().await;
}

/// Go's transport asks again only on a connection that had a question before. The API server connects when its
/// APIService changes, which is also when the inventory gets another certificate.
#[tokio::test]
async fn rotation_ends_connections_only_after_their_first_question() {
    let hub = TestHub::start().await;
    let stage = Stage::start(&hub).await;
    let front_proxy = stage.front_proxy(&hub, "front-proxy-client");
    stage.wait_served(&front_proxy).await;
    let rotated = Cell::new(false);
    let one_question_late = async || {
        while !rotated.get() {
            let mut talk = stage.connect(&front_proxy).await;
            tokio::time::sleep(Duration::from_millis(100)).await; // as long as a question may be under way
            talk.ask().await.expect("the answer to the first question");
        }
    };
    let many_questions = async || {
        let mut talk = stage.connect(&front_proxy).await;
        while !rotated.get() {
            if talk.ask().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            let next = stage.connect(&front_proxy).await;
            assert_ne!(next.shown, talk.shown, "the connection ended for nothing");
            talk = next;
        }
    };
    let rotating = async {
        let (_, after) = stage.rotate().await;
        wait_until(TIMEOUT, "the inventory to show the new certificate", async || {
            stage.issuer(stage.inventory, &front_proxy).await.filter(|id| *id == after)
        })
        .await;
        rotated.set(true);
    };
    tokio::join!(rotating, one_question_late(), one_question_late(), many_questions());
    stage.stop().await;
}

#[tokio::test]
async fn the_api_services_ca_is_kept() {
    let hub = TestHub::start().await;
    let stage = Stage::start(&hub).await;
    let anchors = Bundle::from_pem(serving_anchors(&stage.admin).await.as_bytes()).unwrap();
    let kept = async || stage.registered().await.filter(|registered| *registered == anchors);
    wait_until(TIMEOUT, "the CA of the APIService", kept).await;
    // The manifest of another tool could empty the CA or turn the verification off.
    let body = json!({ "spec": { "caBundle": null, "insecureSkipTLSVerify": true } });
    stage.api_services().patch(API_SERVICE, &PatchParams::default(), &Patch::Merge(&body)).await.unwrap();
    wait_until(TIMEOUT, "the CA of the APIService to be back", kept).await;
    let spec = stage.api_services().get(API_SERVICE).await.unwrap().spec.unwrap();
    assert_ne!(spec.insecure_skip_tls_verify, Some(true));
    stage.stop().await;
}
