//! The rule for agents as it was before it had five sentences, and all that the hub may know: nothing signs earlier or
//! later than it did then, and all that was named is named.

use super::*;
use crate::identity::AddOnKey;
use crate::list::few;
use crate::registry::{AddOn, AddOnFacts, Registry};

const NOW: Timestamp = Timestamp::from_unix(1_800_000_000);

#[derive(Clone, Copy, PartialEq)]
enum Has {
    Applied,
    Recent,
    Unapplied,
    NoWork,
}

/// What the hub knows of an addon.
struct Known {
    key: AddOnKey,
    has: Has,
    is_new: bool,
    is_excepted: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Distribution {
    Starting,
    Off,
    Reached { is_whole: bool, has_shrunk: bool, brings: bool, is_guarded: bool },
}

struct Facts {
    is_same_root: bool,
    is_forced: bool,
    /// When the last certificate without the anchor ends, if the publication is noted.
    last: Option<Timestamp>,
    /// An AddOnSigner that is not served.
    unserved: Option<&'static str>,
    distribution: Distribution,
    addons: Vec<Known>,
}

/// What a Next waited for: sentences, or what they named where these have changed.
fn before(facts: &Facts) -> Vec<String> {
    if facts.is_same_root && !facts.is_forced {
        return Vec::new();
    }
    let Some(at) = facts.last else {
        return vec![facts.unserved.unwrap_or("the new anchor to be published").to_owned()];
    };
    let of = |has: Has| {
        let awaited = facts.addons.iter().filter(move |it| it.has == has && !it.is_new && !it.is_excepted);
        awaited.map(|it| it.key.to_string()).collect::<Vec<_>>()
    };
    let last = |because: String| {
        format!("the last certificate issued without the new anchor to expire at {at}, because {because}")
    };
    let others = match facts.distribution {
        _ if at < NOW => None,
        Distribution::Starting => None,
        Distribution::Off => Some("no ManifestWork brings it to agents".to_owned()),
        Distribution::Reached { .. } => Some(of(Has::NoWork))
            .filter(|of| !of.is_empty())
            .map(|of| format!("{} addons on clusters get no ManifestWork: {}", of.len(), few(of))),
    };
    brought(facts, of).into_iter().chain(others.map(last)).collect()
}

fn brought(facts: &Facts, of: impl Fn(Has) -> Vec<String>) -> Option<String> {
    let works = facts.addons.iter().filter(|it| it.has != Has::NoWork);
    let (ready, total) = (works.clone().filter(|it| it.has != Has::Unapplied).count(), works.count());
    match facts.distribution {
        Distribution::Off => None,
        Distribution::Starting => Some("the ManifestWorks to be read".to_owned()),
        Distribution::Reached { is_whole: false, .. } => Some("AddOnSigner".to_owned()),
        Distribution::Reached { has_shrunk: true, .. } => Some("five minutes to pass since an addon".to_owned()),
        Distribution::Reached { brings: false, .. } => Some("the ManifestWorks to be".to_owned()),
        Distribution::Reached { is_guarded, .. } => match (of(Has::Unapplied), of(Has::Recent)) {
            (one, other) if one.is_empty() && other.is_empty() => None,
            (one, other) if one.is_empty() => Some(format!("pods and agents to use the new anchor: {}", few(other))),
            _ if !is_guarded => Some("the ValidatingAdmissionPolicy addon-signer-manifest-works".to_owned()),
            (one, _) => {
                let counts = format!("{ready} of {total} addons have it, and not yet: {}", few(one));
                Some(format!("clusters to apply the new anchor: {counts}"))
            }
        },
    }
}

/// What it waits for now.
fn now(facts: &Facts, active: &Authority, next: &Authority) -> Result<(), WaitsFor> {
    let mut line = Line::default().begin(active.clone(), NOW).prepare(next.clone(), None, NOW);
    for member in &mut line.members {
        if facts.is_same_root {
            member.certified = active.clone().into();
        }
        member.forced = facts.is_forced && member.state == State::Active;
    }
    let line = facts.last.map_or(line.clone(), |last| line.hold_next_until(last, NOW));
    let mut registry = Registry::default();
    for Known { key, is_new, .. } in &facts.addons {
        let created = if *is_new { NOW.plus(HOUR) } else { NOW };
        let addon = AddOn { created, ..AddOnFacts::Installed.into() };
        registry.put_addon(key.cluster.clone(), key.addon.clone(), Some(addon));
    }
    let of = |has: Has| facts.addons.iter().filter(move |it| it.has == has).map(|it| &it.key);
    let anchors: Vec<_> = line.next().map(|next| next.certified.anchor().clone()).into_iter().collect();
    let works = match facts.distribution {
        Distribution::Starting => Some(Works::default()),
        Distribution::Off => None,
        Distribution::Reached { is_whole, has_shrunk, brings, is_guarded } => Some(Works {
            anchors: if brings { &anchors } else { &[] },
            unserved: !is_whole,
            shrunk: has_shrunk,
            ready: of(Has::Applied).chain(of(Has::Recent)).count(),
            total: facts.addons.len() - of(Has::NoWork).count(),
            unapplied: of(Has::Unapplied).collect(),
            recent: of(Has::Recent).collect(),
            written: is_guarded,
            without: of(Has::NoWork).collect(),
        }),
    };
    let excepted = facts.addons.iter().filter(|it| it.is_excepted).map(|it| it.key.cluster.clone()).collect();
    let unknown = facts.unserved.map(|name| WaitsFor::Unserved(name.to_owned()));
    Agents { unknown, works, excepted, registry: &registry }.have_next(&line, NOW)
}

/// The facts with this number, of all that there can be with two addons.
fn facts(mut number: usize) -> Option<Facts> {
    let mut choose = |options: usize| {
        let chosen = number % options;
        number /= options;
        chosen
    };
    let addons = ["c1", "c2"].map(|cluster| Known {
        key: AddOnKey { cluster: cluster.parse().unwrap(), addon: "a".parse().unwrap() },
        has: [Has::Applied, Has::Recent, Has::Unapplied, Has::NoWork][choose(4)],
        is_new: choose(2) == 1,
        is_excepted: choose(2) == 1,
    });
    let distribution = match choose(3) {
        0 => Distribution::Starting,
        1 => Distribution::Off,
        _ => {
            let [is_whole, has_shrunk, brings, is_guarded] = [(); 4].map(|()| choose(2) == 1);
            Distribution::Reached { is_whole, has_shrunk, brings, is_guarded }
        }
    };
    let facts = Facts {
        is_same_root: choose(2) == 1,
        is_forced: choose(2) == 1,
        last: [None, Some(NOW), Some(NOW.minus(HOUR))][choose(3)],
        unserved: [None, Some("x")][choose(2)],
        distribution,
        addons: addons.into(),
    };
    (number == 0).then_some(facts)
}

#[test]
fn nothing_signs_earlier_than_before() {
    let made = Made::default();
    let (active, next) = (made.get(1, NOW, LIFE), made.get(2, NOW, LIFE));
    let (mut waits, mut signs) = (0, 0);
    for facts in (0..16 * 16 * 3 * 16 * 24).filter_map(facts) {
        let (was, is) = (before(&facts), now(&facts, &active, &next));
        let said = is.as_ref().map_or_else(ToString::to_string, |()| String::new());
        assert_eq!(was.is_empty(), is.is_ok(), "{was:?}, now {said}");
        assert!(was.iter().all(|sentence| said.contains(sentence)), "{was:?}, now {said}");
        *(if is.is_ok() { &mut signs } else { &mut waits }) += 1;
    }
    assert_eq!((waits, signs), (77_028, 33_564));
}
