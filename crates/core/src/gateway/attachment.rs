//! Which namespaces may attach AddOnRoutes to an AddOnSigner, and which host names those may claim. The model is the
//! Gateway API's `allowedRoutes`.

use std::collections::{BTreeMap, BTreeSet};

use super::host::Host;

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// What labels must be (Kubernetes, `LabelSelectorRequirement`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// The label has one of these values.
    In(String, BTreeSet<String>),
    /// The label has none of these values, or is not there.
    NotIn(String, BTreeSet<String>),
    /// The label is there.
    Exists(String),
    /// The label is not there.
    DoesNotExist(String),
}

impl Requirement {
    fn is_met_by(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

/// What may attach to an AddOnSigner: nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attachment {
    /// The namespaces with these names.
    pub namespaces: BTreeSet<String>,
    /// The namespaces whose labels meet all of these; `None` for no others. An empty list is met by every namespace.
    pub selector: Option<Vec<Requirement>>,
    /// The host names that routes may claim.
    pub hostnames: BTreeSet<Host>,
}

impl Attachment {
    /// Whether a namespace with these labels may attach routes. `labels` is `None` if they are not known.
    #[must_use]
    pub fn allows(&self, namespace: &str, labels: Option<&Labels>) -> bool {
        let is_selected = |selector: &Vec<Requirement>| {
            labels.is_some_and(|labels| selector.iter().all(|requirement| requirement.is_met_by(labels)))
        };
        self.namespaces.contains(namespace) || self.selector.as_ref().is_some_and(is_selected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_labels(labels: &[(&str, &str)]) -> Labels {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn no_namespace_may_attach_routes_by_default() {
        assert!(!Attachment::default().allows("a", Some(&Labels::new())));
    }

    #[test]
    fn named_and_selected_namespaces_may_attach_routes() {
        let values = || ["a", "b"].map(str::to_owned).into();
        let key = || "team".to_owned();
        for (requirement, met_by) in [
            (Requirement::In(key(), values()), [true, false, false]),
            (Requirement::NotIn(key(), values()), [false, true, true]),
            (Requirement::Exists(key()), [true, true, false]),
            (Requirement::DoesNotExist(key()), [false, false, true]),
        ] {
            let attachment = Attachment {
                selector: Some(vec![requirement]),
                namespaces: ["named".to_owned()].into(),
                ..Attachment::default()
            };
            let labels = [mk_labels(&[("team", "a")]), mk_labels(&[("team", "c")]), mk_labels(&[("other", "a")])];
            assert_eq!(labels.each_ref().map(|labels| attachment.allows("other", Some(labels))), met_by);
            assert_eq!(labels.each_ref().map(|labels| attachment.allows("named", Some(labels))), [true; 3]);
            assert!(!attachment.allows("other", None), "labels that are not known select nothing");
        }
        let all = Attachment { selector: Some(Vec::new()), ..Attachment::default() };
        assert!(all.allows("any", Some(&Labels::new())));
    }
}
