//! Measures the cost of issuing: parse, possession, policy, template, signature and our own check of the result. The
//! floor is the cost of the three operations of ring that every signer needs, with the same keys and the same bytes.
//!
//! Run `cargo bench --manifest-path tools/Cargo.toml --bench issue`. The last line is the ratio of the two. They are
//! measured in turn, so that a busy machine slows both alike.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::{Issued, Issuer};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::csr::CertificateRequest;
use addon_signer_core::gateway::attachment::Attachment;
use addon_signer_core::gateway::authz::identify;
use addon_signer_core::identity::{AddOnName, Convention};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{SignerRules, Submission, evaluate};
use addon_signer_core::registry::Registry;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::trust::{SignerTrust, Trust};
use criterion::{Criterion, criterion_group};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, UnparsedPublicKey};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use test_kit::rules::{mk_registry, mk_rules, mk_submission};

/// The request of OCM's own agent: P-256, two groups, one DNS name.
const REQUEST: &[u8] = include_bytes!("../../certs/requests/good/ocm-agent-v1.3.pem");
const NOW: Timestamp = Timestamp::from_unix(1_798_761_600);

/// Everything that exists before a request comes.
struct Hub {
    rules: SignerRules,
    registry: Registry,
    submission: Submission,
    issuer: Issuer,
    published: Bundle,
    rng: SystemRandom,
}

impl Hub {
    /// A hub whose CA has the key of `pkcs8`.
    fn new(pkcs8: &[u8]) -> Self {
        let rng = SystemRandom::new();
        let key = PrivateKey::from_pkcs8(pkcs8, &rng).unwrap();
        let life = Duration::from_secs(365 * 86_400);
        let authority = Authority::self_signed("addon-signer client CA telemetry", &key, NOW, life, &rng).unwrap();
        let published = Bundle::new(vec![authority.clone()]).unwrap();
        let issuer = Issuer::new(authority, key).unwrap();
        let cluster = "spoke1".parse().unwrap();
        let addon: AddOnName = "telemetry".parse().unwrap();
        let rules = mk_rules("example.com/telemetry", [addon.clone()]);
        let registry = mk_registry(&cluster, [addon.clone()]);
        let submission = mk_submission(&cluster, &addon, REQUEST);
        Self { rules, registry, submission, issuer, published, rng }
    }

    fn whole(&self) -> Issued {
        let approved = evaluate(&self.rules, &self.submission, &self.registry).unwrap();
        let prepared = self.issuer.prepare(approved, Serial::new(NOW, &self.rng).unwrap(), NOW).unwrap();
        self.issuer.sign(prepared, &self.published, NOW, &self.rng).unwrap()
    }
}

/// The operations of ring alone: verify the request, sign as many bytes as a leaf's signed part has, verify the leaf.
struct Floor {
    request: Signature,
    key: EcdsaKeyPair,
    leaf: Signature,
    rng: SystemRandom,
}

/// A public key, the signed message, and the signature.
struct Signature {
    key: UnparsedPublicKey<Vec<u8>>,
    message: Vec<u8>,
    signature: Vec<u8>,
}

impl Signature {
    fn new(key: &[u8], message: &[u8], signature: &[u8]) -> Self {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.to_vec());
        Self { key, message: message.to_vec(), signature: signature.to_vec() }
    }
    fn verify(&self) {
        self.key.verify(black_box(&self.message), black_box(&self.signature)).unwrap();
    }
}

impl Floor {
    fn new(pkcs8: &[u8], hub: &Hub) -> Self {
        let der = CertificateSigningRequestDer::from_pem_slice(REQUEST).unwrap();
        let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
        let info = &request.certification_request_info;
        let request =
            Signature::new(&info.subject_pki.subject_public_key.data, info.raw, &request.signature_value.data);
        let issued = hub.whole();
        let (_, leaf) = X509Certificate::from_der(&issued.certificate).unwrap();
        let (_, ca) = X509Certificate::from_der(hub.issuer.authority().certificate()).unwrap();
        let tbs = leaf.tbs_certificate.as_ref();
        let leaf = Signature::new(&ca.public_key().subject_public_key.data, tbs, &leaf.signature_value.data);
        let rng = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &rng).unwrap();
        Self { request, key, leaf, rng }
    }

    fn sign(&self) {
        black_box(self.key.sign(&self.rng, black_box(&self.leaf.message)).unwrap());
    }

    fn all(&self) {
        self.request.verify();
        self.sign();
        self.leaf.verify();
    }
}

