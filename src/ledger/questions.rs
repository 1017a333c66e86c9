//! What a hub asks the ledger when it begins to lead, because the ledger, the Secrets and the objects on the API server
//! may come from different times: somebody restored a backup, or changed something while no hub looked. And what it
//! asks before it drops an authority.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;

use super::command::{LedgerCommand, LedgerOutcome};
use super::connection::{Cells, Value, tuples};
use super::{Ledger, LedgerError};
use addon_signer_core::ca::authority::AuthorityId;
use addon_signer_core::ca::line::need::OldLeaf;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::journal::checkpoint::Checkpoint;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::journal::state::CertificateState;
use addon_signer_core::journal::uid::RequestUid;
use addon_signer_core::timestamp::Timestamp;

/// Requests in one question.
const PAGE: usize = 128;
/// Certificates in one question about those that have not expired. The writer serves others between two questions.
const LEAVES: usize = 500;

/// Which of the gateway's trust bundles an agent has shown to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleShown {
    /// None: what it trusts is not its own to say.
    Nothing,
    /// Only others than the one that was asked for.
    Another,
    /// The one that was asked for.
    This,
}

/// An agent with a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleHolder {
    /// Its addon and cluster.
    pub key: AddOnKey,
    /// What it has shown.
    pub shown: BundleShown,
    /// When it was last seen at the gateway.
    pub last_seen: Option<Timestamp>,
}

