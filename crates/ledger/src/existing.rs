//! What the ledger already has for a CSR, so that the signer can continue from there.

use std::collections::{BTreeSet, HashMap};

use data_encoding::BASE64;

use super::command::{BatchError, LedgerCommand};
use super::connection::{Cells, Connection, Value, tuples};
use addon_signer_core::ca::issuer::RecordFault;
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::journal::record::Existing;
use addon_signer_core::journal::uid::CsrUid;
use addon_signer_core::timestamp::Timestamp;

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
    // CROSS keeps SQLite from swapping the two, so that it begins with the few CSRs in question.
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
        // A text that is not base64 is not a certificate, which the error below reports.
        let certificate = BASE64.decode(entry.detail("certificate").as_bytes()).ok();
        let certificate = certificate.filter(|der| !der.is_empty()).ok_or_else(|| damaged("has no certificate"))?;
        serial.map(|serial| Existing::Signed { row: row.count(5), issuer, serial, certificate })
    };
    Ok(existing.unwrap_or_else(|| Existing::Unreadable { row: row.count(5), fault: RecordFault::Serial }))
}
