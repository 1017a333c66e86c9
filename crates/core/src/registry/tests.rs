use super::*;

fn registry(cluster: Option<ClusterFacts>, addon: Option<AddOnFacts>) -> Registry {
    let mut registry = Registry::default();
    registry.complete_clusters(|_| false);
    registry.complete_addons(|_| false);
    registry.set_cluster("c1".parse().unwrap(), cluster);
    registry.set_addon("c1".parse().unwrap(), "a1".parse().unwrap(), addon);
    registry
}

fn check(registry: &Registry) -> Result<(), NotRegistered> {
    registry.check(&"c1".parse().unwrap(), &"a1".parse().unwrap())
}

const ACCEPTED: Option<ClusterFacts> = Some(ClusterFacts::ACCEPTED);

#[test]
fn only_an_installed_addon_of_an_accepted_cluster_is_eligible() {
    use AddOnFacts::{Deleting, Installed, Suspended, Unreadable};
    let cases = [
        (ACCEPTED, Some(Installed), Ok(())),
        (None, Some(Installed), Err(NotRegistered::ClusterUnknown)),
        (
            Some(ClusterFacts { accepted: false, ..ClusterFacts::ACCEPTED }),
            Some(Installed),
            Err(NotRegistered::ClusterNotAccepted),
        ),
        (
            Some(ClusterFacts { deleting: true, ..ClusterFacts::ACCEPTED }),
            Some(Installed),
            Err(NotRegistered::ClusterDeleting),
        ),
        (ACCEPTED, None, Err(NotRegistered::AddOnUnknown)),
        (ACCEPTED, Some(Deleting), Err(NotRegistered::AddOnDeleting)),
        (ACCEPTED, Some(Suspended), Err(NotRegistered::AddOnSuspended)),
        (ACCEPTED, Some(Unreadable), Err(NotRegistered::Unreadable)),
    ];
    for (cluster, addon, expected) in cases {
        assert_eq!(check(&registry(cluster, addon)), expected);
    }
}

#[test]
fn nothing_is_eligible_before_both_lists_are_complete() {
    let mut registry = Registry::default();
    registry.complete_clusters(|_| false);
    assert_eq!(check(&registry), Err(NotRegistered::NotReady));
}

#[test]
fn outdated_registry_vouches_for_nobody_but_keeps_eligibility() {
    let mut registry = registry(ACCEPTED, Some(AddOnFacts::Installed));
    registry.set_outdated(true);
    assert_eq!(check(&registry), Err(NotRegistered::Outdated));
    assert!(NotRegistered::Outdated.is_unknown());
    let again = registry.set_addon("c1".parse().unwrap(), "a1".parse().unwrap(), Some(AddOnFacts::Installed));
    assert_eq!(again, vec![]);
    registry.set_outdated(false);
    assert_eq!(check(&registry), Ok(()));
}

#[test]
fn changes_of_eligibility_are_reported_one_by_one() {
    use AddOnFacts::{Deleting, Installed, Suspended};
    let mut registry = registry(ACCEPTED, None);
    let change = |change, cause| {
        let cluster = "c1".parse().unwrap();
        let addon = "a1".parse().unwrap();
        vec![EligibilityChange { cluster, addon, change: Change::Eligibility(change), cause }]
    };
    let mut addon = |facts| registry.set_addon("c1".parse().unwrap(), "a1".parse().unwrap(), facts);
    assert_eq!(addon(Some(Installed)), change(Eligibility::Registered, None));
    assert_eq!(addon(Some(Installed)), vec![]);
    assert_eq!(addon(Some(Suspended)), change(Eligibility::Suspended, Some(NotRegistered::AddOnSuspended)));
    assert_eq!(addon(Some(Deleting)), vec![], "not eligible, as before");
    assert_eq!(addon(Some(Suspended)), vec![]);
    assert_eq!(addon(Some(Installed)), change(Eligibility::Resumed, None));
    assert_eq!(addon(None), change(Eligibility::Detached, Some(NotRegistered::AddOnUnknown)));
    addon(Some(Installed));
    let lost = change(Eligibility::Detached, Some(NotRegistered::ClusterUnknown));
    assert_eq!(registry.set_cluster("c1".parse().unwrap(), None), lost);
    registry.set_cluster("c1".parse().unwrap(), ACCEPTED);
    assert_eq!(registry.complete_clusters(|_| false), lost, "also when a watch begins anew");
    registry.set_cluster("c1".parse().unwrap(), ACCEPTED);
    let lost = change(Eligibility::Detached, Some(NotRegistered::AddOnUnknown));
    assert_eq!(registry.complete_addons(|_| false), lost);
}

