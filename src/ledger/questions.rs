//! What a hub asks the ledger when it begins to lead, because the ledger, the Secrets and the objects on the API server
//! may come from different times: somebody restored a backup, or changed something while no hub looked. And what it
//! asks before it drops an authority.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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

/// `word`: 0 none, 1 another bundle, 2 this one, but not for long, 3 this one. `copy`: a copy may still hold another
/// one. The expression keeps SQLite from grouping by the index of holders, which has the whole table. The gateway's own
/// certificates have no agent. What a clock that was ahead has left does not count: certificates that are not valid
/// yet, and words of later than now.
const HOLDERS: &str = "SELECT a.cluster, a.addon, COUNT(*), MAX(a.newest), MAX(a.seen), \
     CAST(SUM(CASE WHEN a.word = 3 AND a.copy = 0 THEN 1 ELSE 0 END) AS BIGINT), \
     CAST(SUM(CASE WHEN a.word = 2 AND a.copy = 0 THEN 1 ELSE 0 END) AS BIGINT), \
     CAST(SUM(CASE WHEN a.word = 1 OR a.copy = 1 THEN 1 ELSE 0 END) AS BIGINT) FROM (\
     SELECT cluster || '' AS cluster, addon, agent, MAX(last_seen) AS seen, MAX(not_before) AS newest, \
     MAX(CASE WHEN holds = '' THEN 0 WHEN holds <> $1 THEN 1 WHEN held_since > $3 THEN 2 ELSE 3 END) AS word, \
     MAX(CASE WHEN holds NOT IN ('', $1) AND held_at > $3 AND held_at < $5 THEN 1 ELSE 0 END) AS copy \
     FROM certificates WHERE not_before <= $2 AND not_after > $2 AND agent <> '' \
     AND state NOT IN ('abandoned', 'unpublished') \
     GROUP BY cluster || '', addon, agent) AS a \
     WHERE a.word = 1 OR a.copy = 1 OR (SELECT COUNT(*) FROM (\
     SELECT 1 FROM certificates m WHERE m.cluster = a.cluster AND m.addon = a.addon AND m.agent = a.agent \
     AND m.seq <= $4 LIMIT 1) AS one) = 1 \
     GROUP BY a.cluster, a.addon";

/// For how long an agent must have shown one trust bundle and no other before it is believed. Several copies of it may
/// have its name or its certificate; each asks every 5 minutes, and once more if that failed. By then a kubelet has
/// shown pods what the agent keeps in a Secret, too.
pub const COPIES: Duration = Duration::from_secs(900);

/// Which trust bundle somebody asks for, and who need not show it.
#[derive(Debug, Clone, Copy)]
pub struct BundleQuestion<'q> {
    /// The digest of the bundle.
    pub digest: &'q str,
    /// Certificates whose intents have a larger number came with it.
    pub tip: u64,
    /// The time of the question.
    pub now: Timestamp,
}

/// The agents of one addon on one cluster that may lack a trust bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleHolders {
    /// The addon and the cluster.
    pub key: AddOnKey,
    /// How many there are.
    pub agents: u64,
    /// How many of them have shown that bundle, and no other, for [`COPIES`].
    pub shown: u64,
    /// How many have shown that bundle, but not for so long.
    pub recent: u64,
    /// How many have shown another one last.
    pub behind: u64,
    /// When the newest of their certificates begins.
    pub newest: Timestamp,
    /// When the last of them was seen at the gateway.
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

    /// For each addon on each cluster: the agents with a certificate that has not expired, if the bundle has not come
    /// with each certificate that they have ever had, or if they have shown another one.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn bundle_holders(&self, asked: BundleQuestion<'_>) -> Result<Vec<BundleHolders>, LedgerError> {
        let BundleQuestion { digest, tip, now } = asked;
        let [early, late] = [now.minus(COPIES), now.plus(COPIES)].map(|time| time.unix().into());
        let values = vec![digest.into(), now.unix().into(), early, tip.into(), late];
        let rows = self.rows(HOLDERS.to_owned(), values).await?;
        let holders = |row: &Cells| {
            let key = AddOnKey { cluster: row.str(0).parse().ok()?, addon: row.str(1).parse().ok()? };
            let newest = Timestamp::from_unix(row.int(3)?);
            let last_seen = row.int(4).map(Timestamp::from_unix);
            let [agents, shown, recent, behind] = [2, 5, 6, 7].map(|at| row.count(at));
            Some(BundleHolders { key, agents, shown, recent, behind, newest, last_seen })
        };
        Ok(rows.iter().filter_map(holders).collect())
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
        let sql = leaves_of(newer.len());
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

/// A page of [`Ledger::old_leaves`] with `n` newer authorities. The expression leaves only the index of the ends, and
/// within it that of the holders (decision 0010).
fn leaves_of(n: usize) -> String {
    format!(
        "SELECT v.seq, v.not_after, v.cluster, v.addon, v.agent, v.not_before, v.last_seen, v.state, \
         CASE WHEN v.issuer <> ${} OR v.state = 'abandoned' THEN NULL ELSE (SELECT COUNT(*) FROM (\
         SELECT 1 FROM certificates m WHERE m.cluster = v.cluster AND m.addon = v.addon AND m.agent = v.agent \
         AND m.seq > v.seq AND (m.issuer || '') IN {} AND m.last_seen IS NOT NULL LIMIT 1) AS one) END \
         FROM (SELECT * FROM certificates WHERE not_after >= ${} AND (not_after, seq) > (${}, ${}) \
         ORDER BY not_after, seq LIMIT {LEAVES}) AS v ORDER BY v.not_after, v.seq",
        n + 1,
        tuples(n, 1),
        n + 2,
        n + 2,
        n + 3,
    )
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

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, SqliteConnection};

    use super::*;

    /// A cluster chooses the names of its agents, and may have thousands of one addon.
    #[tokio::test]
    async fn whether_an_agent_had_another_certificate_is_asked_of_its_own_ones_alone() {
        let mut store = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        sqlx::raw_sql(include_str!("migrations/sqlite/0001_ledger.sql")).execute(&mut store).await.unwrap();
        for (sql, seq) in [(HOLDERS.to_owned(), "rowid<?"), (leaves_of(2), "rowid>?")] {
            let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(explain).fetch_all(&mut store).await.unwrap();
            let steps: Vec<String> = plan.into_iter().map(|(.., step)| step.replace("seq", "rowid")).collect();
            let wanted = format!("certificates_holder (cluster=? AND addon=? AND agent=? AND {seq})");
            assert!(steps.iter().any(|step| step.starts_with("SEARCH m") && step.contains(&wanted)), "{steps:#?}");
        }
    }
}
