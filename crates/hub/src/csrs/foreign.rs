//! Finds certificates of served signers that another program signed, such as OCM's addon-manager where the Secret of an
//! AddOnTemplate's `signingCA` exists. They stay on their CSRs; the gateway refuses them, and the AddOnSigner reports
//! them.

use std::collections::BTreeMap;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use tokio::sync::watch;

use crate::authorities::state::LineageState;
use crate::csrs::action;
use addon_signer_api::status::ConditionValue;
use addon_signer_core::ca::authority::Origin;
use addon_signer_core::conditions::SIGNED_BY_ANOTHER;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;

/// How many CSRs are kept.
const MOST: usize = 10_000;
/// Limit above which CSRs for signers that are not served yet are dropped.
const MOST_OF_OTHERS: usize = MOST / 2;
/// How many CSRs a report names.
const NAMED: usize = 3;

/// CSRs of one signer with a certificate that none of its authorities signed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ForeignCertificates {
    /// How many there are.
    pub(crate) count: usize,
    /// The first few, each with the issuer that its certificate names.
    examples: Vec<String>,
}

impl ForeignCertificates {
    /// The condition `ForeignCertificates` of the AddOnSigner; `None` if there are none.
    #[must_use]
    pub(crate) fn condition(&self) -> Option<ConditionValue> {
        let Self { count, examples } = self;
        let sentence = format!(
            "{count} CSRs of this signer have certificates that none of its authorities signed: {}. The gateway \
             refuses them. If an AddOnTemplate names this signer, its signingCA must name a Secret that does not \
             exist; then delete the agents' Secrets with these certificates.",
            examples.join(", ")
        );
        (*count > 0).then_some((true, SIGNED_BY_ANOTHER, sentence))
    }
}

/// The foreign certificates by signer name. A signer is missing until the hub knows its authorities.
pub(crate) type ForeignReport = BTreeMap<String, ForeignCertificates>;

struct SignedCsr {
    /// `None` if the certificate cannot be read.
    origin: Option<Origin>,
    /// The last list that may have shown it.
    list: u64,
}

/// CSRs whose certificates another program signed, or whose signer's authorities are unknown.
pub(super) struct Origins {
    /// By signer name, then by CSR name.
    of: BTreeMap<String, BTreeMap<String, SignedCsr>>,
    count: usize,
    list: u64,
    /// Whether a list was complete.
    is_complete: bool,
    /// Whether a CSR did not fit.
    has_more: bool,
    clock: Clock,
    report: watch::Sender<ForeignReport>,
}

impl Origins {
    pub(super) fn new(clock: Clock, report: watch::Sender<ForeignReport>) -> Self {
        Self { of: BTreeMap::new(), count: 0, list: 0, is_complete: false, has_more: false, clock, report }
    }

    /// Notes that a list begins, which shows all CSRs.
    pub(super) fn begin_list(&mut self) {
        self.list += 1;
    }

    /// Forgets what the list did not show.
    pub(super) fn complete_list(&mut self) {
        let list = self.list;
        self.retain(None, |request| request.list == list);
        self.is_complete = true;
    }

    /// Notes that a CSR has its certificate. `lineage` is its signer's, if that is served.
    pub(super) fn note(&mut self, csr: &CertificateSigningRequest, lineage: Option<&LineageState>) {
        let (name, signer_name) = (csr.name_any(), &csr.spec.signer_name);
        // Kubernetes' own signers are never ours, and they have most of the CSRs.
        if signer_name.starts_with("kubernetes.io/") || !action::is_sane_name(&name) {
            return;
        }
        let was_known = self.remove(csr);
        let chain = csr.status.as_ref().and_then(|status| status.certificate.as_ref());
        let origin = Origin::read(chain.map_or(&[], |chain| &chain.0));
        let request = SignedCsr { origin, list: self.list };
        let now = self.clock.now();
        let most = if lineage.is_some() { MOST } else { MOST_OF_OTHERS };
        let is_kept = lineage.is_none_or(|lineage| may_be_foreign(&request, lineage, now));
        self.has_more |= is_kept && self.count >= most;
        let is_kept = is_kept && self.count < most;
        if is_kept {
            self.count += 1;
            self.of.entry(signer_name.clone()).or_default().insert(name, request);
        }
        if let Some(lineage) = lineage.filter(|_| is_kept || was_known) {
            self.tell(signer_name, lineage);
        }
    }