#[test]
fn the_first_complete_lists_change_nobodys_eligibility() {
    let mut registry = Registry::default();
    let (cluster, addon) = ("c1".parse().unwrap(), "a1".parse().unwrap());
    assert_eq!(registry.set_addon(cluster, addon, Some(AddOnFacts::Installed)), vec![]);
    assert_eq!(registry.complete_addons(|_| true), vec![]);
    assert_eq!(registry.set_cluster("c1".parse().unwrap(), ACCEPTED), vec![]);
    assert_eq!(check(&registry), Err(NotRegistered::NotReady), "the list of clusters may go on");
    assert_eq!(registry.complete_clusters(|_| true), vec![]);
    assert_eq!(check(&registry), Ok(()));
}

fn revoked(facts: AddOnFacts, before: i64, by: &str) -> Option<AddOn> {
    let revocation = Revocation { before: Timestamp::from_unix(before), by: by.to_owned() };
    Some(AddOn { revocation: Some(Box::new(revocation)), ..facts.into() })
}

#[test]
fn every_move_of_a_revocation_is_reported_with_its_time() {
    use AddOnFacts::{Installed, Suspended, Unreadable};
    let mut registry = registry(ACCEPTED, Some(Installed));
    let mut put = |found: Option<AddOn>| -> Vec<(Change, Option<NotRegistered>)> {
        let changes = registry.put_addon("c1".parse().unwrap(), "a1".parse().unwrap(), found);
        changes.into_iter().map(|change| (change.change, change.cause)).collect()
    };
    let at = |before, by: &str| Revocation { before: Timestamp::from_unix(before), by: by.to_owned() };
    assert_eq!(put(revoked(Installed, 100, "ann")), [(Change::Revoked(at(100, "ann")), None)]);
    assert_eq!(put(revoked(Installed, 100, "bob")), [], "another word on who asked is no move");
    assert_eq!(put(revoked(Installed, 200, "")), [(Change::Revoked(at(200, "")), None)]);
    let suspended = Some(NotRegistered::AddOnSuspended);
    let both = [(Change::Eligibility(Eligibility::Suspended), suspended), (Change::Revoked(at(300, "")), suspended)];
    assert_eq!(put(revoked(Suspended, 300, "")), both);
    assert_eq!(put(revoked(Installed, 300, "")), [(Change::Eligibility(Eligibility::Resumed), None)]);
    assert_eq!(put(revoked(Installed, 250, "")), [(Change::Unrevoked(Some(at(250, ""))), None)]);
    let unreadable = Some(NotRegistered::Unreadable);
    assert_eq!(
        put(Some(Unreadable.into())),
        [(Change::Eligibility(Eligibility::Detached), unreadable)],
        "nobody knows that it was taken back"
    );
    assert_eq!(put(revoked(Installed, 250, "")).len(), 2, "registered, and revoked as far as anybody knows");
    assert_eq!(put(Some(Installed.into())), [(Change::Unrevoked(None), None)]);
    assert_eq!(put(None), [(Change::Eligibility(Eligibility::Detached), Some(NotRegistered::AddOnUnknown))]);
    assert_eq!(put(revoked(Installed, 400, "")).len(), 2, "it comes back with something revoked");
}

