//! Who has a certificate, and who of them has shown to hold the gateway's present trust bundle: the evidence by which a
//! Next of the gateway's line signs before every certificate given out without its anchor has expired (invariant I5).

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::hub::authorities::board::Board;
use crate::hub::authorities::state::LineState;
use crate::hub::distribution::plan::{Distribution, few};
use crate::hub::recording::checkpoints::bears_out;
use crate::ledger::{BundleHolders, COPIES, Ledger, LedgerError};
use addon_signer_core::ca::line::need::QUIET;
use addon_signer_core::identity::{AddOnKey, ClusterName};
use addon_signer_core::registry::{NotRegistered, Registry, SharedRegistry};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

/// How often the hub asks the ledger while a Next waits.
const ROUND: Duration = Duration::from_secs(15);

/// The agents of one addon on one cluster that have certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Agents {
    known: BundleHolders,
    /// Since when all have shown the present trust bundle, as far as this process knows.
    all_since: Option<Timestamp>,
    /// Since when the addon has had no standing, as far as this process knows.
    gone_since: Option<Timestamp>,
}

impl Agents {
    /// What is known now, after what was known `before`.
    fn new(known: BundleHolders, has_standing: bool, before: Option<&Self>, now: Timestamp) -> Self {
        let since = |of: fn(&Self) -> Option<Timestamp>| before.and_then(of).or(Some(now));
        let all_since = if known.shown == known.agents { since(|before| before.all_since) } else { None };
        let gone_since = if has_standing { None } else { since(|before| before.gone_since) };
        Self { known, all_since, gone_since }
    }

    /// Whether all have shown it so long before `now` that another copy of one of them would have contradicted, and
    /// that pods see what an agent keeps in a Secret.
    fn have_shown(&self, now: Timestamp) -> bool {
        self.all_since.is_some_and(|since| since.until(now) >= COPIES)
    }

    /// Whether somebody waits for them. An addon that has just lost its standing may be back soon, with certificates
    /// that are good: somebody installs it again.
    fn are_awaited(&self, now: Timestamp) -> bool {
        self.gone_since.is_none_or(|since| since.until(now) < QUIET)
    }
}

/// All who have a certificate that has not expired, as the ledger knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders {
    digest: String,
    agents: BTreeMap<AddOnKey, Agents>,
}

impl Holders {
    /// What the ledger knows at `now`, after what it knew `before`.
    fn new(
        digest: String,
        known: Vec<BundleHolders>,
        has_standing: impl Fn(&AddOnKey) -> bool,
        before: Option<&Self>,
        now: Timestamp,
    ) -> Self {
        let before = before.filter(|before| before.digest == digest);
        let agents = known.into_iter().map(|known| {
            let before = before.and_then(|before| before.agents.get(&known.key));
            (known.key.clone(), Agents::new(known.clone(), has_standing(&known.key), before, now))
        });
        Self { agents: agents.collect(), digest }
    }

    /// Whether these are the holders of the trust bundle with this digest.
    pub fn are_of(&self, digest: &str) -> bool {
        self.digest == digest
    }

    /// Whether every agent of the addon on the cluster has shown the trust bundle long enough before `now`.
    pub fn have_shown(&self, key: &AddOnKey, now: Timestamp) -> bool {
        self.agents.get(key).is_some_and(|agents| agents.have_shown(now))
    }

    /// Whether everybody with standing has the trust bundle: as its agents have shown or, if they show nothing, by a
    /// ManifestWork; except on the clusters `without` which an administrator goes on.
    ///
    /// # Errors
    /// Who has not.
    pub fn have_all(
        &self,
        distribution: &Distribution,
        without: &BTreeSet<ClusterName>,
        now: Timestamp,
    ) -> Result<(), String> {
        let live: Vec<_> = self.agents.iter().filter(|(_, agents)| agents.are_awaited(now)).collect();
        let awaited = |(key, agents): &&(&AddOnKey, &Agents)| {
            let BundleHolders { agents: all, shown, behind, .. } = agents.known;
            let is_brought = || shown < all && behind == 0 && distribution.has_applied(key);
            let has_all = agents.have_shown(now) || is_brought();
            !has_all && !without.contains(&key.cluster)
        };
        let names: Vec<String> = live.iter().filter(awaited).map(|(key, agents)| named(key, agents)).collect();
        if names.is_empty() {
            return Ok(());
        }
        let (missing, total) = (names.len(), live.len());
        Err(format!("agents to hold the new anchor: {missing} of {total} have not shown it: {}", few(&names)))
    }
}

