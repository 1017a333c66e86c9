//! Asks policy about a CSR and, right before its certificate is signed or written, checks that the verdict still holds.
//!
//! Of a CSR that OCM's gRPC server makes for another, an annotation says for whom it is. The hub answers one only after
//! it has seen the API server refuse to change that annotation on this very CSR.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use tracing::warn;

use super::{Outcome, Signer, SignerError, SignerKind, SignerShared};
use crate::csrs::action::{self, Action, Mode, PROXY_UNPROVEN};
use crate::csrs::guard::{Guarded, POLICY, Unproven};
use crate::dry_run::{self, PolicyProblem, Right};
use crate::lease::Leads;
use crate::registrations::registry;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::policy::{self, Approved, Claim, Refusal};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_telemetry::audit::Asker;

impl Signer {
    /// The present configuration; `None` for the gateway's own signers, whose rules do not change.
    pub(super) fn config(&self) -> Option<Arc<SignerConfig>> {
        match &self.kind {
            SignerKind::Client { config, .. } => Some(config.borrow().clone()),
            SignerKind::Gateway { .. } => None,
        }
    }

    /// Asks policy. Before the signer refuses a CSR because of the registry, it asks the API server, because the watch
    /// may be late. That response counts for this CSR only, because the watch may know something newer.
    pub(super) async fn decide(
        &self,
        csr: &CertificateSigningRequest,
        mode: Mode,
        config: Option<&SignerConfig>,
    ) -> Result<Action, SignerError> {
        let mut submission = action::submission(csr);
        let config = match (&self.kind, config) {
            (SignerKind::Gateway { certificate, rules, inventory }, _) => {
                let of_inventory = inventory.as_ref().filter(|rules| rules.account == submission.username);
                let rules = of_inventory.unwrap_or(rules);
                let approved = match policy::evaluate_gateway(rules, *certificate, &submission) {
                    Ok(approved) => self.gone_pod(csr).await?.map_or(Ok(approved), |pod| Err(Refusal::PodGone(pod))),
                    refused => refused,
                };
                return Ok(action::answer(csr, mode, approved));
            }
            (SignerKind::Client { .. }, None) => return Ok(Action::Wait),
            (SignerKind::Client { .. }, Some(config)) => config,
        };
        if self.is_proxied(csr) {
            match self.shared.links.guard.known() {
                Guarded::Starting => return Ok(Action::Wait),
                Guarded::Not(problem) => return Ok(Action::PolicyProblem(problem)),
                Guarded::Since(_) => submission.is_guarded = self.is_believed(csr),
            }
        }
        let claim = match Claim::read(&config.rules, &submission) {
            Ok(claim) => claim,
            Err(refusal) => return Ok(action::answer(csr, mode, Err(refusal))),
        };
        match self.shared.links.registry.read(|registry| claim.decide(registry)) {
            Err(refusal) if refusal.is_final() => {}
            verdict => return Ok(action::answer(csr, mode, verdict)),
        }
        if let Err(pause) = self.has_answers(csr) {
            return Ok(Action::Limited(pause));
        }
        let identity = claim.identity();
        let SignerShared { links, addons, .. } = &self.shared;
        let fresh = registry::look_up(&links.client, addons.now(), &identity.cluster, &identity.addon).await?;
        Ok(match claim.decide(&fresh) {
            // Wait for the watch: the gateway relies on it, and would refuse the certificate now.
            Ok(_) => Action::Wait,
            refused => action::answer(csr, mode, refused),
        })
    }

