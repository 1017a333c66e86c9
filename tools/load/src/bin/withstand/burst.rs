//! 600 AddOnSigners that are made at once: how long the edit of another one waits meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use addon_signer_api::AddOnSigner;
use futures::StreamExt;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::world::World;
use addon_signer_load::measure::{cpu_ms, resident_mb};
use addon_signer_load::quantiles::Quantiles;
use test_kit::hub::{create_signer, wait_ready};
use test_kit::wait_until;

const SIGNERS: usize = 600;
/// How many are made at the same time.
const AT_ONCE: usize = 32;
const PAUSE: Duration = Duration::from_millis(200);
const READY: Duration = Duration::from_secs(300);

pub(crate) async fn run(program: &Path) {
    let world = World::start(program).await;
    let spec = json!({"signerName": "example.com/edited", "addOns": ["edited"]});
    create_signer(&world.admin, "edited", spec).await;
    let hub = world.start_hub();
    wait_ready(&world.admin, "edited", "True").await;
    let mut alone = Vec::new();
    for round in 0..10 {
        alone.push(edit(&world.admin, round).await);
        tokio::time::sleep(PAUSE).await;
    }
    let (began, busy) = (Instant::now(), cpu_ms(hub.id()));
    let maker = world.another_client().await;
    let making = tokio::spawn(async move {
        let all = futures::stream::iter(0..SIGNERS).map(|n| {
            let spec = json!({"signerName": format!("example.com/signer{n}"), "addOns": [format!("addon{n}")]});
            let maker = &maker;
            async move { create_signer(maker, &format!("signer{n}"), spec).await }
        });
        all.buffer_unordered(AT_ONCE).for_each(async |_| ()).await;
    });
    let settled = settled(world.another_client().await);
    tokio::pin!(settled);
    let mut meanwhile = Vec::new();
    for round in 10.. {
        meanwhile.push(edit(&world.admin, round).await);
        tokio::select! {
            ready = &mut settled => {
                let seconds = began.elapsed().as_secs_f64();
                println!("\n{SIGNERS} AddOnSigners, {ready} of them with authorities, in {seconds:.1} s");
                break;
            }
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    making.await.unwrap();
    print("an edit of another one, alone", alone);
    print("meanwhile", meanwhile);
    println!("{:.1} s of CPU of the hub, resident: {:.1} MB", (cpu_ms(hub.id()) - busy) / 1e3, resident_mb(hub.id()));
}

/// Changes one AddOnSigner; returns after how long its status says that the hub has looked at it.
async fn edit(admin: &Client, round: u32) -> Duration {
    let signers: Api<AddOnSigner> = Api::all(admin.clone());
    let minutes = 60 + round;
    let edit = Patch::Merge(json!({"spec": {"certificate": {"duration": format!("{minutes}m")}}}));
    let began = Instant::now();
    let generation = signers.patch("edited", &PatchParams::default(), &edit).await.unwrap().metadata.generation;
    wait_until(READY, "the edit to be looked at", async || {
        let seen = signers.get("edited").await.unwrap().status?.observed_generation;
        (seen >= generation).then_some(())
    })
    .await;
    began.elapsed()
}

/// Waits until the hub has said of each whether it signs; returns how many do.
async fn settled(admin: Client) -> usize {
    let signers: Api<AddOnSigner> = Api::all(admin);
    wait_until(READY, "every signer to be looked at", async || {
        let all = signers.list(&ListParams::default()).await.ok()?.items;
        let reason = |signer: &AddOnSigner| {
            let status = signer.status.as_ref()?;
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
            Some(ready.reason.clone())
        };
        let reasons: Vec<_> = all.iter().filter_map(reason).filter(|reason| reason != "Starting").collect();
        let signing = reasons.iter().filter(|reason| *reason == "Signing").count();
        (reasons.len() == SIGNERS + 1).then_some(signing)
    })
    .await
}

fn print(what: &str, times: Vec<Duration>) {
    let count = times.len();
    let Quantiles { half, longest, .. } = Quantiles::of(times);
    println!("{what}: {half:.0} ms in the middle, {longest:.0} ms at most, of {count}");
}
