use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
    SignatureAlgorithm,
};

use super::*;
use crate::keys::public::PublicKeyError;

const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
const DAY: Duration = Duration::from_secs(86_400);

/// A CA of a test.
struct Ca {
    params: CertificateParams,
    key: KeyPair,
    der: CertificateDer<'static>,
}

fn params(name: &str, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = time::OffsetDateTime::from_unix_timestamp(NOW.unix() - 86_400).unwrap();
    params.not_after = time::OffsetDateTime::from_unix_timestamp(NOW.unix() + days * 86_400).unwrap();
    params
}

fn params_with(name: &str, days: i64, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = params(name, days);
    change(&mut params);
    params
}

fn root_of(params: CertificateParams, algorithm: &'static SignatureAlgorithm) -> Ca {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let der = params.self_signed(&key).unwrap().der().clone();
    Ca { params, key, der }
}

fn root() -> Ca {
    root_of(params("root", 1000), &rcgen::PKCS_ECDSA_P256_SHA256)
}

impl Ca {
    fn signs_with(&self, params: CertificateParams, key: KeyPair) -> Self {
        let issuer = Issuer::from_params(&self.params, &self.key);
        let der = params.signed_by(&key, &issuer).unwrap().der().clone();
        Self { params, key, der }
    }

    fn signs(&self, params: CertificateParams) -> Self {
        self.signs_with(params, KeyPair::generate().unwrap())
    }

    fn public_key(&self) -> Vec<u8> {
        rcgen::PublicKeyData::subject_public_key_info(&self.key)
    }

    fn authority(&self) -> Self {
        self.signs(params("authority", 300))
    }
}

fn demands() -> Demands<'static> {
    Demands {
        now: NOW,
        longest: DAY * 7,
        renew_before: DAY * 90,
        purpose: Purpose::Client,
        dns_names: &[],
        addresses: &[],
    }
}

fn ders(cas: &[&Ca]) -> Vec<CertificateDer<'static>> {
    cas.iter().map(|ca| ca.der.clone()).collect()
}

/// Checks the first CA, with the others above it and this root.
fn check(chain: &[&Ca], roots: &[&Ca]) -> Result<Certified, NotUsable> {
    Certified::check(&ders(chain), &ders(roots), &chain[0].public_key(), &demands())
}

fn refusal(chain: &[&Ca], roots: &[&Ca]) -> String {
    check(chain, roots).unwrap_err().to_string()
}

#[test]
fn a_chain_is_kept_from_the_authority_to_the_root() {
    let root = root();
    let middle = root.signs(params("middle", 500));
    let authority = middle.authority();
    let found = check(&[&authority, &middle], &[&root]).unwrap();
    assert_eq!(found.authority().certificate(), &authority.der);
    assert_eq!(found.above(), ders(&[&middle, &root]));
    assert_eq!(check(&[&authority, &middle, &root], &[&root]), Ok(found.clone()), "the root may be in the chain too");
    assert_eq!(check(&[&authority, &middle, &root], &[]), Ok(found.clone()), "and then it need not be given");
    assert_eq!(Certified::read(found.pem().as_bytes()), Ok(found.clone()));
    let below_root = pem::certificates(found.pem_below_root().as_bytes()).unwrap();
    assert_eq!(below_root, ders(&[&authority, &middle]));
}

#[test]
fn an_own_root_of_somebody_is_an_authority_too() {
    let own = root();
    let found = check(&[&own], &[]).unwrap();
    assert_eq!((found.above(), found.pem_below_root().as_str()), (&[] as &[_], ""));
    assert_eq!(check(&[&own], &[&own]), Ok(found));
}

