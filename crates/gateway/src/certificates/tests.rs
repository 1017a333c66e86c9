use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::certificates::v1::{CertificateSigningRequestCondition, CertificateSigningRequestStatus};
use kube::client::Body;
use serde_json::json;

use super::*;
use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::policy::{GatewayCertificate, GatewayRules, Submission, evaluate_gateway};
use addon_signer_telemetry::pulse::{HANGS_AFTER, Pulses};

const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);

fn mk_names(dns: &str) -> CertificateOrder {
    let names = ServingNames { dns: [dns.to_owned()].into(), ips: ["127.0.0.1".parse().unwrap()].into() };
    CertificateOrder { certificate: GatewayCertificate::Serving, names }
}

fn mk_key() -> PrivateKey {
    PrivateKey::generate(KeyKind::EcdsaP256, &SystemRandom::new()).unwrap().0
}

fn mk_issuer() -> Issuer {
    let key = mk_key();
    let authority = Authority::self_signed("serving CA", &key, NOW, 24 * HOUR, &SystemRandom::new()).unwrap();
    Issuer::new(authority, key).unwrap()
}

fn mk_trust(issuer: &Issuer) -> Trust {
    let anchors = Bundle::new(vec![issuer.authority().clone()]).unwrap();
    Trust { serving_active: Some(issuer.authority().id().clone()), serving_anchors: Some(anchors), ..Trust::default() }
}

fn mk_leaf(
    issuer: &Issuer,
    key: &PrivateKey,
    wanted @ CertificateOrder { names, .. }: &CertificateOrder,
) -> CertificateDer<'static> {
    let rng = SystemRandom::new();
    let wish = CsrParams {
        common_name: GATEWAY_COMMON_NAME.to_owned(),
        organizations: Vec::new(),
        dns_names: names.dns.iter().cloned().collect(),
        ip_addresses: names.ips.iter().copied().collect(),
    };
    let rules = GatewayRules {
        account: "gateway".to_owned(),
        dns_names: names.dns.clone(),
        ip_addresses: names.ips.clone(),
        duration: 3 * HOUR,
    };
    let submission = Submission {
        username: "gateway".to_owned(),
        usages: vec![wanted.certificate.usage().to_owned()],
        request: wish.sign(key, &rng).unwrap().into_bytes(),
        ..Submission::default()
    };
    let approved = evaluate_gateway(&rules, wanted.certificate, &submission).unwrap();
    let prepared = issuer.prepare(approved, Serial::new(NOW, &rng).unwrap(), NOW).unwrap();
    issuer.sign(prepared, &mk_trust(issuer).serving_anchors.unwrap(), NOW, &rng).unwrap().certificate
}

#[test]
fn a_valid_certificate_is_renewed_at_two_thirds() {
    let issuer = mk_issuer();
    let key = mk_key();
    let names = mk_names("gateway.example");
    let checked = check(&[mk_leaf(&issuer, &key, &names)], "r", &key, &names, &mk_trust(&issuer), NOW).unwrap();
    assert_eq!(checked.issuer, *issuer.authority().id());
    assert_eq!(checked.renew_at, NOW.plus(2 * HOUR));
    assert!(checked.not_before <= NOW, "{checked:?}");
}

#[test]
fn certificates_that_agents_would_not_accept_are_not_used() {
    let issuer = mk_issuer();
    let key = mk_key();
    let names = mk_names("gateway.example");
    let leaf = mk_leaf(&issuer, &key, &names);
    let trust = mk_trust(&issuer);
    let verdict = |key: &PrivateKey, names: &CertificateOrder, trust: &Trust, now| {
        check(std::slice::from_ref(&leaf), "r", key, names, trust, now).unwrap_err()
    };
    assert!(matches!(verdict(&mk_key(), &names, &trust, NOW), CertificateError::AnotherKey(_)));
    let other = mk_names("other.example");
    assert!(
        matches!(verdict(&key, &other, &trust, NOW), CertificateError::NameMissing(name) if name == "other.example")
    );
    assert!(matches!(verdict(&key, &names, &mk_trust(&mk_issuer()), NOW), CertificateError::NotAccepted(_)));
    assert!(matches!(verdict(&key, &names, &trust, NOW.plus(4 * HOUR)), CertificateError::NotAccepted(_)));
    assert!(matches!(verdict(&key, &names, &Trust::default(), NOW), CertificateError::NoAnchors));
    let garbage = CertificateDer::from(b"hello".to_vec());
    let unreadable = check(std::slice::from_ref(&garbage), "r", &key, &names, &trust, NOW);
    assert!(matches!(unreadable, Err(CertificateError::Unreadable(_))));
}

