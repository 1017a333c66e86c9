//! What to do with one CSR: pure functions of the object, the verdict of policy, and the time.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use crate::dry_run::PolicyProblem;
use addon_signer_api::request::{BoundedCsr, POD_NAME};
pub use addon_signer_core::conditions::{PROXY_UNPROVEN, RATE_LIMITED, RECORD_UNUSABLE, REVOKED};
use addon_signer_core::csr::MAX_PEM_BYTES;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::names::{ANNOTATION_CSR_USER, LABEL_ADDON_NAME, LABEL_CLUSTER_NAME};
use addon_signer_core::policy::{self, Approved, Refusal, Submission};
use addon_signer_core::timestamp::Timestamp;

/// The conditions of CSRs that wait; they are removed when the CSR gets its certificate.
pub const WAITS: [&str; 4] = [RATE_LIMITED, REVOKED, RECORD_UNUSABLE, PROXY_UNPROVEN];

/// The longest user name that the hub keeps of a CSR that is too large: the policy of `grpcAccount` allows
/// 253 characters, and refuses a write that loses them.
const MAX_USER: usize = 4 * 253;
/// The longest name of a CSR, as of most objects (Kubernetes, `IsDNS1123Subdomain`). For CSRs Kubernetes itself
/// has no rule.
const MAX_NAME: usize = 253;
/// The most bytes of labels, annotations, owners and finalizers of a CSR that the hub reads.
const MAX_METADATA: usize = 16 << 10;

/// The one thing to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing: it has its certificate, or is refused and being deleted.
    Rest,
    /// Refused already; the object is deleted after this time.
    DeleteAfter(Duration),
    /// Not approved, and policy refuses.
    Deny(Refusal),
    /// Approved by another account, and policy refuses.
    Fail(Refusal),
    /// Valid, but approving it is not the hub's task.
    AwaitApproval,
    /// The hub does not know enough yet to decide.
    Wait,
    /// The user that OCM's gRPC server made it for may not be protected from changes, so the hub does not answer it.
    PolicyProblem(PolicyProblem),
    /// Rate-limited per cluster before any other check.
    Limited(Duration),
    /// Sign it, after approving it if that is the hub's task.
    Issue {
        /// Policy's evidence.
        approved: Approved,
        /// Whether the approval must be written first.
        approve: bool,
    },
}

/// How the AddOnSigner wants CSRs answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// `approval: Automatic`.
    pub approves: bool,
    /// How long a refused CSR is kept, so that administrators can read the reason.
    pub retention: Duration,
}

/// The action for a CSR that is decided already; `None` if policy must be asked.
pub fn settled(csr: &CertificateSigningRequest, mode: Mode, now: Timestamp) -> Option<Action> {
    if is_issued(csr) {
        return Some(Action::Rest);
    }
    let since = refused_since(csr)?;
    if csr.metadata.deletion_timestamp.is_some() {
        return Some(Action::Rest); // only its finalizers keep it
    }
    Some(Action::DeleteAfter(now.until(since.plus(mode.retention))))
}

/// The action that follows from policy's verdict on an undecided CSR.
pub fn answer(csr: &CertificateSigningRequest, mode: Mode, verdict: Result<Approved, Refusal>) -> Action {
    let already = has_condition(csr, "Approved");
    match verdict {
        Err(refusal) if !refusal.is_final() => Action::Wait,
        Err(refusal) if already => Action::Fail(refusal),
        Err(refusal) => Action::Deny(refusal),
        Ok(approved) if already || mode.approves => Action::Issue { approved, approve: !already },
        Ok(_) => Action::AwaitApproval,
    }
}

/// Whether the CSR has its certificate.
pub fn is_issued(csr: &CertificateSigningRequest) -> bool {
    csr.status.as_ref().and_then(|status| status.certificate.as_ref()).is_some_and(|bytes| !bytes.0.is_empty())
}

/// Whether the CSR has a condition of this type. `Approved`, `Denied` and `Failed` are always `True` (Kubernetes
/// validates it).
pub fn has_condition(csr: &CertificateSigningRequest, kind: &str) -> bool {
    conditions(csr).any(|condition| condition.type_ == kind && condition.status == "True")
}

