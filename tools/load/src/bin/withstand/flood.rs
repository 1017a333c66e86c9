//! One cluster sends large requests, many small ones, many names and forged labels, and removes our registration entry,
//! while other clusters enrol one after the other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use addon_signer_core::csr::build::CsrParams;
use addon_signer_platform::clock::Clock;
use futures::{StreamExt, stream};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::world::{World, submit};
use addon_signer_load::floor::approve_and_sign;
use addon_signer_load::measure::{cpu_ms, peak_mb, resident_mb};
use addon_signer_load::quantiles::Quantiles;
use test_kit::accounts::{HUB_GROUPS, HUB_USER};
use test_kit::hub::{certificate, create_signer, telemetry, wait_ready};
use test_kit::issue::{Ca, base64};
use test_kit::objects::managed_cluster_addons;
use test_kit::process::Process;
use test_kit::request::{mk_csr, mk_csr_of};
use test_kit::{accept_cluster, install_addon};

/// How many honest clusters enrol in quiet, and how many during the flood.
const HONEST: usize = 100;
/// The signer name of the floor.
const FLOOR_SIGNER: &str = "example.com/floor";
/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(100);
const LARGE: usize = 100;
const LARGE_BYTES: usize = 1_000_000;
const SMALL: usize = 10_000;
const NAMES: usize = 500;
const FORGED: usize = 500;
/// How many requests of each kind the hostile cluster has under way.
const IN_FLIGHT: usize = 8;

pub(crate) async fn run(program: &Path) {
    let world = World::start(program).await;
    println!("making {} clusters", 2 * HONEST + 1);
    let names: Vec<String> = (0..2 * HONEST).map(|n| format!("honest{n}")).chain(["hostile".to_owned()]).collect();
    let made = stream::iter(&names).for_each_concurrent(16, |name| async {
        accept_cluster(&world.admin, name).await;
        install_addon(&world.admin, name, "telemetry").await;
    });
    made.await;
    create_signer(&world.admin, "telemetry", telemetry()).await;
    let hub = world.start_hub();
    wait_ready(&world.admin, "telemetry", "True").await;
    let honest = world.another_client().await;
    let create = "floor p50, ms | p99, ms | of the floor: p50 / p99";
    let _floor = start_floor(&world).await;
    println!("\n| when | p50, ms | p99, ms | {create} | hub resident / peak, MB | CPU of the hub, s |");
    println!("|---|---|---|---|---|---|---|---|");
    enrol("quiet", &honest, &names[..HONEST], &hub).await;
    let flood = Flood::start(world.another_client().await);
    enrol("flood", &honest, &names[HONEST..2 * HONEST], &hub).await;
    let sent = flood.sent.load(Ordering::Relaxed);
    flood.finish().await;
    println!("\nthe hostile cluster had sent {sent} requests when the last honest one was issued");
    enrol_again("after", &hub, &world.admin).await;
}

/// Enrols these clusters one after the other, and prints how long each took from its create to its certificate: by the
/// hub, and at the same time by the floor.
async fn enrol(when: &str, client: &Client, clusters: &[String], hub: &Process) {
    let mut issued = Vec::new();
    let mut by_floor = Vec::new();
    for cluster in clusters {
        let (hub, floor) = tokio::join!(
            enrol_with(client, cluster, "example.com/telemetry"),
            enrol_with(client, cluster, FLOOR_SIGNER)
        );
        issued.push(hub);
        by_floor.push(floor);
        tokio::time::sleep(PAUSE).await;
    }
    let issued = Quantiles::of(issued);
    let by_floor = Quantiles::of(by_floor);
    let resident = resident_mb(hub.id());
    let peak = peak_mb(hub.id());
    let cpu = cpu_ms(hub.id()) / 1e3;
    println!(
        "| {when} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} / {:.2} | {resident:.1} / {peak:.1} | {cpu:.1} |",
        issued.half,
        issued.most,
        by_floor.half,
        by_floor.most,
        issued.half / by_floor.half,
        issued.most / by_floor.most
    );
}

/// How long it takes from the request of the cluster's addon telemetry to its certificate.
pub(crate) async fn enrol_with(client: &Client, cluster: &str, signer_name: &str) -> Duration {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let mut csr = mk_csr(cluster, "telemetry");
    csr.spec.signer_name = signer_name.to_owned();
    let began = Instant::now();
    let name = submit(client, cluster, &csr).await.unwrap().name_any();
    let is_issued = |csr: Option<&CertificateSigningRequest>| csr.is_some_and(|csr| certificate(csr).is_some());
    await_condition(requests, &name, is_issued).await.unwrap();
    began.elapsed()
}

