//! What administrators request of a lineage: annotations of its AddOnSigner, or of the ConfigMap of a lineage of the
//! gateway.

use std::collections::BTreeMap;

use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::exception::Exception;
use addon_signer_core::names::{
    ANNOTATION_ADVANCE, ANNOTATION_IMPORT, ANNOTATION_REVOKE_AUTHORITY, ANNOTATION_ROLL_BACK, ANNOTATION_ROTATE,
    ANNOTATION_TAINT,
};
use addon_signer_core::timestamp::Timestamp;

/// What the annotations request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestedSteps {
    /// A rotation: a text that differs in each request.
    pub(super) rotate: Option<String>,
    /// To activate without waiting for all clusters.
    pub(super) exception: Option<Exception>,
    /// To roll back an authority.
    pub(super) roll_back: Option<AuthorityRequest>,
    /// To taint authorities.
    pub(super) taint: Vec<AuthorityRequest>,
    /// To revoke authorities.
    pub(super) revoke: Vec<AuthorityRequest>,
    /// To use this certificate for the CSR of the next authority: PEM, with its chain.
    pub(super) import: Option<String>,
}

impl RequestedSteps {
    /// Reads the annotations of an object.
    pub(crate) fn read(annotations: &BTreeMap<String, String>) -> Self {
        let text = |name: &str| annotations.get(name).map(String::as_str);
        let requests = |name: &str| text(name).unwrap_or_default().lines().filter_map(AuthorityRequest::read);
        Self {
            rotate: text(ANNOTATION_ROTATE).map(str::to_owned),
            exception: text(ANNOTATION_ADVANCE).and_then(Exception::read),
            roll_back: requests(ANNOTATION_ROLL_BACK).next(),
            taint: requests(ANNOTATION_TAINT).collect(),
            revoke: requests(ANNOTATION_REVOKE_AUTHORITY).collect(),
            import: text(ANNOTATION_IMPORT).map(str::to_owned),
        }
    }
}

/// A request about one authority, which `ca rollback`, `ca taint` or `ca revoke` writes. As it names the authority, it
/// has an effect only once, and none on the authority of a later rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityRequest {
    /// The authority.
    pub authority: AuthorityId,
    /// The user who asks.
    pub by: String,
}

impl AuthorityRequest {
    /// One line of the annotation: the authority, the time, the user.
    #[must_use]
    pub fn text(authority: &str, now: Timestamp, by: &str) -> String {
        format!("{authority} {now} {by}").trim_end().to_owned()
    }

    /// The first request whose authority fulfils the condition.
    pub(super) fn find(requests: &[Self], is_open: impl Fn(&AuthorityId) -> bool) -> Option<&Self> {
        requests.iter().find(|request| is_open(&request.authority))
    }

    /// Reads such a line. What follows the authority is only informative.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let authority = parts.next().filter(|id| !id.is_empty())?.into();
        Some(Self { authority, by: parts.nth(1).unwrap_or_default().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_writes_is_what_the_hub_reads() {
        let text = AuthorityRequest::text("0a1b", Timestamp::from_unix(0), "alice smith");
        assert_eq!(text, "0a1b 1970-01-01T00:00:00Z alice smith");
        let names = [ANNOTATION_ROLL_BACK, ANNOTATION_TAINT, ANNOTATION_REVOKE_AUTHORITY];
        let read = RequestedSteps::read(&names.into_iter().map(|name| (name.to_owned(), text.clone())).collect());
        let asked = AuthorityRequest { authority: "0a1b".into(), by: "alice smith".to_owned() };
        let [taint, revoke] = std::array::from_fn(|_| vec![asked.clone()]);
        let roll_back = Some(asked.clone());
        assert_eq!(read, RequestedSteps { roll_back, taint, revoke, ..RequestedSteps::default() });
        assert_eq!(AuthorityRequest::read("0a1b").map(|asked| asked.by).as_deref(), Some(""));
        assert_eq!(AuthorityRequest::read(""), None);
    }
}
