//! Reads the ledger on connections of its own, so that no reader waits for the writer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::connection::{Cells, Connection, FirstRows, PAGE_BYTES, Value};
use super::error::classify;
use super::search::Search;
use super::view::{COLUMNS, Certificate, Details, Written};
use super::{LedgerError, Location, schema};
use addon_signer_core::certification::Newest;
use addon_signer_core::encoding::pem;
use addon_signer_core::identity::AddOnKey;
use addon_signer_core::journal::entry::Entry;
use addon_signer_core::query::Query;
use addon_signer_core::timestamp::Timestamp;

/// Largest number of queries at a time; further ones wait.
const CONNECTIONS: usize = 4;
/// Timeout of one query.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Certificates that expire within this time may count as not renewed.
const DAY: Duration = Duration::from_secs(86_400);
/// The most rows of one query for the newest certificates.
const PAGE: usize = 4_096;
/// Digits of a serial number.
const SERIAL: usize = 40;

/// Reads the ledger. Clones share their connections.
#[derive(Clone)]
pub struct Reader(Arc<ReaderState>);

struct ReaderState {
    location: Location,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Reader {
    /// A reader that opens the ledger at its first query, because the ledger may not exist until its writer has run.
    pub fn new(location: Location) -> Self {
        Self(Arc::new(ReaderState { location, idle: Mutex::default(), permits: Semaphore::new(CONNECTIONS) }))
    }

    /// A reader of a ledger that exists and can be read.
    ///
    /// # Errors
    /// [`LedgerError`]: which ledger, and what to do.
    pub async fn open(location: Location) -> Result<Self, LedgerError> {
        let connection = schema::open_to_read(&location).await?;
        let reader = Self::new(location);
        reader.put_back(connection);
        Ok(reader)
    }

    /// One page of certificates, in the order of its filter.
    pub async fn list(&self, query: &Query, now: Timestamp) -> Result<Vec<Certificate>, LedgerError> {
        let search = Search { query, now };
        let mut counts = Vec::new();
        if let Some((sql, values)) = search.counts() {
            let found = self.rows(sql, values).await?;
            counts.extend(found.iter().flat_map(|row| (0..row.len()).map(|at| row.count(at))));
        }
        let (sql, values) = search.select(search.way(&counts));
        let rows = self.rows(sql, values).await?;
        rows.iter().map(|row| self.certificate(row)).collect()
    }

    /// Everything about the certificate with this serial number (in any usual form), or of the CSR with this UID or
    /// name; if there are several, the newest. A text in the form of a UID counts as a name only if no CSR has that
    /// UID.
    pub async fn show(&self, name: &str) -> Result<Option<Details>, LedgerError> {
        let uid = ("uid = $1", name.to_owned());
        let request = ("request = $1", name.to_owned());
        // Neither column has an index, so the likelier one is tried first.
        let of_request = if is_uid(name) { [uid, request] } else { [request, uid] };
        for (condition, value) in [("serial = $1", normal_serial(name))].into_iter().chain(of_request) {
            let sql = format!(
                "SELECT {COLUMNS}, signed_seq, ended_seq FROM certificates WHERE {condition} ORDER BY seq DESC LIMIT 1"
            );
            if let Some(row) = self.rows(sql, vec![value.into()]).await?.first() {
                return self.details(row).await.map(Some);
            }
        }
        Ok(None)
    }

    /// The signer and the addon of each certificate that expires within a day, has less than a sixth of its life left,
    /// and is its addon's newest on that cluster. Our agents renew when a third of it is left, OCM's when a fifth to a
    /// quarter is left (`jitter(0.2, 0.25)` in its registration).
    pub async fn unrenewed(&self, now: Timestamp) -> Result<Vec<(String, AddOnKey)>, LedgerError> {
        let sql = "SELECT c.signer, c.cluster, c.addon FROM certificates c \
                   WHERE c.not_after >= $1 AND c.not_after <= $2 AND c.state IN ('signed', 'published') \
                   AND (c.not_after - $1) * 6 < c.not_after - c.not_before \
                   AND NOT EXISTS (SELECT 1 FROM certificates n WHERE n.cluster = c.cluster AND n.addon = c.addon \
                   AND n.seq > c.seq AND n.state IN ('signed', 'published'))";
        let rows = self.rows(sql.to_owned(), vec![now.unix().into(), now.plus(DAY).unix().into()]).await?;
        // The gateway's own certificates have no cluster.
        let of = |row: &Cells| {
            let key = AddOnKey { cluster: row.str(1).parse().ok()?, addon: row.str(2).parse().ok()? };
            Some((row.text(0), key))
        };
        Ok(rows.iter().filter_map(of).collect())
    }

    /// How many certificates are valid now, for each authority: its signer, its id and the number. Revoked ones count
    /// until they expire: revocations are known by addon and cluster, so the store could not count them in one query.
    pub async fn valid(&self, now: Timestamp) -> Result<Vec<(String, String, u64)>, LedgerError> {
        // The expressions keep SQLite from grouping by the index of issuers, which covers the whole table.
        let sql = "SELECT signer || '', issuer || '', COUNT(*) FROM certificates \
                   WHERE not_after >= $1 AND not_before <= $1 AND state IN ('signed', 'published') \
                   GROUP BY signer || '', issuer || ''";
        let rows = self.rows(sql.to_owned(), vec![now.unix().into()]).await?;
        Ok(rows.iter().map(|row| (row.text(0), row.text(1), row.count(2))).collect())
    }

    /// The certificate of each addon on each cluster that was issued last, of those that end after `since`. Their
    /// beginnings do not tell: none is before the addon was created.
    pub async fn newest(&self, since: Timestamp) -> Result<HashMap<AddOnKey, Newest>, LedgerError> {
        let sql = format!(
            "SELECT not_after, seq, cluster, addon, issuer, not_before FROM certificates \
             WHERE (not_after, seq) > ($1, $2) AND state IN ('signed', 'published') \
             ORDER BY not_after, seq LIMIT {PAGE}"
        );
        let mut newest: HashMap<AddOnKey, (u64, Newest)> = HashMap::new();
        let (mut after, mut seq) = (since.unix(), 0);
        loop {
            let rows = self.rows(sql.clone(), vec![after.into(), seq.into()]).await?;
            for row in &rows {
                // The gateway's own certificates have no cluster.
                let (Ok(cluster), Ok(addon)) = (row.str(2).parse(), row.str(3).parse()) else { continue };
                let time = |at| Timestamp::from_unix(row.int(at).unwrap_or_default());
                let (not_before, not_after) = (time(5), time(0));
                let found = (row.count(1), Newest { authority: row.str(4).into(), not_before, not_after });
                let known = newest.entry(AddOnKey { cluster, addon }).or_insert_with(|| found.clone());
                if known.0 < found.0 {
                    *known = found;
                }
            }
            let Some(last) = rows.last().filter(|_| rows.len() >= PAGE) else {
                return Ok(newest.into_iter().map(|(key, (_, newest))| (key, newest)).collect());
            };
            (after, seq) = (last.int(0).unwrap_or_default(), last.count(1));
        }
    }

    /// Entries after the one with the number `after`, oldest first, and whether there are more. They are fewer than
    /// `limit` if they are large.
    ///
    /// # Errors
    /// [`LedgerError`]; [`LedgerError::Damaged`] names a row that is not an entry.
    pub async fn entries(&self, after: u64, limit: u32) -> Result<(Vec<Entry>, bool), LedgerError> {
        let sql = format!("SELECT seq, entry FROM entries WHERE seq > $1 ORDER BY seq LIMIT {limit}");
        let FirstRows { rows, is_cut } = self.first_rows(sql, vec![after.into()], PAGE_BYTES).await?;
        let entries: Result<Vec<_>, _> = rows.iter().map(|row| self.entry(row.count(0), row.str(1))).collect();
        let is_full = u32::try_from(rows.len()).is_ok_and(|rows| rows >= limit);
        Ok((entries?, is_cut || is_full))
    }

    async fn details(&self, row: &Cells) -> Result<Details, LedgerError> {
        let certificate = self.certificate(row)?;
        let intent_seq = row.count(0);
        let signed_seq = row.count(15);
        let ended_seq = row.count(16);
        let sql = "SELECT seq, entry FROM entries WHERE seq IN ($1, $2, $3) OR seq IN \
                   (SELECT seq FROM latest WHERE topic = 'authority' AND name = $4)";
        let authority = format!("{}/{}", certificate.signer, certificate.issuer);
        let values = vec![intent_seq.into(), signed_seq.into(), ended_seq.into(), authority.into()];
        let mut entries = HashMap::new();
        for row in self.rows(sql.to_owned(), values).await? {
            entries.insert(row.count(0), self.entry(row.count(0), &row.text(1))?);
        }
        let intent = entries.get(&intent_seq);
        let intent = intent.ok_or_else(|| self.damaged(format!("row {intent_seq} of it is missing")))?;
        let signed = entries.get(&signed_seq);
        let ended = entries.get(&ended_seq);
        let authority = entries.values().find(|entry| entry.kind == "authority");
        let detail = |name: &str| intent.detail(name).to_owned();
        Ok(Details {
            requester: detail("requester"),
            csr_user: Some(detail("csr-user")).filter(|user| !user.is_empty()),
            signer_name: detail("signer-name"),
            requested: detail("requested"),
            generation: detail("generation"),
            prepared: detail("prepared"),
            tbs: detail("tbs"),
            csr: detail("csr"),
            decided: written(intent),
            signed: signed.map(written),
            pem: signed.and_then(certificate_pem),
            ended: ended.map(written),
            reason: ended.map(|entry| entry.detail("reason").to_owned()),
            issuer_pem: authority.and_then(certificate_pem),
            certificate,
        })
    }

    fn certificate(&self, row: &Cells) -> Result<Certificate, LedgerError> {
        let unreadable = || self.damaged(format!("row {} of its index has an unknown state", row.count(0)));
        Certificate::from_row(row).ok_or_else(unreadable)
    }

    fn entry(&self, seq: u64, text: &str) -> Result<Entry, LedgerError> {
        Entry::parse(text).map_err(|error| self.damaged(format!("row {seq}: {error}")))
    }

    fn damaged(&self, cause: String) -> LedgerError {
        LedgerError::Damaged { ledger: self.0.location.to_string(), cause }
    }

    async fn rows(&self, sql: String, values: Vec<Value>) -> Result<Vec<Cells>, LedgerError> {
        self.first_rows(sql, values, usize::MAX).await.map(|first| first.rows)
    }

    /// Asks on an idle connection and, if that fails, on a new one: an idle connection may have died with its server's
    /// process. Returns rows until their texts have more than `most` bytes together.
    async fn first_rows(&self, sql: String, values: Vec<Value>, most: usize) -> Result<FirstRows, LedgerError> {
        let _permit = self.0.permits.acquire().await.map_err(|_| LedgerError::Stopped)?;
        let idle = self.0.idle.lock().pop(); // in a statement of its own, so that the guard is dropped at once
        if let Some(connection) = idle
            && let Ok(rows) = self.ask(connection, sql.clone(), values.clone(), most).await
        {
            return Ok(rows);
        }
        let connection = schema::open_to_read(&self.0.location).await?;
        self.ask(connection, sql, values, most).await
    }

    async fn ask(
        &self,
        mut connection: Connection,
        sql: String,
        values: Vec<Value>,
        most: usize,
    ) -> Result<FirstRows, LedgerError> {
        let answered = timeout(TIMEOUT, connection.first_rows(sql, values, most)).await;
        let rows = answered.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        let rows = rows.map_err(|error| classify(&self.0.location, &error))?;
        self.put_back(connection);
        Ok(rows)
    }

    fn put_back(&self, connection: Connection) {
        self.0.idle.lock().push(connection);
    }
}

fn written(entry: &Entry) -> Written {
    let Entry { seq, time, replica, epoch, .. } = entry;
    Written { seq: *seq, time: time.clone(), replica: replica.clone(), epoch: *epoch }
}

fn certificate_pem(entry: &Entry) -> Option<String> {
    // For display only: a certificate that cannot be decoded is not shown.
    let der = BASE64.decode(entry.detail("certificate").as_bytes()).ok()?;
    Some(pem::encode("CERTIFICATE", &der))
}

/// Whether the text has the form of a UID of Kubernetes (RFC 9562 section 4).
fn is_uid(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let lengths = text.split('-').map(str::len);
    text.split('-').all(is_hex) && lengths.eq([8, 4, 4, 4, 12])
}

/// The ledger's form of a serial number as OpenSSL, browsers or administrators write it: in upper case, with colons,
/// without leading zeros. Other text stays as it is.
fn normal_serial(text: &str) -> String {
    let digits: String = text.chars().filter(|c| *c != ':').map(|c| c.to_ascii_lowercase()).collect();
    let hexadecimal = !digits.is_empty();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits).trim_start_matches('0'); // DER may have a zero byte first
    let is_serial = hexadecimal && digits.len() <= SERIAL && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if is_serial { format!("{digits:0>SERIAL$}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_distinguished_from_names() {
        assert!(is_uid("f0359cf8-5ecf-4970-93e4-555ba029a8fa"));
        for name in [
            "addon-cluster2-telemetry-mr72t",
            "",
            "f0359cf85ecf497093e4555ba029a8fa",
            "g0359cf8-5ecf-4970-93e4-555ba029a8fa",
        ] {
            assert!(!is_uid(name), "{name}");
        }
    }

    #[test]
    fn serial_numbers_are_read_in_the_usual_forms() {
        let serial = "0580b1c00123456789abcdef0123456789abcdef";
        for text in [
            serial,
            &serial[1..],
            &serial.to_uppercase(),
            "0x580b1c00123456789abcdef0123456789abcdef",
            "05:80:B1:C0:01:23:45:67:89:AB:CD:EF:01:23:45:67:89:AB:CD:EF",
            "00:05:80:b1:c0:01:23:45:67:89:ab:cd:ef:01:23:45:67:89:ab:cd:ef",
        ] {
            assert_eq!(normal_serial(text), serial);
        }
        for text in ["csr-1", "", "cd3580b1c00123456789abcdef0123456789abcdef"] {
            assert_eq!(normal_serial(text), text);
        }
    }
}
