//! Counts certificates that their agents should have renewed and have not.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::metrics::RecordingMetrics;
use crate::registrations::wanted::Signers;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::registry::SharedRegistry;
use addon_signer_ledger::Reader;
use addon_signer_platform::clock::Clock;

/// How often they are counted.
const ROUND: Duration = Duration::from_secs(300);
/// The least time between two counts.
const SETTLE: Duration = Duration::from_secs(5);

/// Counts them as long as the hub runs. Addons without standing need no certificate.
pub(crate) async fn keep_unrenewed(
    ledger: Reader,
    registry: SharedRegistry,
    clock: Clock,
    mut signers: watch::Receiver<Option<Signers>>,
    metrics: RecordingMetrics,
) {
    loop {
        match ledger.unrenewed(clock.now()).await {
            Ok(found) => {
                let served = signers.borrow_and_update().clone().unwrap_or_default();
                let mut counts: BTreeMap<&str, usize> = served.served.keys().map(|name| (name.as_str(), 0)).collect();
                for (signer, AddOnKey { cluster, addon }) in &found {
                    if let Some(count) = counts.get_mut(signer.as_str())
                        && registry.read(|known| known.check(cluster, addon).is_ok())
                    {
                        *count += 1;
                    }
                }
                metrics.unrenewed(counts.into_iter());
            }
            // The ledger's writer logs that it does not answer.
            Err(error) => debug!(%error, "Could not count the certificates that were not renewed"),
        }
        // Signers that are served or stopped meanwhile get their number soon; many changes in a row cost one question.
        sleep(SETTLE).await;
        _ = timeout(ROUND, signers.changed()).await;
    }
}