fn fixture() -> (Hub, Floor) {
    let rng = SystemRandom::new();
    let (_, pkcs8) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
    let hub = Hub::new(&pkcs8);
    let floor = Floor::new(&pkcs8, &hub);
    (hub, floor)
}

fn benches(criterion: &mut Criterion) {
    let (hub, floor) = fixture();
    let mut group = criterion.benchmark_group("issue P-256");
    group.bench_function("whole", |bencher| bencher.iter(|| hub.whole()));
    group.bench_function("read the request", |bencher| {
        bencher.iter(|| CertificateRequest::from_pem(black_box(REQUEST)).unwrap());
    });
    group.bench_function("read and decide", |bencher| {
        bencher.iter(|| evaluate(&hub.rules, black_box(&hub.submission), &hub.registry).unwrap());
    });
    let approved = evaluate(&hub.rules, &hub.submission, &hub.registry).unwrap();
    let prepare = || hub.issuer.prepare(approved.clone(), Serial::new(NOW, &hub.rng).unwrap(), NOW).unwrap();
    group.bench_function("prepare", |bencher| bencher.iter(prepare));
    let sign = |prepared| hub.issuer.sign(prepared, &hub.published, NOW, &hub.rng).unwrap();
    group.bench_function("sign and check", |bencher| {
        bencher.iter_batched(prepare, sign, criterion::BatchSize::SmallInput);
    });
    group.bench_function("floor", |bencher| bencher.iter(|| floor.all()));
    group.bench_function("floor: ring verifies the request", |bencher| bencher.iter(|| floor.request.verify()));
    group.bench_function("floor: ring signs", |bencher| bencher.iter(|| floor.sign()));
    group.bench_function("floor: ring verifies the leaf", |bencher| bencher.iter(|| floor.leaf.verify()));
    group.finish();
}

/// How the gateway finds the signer of a new connection's certificate among so many, each with two authorities.
fn identifying(criterion: &mut Criterion) {
    let (hub, _) = fixture();
    let leaf = hub.whole().certificate;
    let authority = |name: &str| {
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &hub.rng).unwrap();
        let life = Duration::from_secs(365 * 86_400);
        Authority::self_signed(&format!("addon-signer client CA {name}"), &key, NOW, life, &hub.rng).unwrap()
    };
    let mut group = criterion.benchmark_group("identify");
    for signers in [1, 101, 256] {
        let trust = |name: String, anchors: Vec<Authority>| {
            Arc::new(SignerTrust {
                signer_name: format!("example.com/{name}").parse().unwrap(),
                name,
                addons: hub.rules.addons.clone(),
                convention: Convention::default(),
                client_anchors: Bundle::new(anchors).unwrap(),
                renew_within: Default::default(),
                attachment: Attachment::default(),
            })
        };
        let others = (1..signers).map(|n| format!("a{n}")).map(|name| {
            let anchors = vec![authority(&name), authority(&name)];
            trust(name, anchors)
        });
        let its = trust("telemetry".to_owned(), vec![hub.issuer.authority().clone(), authority("telemetry")]);
        let trust = Trust { signers: others.chain([its]).collect(), ..Trust::default() };
        group.bench_function(format!("among {signers} signers"), |bencher| {
            bencher.iter(|| identify(&trust, black_box(&leaf), NOW).unwrap());
        });
    }
    group.finish();
}

const ROUNDS: usize = 3000;
const CALLS: u32 = 8;

fn time(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..CALLS).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS)
}

/// The lower quartile, which other programs on the machine disturb least, and the median.
fn quartiles(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 4], times[times.len() / 2])
}

fn summary() {
    let (hub, floor) = fixture();
    let rounds = (0..ROUNDS).map(|_| (time(|| drop(black_box(hub.whole()))), time(|| floor.all())));
    let (whole, floor): (Vec<f64>, Vec<f64>) = rounds.unzip();
    let (whole, whole_median) = quartiles(whole);
    let (floor, floor_median) = quartiles(floor);
    println!("{ROUNDS} alternating rounds of {CALLS} calls, lower quartile (median), in microseconds:");
    println!("whole {whole:.1} ({whole_median:.1}), floor {floor:.1} ({floor_median:.1})");
    println!("ratio whole/floor = {:.3} ({:.3}); goal 1.15", whole / floor, whole_median / floor_median);
}

criterion_group!(issue, benches, identifying);

fn main() {
    issue();
    Criterion::default().configure_from_args().final_summary();
    summary();
}
