//! Compares the index of certificates with the entries: each row must match its entries, and no row may be without an
//! entry.

use std::collections::{HashMap, VecDeque};

use super::VerifyError;
use super::lists::Lists;
use crate::connection::{Cells, Connection};
use addon_signer_core::journal::CertificateState;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::journal::hash_chain::{ChainProblem, Fault};
use addon_signer_core::timestamp::Timestamp;

/// The columns to read.
pub(super) const COLUMNS: &str = "certificates.seq, uid, request, signer, cluster, addon, agent, issuer, serial, \
                                  not_before, not_after, state, signed_seq, ended_seq, released, requested, \
                                  unfinished.seq";
/// Columns of texts, with their positions.
const TEXTS: [(usize, &str); 8] = [
    (1, "uid"),
    (2, "request"),
    (3, "signer"),
    (4, "cluster"),
    (5, "addon"),
    (6, "agent"),
    (7, "issuer"),
    (8, "serial"),
];

/// A row's reference to a later entry that signs or ends its certificate.
struct NamedEntry {
    /// The row.
    seq: u64,
    uid: String,
    serial: String,
    /// The kind of the later entry.
    kind: &'static str,
}

impl NamedEntry {
    fn holds(&self, entry: &Entry) -> bool {
        self.kind == entry.kind && self.serial == entry.detail("serial") && self.uid == entry.detail("uid")
    }

    fn contradicted(&self, by: u64) -> Fault {
        let Self { seq, serial, kind, .. } = self;
        fault(*seq, format!("the certificate {serial} is {kind} according to entry {by}, which does not record that"))
    }
}

/// The index rows read so far, and their references to later entries.
pub(super) struct Index {
    rows: VecDeque<Cells>,
    /// The references by the number of the entry. Most of these entries come soon.
    expected: HashMap<u64, Vec<NamedEntry>>,
    /// The last entry of the ledger.
    last: u64,
    /// Rows that were compared.
    pub(super) certificates: u64,
    /// The certificates of each cluster and addon.
    pub(super) lists: Lists,
}

impl Index {
    pub(super) fn new(last: u64) -> Self {
        Self { rows: VecDeque::new(), expected: HashMap::new(), last, certificates: 0, lists: Lists::default() }
    }

    /// Adds rows, in their order.
    pub(super) fn add(&mut self, rows: Vec<Cells>) {
        self.rows.extend(rows);
    }

    /// Compares the next entry of the chain with the index. Returns `false` if the entry signs or ends a certificate
    /// but no row records that.
    ///
    /// # Errors
    /// The first row that contradicts its entries.
    pub(super) fn follow(&mut self, entry: &Entry) -> Result<bool, Fault> {
        let row = self.rows.pop_front_if(|row| row.count(0) <= entry.seq);
        if let Some(row) = row.as_ref().filter(|row| row.count(0) < entry.seq || entry.kind != "intent") {
            return Err(no_intent(row));
        }
        let expected = self.expected.remove(&entry.seq).unwrap_or_default();
        if let Some(wrong) = expected.iter().find(|entry_named| !entry_named.holds(entry)) {
            return Err(wrong.contradicted(entry.seq));
        }
        match entry.kind.as_str() {
            "intent" => {
                let row = row.ok_or_else(|| fault(entry.seq, "it has no row for it".to_owned()))?;
                self.compare(entry, &row)?;
                Ok(true)
            }
            "signed" | "abandoned" | "unpublished" => Ok(!expected.is_empty()),
            _ => Ok(true),
        }
    }

    /// Checks that no row is left after the last entry.
    pub(super) fn end(&self) -> Result<(), Fault> {
        self.rows.front().map_or(Ok(()), |row| Err(no_intent(row)))
    }