/// What is left of the flood: the hub's memory, and the answers that it gave.
async fn enrol_again(when: &str, hub: &Process, admin: &Client) {
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let mut issued = 0;
    let mut answered = 0;
    let mut all = 0;
    let mut page = ListParams::default().fields("spec.signerName=example.com/telemetry").limit(500);
    loop {
        let found = requests.list(&page).await.unwrap();
        let of_hostile = found.items.iter().filter(|csr| csr.spec.username.as_deref().unwrap().contains(":hostile:"));
        for csr in of_hostile {
            all += 1;
            issued += usize::from(certificate(csr).is_some());
            let conditions = csr.status.as_ref().and_then(|status| status.conditions.as_ref());
            answered += usize::from(conditions.is_some_and(|conditions| !conditions.is_empty()));
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    let resident = resident_mb(hub.id());
    println!("{when}: of {all} requests of the hostile cluster {issued} are issued, {answered} have a condition; ");
    println!("the hub has {resident:.1} MB, and had {:.1} at most", peak_mb(hub.id()));
}

/// A signer that decides nothing and records nothing: what the API server allows in the same moment. It watches all
/// requests, as the hub does.
async fn start_floor(world: &World) -> AbortOnDropHandle<()> {
    let ca = Ca::new("floor", Clock::default().now());
    let leaf = ca.client("cluster0", "telemetry", Clock::default().now(), Duration::from_secs(86_400));
    let text = base64(&leaf.certificate);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n").into_bytes();
    let requests: Api<CertificateSigningRequest> = Api::all(world.hub.client_as(HUB_USER, &HUB_GROUPS).await);
    let signing = watcher(requests.clone(), watcher::Config::default()).for_each_concurrent(IN_FLIGHT, move |event| {
        let requests = requests.clone();
        let pem = Arc::new(pem.clone());
        async move {
            if let Event::InitApply(csr) | Event::Apply(csr) = event.unwrap()
                && csr.spec.signer_name == FLOOR_SIGNER
                && csr.status.as_ref().is_none_or(|status| status.conditions.is_none())
            {
                approve_and_sign(requests, csr, pem).await;
            }
        }
    });
    AbortOnDropHandle::new(tokio::spawn(signing))
}

/// The hostile cluster at work.
struct Flood {
    sent: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Flood {
    fn start(client: Client) -> Self {
        let sent = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        let large = (0..LARGE).map(|_| {
            let mut csr = mk_csr("hostile", "telemetry");
            csr.spec.request.0.extend(std::iter::repeat_n(b'\n', LARGE_BYTES));
            csr
        });
        tasks.spawn(send(client.clone(), Arc::clone(&sent), large.collect()));
        let small = (0..SMALL).map(|_| mk_csr("hostile", "telemetry"));
        tasks.spawn(send(client.clone(), Arc::clone(&sent), small.collect()));
        tasks.spawn(send(client.clone(), Arc::clone(&sent), (0..NAMES).map(named).collect()));
        let forged = (0..FORGED).map(|n| {
            let mut csr = mk_csr(&format!("honest{n}"), "telemetry");
            csr.metadata.generate_name = Some("forged-".to_owned());
            csr
        });
        tasks.spawn(send(client.clone(), Arc::clone(&sent), forged.collect()));
        tasks.spawn(unregister(client));
        Self { sent, tasks }
    }

    /// Ends the flood at once.
    async fn finish(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A request of the hostile cluster under another agent name.
fn named(n: usize) -> CertificateSigningRequest {
    let addon = "system:open-cluster-management:cluster:hostile:addon:telemetry";
    let wish = CsrParams {
        common_name: format!("{addon}:agent:agent-{n}"),
        organizations: vec![addon.to_owned()],
        dns_names: vec![],
        ip_addresses: vec![],
    };
    mk_csr_of("hostile", "telemetry", &wish)
}

/// Sends these requests as the hostile cluster's agent.
async fn send(client: Client, sent: Arc<AtomicUsize>, requests: Vec<CertificateSigningRequest>) {
    let sending = stream::iter(requests).for_each_concurrent(IN_FLIGHT, |csr| {
        let client = client.clone();
        let sent = Arc::clone(&sent);
        async move {
            // An API server that is busy refuses some.
            if submit(&client, "hostile", &csr).await.is_ok() {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    sending.await;
    std::future::pending().await // the flood goes on with the others until it is ended
}

/// Removes every registration of the hostile cluster's addon again and again.
async fn unregister(client: Client) {
    let addons = managed_cluster_addons(&client, "hostile").await;
    loop {
        let nothing = Patch::Merge(json!({"status": {"registrations": []}}));
        // A conflict with the hub's own write is as good.
        addons.patch_status("telemetry", &PatchParams::default(), &nothing).await.ok();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
