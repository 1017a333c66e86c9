//! Checks of the corpus.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use addon_signer_core::csr::CsrError;
use addon_signer_core::identity::IdentityError;
use addon_signer_core::keys::public::PublicKeyError;
use addon_signer_core::policy::Refusal;
use addon_signer_core::registry::NotRegistered;

use super::cases::cases;
use super::file::{directory, documents, location, table};
use super::{Case, Verdict, corpus};

#[test]
fn every_request_gets_its_verdict() {
    let wrong: Vec<String> = corpus().iter().filter_map(|case| judge(case).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every file has the case that the table makes today, except for the key.
#[test]
fn the_files_are_the_cases() {
    let filed = corpus();
    let made = cases();
    let names: Vec<PathBuf> = made.iter().map(|case| directory().join(location(case))).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "a name is used twice");
    assert_eq!(
        documents(),
        {
            let mut sorted = names;
            sorted.sort();
            sorted
        },
        "run with UPDATE_REQUESTS=1"
    );
    for case in &made {
        let file = filed.iter().find(|filed| filed.name == case.name && filed.verdict == case.verdict).unwrap();
        let expected = Case { request: file.request.clone(), ..case.clone() };
        assert_eq!(*file, expected, "run with UPDATE_REQUESTS=1");
    }
    let readme = fs::read_to_string(directory().join("README.md")).unwrap();
    assert_eq!(readme, table(&made), "run with UPDATE_REQUESTS=1");
}

fn judge(case: &Case) -> Result<(), String> {
    match (&case.verdict, case.evaluate()) {
        (Verdict::Good { lifetime_seconds }, Ok(approved)) => {
            let lifetime = Duration::from_secs(*lifetime_seconds);
            if approved.lifetime() == lifetime { Ok(()) } else { Err(format!("{}: {approved:?}", case.name)) }
        }
        (Verdict::Refused { rule, reason }, Err(refusal)) => {
            let named = case.name.starts_with(&format!("rule{rule}-"));
            let same = refusal.rule() == *rule && refusal.reason() == reason && named;
            if same { Ok(()) } else { Err(format!("{}: {} {refusal}", case.name, refusal.reason())) }
        }
        (Verdict::Good { .. }, Err(refusal)) => Err(format!("{}: must be approved, but: {refusal}", case.name)),
        (Verdict::Refused { .. }, Ok(_)) => Err(format!("{}: must be refused, but is approved", case.name)),
    }
}

/// The cases that the table makes now get the same verdicts as the files that were made earlier.
#[test]
fn the_table_makes_requests_that_get_their_verdict() {
    let wrong: Vec<String> = cases().iter().filter_map(|case| judge(case).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn comments_are_one_line_and_names_are_file_names() {
    for case in corpus() {
        assert!(!case.comment.is_empty(), "{}", case.name);
        assert!(!case.comment.contains(['\n', '|']), "{}", case.name);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        assert!(case.name.chars().all(plain), "{}", case.name);
    }
}

/// The compiler demands a line here for every new variant, and the test demands a case.
macro_rules! variants {
    ($($pattern:pat,)*) => {
        const VARIANTS: &[&str] = &[$(stringify!($pattern)),*];
        fn variant(refusal: &Refusal) -> &'static str {
            match refusal { $($pattern => stringify!($pattern)),* }
        }
    };
}

variants! {
    Refusal::Requester(_),
    Refusal::RequesterKind(_),
    Refusal::RequesterToken(_),
    Refusal::RequesterOfSeveral { .. },
    Refusal::RequesterGroup(_),
    Refusal::ProxiedUserMissing,
    Refusal::ProxiedUserUnproven,
    Refusal::NotTheGateway(_),
    Refusal::PodGone(_),
    Refusal::CommonNames(_),
    Refusal::CommonName(IdentityError::NotALabel(..)),
    Refusal::CommonName(IdentityError::NotAnAgent(_)),
    Refusal::CommonName(_),
    Refusal::AnotherCluster { .. },
    Refusal::AnotherAddOn { .. },
    Refusal::AddOnNotOfSigner(_),
    Refusal::Organization(_),
    Refusal::OrganizationalUnit(_),
    Refusal::SubjectAttribute(_),
    Refusal::GatewaySubject,
    Refusal::DnsName(_),
    Refusal::IpAddress(_),
    Refusal::OtherName(_),
    Refusal::GatewayNamesMissing,
    Refusal::CaRequested,
    Refusal::KeyUsage(_),
    Refusal::ExtendedKeyUsage(_),
    Refusal::UnknownExtension(_),
    Refusal::KeyNotAllowed(_),
    Refusal::RequestTooOld,
    Refusal::ClusterLabel(_),
    Refusal::AddOnLabel(_),
    Refusal::Usage(_),
    Refusal::UsageMissing(_),
    Refusal::ExpirationTooShort(_),
    Refusal::Registration(NotRegistered::NotReady | NotRegistered::Outdated),
    Refusal::Registration(NotRegistered::ClusterUnknown),
    Refusal::Registration(NotRegistered::ClusterNotAccepted),
    Refusal::Registration(NotRegistered::ClusterDeleting),
    Refusal::Registration(NotRegistered::AddOnUnknown),
    Refusal::Registration(NotRegistered::AddOnDeleting),
    Refusal::Registration(NotRegistered::AddOnSuspended),
    Refusal::Registration(NotRegistered::Unreadable),
    Refusal::Request(CsrError::TooLarge),
    Refusal::Request(CsrError::NotOnePemBlock),
    Refusal::Request(CsrError::Malformed(_)),
    Refusal::Request(CsrError::Version(_)),
    Refusal::Request(CsrError::PublicKey(PublicKeyError::Malformed)),
    Refusal::Request(CsrError::PublicKey(PublicKeyError::UnknownAlgorithm(_))),
    Refusal::Request(CsrError::PublicKey(PublicKeyError::UnknownCurve(_))),
    Refusal::Request(CsrError::PublicKey(PublicKeyError::RsaSize(_))),
    Refusal::Request(CsrError::PublicKey(PublicKeyError::RsaExponent)),
    Refusal::Request(CsrError::PublicKey(PublicKeyError::RsaSmallFactor(_))),
    Refusal::Request(CsrError::PublicKey(PublicKeyError::RsaRoca)),
    Refusal::Request(CsrError::SignatureAlgorithm(_)),
    Refusal::Request(CsrError::Possession),
    Refusal::Request(CsrError::SubjectText(_)),
    Refusal::Request(CsrError::DuplicateSubjectAttribute(_)),
    Refusal::Request(CsrError::UnknownAttribute(_)),
    Refusal::Request(CsrError::DuplicateExtensionRequest),
    Refusal::Request(CsrError::DuplicateExtension(_)),
    Refusal::Request(CsrError::MalformedExtension("subject alternative name")),
    Refusal::Request(CsrError::MalformedExtension("key usage")),
    Refusal::Request(CsrError::MalformedExtension("extended key usage")),
    Refusal::Request(CsrError::MalformedExtension("basic constraints")),
    Refusal::Request(CsrError::MalformedExtension(_)),
    Refusal::Request(CsrError::ExtensionNotDer(_)),
}

#[test]
fn every_refusal_has_a_case() {
    let refusals: Vec<Refusal> = corpus().iter().filter_map(|case| case.evaluate().err()).collect();
    let seen: BTreeSet<&str> = refusals.iter().map(variant).collect();
    // Nothing reaches the last arm of extensions, because there are only the four before it. And the API server says
    // whether a pod is gone.
    let unreachable = ["Refusal::Request(CsrError::MalformedExtension(_))", "Refusal::PodGone(_)"];
    let missing: Vec<_> = VARIANTS.iter().filter(|name| !seen.contains(*name) && !unreachable.contains(name)).collect();
    assert!(missing.is_empty(), "no case is refused as {missing:?}");
}
