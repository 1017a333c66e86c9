//! Tests of routes: which one a request gets, and which requests are refused because a backend may read their path
//! otherwise.

use std::time::Duration;

use super::*;
use crate::gateway::path::PathPattern;
use crate::gateway::route::{Backend, Clusters, Protocol, RouteLimits};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const GATEWAY: &str = "gateway.example";

/// The caller: the addon `a` on the cluster `c1`, with a certificate of the AddOnSigner `s`.
fn mk_identity() -> PeerIdentity {
    PeerIdentity { cluster: "c1".parse().unwrap(), addon: "a".parse().unwrap(), agent: "a".parse().unwrap() }
}

/// A route of one owner, with all methods, for all clusters. Each has another AddOnRoute, with the name of its path,
/// and is younger the longer its name.
fn mk_route(path: &str) -> Route {
    let backend = Backend {
        authority: "u".to_owned(),
        addresses: Vec::new(),
        is_by_address: false,
        protocol: Protocol::Http,
        tls: None,
    };
    let limits =
        RouteLimits { max_body: 1, connect: SECOND, first_byte: SECOND, idle: SECOND, requests_per_identity: None };
    Route {
        name: RouteName { namespace: "ns".to_owned(), name: path.to_owned() },
        created: Timestamp::from_unix(i64::try_from(path.len()).unwrap()),
        addons: Arc::new(["a".parse().unwrap()].into()),
        clusters: Arc::new(Clusters::All),
        hostnames: Arc::default(),
        path: path.parse().unwrap(),
        methods: ["GET", "POST"].map(str::to_owned).into(),
        delete_with_content: false,
        backend: Ok(Arc::new(backend)),
        limits,
    }
}

fn mk_table(routes: impl IntoIterator<Item = Route>) -> RouteTable {
    let mut table = RouteTable::of_signers(["s"]);
    for route in routes {
        table.add("s", &Arc::new(route));
    }
    table
}

/// The name of the AddOnRoute that gets a request.
fn called(table: &RouteTable, method: &Method, path: &str) -> Result<String, NoAccess> {
    called_at(table, GATEWAY, method, path)
}

fn called_at(table: &RouteTable, host: &str, method: &Method, path: &str) -> Result<String, NoAccess> {
    let identity = mk_identity();
    let path = SafePath::parse(path)?;
    let RequestTarget::Backend(skip) = target(&identity.addon, &path)? else { panic!("it is the gateway's own") };
    let caller = Caller { signer: "s", addon: &identity.addon, cluster: &identity.cluster, cluster_set: Some("prod") };
    let head = RequestHead { caller, host: &host.parse().unwrap(), method, path: path.below(skip) };
    route(table, &head).map(|route| route.name.name.clone())
}

#[test]
fn other_paths_than_the_gateways_own_are_of_the_callers_addon() {
    let identity = mk_identity();
    let found = |path: &str| target(&identity.addon, &SafePath::parse(path).unwrap());
    assert_eq!(found("/v1/whoami"), Ok(RequestTarget::WhoAmI));
    assert_eq!(found("/v1/bundle"), Ok(RequestTarget::Bundle));
    assert_eq!(found("/addons/a/v1/bundle"), Ok(RequestTarget::Backend(2)));
    assert_eq!(found("/addons/a"), Ok(RequestTarget::Backend(2)));
    assert_eq!(found("/addons/b/x"), Err(NoAccess::AnotherAddOn("b".to_owned())));
    assert_eq!(found("/addons"), Err(NoAccess::NotFound));
    for path in
        ["/", "/v1/metrics", "/v1/bundle/x", "/v1", "/pkg.Service/Method", "/.well-known/est", "/crl", "/ADDONS/b"]
    {
        assert_eq!(found(path), Ok(RequestTarget::Backend(0)), "{path}");
    }
}

#[test]
fn nothing_is_refused_before_the_routes_are_known() {
    assert_eq!(called(&RouteTable::default(), &Method::GET, "/x"), Err(NoAccess::NotReady));
    assert_eq!(called(&RouteTable::of_signers(["s"]), &Method::GET, "/x"), Err(NoAccess::NoRoute));
}

