//! Decides which AddOnSigner has a signer name or an addon that several of them name.
//!
//! A signer name belongs to the oldest AddOnSigner that has it. An addon belongs to the one that was served for it
//! first; only that one can name a successor, which is served for the addon as well, for a migration. What an
//! AddOnSigner owns does not depend on whether it is valid: a mistyped field must hand nothing over to another author.

use std::collections::{BTreeMap, BTreeSet};

use crate::timestamp::Timestamp;

/// What one AddOnSigner names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    /// `metadata.creationTimestamp`, which nobody can choose.
    pub created: Timestamp,
    /// `spec.signerName`.
    pub signer_name: String,
    /// `spec.addOns`.
    pub addons: BTreeSet<String>,
    /// `spec.successor`.
    pub successor: Option<String>,
    /// `status.addOns`, which the hub alone writes: the addons that were its own. An older AddOnSigner that comes to name
    /// one of them later does not get it, not even if it was its successor.
    pub had: BTreeSet<String>,
}

impl Claimant {
    fn shared(&self) -> impl Iterator<Item = Shared> {
        let addons = self.addons.iter().cloned().map(Shared::AddOn);
        addons.chain([Shared::SignerName(self.signer_name.clone())])
    }
}

/// What only one AddOnSigner may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Shared {
    SignerName(String),
    AddOn(String),
}

/// All AddOnSigners, by `metadata.name`.
#[derive(Debug, Default)]
pub struct Ownership {
    claimants: BTreeMap<String, Claimant>,
    named_by: BTreeMap<Shared, BTreeSet<String>>,
}

impl Ownership {
    /// Notes what an AddOnSigner names now; `None` if it was deleted. Returns the others that may own something else
    /// after that: those that name the same things.
    pub fn put(&mut self, name: &str, now: Option<Claimant>) -> BTreeSet<String> {
        let before = self.claimants.remove(name);
        if before == now {
            self.claimants.extend(now.map(|now| (name.to_owned(), now)));
            return BTreeSet::new();
        }
        let mut concerned = BTreeSet::new();
        for shared in before.iter().flat_map(Claimant::shared) {
            if let Some(names) = self.named_by.get_mut(&shared) {
                names.remove(name);
                concerned.extend(names.iter().cloned());
                if names.is_empty() {
                    self.named_by.remove(&shared);
                }
            }
        }
        for shared in now.iter().flat_map(Claimant::shared) {
            let names = self.named_by.entry(shared).or_default();
            concerned.extend(names.iter().cloned());
            names.insert(name.to_owned());
        }
        self.claimants.extend(now.map(|now| (name.to_owned(), now)));
        concerned
    }

    /// Another AddOnSigner that has the signer name of this one, because it is older.
    #[must_use]
    pub fn has_signer_name_of(&self, name: &str) -> Option<&str> {
        let shared = Shared::SignerName(self.claimants.get(name)?.signer_name.clone());
        let owner = self.first(&shared, |_| false)?;
        (owner != name).then_some(owner)
    }

    /// Whether this AddOnSigner has the addon itself, and not only as a successor.
    #[must_use]
    pub fn owns(&self, name: &str, addon: &str) -> bool {
        self.owner(addon) == Some(name)
    }

    fn owner(&self, addon: &str) -> Option<&str> {
        self.first(&Shared::AddOn(addon.to_owned()), |claimant| claimant.had.contains(addon))
    }

    /// The addons that this AddOnSigner names and that belong to others, each with its owner.
    #[must_use]
    pub fn not_of(&self, name: &str) -> BTreeMap<&str, &str> {
        let addons = self.claimants.get(name).into_iter().flat_map(|claimant| &claimant.addons);
        let lost = addons.filter_map(|addon| {
            let owner = self.owner(addon)?;
            let successor = self.claimants.get(owner).and_then(|owner| owner.successor.as_deref());
            (owner != name && successor != Some(name)).then_some((addon.as_str(), owner))
        });
        lost.collect()
    }

