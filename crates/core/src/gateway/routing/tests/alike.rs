//! Paths that are read alike: the tables of `docs/paths.md`, and what the rules there leave alone.

use http::Method;
use proptest::collection;
use proptest::prelude::*;

use super::*;
use crate::gateway::access::{self, Caller, NoAccess, RequestHead};
use crate::gateway::path::{PathError, SafePath};

/// The cells of each row of the table in `docs/paths.md` that has this heading.
fn rows<const N: usize>(heading: &str) -> Vec<[String; N]> {
    let page = include_str!("../../../../../../docs/paths.md");
    let table = page.split(heading).nth(1).expect("the heading of a table").lines().skip(2);
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.map(|row| cells(row).try_into().expect("a full row")).collect()
}

/// The text between the first two backquotes of a cell.
fn code(cell: &str) -> &str {
    cell.split('`').nth(1).expect("a cell with code")
}

fn read_pattern(cell: &str) -> PathPattern {
    match code(cell).split_once('/') {
        Some((service, method)) if cell.starts_with("gRPC") => PathPattern::grpc(service, Some(method)).unwrap(),
        None => PathPattern::grpc(code(cell), None).unwrap(),
        _ => code(cell).parse().unwrap(),
    }
}

/// What exists where the namespaces `a` and `b` may attach routes.
fn mk_existing() -> Existing {
    let mut existing = Existing::new();
    let namespaces = ["a", "b"].map(str::to_owned).into();
    let hostnames = [mk_host("h.example")].into();
    existing.signers = vec![mk_signer(Attachment { namespaces, hostnames, selector: None })];
    existing
}

/// An AddOnRoute `namespace/name` to an address that the administrator allows to all.
fn mk_of(namespace: &str, name: &str, created: i64, path: PathPattern) -> RoutePlan {
    let mut plan = mk_named(name, created, "/");
    plan.name.namespace = namespace.to_owned();
    plan.paths[0].path = path;
    plan.backend = mk_backend(BackendTarget::Address("127.0.0.1:1".parse().unwrap()));
    plan
}

/// The AddOnRoute that gets a request of the addon `a` on the cluster `c1`.
fn called(table: &RouteTable, path: &str) -> Result<RouteName, NoAccess> {
    let (addon, cluster) = ("a".parse().unwrap(), "c1".parse().unwrap());
    let caller = Caller { signer: "s", addon: &addon, cluster: &cluster, cluster_set: None };
    let path = SafePath::parse(path)?;
    let head = RequestHead { caller, host: &mk_host("gateway.example"), method: &Method::GET, path: path.below(0) };
    access::route(table, &head).map(|route| route.name.clone())
}

#[test]
fn paths_read_alike_never_stop_an_older_route() {
    let rows = rows::<6>("| older, in `a` | younger | in | takes effect | request | goes to |");
    assert!(rows.len() > 20, "{rows:?}");
    for row in rows {
        let [older, younger, namespace, takes_effect, call, goes_to] = &row;
        let older = mk_of("a", "older", 1, read_pattern(older));
        let younger = mk_of(code(namespace), "younger", 2, read_pattern(younger));
        for backend in [younger.backend.clone(), mk_backend(BackendTarget::Address("127.0.0.1:2".parse().unwrap()))] {
            let plans = [RoutePlan { backend, ..younger.clone() }, older.clone()];
            let (table, verdicts) = mk_existing().resolve(&plans);
            let expected = if takes_effect == "yes" { "" } else { "Conflicted" };
            assert_eq!((reason(&verdicts[0].programmed), &verdicts[1].programmed), (expected, &Ok(())), "{row:?}");
            let found = match called(&table, code(call)) {
                Ok(name) => format!("`{}`", name.namespace),
                Err(NoAccess::Path(PathError::Route)) => "400".to_owned(),
                Err(NoAccess::AnotherCluster(_)) => "403".to_owned(),
                Err(other) => other.to_string(),
            };
            assert_eq!(found, *goes_to, "{row:?}");
        }
    }
}