#[test]
fn the_longest_whole_segment_prefix_wins() {
    let table = mk_table(["/api", "/api/v1", "/api/v1/receive"].map(mk_route));
    let found = |path: &str| called(&table, &Method::GET, path);
    let is = |route: &str| Ok(route.to_owned());
    for before in ["", "/addons/a"] {
        let found = |path: &str| found(&format!("{before}{path}"));
        assert_eq!(found("/api/v1/receive"), is("/api/v1/receive"));
        assert_eq!(found("/api/v1/receive/"), is("/api/v1/receive"));
        assert_eq!(found("/api/v1/received"), is("/api/v1"));
        assert_eq!(found("/api/v10/x"), is("/api"));
        assert_eq!(found("/%61pi/%76%31/caf%C3%A9"), is("/api/v1"));
        assert_eq!(found("/apis"), Err(NoAccess::NoRoute));
    }
    assert_eq!(called(&mk_table([mk_route("/")]), &Method::GET, "/addons/a"), is("/"));
}

/// Each of these was let through by the gateway until routes were compared in their normal forms.
#[test]
fn no_other_reading_of_a_path_reaches_another_route() {
    let only_get = Route { methods: ["GET".to_owned()].into(), ..mk_route("/api/admin") };
    let table = mk_table([mk_route("/"), only_get]);
    let post = |path: &str| called(&table, &Method::POST, path);
    for path in [
        "/api/ADMIN",
        "/Api/admin",
        "/API/ADMIN/x",
        "/api/admin.",
        "/api/admin..",
        "/api/admin%20",
        "/api/admin%20.",
        "/api/admin.json",
        "/api/admin.JSON/x",
        "/api/admin.json.",
        "/api/admin%20.json",
        "/api/admin;v=1",
        "/api;v=1/admin",
        "/api/admin.json;v=1",
        "/api/admin%3bv=1",
        "/api/admin%253Bv=1",
        "/api/admin%3fx",
        "/api/admin%23x",
        "/api/admin%253fx",
        "/%2561pi/admin",
        "/api/%2561dmin/x",
        "/api/%25%36%31dmin",
        "/api/%ef%bd%81dmin",      // full-width a
        "/api/adm%c4%b1n",         // dotless i, whose capital is I
        "/api/%c2%aadmin",         // feminine ordinal indicator, which NFKC makes an a
        "/api/admin%ef%bc%8ejson", // full-width full stop
        "/api/admin%ef%bc%9bv",    // full-width semicolon
        "/%ef%bc%8561pi/admin",    // full-width percent sign
    ] {
        for before in ["", "/addons/a"] {
            assert_eq!(post(&format!("{before}{path}")), Err(PathError::Route.into()), "{path}");
        }
    }
    let is = |route: &str| Ok(route.to_owned());
    for path in ["/api/admins", "/api/admin-x", "/apis/admin", "/api/x/admin", "/api/x.json", "/API/x", "/x;v=1/api"] {
        assert_eq!(post(path), is("/"), "{path}");
    }
    assert_eq!(post("/api/admin"), Err(NoAccess::Method("GET".to_owned())));
    assert_eq!(called(&table, &Method::GET, "/api/admin/x;v=1"), is("/api/admin"));
    assert_eq!(called(&table, &Method::GET, "/%61pi/adm%69n"), is("/api/admin"));
}

#[test]
fn an_extension_is_cut_only_where_the_route_has_none() {
    let table = mk_table([mk_route("/"), mk_route("/a.b")]);
    assert_eq!(called(&table, &Method::GET, "/a.b.c"), Ok("/".to_owned()));
    assert_eq!(called(&table, &Method::GET, "/a.B"), Err(PathError::Route.into()));
    let table = mk_table([mk_route("/a"), mk_route("/a.b")]);
    assert_eq!(called(&table, &Method::GET, "/a.b"), Err(PathError::Route.into()), "some backend serves /a for it");
}

#[test]
fn paths_of_one_route_with_the_same_methods_need_no_such_care() {
    let same = |path: &str| Route { name: mk_route("/one").name, ..mk_route(path) };
    let is_one = Ok("/one".to_owned());
    assert_eq!(called(&mk_table([same("/"), same("/api")]), &Method::GET, "/API"), is_one);
    let other = Route { methods: ["GET".to_owned()].into(), ..same("/api") };
    assert_eq!(called(&mk_table([same("/"), other]), &Method::GET, "/API"), Err(PathError::Route.into()));
    let other = Route { delete_with_content: true, ..same("/api") };
    assert_eq!(called(&mk_table([same("/"), other]), &Method::GET, "/API"), Err(PathError::Route.into()));
    let table = mk_table([same("/"), same("/api/{cluster}")]);
    assert_eq!(called(&table, &Method::GET, "/API/c2"), Err(PathError::Route.into()));
}

