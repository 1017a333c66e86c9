//! Asks policy about a CSR, and right before a certificate is signed or written whether its answer still holds.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::{Signer, SignerError, SignerKind, SignerShared};
use crate::csrs::action::{self, Action, Mode};
use crate::csrs::guard::Guarded;
use crate::registrations::registry;
use addon_signer_api::rules::SignerConfig;
use addon_signer_core::policy::{self, Approved, Claim, Refusal};

impl Signer {
    /// The configuration at this moment; `None` for the gateway's own signers, whose rules do not change.
    pub(super) fn config(&self) -> Option<Arc<SignerConfig>> {
        match &self.kind {
            SignerKind::Client { config, .. } => Some(config.borrow().clone()),
            SignerKind::Gateway { .. } => None,
        }
    }

    /// Asks policy. Before the signer refuses a CSR because of the registry, it asks the API server itself, because
    /// the watch may be late. The answer counts for this CSR only, because the watch may know something newer.
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
            match self.shared.guard.known() {
                Guarded::Starting => return Ok(Action::Wait),
                Guarded::Not(doubt) => return Ok(Action::PolicyProblem(doubt)),
                Guarded::Since(_) => submission.is_guarded = self.is_believed(csr),
            }
        }
        let claim = match Claim::read(&config.rules, &submission) {
            Ok(claim) => claim,
            Err(refusal) => return Ok(action::answer(csr, mode, Err(refusal))),
        };
        match self.shared.registry.read(|registry| claim.decide(registry)) {
            Err(refusal) if refusal.is_final() => {}
            verdict => return Ok(action::answer(csr, mode, verdict)),
        }
        if let Err(pause) = self.has_answers(csr) {
            return Ok(Action::Limited(pause));
        }
        let identity = claim.identity();
        let SignerShared { client, addons, .. } = &self.shared;
        let fresh = registry::look_up(client, addons.now(), &identity.cluster, &identity.addon).await?;
        Ok(match claim.decide(&fresh) {
            // The gateway relies on the watch, which is late: it would refuse the certificate now.
            Ok(_) => Action::Wait,
            refused => action::answer(csr, mode, refused),
        })
    }

    /// The pod that made a CSR for a certificate of the gateway, if it is gone or ends. Whoever has taken over a
    /// gateway can leave CSRs that wait until long after its pod was deleted, and keep their keys.
    async fn gone_pod(&self, csr: &CertificateSigningRequest) -> Result<Option<String>, SignerError> {
        let account = csr.spec.username.as_deref().and_then(|name| name.strip_prefix("system:serviceaccount:"));
        let namespace = account.and_then(|account| account.split_once(':')).map(|(namespace, _)| namespace);
        let (Some(namespace), Some(name)) = (namespace, action::pod_of(csr)) else { return Ok(None) };
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), namespace);
        let found = if action::is_sane_name(name) { pods.get_metadata_opt(name).await? } else { None };
        let lives = found.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok((!lives).then(|| name.to_owned()))
    }

    /// Whether the requester's cluster may have one more answer; if not, how long it must wait. Nothing is counted.
    pub(super) fn has_answers(&self, csr: &CertificateSigningRequest) -> Result<(), Duration> {
        let tenant = self.tenant(csr);
        let now = self.shared.clock.now();
        self.shared.limits.answers.lock().wait(&tenant, now)
    }

    /// Whether policy would still approve: the addon is eligible, and the rules are those of the decision.
    pub(super) fn still_allows(&self, approved: &Approved, config: Option<&SignerConfig>) -> bool {
        let is_eligible = approved.identity().is_none_or(|identity| {
            self.shared.registry.read(|registry| registry.check(&identity.cluster, &identity.addon)).is_ok()
        });
        is_eligible && self.config().as_deref() == config
    }
}
