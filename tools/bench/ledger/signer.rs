//! A signer that issues certificates, and the records of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use addon_signer_core::ca::authority::{Authority, AuthorityId};
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::ca::issuer::Issuer;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::identity::{AddOnName, PeerIdentity};
use addon_signer_core::journal::CsrUid;
use addon_signer_core::journal::entry::{Entry, Hash, Tip};
use addon_signer_core::journal::record::{Intended, Intent, Record};
use addon_signer_core::keys::private::PrivateKey;
use addon_signer_core::keys::public::KeyKind;
use addon_signer_core::policy::{Approved, evaluate};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::Ledger;
use addon_signer_platform::clock::Clock;
use ring::rand::SystemRandom;

use test_kit::rules::{mk_registry, mk_rules, mk_submission};

/// The request of OCM's own agent: P-256, two groups, one DNS name.
const REQUEST: &[u8] = include_bytes!("../../../certs/requests/good/ocm-agent-v1.3.pem");

/// The last step of issuing that is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Signed,
    /// The ledger notes that the certificate was published. Nobody waits for that.
    Published,
}

/// Where issuing is recorded, and how far.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) ledger: Ledger,
    pub(crate) until: Until,
}

/// A CA with an approved request.
pub(crate) struct Signer {
    approved: Approved,
    issuer: Issuer,
    published: Bundle,
    rng: SystemRandom,
    pub(crate) now: Timestamp,
    serials: AtomicU64,
}

impl Signer {
    pub(crate) fn new() -> Self {
        let rng = SystemRandom::new();
        let now = Clock::default().now();
        let (key, _) = PrivateKey::generate(KeyKind::EcdsaP256, &rng).unwrap();
        let life = Duration::from_secs(365 * 86_400);
        let authority = Authority::self_signed("addon-signer client CA telemetry", &key, now, life, &rng).unwrap();
        let published = Bundle::new(vec![authority.clone()]).unwrap();
        let cluster = "spoke1".parse().unwrap();
        let addon: AddOnName = "telemetry".parse().unwrap();
        let rules = mk_rules("example.com/telemetry", [addon.clone()]);
        let registry = mk_registry(&cluster, [addon.clone()]);
        let approved = evaluate(&rules, &mk_submission(&cluster, &addon, REQUEST), &registry).unwrap();
        let issuer = Issuer::new(authority, key).unwrap();
        Self { approved, issuer, published, rng, now, serials: AtomicU64::new(0) }
    }

    /// Prepares a certificate, records the intent, signs and checks it, and records it. Without a recording it only
    /// signs.
    pub(crate) async fn issue(&self, recording: Option<&Recording>) {
        let serial = Serial::new(Clock::default().now(), &self.rng).unwrap();
        let prepared = self.issuer.prepare(self.approved.clone(), serial, self.now).unwrap();
        let n = self.serials.fetch_add(1, Ordering::Relaxed);
        let uid = mk_uid(&format!("{} {n}", std::process::id()));
        if let Some(Recording { ledger, .. }) = recording {
            let mut intent = mk_intent(n, self.issuer.authority().id(), self.now);
            intent.uid = uid.clone();
            intent.serial = prepared.serial();
            intent.requested = Clock::default().now();
            intent.tbs = prepared.digest();
            intent.not_after = prepared.not_after();
            assert_eq!(ledger.intend(intent).await.unwrap(), Intended::Recorded);
        }
        let issued = self.issuer.sign(prepared, &self.published, self.now, &self.rng).unwrap();
        if let Some(Recording { ledger, until }) = recording {
            let certificate = issued.certificate.to_vec();
            ledger.append(Record::Signed { uid, serial: issued.serial, certificate }, "").await.unwrap();
            if *until == Until::Published {
                ledger.published(issued.serial, self.now).await;
            }
        }
    }

    /// An intent of `now`, and the record of its certificate.
    pub(crate) fn records(&self, n: u64, now: Timestamp, certificate: &[u8]) -> (Intent, Record) {
        let mut intent = mk_intent(n, self.issuer.authority().id(), now);
        if n == 0 {
            intent.signer = "rare".to_owned();
            intent.issuer = "rare".into();
            intent.identity = Some(mk_identity("rare", "rare", "rare"));
        }
        let signed =
            Record::Signed { uid: intent.uid.clone(), serial: intent.serial, certificate: certificate.to_vec() };
        (intent, signed)
    }

    /// A certificate.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        let serial = Serial::new(self.now, &self.rng).unwrap();
        let prepared = self.issuer.prepare(self.approved.clone(), serial, self.now).unwrap();
        self.issuer.sign(prepared, &self.published, self.now, &self.rng).unwrap().certificate.to_vec()
    }

    /// The sizes of the two entries of a certificate, in bytes.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        let (intent, signed) = self.records(0, self.now, &self.certificate());
        [Record::Intent(Box::new(intent)), signed].map(|record| mk_text(Tip::EMPTY, &record).len())
    }
}

/// The text of the entry after `tip`.
pub(crate) fn mk_text(tip: Tip, record: &Record) -> String {
    let entry = Entry {
        seq: tip.seq + 1,
        previous: tip.hash.to_string(),
        time: tip.time.to_string(),
        kind: record.kind().to_owned(),
        epoch: 1,
        replica: "bench".to_owned(),
        actor: String::new(),
        details: record.details(),
    };
    entry.text()
}

/// A UID that is as random as those of Kubernetes.
fn mk_uid(of: &str) -> CsrUid {
    let hash = Hash::of(of).to_string();
    format!("{}-{}-4{}-8{}-{}", &hash[..8], &hash[8..12], &hash[12..15], &hash[15..18], &hash[18..30]).as_str().into()
}

fn mk_identity(cluster: &str, addon: &str, agent: &str) -> PeerIdentity {
    PeerIdentity { cluster: cluster.parse().unwrap(), addon: addon.parse().unwrap(), agent: agent.parse().unwrap() }
}

fn mk_intent(n: u64, issuer: &AuthorityId, now: Timestamp) -> Intent {
    let uid = mk_uid(&n.to_string());
    // Clusters that send CSRs at the same time are not adjacent in the index.
    let cluster = format!("cluster{}", u32::from_str_radix(&uid.as_str()[..8], 16).unwrap() % 2000);
    let serial = format!("{:08x}{}", now.unix() / 2, &Hash::of(&format!("serial {n}")).to_string()[..32]);
    Intent {
        uid,
        requested: now,
        request: format!("addon-{cluster}-telemetry-{n:05}"),
        signer: "telemetry".to_owned(),
        generation: 1,
        signer_name: "example.com/telemetry".parse().unwrap(),
        requester: format!("system:open-cluster-management:{cluster}:agent1"),
        csr_user: None,
        identity: Some(mk_identity(&cluster, "telemetry", "telemetry")),
        issuer: issuer.clone(),
        serial: Serial::from_hex(&serial).unwrap(),
        not_before: now.minus(Duration::from_secs(300)),
        not_after: now.plus(Duration::from_secs(86_400)),
        prepared: now,
        tbs: "00".repeat(32),
        csr: String::from_utf8_lossy(REQUEST).into_owned(),
    }
}
