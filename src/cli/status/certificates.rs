//! The certificates of each addon on each cluster, from the ledger.

use std::collections::BTreeMap;

use super::reported::Reported;
use super::signers::SignersOf;
use crate::cli::certs::LedgerSource;
use addon_signer_core::certification::Newest;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::query::{Filter, PAGE_MAX, Query, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::view::Certificate;

/// Which certificates of an addon on a cluster the gateway accepts.
pub(super) struct Accepted<'a> {
    pub(super) signers: &'a SignersOf,
    /// Certificates that begin before this time are refused.
    pub(super) valid_from: Option<Timestamp>,
}

/// The certificates of an addon on a cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Holding {
    /// The newest one, which its agent uses, whether or not the gateway accepts it.
    pub(super) newest: Option<Newest>,
    /// The number of its entry: the certificate that was issued last has the largest.
    seq: u64,
    /// When one that the gateway accepts was last used there.
    pub(super) last_seen: Option<Timestamp>,
    /// All that the gateway accepts.
    certificates: Vec<AgentCertificate>,
}

/// A certificate of one of the agents of an addon on a cluster.
#[derive(Debug, Clone)]
struct AgentCertificate {
    agent: String,
    authority: String,
    not_before: Timestamp,
    /// Whether the gateway has seen it.
    is_used: bool,
}

impl Holding {
    /// What the hub's report says.
    pub(super) fn reported(reported: Option<&Reported>) -> Self {
        match reported {
            Some(Reported::Issued { newest, .. }) => Self { newest: Some(newest.clone()), ..Self::default() },
            _ => Self::default(),
        }
    }

    /// The authorities on whose certificates an agent depends, and whether that is certain. An agent depends on its
    /// last certificate. It may also depend on an earlier one that it has used, until it uses a later one, because it
    /// may not have received that. Standalone gateways report no uses; then only the last one counts.
    pub(super) fn depends_on(&self) -> BTreeMap<String, bool> {
        let mut all = BTreeMap::new();
        for one in &self.certificates {
            let is_later = |it: &&AgentCertificate| {
                it.agent == one.agent && it.authority != one.authority && it.not_before > one.not_before
            };
            let is_certain = match self.certificates.iter().filter(is_later).map(|later| later.is_used).max() {
                None => true,
                Some(false) if one.is_used => false,
                Some(_) => continue,
            };
            *all.entry(one.authority.clone()).or_default() |= is_certain;
        }
        all
    }

    fn add(&mut self, certificate: Certificate, accepted: &Accepted<'_>) {
        let Certificate { seq, agent, not_before, not_after, issuer: authority, last_seen, .. } = certificate;
        if seq >= self.seq {
            self.newest = Some(Newest { authority: authority.as_str().into(), not_before, not_after });
            self.seq = seq;
        }
        let is_early = accepted.valid_from.is_some_and(|from| not_before < from);
        if !is_early && accepted.signers.has_authority(&authority) {
            self.last_seen = self.last_seen.max(last_seen);
            self.certificates.push(AgentCertificate { agent, authority, not_before, is_used: last_seen.is_some() });
        }
    }
}

/// The ledger's certificates of the addons in `accepted`.
pub(super) async fn holdings<'a>(
    ledger: &LedgerSource,
    filter: Filter,
    accepted: impl Fn(&AddOnKey) -> Option<Accepted<'a>>,
) -> anyhow::Result<BTreeMap<AddOnKey, Holding>> {
    let filter = Filter { state: Some(StateFilter::Valid), ..filter };
    let mut query = Query { filter, after: None, limit: PAGE_MAX };
    let mut found: BTreeMap<AddOnKey, Holding> = BTreeMap::new();
    loop {
        let page = ledger.page(&query).await?;
        query.after = page.items.last().map(|last| last.cursor(&query));
        for certificate in page.items {
            // The gateway's own certificates belong to no cluster.
            let (Ok(cluster), Ok(addon)) = (certificate.cluster.parse(), certificate.addon.parse()) else { continue };
            let key = AddOnKey { cluster, addon };
            if let Some(accepted) = accepted(&key) {
                found.entry(key).or_default().add(certificate, &accepted);
            }
        }
        if page.metadata.next.is_none() {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_795_000_000);

    fn mk_certificate(issuer: &str, hours: u64) -> Certificate {
        let (not_before, not_after) = (NOW, NOW.plus(Duration::from_secs(3_600 * hours)));
        let certificate = json!({
            "seq": 1, "serial": "1", "state": "published", "signer": "t", "cluster": "c", "addon": "t", "agent": "a",
            "issuer": issuer, "request": "r", "uid": "u", "notBefore": not_before, "notAfter": not_after,
        });
        serde_json::from_value(certificate).unwrap()
    }

    fn holding(certificates: Vec<Certificate>, valid_from: Option<Timestamp>) -> Holding {
        let signers = SignersOf::with_authorities(&["a1", "a2"]);
        let mut holding = Holding::default();
        for certificate in certificates {
            holding.add(certificate, &Accepted { signers: &signers, valid_from });
        }
        holding
    }

    #[test]
    fn newest_certificate_is_shown_and_uses_of_accepted_ones() {
        let begins = |certificate: Certificate, seq: u64| {
            let not_before = NOW.plus(Duration::from_secs(seq));
            Certificate { seq, not_before, last_seen: Some(not_before), ..certificate }
        };
        let all = || {
            let gone = begins(mk_certificate("gone", 9), 3);
            vec![begins(mk_certificate("a1", 99), 1), gone, begins(mk_certificate("a2", 3), 2)]
        };
        let newest = |found: &Holding| found.newest.as_ref().map(|newest| newest.authority.to_string());
        let found = holding(all(), None);
        assert_eq!(newest(&found).as_deref(), Some("gone"), "its agent has this one, though others live longer");
        assert_eq!(found.last_seen, Some(NOW.plus(Duration::from_secs(2))));
        let late = holding(all(), Some(NOW.plus(Duration::from_secs(4))));
        assert_eq!((newest(&late).as_deref(), late.last_seen), (Some("gone"), None));
    }

    #[test]
    fn agent_depends_on_all_before_the_one_that_it_used() {
        let later = |agent: &str, issuer: &str, last_seen| {
            let not_before = NOW.plus(Duration::from_secs(60));
            Certificate { agent: agent.to_owned(), not_before, last_seen, ..mk_certificate(issuer, 2) }
        };
        let depends = |certificates| Vec::from_iter(holding(certificates, None).depends_on());
        let (a1, a2) = ("a1".to_owned(), "a2".to_owned());
        let first = || mk_certificate("a1", 1);
        assert_eq!(depends(vec![first()]), [(a1.clone(), true)]);
        let used = Certificate { last_seen: Some(NOW), ..first() };
        assert_eq!(depends(vec![used, later("a", "a2", None)]), [(a1.clone(), false), (a2.clone(), true)]);
        assert_eq!(depends(vec![first(), later("a", "a2", None)]), [(a2.clone(), true)], "no uses are reported");
        let renewed = || later("a", "a2", Some(NOW));
        assert_eq!(depends(vec![first(), renewed()]), [(a2.clone(), true)]);
        let another = Certificate { agent: "b".to_owned(), ..first() };
        assert_eq!(depends(vec![first(), renewed(), another]), [(a1.clone(), true), (a2.clone(), true)]);
        let back = Certificate { not_before: NOW.plus(Duration::from_secs(120)), ..first() };
        assert_eq!(depends(vec![first(), renewed(), back]), [(a1, true), (a2, false)], "after a rollback");
    }
}
