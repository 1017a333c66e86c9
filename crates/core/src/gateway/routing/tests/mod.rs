mod alike;
mod backends;

use std::time::Duration;

use super::*;
use crate::ca::bundle::Bundle;
use crate::gateway::attachment::Attachment;
use crate::gateway::route::{BackendAnchors, Protocol};
use crate::identity::Convention;

const GOLDEN_CA: &[u8] = include_bytes!("../../../../../../certs/profiles/client-ca.pem");
const SECOND: Duration = Duration::from_secs(1);

fn mk_host(name: &str) -> Host {
    name.parse().unwrap()
}

fn mk_signer(attachment: Attachment) -> SignerTrust {
    SignerTrust {
        name: "s".to_owned(),
        signer_name: "example.com/s".parse().unwrap(),
        addons: ["a", "b"].map(|addon| addon.parse().unwrap()).into(),
        convention: Convention::default(),
        client_anchors: Bundle::from_pem(GOLDEN_CA).unwrap(),
        renew_within: Default::default(),
        attachment,
    }
}

/// What exists: the AddOnSigner `s` lets the namespace `ns` attach routes, and claim `h.example`. There is the Service
/// `web` with the ports 80 and 443.
struct Existing {
    signers: Vec<SignerTrust>,
    namespaces: BTreeMap<String, Labels>,
    references: References,
    before: BTreeMap<RouteName, Arc<Backend>>,
}

impl Existing {
    fn new() -> Self {
        let attachment = Attachment {
            namespaces: ["ns".to_owned()].into(),
            hostnames: ["h.example", "unserved.example"].map(mk_host).into(),
            selector: None,
        };
        let port = |name: &str, port, app_protocol: Option<&str>| ServicePort {
            name: name.to_owned(),
            port,
            app_protocol: app_protocol.map(str::to_owned),
        };
        let ports = vec![port("plain", 80, None), port("tls", 443, Some("https")), port("odd", 1, Some("odd"))];
        let slice = |address: &str| {
            let addresses = vec![address.parse().unwrap()];
            Arc::new(Endpoints { addresses, ports: [("plain".to_owned(), 8080), ("tls".to_owned(), 8443)].into() })
        };
        let slices = [("one".to_owned(), slice("10.0.0.1")), ("two".to_owned(), slice("10.0.0.2"))].into();
        let external = ServiceFacts { is_external_name: true, ports: Vec::new() };
        let services = [
            ("web".to_owned(), Some(ServiceFacts { is_external_name: false, ports })),
            ("elsewhere".to_owned(), Some(external)),
            ("gone".to_owned(), None),
        ];
        let backends =
            Backends { services: services.into(), endpoints: [("web".to_owned(), slices)].into(), refusal: None };
        let references = References {
            backends: [("ns".to_owned(), backends)].into(),
            bundles: [("broken".to_owned(), Err("it has no certificate".to_owned()))].into(),
            networks: vec!["127.0.0.0/8".parse().unwrap()],
        };
        let signers = vec![mk_signer(attachment)];
        Self { signers, namespaces: BTreeMap::new(), references, before: BTreeMap::new() }
    }

    fn backends(&mut self) -> &mut Backends {
        self.references.backends.get_mut("ns").unwrap()
    }

    fn resolve(&self, plans: &[RoutePlan]) -> (RouteTable, Vec<Verdict>) {
        self.resolve_at(&["gateway.example", "h.example"], plans)
    }

    fn resolve_at(&self, names: &[&str], plans: &[RoutePlan]) -> (RouteTable, Vec<Verdict>) {
        let Resolved { table, verdicts, .. } = self.resolved(names, plans);
        (table, plans.iter().map(|plan| verdicts[&plan.name].clone()).collect())
    }

    fn resolved(&self, names: &[&str], plans: &[RoutePlan]) -> Resolved {
        let names: Vec<Host> = names.iter().map(|name| mk_host(name)).collect();
        let parents: Vec<Parent<'_>> = self.signers.iter().map(Parent::from).collect();
        let Self { namespaces, references, before, .. } = self;
        resolve(plans, &World { parents: &parents, names: &names, namespaces, references, before })
    }