impl Ledger {
    /// The specification of each AddOnSigner after its last entry, as JSON; if that entry is a deletion, before it. An
    /// entry that is in an archive names none.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn signer_specs(&self) -> Result<BTreeSet<String>, LedgerError> {
        let sql = "SELECT e.entry FROM latest l JOIN entries e ON e.seq = l.seq WHERE l.topic = 'signer'";
        let rows = self.rows(sql.to_owned(), Vec::new()).await?;
        // An entry that cannot be read names nothing; `certs verify` reports it.
        let entries = rows.iter().filter_map(|row| Entry::parse(row.str(0)).ok());
        let specs = entries.filter_map(|entry| {
            let known = ["after", "before"].map(|name| entry.detail(name).to_owned());
            known.into_iter().find(|spec| !spec.is_empty())
        });
        Ok(specs.collect())
    }

    /// Which of these requests, each with the time when it was made, have a certificate in the ledger.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn recorded(&self, requests: &[(Timestamp, RequestUid)]) -> Result<BTreeSet<RequestUid>, LedgerError> {
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

    /// As [`Self::last_ends`] was answered first, for all lines that begin: from then on each end is reserved before a
    /// certificate is signed.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn first_ends(&self, now: Timestamp) -> Result<BTreeMap<AuthorityId, Timestamp>, LedgerError> {
        self.ends.get_or_try_init(|| self.last_ends(now)).await.cloned()
    }

    /// For each authority with certificates that have not expired at `now`: when the last of them expires.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn last_ends(&self, now: Timestamp) -> Result<BTreeMap<AuthorityId, Timestamp>, LedgerError> {
        // The expression keeps SQLite from grouping by the index of issuers, which has the whole table.
        let sql = "SELECT issuer || '', MAX(not_after) FROM certificates \
                   WHERE not_after > $1 AND state <> 'abandoned' GROUP BY issuer || ''";
        let rows = self.rows(sql.to_owned(), vec![now.unix().into()]).await?;
        let end = |row: &Cells| Some((row.str(0).into(), Timestamp::from_unix(row.int(1)?)));
        Ok(rows.iter().filter_map(end).collect())
    }

    /// Each agent with a certificate that has not expired at `now`, and whether it has shown to hold the gateway's
    /// trust bundle of this digest.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn bundle_holders(&self, digest: &str, now: Timestamp) -> Result<Vec<BundleHolder>, LedgerError> {
        // The expression is for the same reason. The gateway's own certificates have no agent.
        let sql = "SELECT cluster || '', addon, agent, \
                   CAST(MAX(CASE holds WHEN $1 THEN 2 WHEN '' THEN 0 ELSE 1 END) AS BIGINT), MAX(last_seen) \
                   FROM certificates \
                   WHERE not_after > $2 AND agent <> '' AND state NOT IN ('abandoned', 'unpublished') \
                   GROUP BY cluster || '', addon, agent";
        let rows = self.rows(sql.to_owned(), vec![digest.into(), now.unix().into()]).await?;
        let holder = |row: &Cells| {
            let key = AddOnKey { cluster: row.str(0).parse().ok()?, addon: row.str(1).parse().ok()? };
            let shown = match row.int(3) {
                Some(2) => BundleShown::This,
                Some(1) => BundleShown::Another,
                _ => BundleShown::Nothing,
            };
            Some(BundleHolder { key, shown, last_seen: row.int(4).map(Timestamp::from_unix) })
        };
        Ok(rows.iter().filter_map(holder).collect())
    }

    /// Gives `each` every certificate of `old` that has not expired at `now`, in no order. Its holder has moved if a
    /// later certificate by one of the `newer` authorities was seen.
    ///
    /// # Errors
    /// [`LedgerError`]; then some may be missing.
    pub async fn old_leaves(
        &self,
        old: &AuthorityId,
        newer: &[&AuthorityId],
        now: Timestamp,
        mut each: impl FnMut(OldLeaf),
    ) -> Result<(), LedgerError> {
        let n = newer.len();
        // The expressions leave only the index of the ends, and within it that of the holders (decision 0010).
        let sql = format!(
            "SELECT v.seq, v.not_after, v.cluster, v.addon, v.agent, v.not_before, v.last_seen, v.state, \
             CASE WHEN v.issuer <> ${} OR v.state = 'abandoned' THEN NULL ELSE (SELECT COUNT(*) FROM (\
             SELECT 1 FROM certificates m WHERE m.cluster = v.cluster AND m.addon = v.addon AND m.seq > v.seq \
             AND (m.agent || '') = v.agent AND (m.issuer || '') IN {} AND m.last_seen IS NOT NULL LIMIT 1) AS one) END \
             FROM (SELECT * FROM certificates WHERE not_after >= ${} AND (not_after, seq) > (${}, ${}) \
             ORDER BY not_after, seq LIMIT {LEAVES}) AS v ORDER BY v.not_after, v.seq",
            n + 1,
            tuples(n, 1),
            n + 2,
            n + 2,
            n + 3,
        );
        let names: Vec<_> = newer.iter().copied().chain([old]).map(|id| Value::from(id.as_str())).collect();
        let mut after = (now.unix(), 0);
        loop {
            let values = names.iter().cloned().chain([Value::from(after.0), Value::from(after.1)]).collect();
            let rows = self.rows(sql.clone(), values).await?;
            rows.iter().filter_map(old_leaf).for_each(&mut each);
            let last = rows.last().filter(|_| rows.len() == LEAVES);
            let Some((end, seq)) = last.and_then(|row| Some((row.int(1)?, row.count(0)))) else { return Ok(()) };
            after = (end, seq);
        }
    }

    /// Whether the ledger still has the entry that this checkpoint vouches for.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn has(&self, checkpoint: &Checkpoint) -> Result<bool, LedgerError> {
        let sql = "SELECT hash FROM entries WHERE seq = $1".to_owned();
        let rows = self.rows(sql, vec![checkpoint.seq.into()]).await?;
        Ok(rows.first().is_some_and(|row| HEXLOWER.encode(row.bytes(0)) == checkpoint.hash))
    }

    async fn rows(&self, sql: String, values: Vec<Value>) -> Result<Vec<Cells>, LedgerError> {
        match self.ask(LedgerCommand::Ask { sql, values }).await? {
            LedgerOutcome::Rows(rows) => Ok(rows),
            _ => Ok(Vec::new()),
        }
    }
}

/// Reads a row of [`Ledger::old_leaves`]; `None` if the certificate is another authority's, or was never signed. An
/// unknown state counts as open.
fn old_leaf(row: &Cells) -> Option<OldLeaf> {
    let has_moved = row.int(8)? > 0;
    let state: Option<CertificateState> = row.str(7).parse().ok(); // `certs verify` reports it
    Some(OldLeaf {
        cluster: row.text(2),
        addon: row.text(3),
        agent: row.text(4),
        not_before: Timestamp::from_unix(row.int(5)?),
        last_seen: row.int(6).map(Timestamp::from_unix),
        is_open: state.is_none_or(|state| !state.is_final()),
        has_moved,
    })
}
