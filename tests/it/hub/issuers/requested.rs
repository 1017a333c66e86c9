//! `ca csr` and `ca import`: the key never leaves the hub, and the certificate comes days later.

use std::time::Duration;

use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::csr::CertificateRequest;
use addon_signer_core::names::ANNOTATION_IMPORT;
use addon_signer_platform::clock::Clock;
use serde_json::json;
use x509_parser::prelude::{FromDer, X509CertificationRequest};

use super::{telemetry_of, wait_issued};
use crate::cli::{run, write};
use crate::hub::lineages::{OnServer, issue};
use crate::hub::mk_served;
use test_kit::company::{CompanyCa, ca_params, chain};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, fresh_ledger, wait_ready};
use test_kit::{TestHub, wait_until};

const DAY: Duration = Duration::from_secs(86_400);

/// The public point in a CSR.
pub(super) fn point(request: &str) -> Vec<u8> {
    let (_, block) = x509_parser::pem::parse_x509_pem(request.as_bytes()).unwrap();
    let (_, request) = X509CertificationRequest::from_der(&block.contents).unwrap();
    request.verify_signature().unwrap();
    request.certification_request_info.subject_pki.subject_public_key.data.to_vec()
}

#[tokio::test]
async fn a_certificate_is_brought_days_later_and_after_a_restart() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry_of(json!({ "type": "Imported" }))).await;
    let (_dir, ledger) = fresh_ledger();
    let start = || {
        RunningHub::start_with(&hub, RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() })
    };
    let running = start().await;
    let (reason, message) = wait_ready(&admin, "telemetry", "False").await;
    assert_eq!(reason, "AuthorityNotIssued");
    let waits = "waits for the certificate of the CSR that `ca csr` prints (`ca import`).";
    assert!(message.ends_with(waits), "{message}");
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let csr = async || run(home.path(), &["ca", "csr", "telemetry", "--kubeconfig", &kubeconfig]).await;
    let request = csr().await;
    assert_eq!(request.code, 0, "{}", request.stderr);
    running.stop().await;

    let running = start().await;
    wait_ready(&admin, "telemetry", "False").await;
    assert_eq!(csr().await.stdout, request.stdout, "the key has waited");
    let root = CompanyCa::root();
    let point = point(&request.stdout);
    let import = async |certificates: &str| {
        let file = home.path().join("chain.pem");
        std::fs::write(&file, certificates).unwrap();
        let file = file.display().to_string();
        run(home.path(), &["ca", "import", "telemetry", "--cert", &file, "--watch", "--kubeconfig", &kubeconfig]).await
    };
    let answer = root.certifies(&point, &ca_params("Telemetry CA", DAY * 700));
    let output = import(&chain(&[&answer])).await;
    assert_eq!(output.code, 1, "{}", output.stderr);
    let id = AuthorityId::of(CertificateRequest::from_pem(request.stdout.as_bytes()).unwrap().public_key_der());
    let why = format!("The authority in the certificate of `ca import` ({id}, ");
    assert!(output.stderr.contains(&why) && output.stderr.contains("not used: there is no root"), "{}", output.stderr);
    let before = Clock::default().now();
    // The refusal names the second in which it was brought.
    wait_until(TIMEOUT, "the next second", async || (Clock::default().now() > before).then_some(())).await;
    let output = import(&format!("\u{feff}{}", chain(&[&answer, &root.der]))).await;
    assert_eq!(output.code, 0, "the refusal before was of another file: {}", output.stderr);
    assert!(!output.stderr.contains("there is no root"), "it is not told again: {}", output.stderr);
    let lineage = OnServer::client(&admin);
    let first = lineage.wait(&["Active"]).await;
    wait_ready(&admin, "telemetry", "True").await;
    issue(&hub, &admin).await;
    wait_issued(&lineage, "True", "Every authority").await;
    let output = import(&chain(&[&answer, &root.der])).await;
    assert!(output.stderr.contains("is an authority of telemetry already"), "{}", output.stderr);
    let next = csr().await.stdout;
    assert_ne!(next, request.stdout, "another key waits for the next one");

    let answer = root.certifies(&self::point(&next), &ca_params("Telemetry CA", DAY * 700));
    let output = import(&chain(&[&answer, &root.der])).await;
    assert_eq!(output.code, 0, "{}", output.stderr);
    let ids = lineage.wait(&["Active", "Old"]).await;
    assert_eq!(ids[1], first[0]);
    running.stop().await;
    let _running = start().await;
    lineage.reconcile().await;
    assert_eq!(lineage.wait(&["Active", "Old"]).await, ids, "what was brought is not brought again");
}

