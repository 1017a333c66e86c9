//! cert-manager's issuer of the kind CA signs what is approved.

use std::time::Instant;

use data_encoding::BASE64;
use serde_json::Value;
use test_kit::RealHub;
use test_kit::cert_manager::{Approver, CertManager, PROGRAM, condition};
use test_kit::needed::Needed;
use test_kit::pki::TestCa;
use test_kit::real::{WITHOUT_FSYNC, has_or_skip};

use super::{certificates, mk_request, path_length_of_ca};

const NAMESPACE: &str = "addon-signer";
const ISSUER: &str = "corporate";
const NAME: &str = "example.com/telemetry";

/// A PEM text of a request's status.
fn pem(status: &Value, field: &str) -> String {
    String::from_utf8(BASE64.decode(status[field].as_str().unwrap().as_bytes()).unwrap()).unwrap()
}

fn assert_issued(status: &Value, root: &TestCa) {
    let chain = certificates(&pem(status, "certificate"));
    let root = certificates(&root.pair().cert);
    assert_eq!(chain.len(), 1);
    // Whatever a request says, cert-manager limits no path.
    assert_eq!(path_length_of_ca(&chain[0], NAME, &root[0]), None);
    assert_eq!(certificates(&pem(status, "ca")), root);
}

#[tokio::test]
async fn cert_manager_signs_only_what_is_approved() {
    if !has_or_skip(PROGRAM, Needed::Issuers) {
        return;
    }
    let hub = RealHub::start(&[WITHOUT_FSYNC]).await;
    let started = Instant::now();
    let cert_manager = CertManager::start(&hub, Approver::Test).await;
    eprintln!("cert-manager ready after {:?}", started.elapsed());
    let root = TestCa::named("corporate root");
    cert_manager.add_ca_issuer(NAMESPACE, ISSUER, &root.pair()).await;
    for name in ["waiting", "refused", "wanted"] {
        cert_manager.request_ca(NAMESPACE, name, ISSUER, &mk_request(NAME)).await;
    }

    cert_manager.decide(NAMESPACE, "refused", "Denied").await;
    let refused = cert_manager.answered(NAMESPACE, "refused", "Denied").await;
    assert!(refused["failureTime"].is_string() && refused["certificate"].is_null(), "{refused}");

    cert_manager.decide(NAMESPACE, "wanted", "Approved").await;
    assert_issued(&cert_manager.answered(NAMESPACE, "wanted", "Issued").await, &root);

    // It was made first, and is still as it was made.
    let waiting = cert_manager.requests(NAMESPACE).get("waiting").await.unwrap();
    assert!(waiting.data.get("status").is_none(), "{}", waiting.data);

    drop(cert_manager);
    let cert_manager = CertManager::start(&hub, Approver::CertManager).await;
    let approved = cert_manager.answered(NAMESPACE, "waiting", "Issued").await;
    assert_eq!(condition(&approved, "Approved").unwrap()["reason"], "cert-manager.io");
    assert_issued(&approved, &root);
}
