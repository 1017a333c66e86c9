//! Checks the order of issuing without a server.

mod crashes;
mod steps;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ring::rand::SystemRandom;

use super::*;
use crate::ca::authority::LAST_CALL;
use crate::ca::issuer::tests::{NOW, YEAR, bundle, mk_approved, mk_approved_after, mk_issuer};
use crate::keys::public::KeyKind;

/// What remains when a hub is killed: the ledger, the lineage and the CSR.
#[derive(Default)]
struct World {
    reserved: Option<Timestamp>,
    intent: Option<Intent>,
    signed: Option<Vec<u8>>,
    closed: Vec<Record>,
    approved: bool,
    refused: bool,
    published: Option<Issued>,
    /// The anchors that were published with the certificate.
    trust_bundle: Option<String>,
    /// Every certificate that a key has signed for the CSR.
    signatures: Vec<Issued>,
    /// What the ledger has instead of the intent, if that was altered.
    altered: Option<Existing>,
}

/// A hub that starts: its authority and what it knows.
#[derive(Clone)]
struct Hub {
    issuer: Arc<Issuer>,
    published: Bundle,
    /// The trust bundle of the gateway's lineage.
    serving: Option<Bundle>,
    approved: Approved,
    approves: bool,
    now: Timestamp,
    /// The certificate that it has signed for the CSR before.
    earlier: Option<Issued>,
    /// After this many effects, everything that begins before this time is revoked.
    revoked: Option<(usize, Timestamp)>,
    /// After this many effects, the addon is not eligible.
    detached: Option<usize>,
    /// After this many effects, the lineage reserves nothing.
    unreserved: Option<usize>,
    /// How long the identity must wait.
    limited: Option<Duration>,
}

impl Hub {
    fn new() -> Self {
        let issuer = Arc::new(mk_issuer(KeyKind::EcdsaP256, YEAR));
        let published = bundle(&issuer);
        Self {
            issuer,
            serving: Some(published.clone()),
            published,
            approved: mk_approved(),
            approves: true,
            now: NOW,
            earlier: None,
            revoked: None,
            detached: None,
            unreserved: None,
            limited: None,
        }
    }

    fn signing(&self) -> Signing<'_> {
        let serial = Serial::new(self.now, &SystemRandom::new()).unwrap();
        Signing { issuer: &self.issuer, published: &self.published, serial, now: self.now }
    }

    fn request(&self) -> Request {
        Request {
            uid: "uid-1".into(),
            requested: NOW,
            name: "csr-1".to_owned(),
            requester: "system:open-cluster-management:spoke1:a1".to_owned(),
            csr_user: None,
            csr: "the CSR".to_owned(),
            signer: "telemetry".to_owned(),
            generation: 7,
            signer_name: "example.com/telemetry".parse().unwrap(),
            approved: self.approved.clone(),
            approves: self.approves,
        }
    }

    /// Works on the CSR until the attempt ends, or until the hub is killed after `lives` effects. Returns how the
    /// attempt ended (`None` if the hub was killed) and its effects.
    fn work(&self, world: &mut World, lives: usize) -> (Option<End>, Vec<&'static str>) {
        let mut process = Process { hub: self, world, lives, taken: Vec::new() };
        let request = self.request();
        let end = finished(issue(&mut process, &request, self.signing(), self.earlier.clone()));
        (end.ok(), process.taken)
    }
}

/// The result of a future that waits for nothing.
fn finished<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("no effect of a test waits"),
    }
}

/// A hub that runs.
struct Process<'w> {
    hub: &'w Hub,
    world: &'w mut World,
    /// The number of effects after which it is killed.
    lives: usize,
    /// The effects that it has performed.
    taken: Vec<&'static str>,
}

#[derive(Debug)]
struct Killed;

impl From<IssueError> for Killed {
    fn from(error: IssueError) -> Self {
        panic!("{error}")
    }
}

impl Process<'_> {
    fn take(&mut self, effect: &'static str) -> Result<(), Killed> {
        if self.taken.len() == self.lives {
            return Err(Killed);
        }
        self.taken.push(effect);
        Ok(())
    }
}

