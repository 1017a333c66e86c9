//! The golden certificates of `certs/profiles`: what is issued today is the same, byte for byte.
//!
//! `UPDATE_PROFILES=1 cargo test --test it profiles` writes new files. Serial number and signature differ in each run:
//! the test puts the golden certificate's serial number into the new one before it compares the signed parts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::{Bundle, Purpose};
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::csr::build::CsrParams;
use addon_signer_core::identity::{Convention, PeerIdentity};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::policy::{
    Approved, GATEWAY_COMMON_NAME, GatewayCertificate, Submission, evaluate, evaluate_gateway,
};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_hub::authorities::store::LineageNames;
use ring::rand::SystemRandom;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::requests::Fixture;
use crate::requests::tlv::{SEQUENCE, children, list};
use keys::PublishedKey;
use test_kit::needed::{Needed, found};

mod keys;

/// 2027-01-01T00:00:00Z.
const NOW: Timestamp = Timestamp::from_unix(1_798_761_600);
/// The default of `spec.authority.duration`, and how long the serving CA is valid.
const CA_LIFE: Duration = Duration::from_secs(365 * 86_400);
const NAMES: [&str; 6] =
    ["client-ca", "serving-ca", "gateway-client-ca", "client-leaf", "serving-leaf", "gateway-client-leaf"];

/// Issues one certificate of each kind, in the order of [`NAMES`].
fn issue_all() -> [String; 6] {
    let client_ca = issuer(&LineageNames::client("telemetry", "example.com/telemetry").authority, &keys::CLIENT_CA);
    let serving_ca = issuer(&LineageNames::gateway(GatewayCertificate::Serving).authority, &keys::SERVING_CA);
    let gateway = LineageNames::gateway(GatewayCertificate::Client);
    let gateway_ca = issuer(&gateway.authority, &keys::GATEWAY_CLIENT_CA);
    let client = issue(&client_ca, approved_client(&keys::CLIENT.load()));
    let serving = issue(&serving_ca, approved_gateway(GatewayCertificate::Serving, &keys::SERVING.load()));
    let gateway = issue(&gateway_ca, approved_gateway(GatewayCertificate::Client, &keys::GATEWAY_CLIENT.load()));
    let [client_ca, serving_ca, gateway_ca] = [client_ca, serving_ca, gateway_ca].map(|ca| ca.authority().pem());
    [client_ca, serving_ca, gateway_ca, client, serving, gateway]
}

fn issuer(name: &str, key: &PublishedKey) -> Issuer {
    let key = key.load();
    let authority = Authority::self_signed(name, &key, NOW, CA_LIFE, &SystemRandom::new()).unwrap();
    Issuer::new(authority, key).unwrap()
}

fn issue(issuer: &Issuer, approved: Approved) -> String {
    let rng = SystemRandom::new();
    let published = Bundle::new(vec![issuer.authority().clone()]).unwrap();
    let prepared = issuer.prepare(approved, Serial::new(NOW, &rng).unwrap(), NOW).unwrap();
    issuer.sign(prepared, &published, NOW, &rng).unwrap().pem()
}

/// An approved request of the agent of the addon telemetry on spoke1, by OCM's convention.
fn approved_client(key: &PrivateKey) -> Approved {
    let convention = Convention::default();
    let identity = PeerIdentity {
        cluster: "spoke1".parse().unwrap(),
        addon: "telemetry".parse().unwrap(),
        agent: "telemetry".parse().unwrap(),
    };
    let wish = CsrParams {
        common_name: convention.user(&identity),
        organizations: convention.groups(&identity.cluster, &identity.addon),
        dns_names: convention.dns_names(&identity.cluster, &identity.addon),
        ip_addresses: Vec::new(),
    };
    let submission = Submission {
        username: "system:open-cluster-management:spoke1:a1".to_owned(),
        groups: vec!["system:open-cluster-management:spoke1".to_owned()],
        usages: vec!["client auth".to_owned()],
        request: wish.sign(key, &SystemRandom::new()).unwrap().into_bytes(),
        ..Submission::default()
    };
    evaluate(&Fixture::Installed.rules(), &submission, &Fixture::Installed.registry()).unwrap()
}

fn approved_gateway(certificate: GatewayCertificate, key: &PrivateKey) -> Approved {
    let rules = Fixture::gateway_rules();
    let has_names = certificate == GatewayCertificate::Serving;
    let wish = CsrParams {
        common_name: GATEWAY_COMMON_NAME.to_owned(),
        organizations: Vec::new(),
        dns_names: rules.dns_names.iter().filter(|_| has_names).cloned().collect(),
        ip_addresses: rules.ip_addresses.iter().filter(|_| has_names).copied().collect(),
    };
    let submission = Submission {
        username: rules.account.clone(),
        usages: vec![certificate.usage().to_owned()],
        request: wish.sign(key, &SystemRandom::new()).unwrap().into_bytes(),
        ..Submission::default()
    };
    evaluate_gateway(&rules, certificate, &submission).unwrap()
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("certs/profiles")
}

/// The golden certificates as they are committed, in the order of [`NAMES`].
pub(crate) fn golden() -> [CertificateDer<'static>; 6] {
    NAMES.map(|name| CertificateDer::from_pem_file(directory().join(format!("{name}.pem"))).unwrap())
}

#[test]
fn what_is_issued_is_what_the_golden_certificates_show() {
    let issued = issue_all();
    if std::env::var_os("UPDATE_PROFILES").is_some() {
        for (name, pem) in NAMES.iter().zip(&issued) {
            fs::write(directory().join(format!("{name}.pem")), pem).unwrap();
        }
    }
    for ((name, golden), pem) in NAMES.iter().zip(golden()).zip(&issued) {
        let new = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let [old_tbs, old_algorithm, _] = parts(&golden);
        let [new_tbs, new_algorithm, _] = parts(&new);
        let old = openssl_text(&golden);
        let new = openssl_text(&new);
        assert!(with_serial_of(new_tbs, old_tbs) == old_tbs, "{name} is not what is issued now:\n{old}\n{new}");
        assert_eq!(old_algorithm, new_algorithm, "{name}");
    }
}

