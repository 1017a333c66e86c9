//! When the next authority of the gateway's certificate signs, which agents must trust first (invariant I5, decision 14
//! in `docs`):
//!
//! 1. It signs once its anchor is published and each eligible addon is known to have it.
//! 2. An addon that gets a ManifestWork has it when its cluster has had the current one applied for 15 minutes; any
//!    other has it when every certificate issued before the publication has expired.
//! 3. An addon installed after the publication has it from the start, and so has every addon if the anchor is the root
//!    of the authority that signs now.
//! 4. The hub must know all addons and certificates: it has read AddOnSigners, their authorities and ManifestWorks, no
//!    AddOnSigner is unserved, and none has dropped an addon within the last five minutes.
//! 5. It waits for no cluster that an administrator excepts, and for nothing on the last day of the authority that
//!    signs now.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Lineage, Member, Stragglers, WaitsFor};
use crate::ca::authority::Authority;
use crate::identity::{AddOnKey, ClusterName};
use crate::registry::Registry;
use crate::timestamp::Timestamp;

/// How much the hub's clock may be ahead of the API server's, or behind it. Clocks that are set by the network differ
/// by less than a second, and the `Date` of a response adds up to another one.
pub const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

/// What the hub knows of the agents that must have the anchor of a Next.
#[derive(Debug)]
pub struct Agents<'k> {
    /// What must be read or fixed before all addons and the last certificate are known.
    pub unknown: Option<WaitsFor>,
    /// The ManifestWorks, as of the hub's last check; `None` if there are none.
    pub works: Option<Works<'k>>,
    /// The clusters that an administrator excepts.
    pub excepted: BTreeSet<ClusterName>,
    /// When addons were installed.
    pub registry: &'k Registry,
}

/// The state of the ManifestWorks for the eligible addons. By default they have not been read.
#[derive(Debug, Default)]
pub struct Works<'k> {
    /// The anchors in them.
    pub anchors: &'k [Authority],
    /// Whether an AddOnSigner was unserved, so that addons may be missing here.
    pub unserved: bool,
    /// Whether in the last five minutes an AddOnSigner dropped an addon that no other one names.
    pub shrunk: bool,
    /// How many addons on clusters have applied theirs.
    pub ready: usize,
    /// How many addons on clusters get one.
    pub total: usize,
    /// The addons whose clusters have not applied theirs.
    pub unapplied: BTreeSet<&'k AddOnKey>,
    /// The addons whose clusters have applied theirs so recently that pods and agents may not use it yet.
    pub recent: BTreeSet<&'k AddOnKey>,
    /// Whether the hub writes them.
    pub written: bool,
    /// The addons that get none.
    pub without: BTreeSet<&'k AddOnKey>,
}

impl Agents<'_> {
    /// Whether all agents are known to have the anchor of the lineage's Next.
    ///
    /// # Errors
    /// Everything that the rotation waits for.
    pub fn have_next(&self, lineage: &Lineage, now: Timestamp) -> Result<(), WaitsFor> {
        let Some(next) = lineage.next() else { return Ok(()) };
        let anchor = next.certified.anchor();
        // The same root is evidence only if agents are known to trust the authority that signs now.
        if lineage.active().is_some_and(|active| active.certified.anchor() == anchor) && lineage.forced(now).is_none() {
            return Ok(());
        }
        let Some(last) = next.activate_after else { return Err(self.unknown.clone().unwrap_or(WaitsFor::Publication)) };
        let last = Some(last).filter(|last| *last >= now);
        let Some(works) = &self.works else {
            return last.map_or(Ok(()), |at| Err(WaitsFor::LastCertificate { at, without: None }));
        };
        let awaited = |keys: &BTreeSet<&AddOnKey>| {
            let stragglers = Stragglers::of(keys.iter().copied().filter(|key| self.awaits(key, next)));
            (stragglers.count() > 0).then_some(stragglers)
        };
        let certificate = last.zip(awaited(&works.without));
        let certificate = certificate.map(|(at, who)| WaitsFor::LastCertificate { at, without: Some(who) });
        let all = [works.unknown(self.unknown.as_ref()), works.wait(anchor, awaited), certificate];
        all.into_iter().flatten().reduce(WaitsFor::and).map_or(Ok(()), Err)
    }

    /// Whether the addon must get the anchor of this Next: it is not excepted, and not installed after the publication.
    /// The API server sets the times of objects, by a clock that may be ahead of the hub's.
    fn awaits(&self, key: &AddOnKey, next: &Member) -> bool {
        let since = next.since.plus(CLOCKS_DIFFER);
        let is_new = self.registry.created(&key.cluster, &key.addon).is_some_and(|created| created > since);
        !is_new && !self.excepted.contains(&key.cluster)
    }
}

impl Works<'_> {
    /// Why addons may be missing here. An AddOnSigner that was unserved at the hub's last check may be served by now.
    fn unknown(&self, unknown: Option<&WaitsFor>) -> Option<WaitsFor> {
        match (self.unserved, self.shrunk) {
            (true, _) => unknown.cloned().or_else(|| Some(WaitsFor::Read("the AddOnSigners".to_owned()))),
            (false, true) => Some(WaitsFor::UnnamedAddOn),
            (false, false) => None,
        }
    }

    /// The addons that must still get this anchor by a ManifestWork, if any.
    fn wait(
        &self,
        anchor: &Authority,
        awaited: impl Fn(&BTreeSet<&AddOnKey>) -> Option<Stragglers>,
    ) -> Option<WaitsFor> {
        if !self.anchors.contains(anchor) {
            return Some(WaitsFor::Read("the ManifestWorks".to_owned()));
        }
        let unapplied = awaited(&self.unapplied);
        let applied = unapplied.is_none();
        let stragglers = unapplied.or_else(|| awaited(&self.recent))?;
        let Self { ready, total, written, .. } = *self;
        Some(WaitsFor::Works { ready, total, stragglers, written, applied })
    }
}
