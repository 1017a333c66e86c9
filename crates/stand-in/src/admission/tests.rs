//! Tests of the rules of CSRs, one by one.

use super::*;

const NOW: &str = "2001-09-09T01:46:40Z";

fn mk_request() -> Vec<u8> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let request = params.serialize_request(&key).unwrap();
    request.pem().unwrap().into_bytes()
}

fn mk_csr(request: &[u8]) -> Value {
    json!({ "spec": {
        "request": fields::base64(request), "signerName": "example.com/telemetry",
        "usages": ["digital signature", "client auth"],
    } })
}

/// The refused fields if `path` of a good CSR is `value`.
fn refused(path: &str, value: impl Into<Value>) -> Vec<String> {
    let mut csr = mk_csr(&mk_request());
    fields::set(&mut csr, path, value);
    let causes = validate_create(&csr);
    causes.into_iter().map(|cause| cause.field).collect()
}

fn approved() -> Value {
    json!({ "type": "Approved", "status": "True", "lastUpdateTime": NOW, "lastTransitionTime": NOW })
}

fn with_status(status: Value) -> Value {
    let mut csr = mk_csr(b"");
    fields::set(&mut csr, "status", status);
    csr
}

/// The messages that refuse a write of `new` over `old`, and the object that the write would store.
fn write(old: &Value, new: &Value, subresource: &str) -> (Vec<String>, Value) {
    let mut new = new.clone();
    let causes = prepare_update(&mut new, old, Some(subresource), NOW);
    (causes.into_iter().map(|c| c.message).collect(), new)
}

#[test]
fn a_valid_request_is_accepted() {
    assert_eq!(validate_create(&mk_csr(&mk_request())), []);
}

#[test]
fn request_must_be_a_pem_block_of_der_with_valid_signature() {
    let good = mk_request();
    let der = Pem::iter_from_buffer(&good).next().unwrap().unwrap().contents;
    let pem = |label: &str, der: &[u8]| {
        let body = fields::base64(der);
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").into_bytes()
    };
    let mut forged = der.clone();
    *forged.last_mut().unwrap() ^= 1;
    let trailing = [der.clone(), vec![0]].concat();
    for bad in [
        b"not pem".to_vec(),
        pem("CERTIFICATE", &der),
        pem("CERTIFICATE REQUEST", &forged),
        pem("CERTIFICATE REQUEST", &trailing),
        pem("CERTIFICATE REQUEST", b"\x30\x00"),
    ] {
        let causes = validate_create(&mk_csr(&bad));
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].field, "spec.request");
    }
    let twice = [good.clone(), good].concat();
    assert_eq!(validate_create(&mk_csr(&twice)), [], "kube-apiserver looks at the first block only");
}

#[test]
fn usages_must_be_known_and_different_and_there_must_be_one() {
    assert_eq!(refused("spec.usages", json!([])), ["spec.usages"]);
    assert_eq!(refused("spec.usages", json!(["x"])), ["spec.usages[0]"]);
    let twice = json!(["client auth", "client auth"]);
    assert_eq!(refused("spec.usages", twice), ["spec.usages[1]"]);
}

#[test]
fn the_signer_name_must_be_domain_and_path() {
    for bad in [
        "",
        "example.com",
        "example/telemetry",
        "example.com/a/b",
        "Example.com/a",
        "example.com/",
        "kubernetes.io/legacy-unknown",
    ] {
        assert_eq!(refused("spec.signerName", bad), ["spec.signerName"], "{bad}");
    }
    let long = format!("example.com/{}", "a".repeat(SIGNER_NAME_LIMIT));
    assert_eq!(refused("spec.signerName", long), ["spec.signerName"]);
}

#[test]
fn less_than_ten_minutes_is_refused() {
    assert_eq!(refused("spec.expirationSeconds", 599), ["spec.expirationSeconds"]);
    assert!(refused("spec.expirationSeconds", 600).is_empty());
}

