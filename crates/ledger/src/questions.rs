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

impl Ledger {
    /// The specification of each AddOnSigner after its last entry, as JSON; if that entry is a deletion, before it. An
    /// archived entry yields none.
    pub async fn signer_specs(&self) -> Result<BTreeSet<String>, LedgerError> {
        let sql = "SELECT e.entry FROM latest l JOIN entries e ON e.seq = l.seq WHERE l.topic = 'signer'";
        let rows = self.rows(sql.to_owned(), Vec::new()).await?;
        // An unreadable entry yields none; `certs verify` reports it.
        let entries = rows.iter().filter_map(|row| Entry::parse(row.str(0)).ok());
        let specs = entries.filter_map(|entry| {
            let known = ["after", "before"].map(|name| entry.detail(name).to_owned());
            known.into_iter().find(|spec| !spec.is_empty())
        });
        Ok(specs.collect())
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
