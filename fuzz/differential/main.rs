//! Writes mutants of the corpus's good requests that policy approves, each with the certificate that the hub would
//! issue for it and with what our parser read, one JSON object per line. `compare.py` asks other parsers.
//!
//! Arguments: the directory of good requests, the seed, the number of mutants, a file for the CA's certificate, and an
//! RSA key in PKCS#8.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use addon_signer_core::ca::authority::Authority;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::csr::CertificateRequest;
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{
    Approved, GatewayCertificate, GatewayRules, SignerRules, Submission, evaluate, evaluate_gateway,
};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_fuzz::mutants::tree::Piece;
use addon_signer_fuzz::mutants::{Chance, NOTHING, change, change_pem};
use addon_signer_fuzz::{bits, mk_registry, mk_rules, mk_submission, pem_lines, tlv};
use data_encoding::BASE64;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};

const GATEWAY: &str = "system:serviceaccount:addon-signer:addon-signer";

/// A good request of the corpus.
struct Good {
    name: String,
    serving: bool,
    /// The CertificationRequestInfo.
    info: Piece,
}

/// A key that signs mutants, with the key and the algorithm as they stand in a request.
struct Signer {
    public: Piece,
    algorithm: Piece,
    key: Key,
}

enum Key {
    Ours(PrivateKey),
    Rsa(Box<RsaKeyPair>),
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [good, seed, count, ca_file, rsa_file] = arguments.as_slice() else { panic!("five arguments") };
    let good = read_good(Path::new(good));
    let signers = mk_signers(&fs::read(rsa_file).expect("the RSA key"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    let hub = Hub::new(Timestamp::from_unix(i64::try_from(now.as_secs()).expect("a time")));
    fs::write(ca_file, hub.issuer.authority().pem()).expect("the CA's file");
    let mut chance = Chance::new(seed.parse().expect("a seed"));
    let count: usize = count.parse().expect("a number");
    let mut changes: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 0..count {
        let mutant = mk_mutant(&good, &signers, &mut chance);
        if let Some(line) = hub.judge(number, &mutant) {
            mutant.changes.iter().for_each(|change| *changes.entry(change).or_default() += 1);
            writeln!(std::io::stdout(), "{line}").expect("standard output");
        }
    }
    eprintln!("approved mutants by change: {changes:?}");
}

fn read_good(directory: &Path) -> Vec<Good> {
    let files = fs::read_dir(directory).expect("the corpus").map(|entry| entry.expect("a file").path());
    let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|kind| kind == "json")).collect();
    files.sort();
    let good = files.iter().filter_map(|file| {
        let text = fs::read_to_string(file).expect("a file of the corpus");
        let request = text.split_once("\"request\": \"")?.1.split_once('"')?.0.replace("\\n", "\n").replace("\\r", "");
        let body: String = request.lines().filter(|line| !line.starts_with('-')).map(str::trim).collect();
        let mut root = Piece::parse(&BASE64.decode(body.as_bytes()).ok()?)?;
        let info = root.children()?.first()?.clone();
        let name = file.file_stem()?.to_string_lossy().into_owned();
        Some(Good { name, serving: text.contains("\"profile\": \"serving\""), info })
    });
    good.collect()
}

