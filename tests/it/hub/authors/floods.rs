//! An author makes the largest objects of a kind that the API server takes.

use std::cell::RefCell;
use std::fs;
use std::time::{Duration, Instant};

use addon_signer_api::AddOnRoute;
use addon_signer_core::oldest::MOST_ROUTES;
use futures::{StreamExt, stream};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use crate::hub::crash::kit::{Child, CrashWorld};
use crate::hub::{mk_csr, submit};
use test_kit::hub::{TIMEOUT, apply_route, certificate, change_signer};
use test_kit::objects::create_namespace;
use test_kit::soak::soak;
use test_kit::wait::wait_or_explain;
use test_kit::wait_until;

/// The namespace whose AddOnRoutes may attach.
const ALLOWED: &str = "observability";
/// One whose AddOnRoutes may not.
const OTHER: &str = "tenant";
const OWN: &str = "addon-signer";

/// How much memory the hub may take while it reads a flood, also of a gigabyte, and afterwards, in MB.
const PEAK: [u64; 2] = [60, 150];
const SETTLED: u64 = 20;
/// What each watch keeps for good: the buffer in which the largest object was read.
const BUFFER: u64 = 2;
/// The same for one that starts and meets the floods of all kinds.
const START: u64 = 120;

/// A kind that the hub watches, the namespace, and what an object of it is besides its padded metadata.
struct Kind {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespace: Option<&'static str>,
    content: fn(usize) -> Value,
    /// What the objects that stay in effect may cost, in MB.
    budget: u64,
}

fn kinds() -> Vec<Kind> {
    let kind = |api_version, kind, plural, namespace, content, budget| Kind {
        api_version,
        kind,
        plural,
        namespace,
        content,
        budget,
    };
    let nothing: fn(usize) -> Value = |_| json!({});
    vec![
        kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", Some(ALLOWED), slice, 5),
        kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", Some(OTHER), slice, 0),
        kind("v1", "Service", "services", Some(ALLOWED), service, 5),
        kind("v1", "Service", "services", Some(OTHER), service, 0),
        kind("v1", "Service", "services", Some(OWN), service, 5),
        kind("addon-signer.io/v1alpha1", "AddOnSigner", "addonsigners", None, signer, 10),
        kind("addon-signer.io/v1alpha1", "AddOnRoute", "addonroutes", Some(OTHER), route, 10),
        kind("addon-signer.io/v1alpha1", "AddOnRoute", "addonroutes", Some(ALLOWED), route, 10),
        kind("v1", "Namespace", "namespaces", None, nothing, 5),
        kind("v1", "Secret", "secrets", Some(OWN), nothing, 5),
        kind("v1", "ConfigMap", "configmaps", Some(OWN), nothing, 5),
        kind("cluster.open-cluster-management.io/v1", "ManagedCluster", "managedclusters", None, cluster, 5),
    ]
}

/// 18,000 ports: what a slice may have, and what nobody uses. They cost an API server a second, so only every fourth
/// one has them.
fn slice(at: usize) -> Value {
    let count = if at.is_multiple_of(4) { 18_000 } else { 1 };
    let ports: Vec<Value> = (0..count).map(|at| json!({ "name": format!("p{at}"), "port": 1 })).collect();
    json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.1.0.1"] }], "ports": ports })
}

fn service(at: usize) -> Value {
    json!({ "spec": { "clusterIP": "None", "ports": [{ "name": "p", "port": at + 1, "protocol": "TCP" }] } })
}

fn signer(at: usize) -> Value {
    json!({ "spec": { "signerName": format!("example.com/flood-{at}"), "addOns": [format!("flood-{at}")] } })
}

fn route(at: usize) -> Value {
    json!({ "spec": {
        "signer": "telemetry",
        "match": { "http": [{ "path": format!("/flood/{at}") }] },
        "backend": { "service": { "name": "receive", "port": 19291 } },
    } })
}

fn cluster(_: usize) -> Value {
    json!({ "spec": { "hubAcceptsClient": true } })
}