fn conditions(
    csr: &CertificateSigningRequest,
) -> impl Iterator<Item = &k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition> {
    csr.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

/// Whether the CSR was refused.
pub fn is_refused(csr: &CertificateSigningRequest) -> bool {
    refused_since(csr).is_some()
}

fn refused_since(csr: &CertificateSigningRequest) -> Option<Timestamp> {
    let refused = conditions(csr).find(|condition| condition.type_ == "Denied" || condition.type_ == "Failed")?;
    let since = refused.last_transition_time.as_ref().or(refused.last_update_time.as_ref());
    let since = since.or(csr.metadata.creation_timestamp.as_ref());
    Some(Timestamp::from_unix(since.map_or(0, |time| time.0.as_second())))
}

/// The CSR without what is never read again: a decided CSR keeps only its decision, and a CSR that is too large, which
/// policy refuses, loses most. No write loses anything that is needed: the hub does not write a CSR with a certificate,
/// and on the others it only writes why it refuses them.
pub fn trimmed(request: BoundedCsr) -> CertificateSigningRequest {
    let BoundedCsr { mut csr, is_cut } = request;
    let is_settled = is_issued(&csr) || is_refused(&csr);
    let is_large = is_cut || csr.spec.request.0.len() > MAX_PEM_BYTES || metadata_size(&csr.metadata) > MAX_METADATA;
    if is_settled || is_large {
        // Policy reads the requester first, and for the gRPC proxy this annotation names it.
        let user = csr.metadata.annotations.take().and_then(|mut all| all.remove_entry(ANNOTATION_CSR_USER));
        csr.metadata.annotations = user.filter(|(_, user)| user.len() <= MAX_USER).map(|user| [user].into());
        csr.metadata.generate_name = None;
        csr.metadata.labels = None;
        csr.metadata.finalizers = None;
        csr.metadata.owner_references = None;
    }
    if is_large {
        csr.spec.request.0 = vec![0; MAX_PEM_BYTES + 1];
    }
    if is_settled {
        let signer_name = std::mem::take(&mut csr.spec.signer_name);
        csr.spec = CertificateSigningRequestSpec { signer_name, ..CertificateSigningRequestSpec::default() };
        if let Some(certificate) = csr.status.as_mut().and_then(|status| status.certificate.as_mut()) {
            certificate.0 = vec![0];
        }
    }
    csr
}

/// Whether the hub handles CSRs of this name: it must be a DNS subdomain. Other names fit into no path, and Kubernetes
/// does not even bound their length.
pub fn is_sane_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed)
}

/// Roughly how many bytes of memory a CSR needs.
pub fn size(csr: &CertificateSigningRequest) -> usize {
    let texts = csr.spec.groups.iter().chain(&csr.spec.usages).flatten().map(String::len).sum::<usize>();
    size_of::<CertificateSigningRequest>() + csr.spec.request.0.len() + metadata_size(&csr.metadata) + texts
}

/// Bytes of the metadata that a requester chooses.
fn metadata_size(metadata: &ObjectMeta) -> usize {
    let pairs = metadata.annotations.iter().chain(&metadata.labels).flatten();
    let owners = metadata.owner_references.iter().flatten();
    let finalizers = metadata.finalizers.iter().flatten();
    let owner_size = |owner: &OwnerReference| {
        size_of::<OwnerReference>() + owner.api_version.len() + owner.kind.len() + owner.name.len() + owner.uid.len()
    };
    pairs.map(|(key, value)| 2 * size_of::<String>() + key.len() + value.len()).sum::<usize>()
        + owners.map(owner_size).sum::<usize>()
        + finalizers.map(|name| size_of::<String>() + name.len()).sum::<usize>()
        + metadata.generate_name.as_ref().map_or(0, String::len)
}

/// The accounts whose CSRs are handled specially.
#[derive(Debug, Clone, Default)]
pub struct KnownAccounts {
    /// The account of OCM's gRPC server.
    pub grpc_proxy: Option<String>,
    /// The account of the gateways. Each of their pods is limited by itself, so that a compromised one cannot slow the
    /// others.
    pub gateway: String,
}

