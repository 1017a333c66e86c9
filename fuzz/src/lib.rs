//! What the targets share: a hub with a signer, and the checks of each CSR that policy approves.

use std::collections::BTreeSet;
use std::time::Duration;

use addon_signer_core::csr::CertificateRequest;
use addon_signer_core::identity::Convention;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{Profile, RequesterKind, SignerRules, Submission, evaluate};
use addon_signer_core::registry::{AddOnFacts, ClusterFacts, Registry};
use x509_parser::prelude::{FromDer, X509Name};

pub mod gateway;
pub mod mutants;

const MAX_DURATION: Duration = Duration::from_secs(604_800);

/// Submits a CSR as the agent of spoke1, and checks an approval against the convention.
pub fn submit(request: &[u8]) {
    let rules = mk_rules();
    let Ok(approved) = evaluate(&rules, &mk_submission(request), &mk_registry()) else { return };
    let parsed = CertificateRequest::from_pem(request).expect("approved, so it can be read");
    assert_eq!(approved.public_key_der(), parsed.public_key_der());
    assert_eq!(approved.subject_der(), parsed.subject_der());
    assert!(approved.lifetime() <= MAX_DURATION);
    let Profile::Client { identity, dns_names } = approved.profile() else { panic!("a client certificate") };
    assert_eq!(identity.cluster.as_str(), "spoke1");
    assert_eq!(*dns_names, ["telemetry.addon.open-cluster-management.io"]);
    let user = rules.convention.user(identity);
    assert_eq!(rules.convention.identify(&user).as_ref(), Ok(identity));
    check_subject(approved.subject_der(), &user, &rules.convention.groups(&identity.cluster, &identity.addon));
}

/// Checks with another parser that the certificate's subject has one CN, and only groups of the convention.
fn check_subject(der: &[u8], user: &str, groups: &[String]) {
    let (rest, name) = X509Name::from_der(der).expect("a name");
    assert!(rest.is_empty());
    let common_names: Vec<_> = name.iter_common_name().map(|cn| cn.as_str().expect("text")).collect();
    assert_eq!(common_names, [user]);
    let organizations: Vec<_> = name.iter_organization().map(|o| o.as_str().expect("text")).collect();
    assert!(organizations.iter().all(|o| *o == "system:authenticated" || groups.iter().any(|group| group == o)));
    assert_eq!(name.iter_attributes().count(), common_names.len() + organizations.len());
}

/// The submission of a CSR by the agent of spoke1.
pub fn mk_submission(request: &[u8]) -> Submission {
    let groups = ["system:open-cluster-management:spoke1"];
    let usages = ["digital signature", "key encipherment", "client auth"];
    Submission {
        username: "system:open-cluster-management:spoke1:a1".to_owned(),
        groups: groups.map(str::to_owned).to_vec(),
        usages: usages.map(str::to_owned).to_vec(),
        request: request.to_vec(),
        ..Submission::default()
    }
}

/// One PEM block, with lines of 64 characters.
pub fn pem_lines(der: &[u8]) -> String {
    let body = data_encoding::BASE64.encode(der);
    let lines: Vec<&str> = body.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", lines.join("\n"))
}

/// One PEM block, with one long line.
pub fn pem(der: &[u8]) -> Vec<u8> {
    let body = data_encoding::BASE64.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
}

/// A signer for the addon telemetry, with keys of every kind.
pub fn mk_rules() -> SignerRules {
    SignerRules {
        signer_name: "example.com/telemetry".parse().expect("a signer name"),
        addons: BTreeSet::from(["telemetry".parse().expect("a name")]),
        convention: Convention::default(),
        requesters: [RequesterKind::Cluster, RequesterKind::AddOn].into(),
        organizational_units: BTreeSet::new(),
        keys: KeyKind::ALL.into_iter().collect(),
        duration: Duration::from_secs(86_400),
        max_duration: MAX_DURATION,
        grpc_proxy: None,
    }
}

/// What the hub knows: the addon is installed on every cluster that the corpus names.
pub fn mk_registry() -> Registry {
    let mut registry = Registry::default();
    registry.complete_clusters(|_| false);
    registry.complete_addons(|_| false);
    // All clusters of the corpus are accepted, so only the subject prevents a certificate for another cluster.
    for cluster in ["spoke1", "spoke2", "spoke", "spoke12"] {
        let accepted = ClusterFacts::ACCEPTED;
        registry.set_cluster(cluster.parse().expect("a name"), Some(accepted));
        let telemetry = "telemetry".parse().expect("a name");
        registry.set_addon(cluster.parse().expect("a name"), telemetry, Some(AddOnFacts::Installed));
    }
    registry
}

/// The algorithm of RFC 8410.
pub const ED25519: [u8; 7] = [0x30, 5, 6, 3, 0x2b, 0x65, 0x70];

/// A BIT STRING of whole bytes.
pub fn bits(content: &[u8]) -> Vec<u8> {
    tlv(3, &[&[0], content])
}

/// A DER value: tag, length in its shortest form, content.
pub fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = content.len().to_be_bytes();
    let header = match content.len() {
        short @ 0..=0x7f => vec![tag, short as u8],
        0x80..=0xff => vec![tag, 0x81, length[7]],
        0x100..=0xffff => vec![tag, 0x82, length[6], length[7]],
        _ => vec![tag, 0x83, length[5], length[6], length[7]],
    };
    [header, content].concat()
}
