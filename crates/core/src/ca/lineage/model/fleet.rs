//! The peers that must trust the anchors of a lineage: gateways, which report what they trust, or agents, which report
//! nothing. One agent gets its anchors by a ManifestWork, the other with its certificates alone.

use std::sync::LazyLock;

use super::*;
use crate::identity::AddOnKey;
use crate::registry::{AddOn, AddOnFacts, Registry};

/// How long after its cluster has applied a bundle an agent may still use the one before.
const APPLIED_FOR: Duration = Duration::from_secs(15 * 60);
/// How long after its deletion an AddOnSigner may be recreated as if nothing had happened.
const SHRUNK_FOR: Duration = Duration::from_secs(5 * 60);

/// The addon whose cluster gets a ManifestWork, and the one whose cluster gets none.
static ADDONS: LazyLock<[AddOnKey; 2]> = LazyLock::new(|| {
    ["by-work", "by-certificate"]
        .map(|cluster| AddOnKey { cluster: cluster.parse().unwrap(), addon: "telemetry".parse().unwrap() })
});

#[derive(Clone, Hash)]
pub(super) enum Parties {
    /// What each gateway trusts.
    Gateways([Anchors; GATEWAYS]),
    Agents(Fleet),
}

/// What happens to agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FleetAction {
    /// The hub checks the ManifestWork, and writes the current bundle into it.
    Observe,
    /// The cluster applies its ManifestWork.
    Apply,
    /// The agent without a ManifestWork gets another certificate.
    Enrol,
    /// Its addon is installed anew.
    Install,
    /// An administrator excepts its cluster for the authority that waits.
    Except,
    /// The AddOnSigner of its addon changes like this.
    Signer(Signer),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Signer {
    Served,
    Unserved,
    Deleted,
}

#[derive(Clone, Hash)]
pub(super) struct Fleet {
    /// The bundle in the ManifestWork.
    work: Anchors,
    /// The one that the cluster has applied, since when, and what its agent had before.
    applied: (Anchors, Timestamp),
    before: Anchors,
    /// When the other addon was installed, and the certificates of its agent: the bundle with each, and its end.
    installed: Timestamp,
    certificates: BTreeSet<(Anchors, Timestamp)>,
    signer: Signer,
    /// The authorities for which its cluster is excepted.
    excepted: Anchors,
    seen: Seen,
}

/// What the hub saw at its last check.
#[derive(Clone, Hash)]
struct Seen {
    /// The bundle that was published.
    published: Anchors,
    /// Since when the cluster has applied it, and whether that was long enough.
    applied: Option<Timestamp>,
    is_recent: bool,
    signer: Signer,
    /// Since when the AddOnSigner does not name the other addon, and whether that was less than [`SHRUNK_FOR`] ago.
    unnamed: Option<Timestamp>,
    is_shrunk: bool,
}

impl Parties {
    pub(super) fn gateways(anchors: &Anchors) -> Self {
        Self::Gateways([anchors.clone(), anchors.clone()])
    }

    pub(super) fn agents(anchors: &Anchors, now: Timestamp) -> Self {
        let long_ago = now.minus(DAY);
        let seen = Seen {
            published: anchors.clone(),
            applied: Some(long_ago),
            is_recent: false,
            signer: Signer::Served,
            unnamed: None,
            is_shrunk: false,
        };
        Self::Agents(Fleet {
            work: anchors.clone(),
            applied: (anchors.clone(), long_ago),
            before: anchors.clone(),
            installed: long_ago,
            certificates: BTreeSet::from([(anchors.clone(), now.plus(LEAF))]),
            signer: Signer::Served,
            excepted: Anchors::new(),
            seen,
        })
    }

    pub(super) fn hear(&mut self, gateway: usize, published: &Anchors) {
        let Self::Gateways(trusted) = self else { panic!("there are agents") };
        trusted[gateway].clone_from(published);
    }

    pub(super) fn fleet(&mut self) -> &mut Fleet {
        let Self::Agents(fleet) = self else { panic!("there are gateways") };
        fleet
    }

    /// Whether all of them trust the authority.
    pub(super) fn trust(&self, id: &AuthorityId, now: Timestamp) -> bool {
        match self {
            Self::Gateways(trusted) => trusted.iter().all(|trusted| trusted.contains(id)),
            Self::Agents(fleet) => fleet.trusts(id, now),
        }
    }

    /// Whether the hub knows that all of them trust the lineage's Next.
    pub(super) fn evidence(&self, machine: Machine, lineage: &Lineage, now: Timestamp) -> Result<(), WaitsFor> {
        match (self, lineage.next()) {
            (_, None) => Ok(()),
            (Self::Gateways(_), Some(next)) if self.trust(next.authority.id(), now) => Ok(()),
            (Self::Gateways(_), _) => Err(WaitsFor::Publication),
            (Self::Agents(fleet), Some(next)) => fleet.evidence(machine, lineage, next, now),
        }
    }