#[test]
fn the_requester_comes_from_the_caller_alone() {
    let mut csr = mk_csr(b"");
    fields::set(&mut csr, "spec.username", "root");
    fields::set(&mut csr, "spec.groups", json!(["system:masters"]));
    fields::set(&mut csr, "spec.extra", json!({ "a": ["b"] }));
    fields::set(&mut csr, "status.conditions", json!([approved()]));
    prepare_create(&mut csr, &User::new("bob", &["g"]));
    assert_eq!(csr["spec"]["username"], "bob");
    assert_eq!(csr["spec"]["groups"], json!(["g", "system:authenticated"]));
    assert!(csr["spec"].get("extra").is_none());
    assert_eq!(csr["status"], json!({}));
}

#[test]
fn approval_dates_conditions_but_leaves_spec_and_certificate() {
    let old = with_status(json!({ "certificate": "b2xk" }));
    let mut new = with_status(json!({
        "certificate": "bmV3", "conditions": [{ "type": "Approved", "status": "True" }],
    }));
    fields::set(&mut new, "spec.signerName", "example.com/other");
    let mut new_with_old_certificate = old.clone();
    fields::set(&mut new_with_old_certificate, "status.conditions", json!([approved()]));
    let (problems, stored) = write(&old, &new, "approval");
    assert_eq!(stored, new_with_old_certificate);
    // The only problem is that the old certificate of this test is not PEM.
    assert_eq!(problems.len(), 1);
}

#[test]
fn verdicts_exclude_each_other_and_stay() {
    let plain = with_status(json!({}));
    let denied = json!({ "type": "Denied", "status": "True" });
    let both = with_status(json!({ "conditions": [approved(), denied] }));
    let (problems, _) = write(&plain, &both, "approval");
    assert_eq!(problems.len(), 1);
    let yes = with_status(json!({ "conditions": [approved()] }));
    let (problems, _) = write(&yes, &plain, "approval");
    assert_eq!(problems, ["Forbidden: updates may not remove a condition of type \"Approved\""]);
    let no = json!({ "type": "Approved", "status": "False" });
    let (problems, _) = write(&plain, &with_status(json!({ "conditions": [no] })), "approval");
    assert_eq!(problems, ["Unsupported value: \"False\": supported values: \"True\""]);
}

#[test]
fn status_cannot_change_verdicts() {
    let plain = with_status(json!({}));
    let yes = with_status(json!({ "conditions": [approved()] }));
    let (problems, _) = write(&plain, &yes, "status");
    assert_eq!(problems, ["Forbidden: updates may not add a condition of type \"Approved\""]);
    let mut reworded = yes.clone();
    reworded["status"]["conditions"][0]["reason"] = json!("Other");
    let (problems, stored) = write(&yes, &reworded, "status");
    assert!(problems.is_empty());
    assert_eq!(stored, yes);
}

#[test]
fn a_certificate_is_set_once_and_holds_certificates_only() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let issued = |pem: &str| with_status(json!({ "certificate": fields::base64(pem.as_bytes()) }));
    let plain = with_status(json!({}));
    assert!(write(&plain, &issued(&pem), "status").0.is_empty());
    for bad in ["junk".to_owned(), format!("{pem}{}", key.serialize_pem())] {
        assert_eq!(write(&plain, &issued(&bad), "status").0.len(), 1);
    }
    let twice = format!("{pem}{pem}");
    assert_eq!(
        write(&issued(&pem), &issued(&twice), "status").0,
        ["Forbidden: updates may not modify existing certificate content"]
    );
}

#[test]
fn the_main_resource_keeps_spec_and_status() {
    let old = with_status(json!({ "conditions": [approved()] }));
    let mut new = with_status(json!({}));
    fields::set(&mut new, "spec.signerName", "example.com/other");
    assert!(prepare_update(&mut new, &old, None, NOW).is_empty());
    assert_eq!(new, old);
}
