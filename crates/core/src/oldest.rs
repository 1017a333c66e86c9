//! Which objects of a kind take effect if their number is limited: the oldest, so that no later object displaces an
//! earlier one. No client of an API server can choose or change the time at which an object was created.

use std::collections::{BTreeMap, BTreeSet};

use crate::timestamp::Timestamp;

/// How many AddOnSigners take effect. OCM's hubs have some dozens of addons.
pub const MOST_SIGNERS: usize = 512;
/// How many AddOnRoutes of each namespace take effect, of those that may attach to their AddOnSigner.
pub const MOST_ROUTES: usize = 64;
/// How many of all other AddOnRoutes get a status that explains why they have no effect. They are bounded because no
/// administrator has agreed to what they cost.
pub const MOST_REFUSED_ROUTES: usize = 1024;

/// How many of the objects that take no effect, the oldest, are kept in each group, by name and time.
const SPARE: usize = 256;

/// The objects that were seen, by groups. Of those that take no effect, only the names and times of some are kept.
#[derive(Debug)]
pub struct Oldest {
    most: usize,
    groups: BTreeMap<String, Group>,
}

#[derive(Debug, Default)]
struct Group {
    created: BTreeMap<String, Timestamp>,
    /// By age, then by name within the same second.
    by_age: BTreeSet<(Timestamp, String)>,
    /// Those that take effect.
    chosen: BTreeSet<String>,
    /// Whether there were more than are kept.
    has_more: bool,
}

/// What becomes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It takes effect, in place of this one if there is one.
    Chosen(Option<String>),
    /// There are as many older ones as may take effect.
    TooMany,
}