#[test]
fn the_certificate_for_backends_must_be_one_for_clients() {
    let issuer = mk_issuer();
    let key = mk_key();
    let Trust { serving_active, serving_anchors, .. } = mk_trust(&issuer);
    let trust = Trust { client_active: serving_active, client_anchors: serving_anchors, ..Trust::default() };
    let nameless = CertificateOrder::for_backends();
    let own = mk_leaf(&issuer, &key, &nameless);
    assert_eq!(
        check(std::slice::from_ref(&own), "r", &key, &nameless, &trust, NOW).unwrap().issuer,
        *issuer.authority().id()
    );
    let serving = mk_leaf(&issuer, &key, &mk_names("gateway.example"));
    let refused = check(std::slice::from_ref(&serving), "r", &key, &nameless, &trust, NOW);
    assert!(matches!(refused, Err(CertificateError::NotAccepted(_))), "{refused:?}");
    let refused = check(std::slice::from_ref(&own), "r", &key, &nameless, &mk_trust(&issuer), NOW);
    assert!(matches!(refused, Err(CertificateError::NoAnchors)), "{refused:?}");
}

fn mk_request(condition: Option<&str>, certificate: Option<&[u8]>) -> CertificateSigningRequest {
    let condition = condition.map(|type_| CertificateSigningRequestCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some("NotTheGateway".to_owned()),
        message: Some("no".to_owned()),
        ..CertificateSigningRequestCondition::default()
    });
    let status = CertificateSigningRequestStatus {
        conditions: condition.map(|condition| vec![condition]),
        certificate: certificate.map(|pem| ByteString(pem.to_vec())),
    };
    CertificateSigningRequest { status: Some(status), ..CertificateSigningRequest::default() }
}

#[test]
fn a_request_is_open_until_it_is_refused_or_has_a_certificate() {
    assert!(answer(&CertificateSigningRequest::default(), "r").is_none());
    assert!(answer(&mk_request(Some("Approved"), None), "r").is_none());
    assert!(answer(&mk_request(Some("Approved"), Some(b"")), "r").is_none());
    assert_eq!(answer(&mk_request(Some("Approved"), Some(b"pem")), "r").unwrap().unwrap(), b"pem");
    assert!(answer(&mk_request(Some("RateLimited"), None), "r").is_none());
    for refused in ["Denied", "Failed", "RecordUnusable"] {
        let error = answer(&mk_request(Some(refused), None), "r").unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the request r was refused: NotTheGateway: no");
    }
}

#[tokio::test(start_paused = true)]
async fn while_no_certificate_is_needed_there_are_signs_of_life() {
    let pulses = Pulses::default();
    let pulse = pulses.start("renewal");
    let (_sender, mut trust) = watch::channel(Arc::new(Trust::default()));
    let clock = Clock::default();
    let waiting = until_due(GatewayCertificate::Serving, None, &clock, &mut trust, &pulse);
    assert!(tokio::time::timeout(2 * HANGS_AFTER, waiting).await.is_err());
    assert!(pulses.silent(2 * POLL).is_empty());
}

/// CSRs without a decision would pile up while no signer runs.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_answered_for_a_day_stays_the_only_one() {
    let made = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&made);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let object = json!({ "metadata": { "name": "a", "resourceVersion": "1" } });
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let body = if request.method() == http::Method::POST {
            counted.fetch_add(1, Ordering::SeqCst);
            Some(object)
        } else {
            (!is_watch).then(|| json!({ "metadata": { "resourceVersion": "1" }, "items": [object] }))
        };
        async move {
            let Some(body) = body else { return std::future::pending().await };
            Ok::<_, Infallible>(http::Response::new(Body::from(body.to_string().into_bytes())))
        }
    });
    let pulses = Pulses::default();
    let pulse = pulses.start("renewal");
    let requests = Api::all(Client::new(service, "default"));
    let trust = watch::channel(Arc::new(mk_trust(&mk_issuer()))).1;
    let (wanted, clock) = (mk_names("gateway.example"), Clock::default());
    let waiting = obtain(&requests, &wanted, &clock, &trust, &pulse);
    assert!(tokio::time::timeout(24 * HOUR, waiting).await.is_err());
    assert_eq!(made.load(Ordering::SeqCst), 1);
    assert!(pulses.silent(2 * REMINDER).is_empty(), "it waits, and does not hang");
}