/// A route of another namespace, which leads to a backend there.
fn mk_owned(owner: &str, created: i64, path: PathPattern) -> Route {
    let backend =
        Backend { authority: format!("u.{owner}"), ..Backend::clone(mk_route("/").backend.as_ref().unwrap()) };
    Route {
        name: RouteName { namespace: owner.to_owned(), name: owner.to_owned() },
        created: Timestamp::from_unix(created),
        path,
        backend: Ok(Arc::new(backend)),
        ..mk_route("/")
    }
}

/// Owners of routes must not be able to switch off each other's requests.
#[test]
fn a_younger_route_of_others_refuses_no_request_of_an_older_one() {
    let http = |path: &str| path.parse::<PathPattern>().unwrap();
    let grpc = |service: &str| PathPattern::grpc(service, Some("Push")).unwrap();
    for (call, written, read) in [
        ("/api/v1/receive", http("/api/v1/receive"), http("/API/v1/receive")),
        ("/api/v1/receive", http("/api/v1/receive"), http("/{cluster}/{cluster}/Receive")),
        ("/demo.v1.Metrics/Push", grpc("demo.v1.Metrics"), http("/demo.v1.metrics/push")),
        ("/files/report.json", http("/files/report.json"), http("/files/report")),
        ("/api/Admin", http("/"), http("/api/admin")),
    ] {
        let found = |written: &Route, read: Route| {
            called(&mk_table([read, written.clone()]), &Method::POST, call).map_err(|error| error.to_string())
        };
        let refused = || Err(PathError::Route.to_string());
        let older = mk_owned("a", 1, written.clone());
        let younger = || mk_owned("b", 2, read.clone());
        let for_others = Clusters::Names(["c2".parse().unwrap()].into());
        let is_a = Ok("a".to_owned());
        assert_eq!(found(&older, younger()), is_a, "{call}");
        assert_eq!(found(&older, Route { clusters: Arc::new(for_others), ..younger() }), is_a, "{call}");
        assert_eq!(found(&older, Route { backend: Err("gone".to_owned()), ..younger() }), is_a, "{call}");
        assert_eq!(found(&older, Route { created: older.created, ..younger() }), is_a, "{call}: the name decides");
        assert_eq!(found(&mk_owned("a", 3, written.clone()), younger()), refused(), "{call}");
        let same_backend = Route { backend: older.backend.clone(), ..younger() };
        assert_eq!(found(&older, same_backend), is_a, "{call}: where both lead does not matter");
        for created in [1, 3] {
            let own = mk_owned("a", created, written.clone());
            let name = RouteName { name: "b".to_owned(), ..own.name.clone() };
            assert_eq!(found(&own, Route { name, ..younger() }), refused(), "{call}");
            let get = || ["GET".to_owned()].into();
            assert_eq!(found(&own, Route { name: own.name.clone(), methods: get(), ..younger() }), refused(), "{call}");
        }
    }
}

#[test]
fn the_cluster_in_a_path_is_the_callers_own() {
    let table = mk_table([mk_route("/"), mk_route("/t/{cluster}/x")]);
    let found = |path: &str| called(&table, &Method::GET, path);
    let name = mk_route("/t/{cluster}/x").name;
    assert_eq!(found("/t/c1/x"), Ok(name.name.clone()));
    assert_eq!(found("/t/%631/x/y"), Ok(name.name.clone()));
    for path in ["/t/c2/x", "/t/C1/x", "/t/c1.json/x", "/t/c1;v/x"] {
        assert_eq!(found(path), Err(NoAccess::AnotherCluster(name.clone())), "{path}");
    }
    assert_eq!(found("/t/c1"), Ok("/".to_owned()));
}

#[test]
fn a_request_that_the_longest_route_refuses_goes_nowhere() {
    let clusters = |clusters: Clusters, path: &str| Route { clusters: Arc::new(clusters), ..mk_route(path) };
    let named = |name: &str| Clusters::Names([name.parse().unwrap()].into());
    let in_set = |name: &str| Clusters::Sets([name.to_owned()].into());
    for (closed, admits) in [
        (Clusters::All, true),
        (named("c1"), true),
        (named("c2"), false),
        (in_set("prod"), true),
        (in_set("test"), false),
    ] {
        let table = mk_table([mk_route("/"), clusters(closed, "/admin")]);
        let expected =
            if admits { Ok("/admin".to_owned()) } else { Err(NoAccess::ClusterNotAdmitted(mk_route("/admin").name)) };
        assert_eq!(called(&table, &Method::GET, "/admin/x"), expected);
    }
    // The same path for other clusters is another backend.
    let canary = Route { name: mk_route("/canary").name, ..clusters(named("c1"), "/x") };
    let table = mk_table([clusters(named("c2"), "/x"), canary]);
    assert_eq!(called(&table, &Method::GET, "/x"), Ok("/canary".to_owned()));
}

