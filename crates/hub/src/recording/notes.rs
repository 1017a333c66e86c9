//! Keeps changes that other programs made (configurations, eligibility, revocations) until the ledger has recorded
//! them. While the ledger cannot be written to, only the last state of each is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::debug;

use addon_signer_api::ocm::last_manager;
use addon_signer_api::rules::SignerConfig;
use addon_signer_api::{AddOnSigner, AddOnSignerSpec};
use addon_signer_core::identity::{AddOnName, ClusterName};
use addon_signer_core::journal::record::Record;
use addon_signer_core::oldest::MOST_SIGNERS;
use addon_signer_core::registry::{Change, Eligibility, EligibilityChange, Registry, Revocation, SharedRegistry};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::usage::UsageTracker;
use addon_signer_ledger::{CertificateUse as Use, Ledger, LedgerError};
use addon_signer_platform::clock::Clock;

/// How soon the hub retries what could not be recorded.
const RETRY: Duration = Duration::from_secs(2);
/// How often the hub checks whether the registry is complete, so that it can find changes that it missed.
const POLL: Duration = Duration::from_secs(1);
/// How often the certificates in use are recorded; each of them at most once a minute.
const USES: Duration = Duration::from_secs(10);

/// The most bytes of specifications in the ledger whose registrations a hub that starts looks after.
const REGISTERING: usize = 8 << 20;

