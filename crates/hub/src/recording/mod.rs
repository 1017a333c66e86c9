//! Records in the ledger what the hub does and observes: steps of authorities, configurations, eligibility, revocations
//! and uses. Publishes signed checkpoints of the ledger, and counts certificates that are valid, and those that their
//! agents should have renewed and have not.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::HubLinks;
use crate::registrations::wanted::Signers;
use crate::tasks::{HubTasks, after_the_writer};
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::policy::GatewayCertificate;
use addon_signer_core::registry::Registry;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::{LedgerError, LedgerWriter, Reader};
use checkpoints::Checkpoints;
use notes::record_usage;
pub(super) use notes::{Notes, answered};

pub mod checkpoints;
pub(super) mod chronicle;
mod notes;

/// The ledger's writer, its epoch, the notes to record, and the served signers.
pub(super) struct Feeding {
    pub(super) writer: LedgerWriter,
    pub(super) epoch: u64,
    pub(super) notes: Notes,
    pub(super) signers: watch::Receiver<Option<Signers>>,
}

/// Starts the tasks that write to the ledger or compare with it.
pub(super) fn start(tasks: &mut HubTasks, links: &HubLinks, namespace: &str, feeding: Feeding) {
    let Feeding { writer, epoch, notes, signers } = feeding;
    let location = writer.location();
    tasks.spawn("writer of the ledger", async move { Ok(writer.run(epoch).await?) });
    let HubLinks { clock, ledger, registry, usage, .. } = links;
    tasks.spawn("changes for the ledger", after_the_writer(notes.keep(ledger.clone(), registry.clone())));
    let unrenewed = keep_unrenewed(links.clone(), Reader::new(location.clone()), signers);
    tasks.spawn("certificates that were not renewed", unrenewed.map(Ok));
    let checkpoints = Checkpoints::new(links, namespace, location);
    tasks.spawn("checkpoints", after_the_writer(checkpoints.keep()));
    let usage = record_usage(ledger.clone(), usage.clone(), clock.clone());
    tasks.spawn("uses of certificates", after_the_writer(usage));
}

/// The signer and the addon of each certificate that was not renewed.
type Unrenewed = Vec<(String, AddOnKey)>;
/// The number of valid certificates of each authority, after its signer and its id.
type Valid = Vec<(String, String, u64)>;

/// How often they are counted.
const ROUND: Duration = Duration::from_secs(300);
/// The shortest time between two counts.
const COALESCE: Duration = Duration::from_secs(5);

/// Counts them as long as the hub runs. Ineligible addons need no certificate.
async fn keep_unrenewed(links: HubLinks, ledger: Reader, mut signers: watch::Receiver<Option<Signers>>) {
    let HubLinks { clock, registry, metrics, .. } = links;
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
            // The ledger's writer has logged the error.
            Err(error) => debug!(%error, "Could not count the certificates in the ledger"),
        }
        // A changed set of signers is counted soon, but many changes in a row cost only one count.
        sleep(COALESCE).await;
        _ = timeout(ROUND, signers.changed()).await;
    }
}

/// The ledger's present numbers. Its reader has connections of its own, so these counts delay nothing else.
async fn counted(ledger: &Reader, now: Timestamp) -> Result<(Unrenewed, Valid), LedgerError> {
    Ok((ledger.unrenewed(now).await?, ledger.valid(now).await?))
}

/// How many of these certificates each signer has, without those of ineligible addons. `None` until the registry is
/// complete; an outdated registry still knows which addons were eligible last.
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