#[test]
fn the_normal_form_is_what_the_page_says() {
    let rows = rows::<3>("| a request's path | its normal form | to a backend that |");
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        let (call, normal) = (SafePath::parse(code(&row[0])).unwrap(), read_pattern(&row[1]));
        assert!(normal.is_alike(call.below(0)) && !normal.matches(call.below(0)), "{row:?}");
    }
}

#[test]
fn only_a_path_that_is_read_alike_stays_out_of_the_table() {
    let older = mk_of("a", "older", 1, "/api".parse().unwrap());
    let mut younger = mk_of("b", "younger", 2, "/API/v1".parse().unwrap());
    younger.paths.extend(mk_named("", 2, "/other").paths);
    let (table, verdicts) = mk_existing().resolve(&[older, younger]);
    let cause = "some backends read the path /API/v1 as one at or below /api of the older AddOnRoute a/older: it has \
                 no effect";
    assert_eq!(verdicts[1].programmed, Err(RouteProblem::new("Conflicted", cause)));
    let paths = table.of("s", &"a".parse().unwrap()).iter().map(|route| route.path.to_string());
    assert_eq!(paths.collect::<Vec<_>>(), ["/api", "/other"]);
}

/// Each path is compared with all older ones, whether it takes effect or not.
#[test]
fn paths_that_stay_out_count_among_those_of_an_addon() {
    let of_a = |plan| RoutePlan { addons: Arc::new(["a".parse().unwrap()].into()), ..plan };
    let oldest = mk_of("a", "oldest", 1, "/api".parse().unwrap());
    let mut alike = of_a(mk_of("b", "alike", 2, "/API".parse().unwrap()));
    alike.paths = (0..MOST_PATHS).flat_map(|at| mk_named("", 2, &format!("/API/{at}")).paths).collect();
    let younger = of_a(mk_of("b", "younger", 3, "/other".parse().unwrap()));
    let of_both = mk_of("a", "of-both", 4, "/other".parse().unwrap());
    let of_b = RoutePlan { addons: Arc::new(["b".parse().unwrap()].into()), ..of_both.clone() };
    let reasons = |plans: &[RoutePlan]| -> Vec<_> {
        mk_existing().resolve(plans).1.iter().map(|verdict| reason(&verdict.programmed)).collect()
    };
    let plans = [younger, oldest, alike, of_both];
    assert_eq!(reasons(&plans), ["LimitExceeded", "", "Conflicted", "LimitExceeded"]);
    assert_eq!(reasons(&[&plans[1..3], &[of_b]].concat()), ["", "Conflicted", ""], "another addon");
    let cause = "older AddOnRoutes have 256 paths of the addon a, which is the most";
    let verdicts = mk_existing().resolve(&plans).1;
    assert_eq!(verdicts[0].programmed, Err(RouteProblem::new("LimitExceeded", cause)));
}

#[test]
fn paths_read_alike_are_in_effect_if_no_request_can_meet_both() {
    let addons = |name: &str| Arc::new([name.parse().unwrap()].into());
    let clusters = |name: &str| Arc::new(Clusters::Names([name.parse().unwrap()].into()));
    let hostnames = |name: &str| Arc::new([mk_host(name)].into());
    let mut existing = mk_existing();
    existing.signers.push(SignerTrust { name: "other".to_owned(), ..existing.signers[0].clone() });
    existing.signers[1].attachment.hostnames.insert(mk_host("i.example"));
    existing.signers[0].attachment.hostnames.insert(mk_host("i.example"));
    let reason_beside = |older: RoutePlan, younger: RoutePlan| {
        let (_, verdicts) = existing.resolve_at(&["gateway.example", "h.example", "i.example"], &[older, younger]);
        assert_eq!(verdicts[0].programmed, Ok(()));
        reason(&verdicts[1].programmed)
    };
    let older = || mk_of("a", "older", 1, "/api".parse().unwrap());
    let younger = || mk_of("b", "younger", 2, "/API/v1".parse().unwrap());
    let at = |plan: RoutePlan, name: &str| RoutePlan { hostnames: hostnames(name), ..plan };
    assert_eq!(reason_beside(older(), younger()), "Conflicted");
    assert_eq!(reason_beside(older(), at(younger(), "h.example")), "Conflicted");
    assert_eq!(reason_beside(at(older(), "i.example"), at(younger(), "h.example")), "");
    assert_eq!(reason_beside(older(), RoutePlan { signer: "other".to_owned(), ..younger() }), "");
    let for_a = || RoutePlan { addons: addons("a"), ..older() };
    assert_eq!(reason_beside(for_a(), younger()), "Conflicted");
    assert_eq!(reason_beside(for_a(), RoutePlan { addons: addons("b"), ..younger() }), "");
    let for_c1 = || RoutePlan { clusters: clusters("c1"), ..older() };
    assert_eq!(reason_beside(for_c1(), younger()), "Conflicted");
    assert_eq!(reason_beside(for_c1(), RoutePlan { clusters: clusters("c2"), ..younger() }), "");
}

