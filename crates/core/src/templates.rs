//! Which addons OCM's addon-manager registers, and whether it names a signer for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::identity::{AddOnName, SignerName};

/// What is known about AddOnTemplates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Templates {
    /// Nothing yet: the hub must write nothing, because OCM's addon-manager may be the one that writes.
    #[default]
    Starting,
    /// Nothing, for this reason.
    Unread(String),
    /// All of them.
    Read(Arc<TemplatedAddOns>),
}

/// The addons whose ClusterManagementAddOn has AddOnTemplates among its configurations, and what the templates
/// register.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplatedAddOns {
    /// The AddOnTemplates that each such addon names.
    pub addons: BTreeMap<AddOnName, BTreeSet<String>>,
    /// What each AddOnTemplate registers.
    pub templates: BTreeMap<String, TemplateFacts>,
    /// Every ClusterManagementAddOn, with templates or without.
    pub owners: BTreeSet<String>,
}

/// What one AddOnTemplate registers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateFacts {
    /// The signer names, and whether with a user of its own.
    pub signers: BTreeMap<String, bool>,
    /// Whether OCM keeps a hub identity for the addon, with which its agents could send CSRs themselves.
    pub has_hub_identity: bool,
    /// Whether it has pods, into which the addon-manager mounts the certificates.
    pub has_pods: bool,
}

/// Whether the templates of one addon name one signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Naming {
    /// Every template in use names the signer.
    Everywhere(BTreeSet<String>),
    /// These templates do not name it, but give the addon a hub identity for sending CSRs; the others name it.
    Asking(BTreeSet<String>),
    /// These templates do not name it.
    Missing(BTreeSet<String>),
    /// These templates name it with a user of their own.
    OwnUser(BTreeSet<String>),
    /// These templates do not exist.
    NotThere(BTreeSet<String>),
    /// The addon names no template.
    NoTemplate,
}

impl TemplatedAddOns {
    /// Whether OCM's addon-manager registers the addon.
    #[must_use]
    pub fn has(&self, addon: &AddOnName) -> bool {
        self.addons.contains_key(addon)
    }

    /// Whether the templates of an addon, and those in `overrides`, name the signer; `None` for an addon without
    /// templates. `may_ask` is whether the signer lets addons send CSRs with their own hub identity.
    #[must_use]
    pub fn naming(
        &self,
        addon: &AddOnName,
        signer: &SignerName,
        overrides: &BTreeSet<String>,
        may_ask: bool,
    ) -> Option<Naming> {
        let in_use: BTreeSet<String> = self.addons.get(addon)?.union(overrides).cloned().collect();
        if in_use.is_empty() {
            return Some(Naming::NoTemplate);
        }
        let mut asking = BTreeSet::new();
        let mut missing = BTreeSet::new();
        let mut own_user = BTreeSet::new();
        let mut not_there = BTreeSet::new();
        for name in &in_use {
            let template = self.templates.get(name);
            let lacking = match template.map(|template| template.signers.get(signer.as_str())) {
                None => &mut not_there,
                Some(None) if may_ask && template.is_some_and(|template| template.has_hub_identity) => &mut asking,
                Some(None) => &mut missing,
                Some(Some(true)) => &mut own_user,
                Some(Some(false)) => continue,
            };
            lacking.insert(name.clone());
        }
        Some(if !missing.is_empty() {
            Naming::Missing(missing)
        } else if !own_user.is_empty() {
            Naming::OwnUser(own_user)
        } else if !not_there.is_empty() {
            Naming::NotThere(not_there)
        } else if !asking.is_empty() {
            Naming::Asking(asking)
        } else {
            Naming::Everywhere(in_use)
        })
    }

