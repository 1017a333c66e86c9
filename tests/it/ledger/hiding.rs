//! Whoever can write to the store alters what the tables are made of, so that lists leave a certificate out although
//! every row is there. The check names each such change, and is content with what an administrator may do.

use std::path::Path;

use addon_signer_core::query::{Filter, Query};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::verify::{Check, VerifyError, VerifyReport, verify};
use addon_signer_ledger::{Location, Reader};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::kit::RunningWriter;
use super::rows::run;
use crate::cli::run as run_program;
use test_kit::needed::{Needed, found};
use test_kit::postgres::{Database, programs};
use test_kit::store::{TestStore, on_store};

/// What is done to a store, and what the check says of it.
struct Forgery {
    sql: &'static str,
    finding: &'static str,
}

/// The entry of the hidden certificate, which is the only one of its cluster.
const HIDDEN: u64 = 5;
const CLUSTER: &str = "cluster2";

async fn check(location: &Location) -> Result<VerifyReport, VerifyError> {
    verify(Check { location: location.clone(), checkpoint: None, archives: Vec::new() }, |_| ()).await
}

/// Makes a ledger with four certificates of four clusters.
async fn mk_ledger(store: &TestStore) -> Location {
    let running = RunningWriter::start(&store.url());
    for number in 1..=4 {
        running.issue(number).await;
    }
    running.stop().await;
    let location: Location = store.url().parse().unwrap();
    check(&location).await.unwrap();
    location
}

/// The entries of the certificates that a list of a cluster returns.
async fn listed(location: &Location, cluster: &str) -> Vec<u64> {
    let filter = Filter { cluster: Some(cluster.to_owned()), ..Filter::default() };
    let query = Query { filter, ..Query::default() };
    let reader = Reader::open(location.clone()).await.unwrap();
    reader.list(&query, Timestamp::from_unix(0)).await.unwrap().iter().map(|listed| listed.seq).collect()
}

/// Runs statements, in which "DATABASE" is the one of the store.
async fn run_in(store: &TestStore, sql: &str) {
    let url = store.url();
    let (_, database) = url.rsplit_once('/').unwrap();
    run(store, &sql.replace("\"DATABASE\"", &format!("\"{database}\""))).await;
}

async fn assert_named(location: &Location, Forgery { sql, finding }: &Forgery) {
    let error = check(location).await.expect_err(sql).to_string();
    assert!(error.contains(finding), "{sql}: {error}");
    assert!(error.contains("then check again"), "{sql}: {error}");
}

const PARTIAL_HOLDER: &str = "DROP INDEX certificates_holder; \
    CREATE INDEX certificates_holder ON certificates (cluster, addon, agent, seq) WHERE seq <> 5";

