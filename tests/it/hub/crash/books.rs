//! Compares the ledger's rows with the certificates of CSRs.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use addon_signer_core::journal::entry::Entry;
use addon_signer_ledger::verify::{Check, verify};
use data_encoding::BASE64;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow, PgConnection};

use crate::ledger::checker;

/// A row of `certificates`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hub) struct CertificateRow {
    pub(in crate::hub) uid: String,
    pub(in crate::hub) serial: String,
    pub(in crate::hub) state: String,
    /// The DER of the certificate, from the entry of its signature.
    pub(in crate::hub) certificate: Option<Vec<u8>>,
}

/// Runs a query on either store; returns its rows.
async fn query<T>(url: &str, sql: &str) -> Vec<T>
where
    T: for<'r> FromRow<'r, sqlx::sqlite::SqliteRow> + for<'r> FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
{
    let sql = AssertSqlSafe(sql.to_owned());
    match url.strip_prefix("sqlite://") {
        Some(path) => {
            let mut file: SqliteConnection =
                SqliteConnectOptions::new().filename(path).read_only(true).connect().await.unwrap();
            let rows = sqlx::query_as(sql).fetch_all(&mut file).await.unwrap();
            file.close().await.unwrap();
            rows
        }
        None => {
            let mut connection = PgConnection::connect(url).await.unwrap();
            let rows = sqlx::query_as(sql).fetch_all(&mut connection).await.unwrap();
            connection.close().await.unwrap();
            rows
        }
    }
}

/// All rows, in their order.
pub(in crate::hub) async fn rows(url: &str) -> Vec<CertificateRow> {
    let sql = "SELECT c.uid, c.serial, c.state, COALESCE(e.entry, '') FROM certificates c \
               LEFT JOIN entries e ON e.seq = c.signed_seq ORDER BY c.seq";
    let rows: Vec<(String, String, String, String)> = query(url, sql).await;
    let read = |(uid, serial, state, entry): (String, String, String, String)| {
        let certificate = Entry::parse(&entry).ok().map(|entry| {
            assert_eq!((entry.detail("uid"), entry.detail("serial")), (uid.as_str(), serial.as_str()));
            BASE64.decode(entry.detail("certificate").as_bytes()).unwrap()
        });
        CertificateRow { uid, serial, state, certificate }
    };
    rows.into_iter().map(read).collect()
}

/// How many CSRs were decided and not signed.
pub(in crate::hub) async fn intents(url: &str) -> i64 {
    let rows: Vec<(i64,)> = query(url, "SELECT count(*) FROM certificates WHERE state = 'intent'").await;
    rows[0].0
}

/// All entries, in their order.
pub(in crate::hub) async fn entries(url: &str) -> Vec<String> {
    let rows: Vec<(String,)> = query(url, "SELECT entry FROM entries ORDER BY seq").await;
    rows.into_iter().map(|row| row.0).collect()
}

/// Checks that the ledger is whole, by our own check and by the checker that shares no code with it.
pub(in crate::hub) async fn assert_whole(url: &str, dir: &Path) {
    let file = match url.strip_prefix("sqlite://") {
        Some(path) => path.into(),
        None => {
            let file = dir.join("entries.txt");
            std::fs::write(&file, entries(url).await.join("\n") + "\n").unwrap();
            file
        }
    };
    let check = Check { location: url.parse().unwrap(), checkpoint: None, archives: Vec::new() };
    verify(check, |_| ()).await.unwrap();
    let (good, output) = checker::check(&[&file], None).await;
    assert!(good, "{output}");
}

/// The result of comparing CSRs with rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::hub) struct Tally {
    pub(in crate::hub) certificates: usize,
    /// CSRs without a certificate that should have one.
    pub(in crate::hub) lost: BTreeSet<String>,
    /// CSRs that saw two certificates, or have two rows, or another certificate than their row.
    pub(in crate::hub) doubled: BTreeSet<String>,
    /// Certificates without a row.
    pub(in crate::hub) unrecorded: BTreeSet<String>,
}

/// Compares every certificate that was ever seen on each CSR with the rows.
pub(in crate::hub) fn compare(seen: &HashMap<String, Vec<String>>, rows: &[CertificateRow]) -> Tally {
    let mut tally = Tally::default();
    let mut of: HashMap<&str, Vec<&CertificateRow>> = HashMap::new();
    for row in rows.iter().filter(|row| row.state != "abandoned") {
        of.entry(&row.uid).or_default().push(row);
    }
    tally.doubled.extend(of.iter().filter(|(_, rows)| rows.len() > 1).map(|(uid, _)| (*uid).to_owned()));
    for (uid, certificates) in seen {
        tally.certificates += certificates.len();
        let rows = of.get(uid.as_str()).into_iter().flatten();
        let recorded: Vec<_> = rows.filter_map(|row| row.certificate.as_deref()).collect();
        let faults = match certificates.as_slice() {
            [] => &mut tally.lost,
            [_] if recorded.is_empty() => &mut tally.unrecorded,
            [pem] if recorded == [der(pem).as_slice()] => continue,
            _ => &mut tally.doubled,
        };
        faults.insert(uid.clone());
    }
    tally
}

pub(in crate::hub) fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificates, lost, doubled, unrecorded } = self;
        let lost = lost.len();
        let doubled = doubled.len();
        let unrecorded = unrecorded.len();
        write!(f, "{certificates} certificates: {lost} lost, {doubled} doubled, {unrecorded} unrecorded")
    }
}

impl Tally {
    pub(in crate::hub) fn assert_clean(&self) {
        let faults = [&self.lost, &self.doubled, &self.unrecorded];
        assert!(faults.iter().all(|faults| faults.is_empty()), "{self}\n{self:?}");
    }
}
