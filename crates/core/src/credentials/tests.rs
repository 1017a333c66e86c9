//! Every reason to replace credentials, and the point of renewal.

use ring::rand::SystemRandom;

use super::*;
use crate::ca::authority::Authority;
use crate::keys::public::KeyKind;

const NOW: i64 = 1_800_000_000;
const LIFE: i64 = 86_400;

/// What tests vary of a good leaf. It has one group, because rcgen keeps only one O.
struct Leaf {
    user: &'static str,
    group: &'static str,
    unit: Option<&'static str>,
    dns_name: &'static str,
    purpose: rcgen::ExtendedKeyUsagePurpose,
}

const GOOD: Leaf = Leaf {
    user: "user",
    group: "group",
    unit: None,
    dns_name: "telemetry.example",
    purpose: rcgen::ExtendedKeyUsagePurpose::ClientAuth,
};

fn wanted() -> Wanted {
    let set = |text: &str| BTreeSet::from([text.to_owned()]);
    Wanted { user: "user".to_owned(), groups: set("group"), dns_names: set("telemetry.example") }
}

fn credentials(leaf: &Leaf) -> Credentials {
    let rng = SystemRandom::new();
    let (key, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let mut params = rcgen::CertificateParams::new(vec![leaf.dns_name.to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, leaf.group);
    params.distinguished_name.push(rcgen::DnType::CommonName, leaf.user);
    if let Some(unit) = leaf.unit {
        params.distinguished_name.push(rcgen::DnType::OrganizationalUnitName, unit);
    }
    params.extended_key_usages = vec![leaf.purpose.clone()];
    params.not_before = time::OffsetDateTime::from_unix_timestamp(NOW).unwrap();
    params.not_after = time::OffsetDateTime::from_unix_timestamp(NOW + LIFE).unwrap();
    let certificate = params.self_signed(&rcgen::KeyPair::try_from(pkcs8.as_slice()).unwrap()).unwrap();
    let day = Duration::from_secs(86_400);
    let authority = Authority::self_signed("serving", &key, Timestamp::from_unix(NOW), day, &rng).unwrap();
    Credentials {
        certificate: certificate.pem().into_bytes(),
        key: Zeroizing::new(crate::encoding::pem::encode_private(&pkcs8).as_bytes().to_vec()),
        bundle: authority.pem().into_bytes(),
    }
}

fn unusable(credentials: &Credentials, at: i64) -> Unusable {
    let rng = SystemRandom::new();
    match plan(Some(credentials), &wanted(), Timestamp::from_unix(at), &rng) {
        Plan::Enrol(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn valid_credentials_are_kept_until_two_thirds_and_then_renewed() {
    let good = credentials(&GOOD);
    let rng = SystemRandom::new();
    let at = |seconds| plan(Some(&good), &wanted(), Timestamp::from_unix(NOW + seconds), &rng);
    assert!(matches!(at(0), Plan::Keep(_)));
    assert!(matches!(at(LIFE * 60 / 100 - 1), Plan::Keep(_)));
    assert!(matches!(at(LIFE * 70 / 100 + 1), Plan::Renew(_)));
    assert!(matches!(at(LIFE), Plan::Renew(_)));
    let Plan::Keep(usable) = at(0) else { panic!() };
    let Plan::Renew(later) = at(LIFE) else { panic!() };
    assert_eq!(usable.renew_at, later.renew_at, "drawn once for a certificate");
    assert!(!format!("{usable:?}").contains("pkcs8"));
}

#[test]
fn renewals_of_a_fleet_are_spread_between_60_and_70_percent() {
    let from = Timestamp::from_unix(NOW);
    let drawn: BTreeSet<_> =
        (0..200_u32).map(|n| renewal(&n.to_be_bytes(), from, from.plus(Duration::from_secs(10_000))).unix()).collect();
    assert!(drawn.len() > 100);
    assert!(drawn.iter().all(|at| (NOW + 6_000..=NOW + 7_000).contains(at)));
    assert!(drawn.first().is_some_and(|first| *first < NOW + 6_100));
    assert!(drawn.last().is_some_and(|last| *last > NOW + 6_900));
}

#[test]
fn nothing_stored_means_enrol() {
    let now = Timestamp::from_unix(NOW);
    assert!(matches!(plan(None, &wanted(), now, &SystemRandom::new()), Plan::Enrol(Unusable::Missing)));
}

#[test]
fn incomplete_or_unreadable_files_are_replaced() {
    let good = credentials(&GOOD);
    for name in [CERTIFICATE, KEY, "ca.crt"] {
        let with = |content: &[u8]| {
            let mut bad = good.clone();
            match name {
                CERTIFICATE => bad.certificate = content.to_vec(),
                KEY => bad.key = Zeroizing::new(content.to_vec()),
                _ => bad.bundle = content.to_vec(),
            }
            unusable(&bad, NOW)
        };
        assert_eq!(with(b" \n"), Unusable::Absent(name));
        let garbage = with(b"garbage");
        let expected = match name {
            CERTIFICATE => Unusable::Certificate,
            KEY => Unusable::Key(KeyError::Unreadable),
            _ => Unusable::Bundle(BundleError::NotCertificates(crate::encoding::pem::PemError::NoBlock)),
        };
        assert_eq!(garbage, expected);
    }
}

#[test]
fn a_key_of_another_certificate_is_replaced() {
    let mixed = Credentials { key: credentials(&GOOD).key, ..credentials(&GOOD) };
    assert_eq!(unusable(&mixed, NOW), Unusable::KeyMismatch);
}

#[test]
fn another_identity_is_replaced() {
    for leaf in [Leaf { user: "other", ..GOOD }, Leaf { group: "other", ..GOOD }, Leaf { unit: Some("unit"), ..GOOD }] {
        assert!(matches!(unusable(&credentials(&leaf), NOW), Unusable::OtherIdentity(_)));
    }
    let other_name = Leaf { dns_name: "other.example", ..GOOD };
    assert_eq!(unusable(&credentials(&other_name), NOW), Unusable::DnsName("telemetry.example".to_owned()));
    let server = Leaf { purpose: rcgen::ExtendedKeyUsagePurpose::ServerAuth, ..GOOD };
    assert_eq!(unusable(&credentials(&server), NOW), Unusable::NotForClients);
}

#[test]
fn outside_its_life_a_certificate_is_replaced() {
    let good = credentials(&GOOD);
    assert_eq!(unusable(&good, NOW - 1), Unusable::NotYetValid(Timestamp::from_unix(NOW)));
    assert_eq!(unusable(&good, NOW + LIFE + 1), Unusable::Expired(Timestamp::from_unix(NOW + LIFE)));
}

#[test]
fn debug_of_credentials_shows_no_key() {
    let key = Zeroizing::new(b"secret".to_vec());
    let credentials = Credentials { certificate: vec![1], key, bundle: vec![] };
    assert_eq!(format!("{credentials:?}"), "Credentials(1 bytes of certificate, private key, 0 bytes of CA)");
}
