//! Who still needs an Old authority of a client line. The gateway is the only one that trusts its anchor, and the
//! ledger knows who has which certificate and who was seen with it there.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::registry::{NotRegistered, Registry};
use crate::timestamp::Timestamp;

/// How long nobody is found to need an authority before it is dropped. In this time a request that was decided before
/// the authority became Old is in the ledger, a hub that has just started sees who calls, a second copy of an agent
/// that still has the old key calls, and an addon that was deleted to be installed again is there again.
pub const QUIET: Duration = Duration::from_secs(3_600);
/// A certificate that was used so recently is in use. The ledger learns of a use within 70 s.
const RECENT: Duration = Duration::from_secs(600);
/// How many agents the text names.
const NAMED: usize = 3;

/// A certificate of an Old authority that has not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldLeaf {
    /// The cluster of its holder, as the ledger has it.
    pub cluster: String,
    /// The addon of its holder.
    pub addon: String,
    /// The agent of its holder.
    pub agent: String,
    /// The first second of the certificate.
    pub not_before: Timestamp,
    /// When it was last used at the gateway.
    pub last_seen: Option<Timestamp>,
    /// Whether it may still be handed out.
    pub is_open: bool,
    /// Whether the gateway has seen its holder with a certificate that is newer, and of a newer authority.
    pub has_moved: bool,
}

/// Why a certificate still needs its authority; the weakest reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Its holder was not seen with a newer one; the time is that of its last use.
    NotMoved(Option<Timestamp>),
    /// It is in use, whatever else its holder has.
    InUse,
    /// It may still be handed out.
    Open,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMoved(None) => f.write_str("never seen"),
            // Not in use, so the text does not change with each call.
            Self::NotMoved(Some(at)) => write!(f, "last seen {at}"),
            Self::InUse => f.write_str("in use"),
            Self::Open => f.write_str("not handed out yet"),
        }
    }
}

impl OldLeaf {
    /// Why the certificate still needs its authority, if it does; `used_after` is what [`Quiet::used_after`] says.
    #[must_use]
    pub fn need(&self, registry: &Registry, used_after: Timestamp) -> Option<Need> {
        if self.is_open {
            return Some(Need::Open);
        }
        if self.is_worthless(registry) {
            return None;
        }
        match self.last_seen {
            Some(at) if at >= used_after => Some(Need::InUse),
            at if !self.has_moved => Some(Need::NotMoved(at)),
            _ => None,
        }
    }

    /// Whether the gateway refuses it for good: it is revoked, or its addon or cluster is deleted. A suspended addon
    /// may come back with its certificate, and of what the hub cannot read it knows nothing: these still need it.
    fn is_worthless(&self, registry: &Registry) -> bool {
        use NotRegistered::{AddOnDeleting, AddOnUnknown, ClusterDeleting, ClusterUnknown};
        let (Ok(cluster), Ok(addon)) = (self.cluster.parse(), self.addon.parse()) else { return false };
        let standing = registry.check(&cluster, &addon);
        let is_gone = matches!(standing, Err(AddOnDeleting | AddOnUnknown | ClusterDeleting | ClusterUnknown));
        is_gone || registry.valid_from(&cluster, &addon).is_some_and(|from| self.not_before < from)
    }
}

/// The holders of an Old authority's certificates, and why each one still needs it.
#[derive(Debug, Default)]
pub struct Holders(BTreeMap<String, Option<Need>>);

impl Holders {
    /// Counts the holder of a certificate once, with its strongest need.
    pub fn count(&mut self, leaf: &OldLeaf, need: Option<Need>) {
        let OldLeaf { cluster, addon, agent, .. } = leaf;
        let known = self.0.entry(format!("{cluster}/{addon}/{agent}")).or_default();
        *known = need.max(*known);
    }