    /// The pod that made a CSR for a certificate of the gateway, if the pod was deleted or is terminating. An attacker
    /// who controls a gateway could leave waiting CSRs behind, and keep their keys, until long after its pod was
    /// deleted.
    async fn gone_pod(&self, csr: &CertificateSigningRequest) -> Result<Option<String>, SignerError> {
        let account = csr.spec.username.as_deref().and_then(|name| name.strip_prefix("system:serviceaccount:"));
        let namespace = account.and_then(|account| account.split_once(':')).map(|(namespace, _)| namespace);
        let (Some(namespace), Some(name)) = (namespace, action::pod_of(csr)) else { return Ok(None) };
        let pods: Api<Pod> = Api::namespaced(self.shared.links.client.clone(), namespace);
        let found = if action::is_sane_name(name) { pods.get_metadata_opt(name).await? } else { None };
        let lives = found.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok((!lives).then(|| name.to_owned()))
    }

    /// Whether the requester's cluster may have one more answer; if not, how long it must wait. This counts nothing.
    pub(super) fn has_answers(&self, csr: &CertificateSigningRequest) -> Result<(), Duration> {
        let tenant = self.tenant(csr);
        let now = self.shared.links.clock.now();
        self.shared.limits.answers.lock().wait(&tenant, now)
    }

    /// Whether policy would still approve: the addon is eligible, and the rules have not changed since the decision.
    pub(super) fn still_allows(&self, approved: &Approved, config: Option<&SignerConfig>) -> bool {
        let is_eligible = approved.identity().is_none_or(|identity| {
            self.shared.links.registry.read(|registry| registry.check(&identity.cluster, &identity.addon)).is_ok()
        });
        is_eligible && self.config().as_deref() == config
    }
}

impl Signer {
    /// Whether OCM's gRPC server made the CSR for another user. The gateway's own signers accept no such CSR.
    pub(super) fn is_proxied(&self, csr: &CertificateSigningRequest) -> bool {
        let proxy = self.shared.accounts.grpc_proxy.as_deref();
        matches!(self.kind, SignerKind::Client { .. }) && proxy.is_some() && proxy == csr.spec.username.as_deref()
    }

    /// The account that made the CSR, and the user it is for.
    pub(super) fn requester<'c>(&self, csr: &'c CertificateSigningRequest) -> Asker<'c> {
        let csr_user = action::csr_user(csr).filter(|_| self.is_proxied(csr));
        Asker { user: csr.spec.username.as_deref().unwrap_or_default(), csr_user }
    }

    /// Whether the named user can be believed: the requester made the CSR for itself, or the policy was in force when
    /// it was made.
    pub(super) fn is_believed(&self, csr: &CertificateSigningRequest) -> bool {
        let made = action::requested(csr);
        !self.is_proxied(csr) || matches!(self.shared.links.guard.known(), Guarded::Since(since) if since <= made)
    }

    /// Tries in dry runs to change the user that the CSR is for, through its status and through its approval. Unless
    /// the policy refuses both, the CSR waits, with the returned outcome.
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
            if let Right::Unguarded(problem) = dry_run::judge(POLICY, tried)? {
                let outcome = match problem {
                    PolicyProblem::Missing => {
                        self.shared.links.guard.refute();
                        Outcome::Wait
                    }
                    PolicyProblem::Unknown(_) | PolicyProblem::RefusesHub(_) => Outcome::Quarantined,
                };
                self.say_unproven(leads, csr, now, &problem).await?;
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// Reports on the CSR, once, why it waits.
    pub(super) async fn say_unproven(
        &self,
        leads: &Leads,
        csr: &CertificateSigningRequest,
        now: Timestamp,
        problem: &PolicyProblem,
    ) -> Result<(), SignerError> {
        if !action::has_condition(csr, PROXY_UNPROVEN) && self.may_answer(csr, now).is_ok() {
            let why = Unproven(problem);
            warn!(csr = csr.name_any(), error = %why, "A CSR of OCM's gRPC server waits");
            let sentence = format!("The hub does not answer this CSR of OCM's gRPC server, because {why}.");
            let answers = self.answers(leads);
            self.counted(csr, answers.add_condition(csr, PROXY_UNPROVEN, problem.reason(), &sentence)).await?;
        }
        Ok(())
    }
}