const SQLITE: [Forgery; 16] = [
    Forgery {
        sql: PARTIAL_HOLDER,
        finding: "lists may leave certificates out: index certificates_holder was altered; make",
    },
    Forgery {
        sql: "DROP INDEX certificates_addon; CREATE INDEX certificates_addon ON certificates (addon) WHERE seq <> 5",
        finding: "index certificates_addon was altered; make",
    },
    Forgery {
        sql: "DROP INDEX certificates_holder; \
              CREATE INDEX certificates_holder ON certificates (cluster COLLATE NOCASE, addon, agent, seq)",
        finding: "index certificates_holder was altered; make",
    },
    Forgery { sql: "DROP INDEX certificates_end", finding: "index certificates_end is missing; make" },
    Forgery { sql: "CREATE INDEX mine ON certificates (cluster || '')", finding: "index mine was added; make" },
    Forgery {
        sql: "ALTER TABLE certificates RENAME TO hidden; \
              CREATE VIEW certificates AS SELECT * FROM hidden WHERE seq <> 5",
        finding: "table hidden was added",
    },
    Forgery {
        sql: "CREATE TRIGGER forget AFTER INSERT ON certificates \
              BEGIN DELETE FROM certificates WHERE seq = NEW.seq; END",
        finding: "trigger forget was added; make",
    },
    Forgery {
        sql: "DROP TRIGGER entries_are_not_altered",
        finding: "trigger entries_are_not_altered is missing; make",
    },
    Forgery { sql: "CREATE TABLE foreign_one (n INTEGER)", finding: "table foreign_one was added; make" },
    Forgery { sql: "CREATE VIEW \"a\nb\" AS SELECT 1", finding: "view a\\nb was added; make" },
    Forgery {
        sql: "ALTER TABLE certificates ADD COLUMN shown TEXT AS (cluster) VIRTUAL",
        finding: "table certificates was altered; make",
    },
    Forgery {
        sql: "CREATE TABLE copy (seq INTEGER PRIMARY KEY) WITHOUT ROWID; INSERT INTO copy SELECT seq FROM unfinished; \
              DROP TABLE unfinished; ALTER TABLE copy RENAME TO unfinished",
        finding: "table unfinished was altered; make",
    },
    // The same text as before, and another content.
    Forgery {
        sql: "DROP INDEX certificates_holder; \
              CREATE INDEX certificates_holder ON certificates (cluster, addon, agent, seq) WHERE seq <> 5; \
              PRAGMA writable_schema = ON; \
              UPDATE sqlite_schema SET sql = replace(sql, ' WHERE seq <> 5', '') WHERE name = 'certificates_holder'; \
              PRAGMA writable_schema = RESET",
        finding: "`certs list --cluster` returns 0 certificates of \"cluster2\", not the 1 that the table has; rebuild",
    },
    Forgery {
        sql: "DROP INDEX certificates_addon; CREATE INDEX certificates_addon ON certificates (addon) WHERE seq <> 5; \
              PRAGMA writable_schema = ON; \
              UPDATE sqlite_schema SET sql = replace(sql, ' WHERE seq <> 5', '') WHERE name = 'certificates_addon'; \
              PRAGMA writable_schema = RESET",
        finding: "`certs list --addon` returns 3 certificates of \"telemetry\", not the 4 that the table has; rebuild",
    },
    Forgery {
        sql: "DROP INDEX certificates_end; CREATE INDEX certificates_end ON certificates (not_after) WHERE seq <> 5; \
              PRAGMA writable_schema = ON; \
              UPDATE sqlite_schema SET sql = replace(sql, ' WHERE seq <> 5', '') WHERE name = 'certificates_end'; \
              PRAGMA writable_schema = RESET",
        finding: "SQLite's integrity_check says",
    },
    Forgery {
        sql: "PRAGMA writable_schema = ON; \
              UPDATE sqlite_schema SET rootpage = (SELECT SUM(rootpage) FROM sqlite_schema \
              WHERE name IN ('certificates_signer', 'certificates_issuer')) - rootpage \
              WHERE name IN ('certificates_signer', 'certificates_issuer'); \
              PRAGMA writable_schema = RESET",
        finding: "SQLite's integrity_check says",
    },
];

#[tokio::test]
async fn a_schema_in_sqlite_that_hides_a_certificate_is_named() {
    for forgery in SQLITE {
        let store = TestStore::sqlite();
        let location = mk_ledger(&store).await;
        run(&store, forgery.sql).await;
        assert_named(&location, &forgery).await;
    }
}

