//! Keeps the APIService's `spec.caBundle` equal to the serving anchors, and reports which anchors are known to be in
//! it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use super::API_SERVICE;
use addon_signer_core::ca::bundle::Bundle;
use addon_signer_core::trust::Trust;
use addon_signer_hub::send_news;
use addon_signer_platform::errors::explain;

/// How often the APIService is read without a change, because applying a manifest may empty the field.
const POLL: Duration = Duration::from_secs(15);

/// Keeps the field up to date until the sender of `trust` is dropped. `registered` gets the anchors that the API server
/// has confirmed.
///
/// The anchors are those that agents get. A new anchor is added long before its key signs (invariant I5), and the
/// listener waits for `registered` too.
pub(super) async fn keep(
    client: Client,
    mut trust: watch::Receiver<Arc<Trust>>,
    registered: watch::Sender<Option<Bundle>>,
) {
    let services: Api<APIService> = Api::all(client);
    let mut logged = String::new();
    loop {
        let wanted = trust.borrow_and_update().serving_anchors.clone();
        let problem = match wanted {
            None => String::new(),
            Some(wanted) => match write(&services, &wanted).await {
                Ok(()) => {
                    send_news(&registered, Some(wanted));
                    String::new()
                }
                Err(error) => explain(&error),
            },
        };
        if problem != logged && !problem.is_empty() {
            tracing::warn!(
                error = problem,
                "Could not keep the CA of the APIService {API_SERVICE} up to date; is inventory.enabled in the values?"
            );
        }
        logged = problem;
        tokio::select! {
            changed = trust.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Writes the field if it differs, and re-enables the API server's certificate check if it was turned off.
async fn write(services: &Api<APIService>, anchors: &Bundle) -> Result<(), kube::Error> {
    let wanted = ByteString(anchors.pem().into_bytes());
    let spec = services.get(API_SERVICE).await?.spec.unwrap_or_default();
    if spec.ca_bundle.as_ref() == Some(&wanted) && spec.insecure_skip_tls_verify != Some(true) {
        return Ok(());
    }
    let body = json!({ "spec": { "caBundle": wanted, "insecureSkipTLSVerify": null } });
    services.patch(API_SERVICE, &PatchParams::default(), &Patch::Merge(&body)).await?;
    tracing::info!(anchors = anchors.anchors().len(), "Wrote the CA of the APIService {API_SERVICE}");
    Ok(())
}