/// The pod whose token made the CSR; `None` if no pod made it.
pub fn pod_of(csr: &CertificateSigningRequest) -> Option<&str> {
    csr.spec.extra.as_ref()?.get(POD_NAME)?.first().map(String::as_str)
}

/// The tenant that the rate limits apply to.
pub fn tenant_of(csr: &CertificateSigningRequest, accounts: &KnownAccounts) -> String {
    let username = csr.spec.username.as_deref().unwrap_or_default();
    let tenant = policy::tenant(username, csr_user(csr), accounts.grpc_proxy.as_deref());
    match pod_of(csr).filter(|_| username == accounts.gateway) {
        Some(pod) => format!("{tenant} pod {pod}"),
        None => tenant,
    }
}

/// The user that the CSR is for, by the annotation; it counts only on CSRs of OCM's gRPC server.
pub fn csr_user(csr: &CertificateSigningRequest) -> Option<&str> {
    csr.annotations().get(ANNOTATION_CSR_USER).map(String::as_str)
}

/// The UID of a CSR.
pub fn uid(csr: &CertificateSigningRequest) -> CsrUid {
    csr.metadata.uid.as_deref().unwrap_or_default().into()
}

/// When the CSR was created: `metadata.creationTimestamp`, or 0.
pub fn requested(csr: &CertificateSigningRequest) -> Timestamp {
    Timestamp::from_unix(csr.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()))
}

