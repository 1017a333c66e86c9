//! Reads the ClusterTrustBundles that AddOnRoutes name. Kubernetes lets every ServiceAccount read all of them. They are
//! read by name now and then, not watched, because an API server may not have this kind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::Api;
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::registrations::discovery::served_version;
use addon_signer_api::cluster_trust_bundle::{
    CERTIFICATES_GROUP, CLUSTER_TRUST_BUNDLES, ClusterTrustBundle, VERSIONS, resource,
};
use addon_signer_api::route_rules::ca_certificates;
use addon_signer_core::gateway::route::BackendAnchors;
use addon_signer_core::gateway::routing::RoutePlan;
use addon_signer_platform::errors::explain;
use addon_signer_telemetry::pulse::Pulse;

/// How soon a changed ClusterTrustBundle takes effect.
const ROUND: Duration = Duration::from_secs(15);
/// The shortest pause between two rounds, even if the wanted names change often.
const PAUSE: Duration = Duration::from_secs(1);
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The certificates in a ClusterTrustBundle, or why it cannot be used.
type Bundle = Result<BackendAnchors, String>;

/// The requested ClusterTrustBundles, by name.
pub(crate) type Bundles = BTreeMap<String, Bundle>;

/// The names that these AddOnRoutes have.
pub(super) fn named<'p>(plans: impl Iterator<Item = &'p RoutePlan>) -> BTreeSet<String> {
    plans.filter_map(|plan| plan.backend.bundle()).map(str::to_owned).collect()
}

/// Reads the wanted ClusterTrustBundles until `wanted` has no sender any more. While the API server does not answer,
/// they stay as they were.
pub(crate) async fn keep(
    client: Client,
    mut wanted: watch::Receiver<BTreeSet<String>>,
    read: watch::Sender<Bundles>,
    pulse: Pulse,
) {
    loop {
        pulse.beat();
        let names = wanted.borrow_and_update().clone();
        read.send_if_modified(|known| {
            let before = known.len();
            known.retain(|name, _| names.contains(name));
            known.len() != before
        });
        if !names.is_empty() {
            read_all(&client, &names, &read, &pulse).await;
        }
        sleep(PAUSE).await;
        if let Ok(Err(_)) = timeout(ROUND, wanted.changed()).await {
            return;
        }
    }
}

/// The API server did not answer about a ClusterTrustBundle.
struct Unanswered(String);

/// Notes the state of a ClusterTrustBundle. Without an answer it stays as it was.
fn note(read: &watch::Sender<Bundles>, name: &str, found: Result<Bundle, Unanswered>) {
    read.send_if_modified(|known| {
        let now = found.unwrap_or_else(|Unanswered(error)| {
            warn!(name, error, "Could not read a ClusterTrustBundle of a backend; the hub retries");
            known.get(name).cloned().unwrap_or(Err(format!("it cannot be read: {error}")))
        });
        known.insert(name.to_owned(), now.clone()).is_none_or(|before| before != now)
    });
}

/// Reads them one after the other; each takes effect at once, so that a slow one does not delay the others.
async fn read_all(client: &Client, names: &BTreeSet<String>, read: &watch::Sender<Bundles>, pulse: &Pulse) {
    let unanswered = |error: &Error| Unanswered(explain(error));
    let api = match served_version(client, CERTIFICATES_GROUP, CLUSTER_TRUST_BUNDLES, &VERSIONS).await {
        Ok(Some(version)) => Api::<ClusterTrustBundle>::all_with(client.clone(), &resource(version)),
        Ok(None) => {
            let none = || Ok(Err("the API server has no such objects".to_owned()));
            return names.iter().for_each(|name| note(read, name, none()));
        }
        Err(error) => return names.iter().for_each(|name| note(read, name, Err(unanswered(&error)))),
    };
    for name in names {
        pulse.beat();
        let bundle = match timeout(TIMEOUT, api.get_opt(name)).await {
            Ok(Ok(Some(bundle))) => Ok(ca_certificates(&bundle.spec.trust_bundle)),
            Ok(Ok(None)) => Ok(Err("it does not exist".to_owned())),
            Ok(Err(error)) => Err(unanswered(&error)),
            Err(_) => Err(Unanswered(format!("no answer within {TIMEOUT:?}"))),
        };
        note(read, name, bundle);
    }
}