#[test]
fn links_that_do_not_hold_are_named() {
    let (root, other) = (root(), root_of(params("root", 1000), &rcgen::PKCS_ECDSA_P256_SHA256));
    let middle = root.signs(params("middle", 500));
    let authority = middle.authority();
    let foreign = other.signs(params("foreign", 500));
    let wrong_order =
        Certified::check(&ders(&[&middle, &authority]), &ders(&[&root]), &authority.public_key(), &demands());
    assert_eq!(wrong_order, Err(NotUsable::Order("CN=authority".to_owned())));
    let other_key = Certified::check(&ders(&[&authority]), &ders(&[&root]), &root.public_key(), &demands());
    assert_eq!(other_key, Err(NotUsable::OtherKey("CN=authority".to_owned())));
    let missing = NotUsable::Missing { name: "CN=authority".to_owned(), issuer: "CN=middle".to_owned() };
    assert_eq!(check(&[&authority], &[&root]), Err(missing));
    let link = NotUsable::Link { name: "CN=authority".to_owned(), issuer: "CN=foreign".to_owned() };
    assert_eq!(check(&[&authority, &foreign, &middle], &[&root]), Err(link));
    let of_another = NotUsable::Missing { name: "CN=middle".to_owned(), issuer: "CN=root".to_owned() };
    assert_eq!(check(&[&authority, &middle], &[&other]), Err(of_another), "a root of the same name");
    assert_eq!(check(&[&authority, &middle], &[]), Err(NotUsable::NoRoot));
    assert_eq!(Certified::check(&[], &[], &[], &demands()), Err(NotUsable::Empty));
    let many: Vec<Ca> = (0..5).fold(vec![root], |mut all, n| {
        all.insert(0, all[0].signs(params(&format!("level {n}"), 900)));
        all
    });
    assert_eq!(check(&many.iter().collect::<Vec<_>>(), &[]), Err(NotUsable::TooMany(5)));
}

#[test]
fn a_leaf_or_a_certificate_without_key_usage_is_no_authority() {
    let root = root();
    let leaf = root.signs(params_with("leaf", 300, |it| it.is_ca = IsCa::NoCa));
    assert!(refusal(&[&leaf], &[&root]).contains("CN=leaf\" is not a CA certificate"));
    let no_usage = root.signs(params_with("vague", 300, |it| it.key_usages.clear()));
    assert!(refusal(&[&no_usage], &[&root]).contains("CN=vague\" is not a CA certificate"));
    let below_leaf = leaf.signs(params("authority", 300));
    assert!(refusal(&[&below_leaf, &leaf], &[&root]).contains("CN=leaf\" is not a CA certificate"));
}

/// RFC 5280 section 4.1.2.6. Java reads no certificate whose issuer is empty.
#[test]
fn an_empty_subject_is_refused_of_each_in_the_chain() {
    let empty = |days| params_with("", days, |it| it.distinguished_name = DistinguishedName::new());
    let reported = |found: Result<_, NotUsable>| found.map(|_: Certified| ()).unwrap_err().to_string();
    let says = |number: u32| format!("certificate {number} has an empty subject");
    let root = root();
    let (authority, middle) = (root.signs(empty(300)), root.signs(empty(500)));
    let below = middle.authority();
    let rootless = root_of(empty(1000), &rcgen::PKCS_ECDSA_P256_SHA256);
    let of_rootless = rootless.authority();
    for (chain, roots, number) in [
        (vec![&authority], vec![&root], 1),
        (vec![&below, &middle], vec![&root], 2),
        (vec![&of_rootless], vec![&rootless], 2),
        (vec![&rootless], vec![], 1),
    ] {
        let found = reported(check(&chain, &roots));
        assert!(found.starts_with(&says(number)), "{found}");
    }
    let found = reported(Certified::brought(&ders(&[&below, &middle]), &below.public_key()));
    assert!(found.starts_with(&says(2)), "{found}");
    let roots = chain_pem(&[&root, &rootless]);
    let found = Roots::from_pem(roots.as_bytes()).unwrap_err().to_string();
    assert!(found.starts_with(&says(2)), "{found}");
}

fn chain_pem(cas: &[&Ca]) -> String {
    cas.iter().map(|ca| pem::encode("CERTIFICATE", &ca.der)).collect()
}

#[test]
fn path_lengths_above_must_permit_the_authority() {
    let with = |name: &str, length| {
        let is_ca = IsCa::Ca(BasicConstraints::Constrained(length));
        params_with(name, 900, |it| it.is_ca = is_ca)
    };
    let root = root_of(with("root", 1), &rcgen::PKCS_ECDSA_P256_SHA256);
    let middle = root.signs(with("middle", 0));
    let ours = root.signs(with("authority", 0));
    assert!(check(&[&ours], &[&root]).is_ok(), "0 is right for ours");
    let below = middle.signs(with("authority", 0));
    let refused = "\"CN=middle\" has the path length 0, which permits no CA at this depth";
    assert_eq!(refusal(&[&below, &middle], &[&root]), refused);
    let second = middle.signs(params("second", 500));
    let third = second.authority();
    assert!(refusal(&[&third, &second, &middle], &[&root]).contains("CN=middle"));
}