const POSTGRES: [Forgery; 22] = [
    Forgery {
        sql: PARTIAL_HOLDER,
        finding: "lists may leave certificates out: index certificates_holder was altered; make",
    },
    Forgery {
        sql: "DROP INDEX certificates_addon; \
              CREATE INDEX certificates_addon ON certificates (addon, seq) WHERE seq <> 5",
        finding: "index certificates_addon was altered; make",
    },
    Forgery {
        sql: "DROP INDEX certificates_holder; \
              CREATE INDEX certificates_holder ON certificates (cluster COLLATE \"C\", addon, agent, seq)",
        finding: "index certificates_holder was altered; make",
    },
    Forgery {
        sql: "DROP INDEX certificates_holder; \
              CREATE INDEX certificates_holder ON certificates (cluster text_pattern_ops, addon, agent, seq)",
        finding: "index certificates_holder was altered; make",
    },
    Forgery { sql: "CREATE INDEX mine ON certificates (lower(cluster))", finding: "index mine was added; make" },
    Forgery {
        sql: "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'certificates_holder'::regclass",
        finding: "index certificates_holder was altered; make",
    },
    Forgery {
        sql: "CREATE RULE forget AS ON INSERT TO certificates DO INSTEAD NOTHING",
        finding: "rule forget of certificates was added; make",
    },
    Forgery {
        sql: "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
              CREATE TRIGGER forget BEFORE INSERT ON certificates FOR EACH ROW EXECUTE FUNCTION forget()",
        finding: "trigger forget of certificates was added",
    },
    Forgery {
        sql: "ALTER TABLE entries DISABLE TRIGGER entries_are_not_altered",
        finding: "trigger entries_are_not_altered of entries was altered; make",
    },
    Forgery {
        sql: "CREATE OR REPLACE FUNCTION entries_are_not_altered() RETURNS trigger LANGUAGE plpgsql \
              AS 'BEGIN RETURN NEW; END'",
        finding: "trigger entries_are_not_altered of entries was altered; make",
    },
    Forgery {
        sql: "ALTER TABLE certificates RENAME TO hidden; \
              CREATE VIEW certificates AS SELECT * FROM hidden WHERE seq <> 5",
        finding: "table certificates was altered, rule _RETURN of certificates was added",
    },
    Forgery {
        sql: "ALTER TABLE certificates ENABLE ROW LEVEL SECURITY; ALTER TABLE certificates FORCE ROW LEVEL SECURITY; \
              CREATE POLICY hide ON certificates USING (seq <> 5)",
        finding: "table certificates was altered, policy hide of certificates was added; make",
    },
    Forgery {
        sql: "CREATE TABLE more (CHECK (seq > 100)) INHERITS (certificates)",
        finding: "inheritance of public.more from public.certificates was added; make",
    },
    Forgery { sql: "ALTER TABLE certificates SET UNLOGGED", finding: "table certificates was altered; make" },
    Forgery {
        sql: "ALTER TABLE certificates ADD COLUMN shown TEXT GENERATED ALWAYS AS (cluster || '') STORED",
        finding: "column shown of certificates was added; make",
    },
    Forgery {
        sql: "CREATE COLLATION lax (provider = icu, locale = 'und-u-ks-level2', deterministic = false); \
              ALTER TABLE certificates ALTER COLUMN agent TYPE TEXT COLLATE lax",
        finding: "column agent of certificates was altered",
    },
    Forgery {
        sql: "ALTER TABLE certificates ADD CONSTRAINT none CHECK (seq <> 6) NOT VALID",
        finding: "constraint none of certificates was added; make",
    },
    Forgery {
        sql: "CREATE SCHEMA other; CREATE TABLE other.certificates AS SELECT * FROM certificates WHERE seq <> 5",
        finding: "table other.certificates was added; make",
    },
    Forgery {
        sql: "CREATE SCHEMA other; CREATE VIEW other.certificates AS SELECT * FROM public.certificates WHERE seq <> 5; \
              ALTER ROLE ledger IN DATABASE \"DATABASE\" SET search_path = other, public",
        finding: "table other.certificates was added; make",
    },
    Forgery {
        sql: "CREATE SCHEMA other; CREATE TABLE other.fence AS SELECT * FROM fence; \
              CREATE TABLE other._sqlx_migrations AS SELECT * FROM _sqlx_migrations; \
              CREATE TABLE other.certificates AS SELECT * FROM certificates WHERE seq <> 5; \
              ALTER DATABASE \"DATABASE\" SET search_path = other, public",
        finding: "table public.certificates was added",
    },
    // The same definition as before, and another content: only a superuser can do that.
    Forgery {
        sql: "DROP INDEX certificates_holder; \
              CREATE INDEX certificates_holder ON certificates (cluster, addon, agent, seq) WHERE seq <> 5; \
              UPDATE pg_index SET indpred = NULL WHERE indexrelid = 'certificates_holder'::regclass",
        finding: "`certs list --cluster` returns 0 certificates of \"cluster2\", not the 1 that the table has; rebuild",
    },
    Forgery {
        sql: "UPDATE pg_index SET indisready = false WHERE indexrelid = 'entries_pkey'::regclass; \
              INSERT INTO entries SELECT seq, '', hash FROM entries WHERE seq = 5; \
              UPDATE pg_index SET indisready = true WHERE indexrelid = 'entries_pkey'::regclass",
        finding: "it has 11 entries and 4 certificates, and its primary keys lead to 10 and 4; rebuild",
    },
];

#[tokio::test]
async fn a_schema_in_postgresql_that_hides_a_certificate_is_named() {
    if found(Needed::Postgres, programs()).is_none() {
        return;
    }
    for forgery in POSTGRES {
        let store = TestStore::Postgres(Database::create().await);
        let location = mk_ledger(&store).await;
        run_in(&store, forgery.sql).await;
        assert_named(&location, &forgery).await;
    }
}

/// An operator that comes before PostgreSQL's own would hide a certificate from every list.
#[tokio::test]
async fn the_search_path_of_a_role_changes_no_list() {
    if found(Needed::Postgres, programs()).is_none() {
        return;
    }
    let store = TestStore::Postgres(Database::create().await);
    let location = mk_ledger(&store).await;
    let sql = "CREATE SCHEMA other; \
               CREATE FUNCTION other.never(TEXT, TEXT) RETURNS BOOLEAN LANGUAGE SQL AS 'SELECT false'; \
               CREATE OPERATOR other.= (LEFTARG = TEXT, RIGHTARG = TEXT, FUNCTION = other.never); \
               ALTER DATABASE \"DATABASE\" SET search_path = other, pg_catalog, public";
    run_in(&store, sql).await;
    let mut other = PgConnection::connect(&store.url()).await.unwrap();
    let sql = format!("SELECT COUNT(*) FROM public.certificates WHERE cluster = '{CLUSTER}'::TEXT");
    let seen: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut other).await.unwrap();
    assert_eq!(seen, 0, "another program is deceived");
    assert_eq!(listed(&location, CLUSTER).await, [HIDDEN]);
    check(&location).await.unwrap();
}