/// The part of a CSR that policy checks.
pub fn submission(csr: &CertificateSigningRequest) -> Submission {
    Submission {
        username: csr.spec.username.clone().unwrap_or_default(),
        groups: csr.spec.groups.clone().unwrap_or_default(),
        csr_user: csr_user(csr).map(str::to_owned),
        is_guarded: false,
        cluster_label: csr.labels().get(LABEL_CLUSTER_NAME).cloned(),
        addon_label: csr.labels().get(LABEL_ADDON_NAME).cloned(),
        usages: csr.spec.usages.clone().unwrap_or_default(),
        expiration_seconds: csr.spec.expiration_seconds,
        request: csr.spec.request.0.clone(),
        requested: requested(csr),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::certificates::v1::{CertificateSigningRequestCondition, CertificateSigningRequestStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::{ByteString, jiff};

    use addon_signer_core::registry::NotRegistered;

    const MODE: Mode = Mode { approves: true, retention: Duration::from_secs(600) };
    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

    fn mk_csr(conditions: &[&str], certificate: bool) -> CertificateSigningRequest {
        let condition = |kind: &&str| CertificateSigningRequestCondition {
            type_: (*kind).to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(jiff::Timestamp::from_second(NOW.unix() - 60).unwrap())),
            ..CertificateSigningRequestCondition::default()
        };
        CertificateSigningRequest {
            status: Some(CertificateSigningRequestStatus {
                certificate: certificate.then(|| ByteString(b"x".to_vec())),
                conditions: Some(conditions.iter().map(condition).collect()),
            }),
            ..CertificateSigningRequest::default()
        }
    }

    /// What the hub keeps of a CSR that the API server has sent.
    fn kept(csr: &CertificateSigningRequest) -> CertificateSigningRequest {
        trimmed(serde_json::from_str(&serde_json::to_string(csr).unwrap()).unwrap())
    }

    #[test]
    fn a_certificate_is_never_replaced() {
        assert_eq!(settled(&mk_csr(&["Approved"], true), MODE, NOW), Some(Action::Rest));
    }

    #[test]
    fn of_a_request_that_has_its_certificate_only_that_is_kept() {
        let mut issued = mk_csr(&["Approved"], true);
        issued.spec.request = ByteString(vec![1; 100]);
        let issued = kept(&issued);
        assert!(issued.spec.request.0.is_empty());
        assert_eq!(settled(&issued, MODE, NOW), Some(Action::Rest));
        for conditions in [&[][..], &["Approved"], &["Denied"], &["Failed"]] {
            let mut seen = mk_csr(conditions, false);
            let whole = seen.clone();
            seen.metadata.managed_fields = Some(vec![]);
            assert_eq!(kept(&seen), whole);
        }
    }

    #[test]
    fn whatever_a_requester_pads_little_is_kept() {
        let large = |pad: fn(&mut ObjectMeta, String)| {
            let mut csr = mk_csr(&[], false);
            csr.metadata.annotations = Some([(ANNOTATION_CSR_USER.to_owned(), "user".to_owned())].into());
            pad(&mut csr.metadata, "x".repeat(1_000_000));
            let csr = kept(&csr);
            (size(&csr), csr.annotations().len(), csr.spec.request.0.len() > MAX_PEM_BYTES)
        };
        let owner = |metadata: &mut ObjectMeta, api_version: String| {
            metadata.owner_references = Some(vec![OwnerReference { api_version, ..OwnerReference::default() }]);
        };
        let pads: [fn(&mut ObjectMeta, String); 6] = [
            owner,
            |metadata, _| metadata.finalizers = Some(vec!["a/a".to_owned(); 300_000]),
            |metadata, _| metadata.labels = Some((0..75_000).map(|n| (format!("a/{n}"), String::new())).collect()),
            |metadata, text| metadata.generate_name = Some(text),
            |metadata, text| metadata.finalizers = Some(vec![text]),
            |metadata, text| metadata.labels = Some([("l".to_owned(), text)].into()),
        ];
        for pad in pads {
            let (size, annotations, is_refused) = large(pad);
            assert!(size < 20_000, "{size}");
            assert!(annotations == 1, "{size}");
            assert!(is_refused, "{size}");
        }
    }

    #[test]
    fn each_pod_of_the_gateways_is_a_tenant_of_its_own() {
        let accounts = KnownAccounts { grpc_proxy: None, gateway: "gateway".to_owned() };
        let tenant = |user: &str, pod: &str| {
            let mut csr = mk_csr(&[], false);
            csr.spec.username = Some(user.to_owned());
            csr.spec.extra = Some([(POD_NAME.to_owned(), vec![pod.to_owned()])].into());
            tenant_of(&kept(&csr), &accounts)
        };
        assert_ne!(tenant("gateway", "a"), tenant("gateway", "b"));
        assert_eq!(tenant("another", "a"), tenant("another", "b"), "an agent could restart its pod again and again");
    }

    #[test]
    fn names_that_fit_into_no_path_are_not_looked_at() {
        assert!(is_sane_name("addon-spoke1-telemetry-x7k2p"));
        assert!(is_sane_name("csr.1"));
        for name in ["", "victim?x", "a/b", "a b", "A", "a%2f", &"a".repeat(254)] {
            assert!(!is_sane_name(name), "{name}");
        }
    }

    #[test]
    fn an_approval_by_somebody_else_is_not_proof() {
        for (conditions, expected) in
            [(&["Approved"][..], Action::Fail(Refusal::CaRequested)), (&[], Action::Deny(Refusal::CaRequested))]
        {
            let csr = mk_csr(conditions, false);
            assert_eq!(settled(&csr, MODE, NOW), None, "policy is asked again");
            assert_eq!(answer(&csr, MODE, Err(Refusal::CaRequested)), expected);
        }
    }

    #[test]
    fn refused_requests_are_deleted_after_the_retention() {
        for kind in ["Denied", "Failed"] {
            let action = settled(&mk_csr(&[kind], false), MODE, NOW);
            assert_eq!(action, Some(Action::DeleteAfter(Duration::from_secs(540))));
            let mut going = mk_csr(&[kind], false);
            going.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
            assert_eq!(settled(&going, MODE, NOW), Some(Action::Rest), "it is not deleted again and again");
        }
    }

    #[test]
    fn what_nobody_can_say_yet_waits() {
        let not_ready = Err(Refusal::Registration(NotRegistered::NotReady));
        assert_eq!(answer(&mk_csr(&[], false), MODE, not_ready), Action::Wait);
    }
}