type NoteKey = (&'static str, String);
type Waiting = BTreeMap<NoteKey, (Record, String)>;

/// The pending records, shared by all tasks that see changes.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<NotesState>);

#[derive(Default)]
struct NotesState {
    waiting: Mutex<Waiting>,
    /// The addons that have a signer; the eligibility of others is not recorded.
    addons: Mutex<BTreeSet<AddOnName>>,
    /// The AddOnSigners of the last complete list, until they are compared with the ledger.
    signers: Mutex<Option<BTreeSet<String>>>,
    /// The configurations that the ledger has of AddOnSigners with registrations; some may have been deleted.
    registering: watch::Sender<Vec<Arc<SignerConfig>>>,
    more: Notify,
}

impl Notes {
    /// Notes a change, and the user who made it, if known. Records without a topic are dropped.
    fn note(&self, record: Record, actor: &str) {
        if let Some((topic, name, _)) = record.topic() {
            self.0.waiting.lock().insert((topic, name), (record, actor.to_owned()));
            self.0.more.notify_one();
        }
    }

    /// Notes that the eligibility of an addon on a cluster changed. `annotator` is the program that wrote the
    /// annotation that suspends the addon.
    pub(crate) fn eligibility(&self, change: &EligibilityChange, annotator: &str) {
        let EligibilityChange { cluster, addon, change, cause: _ } = change;
        let Change::Eligibility(change) = *change else {
            return self.note_revocation(cluster, addon, change.revocation());
        };
        if self.0.addons.lock().contains(addon) {
            let actor = if matches!(change, Eligibility::Suspended | Eligibility::Resumed) { annotator } else { "" };
            self.note(Record::Eligibility { cluster: cluster.clone(), addon: addon.clone(), change }, actor);
        }
    }

    /// Notes the current revocation of an addon; the ledger records it if it is new. This includes addons without a
    /// signer: the annotation is ours, so the user who set it meant it.
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

    /// Notes the current configuration of an AddOnSigner; the ledger records it if it is new.
    pub(crate) fn configured(&self, object: &AddOnSigner) {
        let name = object.metadata.name.clone().unwrap_or_default();
        let generation = object.metadata.generation.unwrap_or_default();
        let Ok(after) = serde_json::to_string(&object.spec) else { return }; // a decoded spec can be encoded
        self.note(
            Record::Signer { signer: name, generation, before: String::new(), after },
            last_manager(&object.metadata),
        );
    }

    /// Notes that an AddOnSigner was deleted.
    pub(crate) fn deleted(&self, signer: &str) {
        self.note(gone(signer), "");
    }

    /// Notes all existing AddOnSigners. Others that the ledger knows were deleted while no hub watched.
    pub(crate) fn listed(&self, signers: BTreeSet<String>) {
        self.0.signers.lock().replace(signers);
        self.0.more.notify_one();
    }

    /// The configurations that the ledger has of AddOnSigners with registrations; some may have been deleted while no
    /// hub watched.
    pub(crate) fn registering(&self) -> watch::Receiver<Vec<Arc<SignerConfig>>> {
        self.0.registering.subscribe()
    }

    /// Sets the addons whose eligibility is recorded from now on.
    pub(crate) fn serve(&self, addons: BTreeSet<AddOnName>) {
        *self.0.addons.lock() = addons;
    }

    /// Records the notes until the ledger's writer ends.
    pub(crate) async fn keep(self, ledger: Ledger, registry: SharedRegistry) {
        if self.find_specs(&ledger).await.is_err() || self.find_missed(&ledger, &registry).await.is_err() {
            return; // the ledger's writer has ended
        }
        let mut last = None;
        loop {
            let listed = self.0.signers.lock().take();
            if let Some(signers) = listed
                && let Err(error) = self.find_deleted(&ledger, &signers).await
            {
                debug!(%error, "Could not record which AddOnSigners were deleted; the hub retries");
                self.0.signers.lock().get_or_insert(signers);
                tokio::time::sleep(RETRY).await;
                continue;
            }
            let next = take_after(&mut self.0.waiting.lock(), last.as_ref());
            let Some((key, (record, actor))) = next else {
                self.0.more.notified().await;
                continue;
            };
            let recorded = match is_kept(&record, &ledger, &registry).await {
                Ok(true) => Ok(()),
                Ok(false) => ledger.change(record.clone(), &actor).await,
                Err(error) => Err(error),
            };
            last = Some(key.clone());
            match recorded {
                Ok(()) => {}
                Err(LedgerError::Stopped) => return,
                Err(error) => {
                    debug!(%error, "Could not record a change; the hub retries");
                    self.0.waiting.lock().entry(key).or_insert((record, actor));
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn find_specs(&self, ledger: &Ledger) -> Result<(), LedgerError> {
        self.0.registering.send_replace(answered(|| registering(ledger)).await?);
        Ok(())
    }

    /// Notes eligibility that was lost or suspended, and revocations that changed, while no hub ran.
    async fn find_missed(&self, ledger: &Ledger, registry: &SharedRegistry) -> Result<(), LedgerError> {
        while !registry.read(Registry::is_ready) {
            tokio::time::sleep(POLL).await;
        }
        for (name, word) in answered(|| ledger.latest("standing")).await? {
            let Some((of, which)) = pair(&name) else { continue };
            let had =
                [Eligibility::Registered, Eligibility::Resumed].iter().any(|eligibility| eligibility.name() == word);
            // An outdated registry is good enough: it reports a later change, which is then recorded.
            let now = registry.read(|registry| registry.listed(&of, &which));
            let before = if had { Ok(()) } else { now };
            if let Some(change) = Eligibility::between(before, now) {
                self.note(Record::Eligibility { cluster: of, addon: which, change }, "");
            }
        }
        let recorded = answered(|| ledger.latest("revocation")).await?;
        let mut pairs: BTreeSet<_> = recorded.keys().filter_map(|name| pair(name)).collect();
        registry
            .read(|registry| pairs.extend(registry.revocations().map(|(of, which, _)| (of.clone(), which.clone()))));
        for (of, which) in pairs {
            self.revocation(registry, &of, &which);
        }
        Ok(())
    }

    async fn find_deleted(&self, ledger: &Ledger, signers: &BTreeSet<String>) -> Result<(), LedgerError> {
        ledger.signers().await?.difference(signers).for_each(|name| self.deleted(name));
        Ok(())
    }
}

/// Takes the note behind the last one, so that one that changes all the time holds up no other.
fn take_after(waiting: &mut Waiting, last: Option<&NoteKey>) -> Option<(NoteKey, (Record, String))> {
    let behind = last.and_then(|last| waiting.range((Bound::Excluded(last), Bound::Unbounded)).next());
    let key = behind.or_else(|| waiting.first_key_value())?.0.clone();
    waiting.remove_entry(&key)
}

/// The configurations that the ledger has of AddOnSigners with registrations, the latest first.
async fn registering(ledger: &Ledger) -> Result<Vec<Arc<SignerConfig>>, LedgerError> {
    let (mut found, mut size) = (Vec::new(), 0);
    let take = |text: &str| {
        // One that cannot be decoded is another version's. Its registrations stay.
        let spec: Option<AddOnSignerSpec> = serde_json::from_str(text).ok();
        // One that is refused now was also refused then, or is older than the rule. Its registrations stay too.
        let config = spec.and_then(|spec| SignerConfig::read(&spec, None).ok());
        if let Some(config) = config.filter(|config| config.registers) {
            found.push(Arc::new(config));
            size += text.len();
        }
        found.len() < MOST_SIGNERS && size < REGISTERING
    };
    ledger.signer_specs(take).await?;
    Ok(found)
}

/// Whether a revocation was deleted with its object but stays in effect, because the object was recreated later: no
/// certificate is accepted again, so nothing needs recording.
async fn is_kept(record: &Record, ledger: &Ledger, registry: &SharedRegistry) -> Result<bool, LedgerError> {
    let Record::Revocation { cluster, addon, after, .. } = record else { return Ok(false) };
    let created = registry.read(|registry| registry.created(cluster, addon));
    if created.is_some() && *after >= created {
        return Ok(false);
    }
    let recorded = ledger.latest("revocation").await?;
    let recorded = recorded.get(&format!("{cluster}/{addon}")).and_then(|time| Timestamp::from_display(time));
    // An object that was deleted again accepts no certificate either.
    Ok(*after < recorded && (created.is_none() || recorded <= created))
}

/// Asks until the ledger answers; fails only if its writer has ended.
pub(crate) async fn answered<T, F>(ask: impl Fn() -> F) -> Result<T, LedgerError>
where
    F: Future<Output = Result<T, LedgerError>>,
{
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(LedgerError::Stopped) => return Err(LedgerError::Stopped),
            Err(_) => tokio::time::sleep(RETRY).await, // the ledger's writer has logged why
        }
    }
}

/// The cluster and the addon in the name of a record of eligibility or of a revocation.
fn pair(name: &str) -> Option<(ClusterName, AddOnName)> {
    let (cluster, addon) = name.split_once('/')?;
    Some((cluster.parse().ok()?, addon.parse().ok()?))
}

/// Records which certificates are in use. A hub that is killed loses the uses of the last minute.
pub(crate) async fn record_usage(ledger: Ledger, usage: Arc<UsageTracker>, clock: Clock) {
    loop {
        tokio::time::sleep(USES).await;
        let uses = usage.drain(clock.now()).into_iter();
        let uses = uses.map(|seen| Use { serial: seen.serial, at: seen.at, from: seen.from.to_string() });
        ledger.seen(uses.collect()).await;
    }
}

fn gone(signer: &str) -> Record {
    Record::Signer { signer: signer.to_owned(), generation: 0, before: String::new(), after: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::registry::{AddOnFacts, ClusterFacts};
    use addon_signer_ledger::{LedgerWriter, WriterOptions};

    #[test]
    fn a_note_that_comes_again_and_again_holds_up_no_other() {
        let mut waiting = Waiting::new();
        let mut last = None;
        let mut taken = Vec::new();
        for name in ["z", "b", "a"] {
            waiting.insert(("signer", name.to_owned()), (gone(name), String::new()));
        }
        for _ in 0..6 {
            let (key, _) = take_after(&mut waiting, last.as_ref()).unwrap();
            taken.push(key.1.clone());
            last = Some(key);
            waiting.insert(("signer", "a".to_owned()), (gone("a"), String::new()));
        }
        assert_eq!(taken, ["a", "b", "z", "a", "a", "a"]);
    }

    #[tokio::test]
    async fn only_lost_eligibility_is_missed_even_in_outdated_registry() {
        let dir = tempfile::tempdir().unwrap();
        let location = format!("sqlite://{}/ledger.db", dir.path().display()).parse().unwrap();
        let replica = "hub-a".to_owned();
        let (writer, ledger) = LedgerWriter::new(WriterOptions {
            location,
            replica,
            clock: Clock::default(),
            metrics: Default::default(),
        });
        let running = tokio::spawn(writer.run(1));
        let cluster: ClusterName = "spoke1".parse().unwrap();
        let mk_eligible = |addon: &str, change| {
            let addon = addon.parse().unwrap();
            Record::Eligibility { cluster: cluster.clone(), addon, change }
        };
        for (addon, change) in
            [("here", Eligibility::Registered), ("gone", Eligibility::Resumed), ("suspended", Eligibility::Suspended)]
        {
            ledger.change(mk_eligible(addon, change), "").await.unwrap();
        }
        let (notes, registry) = (Notes::default(), SharedRegistry::default());
        let missed = || notes.0.waiting.lock().values().map(|(record, _)| record.clone()).collect::<Vec<_>>();
        // Nothing happens before the registry is complete.
        assert!(tokio::time::timeout(RETRY, notes.find_missed(&ledger, &registry)).await.is_err());
        assert_eq!(missed(), []);
        registry.write(|registry| {
            registry.set_cluster(cluster.clone(), Some(ClusterFacts::ACCEPTED));
            registry.set_addon(cluster.clone(), "here".parse().unwrap(), Some(AddOnFacts::Installed));
            registry.complete_clusters(|_| true);
            registry.complete_addons(|_| true);
            registry.set_outdated(true);
        });
        notes.find_missed(&ledger, &registry).await.unwrap();
        assert_eq!(missed(), [mk_eligible("gone", Eligibility::Detached)]);
        drop(ledger);
        running.await.unwrap().unwrap();
    }
}
