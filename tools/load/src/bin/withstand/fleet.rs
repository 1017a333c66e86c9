//! A fleet of clusters with three addons on each: the memory of a signer and of three gateways, how long the trust
//! bundle takes to reach the clusters, and what a restart costs.

use std::path::Path;
use std::time::{Duration, Instant};

use addon_signer_api::AddOnSigner;
use addon_signer_api::manifest_work;
use addon_signer_api::ocm::OcmObject;
use addon_signer_hub::registrations::registry;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::flood::enrol_with;
use crate::world::{Running, World};
use addon_signer_load::measure::{calls_in, cpu_ms, own_mb, peak_mb, resident_mb};
use addon_signer_load::quantiles::Quantiles;
use test_kit::deploy::{apply, part};
use test_kit::hub::create_signer;
use test_kit::objects::manifest_works;
use test_kit::{accept_cluster, install_addon, wait_until};

const ADDONS: [&str; 3] = ["telemetry", "metrics", "logs"];
/// How many gateways there are.
const GATEWAYS: usize = 3;
/// How many clusters come while all others get another bundle.
const LATE: usize = 60;
/// How many addons enrol at once.
const AT_ONCE: usize = 16;
/// How many of them enrol.
const ENROLLED: usize = 500;
const LONG: Duration = Duration::from_secs(1_800);
/// How long requests at rest are counted.
const REST: Duration = Duration::from_secs(60);

/// The processes of a hub.
struct Processes {
    signer: Running,
    gateways: Vec<Running>,
}

impl Processes {
    async fn start(world: &World) -> Self {
        let signer = world.start_signer();
        let mut gateways = Vec::new();
        for n in 0..GATEWAYS {
            gateways.push(world.start_gateway(&format!("gateway-{n}")).await);
        }
        Self { signer, gateways }
    }

    fn tell(&self, when: &str) {
        let of = |running: &Running| {
            let id = running.process.id();
            let [now, own, most] = [resident_mb(id), own_mb(id), peak_mb(id)];
            format!("{now:.1} MB ({own:.1} its own; at most {most:.1}; {:.1} s of CPU)", cpu_ms(id) / 1e3)
        };
        println!("{when}: the signer has {}, a gateway {}", of(&self.signer), of(&self.gateways[0]));
    }
}

pub(crate) async fn run(program: &Path, clusters: usize) {
    let world = World::start(program).await;
    apply(&world.admin, &part("manifest-works")).await;
    apply(&world.admin, &part("gateway")).await;
    for addon in ADDONS {
        let spec = json!({"signerName": format!("example.com/{addon}"), "addOns": [addon]});
        create_signer(&world.admin, addon, spec).await;
    }
    println!("making {clusters} clusters of {} addons", ADDONS.len());
    let made = stream::iter(0..clusters).for_each_concurrent(16, |n| {
        let admin = world.admin.clone();
        async move {
            let cluster = format!("cluster{n}");
            accept_cluster(&admin, &cluster).await;
            for addon in ADDONS {
                install_addon(&admin, &cluster, addon).await;
            }
        }
    });
    made.await;
    let began = Instant::now();
    let processes = Processes::start(&world).await;
    all_registered(&world).await;
    let seconds = began.elapsed().as_secs_f64();
    println!("{} registrations written after {seconds:.0} s", clusters * ADDONS.len());
    processes.tell("then");
    wait_bundles(&world, clusters, 1).await;
    println!("{} ManifestWorks after {:.0} s", clusters * ADDONS.len(), began.elapsed().as_secs_f64());
    processes.tell("then");
    enrol(&world, clusters.min(ENROLLED)).await;
    new_trust(&world, clusters).await;
    apply_everywhere(&world, clusters).await;
    processes.tell("then");
    let calls = calls_in(&world.admin, REST).await;
    let Processes { signer, gateways } = processes;
    drop(gateways);
    // What was under way for them has ended by then, and is not counted as rest.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let of_signer = calls_in(&world.admin, REST).await;
    drop(signer);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let without = calls_in(&world.admin, REST).await;
    let [all, of_signer, without] = [calls, of_signer, without].map(|calls| calls / REST.as_secs_f64());
    println!("at rest: {all:.2} calls/s with all, {of_signer:.2} with the signer alone, {without:.2} without either");
    restart(&world).await;
}