    fn verdict(&self, plan: RoutePlan) -> Verdict {
        self.resolve(&[plan]).1.remove(0)
    }

    /// The paths of an addon in their order.
    fn paths(&self, plans: &[RoutePlan], addon: &str) -> Vec<String> {
        let (table, _) = self.resolve(plans);
        table
            .of("s", &addon.parse().unwrap())
            .iter()
            .map(|route| format!("{} {}", route.name.name, route.path))
            .collect()
    }
}

fn mk_plan() -> RoutePlan {
    mk_named("r", 1, "/x")
}

fn mk_named(name: &str, created: i64, path: &str) -> RoutePlan {
    let paths = [path]
        .map(|path| PathPlan {
            path: path.parse().unwrap(),
            methods: ["GET".to_owned()].into(),
            delete_with_content: false,
        })
        .to_vec();
    RoutePlan {
        name: RouteName { namespace: "ns".to_owned(), name: name.to_owned() },
        created: Timestamp::from_unix(created),
        signer: "s".to_owned(),
        addons: Arc::default(),
        clusters: Arc::new(Clusters::All),
        hostnames: Arc::default(),
        paths,
        backend: mk_backend(BackendTarget::Service { name: "web".to_owned(), port: 80 }),
        limits: RouteLimits {
            max_body: 1,
            connect: SECOND,
            first_byte: SECOND,
            idle: SECOND,
            requests_per_identity: None,
        },
    }
}

fn mk_backend(target: BackendTarget) -> BackendRef {
    BackendRef { target, protocol: None, default_protocol: Protocol::Http, tls: None }
}

fn mk_tls(ca: CaRef) -> TlsPlan {
    TlsPlan { ca, server_name: None, client_certificate: false }
}

fn reason(found: &Result<(), RouteProblem>) -> &'static str {
    found.as_ref().err().map_or("", |problem| problem.reason)
}

/// An AddOnRoute may name a thousand clusters, and have dozens of paths.
#[test]
fn all_paths_of_a_route_share_its_clusters() {
    let paths = ["/x", "/y"].map(|path| mk_named("r", 1, path).paths.remove(0)).to_vec();
    let (table, _) = Existing::new().resolve(&[RoutePlan { paths, ..mk_plan() }]);
    let routes = table.of("s", &"a".parse().unwrap());
    assert!(Arc::ptr_eq(&routes[0].clusters, &routes[1].clusters));
}

#[test]
fn a_route_that_may_attach_is_for_all_addons_of_its_signer() {
    let existing = Existing::new();
    let all_is_well = Verdict { accepted: Ok(()), resolved: Ok(()), has_endpoint: true, programmed: Ok(()) };
    assert_eq!(existing.verdict(mk_plan()), all_is_well);
    assert_eq!(existing.paths(&[mk_plan()], "a"), ["r /x"]);
    assert_eq!(existing.paths(&[mk_plan()], "b"), ["r /x"]);
    let table = existing.resolve(&[mk_plan()]).0;
    assert!(table.knows("s") && !table.knows("other"), "a request of an agent of another signer is not refused yet");
    let only_b = RoutePlan { addons: Arc::new(["b".parse().unwrap()].into()), ..mk_plan() };
    assert_eq!(existing.paths(&[only_b], "a"), [""; 0]);
}