#[tokio::test]
async fn an_index_hides_a_certificate_from_lists_not_from_the_check() {
    on_store(async |store| {
        let location = mk_ledger(store).await;
        assert_eq!(listed(&location, CLUSTER).await, [HIDDEN]);
        run(store, PARTIAL_HOLDER).await;
        if store.is_file() {
            let forget = "PRAGMA writable_schema = ON; UPDATE sqlite_schema \
                          SET sql = replace(sql, ' WHERE seq <> 5', '') WHERE name = 'certificates_holder'";
            run(store, forget).await;
        } else {
            run(store, "UPDATE pg_index SET indpred = NULL WHERE indexrelid = 'certificates_holder'::regclass").await;
            // With four rows a list needs no index.
            run_in(store, "ALTER DATABASE \"DATABASE\" SET enable_seqscan = off").await;
        }
        assert_eq!(listed(&location, CLUSTER).await, Vec::<u64>::new(), "hidden");
        let checked = run_program(Path::new("/"), &["certs", "verify", "--ledger", &store.url()]).await;
        assert_eq!((checked.code, checked.stdout.as_str()), (1, ""));
        assert!(checked.stderr.contains("does not verify: its store is not sound: "), "{}", checked.stderr);
    })
    .await;
}

/// Statistics, rights, owners, settings of storage, and tables of others do not change what a statement finds.
#[tokio::test]
async fn what_an_administrator_may_do_is_no_forgery() {
    on_store(async |store| {
        let location = mk_ledger(store).await;
        let sql = match store {
            TestStore::Sqlite(_) => "ANALYZE; VACUUM; REINDEX",
            TestStore::Postgres(_) => {
                "ANALYZE; REINDEX TABLE certificates; CREATE ROLE auditor_of_this_test; \
                 GRANT SELECT ON ALL TABLES IN SCHEMA public TO auditor_of_this_test; \
                 ALTER TABLE archives OWNER TO auditor_of_this_test; \
                 ALTER TABLE certificates SET (autovacuum_vacuum_scale_factor = 0.01); \
                 ALTER TABLE entries ALTER COLUMN entry SET STATISTICS 10; \
                 CREATE VIEW pg_stat_of_others AS SELECT 1 AS n; CREATE TABLE saved AS SELECT * FROM certificates"
            }
        };
        run(store, sql).await;
        check(&location).await.unwrap();
    })
    .await;
}

/// The check needs no right but to read.
#[tokio::test]
async fn a_role_that_may_only_read_checks_the_ledger() {
    if found(Needed::Postgres, programs()).is_none() {
        return;
    }
    let store = TestStore::Postgres(Database::create().await);
    mk_ledger(&store).await;
    let sql = "CREATE ROLE reader_of_this_test LOGIN PASSWORD 'only-reads'; \
               GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_of_this_test; \
               CREATE SCHEMA AUTHORIZATION reader_of_this_test";
    run(&store, sql).await;
    let (_, server) = store.url().split_once('@').map(|(who, server)| (who.to_owned(), server.to_owned())).unwrap();
    let location = format!("postgres://reader_of_this_test:only-reads@{server}").parse().unwrap();
    check(&location).await.unwrap();
    run(&store, "CREATE TABLE reader_of_this_test.certificates AS SELECT * FROM public.certificates WHERE seq <> 5")
        .await;
    let finding = "table reader_of_this_test.certificates was added; make";
    assert_named(&location, &Forgery { sql: "a schema with the role's name", finding }).await;
}

/// The rows are checked all the same, and both are named.
#[tokio::test]
async fn an_altered_row_is_named_beside_an_altered_schema() {
    on_store(async |store| {
        let location = mk_ledger(store).await;
        let drop = if store.is_file() { "" } else { " ON entries" };
        run(store, &format!("DROP TRIGGER entries_are_not_altered{drop}; UPDATE entries SET entry = '' WHERE seq = 3"))
            .await;
        let error = check(&location).await.unwrap_err().to_string();
        assert!(error.contains("entries_are_not_altered"), "{error}");
        assert!(error.contains(" is missing; make these parts"), "{error}");
        assert!(error.contains("then check again. With this schema: row 3: "), "{error}");
    })
    .await;
}