#[test]
fn purposes_and_critical_extensions_above_are_limits() {
    let root = root();
    let web = params_with("web", 900, |it| it.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth));
    let web = root.signs(web);
    let authority = web.authority();
    let refused = "\"CN=web\" is not for the authentication of TLS clients (extended key usage)";
    assert_eq!(refusal(&[&authority, &web], &[&root]), refused);
    let any = params_with("web", 900, |it| it.extended_key_usages.push(ExtendedKeyUsagePurpose::Any));
    let any = root.signs(any);
    assert_eq!(refusal(&[&any.authority(), &any], &[&root]), refused, "rustls-webpki does not take it for others");
    let serving = Demands { purpose: Purpose::Server, ..demands() };
    assert!(Certified::check(&ders(&[&authority, &web]), &ders(&[&root]), &authority.public_key(), &serving).is_ok());
    let mut policies = CustomExtension::from_oid_content(&[2, 5, 29, 32], vec![0x30, 0]);
    policies.set_criticality(true);
    let odd = root.signs(params_with("odd", 900, |it| it.custom_extensions.push(policies)));
    assert!(refusal(&[&odd], &[&root]).contains("\"CN=odd\" has the critical extension 2.5.29.32"));
}

#[test]
fn name_constraints_must_permit_what_is_issued() {
    let dns = |base: &str| GeneralSubtree::DnsName(base.to_owned());
    let v4 = |address| GeneralSubtree::IpAddress(CidrSubnet::V4(address, [255, 255, 255, 0]));
    let names = ["telemetry.addon.open-cluster-management.io".to_owned()];
    let addresses = ["10.1.2.3".parse().unwrap()];
    let outcome = |permitted: Vec<GeneralSubtree>, excluded: Vec<GeneralSubtree>| {
        let root = root();
        let constraints = NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded };
        let middle = root.signs(params_with("middle", 900, |it| it.name_constraints = Some(constraints)));
        let authority = middle.authority();
        let demands = Demands { dns_names: &names, addresses: &addresses, ..demands() };
        let chain = ders(&[&authority, &middle]);
        Certified::check(&chain, &ders(&[&root]), &authority.public_key(), &demands).map(|_| ())
    };
    let refused = |what: &str| Err(NotUsable::Names("CN=middle".to_owned(), what.to_owned()));
    let (dns_name, address) = ("the DNS name telemetry.addon.open-cluster-management.io", "the address 10.1.2.3");
    for base in ["open-cluster-management.io", ".IO", "telemetry.addon.open-cluster-management.io"] {
        assert_eq!(outcome(vec![dns(base)], vec![]), Ok(()), "{base}");
        assert_eq!(outcome(vec![], vec![dns(base)]), refused(dns_name), "{base}");
    }
    assert_eq!(outcome(vec![dns("example.com"), dns("io")], vec![dns("pen-cluster-management.io")]), Ok(()));
    for base in ["example.com", "pen-cluster-management.io", ".telemetry.addon.open-cluster-management.io"] {
        assert_eq!(outcome(vec![dns(base)], vec![]), refused(dns_name), "{base}");
    }
    assert_eq!(outcome(vec![v4([10, 1, 2, 0])], vec![v4([10, 1, 3, 0])]), Ok(()));
    assert_eq!(outcome(vec![v4([10, 1, 3, 0])], vec![]), refused(address));
    assert_eq!(outcome(vec![], vec![v4([10, 1, 2, 0])]), refused(address));
    let company = GeneralSubtree::DirectoryName(params("Example Inc.", 1).distinguished_name);
    let subjects = refused("the subjects of our certificates (directory names)");
    assert_eq!(outcome(vec![company.clone()], vec![]), subjects);
    assert_eq!(outcome(vec![], vec![company]), subjects, "rustls-webpki takes it for one that has all");
    let holes = || GeneralSubtree::IpAddress(CidrSubnet::V4([10, 0, 2, 0], [255, 0, 255, 0]));
    let masks = refused("addresses, because a mask of theirs has holes");
    assert_eq!((outcome(vec![holes()], vec![]), outcome(vec![], vec![holes()])), (masks.clone(), masks));
}