    fn compare(&mut self, intent: &Entry, row: &Cells) -> Result<(), Fault> {
        let state = compare(intent, row).map_err(|what| fault(intent.seq, what))?;
        for (kind, at) in [("signed", row.count(12)), (state.name(), row.count(13))] {
            let entry_named = NamedEntry { seq: intent.seq, uid: row.text(1), serial: row.text(8), kind };
            if at == 0 {
                continue;
            }
            if at <= intent.seq || at > self.last {
                return Err(entry_named.contradicted(at));
            }
            self.expected.entry(at).or_default().push(entry_named);
        }
        self.certificates += 1;
        self.lists.add(intent.seq, row.str(4), row.str(5));
        Ok(())
    }
}

/// The state of a row, or how the row contradicts its intent or itself.
fn compare(intent: &Entry, row: &Cells) -> Result<CertificateState, String> {
    let differs =
        |name: &str, index: &str, entry: &str| format!("{name} is {index:?} there and {entry:?} in the entry");
    for (at, name) in TEXTS {
        if row.str(at) != intent.detail(name) {
            return Err(differs(name, row.str(at), intent.detail(name)));
        }
    }
    for (at, name) in [(9, "not-before"), (10, "not-after"), (15, "requested")] {
        let index = row.int(at).map(Timestamp::from_unix);
        if index.is_none() || index != Timestamp::from_rfc3339(intent.detail(name)) {
            let index = index.map_or_else(String::new, |time| time.to_string());
            return Err(differs(name, &index, intent.detail(name)));
        }
    }
    let state = row.str(11);
    let contradiction = || format!("its state is {state:?}, which does not match the entries that it names");
    let known: CertificateState = state.parse().map_err(|()| contradiction())?;
    let is_unfinished = row.int(16).is_some();
    if known.is_final() == is_unfinished {
        let is = if is_unfinished { "one of" } else { "none of" };
        return Err(format!("its state is {state:?}, and it is {is} the unfinished"));
    }
    let signed = row.count(12);
    let ended = row.count(13);
    let released = row.count(14);
    let agrees = match known {
        CertificateState::Intent => signed == 0 && ended == 0 && released == 0,
        CertificateState::Signed | CertificateState::Published => signed != 0 && ended == 0 && released == 0,
        CertificateState::Unpublished => ended != 0 && released == 0,
        CertificateState::Abandoned => ended != 0 && released == ended,
    };
    if agrees { Ok(known) } else { Err(contradiction()) }
}

/// Explains what is wrong with an entry that signs or ends a certificate although no row records that.
pub(super) async fn unexpected(connection: &mut Connection, entry: &Entry) -> Result<Fault, VerifyError> {
    let sql = "SELECT state, signed_seq, ended_seq FROM certificates WHERE serial = $1";
    let serial = entry.detail("serial");
    let rows = connection.rows(sql.to_owned(), vec![serial.into()]).await?;
    let Some(row) = rows.first() else {
        return Ok(fault(entry.seq, format!("it has no certificate {serial}")));
    };
    let state = row.str(0);
    let kind = &entry.kind;
    let at = if kind == "signed" { row.count(1) } else { row.count(2) };
    Ok(fault(entry.seq, format!("the certificate {serial} is {state} according to entry {at}, but {kind} here")))
}

/// Checks that each unfinished row has its certificate.
pub(super) async fn check_unfinished(connection: &mut Connection) -> Result<(), VerifyError> {
    let sql = "SELECT seq FROM unfinished WHERE NOT EXISTS \
               (SELECT 1 FROM certificates WHERE certificates.seq = unfinished.seq) ORDER BY seq LIMIT 1";
    match connection.rows(sql.to_owned(), Vec::new()).await?.first() {
        Some(row) => Err(fault(row.count(0), "it is one of the unfinished, and has no certificate".to_owned()).into()),
        None => Ok(()),
    }
}

fn fault(row: u64, what: String) -> Fault {
    Fault { row, problem: ChainProblem::Index(what) }
}

/// The fault of a row that has no intent in the chain.
fn no_intent(row: &Cells) -> Fault {
    fault(row.count(0), format!("it has the certificate {}, which no entry decided on", row.str(8)))
}
