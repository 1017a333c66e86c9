//! Writes the conditions of AddOnRoutes.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, PatchParams};
use tokio::sync::watch;
use tracing::warn;

use super::{AllJudged, Judged, status};
use crate::lease::{Leading, NotWritten};
use crate::supervisor::status::patch_of_status;
use addon_signer_api::{AddOnRoute, AddOnRouteStatus, Guarded};
use addon_signer_core::gateway::route::RouteName;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::errors::explain;
use addon_signer_telemetry::pulse::Pulse;

/// The pause between two rounds: another program may undo what the hub writes.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the hub looks, even if nothing changes: a write may have failed.
const ROUND: Duration = Duration::from_secs(15);

/// Writes conditions while the hub leads.
pub(crate) struct StatusWriter {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) leading: Leading,
    pub(crate) judged: watch::Receiver<AllJudged>,
    pub(crate) pulse: Pulse,
}

impl StatusWriter {
    /// Runs until nothing is judged any more.
    pub(crate) async fn run(mut self) {
        loop {
            self.pulse.beat();
            let judged = self.judged.borrow_and_update().clone();
            for (name, one) in judged.iter() {
                let wanted = status::wanted(one, self.clock.now());
                if one.route.status.as_ref() == Some(&wanted) {
                    continue;
                }
                match self.write(name, one, &wanted).await {
                    Ok(()) => {}
                    Err(NotWritten::NotLeading(_)) => break,
                    Err(error) => {
                        let error = explain(&error);
                        warn!(route = %name, error, "Could not write the status of an AddOnRoute; the hub retries");
                    }
                }
                self.pulse.beat();
            }
            tokio::time::sleep(PAUSE).await;
            if let Ok(Err(_)) = tokio::time::timeout(ROUND, self.judged.changed()).await {
                return;
            }
        }
    }

    async fn write(&self, name: &RouteName, one: &Judged, status: &AddOnRouteStatus) -> Result<(), NotWritten> {
        let leads = self.leading.leads().map_err(NotWritten::from)?;
        let api: Api<Guarded<AddOnRoute>> = Api::namespaced(self.client.clone(), &name.namespace);
        let patch = patch_of_status(one.route.uid.as_ref(), status);
        leads.write(api.patch_status(&name.name, &PatchParams::default(), &patch)).await.map(drop)
    }
}
