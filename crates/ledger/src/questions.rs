//! Queries of a hub that begins to lead. The ledger, the Secrets and the objects on the API server may date from
//! different times: an administrator may have restored a backup, or changed something while no hub was watching.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;

use super::command::{LedgerCommand, LedgerOutcome};
use super::connection::{Cells, Value, tuples};
use super::{Ledger, LedgerError};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::timestamp::Timestamp;

/// CSRs in one query.
const PAGE: usize = 128;
/// Entries with specifications in one query: each has two, which may be large.
const SPECS: usize = 16;
/// How many AddOnSigners are looked at. The ledger knows the names of all that ever were.
const MOST_SPECS: usize = 1024;

impl Ledger {
    /// Shows `take` the specification of each AddOnSigner after its last entry, as JSON; if that entry is a deletion,
    /// before it. The AddOnSigners that changed last come first, 1,024 at most, until `take` returns false. An archived
    /// entry yields none.
    pub async fn signer_specs(&self, mut take: impl FnMut(&str) -> bool) -> Result<(), LedgerError> {
        let sql = format!("SELECT seq FROM latest WHERE topic = 'signer' ORDER BY seq DESC LIMIT {MOST_SPECS}");
        let changes: Vec<Value> = self.rows(sql, Vec::new()).await?.iter().map(|row| row.count(0).into()).collect();
        for page in changes.chunks(SPECS) {
            let places = tuples(1, page.len());
            let sql = format!("SELECT entry FROM entries WHERE seq IN (VALUES {places}) ORDER BY seq DESC");
            for row in self.rows(sql, page.to_vec()).await? {
                let Ok(entry) = Entry::parse(row.str(0)) else { continue }; // `certs verify` reports it
                let mut known = ["after", "before"].into_iter().map(|name| entry.detail(name));
                if known.find(|spec| !spec.is_empty()).is_some_and(|spec| !take(spec)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The names of the AddOnSigners whose last entry is not a deletion.
    pub async fn signers(&self) -> Result<BTreeSet<String>, LedgerError> {
        let sql = "SELECT name FROM latest WHERE topic = 'signer' AND value <> ''".to_owned();
        Ok(self.rows(sql, Vec::new()).await?.iter().map(|row| row.text(0)).collect())
    }

    /// Which of these CSRs, each with the time when it was made, have a certificate in the ledger.
    pub async fn recorded(&self, requests: &[(Timestamp, CsrUid)]) -> Result<BTreeSet<CsrUid>, LedgerError> {
        let mut recorded = BTreeSet::new();
        for page in requests.chunks(PAGE) {
            let sql = format!(
                "SELECT c.uid FROM (VALUES {}) AS v CROSS JOIN certificates c \
                 WHERE c.requested = v.column1 AND c.uid = v.column2 AND c.signed_seq IS NOT NULL",
                tuples(2, page.len())
            );
            let values = page.iter().flat_map(|(made, uid)| [Value::from(made.unix()), uid.as_str().into()]);
            recorded.extend(self.rows(sql, values.collect()).await?.iter().map(|row| row.str(0).into()));
        }
        Ok(recorded)
    }

    /// The first result of [`Self::last_ends`], cached for all lineages that start: from then on each end is reserved
    /// before a certificate is signed.
    pub async fn first_ends(&self, now: Timestamp) -> Result<BTreeMap<AuthorityId, Timestamp>, LedgerError> {
        self.ends.get_or_try_init(|| self.last_ends(now)).await.cloned()
    }

    /// For each authority with certificates that have not expired at `now`: when the last of them expires.
    pub async fn last_ends(&self, now: Timestamp) -> Result<BTreeMap<AuthorityId, Timestamp>, LedgerError> {
        // The expression keeps SQLite from grouping by the index of issuers, which covers the whole table.
        let sql = "SELECT issuer || '', MAX(not_after) FROM certificates \
                   WHERE not_after >= $1 AND state <> 'abandoned' GROUP BY issuer || ''";
        let rows = self.rows(sql.to_owned(), vec![now.unix().into()]).await?;
        let end = |row: &Cells| Some((row.str(0).into(), Timestamp::from_unix(row.int(1)?)));
        Ok(rows.iter().filter_map(end).collect())
    }

    /// Whether the ledger still has the entry of this checkpoint.
    pub async fn has(&self, checkpoint: &Checkpoint) -> Result<bool, LedgerError> {
        let sql = "SELECT hash FROM entries WHERE seq = $1".to_owned();
        let rows = self.rows(sql, vec![checkpoint.seq.into()]).await?;
        Ok(rows.first().is_some_and(|row| HEXLOWER.encode(row.bytes(0)) == checkpoint.hash))
    }

    pub(super) async fn rows(&self, sql: String, values: Vec<Value>) -> Result<Vec<Cells>, LedgerError> {
        match self.ask(LedgerCommand::Ask { sql, values }).await? {
            LedgerOutcome::Rows(rows) => Ok(rows),
            _ => Ok(Vec::new()),
        }
    }
}
