//! Reads the ClusterTrustBundles that AddOnRoutes name. Kubernetes lets every ServiceAccount read all of them; there is
//! one request for each name, now and then, because an API server may have none of these objects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::Api;
use kube::{Client, Error};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;

use crate::registrations::discovery::served_version;
use addon_signer_api::cluster_trust_bundle::{
    CERTIFICATES_GROUP, CLUSTER_TRUST_BUNDLES, ClusterTrustBundle, VERSIONS, resource,
};
use addon_signer_api::route_rules::ca_certificates;
use addon_signer_core::gateway::routing::RoutePlan;
use addon_signer_platform::errors::explain;
use addon_signer_telemetry::pulse::Pulse;

/// How soon a changed ClusterTrustBundle counts.
const ROUND: Duration = Duration::from_secs(15);

/// Their certificates by their names, or why one cannot be used.
pub(crate) type Bundles = BTreeMap<String, Result<Vec<CertificateDer<'static>>, String>>;

/// The names that these AddOnRoutes have.
pub(super) fn named<'p>(plans: impl Iterator<Item = &'p RoutePlan>) -> BTreeSet<String> {
    plans.filter_map(|plan| plan.backend.bundle()).map(str::to_owned).collect()
}

/// Reads those with the wanted names until nobody wants any more. One that cannot be read now stays as it was.
pub(crate) async fn keep(
    client: Client,
    mut wanted: watch::Receiver<BTreeSet<String>>,
    read: watch::Sender<Bundles>,
    pulse: Pulse,
) {
    loop {
        pulse.beat();
        let names = wanted.borrow_and_update().clone();
        if !names.is_empty() {
            let mut found = read_all(&client, &names).await;
            read.send_if_modified(|known| {
                for (name, bundle) in &mut found {
                    if let (Err(_), Some(Ok(before))) = (&*bundle, known.get(name)) {
                        *bundle = Ok(before.clone());
                    }
                }
                let differs = *known != found;
                *known = found;
                differs
            });
        }
        if let Ok(Err(_)) = tokio::time::timeout(ROUND, wanted.changed()).await {
            return;
        }
    }
}

/// Those that exist, and those of which that is not known.
async fn read_all(client: &Client, names: &BTreeSet<String>) -> Bundles {
    let failed = |error: &Error| format!("it cannot be read: {}", explain(error));
    let api = match served_version(client, CERTIFICATES_GROUP, CLUSTER_TRUST_BUNDLES, &VERSIONS).await {
        Ok(Some(version)) => Api::<ClusterTrustBundle>::all_with(client.clone(), &resource(version)),
        Ok(None) => {
            let none = |name: &String| (name.clone(), Err("the API server has no ClusterTrustBundles".to_owned()));
            return names.iter().map(none).collect();
        }
        Err(error) => return names.iter().map(|name| (name.clone(), Err(failed(&error)))).collect(),
    };
    let mut found = Bundles::new();
    for name in names {
        match api.get_opt(name).await {
            Ok(Some(bundle)) => drop(found.insert(name.clone(), ca_certificates(&bundle.spec.trust_bundle))),
            Ok(None) => {}
            Err(error) => drop(found.insert(name.clone(), Err(failed(&error)))),
        }
    }
    found
}