impl Oldest {
    /// At most `most` objects of each group take effect.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, groups: BTreeMap::new() }
    }

    /// Notes an object that exists. One without a time of creation is the youngest.
    pub fn put(&mut self, group: &str, name: &str, created: Option<Timestamp>) -> Place {
        let created = created.unwrap_or(Timestamp::from_unix(i64::MAX));
        let known = self.groups.entry(group.to_owned()).or_default();
        if let Some(before) = known.created.insert(name.to_owned(), created) {
            known.by_age.remove(&(before, name.to_owned()));
        }
        known.by_age.insert((created, name.to_owned()));
        if known.by_age.len() > self.most + SPARE
            && let Some((_, youngest)) = known.by_age.pop_last()
        {
            known.created.remove(&youngest);
            known.chosen.remove(&youngest);
            known.has_more = true;
        }
        let is_old = known.by_age.iter().take(self.most).any(|(_, older)| older == name);
        if !is_old {
            known.chosen.remove(name);
            return Place::TooMany;
        }
        known.chosen.insert(name.to_owned());
        if known.chosen.len() <= self.most {
            return Place::Chosen(None);
        }
        let youngest = known.by_age.iter().rev().find(|(_, name)| known.chosen.contains(name));
        let youngest = youngest.map(|(_, name)| name.clone());
        known.chosen.retain(|name| Some(name) != youngest.as_ref());
        Place::Chosen(youngest)
    }

    /// Notes that an object does not exist.
    pub fn remove(&mut self, group: &str, name: &str) {
        let Some(known) = self.groups.get_mut(group) else { return };
        if let Some(created) = known.created.remove(name) {
            known.by_age.remove(&(created, name.to_owned()));
            known.chosen.remove(name);
        }
        if known.created.is_empty() && !known.has_more {
            self.groups.remove(group);
        }
    }

    /// Notes that only these objects exist.
    pub fn retain(&mut self, exists: impl Fn(&str, &str) -> bool) {
        let all = self.groups.iter().flat_map(|(group, known)| known.created.keys().map(move |name| (group, name)));
        let gone: Vec<(String, String)> = all
            .filter(|(group, name)| !exists(group, name))
            .map(|(group, name)| (group.clone(), name.clone()))
            .collect();
        gone.iter().for_each(|(group, name)| self.remove(group, name));
        self.groups.retain(|_, known| known.has_more || !known.created.is_empty());
    }

    /// Whether an object that was noted takes effect.
    #[must_use]
    pub fn is_chosen(&self, group: &str, name: &str) -> bool {
        self.groups.get(group).is_some_and(|known| known.chosen.contains(name))
    }

    /// Whether an object may take effect now that is known only by its name, or not at all, so that all must be read
    /// again.
    #[must_use]
    pub fn has_vacancy(&self) -> bool {
        self.groups.values().any(|known| {
            let there = if known.has_more { self.most } else { known.created.len().min(self.most) };
            known.chosen.len() < there
        })
    }

    /// All will be read again.
    pub fn begin_list(&mut self) {
        self.groups.values_mut().for_each(|known| known.has_more = false);
    }

    /// The groups that have too many objects: the oldest one of those that take no effect, and how many there are.
    pub fn exceeded(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        let too_many = self.groups.iter().filter(|(_, known)| known.created.len() > self.most);
        too_many.filter_map(|(group, known)| {
            let (_, first) = known.by_age.iter().nth(self.most)?;
            Some((group.as_str(), first.as_str(), known.created.len() - self.most))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Some(Timestamp::from_unix(second))
    }

    #[test]
    fn the_oldest_of_each_group_take_effect() {
        let mut oldest = Oldest::new(2);
        assert_eq!(oldest.put("a", "third", at(3)), Place::Chosen(None));
        assert_eq!(oldest.put("a", "second", at(2)), Place::Chosen(None));
        assert_eq!(oldest.put("a", "fourth", at(4)), Place::TooMany);
        assert_eq!(oldest.put("b", "fourth", at(4)), Place::Chosen(None), "another group");
        assert_eq!(oldest.put("a", "first", at(1)), Place::Chosen(Some("third".to_owned())), "in a list");
        assert_eq!(oldest.put("a", "first", at(1)), Place::Chosen(None), "once more");
        assert_eq!(oldest.exceeded().collect::<Vec<_>>(), [("a", "third", 2)]);
        assert_eq!(["first", "third"].map(|name| oldest.is_chosen("a", name)), [true, false]);
        assert!(!oldest.has_vacancy());
        oldest.remove("a", "first");
        assert!(oldest.has_vacancy());
        assert_eq!(oldest.put("a", "fourth", at(4)), Place::TooMany, "the third is older, although it was not read");
        assert_eq!(oldest.put("a", "third", at(3)), Place::Chosen(None));
        assert!(!oldest.has_vacancy());
        oldest.retain(|group, name| (group, name) == ("a", "fourth"));
        assert!(oldest.has_vacancy());
        assert_eq!(oldest.put("a", "fourth", at(4)), Place::Chosen(None));
        assert_eq!(oldest.exceeded().count(), 0);
    }

    #[test]
    fn of_very_many_not_even_the_names_are_kept() {
        let mut oldest = Oldest::new(2);
        let all = || (0..10_000).map(|second| (format!("{second}"), at(second)));
        all().for_each(|(name, created)| drop(oldest.put("a", &name, created)));
        assert_eq!(oldest.groups["a"].created.len(), 2 + SPARE);
        assert_eq!(oldest.put("a", "0", at(0)), Place::Chosen(None));
        (0..2 + SPARE).for_each(|second| oldest.remove("a", &format!("{second}")));
        oldest.put("a", "x", at(1));
        assert!(oldest.has_vacancy(), "there are others");
        oldest.begin_list();
        assert!(!oldest.has_vacancy(), "the list has begun");
        all().skip(2 + SPARE).for_each(|(name, created)| drop(oldest.put("a", &name, created)));
        assert!(oldest.is_chosen("a", "x") && !oldest.has_vacancy());
    }

    #[test]
    fn one_that_was_made_again_is_as_old_as_it_is_now() {
        let mut oldest = Oldest::new(1);
        assert_eq!(oldest.put("", "a", at(1)), Place::Chosen(None));
        assert_eq!(oldest.put("", "b", at(2)), Place::TooMany);
        assert_eq!(oldest.put("", "a", at(3)), Place::TooMany);
        assert!(oldest.has_vacancy());
        assert_eq!(oldest.put("", "b", at(2)), Place::Chosen(None));
    }
}
