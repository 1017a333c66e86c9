//! What the check of a page reads, in the way that is quickest in each store: SQLite puts many rows into one text, because each row
//! is handed from one thread to another; PostgreSQL copies rows out, which it need not put together.

use futures::TryStreamExt;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Row};

use super::page::Range;
use crate::ledger::connection::Connection;

/// Stands between columns. In an entry it would be escaped, so that a column that has one is never taken for two.
pub(super) const UNIT: char = '\u{1f}';
/// Columns of the index, in this order.
const COLUMNS: [&str; 16] = [
    "seq",
    "addon",
    "agent",
    "cluster",
    "issuer",
    "not_after",
    "not_before",
    "request",
    "requested",
    "serial",
    "signer",
    "uid",
    "state",
    "COALESCE(signed_seq, 0)",
    "COALESCE(ended_seq, 0)",
    "released",
];

/// Bytes of a hash.
const HASH: usize = 32;
/// Entries that are checked at a time. Much more would be memory that is got from the system and given back each time.
const CHUNK: u64 = 64;

/// Shows a page, some entries at a time: their texts, each but the last ended by a line feed; their hashes, one after the other;
/// and the rows of the index, of which `take` has to ask for those of these entries and for no other.
///
/// Returns the numbers of those of the page that are unfinished, each on a line, if `take` took all and there is no row besides.
pub(super) async fn page(
    connection: &mut Connection,
    range: Range,
    take: impl FnMut(&str, &[u8], &mut dyn Iterator<Item = &str>) -> Option<()> + Send,
) -> Result<Option<String>, sqlx::Error> {
    match connection {
        Connection::Sqlite(inner) => aggregated(inner, range, take).await,
        Connection::Postgres(inner) => {
            let (index, unfinished) = copied_index(inner, range).await?;
            let mut rows = index.split_terminator('\n');
            let all = copied(inner, range, &mut rows, take).await? && rows.next().is_none();
            Ok(all.then_some(unfinished))
        }
    }
}

/// A row for each chunk: its entries and their hashes, the index's rows, which are unfinished, how many entries there are.
///
/// Nothing says in which order rows are put together: it is that of the key, by which SQLite finds them. Were it another, no page
/// would be as usual. A subquery with an order had it copy each entry once more, a join with another several times.
async fn aggregated(
    connection: &mut SqliteConnection,
    range: Range,
    mut take: impl FnMut(&str, &[u8], &mut dyn Iterator<Item = &str>) -> Option<()> + Send,
) -> Result<Option<String>, sqlx::Error> {
    let firsts = (range.first..=range.last).step_by(CHUNK as usize);
    let chunks: Vec<_> = firsts.map(|first| Range { first, last: range.last.min(first + CHUNK - 1) }).collect();
    let columns = COLUMNS.join(", ");
    let select = |chunk: usize| {
        let within = format!("seq BETWEEN ${} AND ${}", 2 * chunk + 3, 2 * chunk + 4);
        format!(
            "SELECT CAST(string_agg(entry, $1) AS TEXT), CAST(string_agg(hash, '') AS BLOB), \
             (SELECT string_agg(concat_ws($2, {columns}), $1) FROM certificates WHERE {within}), \
             (SELECT string_agg(seq || $1, '') FROM unfinished WHERE {within}), COUNT(*) FROM entries WHERE {within}"
        )
    };
    let sql = (0..chunks.len()).map(select).collect::<Vec<_>>().join(" UNION ALL ");
    let mut query = sqlx::query(AssertSqlSafe(sql)).bind("\n").bind(UNIT.to_string());
    for chunk in chunks {
        query = query.bind(chunk.first.cast_signed()).bind(chunk.last.cast_signed());
    }
    let (mut parts, mut unfinished) = (query.fetch(connection), String::new());
    while let Some(part) = parts.try_next().await? {
        // NULL is the sum of no rows; what is no text is for the check by rows to say.
        let text = |at: usize| part.try_get::<Option<&str>, _>(at).ok().flatten().unwrap_or_default();
        let hashes = part.try_get::<Option<&[u8]>, _>(1)?.unwrap_or_default();
        let mut rows = text(2).split_terminator('\n');
        // A row that has the texts and the hashes of two is not as usual.
        let one_each = hashes.len() as u64 == part.try_get::<i64, _>(4)?.cast_unsigned() * HASH as u64;
        if !one_each || take(text(0), hashes, &mut rows).is_none() || rows.next().is_some() {
            return Ok(None);
        }
        unfinished.push_str(text(3));
    }
    Ok(Some(unfinished))
}

/// The index's rows of a page and the numbers of the unfinished ones, each on a line.
async fn copied_index(connection: &mut PgConnection, range: Range) -> Result<(String, String), sqlx::Error> {
    let within = format!("seq BETWEEN {} AND {}", range.first, range.last);
    let select = format!("SELECT seq FROM unfinished WHERE {within} ORDER BY seq");
    let mut unfinished = Vec::new();
    let keep = |row: &[u8]| unfinished.extend_from_slice(row);
    copy(connection, &format!("COPY ({select}) TO STDOUT"), keep).await?;
    // What is NULL or has an odd character is written in such a way that no entry says the same.
    let select = format!("SELECT {} FROM certificates WHERE {within} ORDER BY seq", COLUMNS.join(", "));
    let mut rows = Vec::new();
    let keep = |row: &[u8]| rows.extend_from_slice(row);
    copy(connection, &format!("COPY ({select}) TO STDOUT (DELIMITER '{UNIT}')"), keep).await?;
    let [rows, unfinished] = [rows, unfinished].map(|lines| String::from_utf8_lossy(&lines).into_owned());
    Ok((rows, unfinished))
}

