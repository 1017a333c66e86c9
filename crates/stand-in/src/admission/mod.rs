//! The rules of kube-apiserver for CertificateSigningRequests. Pure functions.
//!
//! Source: k8s.io/kubernetes 1.36, `pkg/apis/certificates/validation/validation.go`,
//! `pkg/registry/certificates/certificates/strategy.go` and `plugin/pkg/admission/certificates`.

use ring::signature::{self, UnparsedPublicKey};
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::{OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA512WITHRSA};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::auth::User;
use super::fields::{self, keep, list, text, texts};
use super::status::Cause;

/// `MinimumExpirationSeconds` of the API's documentation: ten minutes.
const MINIMUM_EXPIRATION_SECONDS: i64 = 600;

/// The longest signer name: domain (253) + `/` + path (317), as in `ValidateSignerName` of `pkg/apis/core/validation`.
const SIGNER_NAME_LIMIT: usize = 571;

/// Conditions whose status can only be `True`.
const TRUE_ONLY: [&str; 3] = ["Approved", "Denied", "Failed"];

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Sets the fields of a new CSR that only the server may set: the requester, and an empty status.
pub(super) fn prepare_create(csr: &mut Value, user: &User) {
    for field in ["username", "uid", "groups", "extra"] {
        fields::remove(csr, &format!("spec.{field}"));
    }
    fields::set(csr, "spec.username", user.name.clone());
    if !user.uid.is_empty() {
        fields::set(csr, "spec.uid", user.uid.clone());
    }
    fields::set(csr, "spec.groups", json!(user.groups));
    fields::set(csr, "status", json!({}));
}

/// Restores the fields that a write to this subresource may not change, and sets the times of the conditions.
pub(super) fn prepare_update(new: &mut Value, old: &Value, subresource: Option<&str>, now: &str) -> Vec<Cause> {
    keep(new, old, "spec");
    match subresource {
        None => keep(new, old, "status"),
        Some("approval") => {
            keep(new, old, "status.certificate");
            date_conditions(new, old, now);
        }
        Some(_) => {
            keep_verdicts(new, old);
            date_conditions(new, old, now);
        }
    }
    validate_update(new, old, subresource == Some("approval"))
}

/// The rules of a new CSR.
pub(super) fn validate_create(csr: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match parse_request(csr) {
        Ok(()) => {}
        Err(problem) => causes.push(Cause::invalid("spec.request", text(csr, "spec.request"), &problem)),
    }
    validate_usages(csr, &mut causes);
    if let Some(problem) = signer_name_problem(text(csr, "spec.signerName")) {
        causes.push(problem);
    }
    let seconds = fields::get(csr, "spec.expirationSeconds").and_then(Value::as_i64);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < MINIMUM_EXPIRATION_SECONDS) {
        causes.push(Cause::invalid(
            "spec.expirationSeconds",
            seconds,
            "may not specify a duration less than 600 seconds (10 minutes)",
        ));
    }
    causes
}

/// Whether the request asks for `system:masters`, which the admission plugin CertificateSubjectRestriction refuses.
pub(super) fn asks_for_masters(csr: &Value) -> bool {
    if text(csr, "spec.signerName") != "kubernetes.io/kube-apiserver-client" {
        return false;
    }
    let Some(pem) = first_block(csr) else {
        return false;
    };
    let Ok((_, request)) = X509CertificationRequest::from_der(&pem.contents) else {
        return false;
    };
    let subject = &request.certification_request_info.subject;
    subject.iter_organization().any(|o| o.as_str().is_ok_and(|o| o == "system:masters"))
}

fn validate_usages(csr: &Value, causes: &mut Vec<Cause>) {
    let usages: Vec<&str> = texts(csr, "spec.usages").collect();
    if usages.is_empty() {
        causes.push(Cause::required("spec.usages", ""));
    }
    for (i, usage) in usages.iter().enumerate() {
        let field = format!("spec.usages[{i}]");
        if !USAGES.contains(usage) {
            causes.push(Cause::unsupported(&field, usage, &USAGES));
        }
        if usages.iter().take(i).any(|before| before == usage) {
            causes.push(Cause::duplicate(&field, *usage));
        }
    }
}

fn signer_name_problem(name: &str) -> Option<Cause> {
    let field = "spec.signerName";
    if name.is_empty() {
        return Some(Cause::required(field, ""));
    }
    if name == "kubernetes.io/legacy-unknown" {
        return Some(Cause::invalid(field, name, "the legacy signerName is not allowed via this API version"));
    }
    if name.len() > SIGNER_NAME_LIMIT {
        return Some(Cause::too_long(field, "may not be more than 571 bytes"));
    }
    let fits = match name.split('/').collect::<Vec<_>>().as_slice() {
        [domain, path] => domain.contains('.') && is_subdomain(domain) && is_subdomain(path),
        _ => false,
    };
    (!fits).then(|| {
        Cause::invalid(field, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
    })
}

/// RFC 1123 subdomain, at most 253 characters.
pub(super) fn is_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// The first PEM block must be a PKCS#10 CSR with a valid signature. Like the real server, this ignores what follows
/// the block.
fn parse_request(csr: &Value) -> Result<(), String> {
    let block = first_block(csr)
        .filter(|block| block.label == "CERTIFICATE REQUEST")
        .ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let (rest, request) =
        X509CertificationRequest::from_der(&block.contents).map_err(|error| format!("asn1: {error}"))?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".into());
    }
    match request.verify_signature() {
        // kube-apiserver accepts P-521 and other kinds of keys that ring does not know.
        Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => Ok(()),
        Err(_) if small_rsa_holds(&request) => Ok(()),
        Err(_) => Err("x509: signature verification error".into()),
    }
}