#[test]
fn a_route_that_may_not_attach_has_no_effect_and_is_told_why() {
    let existing = Existing::new();
    let elsewhere = RouteName { namespace: "other".to_owned(), name: "r".to_owned() };
    let hostnames = |name: &str| Arc::new([mk_host(name)].into());
    for (plan, expected) in [
        (RoutePlan { signer: "gone".to_owned(), ..mk_plan() }, "NoMatchingParent"),
        (RoutePlan { name: elsewhere, ..mk_plan() }, "NotAllowedByListeners"),
        (RoutePlan { hostnames: hostnames("other.example"), ..mk_plan() }, "NoMatchingListenerHostname"),
        (RoutePlan { hostnames: hostnames("unserved.example"), ..mk_plan() }, "NoMatchingListenerHostname"),
        (RoutePlan { addons: Arc::new(["c".parse().unwrap()].into()), ..mk_plan() }, "UnsupportedValue"),
        (mk_named("r", 1, "/addons/a/x"), "UnsupportedValue"),
    ] {
        let verdict = existing.verdict(plan.clone());
        let reasons = [&verdict.accepted, &verdict.resolved, &verdict.programmed].map(reason);
        assert_eq!(reasons, [expected, REASON_PENDING, "Invalid"], "{verdict:?}");
        assert_eq!(existing.paths(std::slice::from_ref(&plan), "a"), [""; 0]);
        assert_eq!(existing.resolved(&[], &[plan]).wanted, WantedServices::new(), "nobody reads its Services");
    }
    let at_host = RoutePlan { hostnames: hostnames("h.example"), ..mk_plan() };
    assert_eq!(existing.verdict(at_host).accepted, Ok(()));
}

#[test]
fn a_path_does_not_repeat_the_prefix_that_is_removed() {
    let existing = Existing::new();
    for (path, due) in [("/addons/a/x/{cluster}", "/x/{cluster}"), ("/addons/b", "/")] {
        let cause = existing.verdict(mk_named("r", 1, path)).accepted.unwrap_err().cause;
        assert!(cause.starts_with(&format!("the path {path} must be {due}, because the gateway removes ")), "{cause}");
    }
    for path in ["/addons", "/addons/c/x", "/addons/{cluster}/x", "/x/addons/a"] {
        assert_eq!(existing.verdict(mk_named("r", 1, path)).accepted, Ok(()), "{path}");
    }
    let only_b = RoutePlan { addons: Arc::new(["b".parse().unwrap()].into()), ..mk_named("r", 1, "/addons/a/x") };
    assert_eq!(existing.verdict(only_b).accepted, Ok(()), "agents of b get below it by /addons/b/addons/a/x");
}

#[test]
fn a_route_kept_without_paths_is_only_told_why_it_may_not() {
    let existing = Existing::new();
    let elsewhere = RouteName { namespace: "other".to_owned(), name: "r".to_owned() };
    let tls = mk_tls(CaRef::Bundle("b".to_owned()));
    let backend = BackendRef { tls: Some(TlsPlan { client_certificate: true, ..tls }), ..mk_plan().backend };
    let refused = RoutePlan { name: elsewhere, backend, ..mk_plan() };
    assert_eq!(existing.verdict(refused.clone().without_paths()), existing.verdict(refused.clone()));
    assert!(refused.without_paths().backend.is_shown_certificate(), "the status says by which certificate");
    let Resolved { table, verdicts, wanted } = existing.resolved(&[], &[mk_plan().without_paths()]);
    assert_eq!((table.names().count(), verdicts.len(), wanted.len()), (0, 0, 0), "it must be read again");
}

#[test]
fn labels_of_a_namespace_decide_only_where_they_are_known() {
    let mut existing = Existing::new();
    let selector = Some(Vec::new()); // met by every namespace
    existing.signers = vec![mk_signer(Attachment { selector, ..Attachment::default() })];
    assert_eq!(reason(&existing.verdict(mk_plan()).accepted), "NotAllowedByListeners");
    existing.namespaces.insert("ns".to_owned(), Labels::new());
    assert_eq!(existing.verdict(mk_plan()).accepted, Ok(()));
}

#[test]
fn a_host_name_of_another_signer_may_not_be_used() {
    let (table, _) = Existing::new().resolve(&[]);
    assert!(table.may_use(&mk_host("h.example"), "s"));
    assert!(!table.may_use(&mk_host("h.example"), "another"));
    assert!(table.may_use(&mk_host("gateway.example"), "another"), "nobody claims it");
}