impl Kind {
    fn api(&self, admin: &Client) -> Api<DynamicObject> {
        let (group, version) = self.api_version.rsplit_once('/').unwrap_or(("", self.api_version));
        let kind = GroupVersionKind::gvk(group, version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        match self.namespace {
            Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
            None => Api::all_with(admin.clone(), &resource),
        }
    }

    /// An object of about a megabyte. Labels cost an API server seconds, because it notes who wrote each, so every
    /// fourth one has them.
    fn object(&self, at: usize) -> DynamicObject {
        let mut content = (self.content)(at);
        let is_slice = self.plural == "endpointslices";
        let is_slow = at.is_multiple_of(4);
        let mut labels: Map<String, Value> = Map::new();
        if is_slice {
            labels.insert("kubernetes.io/service-name".to_owned(), "receive".into());
        }
        let has_labels = is_slow && ["addonsigners", "namespaces"].contains(&self.plural);
        if has_labels {
            labels.extend((0..9_000).map(|at| (format!("padding.example/{at}"), "x".repeat(63).into())));
        }
        let owner = json!({ "apiVersion": "v1", "kind": "Pod", "uid": "u", "name": "x".repeat(1_100_000) });
        let owners: &[Value] = if has_labels || (is_slice && is_slow) { &[] } else { &[owner] };
        // Requests for steps, of which the API server takes 256 KiB.
        let asked = if ["addonsigners", "configmaps"].contains(&self.plural) { 20_000 } else { 0 };
        let requests = ["taint", "revoke-authority", "roll-back", "rotate", "authorities", "import"];
        let annotations: Map<String, Value> =
            requests.map(|name| (format!("addon-signer.io/{name}"), "a\n".repeat(asked).into())).into_iter().collect();
        let metadata = json!({
            "name": format!("flood-{at}"), "namespace": self.namespace, "labels": labels, "ownerReferences": owners,
            "annotations": annotations,
        });
        let object = content.as_object_mut().unwrap();
        object.insert("apiVersion".to_owned(), self.api_version.into());
        object.insert("kind".to_owned(), self.kind.into());
        object.insert("metadata".to_owned(), metadata);
        serde_json::from_value(content).unwrap()
    }
}

/// A field of the memory of a process, in MB.
fn memory(child: &Child, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.process.id())).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().nth(1)).unwrap();
    kib.parse::<u64>().unwrap() / 1024
}

/// Waits until a hub that has to do no more has its memory for a second.
async fn settled(child: &Child) -> u64 {
    let (mut last, mut since) = (0, Instant::now());
    wait_until(2 * TIMEOUT, "the memory of the hub to settle", async || {
        let now = memory(child, "RssAnon");
        if now.abs_diff(last) > 1 {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() > Duration::from_secs(1)).then_some(now)
    })
    .await
}

/// Forgets the peak (Linux, `/proc/PID/clear_refs`).
fn forget_peak(child: &Child) {
    fs::write(format!("/proc/{}/clear_refs", child.process.id()), "5").unwrap();
}

async fn is_served(world: &CrashWorld, child: &Child) {
    let name = submit(&world.hub, "spoke1", &mk_csr("spoke1", "telemetry")).await;
    let requests: Api<CertificateSigningRequest> = Api::all(world.admin.clone());
    let is_issued = async || certificate(&requests.get(&name).await.unwrap()).map(drop);
    wait_or_explain(3 * TIMEOUT, "a request to be answered", is_issued, || child.process.tail()).await;
    requests.delete(&name, &DeleteParams::default()).await.unwrap();
}

async fn mk_world() -> CrashWorld {
    let world = CrashWorld::start(&["spoke1"]).await;
    for namespace in [ALLOWED, OTHER] {
        create_namespace(&world.admin, namespace).await;
    }
    allow(&world, &[ALLOWED]).await;
    apply_route(&world.admin, ALLOWED, "receive", route(0)["spec"].clone()).await;
    world
}

/// Lets AddOnRoutes of these namespaces attach.
async fn allow(world: &CrashWorld, namespaces: &[&str]) {
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": ALLOWED } });
    let from = json!({ "spec": { "gateway": { "routesFrom": { "namespaces": namespaces, "selector": selector } } } });
    change_signer(&world.admin, from).await;
}

/// How many objects of a kind, of 1.2 MB each: 30 MB, and a gigabyte in the long form.
fn flood_size(world: &CrashWorld) -> usize {
    if world.hub.is_real() { soak(850, 25) } else { 2 }
}

/// Makes the objects of a kind, a few at a time.
async fn flood(world: &CrashWorld, kind: &Kind, count: usize) {
    let api = kind.api(&world.admin);
    stream::iter(0..count)
        .for_each_concurrent(4, |at| {
            let (api, object) = (&api, kind.object(at));
            async move {
                let last = RefCell::new(None);
                // An API server or an etcd that is busy with megabytes may take longer for an answer than one waits.
                let made = async || match api.create(&PostParams::default(), &object).await {
                    Ok(_) => Some(()),
                    Err(kube::Error::Api(status)) if status.is_already_exists() => Some(()),
                    Err(kube::Error::Api(status)) if status.code < 500 => panic!("{status}"),
                    Err(error) => {
                        last.replace(Some(error));
                        None
                    }
                };
                wait_or_explain(3 * TIMEOUT, "an object to be made", made, || format!("{:?}", last.borrow())).await;
            }
        })
        .await;
}