/// Verifies with RSA keys below 2048 bits, which kube-apiserver accepts and x509-parser does not verify.
fn small_rsa_holds(request: &X509CertificationRequest<'_>) -> bool {
    let oid = &request.signature_algorithm.algorithm;
    let algorithm = if *oid == OID_PKCS1_SHA256WITHRSA {
        &signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY
    } else if *oid == OID_PKCS1_SHA512WITHRSA {
        &signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY
    } else {
        return false;
    };
    let info = &request.certification_request_info;
    UnparsedPublicKey::new(algorithm, &info.subject_pki.subject_public_key.data)
        .verify(info.raw, &request.signature_value.data)
        .is_ok()
}

fn first_block(csr: &Value) -> Option<Pem> {
    let pem = fields::bytes(csr, "spec.request")?;
    Pem::iter_from_buffer(&pem).next().and_then(Result::ok)
}

/// A write to `/status` cannot change Approved and Denied. If it neither adds nor removes one, the old one stays.
fn keep_verdicts(new: &mut Value, old: &Value) {
    for verdict in ["Approved", "Denied"] {
        if of_type(new, verdict).len() != of_type(old, verdict).len() {
            continue; // `validate_update` refuses it
        }
        let Some(before) = fields::condition(old, verdict) else {
            continue;
        };
        let Some(Value::Array(conditions)) = fields::get_mut(new, "status.conditions") else {
            continue;
        };
        for condition in conditions.iter_mut().filter(|c| text(c, "type") == verdict) {
            condition.clone_from(before);
        }
    }
}

/// Sets `lastUpdateTime` and `lastTransitionTime` of conditions where the writer left them out.
fn date_conditions(new: &mut Value, old: &Value, now: &str) {
    let Some(Value::Array(conditions)) = fields::get_mut(new, "status.conditions") else {
        return;
    };
    for condition in conditions {
        if text(condition, "lastUpdateTime").is_empty() {
            fields::set(condition, "lastUpdateTime", now);
        }
        if text(condition, "lastTransitionTime").is_empty() {
            let since = fields::condition(old, text(condition, "type"))
                .filter(|before| text(before, "status") == text(condition, "status"))
                .map(|before| text(before, "lastTransitionTime"))
                .filter(|since| !since.is_empty())
                .unwrap_or(now)
                .to_owned();
            fields::set(condition, "lastTransitionTime", since);
        }
    }
}

fn validate_update(new: &Value, old: &Value, approval: bool) -> Vec<Cause> {
    let mut causes = validate_conditions(new);
    let field = "status.conditions";
    for kind in TRUE_ONLY {
        let before = of_type(old, kind);
        let after = of_type(new, kind);
        let refusal = if after.len() < before.len() {
            "remove"
        } else if approval || kind == "Failed" || after == before {
            continue;
        } else if after.len() > before.len() {
            "add"
        } else {
            "modify"
        };
        let words = format!("updates may not {refusal} a condition of type {kind:?}");
        causes.push(Cause::forbidden(field, &words));
    }
    let before = text(old, "status.certificate");
    let after = text(new, "status.certificate");
    if before != after && !before.is_empty() {
        causes.push(Cause::forbidden("status.certificate", "updates may not modify existing certificate content"));
    } else if let Some(problem) = certificate_problem(after, new) {
        causes.push(Cause::invalid("status.certificate", "<certificate data>", &problem));
    }
    causes
}

fn validate_conditions(csr: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let conditions = list(csr, "status.conditions");
    for (i, condition) in conditions.iter().enumerate() {
        let field = |name: &str| format!("status.conditions[{i}].{name}");
        let kind = text(condition, "type");
        let status = text(condition, "status");
        if kind.is_empty() {
            causes.push(Cause::required(field("type"), ""));
        }
        let allowed: &[&str] = if TRUE_ONLY.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            causes.push(Cause::required(field("status"), ""));
        } else if !allowed.contains(&status) {
            causes.push(Cause::unsupported(field("status"), status, allowed));
        }
        if conditions.iter().take(i).any(|c| text(c, "type") == kind) {
            causes.push(Cause::duplicate(field("type"), kind));
        }
    }
    if !of_type(csr, "Approved").is_empty() && !of_type(csr, "Denied").is_empty() {
        causes.push(Cause::invalid(
            "status.conditions",
            "Denied",
            "Approved and Denied conditions are mutually exclusive",
        ));
    }
    causes
}

fn of_type<'a>(csr: &'a Value, kind: &str) -> Vec<&'a Value> {
    list(csr, "status.conditions").iter().filter(|condition| text(condition, "type") == kind).collect()
}

fn certificate_problem(encoded: &str, csr: &Value) -> Option<String> {
    if encoded.is_empty() {
        return None;
    }
    let pem = fields::bytes(csr, "status.certificate").unwrap_or_default();
    let blocks: Vec<Pem> = Pem::iter_from_buffer(&pem).map_while(Result::ok).collect();
    if blocks.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block".into());
    }
    blocks.iter().find_map(|block| {
        if block.label != "CERTIFICATE" {
            let label = &block.label;
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {label:?}"));
        }
        X509Certificate::from_der(&block.contents).err().map(|e| format!("x509: {e}"))
    })
}

#[cfg(test)]
mod tests;
