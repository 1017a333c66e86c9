-- The chain: docs/ledger-format.md. Only the archive takes rows out, from its beginning.
CREATE TABLE entries (
    seq   INTEGER PRIMARY KEY,
    entry TEXT NOT NULL,
    hash  BLOB NOT NULL
) STRICT;

-- One row per intent: an index of the entries, for questions. seq is the intent's, signed_seq the signed entry's, ended_seq that of
-- abandoned or unpublished. published_at and last_seen are in no entry. released is 0, or the entry that abandoned the row, after which the
-- request may have another. requested is when the request was made: Kubernetes never changes it.
--
-- An update that changes a column of an index writes the index as well, so no index speaks of what signing changes.
CREATE TABLE certificates (
    seq            INTEGER PRIMARY KEY,
    uid            TEXT NOT NULL,
    request        TEXT NOT NULL,
    signer         TEXT NOT NULL,
    cluster        TEXT NOT NULL,
    addon          TEXT NOT NULL,
    agent          TEXT NOT NULL,
    issuer         TEXT NOT NULL,
    serial         TEXT NOT NULL,
    not_before     INTEGER NOT NULL,
    not_after      INTEGER NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('intent', 'signed', 'published', 'unpublished', 'abandoned')),
    signed_seq     INTEGER,
    ended_seq      INTEGER,
    published_at   INTEGER,
    last_seen      INTEGER,
    last_seen_from TEXT,
    released       INTEGER NOT NULL DEFAULT 0 CHECK (released = 0 OR state = 'abandoned'),
    requested      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX certificates_serial ON certificates (serial);
-- One certificate per request. UIDs are random: with the time before them the index grows at its end.
CREATE UNIQUE INDEX certificates_uid ON certificates (requested, uid, released);
-- The agent too: a cluster chooses the names of its agents, and may have thousands of them.
CREATE INDEX certificates_holder ON certificates (cluster, addon, agent, seq);
-- What came to nothing: few, and asked for.
CREATE INDEX certificates_ended ON certificates (seq) WHERE ended_seq IS NOT NULL;
-- For lists: the first page at once, whatever is asked for. Names are few and rows are added in their order, so that each commit
-- touches the ends of these indexes only.
CREATE INDEX certificates_signer ON certificates (signer);
CREATE INDEX certificates_addon ON certificates (addon);
CREATE INDEX certificates_agent ON certificates (agent);
CREATE INDEX certificates_issuer ON certificates (issuer);
CREATE INDEX certificates_end ON certificates (not_after);
-- Those that were never used are many, and all have one time: with their numbers beside it they are in the order in which they
-- are listed. The end is here because both are asked together.
CREATE INDEX certificates_seen ON certificates (COALESCE(last_seen, 0), seq, not_after);

-- What is decided and not signed, or signed and not known to have been handed over: a handful. A table of its own, because an
-- index with such a condition makes PostgreSQL write all indexes of a row that is handed over.
CREATE TABLE unfinished (seq INTEGER PRIMARY KEY);

-- The last known value of what is recorded when it changes.
CREATE TABLE latest (
    topic TEXT NOT NULL,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (topic, name)
) STRICT;

-- Who writes: a smaller epoch writes nothing.
CREATE TABLE fence (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    epoch   INTEGER NOT NULL,
    replica TEXT NOT NULL
) STRICT;
INSERT INTO fence (id, epoch, replica) VALUES (1, 0, '');

-- Entries up to and including `through` are in files.
CREATE TABLE archives (
    through INTEGER PRIMARY KEY,
    hash    BLOB NOT NULL,
    file    TEXT NOT NULL,
    time    TEXT NOT NULL
) STRICT;

CREATE TRIGGER entries_are_not_altered BEFORE UPDATE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries of the ledger are not altered');
END;
CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON entries
WHEN OLD.seq > COALESCE((SELECT MAX(through) FROM archives), 0)
BEGIN
    SELECT RAISE(ABORT, 'entries of the ledger are not deleted before they are archived');
END;