    /// The lineage, for which the hub has noted when its published Next may sign.
    pub(super) fn note_publication(&mut self, lineage: Lineage, now: Timestamp) -> Lineage {
        match self {
            Self::Gateways(_) => lineage,
            Self::Agents(fleet) => fleet.note_publication(lineage, now),
        }
    }
}

impl Fleet {
    pub(super) fn act(&mut self, action: FleetAction, lineage: &Lineage, published: &Anchors, now: Timestamp) {
        match action {
            FleetAction::Observe => self.observe(published, now),
            FleetAction::Apply if self.work != self.applied.0 => {
                // An agent that has not loaded the last bundle may still use the one before.
                let may_use_both = now < self.applied.1.plus(APPLIED_FOR);
                let old = std::mem::replace(&mut self.applied, (self.work.clone(), now)).0;
                self.before = if may_use_both { &self.before & &old } else { old };
            }
            FleetAction::Enrol if self.signer == Signer::Served => {
                self.certificates.insert((published.clone(), now.plus(LEAF)));
            }
            FleetAction::Install => {
                self.installed = now;
                self.certificates.clear();
            }
            FleetAction::Except => self.excepted.extend(lineage.next().map(|next| next.authority.id().clone())),
            FleetAction::Signer(signer) => self.signer = signer,
            FleetAction::Apply | FleetAction::Enrol => {}
        }
        self.certificates.retain(|(_, end)| *end >= now);
    }

    fn observe(&mut self, published: &Anchors, now: Timestamp) {
        let seen = &mut self.seen;
        let is_applied = self.applied.0 == *published;
        seen.applied = is_applied.then(|| seen.applied.unwrap_or(now));
        seen.is_recent = seen.applied.is_some_and(|since| now < since.plus(APPLIED_FOR));
        seen.unnamed = match self.signer {
            Signer::Served => None,
            Signer::Unserved | Signer::Deleted => Some(seen.unnamed.unwrap_or(now)),
        };
        let is_shrunk = seen.unnamed.is_some_and(|since| now < since.plus(SHRUNK_FOR));
        (seen.published, seen.signer, seen.is_shrunk) = (published.clone(), self.signer, is_shrunk);
        if self.signer == Signer::Deleted && !is_shrunk {
            self.certificates.clear(); // the limit of decision 14: the hub waits for it no more
        }
        self.work.clone_from(published);
    }

    fn note_publication(&mut self, lineage: Lineage, now: Timestamp) -> Lineage {
        if self.signer == Signer::Unserved || lineage.next().is_none_or(|next| next.activate_after.is_some()) {
            return lineage;
        }
        if self.signer == Signer::Deleted {
            self.certificates.clear(); // the same limit: nobody knows how long they last
        }
        let last = self.certificates.iter().map(|(_, end)| *end).max();
        lineage.hold_next_until(last.unwrap_or(now), now)
    }

    fn trusts(&self, id: &AuthorityId, now: Timestamp) -> bool {
        let (applied, since) = &self.applied;
        let by_work = applied.contains(id) && (since.plus(APPLIED_FOR) <= now || self.before.contains(id));
        let is_in = self.signer == Signer::Served && !self.excepted.contains(id);
        by_work && !(is_in && self.certificates.iter().any(|(anchors, _)| !anchors.contains(id)))
    }

    fn evidence(&self, machine: Machine, lineage: &Lineage, next: &Member, now: Timestamp) -> Result<(), WaitsFor> {
        let [by_work, by_certificate] = &*ADDONS;
        let Seen { published, applied, is_recent, signer, is_shrunk, .. } = &self.seen;
        let anchors: Vec<Authority> =
            lineage.members().iter().map(|it| it.authority.clone()).filter(|it| published.contains(it.id())).collect();
        let mut registry = Registry::default();
        let addon = AddOn { created: self.installed, ..AddOnFacts::Installed.into() };
        registry.put_addon(by_certificate.cluster.clone(), by_certificate.addon.clone(), Some(addon));
        let some = |addon, is_one: bool| is_one.then_some(addon).into_iter().collect();
        let works = Works {
            anchors: &anchors,
            unserved: *signer == Signer::Unserved,
            shrunk: *is_shrunk,
            ready: applied.iter().count(),
            total: 1,
            unapplied: some(by_work, applied.is_none()),
            recent: some(by_work, *is_recent),
            written: true,
            without: some(by_certificate, *signer == Signer::Served),
        };
        let is_excepted = self.excepted.contains(next.authority.id());
        let agents = Agents {
            unknown: (self.signer == Signer::Unserved).then(|| WaitsFor::Unserved("telemetry".to_owned())),
            works: Some(works),
            excepted: is_excepted.then(|| by_certificate.cluster.clone()).into_iter().collect(),
            registry: &registry,
        };
        (machine.trusted)(agents, lineage, now)
    }
}
