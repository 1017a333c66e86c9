//! Records in the ledger what the hub does and observes: steps of authorities, configurations, eligibility, revocations
//! and uses. Publishes signed checkpoints of the ledger.

pub mod checkpoints;
pub(super) mod chronicle;
mod notes;
mod unrenewed;

use futures::FutureExt;
use tokio::sync::watch;

use crate::HubLinks;
use crate::registrations::wanted::Signers;
use crate::tasks::{HubTasks, after_the_writer};
use addon_signer_ledger::{LedgerWriter, Reader};
use checkpoints::Checkpoints;
use notes::record_usage;
use unrenewed::keep_unrenewed;

pub(super) use notes::{Notes, answered};

/// The ledger's writer, the epoch in which it writes, the notes that it records, and the signers that are served.
pub(super) struct Feeding {
    pub(super) writer: LedgerWriter,
    pub(super) epoch: u64,
    pub(super) notes: Notes,
    pub(super) signers: watch::Receiver<Option<Signers>>,
}

/// Starts the tasks that write to the ledger or compare with it.
pub(super) fn start(tasks: &mut HubTasks, links: &HubLinks, namespace: &str, feeding: Feeding) {
    let Feeding { writer, epoch, notes, signers } = feeding;
    let location = writer.location();
    tasks.spawn("writer of the ledger", async move { Ok(writer.run(epoch).await?) });
    let HubLinks { client, clock, leading, ledger, registry, usage, metrics, .. } = links;
    tasks.spawn("changes for the ledger", after_the_writer(notes.keep(ledger.clone(), registry.clone())));
    let unrenewed =
        keep_unrenewed(Reader::new(location.clone()), registry.clone(), clock.clone(), signers, metrics.clone());
    tasks.spawn("certificates that were not renewed", unrenewed.map(Ok));
    let checkpoints =
        Checkpoints::new(client, namespace, clock.clone(), ledger.clone(), location, leading.clone(), metrics.clone());
    tasks.spawn("checkpoints", after_the_writer(checkpoints.keep()));
    let usage = record_usage(ledger.clone(), usage.clone(), clock.clone());
    tasks.spawn("uses of certificates", after_the_writer(usage));
}
