//! What one transaction writes: the entries of all commands in a batch, chained in order, and the index that follows
//! from them.

use std::collections::{BTreeSet, HashMap};

use data_encoding::BASE64;

use super::command::{BatchError, CertificateUse, LedgerCommand, LedgerOutcome};
use super::connection::{Cells, Connection, Value, tuples};
use super::latest::{Latest, latest};
use super::open::OpenStates;
use addon_signer_core::ca::issuer::RecordFault;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::CsrUid;
use addon_signer_core::journal::entry::{Entry, Hash, Tip};
use addon_signer_core::journal::record::{Existing, Intent, Record};
use addon_signer_core::timestamp::Timestamp;

/// The writing process, and the time.
#[derive(Debug, Clone)]
pub(crate) struct Author {
    pub(crate) replica: String,
    pub(crate) epoch: u64,
    pub(crate) now: Timestamp,
}

/// Largest number of rows in one statement.
const ROWS: usize = 128;

/// Raises the fence to our epoch, or confirms it; the row is locked until the transaction ends.
pub(crate) async fn fence(connection: &mut Connection, author: &Author) -> Result<(), BatchError> {
    let sql = "UPDATE fence SET epoch = $1, replica = $2 \
               WHERE id = 1 AND (epoch < $1 OR (epoch = $1 AND replica IN ($2, '')))";
    let ours = vec![author.epoch.into(), author.replica.as_str().into()];
    if connection.execute(sql.to_owned(), ours).await? == 1 {
        return Ok(());
    }
    let rows = connection.rows("SELECT epoch, replica FROM fence WHERE id = 1".to_owned(), Vec::new()).await?;
    match rows.first() {
        Some(row) => Err(BatchError::Fenced { theirs: row.count(0), replica: row.text(1) }),
        None => Err(BatchError::Inconsistent("the row of the fence is missing".to_owned())),
    }
}

/// Performs `commands` in the open transaction. Returns the new tip and the outcome of each command.
pub(crate) async fn apply(
    connection: &mut Connection,
    author: &Author,
    tip: Tip,
    commands: &[LedgerCommand],
) -> Result<(Tip, Vec<LedgerOutcome>), BatchError> {
    let known = existing(connection, commands).await?;
    let latest = latest(connection, commands).await?;
    let open = OpenStates::read(connection, commands).await?;
    let mut draft = Draft::new(author, tip);
    let mut outcomes = Vec::with_capacity(commands.len());
    for command in commands {
        outcomes.push(match command {
            LedgerCommand::Ask { sql, values } => {
                LedgerOutcome::Rows(connection.rows(sql.clone(), values.clone()).await?)
            }
            command => draft.add(command, &known, &latest, &open),
        });
    }
    let tip = draft.tip;
    draft.write(connection).await?;
    Ok((tip, outcomes))
}