#[tokio::test]
async fn a_file_that_is_not_for_the_request_is_not_sent() {
    let hub = TestHub::start().await;
    let admin = mk_served(&hub, telemetry_of(json!({ "type": "Imported" }))).await;
    let _running = RunningHub::start(&hub).await;
    wait_ready(&admin, "telemetry", "False").await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let request = run(home.path(), &["ca", "csr", "telemetry", "--kubeconfig", &kubeconfig]).await.stdout;
    let root = CompanyCa::root();
    let answer = root.certifies(&point(&request), &ca_params("Telemetry CA", DAY * 700));
    let mut old_root = ca_params("old root", DAY * 700);
    old_root.key_usages.clear(); // which makes it no CA certificate for us
    let mut nameless = ca_params("", DAY * 700);
    nameless.distinguished_name = rcgen::DistinguishedName::new();
    let nameless = root.signs(nameless);
    let (old_root, other) = (root.signs(old_root), root.authority("other"));
    let file = home.path().join("chain.pem");
    for (certificates, why) in [
        (chain(&[&other.der, &root.der]), "the first certificate, \"CN=other\", is not for the CSR that"),
        (chain(&[&old_root.der, &answer]), "in the wrong order: \"CN=Telemetry CA\" is the authority"),
        (chain(&[&answer, &nameless.der]), "certificate 2 has an empty subject"),
        (chain(&[&answer]) + &root.key(), "it has a private key in line "),
    ] {
        std::fs::write(&file, certificates).unwrap();
        let path = file.display().to_string();
        let output =
            run(home.path(), &["ca", "import", "telemetry", "--cert", &path, "--kubeconfig", &kubeconfig]).await;
        assert!(output.code == 1 && output.stderr.contains("chain.pem cannot be used: "), "{}", output.stderr);
        assert!(output.stderr.contains(why), "{}", output.stderr);
    }
    let signers: kube::Api<addon_signer_api::AddOnSigner> = kube::Api::all(admin);
    assert!(
        !signers
            .get("telemetry")
            .await
            .unwrap()
            .metadata
            .annotations
            .unwrap_or_default()
            .contains_key(ANNOTATION_IMPORT)
    );
}

#[tokio::test]
async fn csr_and_import_are_refused_where_the_hub_makes_authorities() {
    let (hub, _admin, _running) = crate::hub::mk_ready().await;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = write(home.path(), &hub.kubeconfig("ann", &["system:masters"])).display().to_string();
    let output = run(home.path(), &["ca", "csr", "telemetry", "--kubeconfig", &kubeconfig]).await;
    assert_eq!((output.code, output.stdout.as_str()), (1, ""));
    assert!(
        output.stderr.contains("telemetry has no CSR: its issuer must be Imported without a Secret"),
        "{}",
        output.stderr
    );
    let file = home.path().join("hello.pem");
    std::fs::write(&file, "hello").unwrap();
    let file = file.display().to_string();
    let output = run(home.path(), &["ca", "import", "telemetry", "--cert", &file, "--kubeconfig", &kubeconfig]).await;
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("hello.pem cannot be used: it has no certificate in PEM"), "{}", output.stderr);
}
