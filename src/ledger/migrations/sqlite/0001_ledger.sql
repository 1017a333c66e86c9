-- The chain: docs/ledger-format.md. Only the archive takes rows out, from its beginning.
CREATE TABLE entries (
    seq   INTEGER PRIMARY KEY,
    entry TEXT NOT NULL,
    hash  BLOB NOT NULL
) STRICT;

-- One row per intent: an index of the entries, for questions. seq is the intent's, signed_seq the signed entry's, ended_seq that of
-- abandoned or unpublished. published_at and last_seen are in no entry.
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
    last_seen_from TEXT
) STRICT;
CREATE UNIQUE INDEX certificates_serial ON certificates (serial);
-- One certificate per request.
CREATE UNIQUE INDEX certificates_uid ON certificates (uid) WHERE state <> 'abandoned';
CREATE INDEX certificates_holder ON certificates (cluster, addon, seq);
-- What was signed and is not known to have been handed over: a handful.
CREATE INDEX certificates_open ON certificates (seq) WHERE state IN ('intent', 'signed');
-- What came to nothing: few, and asked for.
CREATE INDEX certificates_ended ON certificates (seq) WHERE state IN ('unpublished', 'abandoned');

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