fn mk_signers(rsa: &[u8]) -> Vec<Signer> {
    let piece = |der: &[u8]| Piece::parse(der).expect("DER");
    let ec = |kind, oid: &[u8]| {
        let (key, _) = PrivateKey::generate(kind, &SystemRandom::new()).expect("a key");
        let public = piece(key.public_key_der());
        Signer { public, algorithm: piece(&tlv(0x30, &[&tlv(6, &[oid])])), key: Key::Ours(key) }
    };
    let rsa_encryption = tlv(0x30, &[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00"]);
    let rsa = RsaKeyPair::from_pkcs8(rsa).expect("an RSA key");
    let public = tlv(0x30, &[&rsa_encryption, &bits(rsa.public().as_ref())]);
    let algorithm = tlv(0x30, &[b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00"]);
    vec![
        ec(KeyKind::EcdsaP256, b"\x2a\x86\x48\xce\x3d\x04\x03\x02"),
        ec(KeyKind::EcdsaP384, b"\x2a\x86\x48\xce\x3d\x04\x03\x03"),
        ec(KeyKind::Ed25519, b"\x2b\x65\x70"),
        Signer { public: piece(&public), algorithm: piece(&algorithm), key: Key::Rsa(Box::new(rsa)) },
    ]
}

impl Signer {
    fn sign(&self, content: &[u8]) -> Vec<u8> {
        match &self.key {
            Key::Ours(key) => key.sign(content, &SystemRandom::new()).expect("a signature"),
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), content, &mut signature).expect("a signature");
                signature
            }
        }
    }
}

struct Mutant {
    of: String,
    serving: bool,
    changes: Vec<&'static str>,
    pem: String,
}

/// One to three changes: of what is signed, of what is around it, of the PEM.
fn mk_mutant(good: &[Good], signers: &[Signer], chance: &mut Chance) -> Mutant {
    let base = chance.pick(good);
    let donor = chance.pick(good);
    let signer = chance.pick(signers);
    let mut info = base.info.clone();
    if let Some(key) = info.children().and_then(|parts| parts.get_mut(2)) {
        *key = signer.public.clone();
    }
    let mut changes = Vec::new();
    for _ in 0..*chance.pick(&[1, 1, 1, 1, 2, 2, 3]) {
        // Some changes do not fit the piece that was chosen.
        let names = std::iter::repeat_with(|| change(&mut info, &donor.info, chance)).take(20);
        changes.extend(names.into_iter().find(|name| *name != NOTHING));
    }
    let content = info.encode();
    let parts = [content.clone(), signer.algorithm.encode(), bits(&signer.sign(&content))];
    let mut der = tlv(0x30, &parts.each_ref().map(Vec::as_slice));
    // A change of what is around the signed part.
    if chance.below(12) == 0
        && let Some(mut whole) = Piece::parse(&der)
    {
        let mut around = whole.clone();
        if let Some(part) = around.children().and_then(|parts| parts.get_mut(1 + chance.below(2))) {
            changes.push(change(part, &donor.info, chance));
            whole = around;
        }
        der = whole.encode();
    }
    let mut pem = pem_lines(&der);
    if chance.below(8) == 0 {
        let (changed, name) = change_pem(&pem, chance);
        pem = changed;
        changes.push(name);
    }
    Mutant { of: base.name.clone(), serving: base.serving, changes, pem }
}

/// A hub with one signer and the gateway's own.
struct Hub {
    rules: SignerRules,
    serving: GatewayRules,
    issuer: Issuer,
    bundle: Bundle,
    now: Timestamp,
}

impl Hub {
    fn new(now: Timestamp) -> Self {
        let rng = SystemRandom::new();
        let day = Duration::from_secs(86_400);
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).expect("a key");
        let authority = Authority::self_signed("differential", &key, now.minus(day), day * 30, &rng).expect("a CA");
        let bundle = Bundle::new(vec![authority.clone()]).expect("a bundle");
        let rules = SignerRules { organizational_units: BTreeSet::from(["edge".to_owned()]), ..mk_rules() };
        let serving = GatewayRules {
            account: GATEWAY.to_owned(),
            dns_names: BTreeSet::from(["gateway.addon-signer.example.com".to_owned()]),
            ip_addresses: BTreeSet::from([[192, 0, 2, 10].into()]),
            duration: day,
        };
        Self { rules, serving, issuer: Issuer::new(authority, key).expect("an issuer"), bundle, now }
    }

    fn evaluate(&self, mutant: &Mutant) -> Option<Approved> {
        let submission = mk_submission(mutant.pem.as_bytes());
        if mutant.serving {
            let usages = vec!["server auth".to_owned()];
            let submission = Submission { username: GATEWAY.to_owned(), usages, ..submission };
            return evaluate_gateway(&self.serving, GatewayCertificate::Serving, &submission).ok();
        }
        evaluate(&self.rules, &submission, &mk_registry()).ok()
    }

    /// The line about a mutant that is approved.
    fn judge(&self, number: usize, mutant: &Mutant) -> Option<String> {
        let approved = self.evaluate(mutant)?;
        let rng = SystemRandom::new();
        let serial = Serial::new(self.now, &rng).expect("a serial number");
        let prepared = self.issuer.prepare(approved, serial, self.now).expect("prepared");
        let issued = self.issuer.sign(prepared, &self.bundle, self.now, &rng).expect("signed");
        let request = CertificateRequest::from_pem(mutant.pem.as_bytes()).expect("approved, so it can be read");
        let subject = request.subject();
        let asked = request.extensions();
        let addresses: Vec<String> = asked.ip_addresses.iter().map(ToString::to_string).collect();
        Some(format!(
            "{{\"number\":{number},\"of\":{:?},\"changes\":{:?},\"serving\":{},\"request\":{:?},\"certificate\":{:?},\
             \"read\":{{\"cn\":{:?},\"o\":{:?},\"ou\":{:?},\"key\":{:?},\"dns\":{:?},\"ip\":{addresses:?}}}}}",
            mutant.of,
            mutant.changes,
            mutant.serving,
            BASE64.encode(mutant.pem.as_bytes()),
            BASE64.encode(issued.certificate.as_ref()),
            subject.common_names,
            subject.organizations,
            subject.organizational_units,
            BASE64.encode(request.public_key_der()),
            asked.dns_names,
        ))
    }
}