/// Rows to be written.
struct Draft<'a> {
    author: &'a Author,
    tip: Tip,
    entries: Vec<Value>,
    intents: Vec<Value>,
    /// Numbers of new rows.
    begun: Vec<Value>,
    signed: Vec<Value>,
    /// (state, serial, number of the entry) of certificates that are abandoned or unpublished.
    ended: Vec<(&'static str, Serial, u64)>,
    latest: Vec<(&'static str, String, String, u64)>,
    published: Vec<(Timestamp, Serial)>,
    /// One list for each command, because a statement may name a certificate only once.
    seen: Vec<Vec<CertificateUse>>,
}

impl<'a> Draft<'a> {
    fn new(author: &'a Author, tip: Tip) -> Self {
        Self {
            author,
            tip,
            entries: Vec::new(),
            intents: Vec::new(),
            begun: Vec::new(),
            signed: Vec::new(),
            ended: Vec::new(),
            latest: Vec::new(),
            published: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn add(
        &mut self,
        command: &LedgerCommand,
        known: &HashMap<CsrUid, Existing>,
        latest: &Latest,
        open: &OpenStates,
    ) -> LedgerOutcome {
        match command {
            LedgerCommand::Intend(intent) => {
                if let Some(existing) = known.get(&intent.uid) {
                    return LedgerOutcome::Existing(existing.clone());
                }
                self.append(&Record::Intent(intent.clone()), &intent.requester);
            }
            LedgerCommand::Append { record, actor } => self.append(record, actor),
            LedgerCommand::Change { record, actor } => self.change(record, actor, latest),
            LedgerCommand::Published { serials, at } => {
                self.published.extend(serials.iter().map(|serial| (*at, *serial)));
            }
            LedgerCommand::Seen(seen) => self.seen.push(seen.clone()),
            LedgerCommand::Latest { topic } => {
                let of_topic = latest.iter().filter(|((of, _), _)| of == topic);
                return LedgerOutcome::Latest(
                    of_topic.map(|((_, name), value)| (name.clone(), value.clone())).collect(),
                );
            }
            LedgerCommand::Close(record) if open.allow(record) => self.append(record, ""),
            LedgerCommand::Close(_) | LedgerCommand::Ask { .. } => {}
        }
        LedgerOutcome::Done
    }

    fn change(&mut self, record: &Record, actor: &str, latest: &Latest) {
        let Some((topic, name, value)) = record.topic() else { return self.append(record, actor) };
        // Earlier records of this batch count as well.
        let own = self.latest.iter().rev().find(|row| row.0 == topic && row.1 == name).map(|row| row.2.clone());
        let before = own.or_else(|| latest.get(&(topic, name.clone())).cloned());
        if before.as_deref().unwrap_or_default() == value {
            return;
        }
        let record = record.clone().with_before(before.unwrap_or_default());
        self.append(&record, actor);
        self.latest.push((topic, name, value, self.tip.seq));
    }

    /// Chains one more entry. Its time is never before that of the last entry, even if the clock is set back.
    fn append(&mut self, record: &Record, actor: &str) {
        let seq = self.tip.seq + 1;
        let time = self.author.now.max(self.tip.time);
        let entry = Entry {
            seq,
            previous: self.tip.hash.to_string(),
            time: time.to_string(),
            kind: record.kind().to_owned(),
            epoch: self.author.epoch,
            replica: self.author.replica.clone(),
            actor: actor.to_owned(),
            details: record.details(),
        };
        let text = entry.text();
        let hash = Hash::of(&text);
        self.tip = Tip { seq, hash, time };
        self.entries.extend([seq.into(), Value::Text(text), Value::Bytes(hash.as_bytes().to_vec())]);
        self.index(record);
    }

    fn index(&mut self, record: &Record) {
        let seq = self.tip.seq;
        match record {
            Record::Intent(intent) => {
                self.intents.extend(intent_row(seq, intent));
                self.begun.push(seq.into());
            }
            Record::Signed { serial, .. } => self.signed.extend([serial.to_string().into(), seq.into()]),
            Record::Abandoned { serial, .. } => self.ended.push(("abandoned", *serial, seq)),
            Record::Unpublished { serial, .. } => self.ended.push(("unpublished", *serial, seq)),
            _ => {}
        }
    }

    async fn write(self, connection: &mut Connection) -> Result<(), BatchError> {
        insert(connection, "INSERT INTO entries (seq, entry, hash) VALUES ", 3, self.entries).await?;
        let intents = "INSERT INTO certificates (seq, requested, uid, request, signer, cluster, addon, agent, issuer, \
                       serial, not_before, not_after, state) VALUES ";
        insert(connection, intents, INTENT_COLUMNS, self.intents).await?;
        insert(connection, "INSERT INTO unfinished (seq) VALUES ", 1, self.begun).await?;
        mark_signed(connection, self.signed).await?;
        for (state, serial, seq) in self.ended {
            // The index must match the entry, even if the certificate's publication was noted meanwhile.
            let sql = "UPDATE certificates SET state = $1, ended_seq = $2, released = $3 \
                       WHERE serial = $4 AND state <> 'abandoned' RETURNING seq";
            let released = if state == "abandoned" { seq } else { 0 };
            let values = vec![state.into(), seq.into(), released.into(), serial.to_string().into()];
            finish(connection, sql.to_owned(), values).await?;
        }
        for (topic, name, value, seq) in self.latest {
            let sql = "INSERT INTO latest (topic, name, value, seq) VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (topic, name) DO UPDATE SET value = excluded.value, seq = excluded.seq";
            connection.execute(sql.to_owned(), vec![topic.into(), name.into(), value.into(), seq.into()]).await?;
        }
        mark_published(connection, self.published).await?;
        for seen in self.seen {
            mark_seen(connection, seen).await?;
        }
        Ok(())
    }
}

const INTENT_COLUMNS: usize = 13;

fn intent_row(seq: u64, intent: &Intent) -> [Value; INTENT_COLUMNS] {
    let text = |text: &String| Value::Text(text.clone());
    let [cluster, addon, agent] = intent.names();
    [
        seq.into(),
        intent.requested.unix().into(),
        intent.uid.as_str().into(),
        text(&intent.request),
        text(&intent.signer),
        cluster.into(),
        addon.into(),
        agent.into(),
        intent.issuer.as_str().into(),
        intent.serial.to_string().into(),
        intent.not_before.unix().into(),
        intent.not_after.unix().into(),
        "intent".into(),
    ]
}

async fn insert(
    connection: &mut Connection,
    into: &str,
    columns: usize,
    mut values: Vec<Value>,
) -> Result<(), BatchError> {
    while !values.is_empty() {
        let rest = values.split_off(values.len().min(ROWS * columns));
        let sql = format!("{into}{}", tuples(columns, values.len() / columns));
        connection.execute(sql, values).await?;
        values = rest;
    }
    Ok(())
}

async fn mark_signed(connection: &mut Connection, mut signed: Vec<Value>) -> Result<(), BatchError> {
    while !signed.is_empty() {
        let rest = signed.split_off(signed.len().min(ROWS * 2));
        let rows = signed.len() / 2;
        let sql = format!(
            "UPDATE certificates SET state = 'signed', signed_seq = v.column2 FROM (VALUES {}) AS v \
             WHERE certificates.serial = v.column1 AND certificates.state = 'intent'",
            tuples(2, rows)
        );
        let changed = connection.execute(sql, signed).await?;
        if usize::try_from(changed).ok() != Some(rows) {
            return Err(BatchError::Inconsistent("a certificate was signed without an intent".to_owned()));
        }
        signed = rest;
    }
    Ok(())
}

async fn mark_published(connection: &mut Connection, published: Vec<(Timestamp, Serial)>) -> Result<(), BatchError> {
    for rows in published.chunks(ROWS) {
        let values: Vec<Value> =
            rows.iter().flat_map(|(at, serial)| [serial.to_string().into(), at.unix().into()]).collect();
        let sql = format!(
            "UPDATE certificates SET state = 'published', published_at = v.column2 FROM (VALUES {}) AS v \
             WHERE certificates.serial = v.column1 AND certificates.state = 'signed' RETURNING seq",
            tuples(2, rows.len())
        );
        finish(connection, sql, values).await?;
    }
    Ok(())
}

/// Ends certificates by a statement that returns their numbers, and removes them from the table of unfinished ones.
async fn finish(connection: &mut Connection, sql: String, values: Vec<Value>) -> Result<(), BatchError> {
    let rows = connection.rows(sql, values).await?;
    if !rows.is_empty() {
        let sql = format!("DELETE FROM unfinished WHERE seq IN {}", tuples(rows.len(), 1));
        connection.execute(sql, rows.iter().map(|row| row.count(0).into()).collect()).await?;
    }
    Ok(())
}

/// Notes uses. A certificate that the ledger does not have is ignored, because it may be archived. The time of the last
/// use never decreases.
async fn mark_seen(connection: &mut Connection, seen: Vec<CertificateUse>) -> Result<(), BatchError> {
    for rows in seen.chunks(ROWS) {
        let values = rows.iter();
        let values: Vec<Value> = values
            .flat_map(|CertificateUse { serial, at, from }| {
                [serial.to_string().into(), at.unix().into(), from.as_str().into()]
            })
            .collect();
        let sql = format!(
            "UPDATE certificates SET \
             last_seen = CASE WHEN last_seen > v.column2 THEN last_seen ELSE v.column2 END, \
             last_seen_from = CASE WHEN last_seen > v.column2 THEN last_seen_from ELSE v.column3 END \
             FROM (VALUES {}) AS v WHERE certificates.serial = v.column1",
            tuples(3, rows.len())
        );
        connection.execute(sql, values).await?;
    }
    Ok(())
}

/// What the ledger already has for the CSRs of these intents, by UID.
pub(super) async fn existing(
    connection: &mut Connection,
    commands: &[LedgerCommand],
) -> Result<HashMap<CsrUid, Existing>, BatchError> {
    let mut requests = BTreeSet::new();
    for command in commands {
        if let LedgerCommand::Intend(intent) = command {
            requests.insert((intent.requested.unix(), intent.uid.as_str()));
        }
    }
    if requests.is_empty() {
        return Ok(HashMap::new());
    }
    // CROSS keeps SQLite from swapping the two tables, so that it begins with the few CSRs in question.
    let sql = format!(
        "SELECT c.uid, c.serial, c.issuer, c.state, e.entry, e.seq FROM (VALUES {}) AS v CROSS JOIN certificates c \
         JOIN entries e ON e.seq = COALESCE(c.signed_seq, c.seq) \
         WHERE c.requested = v.column1 AND c.uid = v.column2 AND c.state <> 'abandoned'",
        tuples(2, requests.len())
    );
    let values = requests.into_iter().flat_map(|(requested, uid)| [Value::from(requested), uid.into()]);
    let rows = connection.rows(sql, values.collect()).await?;
    rows.iter().map(|row| Ok((row.text(0).as_str().into(), read_existing(row)?))).collect()
}

fn read_existing(row: &Cells) -> Result<Existing, BatchError> {
    let damaged = |what: &str| BatchError::Inconsistent(format!("the entry of the CSR {} {what}", row.text(0)));
    let entry = Entry::parse(&row.text(4)).map_err(|error| damaged(&format!("is not an entry: {error}")))?;
    let serial = Serial::from_hex(&row.text(1));
    let issuer = row.text(2).as_str().into();
    let existing = if row.text(3) == "intent" {
        let prepared = Timestamp::from_rfc3339(entry.detail("prepared")).ok_or_else(|| damaged("has no time"))?;
        let tbs = entry.detail("tbs").to_owned();
        serial.map(|serial| Existing::Intent { issuer, serial, prepared, tbs })
    } else {
        // Text that is not base64 counts as no certificate, which the error below reports.
        let certificate = BASE64.decode(entry.detail("certificate").as_bytes()).ok();
        let certificate = certificate.filter(|der| !der.is_empty()).ok_or_else(|| damaged("has no certificate"))?;
        serial.map(|serial| Existing::Signed { row: row.count(5), issuer, serial, certificate })
    };
    Ok(existing.unwrap_or_else(|| Existing::Unreadable { row: row.count(5), fault: RecordFault::Serial }))
}
