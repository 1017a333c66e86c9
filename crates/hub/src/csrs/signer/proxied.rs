//! CSRs that OCM's gRPC server makes for others. For whom is in an annotation, so the hub answers one only after it
//! has seen the API server refuse to change that annotation on this very CSR.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use tracing::warn;

use super::{Outcome, Signer, SignerError, SignerKind};
use crate::csrs::action::{self, PROXY_UNPROVEN};
use crate::csrs::guard::{Guarded, POLICY, Unproven};
use crate::dry_run::{self, PolicyProblem, Right};
use crate::lease::Leads;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_telemetry::audit::Asker;

impl Signer {
    /// Whether OCM's gRPC server made the CSR for somebody else. The gateway's own signer takes none of its.
    pub(super) fn is_proxied(&self, csr: &CertificateSigningRequest) -> bool {
        let proxy = self.shared.accounts.grpc_proxy.as_deref();
        matches!(self.kind, SignerKind::Client { .. }) && proxy.is_some() && proxy == csr.spec.username.as_deref()
    }

    /// Who made the CSR, and for whom.
    pub(super) fn requester<'c>(&self, csr: &'c CertificateSigningRequest) -> Asker<'c> {
        let csr_user = action::csr_user(csr).filter(|_| self.is_proxied(csr));
        Asker { user: csr.spec.username.as_deref().unwrap_or_default(), csr_user }
    }

    /// Whether nobody else has said for whom the CSR is: it was made by its requester for itself, or while the
    /// policy was in force.
    pub(super) fn is_believed(&self, csr: &CertificateSigningRequest) -> bool {
        let made = action::requested(csr);
        !self.is_proxied(csr) || matches!(self.shared.guard.known(), Guarded::Since(since) if since <= made)
    }

    /// Tries to change for whom the CSR is, in dry runs: by its status, and by its approval. If the policy does not
    /// refuse both, the CSR waits, and the answer is how.
    pub(super) async fn unproven(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
    ) -> Result<Option<Outcome>, SignerError> {
        if !self.is_proxied(csr) {
            return Ok(None);
        }
        for subresource in ["status", "approval"] {
            let tried = self.answers(leads).try_for_another(csr, subresource).await;
            if let Right::Unguarded(doubt) = dry_run::judge(POLICY, tried)? {
                let outcome = match doubt {
                    PolicyProblem::Missing => {
                        self.shared.guard.refute();
                        Outcome::Wait
                    }
                    PolicyProblem::Unknown(_) | PolicyProblem::RefusesHub(_) => Outcome::Quarantined,
                };
                self.say_unproven(leads, csr, now, &doubt).await?;
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// Says on the CSR, once, why it waits.
    pub(super) async fn say_unproven(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
        doubt: &PolicyProblem,
    ) -> Result<(), SignerError> {
        if !action::has_condition(csr, PROXY_UNPROVEN) && self.may_answer(csr, now).is_ok() {
            let why = Unproven(doubt);
            warn!(csr = csr.name_any(), error = %why, "A CSR of OCM's gRPC server waits");
            let sentence = format!("The hub does not answer this CSR of OCM's gRPC server, because {why}.");
            let answers = self.answers(leads);
            self.counted(csr, answers.add_condition(csr, PROXY_UNPROVEN, doubt.reason(), &sentence)).await?;
        }
        Ok(())
    }
}
