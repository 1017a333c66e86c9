//! Which addons OCM's addon-manager registers, and whether it names a signer for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::identity::{AddOnName, SignerName};

/// What is known of AddOnTemplates.
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
    /// The signer names that each AddOnTemplate registers, and whether with a user of its own.
    pub templates: BTreeMap<String, BTreeMap<String, bool>>,
    /// Every ClusterManagementAddOn, with templates or without.
    pub owners: BTreeSet<String>,
}

/// Whether the templates of one addon name one signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Naming {
    /// Every template in use names the signer.
    Everywhere(BTreeSet<String>),
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
    /// templates.
    #[must_use]
    pub fn naming(&self, addon: &AddOnName, signer: &SignerName, overrides: &BTreeSet<String>) -> Option<Naming> {
        let in_use: BTreeSet<String> = self.addons.get(addon)?.union(overrides).cloned().collect();
        if in_use.is_empty() {
            return Some(Naming::NoTemplate);
        }
        let mut missing = BTreeSet::new();
        let mut own_user = BTreeSet::new();
        let mut not_there = BTreeSet::new();
        for name in &in_use {
            let lacking = match self.templates.get(name).map(|signers| signers.get(signer.as_str())) {
                None => &mut not_there,
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
        } else {
            Naming::Everywhere(in_use)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn signers(names: &[&str], own_user: bool) -> BTreeMap<String, bool> {
        names.iter().map(|name| ((*name).to_owned(), own_user)).collect()
    }

    #[test]
    fn what_is_missing_is_said_before_what_is_not_there() {
        let addon: AddOnName = "telemetry".parse().unwrap();
        let mk = |in_use: &[&str]| TemplatedAddOns {
            addons: BTreeMap::from([(addon.clone(), names(in_use))]),
            templates: BTreeMap::from([
                ("with".to_owned(), signers(&["example.com/a", "example.com/b"], false)),
                ("own".to_owned(), signers(&["example.com/a"], true)),
                ("without".to_owned(), signers(&["example.com/b"], false)),
            ]),
            ..TemplatedAddOns::default()
        };
        let signer = "example.com/a".parse().unwrap();
        let naming = |in_use: &[&str], overrides: &[&str]| mk(in_use).naming(&addon, &signer, &names(overrides));
        assert_eq!(naming(&["with"], &[]), Some(Naming::Everywhere(names(&["with"]))));
        assert_eq!(naming(&["with", "without", "gone"], &[]), Some(Naming::Missing(names(&["without"]))));
        assert_eq!(naming(&["with"], &["without"]), Some(Naming::Missing(names(&["without"]))));
        assert_eq!(naming(&["with", "own", "gone"], &[]), Some(Naming::OwnUser(names(&["own"]))));
        assert_eq!(naming(&["with", "gone"], &[]), Some(Naming::NotThere(names(&["gone"]))));
        assert_eq!(naming(&[], &[]), Some(Naming::NoTemplate));
        assert_eq!(mk(&["with"]).naming(&"other".parse().unwrap(), &signer, &names(&[])), None);
    }
}