/// How long processes take that start again.
async fn restart(world: &World) {
    let began = Instant::now();
    let signer = world.start_signer();
    signer.ready(LONG).await;
    println!("a signer that starts again is ready after {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let gateway = world.start_gateway("gateway-again").await;
    gateway.ready(LONG).await;
    println!("a gateway that starts again is ready after {:.1} s", began.elapsed().as_secs_f64());
    tokio::time::sleep(Duration::from_secs(60)).await;
    Processes { signer, gateways: vec![gateway] }.tell("after a minute");
}

/// Enrols the first addon of so many clusters, some at a time.
async fn enrol(world: &World, count: usize) {
    let client = world.another_client().await;
    let began = Instant::now();
    let times: Vec<Duration> = stream::iter(0..count)
        .map(|n| {
            let client = client.clone();
            async move { enrol_with(&client, &format!("cluster{n}"), "example.com/telemetry").await }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let Quantiles { half, longest, .. } = Quantiles::of(times);
    println!("{count} enrolled, {AT_ONCE} at once: {rate:.0} a second, p50 {half:.0} ms, longest {longest:.0} ms");
}

async fn all_registered(world: &World) {
    let addons = registry::addons_api(&world.admin, registry::discover(&world.admin).await.unwrap());
    wait_until(LONG, "all registrations", async || {
        let left = async {
            let mut page = ListParams::default().limit(500);
            loop {
                let found = addons.list(&page).await.ok()?;
                let is_registered = |addon: &OcmObject| addon.object.data.pointer("/status/registrations/0").is_some();
                if !found.items.iter().all(is_registered) {
                    return None;
                }
                match found.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => page = page.continue_token(&token),
                    None => return Some(()),
                }
            }
        };
        let done = left.await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        done
    })
    .await;
}

/// Rotates the gateway's authority, so that every cluster needs another bundle at once, and enrols clusters meanwhile.
async fn new_trust(world: &World, clusters: usize) {
    let maps: Api<ConfigMap> = Api::namespaced(world.admin.clone(), "addon-signer");
    let rotate = json!({ "metadata": { "annotations": { "addon-signer.io/rotate": "now" } } });
    maps.patch("addon-signer-trust", &PatchParams::default(), &Patch::Merge(&rotate)).await.unwrap();
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let client = world.another_client().await;
    let (mut works, mut certificates) = (Vec::new(), Vec::new());
    for n in 0..LATE {
        let cluster = format!("late{n}");
        accept_cluster(&world.admin, &cluster).await;
        install_addon(&world.admin, &cluster, ADDONS[0]).await;
        let put = Instant::now();
        let api = manifest_works(&world.admin, &cluster);
        wait_until(LONG, "a late cluster's ManifestWork", async || {
            api.get_opt("addon-signer-telemetry-trust").await.unwrap().map(drop)
        })
        .await;
        works.push(put.elapsed());
        certificates.push(enrol_with(&client, &cluster, "example.com/telemetry").await);
    }
    println!("{LATE} clusters came from second 30 to second {:.0}", began.elapsed().as_secs_f64());
    for (what, times) in [("ManifestWork", works), ("certificate", certificates)] {
        let Quantiles { half, longest, .. } = Quantiles::of(times);
        println!("{what} of a cluster that comes meanwhile: p50 {half:.0} ms, longest {longest:.0} ms");
    }
    wait_bundles(world, clusters, 2).await;
    let seconds = began.elapsed().as_secs_f64();
    let rate = (clusters * ADDONS.len()) as f64 / seconds;
    println!("every ManifestWork has the new bundle after {seconds:.0} s, {rate:.0} writes a second");
}

/// Plays the clusters' work agents: each says that it has applied its ManifestWorks.
async fn apply_everywhere(world: &World, clusters: usize) {
    let began = Instant::now();
    let applied = stream::iter(0..clusters).for_each_concurrent(16, |n| async move {
        let api = manifest_works(&world.admin, &format!("cluster{n}"));
        for addon in ADDONS {
            let name = format!("addon-signer-{addon}-trust");
            let generation = api.get(&name).await.unwrap().metadata.generation;
            let condition = json!({
                "type": "Applied", "status": "True", "reason": "AppliedManifestWorkComplete", "message": "",
                "observedGeneration": generation, "lastTransitionTime": "2026-11-24T00:00:00Z",
            });
            let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
            api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        }
    });
    applied.await;
    println!("every cluster has said that it applied them after {:.0} s", began.elapsed().as_secs_f64());
    let signers: Api<AddOnSigner> = Api::all(world.admin.clone());
    let wanted = format!("{clusters} of {clusters} addons");
    wait_until(LONG, "the condition", async || {
        let conditions = signers.get("logs").await.unwrap().status?.conditions;
        let reported = conditions.into_iter().find(|reported| reported.type_ == "TrustDistributed")?;
        reported.message.contains(&wanted).then_some(())
    })
    .await;
    println!("and the AddOnSigner says so after {:.0} s", began.elapsed().as_secs_f64());
}

/// Waits until every ManifestWork has so many anchors.
async fn wait_bundles(world: &World, clusters: usize, anchors: usize) {
    let api = Api::<OcmObject>::all_with(world.admin.clone(), &manifest_work::resource());
    wait_until(LONG, "all ManifestWorks", async || {
        let mut page = ListParams::default().limit(500);
        let mut there = 0;
        loop {
            let found = api.list(&page).await.ok()?;
            let has = |work: &&OcmObject| {
                let text = work.object.data.pointer("/spec/workload/manifests/0/data/ca.crt");
                text.and_then(|text| text.as_str()).is_some_and(|pem| pem.matches("BEGIN").count() == anchors)
            };
            there += found.items.iter().filter(has).count();
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        (there >= clusters * ADDONS.len()).then_some(())
    })
    .await;
}
