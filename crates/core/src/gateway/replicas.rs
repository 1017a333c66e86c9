//! Which gateways live, and which authorities each of them trusts: the evidence on which a new authority of an
//! AddOnSigner signs (invariant I5).
//!
//! A gateway in a process of its own reports in a Lease, which it renews. It rejects all clients once it has not heard
//! from the API server for its *bound*; before that, it may use outdated trust. So it counts as live for its bound and
//! a minute after its last report, or until it reports that it ends. A deleted Lease proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ca::authority::AuthorityId;
use crate::ca::lineage::WaitsFor;

/// For how much longer than its bound a silent gateway counts as live.
const GRACE: Duration = Duration::from_secs(60);

/// The largest bound. A gateway with a larger one could hold up rotations after its end.
pub const LARGEST_BOUND: Duration = Duration::from_secs(86_400);

/// What a gateway reports in its Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whether the gateway runs: its Lease has a holder.
    pub runs: bool,
    /// The authorities that it trusts.
    pub trusts: BTreeSet<AuthorityId>,
    /// How long after the API server was last heard from it rejects all clients.
    pub bound: Duration,
    /// The Lease's `resourceVersion`: every renewal changes it.
    pub version: String,
}

/// A report, and when it was first seen, by the reader's own monotonic clock.
#[derive(Debug, Clone)]
struct SeenReport {
    report: Report,
    since: Duration,
}

impl SeenReport {
    fn ends(&self) -> Duration {
        self.since.saturating_add(self.report.bound.min(LARGEST_BOUND)).saturating_add(GRACE)
    }
}

/// The gateways that live.
#[derive(Debug, Default)]
pub struct Replicas(BTreeMap<String, SeenReport>);

impl Replicas {
    /// Notes what the Lease with this name reported at `now`.
    pub fn note(&mut self, name: &str, report: Report, now: Duration) {
        if !report.runs {
            self.0.remove(name);
            return;
        }
        // Only a new version is a sign of life: a list may return the last one again.
        let is_renewed = self.0.get(name).is_none_or(|seen| seen.report.version != report.version);
        if is_renewed {
            self.0.insert(name.to_owned(), SeenReport { report, since: now });
        }
    }

    /// Forgets those that have been silent for too long at `now`.
    pub fn forget_silent(&mut self, now: Duration) {
        self.0.retain(|_, seen| now < seen.ends());
    }

    /// What each of them trusts.
    #[must_use]
    pub fn trusts(&self) -> BTreeMap<String, BTreeSet<AuthorityId>> {
        self.0.iter().map(|(name, seen)| (name.clone(), seen.report.trusts.clone())).collect()
    }
}

/// What all gateways trust now; nothing is known before their Leases were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustInEffect(Option<BTreeMap<String, BTreeSet<AuthorityId>>>);

impl TrustInEffect {
    /// What these gateways trust.
    #[must_use]
    pub fn of(gateways: BTreeMap<String, BTreeSet<AuthorityId>>) -> Self {
        Self(Some(gateways))
    }

    /// Whether every gateway trusts this authority. Without any gateway that is so, because a gateway that starts reads
    /// what it must trust before it serves.
    ///
    /// # Errors
    /// The gateways that do not.
    pub fn has(&self, authority: &AuthorityId) -> Result<(), WaitsFor> {
        let Some(gateways) = &self.0 else { return Err(WaitsFor::Read("the Leases of the gateways".to_owned())) };
        let missing = gateways.iter().filter(|(_, trusts)| !trusts.contains(authority));
        let missing: Vec<String> = missing.map(|(name, _)| name.clone()).collect();
        if missing.is_empty() { Ok(()) } else { Err(WaitsFor::Gateways { missing, live: gateways.len() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BOUND: Duration = Duration::from_secs(600);

    fn mk_report(version: &str, trusts: &[&str]) -> Report {
        let trusts = trusts.iter().map(|id| AuthorityId::from(*id)).collect();
        Report { runs: true, trusts, bound: BOUND, version: version.to_owned() }
    }

    fn has(replicas: &Replicas, id: &str) -> Result<(), WaitsFor> {
        TrustInEffect::of(replicas.trusts()).has(&id.into())
    }

    fn missing(name: &str, live: usize) -> Result<(), WaitsFor> {
        Err(WaitsFor::Gateways { missing: vec![name.to_owned()], live })
    }

    #[test]
    fn every_live_gateway_must_trust_an_authority() {
        let unread = TrustInEffect::default().has(&"new".into()).unwrap_err();
        assert_eq!(unread.to_string(), "the Leases of the gateways to be read");
        let mut replicas = Replicas::default();
        assert_eq!(has(&replicas, "new"), Ok(()));
        replicas.note("a", mk_report("1", &["old", "new"]), SECOND);
        replicas.note("b", mk_report("2", &["old"]), SECOND);
        assert_eq!((has(&replicas, "old"), has(&replicas, "new")), (Ok(()), missing("b", 2)));
        replicas.note("b", mk_report("3", &["old", "new"]), SECOND);
        assert_eq!(has(&replicas, "new"), Ok(()));
    }

    #[test]
    fn silent_gateway_lives_for_its_bound_and_a_minute() {
        let mut replicas = Replicas::default();
        replicas.note("a", mk_report("1", &[]), SECOND);
        replicas.note("a", mk_report("1", &[]), 60 * SECOND); // a list shows it again: that is no renewal
        replicas.forget_silent(660 * SECOND);
        assert_eq!(has(&replicas, "new"), missing("a", 1));
        replicas.forget_silent(661 * SECOND);
        assert_eq!(has(&replicas, "new"), Ok(()));
        replicas.note("a", mk_report("2", &[]), 661 * SECOND);
        replicas.forget_silent(1320 * SECOND);
        assert_eq!(has(&replicas, "new"), missing("a", 1), "renewed");
    }

    #[test]
    fn gateway_that_ends_counts_no_more_at_once() {
        let mut replicas = Replicas::default();
        replicas.note("a", mk_report("1", &[]), SECOND);
        replicas.note("a", Report { runs: false, ..mk_report("2", &[]) }, 2 * SECOND);
        assert_eq!(has(&replicas, "new"), Ok(()));
    }

    #[test]
    fn no_gateway_lives_for_ever_after_its_last_report() {
        let mut replicas = Replicas::default();
        replicas.note("a", Report { bound: Duration::MAX, ..mk_report("1", &[]) }, SECOND);
        replicas.forget_silent(LARGEST_BOUND + 61 * SECOND);
        assert_eq!(has(&replicas, "new"), Ok(()));
    }
}
