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
use crate::hub::distribution::KUBELET;
use crate::hub::distribution::plan::{Distribution, few};
use crate::hub::recording::checkpoints::bears_out;
use crate::ledger::{BundleHolder, BundleShown, Ledger, LedgerError};
use addon_signer_core::identity::{AddOnKey, ClusterName};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

/// How often the hub asks the ledger while a Next waits.
const ROUND: Duration = Duration::from_secs(15);

/// The agents of one addon on one cluster that have certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Agents {
    all: usize,
    /// How many of them have shown the present trust bundle.
    shown: usize,
    /// How many have shown another one only: they keep it themselves, so no ManifestWork brings them the present one.
    behind: usize,
    last_seen: Option<Timestamp>,
    /// Since when all have shown it, as far as this process knows.
    all_since: Option<Timestamp>,
}

impl Agents {
    fn has_shown(&self, now: Timestamp) -> bool {
        self.all_since.is_some_and(|since| since.until(now) >= KUBELET)
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
    fn new(digest: String, known: Vec<BundleHolder>, before: Option<&Self>, now: Timestamp) -> Self {
        let mut agents: BTreeMap<AddOnKey, Agents> = BTreeMap::new();
        for BundleHolder { key, shown, last_seen } in known {
            let of = agents.entry(key).or_default();
            of.all += 1;
            of.shown += usize::from(shown == BundleShown::This);
            of.behind += usize::from(shown == BundleShown::Another);
            of.last_seen = of.last_seen.max(last_seen);
        }
        let before = before.filter(|before| before.digest == digest);
        for (key, of) in agents.iter_mut().filter(|(_, of)| of.shown == of.all) {
            of.all_since = before.and_then(|before| before.agents.get(key)?.all_since).or(Some(now));
        }
        Self { digest, agents }
    }

    /// Whether these are the holders of the trust bundle with this digest.
    pub fn are_of(&self, digest: &str) -> bool {
        self.digest == digest
    }

    /// Whether every agent of the addon on the cluster has shown the trust bundle so long before `now` that its pods
    /// see it, too: it may keep it in a Secret.
    pub fn has_shown(&self, key: &AddOnKey, now: Timestamp) -> bool {
        self.agents.get(key).is_some_and(|agents| agents.has_shown(now))
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
        is_live: impl Fn(&AddOnKey) -> bool,
        now: Timestamp,
    ) -> Result<(), String> {
        let live: Vec<_> = self.agents.iter().filter(|(key, _)| is_live(key)).collect();
        let awaited = |(key, agents): &&(&AddOnKey, &Agents)| {
            let is_brought = || agents.shown < agents.all && agents.behind == 0 && distribution.has_applied(key);
            let has_all = agents.has_shown(now) || is_brought();
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
    let seen = agents.last_seen.map(|at| at.to_string());
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
    /// The ConfigMaps of the hub's namespace, of which one has the last checkpoint.
    pub(in crate::hub) config_maps: Api<ConfigMap>,
}

/// Asks the ledger while a Next of the gateway's line waits, until the ledger's writer ends.
pub(in crate::hub) async fn keep(mut inputs: HolderInputs, holders: watch::Sender<Option<Holders>>) {
    loop {
        let before = holders.borrow().clone();
        let known = match inputs.ask(before).await {
            Ok(known) => known,
            Err(LedgerError::Stopped) => return pending().await, // the hub ends, and the writer has said why
            Err(_) => None,                                      // the ledger's writer has logged why
        };
        let is_idle = known.is_none();
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
    async fn ask(&mut self, before: Option<Holders>) -> Result<Option<Holders>, LedgerError> {
        let digest = self.serving.borrow_and_update().ready().and_then(|ready| {
            ready.line().next()?.activate_after?; // from then on each certificate comes with its anchor
            Some(ready.bundle.digest())
        });
        let now = self.clock.now();
        let Some(digest) = digest.filter(|_| self.ledger.id().is_some_and(|id| self.board.is_recorded_by(&id, now)))
        else {
            return Ok(None);
        };
        let known = self.ledger.bundle_holders(&digest, now).await?;
        if !bears_out(&self.config_maps, &self.ledger).await {
            return Ok(None);
        }
        Ok(Some(Holders::new(digest, known, before.as_ref(), now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use BundleShown::{Another, Nothing, This};

    fn holder(cluster: &str, shown: BundleShown, last_seen: Option<i64>) -> BundleHolder {
        let key = AddOnKey { cluster: cluster.parse().unwrap(), addon: "telemetry".parse().unwrap() };
        BundleHolder { key, shown, last_seen: last_seen.map(Timestamp::from_unix) }
    }

    #[test]
    fn everybody_with_standing_is_awaited_until_all_of_its_agents_have_shown_the_bundle() {
        let known = vec![
            holder("c1", This, Some(86_400)),
            holder("c1", Nothing, Some(0)),
            holder("c2", This, None),
            holder("c3", Another, None),
            holder("gone", Nothing, None),
        ];
        let begun = Timestamp::from_unix(100_000);
        let later = begun.plus(KUBELET);
        let first = Holders::new("digest".to_owned(), known.clone(), None, begun);
        assert!(!first.has_shown(&known[2].key, begun), "its pods may not see it yet");
        assert!(
            first.have_all(&Distribution::Off, &BTreeSet::new(), |_| true, begun).unwrap_err().contains("see it yet")
        );
        let of_another = Holders::new("another".to_owned(), known.clone(), Some(&first), later);
        assert!(!of_another.has_shown(&known[2].key, later), "that was another bundle");
        let holders = Holders::new("digest".to_owned(), known, Some(&first), later);
        let asked = |distribution: &Distribution, without: &[&str]| {
            let without = without.iter().map(|cluster| cluster.parse().unwrap()).collect();
            holders.have_all(distribution, &without, |key| key.cluster.as_str() != "gone", later)
        };
        let both = "agents to hold the new anchor: 2 of 3 have not shown it: c1/telemetry (last seen on 1970-01-02), \
                    c3/telemetry (never seen)";
        assert_eq!(asked(&Distribution::Off, &[]), Err(both.to_owned()));
        assert_eq!(asked(&Distribution::Off, &["c1", "c3"]), Ok(()));
        let applied = Distribution::applied_by(["c1", "c3"].map(|cluster| holder(cluster, Nothing, None).key));
        let behind = "agents to hold the new anchor: 1 of 3 have not shown it: c3/telemetry (never seen)";
        assert_eq!(asked(&applied, &[]), Err(behind.to_owned()), "its agent keeps a bundle of its own");
        let has_shown = |cluster| holders.has_shown(&holder(cluster, This, None).key, later);
        assert!(!has_shown("c1") && has_shown("c2") && !has_shown("nobody"));
    }
}