    /// The templates of an addon, and those in `overrides`, that name the signer.
    #[must_use]
    pub fn naming_it(
        &self,
        addon: &AddOnName,
        signer: &SignerName,
        overrides: &BTreeSet<String>,
    ) -> BTreeMap<String, &TemplateFacts> {
        let in_use = self.addons.get(addon).into_iter().flat_map(|named| named.union(overrides));
        let facts = in_use.filter_map(|name| Some((name.clone(), self.templates.get(name)?)));
        facts.filter(|(_, template)| template.signers.contains_key(signer.as_str())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn mk_template(signers: &[&str], own_user: bool) -> TemplateFacts {
        let signers = signers.iter().map(|name| ((*name).to_owned(), own_user)).collect();
        TemplateFacts { signers, ..TemplateFacts::default() }
    }

    fn mk_templated(in_use: &[&str]) -> TemplatedAddOns {
        let asking = TemplateFacts { has_hub_identity: true, ..TemplateFacts::default() };
        TemplatedAddOns {
            addons: BTreeMap::from([("telemetry".parse().unwrap(), names(in_use))]),
            templates: BTreeMap::from([
                ("with".to_owned(), mk_template(&["example.com/a", "example.com/b"], false)),
                ("own".to_owned(), mk_template(&["example.com/a"], true)),
                ("without".to_owned(), mk_template(&["example.com/b"], false)),
                ("asking".to_owned(), asking),
            ]),
            ..TemplatedAddOns::default()
        }
    }

    #[test]
    fn what_is_missing_is_said_before_what_is_not_there() {
        let addon: AddOnName = "telemetry".parse().unwrap();
        let signer = "example.com/a".parse().unwrap();
        let naming = |in_use: &[&str], overrides: &[&str]| {
            mk_templated(in_use).naming(&addon, &signer, &names(overrides), false)
        };
        assert_eq!(naming(&["with"], &[]), Some(Naming::Everywhere(names(&["with"]))));
        assert_eq!(naming(&["with", "without", "gone"], &[]), Some(Naming::Missing(names(&["without"]))));
        assert_eq!(naming(&["with"], &["without"]), Some(Naming::Missing(names(&["without"]))));
        assert_eq!(naming(&["with", "own", "gone"], &[]), Some(Naming::OwnUser(names(&["own"]))));
        assert_eq!(naming(&["with", "gone"], &[]), Some(Naming::NotThere(names(&["gone"]))));
        assert_eq!(naming(&[], &[]), Some(Naming::NoTemplate));
        assert_eq!(naming(&["with", "asking"], &[]), Some(Naming::Missing(names(&["asking"]))), "nobody may ask");
        assert_eq!(mk_templated(&["with"]).naming(&"other".parse().unwrap(), &signer, &names(&[]), false), None);
    }

    #[test]
    fn agents_ask_only_if_templates_without_signer_give_identity() {
        let addon: AddOnName = "telemetry".parse().unwrap();
        let signer = "example.com/a".parse().unwrap();
        let naming = |in_use: &[&str]| mk_templated(in_use).naming(&addon, &signer, &names(&[]), true).unwrap();
        assert_eq!(naming(&["with"]), Naming::Everywhere(names(&["with"])));
        assert_eq!(naming(&["with", "asking"]), Naming::Asking(names(&["asking"])));
        assert_eq!(naming(&["asking", "without"]), Naming::Missing(names(&["without"])));
        assert_eq!(naming(&["asking", "own"]), Naming::OwnUser(names(&["own"])));
        assert_eq!(naming(&["asking", "gone"]), Naming::NotThere(names(&["gone"])));
    }

    #[test]
    fn templates_naming_a_signer_include_single_cluster_ones() {
        let (telemetry, other): (AddOnName, AddOnName) = ("telemetry".parse().unwrap(), "other".parse().unwrap());
        let signer = "example.com/a".parse().unwrap();
        let templated = mk_templated(&["without", "gone", "own"]);
        let found = templated.naming_it(&telemetry, &signer, &names(&["with"]));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["own", "with"]);
        assert!(templated.naming_it(&other, &signer, &names(&["with"])).is_empty(), "it has no templates");
    }
}
