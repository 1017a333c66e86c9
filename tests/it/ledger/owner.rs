//! The ordinary role of a ledger in PostgreSQL, which owns its tables and is no superuser, gives them code that runs
//! when somebody reads: to hide a certificate from lists and itself from the check. The check names what was added.

use addon_signer_core::query::{Filter, Query};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::verify::{Check, VerifyError, VerifyReport, verify};
use addon_signer_ledger::{LedgerError, Location, Reader};

use super::kit::RunningWriter;
use super::rows::run;
use test_kit::needed::{Needed, found};
use test_kit::postgres::{Database, programs};
use test_kit::store::TestStore;

/// A policy of the table that a reader reads first makes every later name mean something else.
const UNPIN: &str = "
    CREATE SCHEMA evil;
    CREATE VIEW evil.pg_policy AS SELECT * FROM pg_catalog.pg_policy WHERE false;
    CREATE VIEW evil.pg_class AS SELECT oid, relname, relnamespace, relkind, relpersistence, relam,
        false AS relrowsecurity, false AS relforcerowsecurity FROM pg_catalog.pg_class;
    CREATE FUNCTION evil.current_schema() RETURNS name LANGUAGE sql AS $$ SELECT 'public'::name $$;
    CREATE FUNCTION evil.unpin() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('default_transaction_read_only') = 'on' THEN
            PERFORM set_config('search_path', 'evil, pg_catalog, public', false);
        END IF;
        RETURN true;
    END $$;
    CREATE POLICY unpin ON _sqlx_migrations USING (evil.unpin());
    ALTER TABLE _sqlx_migrations ENABLE ROW LEVEL SECURITY;
    ALTER TABLE _sqlx_migrations FORCE ROW LEVEL SECURITY";
/// Hides the certificate of a cluster from a list and from nothing else.
const HIDE: &str = "
    CREATE POLICY hide ON certificates USING
        (NOT (cluster = 'cluster2' AND current_query() LIKE 'SELECT seq, %FROM certificates WHERE%'));
    ALTER TABLE certificates ENABLE ROW LEVEL SECURITY;
    ALTER TABLE certificates FORCE ROW LEVEL SECURITY";
/// Fits `nspname NOT LIKE 'pg\_%'` better than PostgreSQL's own operator, whose right side is a text.
const OVERLOAD: &str = "
    CREATE FUNCTION nlike(name, name) RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'ran with the rights of the reader'; END $$;
    CREATE OPERATOR !~~ (LEFTARG = name, RIGHTARG = name, FUNCTION = nlike)";
/// Fits no statement better today. It could fit one of tomorrow.
const FUNCTION: &str = "CREATE FUNCTION count(BIGINT, BIGINT) RETURNS BIGINT LANGUAGE sql AS 'SELECT 0::BIGINT'";
/// The planner runs a function with constant arguments.
const PLANNED: &str = "
    CREATE FUNCTION planned(BIGINT) RETURNS BIGINT IMMUTABLE LANGUAGE plpgsql AS
        $$ BEGIN PERFORM set_config('search_path', 'evil', false); RETURN 1; END $$;
    CREATE STATISTICS planned ON (seq + planned(1)) FROM certificates";

/// A ledger with four certificates of four clusters.
async fn fill(store: &TestStore) {
    let running = RunningWriter::start(&store.url());
    for number in 1..=4 {
        running.issue(number).await;
    }
    running.stop().await;
    check(store).await.unwrap();
}

/// A ledger in a database that belongs to a new role.
async fn mk_ledger_of(role: &str) -> TestStore {
    let mut store = TestStore::Postgres(Database::create().await);
    let url = store.url();
    let (_, server) = url.split_once('@').unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let sql = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'owns'; ALTER DATABASE \"{database}\" OWNER TO {role}; \
         ALTER SCHEMA public OWNER TO {role}"
    );
    run(&store, &sql).await;
    if let TestStore::Postgres(database) = &mut store {
        database.url = format!("postgres://{role}:owns@{server}");
    }
    fill(&store).await;
    store
}

fn location(store: &TestStore) -> Location {
    store.url().parse().unwrap()
}

async fn check(store: &TestStore) -> Result<VerifyReport, VerifyError> {
    verify(Check { location: location(store), checkpoint: None, archives: Vec::new() }, |_| ()).await
}

#[tokio::test]
async fn no_code_in_postgresql_hides_itself_from_the_check() {
    if found(Needed::Postgres, programs()).is_none() {
        return;
    }
    let both = format!("{UNPIN}; {HIDE}");
    let cases = [
        (both.as_str(), "policy unpin of _sqlx_migrations was added, policy hide of certificates was added; make"),
        (OVERLOAD, "lists may leave certificates out: operator public.!~~(name,name) was added; make"),
        (FUNCTION, "lists may leave certificates out: function public.count(bigint,bigint) was added; make"),
        (PLANNED, "lists may leave certificates out: statistics planned of certificates was added; make"),
    ];
    for (number, (sql, message)) in cases.into_iter().enumerate() {
        let store = mk_ledger_of(&format!("owner_with_code_{number}")).await;
        run(&store, sql).await;
        let error = check(&store).await.expect_err(sql).to_string();
        assert!(error.contains(message), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_list_that_a_policy_could_shorten_is_refused() {
    if found(Needed::Postgres, programs()).is_none() {
        return;
    }
    let store = mk_ledger_of("owner_with_policy").await;
    let reader = Reader::open(location(&store)).await.unwrap();
    let filter = Filter { cluster: Some("cluster2".to_owned()), ..Filter::default() };
    let query = Query { filter, ..Query::default() };
    let now = Timestamp::from_unix(0);
    assert_eq!(reader.list(&query, now).await.unwrap().len(), 1);
    run(&store, HIDE).await;
    let refused = [reader.list(&query, now).await.unwrap_err(), reader.show("demo").await.unwrap_err()];
    for error in refused {
        assert!(matches!(error, LedgerError::RowSecurity { .. }), "{error}");
        assert!(error.to_string().contains("is not read, because rows may be hidden: query would be"), "{error}");
    }
    run(&store, UNPIN).await;
    let error = Reader::open(location(&store)).await.err();
    assert!(matches!(error, Some(LedgerError::RowSecurity { .. })), "{error:?}");
}

/// PostgreSQL's definitions have the name of the schema in quotes.
#[tokio::test]
async fn a_ledger_in_a_schema_of_another_name_is_checked() {
    if found(Needed::Postgres, programs()).is_none() {
        return;
    }
    let store = TestStore::Postgres(Database::create().await);
    let url = store.url();
    let (_, database) = url.rsplit_once('/').unwrap();
    let sql = "CREATE SCHEMA \"My ledger\"; ALTER DATABASE";
    run(&store, &format!("{sql} \"{database}\" SET search_path = \"My ledger\"")).await;
    fill(&store).await;
    run(&store, "DROP INDEX certificates_end").await;
    let error = check(&store).await.unwrap_err().to_string();
    assert!(error.contains("lists may leave certificates out: index certificates_end is missing; make"), "{error}");
}
