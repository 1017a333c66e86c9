//! Records in memory when and from which address each certificate was last used, and hands these last uses over in
//! batches.
//!
//! A connection opens a [`Visit`] once. Each request then costs one store to an atomic of that connection. A crash
//! loses only the uses of the last minute. The memory is bounded: a slot per live connection; a [`LastUse`] per
//! certificate whose connections have ended and that was not drained yet; and for a minute the name of each drained
//! certificate. There are at most [`LEFT_MAX`] such last uses. They still record later uses, but a further certificate
//! is not recorded, and [`UsageTracker::missed`] counts it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::ca::authority::AuthorityId;
use crate::ca::serial::Serial;
use crate::identity::PeerIdentity;
use crate::timestamp::Timestamp;

/// The most certificates without a connection that are kept until they are drained; they need about 20 MB.
pub const LEFT_MAX: usize = 65_536;
/// The shortest time between two drained last uses of a certificate. It limits what the ledger writes.
const PAUSE: Duration = Duration::from_secs(60);
/// The value of a slot that has not been used since it was drained.
const UNUSED: i64 = i64::MIN;

/// When and from where a certificate was last used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastUse {
    /// The serial number.
    pub serial: Serial,
    /// The id of the authority that signed it.
    pub issuer: AuthorityId,
    /// The identity of its holder.
    pub identity: PeerIdentity,
    /// The time of the last use.
    pub at: Timestamp,
    /// The address of the peer: the agent's, or that of a load balancer in between.
    pub from: IpAddr,
}

/// Issuer and serial number, which together name a certificate (RFC 5280 section 4.1.2.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CertificateName {
    issuer: AuthorityId,
    serial: Serial,
}

impl LastUse {
    fn name(&self) -> CertificateName {
        CertificateName { issuer: self.issuer.clone(), serial: self.serial }
    }
}

/// The certificates in use. The gateway opens visits, and another task drains the last uses.
#[derive(Debug)]
pub struct UsageTracker {
    book: Mutex<Book>,
    missed: AtomicU64,
    /// How many certificates without a connection it keeps.
    left_max: usize,
}

impl Default for UsageTracker {
    fn default() -> Self {
        Self::keeping(LEFT_MAX)
    }
}

#[derive(Debug, Default)]
struct Book {
    opened: u64,
    live: HashMap<u64, Arc<Slot>>,
    left: HashMap<CertificateName, LastUse>,
    /// When each certificate was drained, kept for [`PAUSE`].
    drained: HashMap<CertificateName, Timestamp>,
}

/// The state of one connection. Its address does not change, so a use writes only the time.
#[derive(Debug)]
struct Slot {
    opening: LastUse,
    used: AtomicI64,
}

impl Slot {
    /// Takes the last use out of the slot. `None` if there has been none since the last call.
    fn take(&self) -> Option<LastUse> {
        let used = self.used.swap(UNUSED, Ordering::Relaxed);
        (used != UNUSED).then(|| LastUse { at: Timestamp::from_unix(used), ..self.opening.clone() })
    }
}

impl UsageTracker {
    /// A tracker that is never drained. It keeps nothing of connections that have ended.
    #[must_use]
    pub fn undrained() -> Self {
        Self::keeping(0)
    }

    fn keeping(left_max: usize) -> Self {
        Self { book: Mutex::default(), missed: AtomicU64::default(), left_max }
    }

    /// Begins a connection with this certificate, which counts as a use. It takes a lock, once per connection.
    pub fn open(self: &Arc<Self>, opening: LastUse) -> Visit {
        let used = AtomicI64::new(opening.at.unix());
        let slot = Arc::new(Slot { opening, used });
        let mut book = self.book.lock();
        book.opened += 1;
        let id = book.opened;
        book.live.insert(id, Arc::clone(&slot));
        drop(book);
        Visit { usage: Arc::clone(self), id, slot }
    }

    /// The certificates that were used since they were last drained, in no order. Each is returned at most once in
    /// 60 s; until then it is kept for a later call. Call this more often than once in 60 s, because times are whole
    /// seconds.
    pub fn drain(&self, now: Timestamp) -> Vec<LastUse> {
        let mut book = self.book.lock();
        let Book { live, left, drained, .. } = &mut *book;
        // `at <= now` is false after the clock was set back, which must not hold a certificate back.
        drained.retain(|_, at| *at <= now && at.until(now) < PAUSE);
        let mut latest: HashMap<CertificateName, LastUse> = HashMap::new();
        let gone: Vec<CertificateName> = left.keys().filter(|name| !drained.contains_key(*name)).cloned().collect();
        latest.extend(gone.into_iter().filter_map(|name| left.remove_entry(&name)));
        for slot in live.values() {
            if !drained.contains_key(&slot.opening.name())
                && let Some(last_use) = slot.take()
            {
                keep_later(latest.entry(last_use.name()), last_use);
            }
        }
        drained.extend(latest.keys().map(|name| (name.clone(), now)));
        latest.into_values().collect()
    }

