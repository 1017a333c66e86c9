//! The program `addon-signer-agent` as people and scripts use it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::Command;
use x509_parser::pem::parse_x509_pem;

use crate::whole::{get, mk_whole};
use test_kit::built::agent_program;
use test_kit::hub::TIMEOUT;
use test_kit::process::free_port;
use test_kit::{accept_cluster, install_addon, wait_until};

/// Runs the program with these variables and no others.
pub(super) async fn run(home: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(agent_program());
    command.env_clear().env("HOME", home).envs(variables.iter().copied()).args(arguments).stdin(Stdio::null());
    tokio::time::timeout(Duration::from_secs(90), command.output()).await.unwrap().unwrap()
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn the_program_enrols_once_then_finds_its_certificate_valid() {
    let (hub, admin, whole) = mk_whole("127.0.0.1:9".parse().unwrap()).await;
    accept_cluster(&admin, "cluster1").await;
    install_addon(&admin, "cluster1", "telemetry").await;
    crate::whole::serving_anchors(&admin).await;
    let home = tempfile::tempdir().unwrap();
    let group = "system:open-cluster-management:cluster1";
    let kubeconfig =
        hub.kubeconfig(&format!("{group}:a1"), &[group, "system:open-cluster-management:managed-clusters"]);
    let file = home.path().join("hub.kubeconfig");
    std::fs::write(&file, serde_saphyr::to_string(&kubeconfig).unwrap()).unwrap();
    let output = home.path().join("certs");
    let gateway = format!("https://{}", whole.gateway);
    let arguments = [
        "--cluster=cluster1",
        "--addon=telemetry",
        "--signer=example.com/telemetry",
        "--once",
        "--gateway",
        &gateway,
        "--hub-kubeconfig",
        file.to_str().unwrap(),
        "--output-dir",
        output.to_str().unwrap(),
    ];
    for message in ["Enrolled", "The stored certificate is valid"] {
        let once = run(home.path(), &[], &arguments).await;
        let log = text(&once.stderr);
        assert!(once.status.success(), "{log}");
        assert!(log.contains(message), "{log}");
        assert_eq!(text(&once.stdout), "");
        assert!(!log.contains("PRIVATE"), "{log}");
    }
    assert!(["tls.crt", "tls.key", "ca.crt"].iter().all(|name| output.join(name).exists()));

    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let lasting = arguments.iter().filter(|argument| **argument != "--once");
    let mut command = Command::new(agent_program());
    command.env_clear().env("HOME", home.path()).args(lasting).arg(format!("--metrics-listen={metrics}"));
    let _running = command.kill_on_drop(true).stderr(Stdio::null()).spawn().unwrap();
    let (_, pem) = parse_x509_pem(&std::fs::read(output.join("tls.crt")).unwrap()).unwrap();
    let end = pem.parse_x509().unwrap().validity().not_after.timestamp();
    let shown = format!("\naddon_signer_agent_certificate_end_timestamp_seconds {end}\n");
    wait_until(TIMEOUT, "the metric to have the certificate's end", async || {
        TcpStream::connect(metrics).await.ok()?;
        get(metrics, "/metrics").await.1.contains(&shown).then_some(())
    })
    .await;
    assert!(get(metrics, "/metrics").await.1.ends_with("\naddon_signer_agent_on_renew_failures_total 0\n# EOF\n"));
    assert_eq!(get(metrics, "/readyz").await.0, 200);
    assert_eq!(get(metrics, "/").await.0, 404);
}

#[tokio::test]
async fn the_program_says_in_one_sentence_what_cannot_work() {
    let home = tempfile::tempdir().unwrap();
    let wrong = run(home.path(), &[], &["--cluster", "Bad_Name"]).await;
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    let arguments = "--cluster=c1 --addon=telemetry --signer=example.com/telemetry --once \
                     --gateway=https://127.0.0.1:9 --output-dir=certs --hub-kubeconfig=no/such/file";
    let missing = run(home.path(), &[], &arguments.split_whitespace().collect::<Vec<_>>()).await;
    let message = text(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1), "{message}");
    assert!(message.contains("addon-signer-agent: "), "{message}");
    assert!(message.contains("the kubeconfig no/such/file cannot be used"), "{message}");
}
