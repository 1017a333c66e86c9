//! Decides which AddOnSigner owns a signer name or an addon that several of them name.
//!
//! An owner keeps a name for as long as it declares it. At the start, the owner is the AddOnSigner that was served with
//! the name before, or else the oldest. Only the owner of an addon can name a successor, which is served for the addon
//! as well, for a migration, and inherits it. Ownership does not depend on whether an AddOnSigner is valid: a mistyped
//! field must not hand a name over to another author.

use std::collections::{BTreeMap, BTreeSet};

use crate::timestamp::Timestamp;

/// What one AddOnSigner names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// `metadata.uid`: an object that was deleted and recreated under its name keeps nothing.
    pub uid: String,
    /// `metadata.creationTimestamp`, which no client can choose.
    pub created: Timestamp,
    /// `spec.signerName`.
    pub signer_name: String,
    /// `spec.addOns`.
    pub addons: BTreeSet<String>,
    /// `spec.successor`.
    pub successor: Option<String>,
    /// Whether it had authorities for its signer name, according to its status, which only the hub writes.
    pub had_signer_name: bool,
    /// `status.addOns`, from the same status: the addons that it was served for as their owner.
    pub had: BTreeSet<String>,
}

impl Candidate {
    fn things(&self) -> impl Iterator<Item = Thing> {
        let addons = self.addons.iter().cloned().map(Thing::AddOn);
        addons.chain([Thing::SignerName(self.signer_name.clone())])
    }

    fn had(&self, thing: &Thing) -> bool {
        match thing {
            Thing::SignerName(_) => self.had_signer_name,
            Thing::AddOn(addon) => self.had.contains(addon),
        }
    }
}

/// What only one AddOnSigner may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    SignerName(String),
    AddOn(String),
}

/// The AddOnSigners that name a thing, and the one that owns it.
#[derive(Debug, Default)]
struct Candidates {
    by: BTreeSet<String>,
    owner: Option<String>,
    /// The successor that the last owner named.
    heir: Option<String>,
}

/// All AddOnSigners, by `metadata.name`.
#[derive(Debug, Default)]
pub struct Ownership {
    candidates: BTreeMap<String, Candidate>,
    named: BTreeMap<Thing, Candidates>,
}