    /// How many uses were not recorded, because [`LEFT_MAX`] other certificates were not drained yet.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    fn leave(&self, id: u64) {
        let mut book = self.book.lock();
        // Under the lock, because otherwise a drain could miss a use that is in neither map at that moment.
        let Some(last_use) = book.live.remove(&id).and_then(|slot| slot.take()) else { return };
        let full = book.left.len() >= self.left_max;
        match book.left.entry(last_use.name()) {
            Entry::Vacant(_) if full => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            entry => keep_later(entry, last_use),
        }
    }
}

/// Keeps the later use.
fn keep_later(entry: Entry<'_, CertificateName, LastUse>, last_use: LastUse) {
    match entry {
        Entry::Occupied(mut known) => {
            if known.get().at <= last_use.at {
                known.insert(last_use);
            }
        }
        Entry::Vacant(place) => drop(place.insert(last_use)),
    }
}

/// A connection's use of its certificate. Dropping it ends the use.
#[derive(Debug)]
pub struct Visit {
    usage: Arc<UsageTracker>,
    id: u64,
    slot: Arc<Slot>,
}

impl Visit {
    /// Records that the certificate is used now, without lock, look-up or allocation.
    pub fn touch(&self, now: Timestamp) {
        self.slot.used.store(now.unix(), Ordering::Relaxed);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.usage.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::AgentName;

    const START: Timestamp = Timestamp::from_unix(1_000_000);

    fn after(seconds: u64) -> Timestamp {
        START.plus(Duration::from_secs(seconds))
    }

    fn last_use(serial: u32, from: u8, at: Timestamp) -> LastUse {
        let addon = "telemetry".parse().unwrap();
        let identity = PeerIdentity { cluster: "c1".parse().unwrap(), agent: AgentName::of_addon(&addon), addon };
        LastUse {
            serial: Serial::from_hex(&format!("{serial:040x}")).unwrap(),
            issuer: "4b0ce8b606615584".into(),
            identity,
            at,
            from: IpAddr::from([10, 0, 0, from]),
        }
    }

    #[test]
    fn ten_thousand_uses_are_recorded_once_a_minute() {
        let usage = Arc::new(UsageTracker::default());
        let visit = usage.open(last_use(1, 1, START));
        for _ in 0..10_000 {
            visit.touch(after(5));
        }
        assert_eq!(usage.drain(after(10)), [last_use(1, 1, after(5))]);
        visit.touch(after(20));
        assert_eq!(usage.drain(after(69)), [], "within the minute");
        assert_eq!(usage.drain(after(70)), [last_use(1, 1, after(20))], "and it was not lost");
        assert_eq!(usage.drain(after(700)), [], "what was not used is not seen");
    }

    #[test]
    fn tracker_that_nobody_drains_keeps_nothing() {
        let usage = Arc::new(UsageTracker::undrained());
        drop(usage.open(last_use(1, 1, START)));
        let _open = usage.open(last_use(2, 1, START));
        assert_eq!(usage.drain(after(10)), [last_use(2, 1, START)]);
    }

    #[test]
    fn last_use_counts_across_open_and_closed_connections() {
        let usage = Arc::new(UsageTracker::default());
        let first = usage.open(last_use(1, 1, START));
        let second = usage.open(last_use(1, 2, after(1)));
        let other = usage.open(last_use(2, 3, after(2)));
        first.touch(after(9));
        drop((first, other));
        second.touch(after(8));
        let mut drained = usage.drain(after(10));
        drained.sort_by_key(|last_use| last_use.serial.to_string());
        assert_eq!(drained, [last_use(1, 1, after(9)), last_use(2, 3, after(2))]);
        drop(second);
        let book = usage.book.lock();
        assert!(book.live.is_empty(), "{book:?}");
        assert!(book.left.is_empty(), "{book:?}");
    }

    #[test]
    fn a_clock_that_is_set_back_silences_nobody() {
        let usage = Arc::new(UsageTracker::default());
        let visit = usage.open(last_use(1, 1, after(3600)));
        assert_eq!(usage.drain(after(3600)).len(), 1);
        visit.touch(after(1));
        assert_eq!(usage.drain(after(2)), [last_use(1, 1, after(1))]);
    }

    #[test]
    fn what_nobody_drains_is_bounded_and_the_known_stay_known() {
        let usage = Arc::new(UsageTracker::default());
        let max = u32::try_from(LEFT_MAX).unwrap();
        for serial in 0..max + 10 {
            drop(usage.open(last_use(serial, 1, START)));
        }
        drop(usage.open(last_use(7, 2, after(5))));
        assert_eq!(usage.missed(), 10);
        let drained = usage.drain(after(6));
        assert_eq!(drained.len(), LEFT_MAX);
        assert!(drained.contains(&last_use(7, 2, after(5))));
        assert_eq!(usage.drain(after(66)), []);
        assert!(usage.book.lock().drained.is_empty(), "names are kept for a minute");
    }
}
