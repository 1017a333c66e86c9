//! The check of many rows at once, by whoever holds them; pages are then joined to a [`Chain`] in order.
//!
//! [`Chain`]: crate::journal::chain::Chain

use data_encoding::HEXLOWER;

use crate::journal::entry::{Hash, Tip};
use crate::journal::scan::Scanned;
use crate::timestamp::Timestamp;

/// Rows that are a chain in themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The number of the first row.
    pub first: u64,
    /// The hash that the first row remembers.
    pub previous: Hash,
    /// The time of the first row.
    pub time: Timestamp,
    /// The epochs of the first row and of the last.
    pub epochs: (u64, u64),
    /// The last row.
    pub tip: Tip,
}

impl Link {
    /// Goes on by the rows after its last; `None`, and nothing changed, if they do not follow.
    pub fn join(&mut self, next: &Self) -> Option<()> {
        let follows = next.first == self.tip.seq + 1
            && next.previous == self.tip.hash
            && next.time >= self.tip.time
            && next.epochs.0 >= self.epochs.1;
        if !follows {
            return None;
        }
        (self.tip, self.epochs.1) = (next.tip, next.epochs.1);
        Some(())
    }
}

/// Checks rows from number `first` on: their texts, each but the last ended by a line feed, and the hashes stored beside
/// them, one after the other. `each` sees every entry and says whether it is as it should be.
///
/// `None` when anything is not as usual: row by row it will turn out whether it is wrong, and where.
pub fn check<'t>(
    first: u64,
    texts: &'t str,
    hashes: &[u8],
    mut each: impl FnMut(&Scanned<'t>) -> bool,
) -> Option<Link> {
    let mut link: Option<Link> = None;
    let mut stored = hashes.chunks_exact(32);
    let (mut hex, mut rest) = ([0; 64], Some(texts));
    for seq in first.. {
        let Some(texts) = rest else { break };
        let (entry, length) = Scanned::read(texts)?;
        let (text, after) = texts.split_at_checked(length)?;
        rest = match after.as_bytes() {
            [] => None,
            _ => Some(after.strip_prefix('\n')?),
        };
        let hash = Hash::of(text);
        if entry.seq != seq || stored.next()? != hash.as_bytes() || !each(&entry) {
            return None;
        }
        let tip = Tip { seq, hash, time: entry.time };
        match &mut link {
            None => {
                let previous = Hash::from_hex(entry.previous.as_bytes())?;
                link = Some(Link { first, previous, time: entry.time, epochs: (entry.epoch, entry.epoch), tip });
            }
            Some(link) => {
                HEXLOWER.encode_mut(link.tip.hash.as_bytes(), &mut hex);
                if entry.previous.as_bytes() != hex || entry.time < link.tip.time || entry.epoch < link.epochs.1 {
                    return None;
                }
                (link.tip, link.epochs.1) = (tip, entry.epoch);
            }
        }
    }
    (stored.next().is_none() && stored.remainder().is_empty()).then_some(link)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::chain::Chain;
    use crate::journal::chain::tests::{Row, mk_head, mk_rows};

    fn check_rows(rows: &[Row]) -> Option<Link> {
        let texts: Vec<_> = rows.iter().map(|row| row.1.as_str()).collect();
        let hashes: Vec<u8> = rows.iter().flat_map(|row| row.2.clone()).collect();
        check(rows[0].0, &texts.join("\n"), &hashes, |_| true)
    }

    #[test]
    fn pages_join_to_a_chain() {
        let rows = mk_rows(9);
        let mut chain = Chain::after(Tip::EMPTY, None);
        let (front, back) = (check_rows(&rows[..4]).unwrap(), check_rows(&rows[4..]).unwrap());
        assert!(!chain.clone().join(&back));
        assert!(chain.join(&front) && !chain.join(&front) && chain.join(&back));
        let mut by_row = Chain::after(Tip::EMPTY, None);
        rows.iter().for_each(|(seq, text, hash)| drop(by_row.follow(*seq, text, hash).unwrap()));
        assert_eq!(chain.tip(), by_row.tip());
    }

    #[test]
    fn a_page_with_the_head_is_for_the_chain_to_follow() {
        let rows = mk_rows(9);
        let mut chain = Chain::after(Tip::EMPTY, Some(mk_head(&rows, 3)));
        assert!(!chain.join(&check_rows(&rows[..4]).unwrap()));
        assert!(chain.join(&check_rows(&rows[..2]).unwrap()));
    }

    #[test]
    fn whatever_is_wrong_is_not_passed() {
        let good = mk_rows(5);
        type Change = fn(&mut Vec<Row>);
        let changes: [Change; 6] = [
            |rows| rows[2].1 = rows[2].1.replace(r#""n":"3""#, r#""n":"4""#),
            |rows| rows[2].2[0] ^= 1,
            |rows| rows[4].2.truncate(31),
            |rows| rows[4].2.push(0),
            |rows| drop(rows.remove(2)),
            |rows| rows.swap(1, 2),
        ];
        assert!(check_rows(&good).is_some());
        for change in changes {
            let mut rows = good.clone();
            change(&mut rows);
            assert_eq!(check_rows(&rows), None);
        }
        assert_eq!(check(1, "", &[], |_| true), None);
        assert_eq!(check(1, &good[0].1, &good[0].2, |_| false), None);
    }
}