impl Ownership {
    /// Notes what these AddOnSigners name now; `None` for one that was deleted. Returns those whose ownership may have
    /// changed.
    pub fn update(&mut self, changes: impl IntoIterator<Item = (String, Option<Candidate>)>) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        for (name, now) in changes {
            let before = self.candidates.remove(&name);
            let is_another = before.as_ref().map(|before| &before.uid) != now.as_ref().map(|now| &now.uid);
            let keeps =
                |thing: &Thing| !is_another && now.as_ref().is_some_and(|now| now.things().any(|it| it == *thing));
            for thing in before.iter().flat_map(Candidate::things).filter(|thing| !keeps(thing)) {
                let named = self.named.entry(thing.clone()).or_default();
                named.by.remove(&name);
                if named.owner.take_if(|owner| *owner == name).is_some() {
                    named.heir = before.as_ref().and_then(|before| before.successor.clone());
                }
                touched.insert(thing);
            }
            let has_new_successor =
                before.as_ref().map(|before| &before.successor) != now.as_ref().map(|now| &now.successor);
            for thing in now.iter().flat_map(Candidate::things) {
                if self.named.entry(thing.clone()).or_default().by.insert(name.clone()) || has_new_successor {
                    touched.insert(thing);
                }
            }
            self.candidates.extend(now.map(|now| (name, now)));
        }
        touched.iter().flat_map(|thing| self.reassign(thing)).collect()
    }

    /// Gives an unowned thing to one of those that name it. Returns all whose share in it may have changed.
    fn reassign(&mut self, thing: &Thing) -> BTreeSet<String> {
        let Some(named) = self.named.get_mut(thing) else { return BTreeSet::new() };
        if named.by.is_empty() {
            self.named.remove(thing);
            return BTreeSet::new();
        }
        if named.owner.is_none() {
            let candidates = named.by.iter().filter_map(|name| Some((name, self.candidates.get(name)?)));
            let heir = named.heir.take();
            let order = |(name, candidate): &(&String, &Candidate)| {
                (heir.as_ref() != Some(*name), !candidate.had(thing), candidate.created, (*name).clone())
            };
            named.owner = candidates.min_by_key(order).map(|(name, _)| name.clone());
        }
        named.by.clone()
    }

    fn owner(&self, thing: &Thing) -> Option<&str> {
        self.named.get(thing)?.owner.as_deref()
    }

    /// Whether this AddOnSigner owns the addon itself, and not only as a successor.
    #[must_use]
    pub fn owns(&self, name: &str, addon: &str) -> bool {
        self.owner(&Thing::AddOn(addon.to_owned())) == Some(name)
    }

    /// Another AddOnSigner that owns the signer name of this one.
    #[must_use]
    pub fn has_signer_name_of(&self, name: &str) -> Option<&str> {
        let thing = Thing::SignerName(self.candidates.get(name)?.signer_name.clone());
        self.owner(&thing).filter(|owner| *owner != name)
    }

    /// The addons that this AddOnSigner names and that belong to others, each with its owner.
    #[must_use]
    pub fn not_of(&self, name: &str) -> BTreeMap<&str, &str> {
        let addons = self.candidates.get(name).into_iter().flat_map(|candidate| &candidate.addons);
        let lost = addons.filter_map(|addon| {
            let owner = self.owner(&Thing::AddOn(addon.clone()))?;
            let successor = self.candidates.get(owner).and_then(|owner| owner.successor.as_deref());
            (owner != name && successor != Some(name)).then_some((addon.as_str(), owner))
        });
        lost.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn mk_candidate(created: i64, addons: &[&str]) -> Candidate {
        Candidate {
            uid: format!("uid-{created}"),
            created: Timestamp::from_unix(created),
            signer_name: format!("example.com/{created}"),
            addons: set(addons),
            successor: None,
            had_signer_name: false,
            had: BTreeSet::new(),
        }
    }

    fn mk_had(candidate: Candidate) -> Candidate {
        Candidate { had: candidate.addons.clone(), had_signer_name: true, ..candidate }
    }

    /// All at once, as a list returns them.
    fn listed(all: &[(&str, Candidate)]) -> Ownership {
        let mut ownership = Ownership::default();
        ownership.update(all.iter().map(|(name, candidate)| ((*name).to_owned(), Some(candidate.clone()))));
        ownership
    }

    fn put(ownership: &mut Ownership, name: &str, now: Option<Candidate>) -> BTreeSet<String> {
        ownership.update([(name.to_owned(), now)])
    }

    #[test]
    fn at_start_oldest_candidate_gets_addon_then_first_by_name() {
        let ownership = listed(&[("young", mk_candidate(2, &["a", "b"])), ("old", mk_candidate(1, &["b", "c"]))]);
        assert_eq!(ownership.not_of("young"), BTreeMap::from([("b", "old")]));
        assert_eq!(ownership.not_of("old"), BTreeMap::new());
        let ownership = listed(&[("b", mk_candidate(1, &["x"])), ("a", mk_candidate(1, &["x"]))]);
        assert_eq!(ownership.not_of("b"), BTreeMap::from([("x", "a")]));
        assert_eq!((ownership.has_signer_name_of("b"), ownership.has_signer_name_of("a")), (Some("a"), None));
        assert_eq!(ownership.not_of("gone"), BTreeMap::new());
    }

    #[test]
    fn whoever_was_served_before_has_it_after_a_restart() {
        let twin = |created, had: bool| {
            let candidate = Candidate { signer_name: "example.com/x".to_owned(), ..mk_candidate(created, &["a"]) };
            if had { mk_had(candidate) } else { candidate }
        };
        let ownership = listed(&[("evil", twin(1, false)), ("served", twin(1, true))]);
        assert_eq!(ownership.has_signer_name_of("evil"), Some("served"));
        assert!(ownership.owns("served", "a"));
        assert!(ownership.has_signer_name_of("served").is_none());
    }

    #[test]
    fn whoever_comes_later_takes_nothing_away_whatever_its_age() {
        let mut ownership = listed(&[("young", mk_candidate(2, &["a"]))]);
        let twin = Candidate { signer_name: "example.com/2".to_owned(), ..mk_had(mk_candidate(1, &["a"])) };
        assert_eq!(put(&mut ownership, "old", Some(twin.clone())), set(&["old", "young"]));
        assert_eq!(ownership.not_of("old"), BTreeMap::from([("a", "young")]));
        assert_eq!(ownership.has_signer_name_of("old"), Some("young"));
        assert_eq!(put(&mut ownership, "old", Some(twin.clone())), set(&[]), "nothing new");
        assert_eq!(put(&mut ownership, "other", Some(mk_candidate(3, &["d"]))), set(&["other"]));
        // An object that is recreated under its name is a different one.
        let anew = Candidate { uid: "another".to_owned(), ..mk_candidate(2, &["a"]) };
        put(&mut ownership, "young", Some(anew));
        assert_eq!(ownership.not_of("young"), BTreeMap::from([("a", "old")]));
        assert_eq!(put(&mut ownership, "old", None), set(&["young"]));
        assert!(ownership.owns("young", "a"));
        assert_eq!(put(&mut ownership, "young", None), set(&[]));
        assert!(ownership.named.len() == 2, "{ownership:?}");
        assert!(ownership.candidates.len() == 1, "{ownership:?}");
    }

    #[test]
    fn only_the_owner_names_a_successor_and_keeps_the_addon() {
        let names = |successor: &str, candidate| Candidate { successor: Some(successor.to_owned()), ..candidate };
        let owner = names("next", mk_candidate(2, &["a"]));
        let mut ownership = listed(&[("owner", owner.clone())]);
        put(&mut ownership, "next", Some(names("last", mk_candidate(1, &["a"]))));
        put(&mut ownership, "last", Some(mk_candidate(3, &["a"])));
        assert_eq!((ownership.not_of("owner"), ownership.not_of("next")), (BTreeMap::new(), BTreeMap::new()));
        assert_eq!(ownership.not_of("last"), BTreeMap::from([("a", "owner")]));
        assert!(ownership.owns("owner", "a"), "although it is older");
        assert!(!ownership.owns("next", "a"), "although it is older");
        let all = set(&["last", "next", "owner"]);
        assert_eq!(put(&mut ownership, "owner", Some(Candidate { successor: None, ..owner })), all);
        assert_eq!(ownership.not_of("next"), BTreeMap::from([("a", "owner")]));
        put(&mut ownership, "owner", None);
        assert!(ownership.owns("next", "a"));
        assert_eq!(ownership.not_of("last"), BTreeMap::new(), "its successor");
    }

    #[test]
    fn the_successor_inherits_before_others_that_wait() {
        let successor = Some("next".to_owned());
        let owner = Candidate { successor, ..mk_candidate(3, &["a", "b"]) };
        let mut ownership = listed(&[("owner", owner.clone())]);
        put(&mut ownership, "waits", Some(mk_candidate(1, &["a", "b"])));
        put(&mut ownership, "next", Some(mk_candidate(4, &["a", "b"])));
        put(&mut ownership, "owner", Some(Candidate { addons: set(&["b"]), ..owner }));
        assert!(ownership.owns("next", "a"));
        assert!(ownership.owns("owner", "b"));
        put(&mut ownership, "owner", None);
        assert!(ownership.owns("next", "b"));
    }
}