    /// Whether nobody needs the authority.
    ///
    /// # Errors
    /// Who does: how many, and the first few by name.
    pub fn without_need(&self) -> Result<(), String> {
        let needs: Vec<_> = self.0.iter().filter_map(|(name, need)| need.map(|need| (name, need))).collect();
        if needs.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = needs.iter().take(NAMED).map(|(name, need)| format!("{name} ({need})")).collect();
        let more = match needs.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (count, total) = (needs.len(), self.0.len());
        Err(format!("or {count} of {total} agents to change over: {}{more}", named.join(", ")))
    }
}

/// Since when nobody was found to need an authority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quiet(Option<Timestamp>);

impl Quiet {
    /// A certificate that was used at this time or later is in use. Every use in the quiet time counts, however far
    /// apart the looks are.
    #[must_use]
    pub fn used_after(self, now: Timestamp) -> Timestamp {
        self.0.map_or(now, |since| since.min(now)).minus(RECENT)
    }

    /// Whether nobody has needed the authority for long enough, if this is what was found now.
    ///
    /// # Errors
    /// What was found, or that the time has not passed.
    pub fn judge(&mut self, found: Result<(), String>, now: Timestamp) -> Result<(), String> {
        // A time that lies ahead is of a clock that was set back since.
        let since = found.is_ok().then(|| self.0.filter(|since| *since <= now).unwrap_or(now));
        self.0 = since;
        found?;
        let is_over = since.is_some_and(|since| since.plus(QUIET) <= now);
        if is_over { Ok(()) } else { Err("or an hour in which nobody needs it".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::registry::{AddOn, AddOnFacts, ClusterFacts, Revocation};

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
    const RECENTLY: Timestamp = Timestamp::from_unix(1_800_000_000 - 60);
    const LONG_AGO: Timestamp = Timestamp::from_unix(1_800_000_000 - 86_400);

    fn mk_leaf() -> OldLeaf {
        let [cluster, addon, agent] = ["c1", "telemetry", "agent"].map(str::to_owned);
        OldLeaf { cluster, addon, agent, not_before: LONG_AGO, last_seen: None, is_open: false, has_moved: false }
    }

    fn mk_registry(facts: AddOnFacts, accepted: bool, revoked: Option<Timestamp>) -> Registry {
        let mut registry = Registry::default();
        let cluster = ClusterFacts { accepted, deleting: false };
        registry.replace_clusters(HashMap::from([("c1".parse().unwrap(), cluster)]));
        let revocation = revoked.map(|before| Box::new(Revocation { before, by: String::new() }));
        let addons = HashMap::from([("telemetry".parse().unwrap(), AddOn { revocation, ..facts.into() })]);
        registry.put_addons(HashMap::from([("c1".parse().unwrap(), addons)]));
        registry
    }

    fn need(leaf: &OldLeaf, registry: &Registry) -> Option<Need> {
        leaf.need(registry, Quiet::default().used_after(NOW))
    }

    #[test]
    fn who_was_not_seen_with_a_newer_certificate_needs_the_old_authority() {
        let registry = mk_registry(AddOnFacts::Installed, true, None);
        let moved = OldLeaf { has_moved: true, ..mk_leaf() };
        for (leaf, expected) in [
            (mk_leaf(), Some(Need::NotMoved(None))),
            (OldLeaf { last_seen: Some(LONG_AGO), ..mk_leaf() }, Some(Need::NotMoved(Some(LONG_AGO)))),
            (OldLeaf { last_seen: Some(RECENTLY), ..mk_leaf() }, Some(Need::InUse)),
            (moved.clone(), None),
            (OldLeaf { last_seen: Some(LONG_AGO), ..moved.clone() }, None),
            // A second copy of the agent has the old key.
            (OldLeaf { last_seen: Some(RECENTLY), ..moved.clone() }, Some(Need::InUse)),
            (OldLeaf { is_open: true, ..moved }, Some(Need::Open)),
            (OldLeaf { cluster: "Not a name".to_owned(), ..mk_leaf() }, Some(Need::NotMoved(None))),
        ] {
            assert_eq!(need(&leaf, &registry), expected, "{leaf:?}");
        }
    }

    #[test]
    fn who_is_refused_for_good_needs_nothing_and_who_may_come_back_does() {
        let not_moved = Some(Need::NotMoved(None));
        for (facts, accepted, revoked, expected) in [
            (AddOnFacts::Installed, true, None, not_moved),
            (AddOnFacts::Suspended, true, None, not_moved),
            (AddOnFacts::Unreadable, true, None, not_moved),
            (AddOnFacts::Installed, false, None, not_moved),
            (AddOnFacts::Deleting, true, None, None),
            (AddOnFacts::Installed, true, Some(LONG_AGO), not_moved),
            (AddOnFacts::Installed, true, Some(LONG_AGO.plus(Duration::from_secs(1))), None),
        ] {
            let registry = mk_registry(facts, accepted, revoked);
            assert_eq!(need(&mk_leaf(), &registry), expected, "{facts:?} {accepted} {revoked:?}");
        }
        let mut registry = mk_registry(AddOnFacts::Installed, true, None);
        for cluster in ["c1", "gone"] {
            let elsewhere = OldLeaf { cluster: cluster.to_owned(), addon: "gone".to_owned(), ..mk_leaf() };
            assert_eq!(need(&elsewhere, &registry), None, "{cluster}");
            assert_eq!(need(&OldLeaf { is_open: true, ..elsewhere }, &registry), Some(Need::Open));
        }
        registry.set_outdated(true);
        let gone = OldLeaf { cluster: "gone".to_owned(), ..mk_leaf() };
        assert_eq!(need(&gone, &registry), not_moved, "nobody knows whether it is gone");
        assert_eq!(need(&gone, &Registry::default()), not_moved, "before the first lists are complete");
    }

    #[test]
    fn each_holder_is_counted_once_and_the_first_are_named() {
        let mut holders = Holders::default();
        assert_eq!(holders.without_need(), Ok(()));
        holders.count(&mk_leaf(), None);
        assert_eq!(holders.without_need(), Ok(()));
        holders.count(&mk_leaf(), Some(Need::InUse));
        holders.count(&mk_leaf(), Some(Need::NotMoved(None)));
        for (cluster, need) in [
            ("c2", Some(Need::NotMoved(Some(Timestamp::from_unix(0))))),
            ("c3", None),
            ("c4", Some(Need::NotMoved(None))),
            ("c5", Some(Need::Open)),
        ] {
            holders.count(&OldLeaf { cluster: cluster.to_owned(), ..mk_leaf() }, need);
        }
        let expected = "or 4 of 5 agents to change over: c1/telemetry/agent (in use), \
                        c2/telemetry/agent (last seen 1970-01-01T00:00:00Z), c4/telemetry/agent (never seen) \
                        and 1 more";
        assert_eq!(holders.without_need(), Err(expected.to_owned()));
    }

    #[test]
    fn nobody_needs_an_authority_for_an_hour_before_it_goes() {
        let mut quiet = Quiet::default();
        let hour = Duration::from_secs(3_600);
        let second = Duration::from_secs(1);
        assert!(quiet.judge(Ok(()), NOW).is_err());
        assert!(quiet.judge(Ok(()), NOW.plus(hour - second)).is_err());
        assert_eq!(quiet.used_after(NOW.plus(hour)), NOW.minus(RECENT), "every use since then counts");
        assert_eq!(quiet.judge(Ok(()), NOW.plus(hour)), Ok(()));
        let somebody = Err("somebody".to_owned());
        assert_eq!(quiet.judge(somebody.clone(), NOW.plus(hour)), somebody);
        assert_eq!(quiet.used_after(NOW.plus(hour)), NOW.plus(hour).minus(RECENT));
        assert!(quiet.judge(Ok(()), NOW.plus(hour + second)).is_err(), "the hour begins anew");
        assert!(quiet.judge(Ok(()), NOW).is_err(), "the clock was set back");
        assert_eq!(quiet.judge(Ok(()), NOW.plus(hour)), Ok(()));
    }
}