    /// Of those that name it the one that had it, the oldest of several.
    fn first(&self, shared: &Shared, had: impl Fn(&Claimant) -> bool) -> Option<&str> {
        let named = self.named_by.get(shared)?.iter();
        let named = named.filter_map(|name| Some((self.claimants.get(name)?, name.as_str())));
        named.min_by_key(|(claimant, name)| (!had(claimant), claimant.created, *name)).map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn mk_claimant(created: i64, addons: &[&str]) -> Claimant {
        let signer_name = format!("example.com/{created}");
        let created = Timestamp::from_unix(created);
        Claimant { created, signer_name, addons: set(addons), successor: None, had: BTreeSet::new() }
    }

    fn mk_had(claimant: Claimant) -> Claimant {
        Claimant { had: claimant.addons.clone(), ..claimant }
    }

    #[test]
    fn an_addon_belongs_to_the_oldest_that_names_it() {
        let mut ownership = Ownership::default();
        assert_eq!(ownership.put("young", Some(mk_claimant(2, &["a", "b"]))), set(&[]));
        assert_eq!(ownership.not_of("young"), BTreeMap::new());
        assert_eq!(ownership.put("old", Some(mk_claimant(1, &["b", "c"]))), set(&["young"]));
        assert_eq!(ownership.not_of("young"), BTreeMap::from([("b", "old")]));
        assert_eq!(ownership.not_of("old"), BTreeMap::new());
        assert_eq!(ownership.put("other", Some(mk_claimant(3, &["d"]))), set(&[]));
        assert_eq!(ownership.put("old", Some(mk_claimant(1, &["c"]))), set(&["young"]));
        assert_eq!(ownership.not_of("young"), BTreeMap::new());
        assert_eq!(ownership.put("young", None), set(&[]));
        assert_eq!(ownership.put("young", None), set(&[]));
    }

    #[test]
    fn of_the_same_age_the_first_by_name_has_it() {
        let mut ownership = Ownership::default();
        ownership.put("b", Some(mk_claimant(1, &["x"])));
        ownership.put("a", Some(mk_claimant(1, &["x"])));
        assert_eq!(ownership.not_of("b"), BTreeMap::from([("x", "a")]));
        assert_eq!(ownership.has_signer_name_of("b"), Some("a"));
        assert_eq!(ownership.has_signer_name_of("a"), None);
    }

    #[test]
    fn an_older_one_that_comes_to_name_an_addon_does_not_take_it_away() {
        let mut ownership = Ownership::default();
        ownership.put("young", Some(mk_had(mk_claimant(2, &["a"]))));
        assert_eq!(ownership.put("old", Some(mk_claimant(1, &["a"]))), set(&["young"]));
        assert_eq!(ownership.not_of("old"), BTreeMap::from([("a", "young")]));
        assert_eq!(ownership.not_of("young"), BTreeMap::new());
        ownership.put("young", None);
        assert_eq!(ownership.not_of("old"), BTreeMap::new());
        assert_eq!(ownership.not_of("gone"), BTreeMap::new());
    }

    #[test]
    fn a_successor_that_is_older_does_not_take_the_addon_from_its_owner() {
        let mut ownership = Ownership::default();
        let successor = Some("older".to_owned());
        ownership.put("owner", Some(Claimant { successor, ..mk_had(mk_claimant(2, &["a"])) }));
        ownership.put("older", Some(mk_claimant(1, &["a"])));
        assert_eq!((ownership.not_of("owner"), ownership.not_of("older")), (BTreeMap::new(), BTreeMap::new()));
        assert!(ownership.owns("owner", "a") && !ownership.owns("older", "a"));
        ownership.put("owner", None);
        assert!(ownership.owns("older", "a"));
    }

    #[test]
    fn only_the_owner_names_a_successor() {
        let mut ownership = Ownership::default();
        let names = |successor: &str, claimant| Claimant { successor: Some(successor.to_owned()), ..claimant };
        ownership.put("old", Some(names("next", mk_had(mk_claimant(1, &["a"])))));
        ownership.put("next", Some(names("last", mk_claimant(2, &["a"]))));
        ownership.put("last", Some(mk_claimant(3, &["a"])));
        assert_eq!(ownership.not_of("next"), BTreeMap::new());
        assert_eq!(ownership.not_of("last"), BTreeMap::from([("a", "old")]));
        ownership.put("old", Some(mk_had(mk_claimant(1, &["a"]))));
        assert_eq!(ownership.not_of("next"), BTreeMap::from([("a", "old")]));
        ownership.put("old", None);
        assert_eq!(ownership.not_of("next"), BTreeMap::new());
        assert_eq!(ownership.not_of("last"), BTreeMap::new(), "its successor");
    }
}
