//! Nothing grows with the number of rotations of a lineage but the ledger, which has some entries for each. `just soak`
//! makes a thousand rotations, and tells how much memory the hub takes and how long it signs; otherwise there are few.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use addon_signer_core::ca::lineage::MOST_GONE;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use test_kit::hub::{RunningHub, RunningHubOptions, TIMEOUT, certificate, fresh_ledger, wait_ready};
use test_kit::objects::read_as_is;
use test_kit::postgres::Database;
use test_kit::soak::soak;
use test_kit::store::TestStore;
use test_kit::wait_until;

use super::kit::{OnServer, issue, revoke, rotate};
use super::rotation::PAST_ALL_LEAVES;
use crate::hub::crash::books::entries;
use crate::hub::crash::kit::CrashWorld;
use crate::hub::{mk_csr, mk_ready_with};

/// After so many rotations everything has its size.
const FIRST: usize = MOST_GONE;
/// The bytes of the ids that a lineage remembers, in its Secret and in an annotation.
const REMEMBERED: usize = MOST_GONE * 50;

/// The bytes of each object that a rotation could make larger, as JSON.
#[derive(Debug)]
struct Sizes(BTreeMap<String, usize>);

impl Sizes {
    /// Without what counts writes, and without the keepalives of other parts.
    async fn of(admin: &Client) -> Self {
        let mut sizes = BTreeMap::new();
        for list in [
            "/api/v1/namespaces/addon-signer/secrets",
            "/api/v1/namespaces/addon-signer/configmaps",
            "/apis/coordination.k8s.io/v1/namespaces/addon-signer/leases",
            "/apis/addon-signer.io/v1alpha1/addonsigners",
            "/apis/addon.open-cluster-management.io/v1alpha1/namespaces/spoke1/managedclusteraddons",
        ] {
            for mut object in read_as_is(admin, list).await["items"].as_array_mut().unwrap().drain(..) {
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                if name == "addon-signer-ledger" {
                    continue; // the ledger's checkpoint comes within a minute, and has always one size
                }
                for count in ["resourceVersion", "generation"] {
                    object["metadata"].as_object_mut().unwrap().remove(count);
                }
                sizes.insert(format!("{list}/{name}"), object.to_string().len());
            }
        }
        Self(sizes)
    }

    /// Checks that the same objects are there, and that none is larger by more than 5 %, and by the ids of those that
    /// have left a lineage: the gateway's lineage rotates by itself, once in years.
    fn assert_like(&self, first: &Self) {
        assert_eq!(Vec::from_iter(self.0.keys()), Vec::from_iter(first.0.keys()));
        for (name, size) in &self.0 {
            let before = first.0[name];
            assert!(size * 100 <= before * 105 + REMEMBERED * 100, "{name} had {before} bytes, and has {size}");
        }
    }
}

/// Waits until the lineage has one authority, and everything says so.
async fn at_rest(lineage: &OnServer) -> String {
    let ids = lineage.wait(&["Active"]).await;
    lineage.wait_bundle(&ids).await;
    wait_until(TIMEOUT, "the status to be at rest", async || {
        let status = lineage.status().await;
        (status.rotation.is_none() && status.authorities.iter().map(|it| &it.id).eq(&ids)).then_some(())
    })
    .await;
    ids.into_iter().next().unwrap()
}

/// Deletes all CSRs, as Kubernetes does after an hour.
async fn clear_away(admin: &Client) {
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    requests.delete_collection(&Default::default(), &ListParams::default()).await.unwrap();
}

async fn events(admin: &Client) -> usize {
    let events: Api<Event> = Api::all(admin.clone());
    events.list(&ListParams::default()).await.unwrap().items.len()
}

/// What there is after so many rotations.
struct Stand {
    rotations: usize,
    sizes: Sizes,
    /// How many series the metrics have.
    series: usize,
    events: usize,
    /// The entries of the ledger.
    entries: usize,
}

impl Stand {
    async fn of(admin: &Client, running: &RunningHub, ledger: &str, rotations: usize) -> Self {
        let sizes = Sizes::of(admin).await;
        let series = running.metrics.render().unwrap().lines().count();
        let stand =
            Self { rotations, sizes, series, events: events(admin).await, entries: entries(ledger).await.len() };
        println!("{stand}");
        stand
    }

    /// How many of something each rotation has added since an earlier moment.
    fn each(&self, before: &Self, count: fn(&Self) -> usize) -> usize {
        (count(self) - count(before)).div_ceil(self.rotations - before.rotations)
    }
}

impl fmt::Display for Stand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rotations, sizes: Sizes(sizes), series, events, entries } = self;
        let bytes: usize = sizes.values().sum();
        let objects = sizes.len();
        write!(f, "after {rotations} rotations: {bytes} bytes in {objects} objects, {series} lines of metrics, ")?;
        write!(f, "{events} events, {entries} entries in the ledger")
    }
}

