//! What the process says if it cannot start, and how it reports its state after it has started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use addon_signer::process::registry_age::AgeBounds;
use addon_signer::process::{HubOptions, HubProcess, Roles};
use addon_signer_api::AddOnRoute;
use addon_signer_api::route::CONDITION_ACCEPTED;
use addon_signer_core::lease::LEASE_NAME;
use addon_signer_platform::clock::Clock;
use futures::future::join_all;
use hyper::{Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Whole, get, mk_whole, options, prepare};
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::{TIMEOUT, apply_route, change_signer, deploy};
use test_kit::lease::{change, leases};
use test_kit::log::capture;
use test_kit::quick::as_usual;
use test_kit::{TestHub, wait_for, wait_until};

/// What happens at once takes less than this.
const SOON: Duration = Duration::from_secs(3);

async fn refused(client: Client, options: HubOptions) -> String {
    let started =
        async { HubProcess::prepare(client, options, Clock::default()).await?.run(CancellationToken::new()).await };
    format!("{:#}", wait_for(TIMEOUT, "the process to end", started).await.unwrap_err())
}

/// The end of the path that requests have.
const REQUESTS: &str = "/certificatesigningrequests";

/// What an API server answers when it is asked for some objects: a code and a message, or what it knows.
type Fault = Option<(u16, &'static str)>;

/// A client of an API server that may refuse to list what is at this path, and how often it was asked for that.
async fn mk_refused(hub: &TestHub, path: &'static str, fault: Fault) -> (Client, watch::Sender<Fault>, Arc<AtomicU32>) {
    mk_refused_after(hub, path, 0, fault).await
}

/// The same, but it answers this many times before.
async fn mk_refused_after(
    hub: &TestHub,
    path: &'static str,
    answered: u32,
    fault: Fault,
) -> (Client, watch::Sender<Fault>, Arc<AtomicU32>) {
    let client = hub.client_as(HUB_USER, &HUB_GROUPS).await;
    let (asked, fault) = (Arc::new(AtomicU32::new(0)), watch::Sender::new(fault));
    let (count, now) = (Arc::clone(&asked), fault.subscribe());
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_asked = request.uri().path().ends_with(path);
        let before = count.fetch_add(u32::from(is_asked), Ordering::Relaxed);
        let (client, fault) = (client.clone(), now.borrow().filter(|_| is_asked && before >= answered));
        async move {
            let Some((code, message)) = fault else { return client.send(request).await };
            let status = json!({ "kind": "Status", "status": "Failure", "code": code, "message": message });
            Ok(Response::builder().status(code).body(Body::from(status.to_string().into_bytes())).unwrap())
        }
    });
    (Client::new(service, "default"), fault, asked)
}