/// Whether `take` took all entries of a page.
async fn copied(
    connection: &mut PgConnection,
    range: Range,
    rows: &mut (impl Iterator<Item = &str> + Send),
    mut take: impl FnMut(&str, &[u8], &mut dyn Iterator<Item = &str>) -> Option<()> + Send,
) -> Result<bool, sqlx::Error> {
    let Range { first, last } = range;
    let select = format!("SELECT entry, hash FROM entries WHERE seq BETWEEN {first} AND {last} ORDER BY seq");
    let mut chunk = Chunk::default();
    let mut show = |chunk: &mut Chunk| chunk.show(|texts, hashes| take(texts, hashes, rows));
    let mut good = true;
    let add = |row: &[u8]| {
        good = good && chunk.add(row).is_some() && (chunk.rows < CHUNK || show(&mut chunk).is_some());
    };
    copy(connection, &format!("COPY ({select}) TO STDOUT (FORMAT binary)"), add).await?;
    Ok(good && (chunk.rows == 0 || show(&mut chunk).is_some()))
}

/// Entries until there are enough of them.
#[derive(Default)]
struct Chunk {
    rows: u64,
    texts: Vec<u8>,
    hashes: Vec<u8>,
}

impl Chunk {
    /// Adds a row as PostgreSQL's binary COPY has it; `None` if it is none.
    fn add(&mut self, row: &[u8]) -> Option<()> {
        // The first row comes with the file's header, and the file ends with a row of -1 columns.
        let row = row.strip_prefix(HEADER).unwrap_or(row);
        if row == TRAILER {
            return Some(());
        }
        let (entry, rest) = field(row.strip_prefix(&[0, 2])?)?;
        let (hash, rest) = field(rest)?;
        if hash.len() != HASH || !rest.is_empty() {
            return None;
        }
        if self.rows > 0 {
            self.texts.push(b'\n');
        }
        self.texts.extend_from_slice(entry);
        self.hashes.extend_from_slice(hash);
        self.rows += 1;
        Some(())
    }

    /// Shows what there is, and begins anew.
    fn show(&mut self, take: impl FnOnce(&str, &[u8]) -> Option<()>) -> Option<()> {
        let taken = std::str::from_utf8(&self.texts).ok().and_then(|texts| take(texts, &self.hashes));
        self.texts.clear();
        self.hashes.clear();
        self.rows = 0;
        taken
    }
}

/// <https://www.postgresql.org/docs/15/sql-copy.html>, "Binary Format": the signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: &[u8] = &[0xff, 0xff];

/// A column: its length in four bytes, and as many; NULL has -1.
fn field(row: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = row.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(i32::from_be_bytes(*length)).ok()?)
}

/// Shows what PostgreSQL copies out, row by row: in this direction each message is one
/// (<https://www.postgresql.org/docs/15/protocol-flow.html>, "COPY Operations").
async fn copy(connection: &mut PgConnection, sql: &str, mut take: impl FnMut(&[u8]) + Send) -> Result<(), sqlx::Error> {
    let mut rows = connection.copy_out_raw(sql).await?;
    // To its end in any case: what is not read would be the answer to the next statement.
    while let Some(row) = rows.try_next().await? {
        take(&row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_row(columns: &[&[u8]]) -> Vec<u8> {
        let mut row = (columns.len() as u16).to_be_bytes().to_vec();
        for column in columns {
            row.extend_from_slice(&(column.len() as u32).to_be_bytes());
            row.extend_from_slice(column);
        }
        row
    }

    fn read(rows: &[Vec<u8>]) -> Option<(String, Vec<u8>)> {
        let mut chunk = Chunk::default();
        rows.iter().try_for_each(|row| chunk.add(row))?;
        let mut shown = None;
        chunk.show(|texts, hashes| {
            shown = Some((texts.to_owned(), hashes.to_vec()));
            Some(())
        })?;
        assert!(chunk.rows == 0 && chunk.texts.is_empty() && chunk.hashes.is_empty());
        shown
    }

    #[test]
    fn rows_of_a_copy_are_put_together() {
        let (one, two) = (mk_row(&[b"one", &[1; 32]]), mk_row(&[b"two", &[2; 32]]));
        let first = [HEADER, &one].concat();
        let read = read(&[first, two, TRAILER.to_vec()]).unwrap();
        assert_eq!(read, ("one\ntwo".to_owned(), [[1; 32], [2; 32]].concat()));
    }

    #[test]
    fn what_is_no_row_is_not_taken() {
        let hash = [1; 32];
        let good = mk_row(&[b"one", &hash]);
        for length in 0..good.len() {
            assert_eq!(read(&[good[..length].to_vec()]), None, "{length}");
        }
        assert_eq!(read(&[[good.as_slice(), &[0]].concat()]), None);
        assert_eq!(read(&[mk_row(&[b"one", &hash, &hash])]), None);
        assert_eq!(read(&[mk_row(&[b"one\ntwo", &[1; 64]])]), None, "two in one");
        assert_eq!(read(&[mk_row(&[&[0xff], &hash])]), None, "no UTF-8");
        let null = [&[0, 2][..], &[0xff; 4], &[0, 0, 0, 32], &hash].concat();
        assert_eq!(read(&[null]), None);
        assert!(read(&[good]).is_some());
    }
}
