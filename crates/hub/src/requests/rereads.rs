//! Reads again what was not kept of a request.

use std::sync::Arc;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, Client, ResourceExt};
use tokio::sync::Semaphore;

use crate::requests::action;
use addon_signer_api::request::BoundedRequest;

/// How many requests are read again at once, of all clusters: each may need 27 MB while it is read.
const AT_ONCE: usize = 2;

/// Reads requests again.
#[derive(Clone)]
pub(super) struct Rereads {
    api: Api<BoundedRequest>,
    places: Arc<Semaphore>,
}

impl Rereads {
    pub(super) fn new(client: &Client) -> Self {
        Self { api: Api::all(client.clone()), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The object of a request: `kept`, or else what the API server has; `None` if it is no longer such a request.
    ///
    /// # Errors
    /// The error of the API server.
    pub(super) async fn object(
        &self,
        kept: Option<Arc<CertificateSigningRequest>>,
        name: &str,
        signer_name: &str,
    ) -> Result<Option<Arc<CertificateSigningRequest>>, kube::Error> {
        if kept.is_some() {
            return Ok(kept);
        }
        // Nobody closes it, so a slot becomes free.
        let _place = self.places.acquire().await.ok();
        let found = self.api.get_opt(name).await?.map(action::trimmed);
        Ok(found.filter(|csr| csr.name_any() == name && csr.spec.signer_name == signer_name).map(Arc::new))
    }
}
