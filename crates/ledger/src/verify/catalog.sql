-- Each part of the ledger's schema in PostgreSQL that decides which rows a statement finds, with its definition. Owners,
-- rights, places on disk and settings of storage decide nothing of that. $1 is the schema; the path has only pg_catalog.
WITH ours AS (
    SELECT c.oid, c.relname, n.nspname = $1 AS here, c.relkind, c.relpersistence, c.relam,
        c.relrowsecurity OR c.relforcerowsecurity AS secured
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT LIKE 'pg\_%' AND c.relname IN
        ('entries', 'certificates', 'unfinished', 'latest', 'fence', 'archives', '_sqlx_migrations')
), tables AS (SELECT * FROM ours WHERE here)
-- A table of the same name elsewhere is what another search_path finds.
SELECT 'table ' || CASE WHEN here THEN relname::text ELSE oid::regclass::text END AS part, concat_ws(' ', relkind, relpersistence,
    (SELECT amname FROM pg_am WHERE pg_am.oid = relam), CASE WHEN secured THEN 'row security' END) AS definition
FROM ours
UNION ALL
SELECT 'rule ' || r.rulename || ' of ' || t.relname, '' FROM pg_rewrite r JOIN tables t ON t.oid = r.ev_class
UNION ALL
SELECT 'policy ' || p.polname || ' of ' || t.relname, '' FROM pg_policy p JOIN tables t ON t.oid = p.polrelid
UNION ALL
SELECT 'inheritance of ' || i.inhrelid::regclass || ' from ' || i.inhparent::regclass, ''
FROM pg_inherits i JOIN tables t ON t.oid IN (i.inhrelid, i.inhparent)
UNION ALL
SELECT 'trigger ' || g.tgname || ' of ' || t.relname, concat_ws(' ', pg_get_triggerdef(g.oid, true), g.tgenabled,
    l.lanname, CASE WHEN f.prosecdef THEN 'security definer' END, f.proconfig, replace(f.prosrc, chr(10), '\n'))
FROM pg_trigger g JOIN tables t ON t.oid = g.tgrelid JOIN pg_proc f ON f.oid = g.tgfoid
JOIN pg_language l ON l.oid = f.prolang WHERE NOT g.tgisinternal
UNION ALL
SELECT 'index ' || i.relname, concat_ws(' ', pg_get_indexdef(x.indexrelid, 0, true),
    CASE WHEN x.indisvalid AND x.indisready AND x.indislive THEN 'valid' END)
FROM pg_index x JOIN tables t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
UNION ALL
-- The planner computes what is constant in such an expression, and so runs its functions.
SELECT 'statistics ' || s.stxname || ' of ' || t.relname, ''
FROM pg_statistic_ext s JOIN tables t ON t.oid = s.stxrelid WHERE s.stxexprs IS NOT NULL
UNION ALL
-- Where the ledger's names are looked for, these could fit better than PostgreSQL's own.
SELECT 'operator ' || o.oid::regoperator, '' FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace
WHERE n.nspname = $1 AND EXISTS
    (SELECT FROM pg_operator p WHERE p.oprname = o.oprname AND p.oprnamespace = 'pg_catalog'::regnamespace)
UNION ALL
SELECT 'function ' || f.oid::regprocedure, '' FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
WHERE n.nspname = $1 AND EXISTS
    (SELECT FROM pg_proc p WHERE p.proname = f.proname AND p.pronamespace = 'pg_catalog'::regnamespace)
UNION ALL
-- From version 18 on, columns that are not null have constraints; the columns say so themselves.
SELECT 'constraint ' || c.conname || ' of ' || t.relname, pg_get_constraintdef(c.oid, true)
FROM pg_constraint c JOIN tables t ON t.oid = c.conrelid WHERE c.contype <> 'n'
UNION ALL
SELECT 'column ' || a.attname || ' of ' || t.relname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attnotnull THEN 'not null' END, NULLIF(a.attgenerated::text, ''), NULLIF(a.attidentity::text, ''),
    (SELECT 'default ' || pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
     WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum),
    (SELECT 'collation ' || l.collname FROM pg_type y JOIN pg_collation l ON l.oid = a.attcollation
     WHERE y.oid = a.atttypid AND y.typcollation <> a.attcollation))
FROM pg_attribute a JOIN tables t ON t.oid = a.attrelid WHERE a.attnum > 0 AND NOT a.attisdropped
