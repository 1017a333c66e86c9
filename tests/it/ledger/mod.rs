//! Tests of the ledger on real stores: always on SQLite, and on PostgreSQL if its programs are named.

mod archiving;
mod certs;
pub(crate) mod checker;
mod claimed;
mod disk;
mod format;
mod hiding;
mod kit;
mod latest;
mod listing;
mod opening;
mod outage;
mod owner;
mod questions;
mod reading;
mod recorded;
pub(crate) mod rows;
mod tampering;
mod verifying;
mod writing;

use std::path::Path;

use addon_signer_core::ca::serial::Serial;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::journal::record::{Intent, Record};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{Health, Ledger, LedgerError, LedgerWriter, Location, WriterOptions};
use addon_signer_platform::clock::Clock;
use tokio::task::JoinHandle;

/// An open ledger and its writer.
pub(crate) struct Open {
    pub(crate) ledger: Ledger,
    pub(crate) writer: JoinHandle<Result<(), LedgerError>>,
}

impl Open {
    /// Lets the writer end, and waits until it has closed the store.
    pub(crate) async fn close(self) {
        drop(self.ledger);
        self.writer.await.unwrap().unwrap();
    }
}

pub(crate) fn sqlite(dir: &Path) -> Location {
    format!("sqlite://{}/ledger.db", dir.display()).parse().unwrap()
}

pub(crate) fn options(location: &Location, replica: &str) -> WriterOptions {
    WriterOptions {
        location: location.clone(),
        replica: replica.to_owned(),
        clock: Clock::default(),
        metrics: Default::default(),
    }
}

/// Starts a writer, and does not wait until it has opened the ledger.
pub(crate) fn start(options: WriterOptions, epoch: u64) -> Open {
    let (writer, ledger) = LedgerWriter::new(options);
    Open { ledger, writer: tokio::spawn(writer.run(epoch)) }
}

/// Starts a writer, and waits until it has opened the ledger.
pub(crate) async fn open(options: WriterOptions, epoch: u64) -> Open {
    let open = start(options, epoch);
    let mut health = open.ledger.health();
    health.wait_for(|health| matches!(health, Health::Up { .. })).await.unwrap();
    open
}

pub(crate) fn mk_serial(n: u64) -> Serial {
    Serial::from_hex(&format!("{n:040x}")).unwrap()
}

pub(crate) fn mk_identity(cluster: &str, addon: &str, agent: &str) -> PeerIdentity {
    PeerIdentity { cluster: cluster.parse().unwrap(), addon: addon.parse().unwrap(), agent: agent.parse().unwrap() }
}

pub(crate) fn mk_uid(n: u64) -> CsrUid {
    format!("uid-{n}").as_str().into()
}

pub(crate) fn mk_intent(n: u64) -> Intent {
    Intent {
        uid: mk_uid(n),
        requested: Timestamp::from_unix(1_795_000_200),
        request: format!("csr-{n}"),
        signer: "telemetry".to_owned(),
        generation: 1,
        signer_name: "example.com/telemetry".parse().unwrap(),
        requester: "system:open-cluster-management:cluster1:agent1".to_owned(),
        csr_user: n.is_multiple_of(3).then(|| "system:open-cluster-management:cluster2:agent2".to_owned()),
        identity: Some(mk_identity(&format!("cluster{}", n % 7), "telemetry", "telemetry")),
        issuer: "0123456789abcdef".into(),
        serial: mk_serial(n),
        not_before: Timestamp::from_unix(1_795_000_000),
        not_after: Timestamp::from_unix(1_795_086_400),
        prepared: Timestamp::from_unix(1_795_000_300),
        tbs: "00".repeat(32),
        csr: "-----BEGIN CERTIFICATE REQUEST-----\n".to_owned(),
    }
}

pub(crate) fn mk_signed(n: u64) -> Record {
    Record::Signed { uid: mk_uid(n), serial: mk_serial(n), certificate: n.to_be_bytes().to_vec() }
}

pub(crate) fn mk_abandoned(n: u64) -> Record {
    Record::Abandoned { uid: mk_uid(n), serial: mk_serial(n), reason: "It is gone.".to_owned() }
}

/// Records the intents `mk_intent(n)` and their certificates, many at the same time.
pub(crate) async fn fill(hub: &Open, numbers: std::ops::Range<u64>) {
    let work = numbers.map(|n| {
        let ledger = hub.ledger.clone();
        tokio::spawn(async move {
            ledger.intend(mk_intent(n)).await.unwrap();
            ledger.append(mk_signed(n), "").await.unwrap();
        })
    });
    for done in work.collect::<Vec<_>>() {
        done.await.unwrap();
    }
}
