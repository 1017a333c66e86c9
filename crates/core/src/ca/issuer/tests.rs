use std::time::Duration;

use ring::rand::SystemRandom;
use x509_parser::extensions::ParsedExtension;

use super::*;
use crate::ca::authority::Origin;
use crate::keys::public::KeyKind;
use crate::policy::tests::mk_rules;
use crate::policy::{Submission, evaluate};
use crate::registry::{AddOn, AddOnFacts, ClusterFacts, Registry, Revocation};

pub(crate) const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
const OCM_REQUEST: &[u8] = include_bytes!("../../../../../certs/requests/good/ocm-agent-v1.3.pem");

pub(crate) fn mk_approved() -> Approved {
    mk_approved_after(None)
}

/// Evidence for an addon whose certificates that begin before this time are revoked.
pub(crate) fn mk_approved_after(revoked_before: Option<Timestamp>) -> Approved {
    let submission = Submission {
        username: "system:open-cluster-management:spoke1:a1".to_owned(),
        groups: vec!["system:open-cluster-management:spoke1".to_owned()],
        usages: vec!["client auth".to_owned()],
        request: OCM_REQUEST.to_vec(),
        ..Submission::default()
    };
    let mut registry = Registry::default();
    registry.set_cluster("spoke1".parse().unwrap(), Some(ClusterFacts::ACCEPTED));
    registry.complete_clusters(|_| true);
    registry.complete_addons(|_| false);
    let revocation = revoked_before.map(|before| Box::new(Revocation { before, by: String::new() }));
    let installed = AddOn { revocation, ..AddOnFacts::Installed.into() };
    registry.put_addon("spoke1".parse().unwrap(), "telemetry".parse().unwrap(), Some(installed));
    evaluate(&mk_rules(), &submission, &registry).unwrap()
}

pub(crate) fn mk_issuer(kind: KeyKind, life: Duration) -> Issuer {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(kind, &rng).unwrap();
    Issuer::new(Authority::self_signed("client CA telemetry", &key, NOW, life, &rng).unwrap(), key).unwrap()
}

pub(crate) const YEAR: Duration = Duration::from_secs(365 * 86_400);

pub(crate) fn bundle(issuer: &Issuer) -> Bundle {
    Bundle::new(vec![issuer.authority().clone()]).unwrap()
}

fn issue(issuer: &Issuer, now: Timestamp) -> Result<Issued, IssueError> {
    let rng = SystemRandom::new();
    let prepared = issuer.prepare(mk_approved(), Serial::new(now, &rng)?, now)?;
    issuer.sign(prepared, &bundle(issuer), now, &rng)
}

#[test]
fn subject_and_key_are_the_requests_byte_for_byte() {
    for kind in [KeyKind::EcdsaP256, KeyKind::EcdsaP384, KeyKind::Ed25519] {
        let issued = issue(&mk_issuer(kind, YEAR), NOW).unwrap();
        let (_, leaf) = X509Certificate::from_der(&issued.certificate).unwrap();
        let approved = mk_approved();
        assert_eq!(leaf.subject().as_raw(), approved.subject_der());
        assert_eq!(leaf.public_key().raw, approved.public_key_der());
        assert_eq!(leaf.subject().iter_organization().count(), 2, "Go's multi-valued RDN is kept");
    }
}

#[test]
fn an_rsa_authority_of_somebody_else_signs() {
    let rng = SystemRandom::new();
    let pem = include_bytes!("../../../testdata/keys/rsa2048-pkcs1.pem");
    let (key, _) = PrivateKey::from_pem(pem, &rng).unwrap();
    let authority = Authority::self_signed("imported", &key, NOW, YEAR, &rng).unwrap();
    let issued = issue(&Issuer::new(authority, key).unwrap(), NOW).unwrap();
    let (_, leaf) = X509Certificate::from_der(&issued.certificate).unwrap();
    assert_eq!(leaf.signature_algorithm.algorithm.to_id_string(), "1.2.840.113549.1.1.11");
}

#[test]
fn extensions_are_the_templates_and_no_others() {
    let issued = issue(&mk_issuer(KeyKind::EcdsaP256, YEAR), NOW).unwrap();
    let (_, leaf) = X509Certificate::from_der(&issued.certificate).unwrap();
    let oids: Vec<String> = leaf.extensions().iter().map(|extension| extension.oid.to_id_string()).collect();
    assert_eq!(oids, ["2.5.29.15", "2.5.29.37", "2.5.29.19", "2.5.29.14", "2.5.29.35", "2.5.29.17"]);
    let usage = leaf.key_usage().unwrap().unwrap();
    assert!(usage.critical, "digital signature only");
    assert!(usage.value.flags == 1, "digital signature only");
    let purpose = leaf.extended_key_usage().unwrap().unwrap();
    assert!(purpose.value.client_auth);
    assert!(!purpose.value.server_auth);
    assert!(purpose.value.other.is_empty());
    assert!(leaf.extensions().iter().all(|e| !matches!(e.parsed_extension(), ParsedExtension::ParseError { .. })));
}

#[test]
fn a_leaf_is_backdated_and_never_outlives_its_issuer() {
    let issuer = mk_issuer(KeyKind::EcdsaP256, Duration::from_secs(3_600));
    let issued = issue(&issuer, NOW).unwrap();
    assert_eq!(issued.not_after, issuer.authority().not_after());
    let (_, leaf) = X509Certificate::from_der(&issued.certificate).unwrap();
    assert_eq!(leaf.validity().not_before.timestamp(), NOW.unix() - 300);
    assert!(!leaf.is_ca());
}

