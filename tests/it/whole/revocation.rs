//! A revocation, from the command line to the agent that comes back with a new certificate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use addon_signer_platform::clock::Clock;
use hyper::Method;
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{active, mk_whole, ours};
use crate::cli::{run, write};
use crate::gateway::backend;
use crate::hub::revocation::revoker;
use test_kit::hub::TIMEOUT;
use test_kit::objects::managed_cluster_addons;
use test_kit::quick::as_usual;
use test_kit::{install_addon, wait_until};

const RECEIVE: &str = "/addons/telemetry/api/v1/receive";

/// Invariant I15.
#[tokio::test]
async fn revoked_agent_is_out_in_two_seconds_and_enrols_again() {
    as_usual();
    let (hub, admin, whole) = mk_whole(backend::start().await).await;
    let dir = tempfile::tempdir().unwrap();
    let first = ours::enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    let bystander = ours::enrolled(&hub, &admin, dir.path(), "spoke2", whole.gateway).await;
    assert_eq!(first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    let tcp = TcpStream::connect(whole.gateway).await.unwrap();
    let name = ServerName::from(whole.gateway.ip());
    let mut open = TlsConnector::from(Arc::new(first.config())).connect(name, tcp).await.unwrap();

    let carol = revoker(&hub, dir.path()).await;
    let arguments = ["certs", "revoke", "--cluster", "spoke1", "--addon", "telemetry", "--kubeconfig", &carol];
    let revoked = run(dir.path(), &arguments).await;
    let since = Instant::now();
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    // The connection may end with or without an error.
    timeout(TIMEOUT, open.read_to_end(&mut Vec::new())).await.unwrap().ok(); // cut or closed
    let (status, body) = first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap();
    eprintln!("agent: out {:.1?} after certs revoke", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(2), "it took {:?}", since.elapsed());
    assert!(status == 403, "{status} {body}");
    assert!(body.contains("problems/revoked"), "{status} {body}");

    let second = wait_until(TIMEOUT, "another certificate", async || {
        ours::pair(dir.path(), "spoke1").filter(|pair| pair.certificate != first.certificate)
    })
    .await;
    assert_eq!(second.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    assert_eq!(first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 403, "the old one stays dead");
    assert_eq!(bystander.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);

    // Without the annotation nothing is revoked any more, and both certificates are of another object.
    let addons = managed_cluster_addons(&admin, "spoke1").await;
    addons.delete("telemetry", &Default::default()).await.unwrap();
    let before = Clock::default().now();
    // creationTimestamp has whole seconds: the new object must not have that of the old one.
    wait_until(TIMEOUT, "the next second", async || (Clock::default().now() > before).then_some(())).await;
    install_addon(&admin, "spoke1", "telemetry").await;
    let third = wait_until(TIMEOUT, "a certificate of the new object", async || {
        ours::pair(dir.path(), "spoke1").filter(|pair| pair.certificate != second.certificate)
    })
    .await;
    assert_eq!(third.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    for old in [&first, &second] {
        assert_eq!(old.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 403);
    }
    whole.stop().await.unwrap();
}

/// Invariant I15, for everybody whose certificate a revoked authority has signed.
#[tokio::test]
async fn certificates_of_a_revoked_authority_end_in_two_seconds() {
    as_usual();
    let (hub, admin, whole) = mk_whole(backend::start().await).await;
    let dir = tempfile::tempdir().unwrap();
    let first = ours::enrolled(&hub, &admin, dir.path(), "spoke1", whole.gateway).await;
    assert_eq!(first.call(whole.gateway, Method::POST, RECEIVE).await.unwrap().0, 200);
    let mut open = first.connect(whole.gateway).await.unwrap();
    let id = active(&admin).await.unwrap();
    let kubeconfig = write(dir.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let revoked = run(dir.path(), &["ca", "revoke", "telemetry", &id, "--yes", "--kubeconfig", &kubeconfig]).await;
    let since = Instant::now();
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    // The connection may end with or without an error.
    timeout(TIMEOUT, open.read_to_end(&mut Vec::new())).await.unwrap().ok(); // cut or closed
    assert!(since.elapsed() < Duration::from_secs(2), "it took {:?}", since.elapsed());
    assert!(first.call(whole.gateway, Method::POST, RECEIVE).await.is_err(), "the gateway knows no such authority");
    std::fs::remove_dir_all(dir.path().join("spoke1")).unwrap();
    let second = wait_until(TIMEOUT, "a certificate of the new authority", async || {
        ours::pair(dir.path(), "spoke1").filter(|pair| pair.certificate != first.certificate)
    })
    .await;
    wait_until(TIMEOUT, "the gateway to trust it", async || {
        let answer = second.call(whole.gateway, Method::POST, RECEIVE).await.ok()?;
        (answer.0 == 200).then_some(())
    })
    .await;
    whole.stop().await.unwrap();
}
