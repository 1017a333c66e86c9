//! The writes on a CertificateSigningRequest: answers need the right to `update` `/approval` and `/status`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use kube::api::{DeleteParams, PostParams, Preconditions, Request};
use kube::runtime::events::{EventType, Recorder};
use kube::{Api, Client, Resource, ResourceExt};

use crate::conditions::event;
use crate::csrs::action::{WAITS, csr_user};
use crate::lease::{Leads, NotWritten};
use addon_signer_api::request::BoundedCsr;
use addon_signer_core::conditions::POLICY_ALLOWS;
use addon_signer_core::names::{ANNOTATION_CSR_USER, ANNOTATION_TRUST_BUNDLE};

/// How a CSR is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// It was not approved.
    Denied,
    /// Another account had approved it, and Kubernetes lets no account withdraw an approval.
    Failed,
}

/// Writes answers with the hub's account, while this hub leads. A write is a conflict if the object has changed since
/// the decision.
pub(crate) struct StatusWriter<'l> {
    api: Api<BoundedCsr>,
    leads: &'l Leads,
}

impl<'l> StatusWriter<'l> {
    /// Creates the writer of answers for all CSRs: they are cluster-scoped.
    pub(crate) fn new(client: Client, leads: &'l Leads) -> Self {
        Self { api: Api::all(client), leads }
    }

    /// Approves the CSR; returns the object that the certificate is then written on.
    pub(crate) async fn approve(
        &self,
        csr: &CertificateSigningRequest,
        signer: &str,
    ) -> Result<CertificateSigningRequest, NotWritten> {
        let sentence = format!("The CSR follows the rules of the AddOnSigner {signer}.");
        self.write(with_condition(csr, "Approved", POLICY_ALLOWS, &sentence), "approval").await
    }

    /// Denies or fails the CSR, with a reason, and removes its finalizers: no agent sets any, and they would keep the
    /// CSR forever once the hub has deleted it.
    pub(crate) async fn refuse(
        &self,
        csr: &CertificateSigningRequest,
        verdict: RefusalKind,
        reason: &str,
        sentence: &str,
    ) -> Result<(), NotWritten> {
        let (kind, subresource) = match verdict {
            RefusalKind::Denied => ("Denied", "approval"),
            RefusalKind::Failed => ("Failed", "status"),
        };
        let mut refused = with_condition(csr, kind, reason, sentence);
        refused.metadata.finalizers = None;
        self.write(refused, subresource).await.map(|_| ())
    }

    /// Adds one of our own conditions.
    pub(crate) async fn add_condition(
        &self,
        csr: &CertificateSigningRequest,
        kind: &str,
        reason: &str,
        sentence: &str,
    ) -> Result<(), NotWritten> {
        self.write(with_condition(csr, kind, reason, sentence), "status").await.map(|_| ())
    }

    /// Writes the certificate with its chain as PEM and, in an annotation, the anchors that the agent needs to trust
    /// the gateway.
    pub(crate) async fn publish(
        &self,
        csr: &CertificateSigningRequest,
        certificate: String,
        trust_bundle: &str,
    ) -> Result<(), NotWritten> {
        let mut csr = csr.clone();
        let annotations = csr.metadata.annotations.get_or_insert_with(BTreeMap::new);
        annotations.insert(ANNOTATION_TRUST_BUNDLE.to_owned(), trust_bundle.to_owned());
        let status = csr.status.get_or_insert_default();
        status.certificate = Some(ByteString(certificate.into_bytes()));
        if let Some(conditions) = &mut status.conditions {
            conditions.retain(|condition| !WAITS.contains(&condition.type_.as_str()));
        }
        self.write(csr, "status").await.map(|_| ())
    }

    /// Deletes exactly this object. It is no error if the object does not exist any more. Returns whether it is deleted
    /// now; otherwise finalizers keep it.
    ///
    /// # Errors
    /// The error of the API server, also if the object has changed; the watch then shows it again.
    pub(crate) async fn delete(&self, csr: &CertificateSigningRequest) -> Result<bool, NotWritten> {
        let preconditions =
            Preconditions { uid: csr.metadata.uid.clone(), resource_version: csr.metadata.resource_version.clone() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = Request::new(self.api.resource_url()).delete(&csr.name_any(), &params);
        // `Api::delete` would decode the whole object first, whatever its size.
        let answer = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.api.clone().into_client().request::<BoundedCsr>(request).await
        };
        match self.leads.write(answer).await {
            Err(NotWritten::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(true),
            // The API server responds with the object only if it still exists, and with a Status otherwise.
            left => Ok(left?.csr.metadata.finalizers.is_none_or(|left| left.is_empty())),
        }
    }

    /// Tries, in a dry run, to change the user for whom OCM's gRPC server made the CSR.
    ///
    /// # Errors
    /// The error of the API server, which the policy addon-signer-grpc-account must cause.
    pub(crate) async fn try_for_another(
        &self,
        csr: &CertificateSigningRequest,
        subresource: &str,
    ) -> Result<(), kube::Error> {
        // A value that differs from any real one, since the client of the gRPC server controls the user name.
        let another = format!("not {}", csr_user(csr).unwrap_or_default());
        let mut changed = csr.clone();
        changed.metadata.annotations.get_or_insert_default().insert(ANNOTATION_CSR_USER.to_owned(), another);
        let dry_run = PostParams { dry_run: true, field_manager: None };
        self.api.replace_subresource(subresource, &csr.name_any(), &dry_run, &changed).await.map(|_| ())
    }

    /// Writes an Event with the reason.
    pub(crate) async fn event(
        &self,
        csr: &CertificateSigningRequest,
        recorder: &Recorder,
        reason: &str,
        sentence: &str,
    ) -> Result<(), kube::Error> {
        let event = event(EventType::Warning, "Signing", reason, sentence.to_owned());
        recorder.publish(&event, &csr.object_ref(&())).await
    }

    async fn write(
        &self,
        csr: CertificateSigningRequest,
        subresource: &str,
    ) -> Result<CertificateSigningRequest, NotWritten> {
        let name = csr.name_any();
        let params = PostParams::default();
        let written = self.leads.write(self.api.replace_subresource(subresource, &name, &params, &csr)).await?;
        Ok(written.csr)
    }
}

/// The object with one more condition; the API server fills in the times.
fn with_condition(
    csr: &CertificateSigningRequest,
    kind: &str,
    reason: &str,
    sentence: &str,
) -> CertificateSigningRequest {
    let mut csr = csr.clone();
    csr.status.get_or_insert_default().conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(sentence.to_owned()),
        ..CertificateSigningRequestCondition::default()
    });
    csr
}