#[test]
fn a_route_for_other_clusters_refuses_no_request_read_alike() {
    let clusters = |name: &str| Arc::new(Clusters::Names([name.parse().unwrap()].into()));
    let older = |cluster| RoutePlan { clusters: clusters(cluster), ..mk_of("a", "older", 1, "/API".parse().unwrap()) };
    let younger = RoutePlan { clusters: clusters("c1"), ..mk_of("b", "younger", 2, "/api".parse().unwrap()) };
    let (table, verdicts) = mk_existing().resolve(&[older("c2"), younger.clone()]);
    assert_eq!(verdicts[1].programmed, Ok(()));
    assert_eq!(called(&table, "/api").unwrap().namespace, "b");
    assert!(called(&table, "/Api").is_err());
    let (table, verdicts) = mk_existing().resolve(&[older("c1"), younger]);
    assert_eq!(reason(&verdicts[1].programmed), "Conflicted");
    assert!(called(&table, "/api").is_err());
}

#[test]
fn paths_of_one_owner_that_are_read_alike_stay_in_the_table() {
    let cause =
        "some backends read the path /Api as /api of the older AddOnRoute a/older: requests for both are refused";
    for (path, programmed) in [("/API/v1", Ok(())), ("/Api", Err(RouteProblem::new("Conflicted", cause)))] {
        let plans = [("older", 1, "/api"), ("younger", 2, path)]
            .map(|(name, created, path)| mk_of("a", name, created, path.parse().unwrap()));
        let (table, verdicts) = mk_existing().resolve(&plans);
        assert_eq!(verdicts[1].programmed, programmed);
        assert_eq!(table.names().filter(|name| name.name == "younger").count(), 2, "one for each addon");
    }
}

proptest! {
    /// Whatever paths a younger route of another namespace has, the requests of older ones go where they went before,
    /// except those that its path matches as written.
    #[test]
    fn a_younger_route_takes_requests_only_as_written(
        older in collection::btree_set("(/[aA]|/[aA][.]b|/[{]cluster[}]){0,3}", 1..4),
        younger in "(/[aA]|/[aA][.]b|/[{]cluster[}]){1,3}",
        call in "(/[aA]|/%61|/[aA][.]b|/a;b|/c1){0,3}/?",
        same_owner in any::<bool>(),
    ) {
        let read = |path: &str| format!("/{}", path.trim_start_matches('/')).parse::<PathPattern>().unwrap();
        let plan = |(at, path): (usize, &String)| {
            let namespace = if same_owner { "ns" } else { ["ns", "a", "c"][at % 3] };
            mk_of(namespace, &format!("older-{at}"), 1, read(path))
        };
        let plans: Vec<RoutePlan> = older.iter().enumerate().map(plan).collect();
        let mut existing = mk_existing();
        let namespaces = ["ns", "a", "b", "c"].map(str::to_owned).into();
        existing.signers = vec![mk_signer(Attachment { namespaces, ..Attachment::default() })];
        let call = if call.is_empty() { "/" } else { &call };
        let before = called(&existing.resolve(&plans).0, call);
        let younger = mk_of("b", "younger", 2, read(&younger));
        let after = called(&existing.resolve(&[&plans[..], std::slice::from_ref(&younger)].concat()).0, call);
        if let (Ok(_), Ok(path)) = (&before, SafePath::parse(call)) {
            let is_taken = younger.paths[0].path.matches(path.below(0));
            prop_assert!(after == before || is_taken, "{before:?} {after:?}");
        }
    }
}
