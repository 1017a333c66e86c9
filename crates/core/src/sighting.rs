//! Which certificate was last used when, and from which address: evidence, gathered in memory and handed over in
//! batches.
//!
//! A connection opens a [`Visit`] once; each request then costs one store to an atomic of that connection's own.
//! Nothing is lost but what happens in the minute before a crash. Bounds: one slot per live connection, one
//! [`Sighting`] per certificate whose connections have ended and that was not drained ([`LEFT_MAX`]; one more is not
//! recorded and counted in [`Seen::missed`], those that are there still learn of later uses), and for a minute the name
//! of each certificate that was drained.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ca::serial::Serial;
use crate::identity::PeerIdentity;
use crate::timestamp::Timestamp;

/// How many certificates without a connection are remembered until they are drained: some 20 MB.
pub const LEFT_MAX: usize = 65_536;
/// At most one sighting of one certificate in this time: what a ledger writes per certificate.
const PAUSE: Duration = Duration::from_secs(60);
/// A slot whose certificate was not used since it was drained.
const UNUSED: i64 = i64::MIN;

/// One certificate, when it was last used and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The serial number.
    pub serial: Serial,
    /// The id of the authority that signed it.
    pub issuer: String,
    /// Whose certificate it is.
    pub identity: PeerIdentity,
    /// The last use.
    pub at: Timestamp,
    /// The address of the peer: the agent's, or that of a load balancer in between.
    pub from: IpAddr,
}

/// Issuer and serial number: what names a certificate (RFC 5280 section 4.1.2.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CertificateName {
    issuer: String,
    serial: Serial,
}

impl Sighting {
    fn name(&self) -> CertificateName {
        CertificateName { issuer: self.issuer.clone(), serial: self.serial }
    }
}

/// Certificates in use. Shared: the gateway opens visits, somebody else drains.
#[derive(Debug, Default)]
pub struct Seen {
    book: Mutex<Book>,
    missed: AtomicU64,
}

#[derive(Debug, Default)]
struct Book {
    opened: u64,
    live: HashMap<u64, Arc<Slot>>,
    left: HashMap<CertificateName, Sighting>,
    /// When each certificate was drained, for [`PAUSE`].
    drained: HashMap<CertificateName, Timestamp>,
}

/// One connection's: the address does not change, so only the time needs to be written.
#[derive(Debug)]
struct Slot {
    opening: Sighting,
    used: AtomicI64,
}

impl Slot {
    /// The use since the slot was last asked, which is then forgotten.
    fn take(&self) -> Option<Sighting> {
        let used = self.used.swap(UNUSED, Ordering::Relaxed);
        (used != UNUSED).then(|| Sighting { at: Timestamp::from_unix(used), ..self.opening.clone() })
    }
}

impl Seen {
    /// A connection by this certificate begins; its opening is a use. Takes a lock, once per connection.
    pub fn open(self: &Arc<Self>, opening: Sighting) -> Visit {
        let used = AtomicI64::new(opening.at.unix());
        let slot = Arc::new(Slot { opening, used });
        let mut book = self.lock();
        book.opened += 1;
        let id = book.opened;
        book.live.insert(id, Arc::clone(&slot));
        drop(book);
        Visit { seen: Arc::clone(self), id, slot }
    }

    /// The certificates that were used since each was drained last, each at most once in 60 s; the others are kept for
    /// a later call. In no order. To be called more often than once in 60 s, because times are whole seconds.
    pub fn drain(&self, now: Timestamp) -> Vec<Sighting> {
        let mut book = self.lock();
        let Book { live, left, drained, .. } = &mut *book;
        // A clock that was set back does not silence anybody.
        drained.retain(|_, at| *at <= now && at.until(now) < PAUSE);
        let mut latest: HashMap<CertificateName, Sighting> = HashMap::new();
        let gone: Vec<CertificateName> = left.keys().filter(|name| !drained.contains_key(*name)).cloned().collect();
        latest.extend(gone.into_iter().filter_map(|name| left.remove_entry(&name)));
        for slot in live.values() {
            if !drained.contains_key(&slot.opening.name())
                && let Some(sighting) = slot.take()
            {
                keep_later(latest.entry(sighting.name()), sighting);
            }
        }
        drained.extend(latest.keys().map(|name| (name.clone(), now)));
        latest.into_values().collect()
    }

