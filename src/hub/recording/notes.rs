//! Changes that others made, until they are recorded: the last of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::debug;

use crate::api::AddOnSigner;
use crate::api::manager::last_manager;
use crate::ledger::{CertificateUse as Use, Ledger, LedgerError};
use addon_signer_core::identity::{AddOnName, ClusterName};
use addon_signer_core::journal::record::Record;
use addon_signer_core::registry::{Change, Registry, Revocation, SharedRegistry, Standing, StandingChange};
use addon_signer_core::sighting::Seen;
use addon_signer_platform::clock::Clock;

/// How soon what could not be recorded is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How often the registry is asked whether it is complete, before what was missed is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How often the certificates in use are written down; each of them at most once a minute.
const USES: Duration = Duration::from_secs(10);

type Waiting = BTreeMap<(&'static str, String), (Record, String)>;

/// Shared by all who see changes.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<NotesState>);

#[derive(Default)]
struct NotesState {
    waiting: Mutex<Waiting>,
    /// The addons that have a signer; the standing of others is not of interest.
    addons: Mutex<BTreeSet<AddOnName>>,
    /// The AddOnSigners of the first complete list.
    signers: Mutex<Option<BTreeSet<String>>>,
    more: Notify,
}

impl Notes {
    /// A change, and who made it where that is known. Kinds without a topic are not for notes.
    fn note(&self, record: Record, actor: &str) {
        if let Some((topic, name, _)) = record.topic() {
            lock(&self.0.waiting).insert((topic, name), (record, actor.to_owned()));
            self.0.more.notify_one();
        }
    }

    /// The standing of an addon on a cluster changed. `annotator` is the program that wrote the annotation which
    /// suspends it.
    pub(crate) fn standing(&self, change: &StandingChange, annotator: &str) {
        let StandingChange { cluster, addon, change, cause: _ } = change;
        let Change::Standing(change) = *change else {
            return self.note_revocation(cluster, addon, change.revocation());
        };
        if lock(&self.0.addons).contains(addon) {
            let actor = if matches!(change, Standing::Suspended | Standing::Resumed) { annotator } else { "" };
            self.note(Record::Standing { cluster: cluster.clone(), addon: addon.clone(), change }, actor);
        }
    }

    /// What is revoked of an addon as it is now; recorded if the ledger knows something else. Also of an addon without
    /// a signer: the annotation is ours, and who set it meant it.
    pub(crate) fn revocation(&self, registry: &SharedRegistry, cluster: &ClusterName, addon: &AddOnName) {
        registry.read(|registry| {
            if let Some(known) = registry.revocation(cluster, addon) {
                self.note_revocation(cluster, addon, known);
            }
        });
    }

    fn note_revocation(&self, cluster: &ClusterName, addon: &AddOnName, now: Option<&Revocation>) {
        let after = now.map(|revocation| revocation.before);
        let record = Record::Revocation { cluster: cluster.clone(), addon: addon.clone(), before: None, after };
        self.note(record, now.map_or("", |revocation| &revocation.by));
    }

    /// The configuration of an AddOnSigner as it is now; recorded if it is not known.
    pub(crate) fn configured(&self, object: &AddOnSigner) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let generation = object.metadata.generation.unwrap_or_default();
        let Ok(after) = serde_json::to_string(&object.spec) else { return }; // a spec that was read can be written
        self.note(
            Record::Signer { signer: name, generation, before: String::new(), after },
            last_manager(&object.metadata),
        );
    }

    /// An AddOnSigner was deleted.
    pub(crate) fn deleted(&self, signer: &str) {
        self.note(gone(signer), "");
    }

    /// All AddOnSigners there are: others that the ledger knows were deleted while nobody looked.
    pub(crate) fn listed(&self, signers: BTreeSet<String>) {
        lock(&self.0.signers).replace(signers);
        self.0.more.notify_one();
    }

    /// The addons whose standing is of interest from now on.
    pub(crate) fn serve(&self, addons: BTreeSet<AddOnName>) {
        *lock(&self.0.addons) = addons;
    }

    /// Records what is noted, for as long as the ledger is there.
    pub(crate) async fn keep(self, ledger: Ledger, registry: SharedRegistry) {
        if let Err(LedgerError::Stopped) = self.find_missed(&ledger, &registry).await {
            return;
        }
        loop {
            let listed = lock(&self.0.signers).take();
            if let Some(signers) = listed
                && let Err(error) = self.find_deleted(&ledger, &signers).await
            {
                debug!(%error, "Deleted AddOnSigners wait to be recorded");
                lock(&self.0.signers).get_or_insert(signers);
                tokio::time::sleep(RETRY).await;
                continue;
            }
            let next = lock(&self.0.waiting).pop_first();
            let Some((key, (record, actor))) = next else {
                self.0.more.notified().await;
                continue;
            };
            match ledger.change(record.clone(), &actor).await {
                Ok(()) => {}
                Err(LedgerError::Stopped) => return,
                Err(error) => {
                    debug!(%error, "A change waits to be recorded");
                    lock(&self.0.waiting).entry(key).or_insert((record, actor));
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Standings that were lost or suspended, and certificates that were revoked, while no hub ran.
    async fn find_missed(&self, ledger: &Ledger, registry: &SharedRegistry) -> Result<(), LedgerError> {
        while !registry.read(Registry::is_ready) {
            tokio::time::sleep(LOOK).await;
        }
        for (name, word) in known(ledger, "standing").await? {
            let Some((of, which)) = pair(&name) else { continue };
            let had = [Standing::Registered, Standing::Resumed].iter().any(|standing| standing.name() == word);
            let now = registry.read(|registry| registry.check(&of, &which));
            let before = if had { Ok(()) } else { now };
            if let Some(change) = Standing::between(before, now) {
                self.note(Record::Standing { cluster: of, addon: which, change }, "");
            }
        }
        let recorded = known(ledger, "revocation").await?;
        let mut pairs: BTreeSet<_> = recorded.keys().filter_map(|name| pair(name)).collect();
        registry
            .read(|registry| pairs.extend(registry.revocations().map(|(of, which, _)| (of.clone(), which.clone()))));
        for (of, which) in pairs {
            self.revocation(registry, &of, &which);
        }
        Ok(())
    }

    async fn find_deleted(&self, ledger: &Ledger, signers: &BTreeSet<String>) -> Result<(), LedgerError> {
        let known = ledger.latest("signer").await?;
        for (name, _) in known.iter().filter(|(name, spec)| !spec.is_empty() && !signers.contains(*name)) {
            self.deleted(name);
        }
        Ok(())
    }
}

/// The last state of everything of this topic, as soon as the ledger can say it.
async fn known(ledger: &Ledger, topic: &'static str) -> Result<BTreeMap<String, String>, LedgerError> {
    loop {
        match ledger.latest(topic).await {
            Ok(known) => return Ok(known),
            Err(LedgerError::Stopped) => return Err(LedgerError::Stopped),
            Err(_) => tokio::time::sleep(RETRY).await, // the writer has said why
        }
    }
}

/// The cluster and the addon of a standing's name.
fn pair(name: &str) -> Option<(ClusterName, AddOnName)> {
    let (cluster, addon) = name.split_once('/')?;
    Some((cluster.parse().ok()?, addon.parse().ok()?))
}

/// Writes down which certificates are in use; a minute of it may be lost.
pub(crate) async fn keep_seen(ledger: Ledger, seen: Arc<Seen>, clock: Clock) {
    loop {
        tokio::time::sleep(USES).await;
        let uses = seen.drain(clock.now()).into_iter();
        let uses = uses.map(|seen| Use { serial: seen.serial, at: seen.at, from: seen.from.to_string() });
        ledger.seen(uses.collect()).await;
    }
}

fn gone(signer: &str) -> Record {
    Record::Signer { signer: signer.to_owned(), generation: 0, before: String::new(), after: String::new() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one operation, so that a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
