//! Compares what `certs list` returns for each cluster and each addon with the rows of the table. A list finds its rows
//! by an index, so a row that the index lacks would be hidden.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use super::VerifyError;
use crate::connection::Connection;
use crate::search::{Search, Way};
use addon_signer_core::query::{Cursor, Filter, PAGE_MAX, Query};
use addon_signer_core::timestamp::Timestamp;

/// A digest of a set of certificates, in a few bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    certificates: u64,
    /// A sum over the hashes of their numbers. The key of the hashes is new in each check, so that an attacker cannot
    /// choose other certificates with the same sum.
    sum: u64,
}

/// The certificates of each cluster and of each addon, as the table has them.
#[derive(Default)]
pub(super) struct Lists {
    clusters: BTreeMap<String, Tally>,
    addons: BTreeMap<String, Tally>,
    hashes: RandomState,
}

impl Lists {
    /// Adds a certificate.
    pub(super) fn add(&mut self, seq: u64, cluster: &str, addon: &str) {
        let Self { clusters, addons, hashes } = self;
        for (tallies, name) in [(clusters, cluster), (addons, addon)] {
            if !tallies.contains_key(name) {
                tallies.insert(name.to_owned(), Tally::default());
            }
            if let Some(tally) = tallies.get_mut(name) {
                tally.add(hashes.hash_one(seq));
            }
        }
    }

    /// Compares the lists of each cluster and of each addon with the table. Together they have twice the rows of the
    /// table.
    pub(super) async fn compare(&self, connection: &mut Connection) -> Result<(), VerifyError> {
        for (name, tally) in &self.clusters {
            let filter = Filter { cluster: Some(name.clone()), ..Filter::default() };
            self.compare_one(connection, filter, ("cluster", name, tally)).await?;
        }
        for (name, tally) in &self.addons {
            let filter = Filter { addon: Some(name.clone()), ..Filter::default() };
            self.compare_one(connection, filter, ("addon", name, tally)).await?;
        }
        Ok(())
    }

    async fn compare_one(
        &self,
        connection: &mut Connection,
        filter: Filter,
        (flag, name, expected): (&str, &str, &Tally),
    ) -> Result<(), VerifyError> {
        match self.list(connection, filter, expected.certificates).await? {
            Some(listed) if listed != *expected => Err(VerifyError::Unsound(format!(
                "`certs list --{flag}` returns {} certificates of {name:?}, not the {} that the table has",
                listed.certificates, expected.certificates
            ))),
            _ => Ok(()),
        }
    }

    /// What a list returns, page by page, until there are more than `most`; `None` if it finds its rows without an
    /// index of names. Such a list scans the table as the check does, and there may be many of them.
    async fn list(&self, connection: &mut Connection, filter: Filter, most: u64) -> Result<Option<Tally>, sqlx::Error> {
        let now = Timestamp::from_unix(0); // matters to none of these filters
        let mut query = Query { filter, after: None, limit: PAGE_MAX };
        let search = Search { query: &query, now };
        let mut counts = Vec::new();
        if let Some((sql, values)) = search.counts() {
            counts.extend(connection.rows(sql, values).await?.iter().map(|row| row.count(0)));
        }
        let way = search.way(&counts);
        if way == Way::Order {
            return Ok(None);
        }
        let mut listed = Tally::default();
        loop {
            let (sql, values) = Search { query: &query, now }.select(way);
            // The numbers are enough: the row of each number was compared.
            let rows = connection.rows(format!("SELECT seq FROM ({sql}) AS listed"), values).await?;
            rows.iter().for_each(|row| listed.add(self.hashes.hash_one(row.count(0))));
            let is_full = listed.certificates.is_multiple_of(u64::from(PAGE_MAX));
            match rows.iter().map(|row| row.count(0)).min() {
                Some(oldest) if is_full && listed.certificates <= most => {
                    query.after = Some(Cursor { time: None, seq: oldest });
                }
                _ => return Ok(Some(listed)),
            }
        }
    }
}

impl Tally {
    fn add(&mut self, hash: u64) {
        self.certificates += 1;
        self.sum = self.sum.wrapping_add(hash);
    }
}
