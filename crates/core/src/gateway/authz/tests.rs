//! Tests of identities. rcgen makes the leaves, because policy would not approve most of them.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SerialNumber,
};

use super::*;
use crate::ca::authority::Authority;
use crate::ca::bundle::Bundle;
use crate::gateway::attachment::Attachment;
use crate::gateway::route::RouteName;
use crate::identity::Convention;

const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
const USER: &str = "system:open-cluster-management:cluster:c1:addon:a1:agent:x";
const GROUP: &str = "system:open-cluster-management:cluster:c1:addon:a1";

struct Ca {
    authority: Authority,
    issuer: Issuer<'static, KeyPair>,
}

fn mk_ca(name: &str) -> Ca {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let authority = Authority::from_der(params.self_signed(&key).unwrap().der()).unwrap();
    Ca { authority, issuer: Issuer::new(params, key) }
}

fn time(at: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(at.unix()).unwrap()
}

fn mk_params(user: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.serial_number = Some(SerialNumber::from_slice(&[0x0a, 0xbc]));
    params.not_before = time(NOW.minus(Duration::from_secs(60)));
    params.not_after = time(NOW.plus(Duration::from_secs(60)));
    params
}

#[expect(clippy::disallowed_methods, reason = "bad leaves, which our own issuer cannot make")]
fn sign(ca: &Ca, params: &CertificateParams) -> CertificateDer<'static> {
    params.signed_by(&KeyPair::generate().unwrap(), &ca.issuer).unwrap().der().clone()
}

fn mk_signer(name: &str, addons: &[&str], ca: &Ca) -> Arc<SignerTrust> {
    Arc::new(SignerTrust {
        name: name.to_owned(),
        signer_name: format!("example.com/{name}").parse().unwrap(),
        addons: addons.iter().map(|addon| addon.parse().unwrap()).collect(),
        convention: Convention::default(),
        client_anchors: Bundle::new(vec![ca.authority.clone()]).unwrap(),
        renew_within: Default::default(),
        attachment: Attachment::default(),
    })
}

fn mk_trust(signers: Vec<Arc<SignerTrust>>) -> Trust {
    Trust { signers, ..Trust::default() }
}

fn refusal(params: &CertificateParams) -> NotAnIdentity {
    let ca = mk_ca("ca");
    identify(&mk_trust(vec![mk_signer("s1", &["a1"], &ca)]), &sign(&ca, params), NOW).unwrap_err()
}

#[test]
fn a_valid_certificate_is_one_identity() {
    let ca = mk_ca("ca");
    let other = mk_ca("other");
    let signer = mk_signer("s1", &["a1"], &ca);
    let second = mk_signer("s2", &["a2"], &other);
    let leaf = sign(&ca, &mk_params(USER, Some(GROUP)));
    let peer = identify(&mk_trust(vec![second, Arc::clone(&signer)]), &leaf, NOW).unwrap();
    let expected = Peer {
        identity: PeerIdentity {
            cluster: "c1".parse().unwrap(),
            addon: "a1".parse().unwrap(),
            agent: "x".parse().unwrap(),
        },
        user: USER.to_owned(),
        groups: vec![GROUP.to_owned()],
        signer,
        issuer: ca.authority.id().clone(),
        serial: Serial::from_hex("0000000000000000000000000000000000000abc").unwrap(),
        not_before: NOW.minus(Duration::from_secs(60)),
        not_after: NOW.plus(Duration::from_secs(60)),
        headers: peer.headers.clone(),
    };
    assert_eq!(peer, expected);
    let mut headers = http::HeaderMap::new();
    let route = RouteName { namespace: "n".to_owned(), name: "r".to_owned() };
    peer.headers.set(&route, &mut headers).unwrap();
    let value = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(value("x-remote-user"), USER);
    assert_eq!(value("x-remote-group"), GROUP);
    assert_eq!(value("client-cert"), format!(":{}:", data_encoding::BASE64.encode(&leaf)));
    let subject = format!(";Subject=\"O={GROUP},CN={USER}\"");
    assert!(value("x-forwarded-client-cert").ends_with(&subject), "{}", value("x-forwarded-client-cert"));
    let ours = ["cluster", "addon", "agent", "signer", "route"].map(|name| value(&format!("x-addon-signer-{name}")));
    assert_eq!(ours, ["c1", "a1", "x", "s1", "n/r"]);
}

#[test]
fn system_authenticated_is_allowed_and_grants_nothing() {
    let ca = mk_ca("ca");
    let leaf = sign(&ca, &mk_params(USER, Some("system:authenticated")));
    let peer = identify(&mk_trust(vec![mk_signer("s1", &["a1"], &ca)]), &leaf, NOW).unwrap();
    assert_eq!(peer.groups, Vec::<String>::new());
}

