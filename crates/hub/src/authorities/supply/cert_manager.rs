//! An authority whose key the hub makes, and whose certificate an issuer of cert-manager signs. Once a step of the
//! lineage needs an authority, the hub creates a CertificateRequest and waits for its approval.
//!
//! There is one CertificateRequest for each key. A failed one stays until an administrator deletes it, so that the hub
//! does not ask again and again. The hub deletes one whose certificate the lineage has.

use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};

use super::pending::{KeptKey, PendingKey};
use super::{NoAnswer, Question, Supply, not_used};
use crate::authorities::store::{AuthorityStore, conflict_or};
use crate::lease::{Leads, NotWritten};
use addon_signer_api::cert_manager::{CertificateRequest, CertificateRequestSpec, IssuerRef, resource};
use addon_signer_core::encoding::pem;
use k8s_openapi::ByteString;

/// As cert-manager spells keyCertSign and cRLSign, which the CSR has.
const USAGES: [&str; 2] = ["cert sign", "crl sign"];
const NOT_INSTALLED: &str = "cert-manager is not installed: the API server does not know CertificateRequests";
/// What an administrator can do about a CertificateRequest that gets no certificate.
const DELETE: &str = "delete that CertificateRequest, and the hub makes another one";

impl Question<'_> {
    /// The authority of the open CertificateRequest, which is created if an authority is wanted.
    pub(super) async fn by_cert_manager(
        &self,
        store: &AuthorityStore,
        leads: &Leads,
        issuer: &IssuerRef,
    ) -> Result<Supply, NoAnswer> {
        let requests = &store.certificate_requests;
        let KeptKey { mut version, pending } = self.kept(store).await?;
        let waits = match pending {
            Some(taken) if self.had(&taken.id()) => {
                remove(leads, requests, &self.names.certificate_request(&taken.id()), None).await?;
                version = self.forget(store, leads, version).await?;
                None
            }
            waits => waits,
        };
        let pending = match waits {
            Some(pending) => pending,
            None if !self.wanted => return Ok(nothing()),
            None => self.new_pending(store, leads, version).await?,
        };
        let name = self.names.certificate_request(&pending.id());
        let mut found = requests.get_opt(&name).await.map_err(|error| explained(error.into(), &name))?;
        if let Some(of_another) = found.take_if(|found| found.spec.issuer_ref != *issuer) {
            remove(leads, requests, &name, of_another.metadata.uid).await?;
        }
        let request = match found {
            Some(request) => request,
            None if !self.wanted => return Ok(nothing()),
            None => {
                let request = self.certificate_request(&name, &pending, issuer);
                let created = leads.write(requests.create(&PostParams::default(), &request)).await;
                created.map_err(|error| explained(error, &name))?
            }
        };
        Ok(self.judge(&name, request, &pending))
    }

    /// The CertificateRequest for this key.
    fn certificate_request(&self, name: &str, pending: &PendingKey, issuer: &IssuerRef) -> CertificateRequest {
        let seconds = self.authority.duration.as_secs();
        let spec = CertificateRequestSpec {
            request: ByteString(pending.request.clone().into_bytes()),
            is_ca: true,
            usages: USAGES.map(str::to_owned).into(),
            duration: Some(format!("{}h{}m{}s", seconds / 3600, seconds / 60 % 60, seconds % 60)),
            issuer_ref: issuer.clone(),
        };
        let labels = Some(self.names.labels.clone());
        let request = CertificateRequest::new(name, &resource(), spec);
        CertificateRequest { metadata: ObjectMeta { labels, ..request.metadata }, ..request }
    }

    /// The outcome of a CertificateRequest.
    fn judge(&self, name: &str, request: CertificateRequest, pending: &PendingKey) -> Supply {
        let IssuerRef { name: issuer, kind, .. } = request.spec.issuer_ref;
        let status = request.status.unwrap_or_default();
        if let Some((word, message)) = status.failure() {
            return Supply::Refused(format!("The CertificateRequest {name} has failed ({word}: {message}); {DELETE}"));
        }
        if !status.is_approved() {
            return Supply::Asked(format!("the CertificateRequest {name} to be approved"));
        }
        let Some((certificate, ca)) = status.answer() else {
            let detail = status.pending().map(|message| format!(" ({message})")).unwrap_or_default();
            return Supply::Asked(format!("the {kind} {issuer} to answer the CertificateRequest {name}{detail}"));
        };
        let origin = format!("the CertificateRequest {name}");
        let supply = match (pem::certificates(certificate), ca.map_or_else(|| Ok(Vec::new()), pem::certificates)) {
            (Ok(chain), Ok(roots)) => {
                self.examine(&origin, (&chain, &roots), (pending.key.public_key_der(), pending.pkcs8.clone()))
            }
            (Err(error), _) => not_used(&origin, &format_args!("its certificate: {error}")),
            (_, Err(error)) => not_used(&origin, &format_args!("its ca: {error}")),
        };
        match supply {
            Supply::Refused(why) => Supply::Refused(format!("{why}; {DELETE}")),
            supply => supply,
        }
    }
}

fn nothing() -> Supply {
    Supply::Nothing("a CertificateRequest to be made".to_owned())
}

/// Deletes a CertificateRequest, if it exists; with a `uid`, only the one that has it.
async fn remove(
    leads: &Leads,
    requests: &Api<CertificateRequest>,
    name: &str,
    uid: Option<String>,
) -> Result<(), NoAnswer> {
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match leads.write(requests.delete(name, &params)).await {
        Ok(_) => Ok(()),
        Err(NotWritten::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(()),
        Err(error) => Err(explained(error, name)),
    }
}

/// Explains refusals of the API server that only an administrator can resolve.
fn explained(error: NotWritten, name: &str) -> NoAnswer {
    match error {
        // Only the status code tells: for an unknown resource the API server responds in plain text.
        NotWritten::Api(kube::Error::Api(status)) if status.code == 404 => NoAnswer::Refused(NOT_INSTALLED.to_owned()),
        NotWritten::Api(kube::Error::Api(status)) if status.is_forbidden() => NoAnswer::Refused(format!(
            "The hub may not use CertificateRequests: {} (certManager.enabled in the chart's values allows it)",
            status.message
        )),
        NotWritten::Api(kube::Error::Api(status)) if status.is_invalid() => {
            NoAnswer::Refused(format!("The API server refuses the CertificateRequest {name}: {}", status.message))
        }
        error => NoAnswer::Store(conflict_or(error, name)),
    }
}