/// Otherwise it would be revoked at once.
#[test]
fn a_leaf_is_never_backdated_to_before_a_revocation() {
    let issuer = mk_issuer(KeyKind::EcdsaP256, YEAR);
    let rng = SystemRandom::new();
    let ago = |seconds| NOW.minus(Duration::from_secs(seconds));
    for (revoked_before, expected) in
        [(ago(0), ago(0)), (ago(1), ago(1)), (ago(299), ago(299)), (ago(300), ago(300)), (ago(400), ago(300))]
    {
        let approved = mk_approved_after(Some(revoked_before));
        let prepared = issuer.prepare(approved, Serial::new(NOW, &rng).unwrap(), NOW).unwrap();
        let issued = issuer.sign(prepared, &bundle(&issuer), NOW, &rng).unwrap();
        let (_, leaf) = X509Certificate::from_der(&issued.certificate).unwrap();
        assert_eq!((leaf.validity().not_before.timestamp(), issued.not_before), (expected.unix(), expected));
        assert_eq!(issued.not_after, NOW.plus(Duration::from_secs(86_400)), "the life does not move");
    }
}

#[test]
fn nothing_is_signed_before_a_revocation_has_come() {
    let issuer = mk_issuer(KeyKind::EcdsaP256, YEAR);
    let rng = SystemRandom::new();
    let approved = mk_approved_after(Some(NOW.plus(Duration::from_secs(1))));
    let prepared = issuer.prepare(approved, Serial::new(NOW, &rng).unwrap(), NOW).unwrap();
    let refused = issuer.sign(prepared, &bundle(&issuer), NOW, &rng);
    assert!(matches!(refused, Err(IssueError::NotAccepted(_))), "{refused:?}");
}

#[test]
fn an_issuer_near_its_end_or_before_its_start_does_not_issue() {
    let issuer = mk_issuer(KeyKind::EcdsaP256, Duration::from_secs(3_600));
    for now in [NOW.plus(Duration::from_secs(3_001)), NOW.plus(YEAR), NOW.minus(Duration::from_secs(301))] {
        assert!(matches!(issue(&issuer, now), Err(IssueError::OutsideValidity { .. })), "{now}");
    }
}

#[test]
fn a_leaf_that_the_published_bundle_does_not_accept_is_dropped() {
    let issuer = mk_issuer(KeyKind::EcdsaP256, YEAR);
    let other = mk_issuer(KeyKind::EcdsaP256, YEAR);
    let rng = SystemRandom::new();
    let prepared = issuer.prepare(mk_approved(), Serial::new(NOW, &rng).unwrap(), NOW).unwrap();
    let refused = issuer.sign(prepared, &bundle(&other), NOW, &rng);
    assert!(matches!(refused, Err(IssueError::NotAccepted(_))), "{refused:?}");
}

#[test]
fn a_key_of_another_authority_is_not_an_issuer() {
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let authority = mk_issuer(KeyKind::EcdsaP256, YEAR).authority().clone();
    assert!(matches!(Issuer::new(authority, key), Err(IssueError::WrongKey(_))));
}

#[test]
fn serials_differ() {
    let issuer = mk_issuer(KeyKind::EcdsaP256, YEAR);
    let a = issue(&issuer, NOW).unwrap();
    let b = issue(&issuer, NOW).unwrap();
    assert_ne!(a.serial, b.serial);
    assert_eq!(a.serial.to_string().len(), 40);
}

#[test]
fn the_bundle_says_which_authority_vouches() {
    let issuer = mk_issuer(KeyKind::EcdsaP256, YEAR);
    let other = mk_issuer(KeyKind::Ed25519, YEAR);
    let both = Bundle::new(vec![other.authority().clone(), issuer.authority().clone()]).unwrap();
    let issued = issue(&issuer, NOW).unwrap();
    assert_eq!(both.verify(&issued.certificate, Purpose::Client, NOW).unwrap().id(), issuer.authority().id());
    assert!(both.verify(&issued.certificate, Purpose::Server, NOW).is_err());
    let later = issued.not_after.plus(Duration::from_secs(1));
    assert!(both.verify(&issued.certificate, Purpose::Client, later).is_err());
    assert_eq!(Bundle::from_pem(both.pem().as_bytes()).unwrap().digest(), both.digest());
    assert!(both.contains(&bundle(&issuer)));
    assert!(!bundle(&issuer).contains(&both));
    assert!(matches!(Bundle::from_pem(issued.pem().as_bytes()), Err(BundleError::Authority(_))));
    assert_eq!(Bundle::from_pem(b" \n"), Err(BundleError::Empty));
}

#[test]
fn a_certificate_names_its_line_and_no_other() {
    let (issuer, next) = (mk_issuer(KeyKind::EcdsaP256, YEAR), mk_issuer(KeyKind::EcdsaP256, YEAR));
    let issued = issue(&issuer, NOW).unwrap();
    let chain = crate::encoding::pem::encode("CERTIFICATE", &issued.certificate);
    let origin = Origin::read(chain.as_bytes()).unwrap();
    let rng = SystemRandom::new();
    let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let lineage = issuer.authority().name().strip_prefix("CN=").unwrap().rsplit_once(' ').unwrap().0.to_owned();
    let other = |lineage: &str| Authority::self_signed(lineage, &key, NOW, YEAR, &rng).unwrap();
    assert!([issuer.authority(), next.authority(), &other(&lineage)].iter().all(|ours| origin.is_of_lineage(ours)));
    for another in [format!("{lineage}2"), lineage[1..].to_owned(), format!("{lineage} x")] {
        assert!(!origin.is_of_lineage(&other(&another)), "{another}");
    }
    assert_eq!((origin.issuer(), origin.not_after()), (issuer.authority().name(), issued.not_after));
    assert_eq!(Origin::read(b"x"), None);
}
