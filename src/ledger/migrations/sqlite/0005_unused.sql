-- Those that were never used are many, and all have one time: with their numbers beside it they are in the order in which they
-- are listed, and need no sorting. The end is here because both are asked together: SQLite looks at it before it goes to the row.
DROP INDEX certificates_seen;
CREATE INDEX certificates_seen ON certificates (COALESCE(last_seen, 0), seq, not_after);