#[test]
fn an_authority_lives_long_enough_but_not_beyond_its_issuer() {
    let root = root();
    let at = |days: u32| NOW.plus(DAY * days);
    let with_end = |days| check(&[&root.signs(params("authority", days))], &[&root]).map(|_| ());
    let end = |days: u32| ("CN=authority".to_owned(), at(days));
    assert_eq!(with_end(91), Ok(()));
    assert_eq!(with_end(1000), Ok(()), "as long as its issuer");
    assert_eq!(with_end(90), Err(NotUsable::RenewsAtOnce(end(90).0, end(90).1)));
    assert_eq!(with_end(6), Err(NotUsable::EndsSoon(end(6).0, end(6).1)));
    let outlives = NotUsable::Outlives { name: "CN=authority".to_owned(), end: at(1001), issuer: at(1000) };
    assert_eq!(with_end(1001), Err(outlives));
    let authority = root.authority();
    let when = |now| {
        let demands = Demands { now, ..demands() };
        Certified::check(&ders(&[&authority]), &ders(&[&root]), &authority.public_key(), &demands).unwrap_err()
    };
    assert_eq!(when(at(301)), NotUsable::Expired(end(300).0, end(300).1));
    assert_eq!(when(NOW.minus(DAY * 2)), NotUsable::NotYet("CN=authority".to_owned(), NOW.minus(DAY)));
}

/// Chains that OpenSSL 3.0 made, with which [`crate::ca::issuer`] then signs.
#[test]
fn every_algorithm_of_the_table_is_accepted_above() {
    let pems = [
        include_str!("../../../testdata/keys/rsa2048-pkcs8.pem"),
        include_str!("../../../testdata/keys/rsa3072-pkcs8.pem"),
        include_str!("../../../testdata/keys/rsa4096-pkcs8.pem"),
    ];
    for (text, algorithm) in
        [(pems[0], &rcgen::PKCS_RSA_SHA256), (pems[1], &rcgen::PKCS_RSA_SHA384), (pems[2], &rcgen::PKCS_RSA_SHA512)]
    {
        let key = KeyPair::from_pem_and_sign_algo(text, algorithm).unwrap();
        let params = params("root", 1000);
        let der = params.self_signed(&key).unwrap().der().clone();
        let root = Ca { params, key, der };
        assert!(check(&[&root.authority()], &[&root]).is_ok());
    }
    for algorithm in [&rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let root = root_of(params("root", 1000), algorithm);
        assert!(check(&[&root.authority()], &[&root]).is_ok());
    }
}

#[test]
fn weak_and_unknown_algorithms_get_a_sentence() {
    let openssl = |text: &str| pem::certificates(text.as_bytes()).unwrap();
    let outcome = |text: &str| {
        let chain = openssl(text);
        let key = links::read(&chain[0]).unwrap().public_key().raw.to_vec();
        Certified::check(&chain, &[], &key, &demands()).unwrap_err()
    };
    let p521 = outcome(include_str!("../../../testdata/chains/below-p521.pem"));
    assert_eq!(p521, NotUsable::P521("CN=root".to_owned()));
    let sha1 = outcome(include_str!("../../../testdata/chains/sha1.pem")).to_string();
    assert!(sha1.starts_with("\"CN=authority\" is signed with 1.2.840.113549.1.1.5: use SHA-256"), "{sha1}");
    let sha512 = outcome(include_str!("../../../testdata/chains/ecdsa-sha512.pem")).to_string();
    assert!(sha512.starts_with("\"CN=authority\" is signed with 1.2.840.10045.4.3.4: use SHA-256"), "{sha512}");
    let weak = outcome(include_str!("../../../testdata/chains/rsa1024.pem"));
    assert_eq!(weak, NotUsable::Key("CN=authority".to_owned(), PublicKeyError::RsaSize(1024)));
}

#[test]
fn either_sha2_with_either_curve_is_accepted() {
    for text in [
        include_str!("../../../testdata/chains/p256-sha384.pem"),
        include_str!("../../../testdata/chains/p384-sha256.pem"),
    ] {
        let chain = pem::certificates(text.as_bytes()).unwrap();
        let key = links::read(&chain[0]).unwrap().public_key().raw.to_vec();
        let found = Certified::check(&chain, &[], &key, &demands()).unwrap();
        assert_eq!(found.above().len(), 1);
    }
}
