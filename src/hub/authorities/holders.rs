//! Who has had a certificate that came without the gateway's present trust bundle, and who of them has shown to hold
//! it all the same: the evidence by which a Next of the gateway's line signs before every certificate given out without
//! its anchor has expired (invariant I5).

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::api::Lenient;
use crate::hub::authorities::board::Board;
use crate::hub::authorities::state::LineState;
use crate::hub::distribution::plan::{Distribution, few};
use crate::hub::recording::checkpoints::bears_out;
use crate::ledger::{BundleHolders, BundleQuestion, COPIES, Health, Ledger, LedgerError};
use addon_signer_core::ca::line::need::QUIET;
use addon_signer_core::identity::{AddOnKey, ClusterName};
use addon_signer_core::registry::{NotRegistered, Registry, SharedRegistry};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

/// How often the hub asks the ledger while a Next waits.
const ROUND: Duration = Duration::from_secs(15);

/// The agents of one addon on one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Agents {
    known: BundleHolders,
    /// Since when the addon has had no standing, as far as this process knows.
    gone_since: Option<Timestamp>,
}

impl Agents {
    /// What is known now, after what was known `before`.
    fn new(known: BundleHolders, has_standing: bool, before: Option<&Self>, now: Timestamp) -> Self {
        let gone_since = before.and_then(|before| before.gone_since).filter(|since| *since <= now);
        let gone_since = gone_since.or(Some(now)).filter(|_| !has_standing);
        Self { known, gone_since }
    }

    fn have_shown(&self) -> bool {
        self.known.shown == self.known.agents
    }

    /// Whether somebody waits for them. An addon that has just lost its standing may be back soon, with certificates
    /// that are good: somebody installs it again.
    fn are_awaited(&self, now: Timestamp) -> bool {
        self.gone_since.is_none_or(|since| since.until(now) < QUIET)
    }
}

/// All who may lack a trust bundle, as the ledger knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holders {
    digest: String,
    /// Since when this process asks for it. Each certificate comes with it by then.
    since: Timestamp,
    /// The number of the ledger's last entry at that time.
    tip: u64,
    agents: BTreeMap<AddOnKey, Agents>,
}

impl Holders {
    /// What the ledger knows at `now`, after what it knew `before`. A word is believed only when this process has asked
    /// for [`COPIES`]: before it started no copy could contradict, because the gateway was away as well. If the clock
    /// was set back, that time begins anew.
    fn new(
        asked: BundleQuestion<'_>,
        known: Vec<BundleHolders>,
        has_standing: impl Fn(&BundleHolders) -> bool,
        before: Option<&Self>,
    ) -> Self {
        let BundleQuestion { digest, tip, now } = asked;
        let since = before.map(|before| before.since).filter(|since| *since <= now).unwrap_or(now);
        let is_believed = since.until(now) >= COPIES;
        let agents = known.into_iter().map(|mut known| {
            if !is_believed {
                known.recent += std::mem::take(&mut known.shown);
            }
            let before = before.and_then(|before| before.agents.get(&known.key));
            let has_standing = has_standing(&known);
            (known.key.clone(), Agents::new(known, has_standing, before, now))
        });
        Self { agents: agents.collect(), since, tip, digest: digest.to_owned() }
    }

    /// Whether these are the holders of the trust bundle with this digest.
    pub fn are_of(&self, digest: &str) -> bool {
        self.digest == digest
    }

    /// Whether every agent of the addon on the cluster that must show the trust bundle has.
    pub fn have_shown(&self, key: &AddOnKey) -> bool {
        self.agents.get(key).is_some_and(Agents::have_shown)
    }

    /// Whether no agent of the addon on the cluster may lack the trust bundle: there is none, or it came with their
    /// first certificates.
    pub fn nobody_lacks(&self, key: &AddOnKey) -> bool {
        !self.agents.contains_key(key)
    }

    /// The addon on the cluster, and when its agents were last heard of.
    pub fn named(&self, key: &AddOnKey) -> String {
        self.agents.get(key).map_or_else(|| key.to_string(), |agents| with_day(key, agents))
    }

    /// Whether everybody with standing has the trust bundle: it came with the first certificate, or the agents have
    /// shown it or, if they show nothing, a ManifestWork has brought it; except on the clusters `without` which an
    /// administrator goes on.
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
            let keep_it_themselves = agents.known.behind + agents.known.recent > 0;
            let is_brought = || !keep_it_themselves && distribution.has_applied(key);
            !agents.have_shown() && !is_brought() && !without.contains(&key.cluster)
        };
        let names: Vec<String> = live.iter().filter(awaited).map(|(key, agents)| named(key, agents)).collect();
        if names.is_empty() {
            return Ok(());
        }
        let (missing, total) = (names.len(), live.len());
        Err(format!("agents to hold the new anchor: {missing} of {total} have not shown it: {}", few(&names)))
    }
}