/// Waits until `/readyz` fails with this text.
async fn not_ready(whole: &Whole, text: &str) {
    wait_until(TIMEOUT, text, async || {
        let (status, answer) = get(whole.metrics, "/readyz").await;
        (status == 503 && answer.contains(text)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let hub = TestHub::start().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let client = hub.client_as(HUB_USER, &HUB_GROUPS).await;
    let gateway = refused(client.clone(), HubOptions { gateway_listen: address, ..options() }).await;
    assert!(gateway.contains(&format!("the gateway cannot listen on {address}")), "{gateway}");
    let metrics = refused(client, HubOptions { metrics_listen: address, ..options() }).await;
    assert!(metrics.contains(&format!("cannot listen for metrics on {address}")), "{metrics}");
}

#[tokio::test]
async fn missing_rights_and_a_missing_crd_are_named() {
    let hub = TestHub::start_without_ours().await;
    if !hub.is_real() {
        eprintln!("skipped: the stand-in has no RBAC and always knows AddOnSigner");
        return;
    }
    let nobody = refused(hub.client_as("nobody", &HUB_GROUPS).await, options()).await;
    assert!(
        nobody.contains("nobody cannot list certificatesigningrequests; the chart's role addon-signer-hub allows it"),
        "{nobody}"
    );
    let admin = hub.client_as("root", &["system:masters"]).await;
    let error = refused(admin, options()).await;
    assert!(error.contains("install the chart first"), "{error}");
}

#[tokio::test]
async fn an_api_server_that_refuses_the_hub_ends_it() {
    let hub = TestHub::start().await;
    deploy(&hub).await;
    let cases = [
        (REQUESTS, "list certificatesigningrequests"),
        ("/pods", "list pods in the namespace addon-signer"),
        ("/namespaces/addon-signer/services", "list services in the namespace addon-signer"),
        ("/addonroutes", "list addonroutes"),
        (
            "/managedclusteraddons.addon.open-cluster-management.io",
            "get the CustomResourceDefinition managedclusteraddons.addon.open-cluster-management.io",
        ),
    ];
    join_all(cases.map(|(path, what)| assert_refused(&hub, path, what))).await;
}

async fn assert_refused(hub: &TestHub, path: &'static str, what: &str) {
    let (client, _fault, asked) = mk_refused(hub, path, Some((403, "you may not"))).await;
    let error = refused(client, options()).await;
    let sentence = format!("{HUB_USER} cannot {what}; the chart's role addon-signer-hub allows it: ");
    assert!(error.starts_with(&sentence), "{error}");
    assert!(error.contains("you may not"), "{error}");
    assert!(asked.load(Ordering::Relaxed) > 1, "one refusal may be that of an API server that starts");
}

#[tokio::test]
async fn gateway_without_its_rights_is_told_where_they_are() {
    let hub = TestHub::start().await;
    deploy(&hub).await;
    let registry_age = AgeBounds { outdated: Some(Duration::from_secs(600)), ..AgeBounds::default() };
    // The account of the tests may read this Lease.
    let options = HubOptions { roles: Roles::Gateway, replica: LEASE_NAME.to_owned(), registry_age, ..options() };
    for (path, what) in [
        ("/leases/addon-signer", "get the Lease addon-signer"),
        ("/configmaps", "list the ConfigMap addon-signer-trust"),
    ] {
        let (client, ..) = mk_refused(&hub, path, Some((403, "you may not"))).await;
        let error = refused(client, options.clone()).await;
        let sentence = format!(
            "{HUB_USER} cannot {what} in the namespace addon-signer; the chart's role addon-signer-gateway allows it: "
        );
        assert!(error.starts_with(&sentence), "{error}");
    }
}

#[tokio::test]
async fn an_api_server_that_is_away_is_named_and_waited_for() {
    as_usual();
    let hub = TestHub::start().await;
    prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    hub.pause().await;
    let whole = Whole::start(&hub, Clock::default()).await;
    not_ready(&whole, "the hub is not running yet: the API server does not answer; check the kubeconfig").await;
    assert_eq!(get(whole.metrics, "/healthz").await.0, 200);
    assert!(get(whole.metrics, "/metrics").await.1.contains("addon_signer_ledger_up 0"));
    tokio::time::timeout(SOON, whole.stop()).await.unwrap().unwrap();

    let whole = Whole::start(&hub, Clock::default()).await;
    not_ready(&whole, "the API server does not answer").await;
    hub.resume().await;
    wait_until(TIMEOUT, "readiness", async || (get(whole.metrics, "/readyz").await.0 == 200).then_some(())).await;
}

#[tokio::test]
async fn overloaded_api_server_is_retried_and_reasons_logged_once() {
    let hub = TestHub::start().await;
    prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let (log, _guard) = capture("warn");
    let (client, fault, asked) = mk_refused(&hub, REQUESTS, Some((503, "etcd is away"))).await;
    let whole = Whole::start_with(client, options(), Clock::default()).await;
    not_ready(&whole, "the hub is not running yet: the API server cannot answer now: etcd is away").await;
    wait_until(TIMEOUT, "the second question", async || (asked.load(Ordering::Relaxed) >= 2).then_some(())).await;
    let lease = leases(&hub.admin().await).get_opt("addon-signer").await.unwrap();
    assert!(lease.is_none(), "it may lack the rights to lead: {lease:?}");
    fault.send_replace(Some((429, "slow down")));
    not_ready(&whole, "the API server cannot answer now: slow down").await;
    // An API server that has just started refuses what it allows later.
    fault.send_replace(Some((403, "you may not")));
    not_ready(&whole, "cannot list certificatesigningrequests").await;
    fault.send_replace(None);
    wait_until(TIMEOUT, "readiness", async || (get(whole.metrics, "/readyz").await.0 == 200).then_some(())).await;
    let lines: Vec<String> =
        log.text().lines().filter(|line| line.contains("cannot run yet")).map(Into::into).collect();
    let expected = ["etcd is away", "slow down", "you may not"];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    assert!(lines.iter().zip(expected).all(|(line, expected)| line.contains(expected)), "{lines:?}");
}

#[tokio::test]
async fn an_expired_certificate_of_the_gateway_is_no_readiness() {
    let hub = TestHub::start().await;
    prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let clock = Clock::default();
    let whole = Whole::start(&hub, clock.clone()).await;
    let ready = async || (get(whole.metrics, "/readyz").await.0 == 200).then_some(());
    wait_until(TIMEOUT, "readiness", ready).await;
    hub.pause().await; // the gateway gets no new certificate
    clock.advance(Duration::from_secs(25 * 3_600));
    let (status, text) = get(whole.metrics, "/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("the gateway has no valid certificate"), "{text}");
    hub.resume().await;
    wait_until(TIMEOUT, "readiness", ready).await;
}

/// Agents would get 503 for each request, or 404 once only their AddOnSigner is known; or 502, because each backend
/// could be a protected address.
#[tokio::test]
async fn hub_without_routes_or_protected_addresses_is_not_ready() {
    // The hub first asks whether it may read pods.
    for (path, answered, missing) in [
        ("/addonroutes", 1, "AddOnRoutes and Services have not been read yet"),
        ("/endpointslices", 0, "AddOnRoutes and Services have not been read yet"),
        ("/pods", 1, "the pods and Services of this namespace have not been read yet"),
    ] {
        let hub = TestHub::start().await;
        let admin = prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
        let spec = json!({
            "signer": "telemetry",
            "match": { "http": [{ "path": "/x" }] },
            "backend": { "service": { "name": "receive", "port": 80 } },
        });
        apply_route(&admin, "default", "to-service", spec).await;
        let first = Whole::start(&hub, Clock::default()).await;
        let routes: Api<AddOnRoute> = Api::namespaced(admin, "default");
        wait_until(TIMEOUT, "the route to be accepted", async || {
            let status = routes.get("to-service").await.unwrap().status?;
            let accepted = |it: &&Condition| it.type_ == CONDITION_ACCEPTED && it.status == "True";
            status.conditions.iter().find(accepted).map(drop)
        })
        .await;
        first.stop().await.unwrap();
        let (client, fault, _) = mk_refused_after(&hub, path, answered, Some((500, "not now"))).await;
        let whole = Whole::start_with(client, options(), Clock::default()).await;
        not_ready(&whole, missing).await;
        fault.send_replace(None);
        wait_until(TIMEOUT, "readiness", async || (get(whole.metrics, "/readyz").await.0 == 200).then_some(())).await;
    }
}

#[tokio::test]
async fn readiness_and_metrics_are_served() {
    as_usual();
    let (_hub, _, whole) = mk_whole("127.0.0.1:9".parse().unwrap()).await;
    wait_until(TIMEOUT, "readiness", async || {
        let (status, _) = get(whole.metrics, "/readyz").await;
        (status == 200).then_some(())
    })
    .await;
    assert_eq!(get(whole.metrics, "/healthz").await.0, 200);
    let (_, text) = get(whole.metrics, "/metrics").await;
    assert!(text.contains("addon_signer_certificates_issued_total{signer=\"gateway-serving\"} 1"), "{text}");
    assert!(text.contains("addon_signer_gateway_requests_in_flight 0"), "{text}");
    let end = |signer: &str| {
        let name = format!("addon_signer_gateway_certificate_end_timestamp_seconds{{signer=\"{signer}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(name.as_str())?.parse::<i64>().ok()).unwrap()
    };
    assert!(end("gateway-serving") > Clock::default().now().unix());
    assert_eq!(end("gateway-client"), 0, "no route needs one");
    let left = text.lines().find_map(|line| line.strip_prefix("addon_signer_ledger_available_bytes{} ")).unwrap();
    assert!(left.parse::<u64>().unwrap() > 0, "{left}");
    tokio::time::timeout(Duration::from_secs(15), whole.stop()).await.unwrap().unwrap();
}

/// Kubernetes must not take the gateway out of service because the hub cannot sign.
#[tokio::test]
async fn readiness_says_that_the_ledger_is_away_and_does_not_fail() {
    as_usual();
    let (_hub, admin, whole) = mk_whole("127.0.0.1:9".parse().unwrap()).await;
    wait_until(TIMEOUT, "readiness", async || get(whole.metrics, "/readyz").await.1.ends_with("\nok\n").then_some(()))
        .await;
    let mut other =
        SqliteConnectOptions::new().filename(whole.ledger.path().join("ledger.db")).connect().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    change_signer(&admin, json!({ "spec": { "certificate": { "duration": "23h" } } })).await;
    let output = wait_until(TIMEOUT, "the ledger to be away", async || {
        let (status, text) = get(whole.metrics, "/readyz").await;
        text.contains("ok; nothing is signed now: the ledger sqlite://").then_some(status)
    })
    .await;
    assert_eq!(output, 200);
    assert!(get(whole.metrics, "/metrics").await.1.contains("addon_signer_ledger_up 0"));
    drop(other);
    wait_until(TIMEOUT, "the ledger to be back", async || {
        get(whole.metrics, "/metrics").await.1.contains("addon_signer_ledger_up 1").then_some(())
    })
    .await;
}

#[tokio::test]
async fn process_awaiting_lease_says_so_and_ends_when_it_is_stolen() {
    let hub = TestHub::start().await;
    prepare(&hub, "127.0.0.1:9".parse().unwrap(), "24h").await;
    let leases = leases(&hub.admin().await);
    leases.create(&PostParams::default(), &held_by("pod-1")).await.unwrap();
    let whole = Whole::start(&hub, Clock::default()).await;
    let waiting = wait_until(TIMEOUT, "a process that waits", async || {
        let (_, text) = get(whole.metrics, "/readyz").await;
        text.contains("held by").then_some(text)
    })
    .await;
    assert!(waiting.starts_with("HTTP/1.0 503"), "{waiting}");
    assert!(waiting.ends_with("\r\n\r\nwaiting for the Lease addon-signer, held by pod-1\n"), "{waiting}");
    assert_eq!(get(whole.metrics, "/healthz").await.0, 200);

    change(&leases, |spec| spec.holder_identity = Some(String::new())).await;
    wait_until(TIMEOUT, "readiness", async || (get(whole.metrics, "/readyz").await.0 == 200).then_some(())).await;
    let taken = leases.get("addon-signer").await.unwrap().spec.unwrap();
    assert_eq!(taken.lease_transitions, Some(42));
    assert!(taken.holder_identity.unwrap().starts_with("hub_"));

    change(&leases, |spec| spec.holder_identity = Some("pod-2".to_owned())).await;
    let error = whole.ended().await.unwrap_err();
    assert!(format!("{error:#}").contains("pod-2 holds the Lease addon-signer now; this hub exits"), "{error:#}");
}

fn held_by(holder: &str) -> Lease {
    let lease = json!({
        "metadata": { "name": "addon-signer" },
        "spec": { "holderIdentity": holder, "leaseTransitions": 41, "leaseDurationSeconds": 3600 },
    });
    serde_json::from_value(lease).unwrap()
}
