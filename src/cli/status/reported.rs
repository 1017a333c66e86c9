//! What the hub's condition of an addon says about its certificate.

use serde_json::Value;

use addon_signer_api::registrations::certificate_reported;
use addon_signer_core::certification::{Certification, Newest, read_issued};
use addon_signer_core::conditions::{CERTIFICATES_REVOKED, RENEWAL_REFUSED};
use addon_signer_core::names::CONDITION_CERTIFICATE;

/// How many bytes of a condition's message are shown: a cluster may write it.
const LONGEST_MESSAGE: usize = 512;

/// What the hub reports in the condition of an addon. The cluster may write that condition too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Reported {
    /// Its certificate.
    Issued {
        newest: Newest,
        /// As the object of "waits for", if its last CSR, which is newer, was refused.
        refused: Option<String>,
    },
    /// What it waits for.
    Waits {
        /// Because its certificates were revoked.
        is_revoked: bool,
        /// As the object of "waits for".
        waits_for: String,
    },
}

impl Reported {
    /// Reads the status of a ManagedClusterAddOn.
    pub(in crate::cli) fn read(status: &Value) -> Option<Self> {
        let (holds, reason, message) = certificate_reported(status)?;
        let known = [Certification::NoCsr, Certification::Revoked, Certification::Outdated];
        if let Some(known) = known.iter().find(|it| it.message() == message) {
            let is_revoked = known.reason() == CERTIFICATES_REVOKED;
            return Some(Self::Waits { is_revoked, waits_for: known.waits_for()? });
        }
        let says = || {
            let message = &message[..message.floor_char_boundary(LONGEST_MESSAGE)];
            format!("what its condition {CONDITION_CERTIFICATE} says: {message}")
        };
        if !holds {
            return Some(Self::Waits { is_revoked: reason == CERTIFICATES_REVOKED, waits_for: says() });
        }
        let newest = read_issued(message)?;
        Some(Self::Issued { newest, refused: (reason == RENEWAL_REFUSED).then(says) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use addon_signer_core::timestamp::Timestamp;

    #[test]
    fn a_report_is_read_and_cut() {
        let reported = |value: &str, reason: &str, message: &str| {
            let condition =
                json!({ "type": CONDITION_CERTIFICATE, "status": value, "reason": reason, "message": message });
            Reported::read(&json!({ "conditions": [condition] }))
        };
        let (not_before, not_after) = (Timestamp::from_unix(10), Timestamp::from_unix(100));
        let newest = Newest { authority: "a".into(), not_before, not_after };
        for refused in [None, Some("r: no.".to_owned())] {
            let (from, until) = (newest.not_before, newest.not_after);
            let is_refused = refused.is_some();
            let state = Certification::Issued { from, until, authority: "a".into(), refused };
            let read = reported("True", state.reason(), &state.message());
            let Some(Reported::Issued { newest: found, refused }) = read else { panic!("not read: {read:?}") };
            assert_eq!((&found, refused.is_some_and(|text| text.contains("r: no."))), (&newest, is_refused));
        }
        for (state, is_revoked) in [(Certification::Outdated, false), (Certification::Revoked, true)] {
            let waits_for = state.waits_for().unwrap();
            let expected = Some(Reported::Waits { is_revoked, waits_for });
            assert_eq!(reported("False", state.reason(), &state.message()), expected);
        }
        assert_eq!(reported("True", "Issued", "what a cluster wrote"), None);
        let long = reported("False", "Refused", &"x".repeat(100_000));
        let Some(Reported::Waits { waits_for: long, .. }) = long else { panic!("it is a report") };
        assert!(long.len() < 2 * LONGEST_MESSAGE);
    }
}
