//! What AddOnRoutes refer to.

use std::net::SocketAddr;

use super::*;

#[test]
fn paths_without_a_usable_backend_stay_and_are_told_why() {
    let existing = Existing::new();
    let service = |name: &str, port| mk_backend(BackendTarget::Service { name: name.to_owned(), port });
    let address = |text: &str| mk_backend(BackendTarget::Address(text.parse::<SocketAddr>().unwrap()));
    let tls = |ca| Some(mk_tls(ca));
    for (backend, expected) in [
        (service("gone", 80), "BackendNotFound"),
        (service("web", 81), "BackendNotFound"),
        (service("elsewhere", 80), "RefNotPermitted"),
        (service("web", 1), "UnsupportedProtocol"),
        (service("web", 443), "InvalidCACertificateRef"),
        (BackendRef { tls: tls(CaRef::Bundle("unread".into())), ..service("web", 443) }, REASON_PENDING),
        (service("unread", 80), REASON_PENDING),
        (BackendRef { tls: tls(CaRef::Bundle("broken".into())), ..service("web", 443) }, "InvalidCACertificateRef"),
        (
            BackendRef {
                protocol: Some(Protocol::Http),
                tls: tls(CaRef::Inline(BackendAnchors::default())),
                ..service("web", 80)
            },
            "UnsupportedProtocol",
        ),
        (address("10.0.0.1:80"), "RefNotPermitted"),
    ] {
        let plan = RoutePlan { backend, ..mk_plan() };
        let verdict = existing.verdict(plan.clone());
        let reasons = [&verdict.accepted, &verdict.resolved, &verdict.programmed].map(reason);
        let programmed = if expected == REASON_PENDING { REASON_PENDING } else { "Invalid" };
        assert_eq!(reasons, ["", expected, programmed], "{verdict:?}");
        let (table, _) = existing.resolve(&[plan]);
        let routes = table.of("s", &"a".parse().unwrap());
        assert!(routes[0].backend.is_err(), "no shorter route may get its requests");
    }
}

#[test]
fn a_route_keeps_its_backend_until_another_was_read() {
    let mut existing = Existing::new();
    let (table, _) = existing.resolve(&[mk_plan()]);
    existing.before = table.backends_by_name();
    let service = |name: &str| RoutePlan {
        backend: mk_backend(BackendTarget::Service { name: name.to_owned(), port: 80 }),
        ..mk_plan()
    };
    for (name, expected) in [("unread", Ok(())), ("gone", Err("BackendNotFound"))] {
        let verdict = existing.verdict(service(name));
        assert_eq!(verdict.resolved.map_err(|problem| problem.reason), expected, "{name}");
    }
    let (table, _) = existing.resolve(&[service("unread")]);
    let authority = table.backends().next().unwrap().authority.clone();
    assert_eq!(authority, "web.ns.svc:80");
    existing.backends().refusal = Some("it may not list services".to_owned());
    let verdict = existing.verdict(service("unread"));
    let sentence = "the hub cannot read the Service unread: it may not list services";
    assert_eq!(verdict.resolved, Err(RouteProblem::new("RefNotPermitted", sentence)));
}

#[test]
fn services_are_read_in_a_bounded_number_of_namespaces() {
    let mut existing = Existing::new();
    let selector = Some(Vec::new());
    existing.signers = vec![mk_signer(Attachment { selector, ..Attachment::default() })];
    let namespace = |at: usize| format!("ns{at}");
    existing.namespaces = (0..=MOST_NAMESPACES).map(|at| (namespace(at), Labels::new())).collect();
    let of = |at: usize, name: &str| {
        let plan = mk_named(name, i64::try_from(at).unwrap(), &format!("/{at}/{name}"));
        RoutePlan { name: RouteName { namespace: namespace(at), ..plan.name }, ..plan }
    };
    let mut plans: Vec<_> = (0..=MOST_NAMESPACES).rev().map(|at| of(at, "r")).collect();
    plans.push(RoutePlan { created: Timestamp::from_unix(1_000), ..of(0, "later") });
    let Resolved { verdicts, wanted, .. } = existing.resolved(&[], &plans);
    assert_eq!(wanted.len(), MOST_NAMESPACES);
    let refused: Vec<_> = verdicts.iter().filter(|(_, verdict)| reason(&verdict.resolved) == "LimitExceeded").collect();
    assert_eq!(refused[0].0.namespace, namespace(MOST_NAMESPACES));
    assert_eq!(refused.len(), 1);
}