/// With the day only: a text that changes with each use would be a write for each use.
fn named(key: &AddOnKey, agents: &Agents) -> String {
    if agents.all_since.is_some() {
        return format!("{key} (its pods may not see it yet)");
    }
    let seen = agents.known.last_seen.map(|at| at.to_string());
    match seen.as_deref().and_then(|at| at.get(..10)) {
        Some(day) => format!("{key} (last seen on {day})"),
        None => format!("{key} (never seen)"),
    }
}

/// What [`keep`] reads.
pub(in crate::hub) struct HolderInputs {
    pub(in crate::hub) ledger: Ledger,
    pub(in crate::hub) clock: Clock,
    pub(in crate::hub) board: Board,
    pub(in crate::hub) serving: watch::Receiver<LineState>,
    /// Who has standing.
    pub(in crate::hub) registry: SharedRegistry,
    /// The ConfigMaps of the hub's namespace, of which one has the last checkpoint.
    pub(in crate::hub) config_maps: Api<ConfigMap>,
}

/// Asks the ledger while a Next of the gateway's line waits, until the ledger's writer ends.
pub(in crate::hub) async fn keep(mut inputs: HolderInputs, holders: watch::Sender<Option<Holders>>) {
    // Kept over questions without an answer: since when all have shown a bundle does not begin anew with each of them.
    let mut last = None;
    loop {
        let known = match inputs.ask(last.as_ref()).await {
            Ok(known) => known,
            Err(LedgerError::Stopped) => return pending().await, // the hub ends, and the writer has said why
            Err(_) => None,                                      // the ledger's writer has logged why
        };
        let is_idle = known.is_none();
        last = known.clone().or(last);
        holders.send_if_modified(|before| {
            let differs = *before != known;
            *before = known;
            differs
        });
        tokio::select! {
            () = sleep(ROUND) => {}
            changed = inputs.serving.changed(), if is_idle => if changed.is_err() { return },
        }
    }
}

impl HolderInputs {
    /// `None` while nothing waits for the holders, and if the ledger may not know them all.
    async fn ask(&mut self, before: Option<&Holders>) -> Result<Option<Holders>, LedgerError> {
        let digest = self.serving.borrow_and_update().ready().and_then(|ready| {
            ready.line().next()?.activate_after?; // from then on each certificate comes with its anchor
            Some(ready.bundle.digest())
        });
        let now = self.clock.now();
        let covered = || self.ledger.id().and_then(|id| self.board.recorded_since(&id, now));
        let Some((digest, since)) = digest.and_then(|digest| Some((digest, covered()?))) else { return Ok(None) };
        if !bears_out(&self.config_maps, &self.ledger, since).await {
            return Ok(None);
        }
        let known = self.ledger.bundle_holders(&digest, now).await?;
        let holders = |registry: &Registry| Holders::new(digest, known, |key| has_standing(registry, key), before, now);
        Ok(Some(self.registry.read(holders)))
    }
}

