//! A hub with 3,500 clusters and three addons on each: its memory, and how long the trust bundle takes to reach them.

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
use crate::world::World;
use addon_signer_load::measure::{calls_in, peak_mb, resident_mb};
use addon_signer_load::quantiles::Quantiles;
use test_kit::deploy::apply;
use test_kit::deploy::manifests;
use test_kit::hub::create_signer;
use test_kit::objects::manifest_works;
use test_kit::{accept_cluster, install_addon, wait_until};

const CLUSTERS: usize = 3_500;
const ADDONS: [&str; 3] = ["telemetry", "metrics", "logs"];
/// How many clusters come while all others get another bundle.
const LATE: usize = 60;
const LONG: Duration = Duration::from_secs(900);
/// How long calls at rest are counted.
const REST: Duration = Duration::from_secs(60);

pub(crate) async fn run() {
    let world = World::start().await;
    apply(&world.admin, &manifests("manifest-works")).await;
    for addon in ADDONS {
        let spec = json!({"signerName": format!("example.com/{addon}"), "addOns": [addon]});
        create_signer(&world.admin, addon, spec).await;
    }
    println!("making {CLUSTERS} clusters");
    let made = stream::iter(0..CLUSTERS).for_each_concurrent(16, |n| {
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
    let hub = world.start_hub();
    all_registered(&world).await;
    let seconds = began.elapsed().as_secs_f64();
    println!("\n{} registrations written after {seconds:.0} s", CLUSTERS * ADDONS.len());
    println!("resident {:.1} MB, at most {:.1} MB", resident_mb(hub.id()), peak_mb(hub.id()));
    wait_bundles(&world, 1).await;
    let seconds = began.elapsed().as_secs_f64();
    println!("{} ManifestWorks after {seconds:.0} s", CLUSTERS * ADDONS.len());
    println!("resident {:.1} MB, at most {:.1} MB", resident_mb(hub.id()), peak_mb(hub.id()));
    new_trust(&world).await;
    apply_everywhere(&world).await;
    println!("resident {:.1} MB, at most {:.1} MB", resident_mb(hub.id()), peak_mb(hub.id()));
    let calls = calls_in(&world.admin, REST).await;
    drop(hub);
    let without = calls_in(&world.admin, REST).await;
    let seconds = REST.as_secs_f64();
    println!("at rest: {:.2} calls/s with the hub, {:.2} without it", calls / seconds, without / seconds);
    let hub = world.start_hub();
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!(
        "a hub that starts again, after a minute: resident {:.1} MB, at most {:.1} MB",
        resident_mb(hub.id()),
        peak_mb(hub.id())
    );
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
async fn new_trust(world: &World) {
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
    wait_bundles(world, 2).await;
    let seconds = began.elapsed().as_secs_f64();
    let rate = (CLUSTERS * ADDONS.len()) as f64 / seconds;
    println!("every ManifestWork has the new bundle after {seconds:.0} s, {rate:.0} writes a second");
}

/// Plays the clusters' work agents: each says that it has applied its ManifestWorks.
async fn apply_everywhere(world: &World) {
    let began = Instant::now();
    let clusters = stream::iter(0..CLUSTERS).for_each_concurrent(16, |n| async move {
        let api = manifest_works(&world.admin, &format!("cluster{n}"));
        for addon in ADDONS {
            let name = format!("addon-signer-{addon}-trust");
            let generation = api.get(&name).await.unwrap().metadata.generation;
            let applied = json!({
                "type": "Applied", "status": "True", "reason": "AppliedManifestWorkComplete", "message": "",
                "observedGeneration": generation, "lastTransitionTime": "2026-11-24T00:00:00Z",
            });
            let status = Patch::Merge(json!({ "status": { "conditions": [applied] } }));
            api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        }
    });
    clusters.await;
    println!("every cluster has said that it applied them after {:.0} s", began.elapsed().as_secs_f64());
    let signers: Api<AddOnSigner> = Api::all(world.admin.clone());
    let wanted = format!("{CLUSTERS} of {CLUSTERS} addons");
    wait_until(LONG, "the condition", async || {
        let conditions = signers.get("logs").await.unwrap().status?.conditions;
        let told = conditions.into_iter().find(|told| told.type_ == "TrustDistributed")?;
        told.message.contains(&wanted).then_some(())
    })
    .await;
    println!("and the AddOnSigner says so after {:.0} s", began.elapsed().as_secs_f64());
}

/// Waits until every ManifestWork has so many anchors.
async fn wait_bundles(world: &World, anchors: usize) {
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
        (there >= CLUSTERS * ADDONS.len()).then_some(())
    })
    .await;
}