#[test]
fn a_service_leads_to_the_endpoints_of_its_port() {
    let existing = Existing::new();
    let find = |backend: &BackendRef| Arc::unwrap_or_clone(existing.references.find("ns", backend).unwrap());
    let plain = find(&mk_backend(BackendTarget::Service { name: "web".to_owned(), port: 80 }));
    assert_eq!(plain.addresses, ["10.0.0.1:8080", "10.0.0.2:8080"].map(|text| text.parse().unwrap()));
    assert_eq!((plain.authority.as_str(), plain.protocol, plain.tls), ("web.ns.svc:80", Protocol::Http, None));
    let by_address = find(&mk_backend(BackendTarget::Address("127.0.0.1:9".parse().unwrap())));
    assert_eq!((by_address.authority.as_str(), by_address.is_by_address), ("127.0.0.1:9", true));
    let named = mk_backend(BackendTarget::Service { name: "web".to_owned(), port: 443 });
    let tls = find(&BackendRef { tls: Some(mk_tls(CaRef::Inline(BackendAnchors::default()))), ..named });
    assert_eq!((tls.protocol, tls.tls.unwrap().server_name.as_str()), (Protocol::Https, "web.ns.svc"));
}

/// The author of EndpointSlices may name any address: CVE-2021-25740.
#[test]
fn endpoints_that_no_backend_may_have_are_refused() {
    for refused in ["127.0.0.1", "169.254.169.254", "::1", "fe80::1"] {
        let mut existing = Existing::new();
        let slices = existing.backends().endpoints.values_mut().flat_map(BTreeMap::values_mut);
        slices.for_each(|slice| Arc::make_mut(slice).addresses.push(refused.parse().unwrap()));
        let verdict = existing.verdict(mk_plan());
        assert_eq!(reason(&verdict.resolved), "RefNotPermitted", "{refused}");
    }
}

#[test]
fn the_route_or_the_service_says_the_protocol() {
    let find = |app_protocol: Option<&str>, named: BackendRef| {
        let mut existing = Existing::new();
        let service = existing.backends().services.get_mut("web").unwrap().as_mut().unwrap();
        service.ports[0].app_protocol = app_protocol.map(str::to_owned);
        existing.references.find("ns", &named).map(|backend| backend.protocol)
    };
    let service = || mk_backend(BackendTarget::Service { name: "web".to_owned(), port: 80 });
    let with_tls = || BackendRef { tls: Some(mk_tls(CaRef::Inline(BackendAnchors::default()))), ..service() };
    let grpc = |named: BackendRef| BackendRef { default_protocol: Protocol::H2c, ..named };
    for (app_protocol, named, expected) in [
        (None, service(), Protocol::Http),
        (None, with_tls(), Protocol::Https),
        (None, grpc(service()), Protocol::H2c),
        (None, grpc(with_tls()), Protocol::H2),
        (Some("kubernetes.io/ws"), service(), Protocol::Http),
        (Some("kubernetes.io/h2c"), service(), Protocol::H2c),
        (Some("grpc"), service(), Protocol::H2c),
        (Some("grpc"), grpc(with_tls()), Protocol::H2),
        (Some("https"), with_tls(), Protocol::Https),
        (Some("kubernetes.io/wss"), with_tls(), Protocol::Wss),
        (Some("http"), BackendRef { protocol: Some(Protocol::H2c), ..service() }, Protocol::H2c),
    ] {
        assert_eq!(find(app_protocol, named.clone()), Ok(expected), "{app_protocol:?} {named:?}");
    }
    for (app_protocol, named) in [
        (Some("http"), grpc(service())),
        (Some("kubernetes.io/wss"), grpc(with_tls())),
        (None, BackendRef { protocol: Some(Protocol::Http), ..grpc(service()) }),
        (Some("http"), with_tls()),
    ] {
        let refused = find(app_protocol, named.clone()).unwrap_err();
        assert_eq!(refused.reason, "UnsupportedProtocol", "{app_protocol:?} {named:?}");
        assert!(refused.cause.contains("set spec.backend.protocol to H"), "{}", refused.cause);
    }
}
