//! 101 AddOnSigners: how long until all are ready, what an edit costs, and what rest costs.

use std::path::Path;
use std::time::{Duration, Instant};

use addon_signer_api::AddOnSigner;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::world::World;
use addon_signer_load::measure::{calls_in, resident_mb, total_requests};
use test_kit::hub::create_signer;
use test_kit::{accept_cluster, install_addon, wait_until};

const SIGNERS: usize = 101;
const REST: Duration = Duration::from_secs(60);
/// Long enough for everything that follows from an edit.
const SETTLE: Duration = Duration::from_secs(20);
const READY: Duration = Duration::from_secs(120);

pub(crate) async fn run(program: &Path) {
    let world = World::start(program).await;
    for n in 0..3 {
        accept_cluster(&world.admin, &format!("cluster{n}")).await;
        install_addon(&world.admin, &format!("cluster{n}"), "addon0").await;
    }
    for n in 0..SIGNERS {
        let spec = json!({"signerName": format!("example.com/signer{n}"), "addOns": [format!("addon{n}")]});
        create_signer(&world.admin, &format!("signer{n}"), spec).await;
    }
    let without = calls_in(&world.admin, REST).await;
    let began = Instant::now();
    let hub = world.start_hub();
    all_ready(&world.admin).await;
    println!("\n{SIGNERS} signers ready after {:.1} s, authorities made", began.elapsed().as_secs_f64());
    tokio::time::sleep(SETTLE).await;
    drop(hub);
    let began = Instant::now();
    let hub = world.start_hub();
    leads_again(&world.admin).await;
    println!("a hub that starts again leads and has written what differs after {:.1} s", began.elapsed().as_secs_f64());
    tokio::time::sleep(SETTLE).await;
    let with = calls_in(&world.admin, REST).await;
    let seconds = REST.as_secs_f64();
    println!("at rest: {:.2} calls/s with the hub, {:.2} without it", with / seconds, without / seconds);
    let quiet = calls_in(&world.admin, SETTLE).await;
    let before = total_requests(&world.admin).await;
    let edit = Patch::Merge(json!({"spec": {"certificate": {"duration": "23h"}}}));
    let signers: Api<AddOnSigner> = Api::all(world.admin.clone());
    signers.patch("signer50", &PatchParams::default(), &edit).await.unwrap();
    tokio::time::sleep(SETTLE).await;
    let edited = total_requests(&world.admin).await - before - 1.0;
    println!("an edit: {edited:.0} calls in {} s, in which there are {quiet:.0} at rest", SETTLE.as_secs());
    println!("resident: {:.1} MB", resident_mb(hub.id()));
}

async fn all_ready(admin: &Client) {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    wait_until(READY, "all signers to be ready", async || {
        let all = signers.list(&ListParams::default()).await.ok()?;
        let is_ready = |signer: &AddOnSigner| {
            let conditions = signer.status.as_ref().map(|status| &status.conditions);
            conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
        };
        all.items.iter().all(is_ready).then_some(())
    })
    .await;
}

/// Waits until the Lease has another holder than the hub that was killed.
async fn leads_again(admin: &Client) {
    let leases = test_kit::lease::leases(admin);
    let holder = async || leases.get("addon-signer").await.ok()?.spec?.holder_identity;
    let before = holder().await;
    wait_until(READY, "another leader", async || holder().await.filter(|now| Some(now) != before.as_ref())).await;
    all_ready(admin).await;
}