    /// Certificates that were not recorded, because nobody had drained [`LEFT_MAX`] others.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    fn leave(&self, id: u64) {
        let mut book = self.lock();
        // Inside the lock: a drain must not find the use neither here nor there.
        let Some(sighting) = book.live.remove(&id).and_then(|slot| slot.take()) else { return };
        let full = book.left.len() >= LEFT_MAX;
        match book.left.entry(sighting.name()) {
            Entry::Vacant(_) if full => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            entry => keep_later(entry, sighting),
        }
    }

    /// A panic elsewhere leaves the maps whole: each change is one operation on one of them.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep_later(entry: Entry<'_, CertificateName, Sighting>, sighting: Sighting) {
    match entry {
        Entry::Occupied(mut known) if known.get().at <= sighting.at => drop(known.insert(sighting)),
        Entry::Occupied(_) => {}
        Entry::Vacant(place) => drop(place.insert(sighting)),
    }
}

/// One connection's use of its certificate, until it is dropped.
#[derive(Debug)]
pub struct Visit {
    seen: Arc<Seen>,
    id: u64,
    slot: Arc<Slot>,
}

impl Visit {
    /// The certificate is used now. No lock, no look-up, no allocation.
    pub fn touch(&self, now: Timestamp) {
        self.slot.used.store(now.unix(), Ordering::Relaxed);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.seen.leave(self.id);
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

    fn sighting(serial: u32, from: u8, at: Timestamp) -> Sighting {
        let addon = "telemetry".parse().unwrap();
        let identity = PeerIdentity { cluster: "c1".parse().unwrap(), agent: AgentName::of_addon(&addon), addon };
        Sighting {
            serial: Serial::from_hex(&format!("{serial:040x}")).unwrap(),
            issuer: "4b0ce8b606615584".to_owned(),
            identity,
            at,
            from: IpAddr::from([10, 0, 0, from]),
        }
    }

    #[test]
    fn ten_thousand_uses_are_one_sighting_per_minute() {
        let seen = Arc::new(Seen::default());
        let visit = seen.open(sighting(1, 1, START));
        for _ in 0..10_000 {
            visit.touch(after(5));
        }
        assert_eq!(seen.drain(after(10)), [sighting(1, 1, after(5))]);
        visit.touch(after(20));
        assert_eq!(seen.drain(after(69)), [], "within the minute");
        assert_eq!(seen.drain(after(70)), [sighting(1, 1, after(20))], "and it was not lost");
        assert_eq!(seen.drain(after(700)), [], "what was not used is not seen");
    }

    #[test]
    fn of_several_connections_the_last_use_counts_also_of_those_that_ended() {
        let seen = Arc::new(Seen::default());
        let (first, second) = (seen.open(sighting(1, 1, START)), seen.open(sighting(1, 2, after(1))));
        let other = seen.open(sighting(2, 3, after(2)));
        first.touch(after(9));
        drop((first, other));
        second.touch(after(8));
        let mut drained = seen.drain(after(10));
        drained.sort_by(|a, b| a.serial.to_string().cmp(&b.serial.to_string()));
        assert_eq!(drained, [sighting(1, 1, after(9)), sighting(2, 3, after(2))]);
        drop(second);
        let book = seen.lock();
        assert!(book.live.is_empty() && book.left.is_empty(), "{book:?}");
    }

    #[test]
    fn a_clock_that_is_set_back_silences_nobody() {
        let seen = Arc::new(Seen::default());
        let visit = seen.open(sighting(1, 1, after(3600)));
        assert_eq!(seen.drain(after(3600)).len(), 1);
        visit.touch(after(1));
        assert_eq!(seen.drain(after(2)), [sighting(1, 1, after(1))]);
    }

    #[test]
    fn what_nobody_drains_is_bounded_and_the_known_stay_known() {
        let seen = Arc::new(Seen::default());
        let max = u32::try_from(LEFT_MAX).unwrap();
        for serial in 0..max + 10 {
            drop(seen.open(sighting(serial, 1, START)));
        }
        drop(seen.open(sighting(7, 2, after(5))));
        assert_eq!(seen.missed(), 10);
        let drained = seen.drain(after(6));
        assert_eq!(drained.len(), LEFT_MAX);
        assert!(drained.contains(&sighting(7, 2, after(5))));
        assert_eq!(seen.drain(after(66)), []);
        assert!(seen.lock().drained.is_empty(), "names are kept for a minute");
    }
}
