//! The memory of a hub with 3,500 clusters and three addons on each.

use std::time::{Duration, Instant};

use addon_signer::api::ocm::OcmObject;
use addon_signer::hub::registrations::registry;
use futures::{StreamExt, stream};
use kube::api::ListParams;
use serde_json::json;

use crate::measure::{peak_mb, resident_mb};
use crate::support::hub::create_signer;
use crate::support::{accept_cluster, install_addon, wait_until};
use crate::world::World;

const CLUSTERS: usize = 3_500;
const ADDONS: [&str; 3] = ["telemetry", "metrics", "logs"];
const LONG: Duration = Duration::from_secs(900);

pub(crate) async fn run() {
    let world = World::start().await;
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
    let seconds = began.elapsed().as_secs_f64();
    println!("\n{} registrations written after {seconds:.0} s", CLUSTERS * ADDONS.len());
    println!("resident {:.1} MB, at most {:.1} MB", resident_mb(hub.id()), peak_mb(hub.id()));
    drop(hub);
    let hub = world.start_hub();
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!(
        "a hub that starts again, after a minute: resident {:.1} MB, at most {:.1} MB",
        resident_mb(hub.id()),
        peak_mb(hub.id())
    );
}