    /// Returns whether it was known.
    fn remove(&mut self, csr: &CertificateSigningRequest) -> bool {
        let known = self.of.get_mut(&csr.spec.signer_name);
        let was_known = known.and_then(|known| known.remove(&csr.name_any())).is_some();
        self.count -= usize::from(was_known);
        was_known
    }

    /// Whether a new list would show CSRs that did not fit before and would now. Returns `true` once.
    pub(super) fn wants_list(&mut self) -> bool {
        self.count <= MOST_OF_OTHERS / 2 && std::mem::take(&mut self.has_more)
    }

    /// A signer is no longer served.
    pub(super) fn stop(&self, signer_name: &str) {
        self.report.send_if_modified(|report| report.remove(signer_name).is_some());
    }

    /// Notes that a CSR was deleted. `lineage` is its signer's, if that is served.
    pub(super) fn gone(&mut self, csr: &CertificateSigningRequest, lineage: Option<&LineageState>) {
        self.remove(csr);
        if let Some(lineage) = lineage {
            self.tell(&csr.spec.signer_name, lineage);
        }
    }

    /// Checks the CSRs of a signer again, because its lineage may have become known.
    pub(super) fn compare(&mut self, signer_name: &str, lineage: &LineageState) {
        let now = self.clock.now();
        self.retain(Some(signer_name), |request| may_be_foreign(request, lineage, now));
        self.tell(signer_name, lineage);
    }

    /// Keeps only the CSRs that fulfil the condition, of one signer or of all.
    fn retain(&mut self, signer_name: Option<&str>, keeps: impl Fn(&SignedCsr) -> bool) {
        for (_, requests) in self.of.iter_mut().filter(|(of, _)| signer_name.is_none_or(|name| name == *of)) {
            requests.retain(|_, request| keeps(request));
        }
        self.of.retain(|_, requests| !requests.is_empty());
        self.count = self.of.values().map(BTreeMap::len).sum();
    }

    /// Reports a signer's CSRs, once all CSRs and the signer's authorities are known.
    fn tell(&self, signer_name: &str, lineage: &LineageState) {
        if !self.is_complete || lineage.last().is_none() {
            return;
        }
        let foreign = self.of.get(signer_name);
        let examples = foreign.into_iter().flatten().take(NAMED).map(|(name, request)| {
            let issuer = request.origin.as_ref().map_or("cannot be read", Origin::issuer);
            format!("{name} (issuer {issuer:?})")
        });
        let count = foreign.map_or(0, BTreeMap::len);
        let found = ForeignCertificates { count, examples: examples.collect() };
        self.report.send_if_modified(|report| {
            report.insert(signer_name.to_owned(), found.clone()).is_none_or(|before| before != found)
        });
    }
}

/// Whether none of the lineage's authorities signed the certificate, as far as names tell. An expired one does no harm.
fn may_be_foreign(request: &SignedCsr, lineage: &LineageState, now: Timestamp) -> bool {
    let (Some(ready), Some(origin)) = (lineage.last(), &request.origin) else { return true };
    let is_ours = ready.lineage().members().iter().any(|member| origin.is_of_lineage(&member.authority));
    !is_ours && origin.not_after() > now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_csr(name: usize) -> CertificateSigningRequest {
        let mut csr = CertificateSigningRequest::default();
        csr.metadata.name = Some(format!("csr-{name}"));
        csr.spec.signer_name = "example.com/nobodys".to_owned();
        csr
    }

    #[test]
    fn unserved_signers_leave_room_and_the_rest_is_relisted() {
        let mut origins = Origins::new(Clock::default(), watch::channel(ForeignReport::new()).0);
        origins.begin_list();
        for name in 0..MOST {
            origins.note(&mk_csr(name), None);
        }
        assert_eq!(origins.count, MOST_OF_OTHERS);
        assert!(!origins.wants_list(), "they would not fit again");
        origins.complete_list();
        for name in 0..MOST_OF_OTHERS / 2 {
            origins.gone(&mk_csr(name), None);
        }
        assert!(origins.wants_list(), "once");
        assert!(!origins.wants_list(), "once");
        origins.note(&mk_csr(MOST), Some(&LineageState::Starting));
        assert_eq!(origins.count, MOST_OF_OTHERS / 2 + 1);
        origins.begin_list();
        origins.complete_list();
        assert_eq!((origins.count, origins.of.len()), (0, 0), "the list did not show them");
        assert!(origins.report.borrow().is_empty(), "nobody serves the signer");
    }
}
