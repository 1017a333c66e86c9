//! Reads again what was not kept of a CSR.

use std::sync::Arc;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, Client, ResourceExt};
use tokio::sync::Semaphore;

use crate::csrs::action;
use addon_signer_api::request::BoundedCsr;

/// How many CSRs are read again at once, of all clusters: each may need 27 MB while it is read.
const AT_ONCE: usize = 2;

/// Reads CSRs again.
#[derive(Clone)]
pub(super) struct Rereads {
    api: Api<BoundedCsr>,
    places: Arc<Semaphore>,
}

impl Rereads {
    pub(super) fn new(client: &Client) -> Self {
        Self { api: Api::all(client.clone()), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The object of a CSR: `kept`, or else what the API server has; `None` if it is no longer such a CSR.
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
        // Nobody closes it, so a permit becomes free.
        let _place = self.places.acquire().await.ok();
        let found = self.api.get_opt(name).await?.map(action::trimmed);
        Ok(found.filter(|csr| csr.name_any() == name && csr.spec.signer_name == signer_name).map(Arc::new))
    }
}
