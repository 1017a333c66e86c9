-- The chain: docs/ledger-format.md. Only the archive takes rows out, from its beginning.
CREATE TABLE entries (
    seq   BIGINT PRIMARY KEY,
    entry TEXT NOT NULL,
    hash  BYTEA NOT NULL
);

-- One row per intent: an index of the entries, for questions. seq is the intent's, signed_seq the signed entry's, ended_seq that of
-- abandoned or unpublished. published_at and last_seen are in no entry.
CREATE TABLE certificates (
    seq            BIGINT PRIMARY KEY,
    uid            TEXT NOT NULL,
    request        TEXT NOT NULL,
    signer         TEXT NOT NULL,
    cluster        TEXT NOT NULL,
    addon          TEXT NOT NULL,
    agent          TEXT NOT NULL,
    issuer         TEXT NOT NULL,
    serial         TEXT NOT NULL,
    not_before     BIGINT NOT NULL,
    not_after      BIGINT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('intent', 'signed', 'published', 'unpublished', 'abandoned')),
    signed_seq     BIGINT,
    ended_seq      BIGINT,
    published_at   BIGINT,
    last_seen      BIGINT,
    last_seen_from TEXT
);
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
    seq   BIGINT NOT NULL,
    PRIMARY KEY (topic, name)
);

-- Who writes: a smaller epoch writes nothing.
CREATE TABLE fence (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    epoch   BIGINT NOT NULL,
    replica TEXT NOT NULL
);
INSERT INTO fence (id, epoch, replica) VALUES (1, 0, '');

-- Entries up to and including `through` are in files.
CREATE TABLE archives (
    through BIGINT PRIMARY KEY,
    hash    BYTEA NOT NULL,
    file    TEXT NOT NULL,
    time    TEXT NOT NULL
);

CREATE FUNCTION entries_are_not_altered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries of the ledger are not altered';
END
$$;
CREATE FUNCTION entries_are_not_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.seq > COALESCE((SELECT MAX(through) FROM archives), 0) THEN
        RAISE EXCEPTION 'entries of the ledger are not deleted before they are archived';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER entries_are_not_altered BEFORE UPDATE ON entries
    FOR EACH ROW EXECUTE FUNCTION entries_are_not_altered();
CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON entries
    FOR EACH ROW EXECUTE FUNCTION entries_are_not_deleted();