/// The parts of a certificate: signed part, algorithm, signature.
fn parts(certificate: &[u8]) -> [&[u8]; 3] {
    children(certificate).unwrap().try_into().unwrap()
}

/// `tbs` with the serial number of `other`, which is the second piece of both.
fn with_serial_of(tbs: &[u8], other: &[u8]) -> Vec<u8> {
    let mut pieces = children(tbs).unwrap();
    let others = children(other).unwrap();
    pieces[1] = others[1];
    list(SEQUENCE, &pieces)
}

#[test]
fn serial_numbers_are_positive_random_and_of_at_most_20_bytes() {
    let one = issue_all();
    let other = issue_all();
    let serial = |pem: &String| {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        X509Certificate::from_der(&der).unwrap().1.raw_serial().to_vec()
    };
    let pairs = one.iter().map(serial).zip(other.iter().map(serial));
    for ((one, other), name) in pairs.zip(NAMES) {
        // RFC 5280 section 4.1.2.2: positive, and at most 20 octets. An authority's serial number is all random, and
        // DER drops leading zeros. The first four octets of a leaf's are the time.
        let (lengths, time) = if name.ends_with("ca") { (12..=17, 0) } else { (20..=20, 4) };
        assert!(lengths.contains(&one.len()), "{name} {one:x?}");
        assert!(one[0] < 0x80, "{name} {one:x?}");
        assert_ne!(one[time..], other[time..]);
    }
}

#[test]
fn golden_leaves_are_accepted_only_by_own_ca_for_own_purpose() {
    let [client_ca, serving_ca, gateway_ca, client, serving, gateway] = golden();
    let bundle = |der: &[u8]| Bundle::new(vec![Authority::from_der(der).unwrap()]).unwrap();
    let cas = [client_ca, serving_ca, gateway_ca].map(|ca| bundle(&ca));
    let leaves = [(&client, Purpose::Client), (&serving, Purpose::Server), (&gateway, Purpose::Client)];
    for (at, ca) in cas.iter().enumerate() {
        for (of, (leaf, own)) in leaves.iter().enumerate() {
            for purpose in [Purpose::Client, Purpose::Server] {
                let is_accepted = ca.verify(leaf, purpose, NOW).is_ok();
                assert_eq!(is_accepted, at == of && purpose == *own, "{} by {}", NAMES[of + 3], NAMES[at]);
            }
        }
    }
}

/// The tables name all extensions and no others. Each row of a table begins with the object identifier.
#[test]
fn the_tables_list_the_extensions_of_the_golden_certificates() {
    for (name, golden) in NAMES.iter().zip(golden()) {
        let table = fs::read_to_string(directory().join(format!("{name}.md"))).unwrap();
        let rows: Vec<&str> =
            table.lines().filter_map(|line| line.strip_prefix("| `2.5.29.")?.split('`').next()).collect();
        let (_, parsed) = X509Certificate::from_der(&golden).unwrap();
        let oids: Vec<String> = parsed.extensions().iter().map(|extension| extension.oid.to_id_string()).collect();
        assert_eq!(rows.iter().map(|row| format!("2.5.29.{row}")).collect::<Vec<_>>(), oids, "{name}.md");
        for (row, extension) in table.lines().filter(|line| line.starts_with("| `2.5.29.")).zip(parsed.extensions()) {
            assert_eq!(row.contains("| critical |"), extension.critical, "{name}.md: {row}");
        }
    }
}

/// OpenSSL checks new certificates too, if it is installed.
#[test]
fn openssl_accepts_a_new_chain() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, pem) in NAMES.iter().zip(issue_all()) {
        fs::write(scratch.path().join(name), pem).unwrap();
    }
    let at = NOW.unix().to_string();
    for (ca, leaf, purpose, wrong) in [
        ("client-ca", "client-leaf", "sslclient", "sslserver"),
        ("serving-ca", "serving-leaf", "sslserver", "sslclient"),
        ("gateway-client-ca", "gateway-client-leaf", "sslclient", "sslserver"),
    ] {
        let verify = |purpose, ca| {
            let arguments = ["verify", "-x509_strict", "-check_ss_sig", "-attime", &at, "-purpose", purpose];
            openssl(Command::new("openssl").args(arguments).args(["-CAfile", ca, leaf]).current_dir(scratch.path()))
        };
        let accepted = verify(purpose, ca);
        let Some(accepted) = found(Needed::Openssl, accepted) else { return };
        assert!(accepted.status.success(), "{leaf}: {}", String::from_utf8_lossy(&accepted.stderr));
        assert!(!verify(wrong, ca).unwrap().status.success(), "{leaf} as {wrong}");
        let foreign = if ca == "client-ca" { "serving-ca" } else { "client-ca" };
        assert!(!verify(purpose, foreign).unwrap().status.success(), "{leaf} by {foreign}");
    }
}

/// The output of `openssl x509 -text`, for people who read a failure; empty without OpenSSL.
fn openssl_text(der: &[u8]) -> String {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("certificate"), der).unwrap();
    let arguments = ["x509", "-inform", "DER", "-noout", "-text", "-in", "certificate"];
    let output = openssl(Command::new("openssl").args(arguments).current_dir(scratch.path()));
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

fn openssl(command: &mut Command) -> Option<Output> {
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        output => Some(output.unwrap()),
    }
}
