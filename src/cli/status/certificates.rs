//! The certificates that each addon on each cluster has, as the ledger knows them.

use std::collections::BTreeMap;

use super::row::Held;
use super::signers::SignersOf;
use crate::cli::certs::LedgerSource;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::query::{Filter, PAGE_MAX, Query, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::view::Certificate;

/// Which certificates of an addon on a cluster the gateway lets in.
pub(super) struct Accepted<'a> {
    pub(super) signers: &'a SignersOf,
    /// Certificates that begin before this time are refused.
    pub(super) valid_from: Option<Timestamp>,
}

/// What an addon on a cluster holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Holding {
    /// The longest-lived certificate among those that the gateway lets in.
    pub(super) held: Option<Held>,
    /// Whether it has another one whose authority is gone.
    pub(super) has_stale: bool,
}

impl Holding {
    fn add(&mut self, certificate: Certificate, accepted: &Accepted<'_>) {
        let Certificate { not_before, not_after, issuer, last_seen, .. } = certificate;
        if accepted.valid_from.is_some_and(|from| not_before < from) {
            return;
        }
        if !accepted.signers.has_authority(&issuer) {
            self.has_stale = true;
            return;
        }
        let before = self.held.take();
        let last_seen = last_seen.max(before.as_ref().and_then(|before| before.last_seen));
        let longest = before.filter(|before| before.valid_until >= not_after);
        let longest = longest.unwrap_or(Held { valid_until: not_after, authority: issuer, last_seen: None });
        self.held = Some(Held { last_seen, ..longest });
    }
}

/// What the ledger has on the addons that `accepted` knows.
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
    fn longest_certificate_of_a_present_authority_is_shown() {
        let seen = Certificate { last_seen: Some(NOW), ..mk_certificate("a1", 2) };
        let all = || vec![mk_certificate("gone", 9), seen.clone(), mk_certificate("a2", 3), mk_certificate("a1", 1)];
        let valid_until = NOW.plus(Duration::from_secs(3 * 3_600));
        let expected = Held { valid_until, authority: "a2".to_owned(), last_seen: Some(NOW) };
        let found = holding(all(), None);
        assert_eq!((found.held, found.has_stale), (Some(expected), true));
        let only_gone = holding(vec![mk_certificate("gone", 9)], None);
        assert_eq!((only_gone.held, only_gone.has_stale), (None, true));
        let revoked = holding(all(), Some(NOW.plus(Duration::from_secs(1))));
        assert_eq!((revoked.held, revoked.has_stale), (None, false));
    }
}