fn named(key: &AddOnKey, agents: &Agents) -> String {
    if agents.known.shown + agents.known.recent == agents.known.agents {
        return format!("{key} (its pods may not see it yet)");
    }
    with_day(key, agents)
}

/// With the day only: a text that changes with each use would be a write for each use.
fn with_day(key: &AddOnKey, agents: &Agents) -> String {
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
    pub(in crate::hub) config_maps: Api<Lenient<ConfigMap>>,
}

/// Asks the ledger while a Next of the gateway's line waits, until the ledger's writer ends.
pub(in crate::hub) async fn keep(mut inputs: HolderInputs, holders: watch::Sender<Option<Holders>>) {
    // Kept while the API server does not answer. While the ledger does not, words are lost.
    let mut last = None;
    loop {
        let known = match inputs.ask(last.as_ref()).await {
            Ok(known) => known,
            Err(LedgerError::Stopped) => return pending().await, // the hub ends, and the writer has said why
            Err(_) => {
                last = None;
                None // the ledger's writer has logged why
            }
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
        let waiting = self.serving.borrow_and_update().ready().and_then(|ready| {
            ready.line().next()?.activate_after?; // from then on each certificate comes with its anchor
            Some(ready.bundle.digest())
        });
        let now = self.clock.now();
        let health = self.ledger.health().borrow().clone();
        let (ledger, tip) = match health {
            Health::Up { ledger, tip } => (ledger, tip),
            Health::Down(error) => return Err(error),
            Health::Starting => return Ok(None),
        };
        let covered = waiting.and_then(|digest| Some((digest, self.board.recorded_since(&ledger, now)?)));
        let Some((digest, recorded_since)) = covered else { return Ok(None) };
        if !bears_out(&self.config_maps, &self.ledger, recorded_since).await {
            return Ok(None);
        }
        let before = before.filter(|before| before.digest == digest);
        let tip = before.map_or(tip.seq, |before| before.tip);
        let asked = BundleQuestion { digest: &digest, tip, now };
        let known = self.ledger.bundle_holders(asked).await?;
        let holders = |registry: &Registry| Holders::new(asked, known, |of| has_standing(registry, of), before);
        Ok(Some(self.registry.read(holders)))
    }
}

/// Whether the addon has standing and a certificate that is not revoked, or may have: of what the hub cannot read it
/// knows nothing.
fn has_standing(registry: &Registry, of: &BundleHolders) -> bool {
    let AddOnKey { cluster, addon } = &of.key;
    let unknown = |cause: NotRegistered| cause.is_unknown() || cause == NotRegistered::Unreadable;
    let is_revoked = || registry.valid_from(cluster, addon).is_some_and(|from| of.newest < from);
    registry.check(cluster, addon).map_or_else(unknown, |()| !is_revoked())
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::registry::{AddOn, AddOnFacts, ClusterFacts, Revocation};

    fn key(cluster: &str) -> AddOnKey {
        AddOnKey { cluster: cluster.parse().unwrap(), addon: "telemetry".parse().unwrap() }
    }

    /// Agents on a cluster: how many, how many have shown the bundle, how many not for long, how many are behind.
    fn mk(cluster: &str, [agents, shown, recent, behind]: [u64; 4], last_seen: Option<i64>) -> BundleHolders {
        let last_seen = last_seen.map(Timestamp::from_unix);
        BundleHolders { key: key(cluster), agents, shown, recent, behind, newest: Timestamp::from_unix(500), last_seen }
    }

    fn ask(now: Timestamp) -> BundleQuestion<'static> {
        BundleQuestion { digest: "digest", tip: 1, now }
    }

    #[test]
    fn everybody_with_standing_is_awaited_until_all_of_its_agents_have_shown_the_bundle() {
        let known = vec![
            mk("c1", [2, 1, 0, 0], Some(86_400)),
            mk("c2", [1, 1, 0, 0], None),
            mk("c3", [1, 0, 0, 1], None),
            mk("c4", [2, 1, 1, 0], None),
            mk("gone", [1, 0, 0, 0], None),
        ];
        let has_standing = |of: &BundleHolders| of.key.cluster.as_str() != "gone";
        let begun = Timestamp::from_unix(100_000);
        let later = begun.plus(QUIET);
        let first = Holders::new(ask(begun), known.clone(), has_standing, None);
        let waits = first.have_all(&Distribution::Off, &BTreeSet::new(), begun).unwrap_err();
        assert!(waits.contains("5 of 5"), "it waits for the lost one, too, and believes nobody yet: {waits}");
        let soon = begun.plus(COPIES);
        let early = Holders::new(ask(soon.minus(Duration::from_secs(1))), known.clone(), has_standing, Some(&first));
        assert!(!early.have_shown(&key("c2")), "a copy may not have had the time to contradict");
        assert!(Holders::new(ask(soon), known.clone(), has_standing, Some(&early)).have_shown(&key("c2")));
        let holders = Holders::new(ask(later), known, has_standing, Some(&first));
        let asked = |distribution: &Distribution, without: &[&str]| {
            let without = without.iter().map(|cluster| cluster.parse().unwrap()).collect();
            holders.have_all(distribution, &without, later)
        };
        let all = "agents to hold the new anchor: 3 of 4 have not shown it: c1/telemetry (last seen on 1970-01-02), \
                   c3/telemetry (never seen), c4/telemetry (its pods may not see it yet)";
        assert_eq!(asked(&Distribution::Off, &[]), Err(all.to_owned()));
        assert_eq!(asked(&Distribution::Off, &["c1", "c3", "c4"]), Ok(()));
        let applied = Distribution::applied_by(["c1", "c3", "c4"].map(key));
        let own = "agents to hold the new anchor: 2 of 4 have not shown it: c3/telemetry (never seen), c4/telemetry \
                   (its pods may not see it yet)";
        assert_eq!(asked(&applied, &[]), Err(own.to_owned()), "these agents keep a bundle of their own");
        assert!(["c1", "c3", "c4", "nobody"].iter().all(|cluster| !holders.have_shown(&key(cluster))));
        assert!(holders.have_shown(&key("c2")));
        assert!(holders.nobody_lacks(&key("nobody")) && !holders.nobody_lacks(&key("c2")));
        let named = ["c1", "c4", "nobody"].map(|cluster| holders.named(&key(cluster)));
        assert_eq!(named, ["c1/telemetry (last seen on 1970-01-02)", "c4/telemetry (never seen)", "nobody/telemetry"]);
    }

    #[test]
    fn an_addon_that_lost_its_standing_is_awaited_for_an_hour_and_one_that_cannot_be_read_always() {
        let start = Timestamp::from_unix(100_000);
        let look = |standing: bool, before: Option<&Holders>, seconds: u64| {
            let now = start.plus(Duration::from_secs(seconds));
            let holders = Holders::new(ask(now), vec![mk("c1", [1, 0, 0, 0], None)], |_| standing, before);
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
        let has_standing = |registry: &Registry, cluster| has_standing(registry, &mk(cluster, [1, 0, 0, 0], None));
        assert!(has_standing(&registry, "c1"), "nothing is known yet");
        let facts = ClusterFacts { accepted: true, deleting: false };
        registry.replace_clusters([(cluster.clone(), facts)].into());
        let unreadable = AddOn::from(AddOnFacts::Unreadable);
        registry.put_addons([(cluster.clone(), [(addon.clone(), unreadable)].into())].into());
        assert!(has_standing(&registry, "c1") && !has_standing(&registry, "c2"));
        registry.set_addon(cluster.clone(), addon.clone(), Some(AddOnFacts::Suspended));
        assert!(!has_standing(&registry, "c1"));
        for (before, is_good) in [(500, true), (501, false)] {
            let revocation = Revocation { before: Timestamp::from_unix(before), by: String::new() };
            let revoked = AddOn { revocation: Some(Box::new(revocation)), ..AddOnFacts::Installed.into() };
            registry.put_addon(cluster.clone(), addon.clone(), Some(revoked));
            assert_eq!(has_standing(&registry, "c1"), is_good, "the newest certificate begins at 500");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_begins_the_waits_anew_and_holds_nothing_for_as_long_as_it_was_ahead() {
        let known = || vec![mk("c1", [1, 1, 0, 0], None), mk("gone", [1, 0, 0, 0], None)];
        let look = |now: i64, before: Option<&Holders>| {
            let has_standing = |of: &BundleHolders| of.key.cluster.as_str() != "gone";
            Holders::new(ask(Timestamp::from_unix(now)), known(), has_standing, before)
        };
        let ahead = look(1_000_000, None);
        let right = look(100_000, Some(&ahead));
        let later = look(103_600, Some(&right));
        assert!(!right.have_shown(&key("c1")) && later.have_shown(&key("c1")));
        let asked = |holders: &Holders, now| {
            holders.have_all(&Distribution::Off, &BTreeSet::new(), Timestamp::from_unix(now)).is_ok()
        };
        assert!(!asked(&right, 100_000) && asked(&later, 103_600));
    }
}