#[test]
fn a_revocation_is_found_where_the_object_can_be_read() {
    let mut registry = registry(ACCEPTED, None);
    let cluster = "c1".parse().unwrap();
    let addon = "a1".parse().unwrap();
    assert_eq!((registry.revocation(&cluster, &addon), registry.revoked_before(&cluster, &addon)), (None, None));
    registry.set_addon("c1".parse().unwrap(), "a1".parse().unwrap(), Some(AddOnFacts::Installed));
    assert_eq!(registry.revocation(&cluster, &addon), Some(None));
    let found = revoked(AddOnFacts::Installed, 100, "ann");
    assert_eq!(registry.put_addon(cluster.clone(), addon.clone(), found.clone()).len(), 1);
    assert_eq!(registry.revoked_before(&cluster, &addon), Some(Timestamp::from_unix(100)));
    assert_eq!(check(&registry), Ok(()), "it may have new certificates");
    let revocations: Vec<_> = registry.revocations().collect();
    assert_eq!(revocations, [(&cluster, &addon, found.as_ref().unwrap().revocation.as_deref().unwrap())]);
}

#[test]
fn recreating_addon_never_revives_its_old_certificates() {
    let mut registry = registry(ACCEPTED, None);
    let cluster: ClusterName = "c1".parse().unwrap();
    let addon: AddOnName = "a1".parse().unwrap();
    let made = |created, revoked: Option<i64>| {
        let of = |before| Box::new(Revocation { before: Timestamp::from_unix(before), by: String::new() });
        let created = Timestamp::from_unix(created);
        AddOn { facts: AddOnFacts::Installed, created, revocation: revoked.map(of) }
    };
    let mut put = |found: AddOn| -> (Vec<Change>, i64) {
        let changes = registry.put_addon(cluster.clone(), addon.clone(), Some(found));
        let from = registry.valid_from(&cluster, &addon).unwrap().unix();
        (changes.into_iter().map(|change| change.change).collect(), from)
    };
    assert_eq!(put(made(100, None)).1, 100);
    assert_eq!(put(made(100, Some(50))).1, 100);
    assert_eq!(put(made(100, Some(300))).1, 300);
    assert_eq!(put(made(400, None)), (vec![], 400), "made anew while nobody looked");
    assert_eq!(put(made(400, Some(500))).1, 500);
    assert_eq!(put(made(400, None)), (vec![Change::Unrevoked(None)], 400), "taken back");
    assert_eq!(registry.valid_from(&cluster, &"a2".parse().unwrap()), None);
}

#[test]
fn remaking_a_cluster_never_revives_its_old_certificates() {
    let mut registry = registry(ACCEPTED, None);
    let (cluster, addon): (ClusterName, AddOnName) = ("c1".parse().unwrap(), "a1".parse().unwrap());
    let revocation = Revocation { before: Timestamp::from_unix(300), by: String::new() };
    let made = |revocation| AddOn { created: Timestamp::from_unix(100), revocation, ..AddOnFacts::Installed.into() };
    registry.put_addon(cluster.clone(), addon.clone(), Some(made(Some(Box::new(revocation)))));
    let mut remake = |created| {
        let facts = ClusterFacts { created: Timestamp::from_unix(created), ..ClusterFacts::ACCEPTED };
        let changes = registry.set_cluster(cluster.clone(), Some(facts));
        let from =
            [Registry::created, Registry::valid_from].map(|ask| ask(&registry, &cluster, &addon).unwrap().unix());
        (changes, from)
    };
    assert_eq!(remake(50), (vec![], [100, 300]), "older than the addon");
    assert_eq!(remake(200), (vec![], [200, 300]));
    assert_eq!(remake(400), (vec![], [400, 400]), "made anew while nobody looked");
    let changes = registry.put_addon(cluster.clone(), addon.clone(), Some(made(None)));
    assert_eq!(changes, vec![], "nothing becomes valid again");
    registry.set_cluster(cluster.clone(), None);
    assert_eq!(registry.valid_from(&cluster, &addon), Some(Timestamp::from_unix(100)), "it is not eligible");
}