/// Performs each effect, and checks that it is allowed.
impl Effects for Process<'_> {
    type Error = Killed;

    fn surroundings(&self) -> Surroundings {
        let Hub { revoked, detached, serving, .. } = self.hub;
        let taken = self.taken.len();
        Surroundings {
            is_allowed: detached.is_none_or(|from| taken < from),
            valid_from: revoked.filter(|(from, _)| *from <= taken).map(|(_, before)| before),
            trust_bundle: serving.clone(),
            last_end: serving.as_ref().and_then(|bundle| {
                let newest = bundle.authorities().iter().max_by_key(|authority| authority.not_before())?;
                Some(newest.not_after().minus(LAST_CALL * 2))
            }),
        }
    }

    async fn reserve(&mut self, until: Timestamp) -> Result<bool, Killed> {
        self.take("reserve")?;
        let reserves = self.hub.unreserved.is_none_or(|from| self.taken.len() <= from);
        if reserves {
            self.world.reserved = Some(until);
        }
        Ok(reserves)
    }

    async fn count(&mut self) -> Result<Result<(), Duration>, Killed> {
        self.take("count")?;
        Ok(self.hub.limited.map_or(Ok(()), Err))
    }

    async fn record_intent(&mut self, intent: Intent) -> Result<Intended, Killed> {
        self.take("record intent")?;
        assert_eq!(Some(intent.not_after), self.world.reserved, "reserved before it is decided");
        Ok(self.world.intend(intent))
    }

    async fn sign(&mut self, prepared: Prepared) -> Result<Issued, Killed> {
        self.take("sign")?;
        let intent = self.world.intent.as_ref().expect("an intent is durable before the key is used");
        assert_eq!((&intent.tbs, intent.serial), (&prepared.digest(), prepared.serial()));
        assert_eq!(Some(prepared.not_after()), self.world.reserved, "the anchor stays while the certificate lives");
        let Hub { issuer, published, now, .. } = self.hub;
        let issued = issuer.sign(prepared, published, *now, &SystemRandom::new())?;
        self.world.signatures.push(issued.clone());
        Ok(issued)
    }

    async fn record_certificate(&mut self, issued: &Issued, record: Record) -> Result<(), Killed> {
        self.take("record certificate")?;
        let Record::Signed { uid, serial, certificate } = record else { panic!("{record:?} holds no certificate") };
        let intent = self.world.intent.as_ref().unwrap();
        assert_eq!((&intent.uid, intent.serial), (&uid, serial));
        assert_eq!(certificate, issued.certificate.to_vec());
        assert!(self.world.signed.replace(certificate).is_none(), "a second certificate");
        Ok(())
    }

    async fn approve(&mut self, issued: &Issued) -> Result<(), Killed> {
        self.take("approve")?;
        assert_eq!(self.world.signed, Some(issued.certificate.to_vec()), "durable before the approval");
        self.world.approved = true;
        Ok(())
    }

    async fn publish(&mut self, issued: &Issued, trust_bundle: &str) -> Result<(), Killed> {
        self.take("publish")?;
        assert_eq!(self.world.signed, Some(issued.certificate.to_vec()), "what is recorded is published");
        assert!(self.world.approved == self.hub.approves);
        assert!(!self.world.refused);
        assert_eq!(Some(trust_bundle), self.hub.serving.as_ref().map(Bundle::pem).as_deref());
        self.world.published = Some(issued.clone());
        self.world.trust_bundle = Some(trust_bundle.to_owned());
        Ok(())
    }

    async fn refuse(&mut self, _: &Issued) -> Result<(), Killed> {
        self.take("refuse")?;
        assert!(self.world.published.is_none());
        self.world.refused = true;
        Ok(())
    }

    async fn close(&mut self, record: Record) -> Result<(), Killed> {
        self.take("close")?;
        self.world.close(record);
        Ok(())
    }
}

impl World {
    fn close(&mut self, record: Record) {
        match &record {
            Record::Abandoned { uid, serial, .. } => {
                assert!(self.signed.is_none(), "a certificate is not abandoned");
                let intent = self.intent.take().unwrap();
                assert_eq!((&intent.uid, intent.serial), (uid, *serial));
            }
            Record::Unpublished { uid, serial, .. } => {
                assert!(self.refused, "the CSR is refused first: who sees the row closed sees why");
                let intent = self.intent.as_ref().unwrap();
                assert_eq!((&intent.uid, intent.serial), (uid, *serial));
            }
            other => panic!("{other:?} closes no row"),
        }
        self.closed.push(record);
    }

    /// Does the same as `Ledger::intend`.
    fn intend(&mut self, intent: Intent) -> Intended {
        if let Some(altered) = self.altered.clone() {
            return Intended::Existing(altered);
        }
        let Some(Intent { issuer, serial, prepared, tbs, .. }) = self.intent.clone() else {
            self.intent = Some(intent);
            return Intended::Recorded;
        };
        Intended::Existing(match &self.signed {
            Some(certificate) => Existing::Signed { row: 2, issuer, serial, certificate: certificate.clone() },
            None => Existing::Intent { issuer, serial, prepared, tbs },
        })
    }

    /// Starts attempts until one ends with something else than [`End::Later`].
    fn finish(&mut self, hub: &Hub) -> End {
        for _ in 0..3 {
            match hub.work(self, usize::MAX) {
                (Some(End::Later), _) => {}
                (end, _) => return end.unwrap(),
            }
        }
        panic!("three attempts ended with End::Later");
    }
}
