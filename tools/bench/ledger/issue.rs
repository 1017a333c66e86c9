//! Measures issuing without an API server, and the floor.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use addon_signer_ledger::Ledger;

use super::signer::{Recording, Signer, Until};
use super::{Small, median, rate};

/// Requests in flight.
const AT_ONCE: u64 = 64;
const ROUNDS: usize = 24;
const CONTESTANTS: usize = 6;

/// Measures issuing on the two ledgers, issuing without a ledger, and the floor. In every other round the large ledger
/// comes before the small one, because the disk is still busy after the floor.
pub(crate) async fn issuing(dir: &Path, signer: &Arc<Signer>, small: &Small<'_>, large: &Ledger, count: u64) {
    let sizes = signer.sizes();
    let mut rates: [Vec<f64>; CONTESTANTS] = Default::default();
    // This is not measured. It brings the store's pages into memory, as for a hub that has run for a while.
    issue(signer, Some(Recording { ledger: large.clone(), until: Until::Published }), 8 * count).await;
    for turn in 0..ROUNDS * CONTESTANTS {
        let round = turn / CONTESTANTS;
        let at = turn % CONTESTANTS;
        let contestant = if at < 2 { at } else { at ^ (round % 2) };
        let rate = match contestant {
            0 => issue(signer, None, count).await,
            1 => append(dir, sizes, count),
            2 => issue_on_small(signer, small, Until::Signed, count).await,
            3 => issue(signer, Some(Recording { ledger: large.clone(), until: Until::Signed }), count).await,
            4 => issue_on_small(signer, small, Until::Published, count).await,
            _ => issue(signer, Some(Recording { ledger: large.clone(), until: Until::Published }), count).await,
        };
        rates[contestant].push(rate);
    }
    let rates = rates.map(median);
    println!(
        "\nissuing, {AT_ONCE} at once, medians of {ROUNDS} rounds of {count} in turn, \
         certificates/s; entries of {} and {} bytes:",
        sizes[0], sizes[1]
    );
    let line = |name: &str, at: usize, ratio: String| println!("  {name:<40}{:7.0}   {ratio}", rates[at]);
    line("signing alone, not recorded", 0, String::new());
    line("appending and waiting for the disk", 1, "(floor)".to_owned());
    line("durable, 10 thousand in the ledger", 2, format!("{:.2} of the floor; goal 5000", rates[2] / rates[1]));
    line("durable, the large ledger", 3, format!("{:.3} of the small one; goal 0.95", rates[3] / rates[2]));
    line("and published, 10 thousand", 4, String::new());
    line("and published, the large ledger", 5, format!("{:.3} of the small one", rates[5] / rates[4]));
}

/// Certificates per second on a new small ledger, which has issued as many before that are not measured.
async fn issue_on_small(signer: &Arc<Signer>, small: &Small<'_>, until: Until, count: u64) -> f64 {
    let store = small.open(signer).await;
    let recording = || Some(Recording { ledger: store.ledger.clone(), until });
    issue(signer, recording(), count).await;
    let rate = issue(signer, recording(), count).await;
    store.close().await;
    rate
}

/// Certificates per second.
async fn issue(signer: &Arc<Signer>, recording: Option<Recording>, count: u64) -> f64 {
    let started = Instant::now();
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let signer = Arc::clone(signer);
            let recording = recording.clone();
            tokio::spawn(async move {
                for _ in 0..count / AT_ONCE {
                    signer.issue(recording.as_ref()).await;
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    rate(count / AT_ONCE * AT_ONCE, started)
}

/// The floor: appends to a plain file. For 64 certificates it writes the bytes of 64 entries and waits for the disk,
/// twice.
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