#[test]
fn a_name_of_the_gateway_may_be_written_with_capitals() {
    let (table, _) = Existing::new().resolve_at(&["Gateway.Example", "H.Example"], &[]);
    assert!(table.may_use(&mk_host("h.example"), "s"));
    assert!(!table.may_use(&mk_host("h.example"), "another"));
}

#[test]
fn the_first_name_of_the_gateway_stays_everybodys() {
    let mut existing = Existing::new();
    let hostnames = [mk_host("gateway.example")].into();
    existing.signers = vec![mk_signer(Attachment { hostnames, ..Attachment::default() })];
    assert!(existing.resolve(&[]).0.may_use(&mk_host("gateway.example"), "another"));
}

#[test]
fn the_older_of_two_routes_with_one_path_gets_its_calls() {
    let existing = Existing::new();
    let clusters = |names: &[&str]| Clusters::Names(names.iter().map(|name| name.parse().unwrap()).collect());
    let sets = |name: &str| Clusters::Sets([name.to_owned()].into());
    let older = mk_named("older", 1, "/x");
    let conflicted = |younger: RoutePlan, older: RoutePlan| {
        let (_, verdicts) = existing.resolve(&[younger, older]);
        assert_eq!(verdicts[1].programmed, Ok(()));
        reason(&verdicts[0].programmed)
    };
    let younger = |path: &str| mk_named("younger", 2, path);
    for path in ["/x", "/X", "/x/"] {
        assert_eq!(conflicted(younger(path), older.clone()), "Conflicted", "{path}");
    }
    for path in ["/x/y", "/", "/{cluster}", "/xx"] {
        assert_eq!(conflicted(younger(path), older.clone()), "", "{path}");
    }
    let of = |clusters: Clusters| RoutePlan { clusters: Arc::new(clusters), ..younger("/x") };
    let older_of = |clusters: Clusters| RoutePlan { clusters: Arc::new(clusters), ..older.clone() };
    assert_eq!(conflicted(of(clusters(&["c1"])), older_of(clusters(&["c2"]))), "");
    assert_eq!(conflicted(of(clusters(&["c1"])), older_of(clusters(&["c1", "c2"]))), "Conflicted");
    assert_eq!(conflicted(of(clusters(&["c1"])), older_of(sets("prod"))), "Conflicted", "it may join the set");
    assert_eq!(conflicted(of(sets("test")), older_of(sets("prod"))), "");
    let addons = |addon: &str, plan| RoutePlan { addons: Arc::new([addon.parse().unwrap()].into()), ..plan };
    assert_eq!(conflicted(addons("a", younger("/x")), addons("b", older.clone())), "");
    let at_host = RoutePlan { hostnames: Arc::new([mk_host("h.example")].into()), ..younger("/x") };
    assert_eq!(conflicted(at_host, older.clone()), "Conflicted", "the older one is at all names");
}

#[test]
fn routes_are_compared_by_age_and_then_by_name() {
    let existing = Existing::new();
    let plans = [mk_named("c", 1, "/y"), mk_named("b", 2, "/x/y"), mk_named("a", 1, "/x"), mk_named("d", 0, "/z")];
    assert_eq!(existing.paths(&plans, "a"), ["b /x/y", "d /z", "a /x", "c /y"]);
}

#[test]
fn an_addon_has_a_bounded_number_of_paths() {
    let existing = Existing::new();
    let mut plans: Vec<_> = (0..=MOST_PATHS).map(|at| mk_named(&format!("r{at}"), 1, &format!("/{at}"))).collect();
    plans.push(mk_named("younger", 2, "/younger"));
    let (table, verdicts) = existing.resolve(&plans);
    assert_eq!(table.of("s", &"a".parse().unwrap()).len(), MOST_PATHS);
    assert_eq!(reason(&verdicts.last().unwrap().programmed), "LimitExceeded");
    assert_eq!(verdicts.iter().filter(|verdict| verdict.programmed.is_ok()).count(), MOST_PATHS);
}
