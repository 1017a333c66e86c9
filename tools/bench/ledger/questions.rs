//! Measures lists, and the check of the whole ledger.

use std::time::{Duration, Instant};

use addon_signer_core::journal::CertificateState;
use addon_signer_core::query::{Cursor, Filter, Query, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::verify::{Check, verify};
use addon_signer_ledger::{Location, Reader};

use super::{median, rate};

pub(crate) async fn lists(location: &Location, now: Timestamp, certificates: u64) {
    let reader = Reader::open(location.clone()).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    let ago = |seconds| Some(now.minus(Duration::from_secs(seconds)));
    let filters = [
        ("no filter", all()),
        ("signer", Filter { signer: text("telemetry"), ..all() }),
        ("signer, one old", Filter { signer: text("rare"), ..all() }),
        ("signer, none", Filter { signer: text("nobody"), ..all() }),
        ("cluster", Filter { cluster: text("cluster7"), ..all() }),
        ("cluster, none", Filter { cluster: text("nobody"), ..all() }),
        ("cluster and addon", Filter { cluster: text("cluster7"), addon: text("telemetry"), ..all() }),
        ("addon, one old", Filter { addon: text("rare"), ..all() }),
        ("addon, none", Filter { addon: text("nobody"), ..all() }),
        ("agent, one old", Filter { agent: text("rare"), ..all() }),
        ("agent, none", Filter { agent: text("nobody"), ..all() }),
        ("issuer, one old", Filter { issuer: text("rare"), ..all() }),
        ("issuer, none", Filter { issuer: text("0123"), ..all() }),
        ("signer and agent, none", Filter { signer: text("telemetry"), agent: text("rare"), ..all() }),
        ("agent and signer, none", Filter { signer: text("rare"), agent: text("telemetry"), ..all() }),
        ("state published", Filter { state: Some(StateFilter::Recorded(CertificateState::Published)), ..all() }),
        (
            "state unpublished, none",
            Filter { state: Some(StateFilter::Recorded(CertificateState::Unpublished)), ..all() },
        ),
        ("state intent, none", Filter { state: Some(StateFilter::Recorded(CertificateState::Intent)), ..all() }),
        ("valid", Filter { state: Some(StateFilter::Valid), ..all() }),
        ("expired", Filter { state: Some(StateFilter::Expired), ..all() }),
        ("expiring within an hour", Filter { expiring_within: Some(Duration::from_secs(3600)), ..all() }),
        ("expiring within 0 s", Filter { expiring_within: Some(Duration::ZERO), ..all() }),
        ("not seen since now", Filter { not_seen_since: Some(now), ..all() }),
        ("not seen since half of all", Filter { not_seen_since: ago(4 * 86_400), ..all() }),
        ("never seen", Filter { not_seen_since: ago(100 * 86_400), ..all() }),
        ("valid, never seen", Filter { state: Some(StateFilter::Valid), not_seen_since: ago(100 * 86_400), ..all() }),
    ];
    println!("\nfirst page of 100, median of 9, ms; goal 50:");
    for (name, filter) in filters {
        list(&reader, now, name, Query { filter, ..Query::default() }).await;
    }
    let never = Filter { not_seen_since: ago(100 * 86_400), ..all() };
    let half_way = Some(Cursor { time: Some(0), seq: certificates }); // two rows per certificate
    list(&reader, now, "never seen, from half way", Query { filter: never, after: half_way, ..Query::default() }).await;
    let past = now.minus(Duration::from_secs(20 * 86_400));
    let started = Instant::now();
    let expired = Query { filter: Filter { state: Some(StateFilter::Expired), ..all() }, ..Query::default() };
    let found = reader.list(&expired, past).await.unwrap().len();
    println!("  {:<28}{:8.2}   {found} found", "expired, none", started.elapsed().as_secs_f64() * 1e3);
    let started = Instant::now();
    assert!(reader.show("nobody").await.unwrap().is_none());
    println!("  {:<28}{:8.2}", "show, a name without any", started.elapsed().as_secs_f64() * 1e3);
}

async fn list(reader: &Reader, now: Timestamp, name: &str, query: Query) {
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..9 {
        let started = Instant::now();
        found = reader.list(&query, now).await.unwrap().len();
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    println!("  {name:<28}{:8.2}   {found} found", median(times));
}

/// The processor time of this process on all cores, in seconds. proc(5) counts it in hundredths.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

pub(crate) async fn verifying(location: &Location) {
    let mut rates = Vec::new();
    let mut costs = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        let before = cpu();
        let check = Check { location: location.clone(), checkpoint: None, archives: Vec::new() };
        let report = verify(check, |_| ()).await.unwrap();
        rates.push(rate(report.tip.seq, started));
        costs.push((cpu() - before) * 1e6 / report.tip.seq as f64);
    }
    println!(
        "\nverify, median of 3, rows/s; goal 100000:\n  {:.0}, {:.2} µs of CPU per row",
        median(rates),
        median(costs)
    );
}