/// Whether the addon has standing, or may have it: of what the hub cannot read it knows nothing.
fn has_standing(registry: &Registry, key: &AddOnKey) -> bool {
    let unknown = |cause: NotRegistered| cause.is_unknown() || cause == NotRegistered::Unreadable;
    registry.check(&key.cluster, &key.addon).map_or_else(unknown, |()| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::registry::{AddOn, AddOnFacts, ClusterFacts};

    fn key(cluster: &str) -> AddOnKey {
        AddOnKey { cluster: cluster.parse().unwrap(), addon: "telemetry".parse().unwrap() }
    }

    /// Agents on a cluster: how many, how many have shown the bundle, and how many are behind.
    fn mk(cluster: &str, [agents, shown, behind]: [u64; 3], last_seen: Option<i64>) -> BundleHolders {
        BundleHolders { key: key(cluster), agents, shown, behind, last_seen: last_seen.map(Timestamp::from_unix) }
    }

    #[test]
    fn everybody_with_standing_is_awaited_until_all_of_its_agents_have_shown_the_bundle() {
        let known = vec![
            mk("c1", [2, 1, 0], Some(86_400)),
            mk("c2", [1, 1, 0], None),
            mk("c3", [1, 0, 1], None),
            mk("gone", [1, 0, 0], None),
        ];
        let has_standing = |key: &AddOnKey| key.cluster.as_str() != "gone";
        let begun = Timestamp::from_unix(100_000);
        let later = begun.plus(QUIET);
        let first = Holders::new("digest".to_owned(), known.clone(), has_standing, None, begun);
        assert!(!first.have_shown(&key("c2"), begun), "its pods may not see it yet");
        let waits = first.have_all(&Distribution::Off, &BTreeSet::new(), begun).unwrap_err();
        assert!(waits.contains("4 of 4") && waits.contains("see it yet"), "it waits for the lost one, too: {waits}");
        let of_another = Holders::new("another".to_owned(), known.clone(), has_standing, Some(&first), later);
        assert!(!of_another.have_shown(&key("c2"), later), "that was another bundle");
        let holders = Holders::new("digest".to_owned(), known, has_standing, Some(&first), later);
        let asked = |distribution: &Distribution, without: &[&str]| {
            let without = without.iter().map(|cluster| cluster.parse().unwrap()).collect();
            holders.have_all(distribution, &without, later)
        };
        let both = "agents to hold the new anchor: 2 of 3 have not shown it: c1/telemetry (last seen on 1970-01-02), \
                    c3/telemetry (never seen)";
        assert_eq!(asked(&Distribution::Off, &[]), Err(both.to_owned()));
        assert_eq!(asked(&Distribution::Off, &["c1", "c3"]), Ok(()));
        let applied = Distribution::applied_by(["c1", "c3"].map(key));
        let behind = "agents to hold the new anchor: 1 of 3 have not shown it: c3/telemetry (never seen)";
        assert_eq!(asked(&applied, &[]), Err(behind.to_owned()), "its agent keeps a bundle of its own");
        assert!(["c1", "nobody"].iter().all(|cluster| !holders.have_shown(&key(cluster), later)));
        assert!(holders.have_shown(&key("c2"), later));
    }

    #[test]
    fn a_copy_that_contradicts_begins_the_wait_anew() {
        let start = Timestamp::from_unix(100_000);
        let look = |shown: u64, before: Option<&Holders>, seconds: u64| {
            let known = vec![mk("c1", [1, shown, 1 - shown], None)];
            Holders::new("digest".to_owned(), known, |_| true, before, start.plus(Duration::from_secs(seconds)))
        };
        let word = look(1, None, 0);
        let contradicted = look(0, Some(&word), 600);
        let again = look(1, Some(&contradicted), 615);
        let has_shown =
            |holders: &Holders, seconds| holders.have_shown(&key("c1"), start.plus(Duration::from_secs(seconds)));
        assert!(has_shown(&word, 900) && !has_shown(&again, 900));
        assert!(has_shown(&again, 1_515));
    }

    #[test]
    fn an_addon_that_lost_its_standing_is_awaited_for_an_hour_and_one_that_cannot_be_read_always() {
        let start = Timestamp::from_unix(100_000);
        let look = |standing: bool, before: Option<&Holders>, seconds: u64| {
            let now = start.plus(Duration::from_secs(seconds));
            let holders = Holders::new("d".to_owned(), vec![mk("c1", [1, 0, 0], None)], |_| standing, before, now);
            let is_awaited = holders.have_all(&Distribution::Off, &BTreeSet::new(), now).is_err();
            (holders, is_awaited)
        };
        let (lost, is_awaited) = look(false, None, 0);
        assert!(is_awaited);
        let (back, _) = look(true, Some(&lost), 3_599);
        assert!(look(false, Some(&back), 3_600).1, "the hour begins anew");
        assert!(!look(false, Some(&lost), 3_600).1);
        let AddOnKey { cluster, addon } = key("c1");
        let mut registry = Registry::default();
        assert!(has_standing(&registry, &key("c1")), "nothing is known yet");
        let facts = ClusterFacts { accepted: true, deleting: false };
        registry.replace_clusters([(cluster.clone(), facts)].into());
        let unreadable = AddOn::from(AddOnFacts::Unreadable);
        registry.put_addons([(cluster.clone(), [(addon.clone(), unreadable)].into())].into());
        assert!(has_standing(&registry, &key("c1")) && !has_standing(&registry, &key("c2")));
        registry.set_addon(cluster, addon, Some(AddOnFacts::Suspended));
        assert!(!has_standing(&registry, &key("c1")));
    }
}