async fn clear(world: &CrashWorld, kind: &Kind, count: usize) {
    let api = kind.api(&world.admin);
    for at in 0..count {
        let name = format!("flood-{at}");
        wait_until(3 * TIMEOUT, "an object to be deleted", async || {
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_) => Some(()),
                Err(kube::Error::Api(status)) => status.is_not_found().then_some(()),
                Err(_) => None,
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_author_of_one_kind_of_objects_fills_memory() {
    let world = mk_world().await;
    let ledger = format!("sqlite://{}/ledger.db", world.dir().display());
    let child = world.start_patient_hub(&ledger);
    is_served(&world, &child).await;
    let (before, peak_before) = (settled(&child).await, memory(&child, "VmHWM"));
    let count = flood_size(&world);
    let left = count.min(25);
    let mut failures = Vec::new();
    for (buffers, kind) in (1..).zip(kinds()) {
        forget_peak(&child);
        flood(&world, &kind, count).await;
        is_served(&world, &child).await;
        let (peak, after) = (memory(&child, "VmHWM"), settled(&child).await);
        let taken = format!(
            "{} in {:?}: {before} MB before, {peak} at most where it was {peak_before}, {after} after",
            kind.plural, kind.namespace
        );
        println!("{taken}");
        let may_keep = soak(100, SETTLED + kind.budget + buffers * BUFFER);
        if peak > peak_before + soak(PEAK[1], PEAK[0]) || after > before + may_keep {
            failures.push(taken);
        }
        if left < count {
            clear(&world, &kind, count).await;
            world.hub.real().unwrap().compact().await;
            flood(&world, &kind, left).await;
        }
    }
    assert_eq!(failures, Vec::<String>::new());
    // One that starts meets all of them at once.
    child.kill();
    world.delete_lease().await;
    let child = world.start_patient_hub(&ledger);
    is_served(&world, &child).await;
    let (peak, after) = (memory(&child, "VmHWM"), settled(&child).await);
    let taken = format!("restart: {peak} MB at most, {after} after");
    println!("{taken}");
    // The allocator may keep what the pages of several kinds have taken.
    assert!(peak <= peak_before + START && after <= before + START, "{taken}; {before} before");
    // A deletion costs an API server as much as the object, and the hub reads those of all kinds alike.
    for kind in kinds().iter().step_by(soak(1, 4)) {
        clear(&world, kind, left).await;
    }
    is_served(&world, &child).await;
}

/// An AddOnRoute as large as its schema lets it be, which it is in memory too.
fn largest_route() -> Value {
    let long = "a".repeat(240);
    let methods: Vec<String> = (0..8).map(|at| format!("{long}{at}")).collect();
    let services = (0..32).map(|at| json!({ "service": format!("{long}{at}"), "methods": methods }));
    let clusters: Vec<String> = (0..1024).map(|at| format!("{at:063}")).collect();
    let ca = include_str!("../../../../certs/profiles/client-ca.pem");
    json!({
        "signer": "telemetry",
        "match": { "grpc": services.collect::<Vec<_>>() },
        "clusters": { "names": clusters },
        "backend": {
            "service": { "name": "receive", "port": 19291 },
            "tls": { "ca": ca.repeat((64 << 10) / ca.len()) },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_without_consent_fill_no_memory() {
    let world = mk_world().await;
    let child = world.start_patient_hub(&format!("sqlite://{}/ledger.db", world.dir().display()));
    is_served(&world, &child).await;
    let before = settled(&child).await;
    let (namespaces, spec) = (["tenant1", "tenant2", "tenant3"], largest_route());
    // Each costs a real API server a second, because it notes who wrote which cluster.
    let count = if world.hub.is_real() { 4 } else { MOST_ROUTES / 2 };
    for namespace in namespaces {
        create_namespace(&world.admin, namespace).await;
        for at in 0..count {
            apply_route(&world.admin, namespace, &format!("r{at}"), spec.clone()).await;
        }
    }
    for namespace in namespaces {
        wait_accepted(&world, &child, namespace, "NotAllowedByListeners").await;
    }
    let after = settled(&child).await;
    println!("{before} MB before, {after} after");
    assert!(after <= before + SETTLED, "{before} MB before, {after} after");
    // What was not kept is read again as soon as it may have an effect.
    allow(&world, &[ALLOWED, "tenant2"]).await;
    wait_accepted(&world, &child, "tenant2", "Accepted").await;
    wait_accepted(&world, &child, "tenant3", "NotAllowedByListeners").await;
}

/// Waits until all AddOnRoutes of a namespace say that they are accepted, or why not.
async fn wait_accepted(world: &CrashWorld, child: &Child, namespace: &str, reason: &str) {
    let routes: Api<AddOnRoute> = Api::namespaced(world.admin.clone(), namespace);
    let message = |route: &AddOnRoute| {
        let conditions = route.status.iter().flat_map(|status| &status.conditions);
        conditions.filter(|it| it.type_ == "Accepted").any(|it| it.reason == reason)
    };
    let is_reported = async || {
        let routes = routes.list(&ListParams::default()).await.ok()?; // large: a loaded machine may break it off
        routes.items.iter().all(message).then_some(())
    };
    wait_or_explain(3 * TIMEOUT, "the conditions of AddOnRoutes", is_reported, || child.process.tail()).await;
}