/// Invariant I14, even if both signers list the addon.
#[test]
fn certificate_of_another_addons_ca_is_no_identity() {
    let ca = mk_ca("ca");
    let other = mk_ca("other");
    let of_other = sign(&other, &mk_params(USER, Some(GROUP)));
    let trust = mk_trust(vec![mk_signer("s1", &["a1"], &ca), mk_signer("s2", &["a2"], &other)]);
    let expected = NotAnIdentity::AddOnNotOfSigner { addon: "a1".parse().unwrap(), signer: "s2".to_owned() };
    assert_eq!(identify(&trust, &of_other, NOW), Err(expected));
    let trust = mk_trust(vec![mk_signer("s1", &["a1"], &ca), mk_signer("s2", &["a1", "a2"], &other)]);
    assert_eq!(identify(&trust, &of_other, NOW).unwrap().signer.name, "s2", "never the identity of s1");
}

#[test]
fn certificate_that_two_signers_vouch_for_is_no_identity() {
    let ca = mk_ca("ca");
    let trust = mk_trust(vec![mk_signer("s1", &["a1"], &ca), mk_signer("s2", &["a2"], &ca)]);
    let refused = identify(&trust, &sign(&ca, &mk_params(USER, None)), NOW);
    assert_eq!(refused, Err(NotAnIdentity::Ambiguous("s1".to_owned(), "s2".to_owned())));
}

#[test]
fn certificate_of_a_ca_that_no_signer_has_is_no_identity() {
    let ca = mk_ca("ca");
    let other = mk_ca("ca");
    let trust = mk_trust(vec![mk_signer("s1", &["a1"], &ca)]);
    assert_eq!(identify(&trust, &sign(&other, &mk_params(USER, None)), NOW), Err(NotAnIdentity::Untrusted));
    assert_eq!(identify(&Trust::default(), &sign(&ca, &mk_params(USER, None)), NOW), Err(NotAnIdentity::Untrusted));
}

#[test]
fn certificate_outside_its_times_is_no_identity() {
    let ca = mk_ca("ca");
    let trust = mk_trust(vec![mk_signer("s1", &["a1"], &ca)]);
    let leaf = sign(&ca, &mk_params(USER, None));
    let first = NOW.minus(Duration::from_secs(60));
    let last = NOW.plus(Duration::from_secs(60));
    assert!(identify(&trust, &leaf, first).is_ok());
    assert!(identify(&trust, &leaf, last).is_ok());
    let early = first.minus(Duration::from_secs(1));
    let late = last.plus(Duration::from_secs(1));
    assert_eq!(identify(&trust, &leaf, early), Err(NotAnIdentity::NotYetValid(first)));
    assert_eq!(identify(&trust, &leaf, late), Err(NotAnIdentity::Expired(last)));
}

#[test]
fn certificate_of_a_server_is_no_identity() {
    let mut params = mk_params(USER, None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    assert_eq!(refusal(&params), NotAnIdentity::NotForClients);
    params.extended_key_usages = Vec::new();
    assert_eq!(refusal(&params), NotAnIdentity::NotForClients);
}

#[test]
fn certificate_of_a_ca_itself_is_no_identity() {
    let mut params = mk_params(USER, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    assert_eq!(refusal(&params), NotAnIdentity::Authority);
}

#[test]
fn subjects_outside_the_convention_are_no_identity() {
    let mut nameless = mk_params(USER, None);
    nameless.distinguished_name = rcgen::DistinguishedName::new();
    assert_eq!(refusal(&nameless), NotAnIdentity::CommonNames(0));
    let foreign = "system:masters";
    assert!(matches!(refusal(&mk_params(foreign, None)), NotAnIdentity::CommonName(_)));
    let grouped = refusal(&mk_params(USER, Some(foreign)));
    assert_eq!(grouped, NotAnIdentity::Organization(foreign.to_owned()));
    let of_another_cluster = "system:open-cluster-management:cluster:c2:addon:a1";
    let grouped = refusal(&mk_params(USER, Some(of_another_cluster)));
    assert_eq!(grouped, NotAnIdentity::Organization(of_another_cluster.to_owned()));
}

#[test]
fn other_bytes_are_no_identity() {
    let ca = mk_ca("ca");
    let trust = mk_trust(vec![mk_signer("s1", &["a1"], &ca)]);
    let mut longer = sign(&ca, &mk_params(USER, None)).to_vec();
    longer.push(0);
    for bytes in [b"".as_slice(), b"hello", &longer] {
        let leaf = CertificateDer::from(bytes.to_vec());
        assert_eq!(identify(&trust, &leaf, NOW), Err(NotAnIdentity::Unreadable));
    }
}
