//! What administrators request of a lineage: annotations of its AddOnSigner, or of the ConfigMap of a lineage of the
//! gateway.

use std::collections::BTreeMap;

use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::exception::Exception;
use addon_signer_core::ca::lineage::MOST_GONE;
use addon_signer_core::names::{
    ANNOTATION_ADVANCE, ANNOTATION_IMPORT, ANNOTATION_REVOKE_AUTHORITY, ANNOTATION_ROLL_BACK, ANNOTATION_ROTATE,
    ANNOTATION_TAINT,
};
use addon_signer_core::timestamp::Timestamp;

/// How many requests of one annotation count, the last ones: `ca taint` keeps [`MOST_GONE`] others and adds its own.
const MOST: usize = 2 * MOST_GONE;
/// The longest id of an authority; they have 16 characters.
const LONGEST_ID: usize = 64;
/// The longest text that says who asks.
const LONGEST_TEXT: usize = 256;

/// What the annotations request. Whoever may annotate may request anything, so little of it is kept.
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
    /// Reads the annotations of the ConfigMap of a lineage of the gateway.
    pub(crate) fn of_gateway(annotations: &BTreeMap<String, String>) -> Self {
        let exception = annotations.get(ANNOTATION_ADVANCE).and_then(|text| Exception::read(text));
        Self { exception, ..Self::of_signer(annotations) }
    }

    /// Reads the annotations of an AddOnSigner, whose authorities wait for no cluster.
    pub(crate) fn of_signer(annotations: &BTreeMap<String, String>) -> Self {
        let text = |name: &str| annotations.get(name).map(String::as_str);
        let requests = |name: &str| {
            let lines = text(name).unwrap_or_default().lines().rev().take(MOST);
            let mut last: Vec<_> = lines.filter_map(AuthorityRequest::read).collect();
            last.reverse();
            last
        };
        Self {
            rotate: text(ANNOTATION_ROTATE).map(cut),
            exception: None,
            roll_back: requests(ANNOTATION_ROLL_BACK).into_iter().next(),
            taint: requests(ANNOTATION_TAINT),
            revoke: requests(ANNOTATION_REVOKE_AUTHORITY),
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
        let authority = parts.next().filter(|id| (1..=LONGEST_ID).contains(&id.len()))?.into();
        Some(Self { authority, by: cut(parts.nth(1).unwrap_or_default()) })
    }
}

/// The ids in the annotation that names the authorities of a Secret.
pub(super) fn authority_ids(annotation: &str) -> Vec<AuthorityId> {
    let ids = annotation.split_whitespace().filter(|id| id.len() <= LONGEST_ID);
    ids.take(MOST).map(AuthorityId::from).collect()
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_TEXT)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_writes_is_what_the_hub_reads() {
        let text = AuthorityRequest::text("0a1b", Timestamp::from_unix(0), "alice smith");
        assert_eq!(text, "0a1b 1970-01-01T00:00:00Z alice smith");
        let names = [ANNOTATION_ROLL_BACK, ANNOTATION_TAINT, ANNOTATION_REVOKE_AUTHORITY];
        let read = RequestedSteps::of_signer(&names.into_iter().map(|name| (name.to_owned(), text.clone())).collect());
        let asked = AuthorityRequest { authority: "0a1b".into(), by: "alice smith".to_owned() };
        let [taint, revoke] = std::array::from_fn(|_| vec![asked.clone()]);
        let roll_back = Some(asked.clone());
        assert_eq!(read, RequestedSteps { roll_back, taint, revoke, ..RequestedSteps::default() });
        assert_eq!(AuthorityRequest::read("0a1b").map(|asked| asked.by).as_deref(), Some(""));
        assert_eq!(AuthorityRequest::read(""), None);
    }

    #[test]
    fn little_is_kept_of_a_flood_of_requests() {
        let flood: Vec<String> = (0..10_000).map(|at| format!("{at:016x} now alice")).collect();
        let long = format!("{} now {}", "a".repeat(LONGEST_ID), "b".repeat(10_000));
        let texts =
            [(ANNOTATION_TAINT, flood.join("\n")), (ANNOTATION_ROLL_BACK, long), (ANNOTATION_ROTATE, flood.concat())];
        let read = RequestedSteps::of_gateway(&texts.map(|(name, text)| (name.to_owned(), text)).into());
        assert_eq!(read.taint.len(), MOST);
        assert_eq!(read.taint.last().unwrap().authority.as_str(), "000000000000270f", "the last ones count");
        assert_eq!((read.roll_back.unwrap().by.len(), read.rotate.unwrap().len()), (LONGEST_TEXT, LONGEST_TEXT));
        assert_eq!(AuthorityRequest::read(&"a".repeat(LONGEST_ID + 1)), None);
        assert_eq!(authority_ids(&"a ".repeat(10_000)).len(), MOST);
    }
}
