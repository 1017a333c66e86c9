//! Issuing without an API server, beside the floor.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use addon_signer::ledger::Ledger;

use super::signer::Signer;
use super::{median, rate};

/// Requests in flight.
const AT_ONCE: u64 = 64;
const ROUNDS: u32 = 5;

/// Issuing on the two ledgers, without any, and the floor, in turn.
pub(crate) async fn issuing(dir: &Path, signer: &Arc<Signer>, ledgers: [&Ledger; 2], count: u64) {
    let sizes = signer.sizes();
    let mut rates: [Vec<f64>; 4] = Default::default();
    // Uncounted: a hub that has run for a while has its store's pages in memory.
    for ledger in ledgers {
        issue(signer, Some(ledger), 2 * count).await;
    }
    for _ in 0..ROUNDS {
        rates[0].push(issue(signer, None, count).await);
        rates[1].push(append(dir, sizes, count));
        rates[2].push(issue(signer, Some(ledgers[0]), count).await);
        rates[3].push(issue(signer, Some(ledgers[1]), count).await);
    }
    let [unrecorded, floor, small, large] = rates.map(median);
    println!(
        "\nissuing, {AT_ONCE} at once, medians of {ROUNDS} rounds of {count} in turn, certificates/s; entries of {} and {} bytes:",
        sizes[0], sizes[1]
    );
    println!("  signing alone, not recorded            {unrecorded:9.0}");
    println!("  appending and waiting for the disk     {floor:9.0}   (floor)");
    println!("  durable, 10 thousand in the ledger     {small:9.0}   {:.2} of the floor; goal 5000", small / floor);
    println!("  durable, the large ledger              {large:9.0}   {:.3} of the small one; goal 0.95", large / small);
}

/// Certificates per second.
async fn issue(signer: &Arc<Signer>, ledger: Option<&Ledger>, count: u64) -> f64 {
    let started = Instant::now();
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (signer, ledger) = (Arc::clone(signer), ledger.cloned());
            tokio::spawn(async move {
                for _ in 0..count / AT_ONCE {
                    signer.issue(ledger.as_ref()).await;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    rate(count / AT_ONCE * AT_ONCE, started)
}

/// Plain appending: the bytes of 64 entries, then the disk, twice for 64 certificates.
fn append(dir: &Path, sizes: [usize; 2], count: u64) -> f64 {
    let path = dir.join("floor");
    let mut file = File::create(&path).unwrap();
    let groups = sizes.map(|size| vec![b'e'; size * AT_ONCE as usize]);
    let started = Instant::now();
    for _ in 0..count / AT_ONCE {
        for group in &groups {
            file.write_all(group).unwrap();
            file.sync_data().unwrap();
        }
    }
    let rate = rate(count / AT_ONCE * AT_ONCE, started);
    std::fs::remove_file(path).unwrap();
    rate
}
