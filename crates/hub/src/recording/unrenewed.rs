//! Counts certificates that are valid, and those that their agents should have renewed and have not.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::metrics::HubMetrics;
use crate::registrations::wanted::Signers;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::registry::{Registry, SharedRegistry};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{LedgerError, Reader};
use addon_signer_platform::clock::Clock;

/// The signer and the addon of each certificate that was not renewed.
type Unrenewed = Vec<(String, AddOnKey)>;
/// How many certificates of each authority are valid: its signer, its id, the number.
type Valid = Vec<(String, String, u64)>;

/// How often they are counted.
const ROUND: Duration = Duration::from_secs(300);
/// The least time between two counts.
const SETTLE: Duration = Duration::from_secs(5);

/// Counts them as long as the hub runs. Ineligible addons need no certificate.
pub(crate) async fn keep_unrenewed(
    ledger: Reader,
    registry: SharedRegistry,
    clock: Clock,
    mut signers: watch::Receiver<Option<Signers>>,
    metrics: HubMetrics,
) {
    loop {
        match counted(&ledger, clock.now()).await {
            Ok((unrenewed, valid)) => {
                let served = signers.borrow_and_update().clone().unwrap_or_default();
                let names = served.served.keys().map(String::as_str);
                if let Some(counts) = registry.read(|registry| count(&unrenewed, names, registry)) {
                    metrics.unrenewed(counts.into_iter());
                }
                let is_ours = |signer: &str| {
                    served.served.contains_key(signer) || GatewayCertificate::ALL.iter().any(|it| it.name() == signer)
                };
                metrics.valid(valid.into_iter().filter(|(signer, ..)| is_ours(signer)));
            }
            // The ledger's writer logs that it does not answer.
            Err(error) => debug!(%error, "Could not count the certificates in the ledger"),
        }
        // Signers that are served or stopped meanwhile get their number soon; many changes in a row cost one question.
        sleep(SETTLE).await;
        _ = timeout(ROUND, signers.changed()).await;
    }
}

/// What the ledger says at this time. Its reader has connections of its own, so nobody waits for these counts.
async fn counted(ledger: &Reader, now: Timestamp) -> Result<(Unrenewed, Valid), LedgerError> {
    Ok((ledger.unrenewed(now).await?, ledger.valid(now).await?))
}

/// How many of these certificates each signer has, without those of addons that are not eligible. `None` while nobody
/// knows who is eligible; a registry that is only outdated still says who had it last.
fn count<'s>(
    found: &[(String, AddOnKey)],
    signers: impl Iterator<Item = &'s str>,
    registry: &Registry,
) -> Option<BTreeMap<&'s str, usize>> {
    let mut counts: BTreeMap<&str, usize> = signers.map(|name| (name, 0)).collect();
    for (signer, AddOnKey { cluster, addon }) in found {
        if let Some(count) = counts.get_mut(signer.as_str())
            && registry.listed(cluster, addon).is_ok()
        {
            *count += 1;
        }
    }
    registry.is_ready().then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::registry::{AddOnFacts, ClusterFacts};

    #[test]
    fn certificates_of_eligible_addons_are_counted_by_signer() {
        let key = |addon: &str| AddOnKey { cluster: "c1".parse().unwrap(), addon: addon.parse().unwrap() };
        let found = [("a", "one"), ("a", "two"), ("a", "gone"), ("deleted", "one")];
        let found = found.map(|(signer, addon)| (signer.to_owned(), key(addon)));
        let mut registry = Registry::default();
        registry.set_cluster(key("one").cluster, Some(ClusterFacts::ACCEPTED));
        registry.set_addon(key("one").cluster, key("one").addon, Some(AddOnFacts::Installed));
        registry.set_addon(key("two").cluster, key("two").addon, Some(AddOnFacts::Installed));
        let counted = |registry: &Registry| count(&found, ["a", "b"].into_iter(), registry);
        registry.complete_clusters(|_| true);
        assert_eq!(counted(&registry), None, "nobody knows who is eligible");
        registry.complete_addons(|_| true);
        assert_eq!(counted(&registry), Some(BTreeMap::from([("a", 2), ("b", 0)])));
        registry.set_outdated(true);
        assert_eq!(counted(&registry), Some(BTreeMap::from([("a", 2), ("b", 0)])), "as far as anybody knows");
    }
}