/// Years of rotations, in which each authority goes when its last certificate has expired.
#[tokio::test]
async fn nothing_but_the_ledger_grows_with_rotations() {
    let rotations = soak(1_000, 30);
    let (_dir, ledger) = fresh_ledger();
    let options = RunningHubOptions { ledger: Some(ledger.clone()), ..RunningHubOptions::default() };
    let (hub, admin, running) = mk_ready_with(options).await;
    let lineage = OnServer::client(&admin);
    let mut stands = Vec::new();
    for round in 1..=rotations {
        let before = at_rest(&lineage).await;
        issue(&hub, &admin).await;
        rotate(&admin, &format!("r{round:04}")).await;
        let ids = lineage.wait(&["Active", "Old"]).await;
        assert_eq!(ids[1], before);
        running.clock.advance(PAST_ALL_LEAVES);
        lineage.poke().await;
        assert_eq!(at_rest(&lineage).await, ids[0]);
        clear_away(&admin).await;
        if [FIRST, rotations / 2, rotations].contains(&round) {
            stands.push(Stand::of(&admin, &running, &ledger.to_string(), round).await);
        }
    }
    let [first, half, last] = &stands[..] else { panic!("three were noted") };
    last.sizes.assert_like(&first.sizes);
    // A retry may show a metric for the first time, but not one for each rotation.
    let (series, between) = (last.series.saturating_sub(half.series), rotations - rotations / 2);
    assert!(series < between, "{series} more series after {between} more rotations");
    assert!(
        last.each(half, |stand| stand.events) <= half.each(first, |stand| stand.events),
        "Kubernetes deletes events"
    );
    let entries = last.each(half, |stand| stand.entries);
    assert!(entries <= half.each(first, |stand| stand.entries), "{entries} for each rotation, and more than before");
    running.stop().await;
}

/// How long a certificate takes, from the CSR until its agent sees it.
async fn timed(agent: &Api<CertificateSigningRequest>) -> Duration {
    let began = Instant::now();
    let name = agent.create(&Default::default(), &mk_csr("spoke1", "telemetry")).await.unwrap().name_any();
    let is_issued = |csr: Option<&CertificateSigningRequest>| csr.is_some_and(|csr| certificate(csr).is_some());
    tokio::time::timeout(TIMEOUT, await_condition(agent.clone(), &name, is_issued)).await.unwrap().unwrap();
    began.elapsed()
}

/// The memory that a process alone has, in bytes; `None` where there is no /proc.
fn own_memory(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?.split_whitespace().next()?;
    Some(kib.parse::<u64>().unwrap() * 1024)
}

/// The median of the second tenth and that of the last tenth.
fn ends<T: Copy + Ord>(all: &[T]) -> [T; 2] {
    let tenth = all.len().div_ceil(10);
    [&all[tenth..2 * tenth], &all[all.len() - tenth..]].map(|part| {
        let mut part = part.to_vec();
        part.sort();
        part[part.len() / 2]
    })
}

/// A process has its memory for itself. An administrator revokes each authority that nobody needs any more.
#[tokio::test]
async fn hub_is_as_small_and_fast_after_many_rotations() {
    let rotations = soak(1_000, 10);
    // SQLite keeps pages of the file in memory, up to 128 MiB, and the file grows.
    let store = match soak(true, false) {
        true => TestStore::Postgres(Database::create().await),
        false => TestStore::sqlite(),
    };
    let world = CrashWorld::start(&["spoke1"]).await;
    let child = world.start_hub(&store.url());
    wait_ready(&world.admin, "telemetry", "True").await;
    let (admin, lineage) = (&world.admin, OnServer::client(&world.admin));
    let agent = Api::all(world.hub.as_cluster_agent("spoke1", "a1").await);
    let (mut times, mut memory, mut first) = (Vec::new(), Vec::new(), None);
    for round in 1..=rotations {
        at_rest(&lineage).await;
        times.push(timed(&agent).await);
        memory.extend(own_memory(child.process.id()));
        rotate(admin, &format!("r{round:04}")).await;
        let ids = lineage.wait(&["Active", "Old"]).await;
        revoke(admin, &ids[1]).await;
        assert_eq!(at_rest(&lineage).await, ids[0]);
        clear_away(admin).await;
        if round == FIRST {
            first = Some(Sizes::of(admin).await);
        }
    }
    let last = Sizes::of(admin).await;
    last.assert_like(first.as_ref().unwrap());
    child.kill();
    println!("{rotations} rotations of a hub's process, second tenth and last tenth:");
    let [before, after] = ends(&times).map(|time| time.as_secs_f64() * 1_000.0);
    println!("a certificate takes {before:.1} ms, then {after:.1} ms: {:.3}", after / before);
    if !memory.is_empty() {
        let [before, after] = ends(&memory).map(|bytes| bytes as f64 / 1e6);
        println!("the process has {before:.2} MB, then {after:.2} MB: {:.3}", after / before);
        // During the first rotations it still starts.
        assert!(after <= before * soak(1.05, f64::MAX), "its memory grows");
    }
}