#[test]
fn of_two_routes_with_the_same_path_the_older_one_gets_the_call() {
    let route = |name: &str, created| Route {
        name: RouteName { namespace: "ns".to_owned(), name: name.to_owned() },
        created: Timestamp::from_unix(created),
        ..mk_route("/x")
    };
    let table = mk_table([route("b", 2), route("c", 1), route("a", 1)]);
    assert_eq!(called(&table, &Method::GET, "/x"), Ok("a".to_owned()));
}

#[test]
fn a_route_with_host_names_is_only_there() {
    let mut table = mk_table([
        mk_route("/"),
        Route { hostnames: Arc::new(["a.example".parse().unwrap()].into()), ..mk_route("/x") },
    ]);
    assert_eq!(called_at(&table, "a.example", &Method::GET, "/x"), Ok("/x".to_owned()));
    assert_eq!(called_at(&table, GATEWAY, &Method::GET, "/x"), Ok("/".to_owned()));
    let names =
        ["gateway.example", "a.example", "b.example", "192.0.2.7", "2001:DB8:0::7"].map(|name| name.parse().unwrap());
    table.reserve_host(&"a.example".parse().unwrap(), "s");
    table.reserve_host(&"b.example".parse().unwrap(), "another");
    let found = |authority: &str| host(authority, &names, &table, "s");
    for (authority, name) in [
        ("gateway.example", "gateway.example"),
        ("Gateway.Example:8443", "gateway.example"),
        ("gateway.example.", "gateway.example"),
        ("192.0.2.7:8443", "192.0.2.7"),
        ("[2001:db8::7]:8443", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:0DB8::0.0.0.7]:1", "2001:db8::7"),
        ("a.example", "a.example"),
    ] {
        assert_eq!(found(authority), Ok(name.parse().unwrap()));
    }
    for authority in [
        "[192.0.2.7]:8443",
        "gateway.example:008443",
        "2001:db8::7:8443",
        "b.example",
        "evil.example",
        "gateway.example.evil.example",
        "gateway.example:8443@evil.example",
        "evil.example/gateway.example",
        "user@gateway.example",
        "",
    ] {
        assert_eq!(found(authority), Err(NoAccess::Host(authority.to_owned())));
    }
}

#[test]
fn only_methods_that_have_a_use_for_content_may_have_it() {
    for method in ["POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"] {
        let method: Method = method.parse().unwrap();
        let has_use = ["POST", "PUT", "PATCH"].contains(&method.as_str());
        for deletes in [false, true] {
            assert_eq!(content(&method, false, deletes), Ok(RequestConnection::Shared), "{method}");
            let expected = match method {
                _ if has_use => Ok(RequestConnection::Shared),
                Method::DELETE if deletes => Ok(RequestConnection::Own),
                _ => Err(NoAccess::Content(method.clone())),
            };
            assert_eq!(content(&method, true, deletes), expected, "{method}");
        }
    }
}

proptest! {
    #[test]
    fn what_is_passed_on_never_leaves_the_prefix(path in "/addons/a/api[/a-zA-Z.%2eEfF5cC; \u{ff0e}\u{212a}]{0,24}") {
        let table = mk_table([mk_route("/api")]);
        if called(&table, &Method::GET, &path).is_ok() {
            let sent = SafePath::parse(&path).unwrap().below(2).as_sent();
            prop_assert!(path.ends_with(&sent));
            prop_assert!(sent.starts_with("/api"));
            prop_assert!(sent.split(['/', '\\']).all(|segment| segment != ".." && segment != "."));
        }
    }

    /// A backend that ignores case, parameters and trailing dots serves no client a path that another route of the same
    /// owner refuses.
    #[test]
    fn a_forgiving_backend_serves_no_path_another_route_refuses(path in "/[adminADMIN.;%20eE/]{1,16}") {
        let closed = Route { methods: ["GET".to_owned()].into(), ..mk_route("/admin") };
        let table = mk_table([mk_route("/"), closed]);
        if called(&table, &Method::POST, &path).is_ok() {
            let first = path.split('/').nth(1).unwrap().to_lowercase().replace("%20", " ").replace("%2e", ".");
            let first = first.split(';').next().unwrap().trim_end_matches(['.', ' ']);
            prop_assert!(first != "admin" && !(first.starts_with("admin.") && first.matches('.').count() == 1));
        }
    }
}
