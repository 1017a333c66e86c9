-- The chain: docs/ledger-format.md. Only the archive takes rows out, from its beginning.
CREATE TABLE entries (
    seq   BIGINT PRIMARY KEY,
    entry TEXT NOT NULL,
    hash  BYTEA NOT NULL
);

-- One row per intent: an index of the entries, for questions. seq is the intent's, signed_seq the signed entry's, ended_seq that of
-- abandoned or unpublished. published_at and last_seen are in no entry. released is 0, or the entry that abandoned the row, after which the
-- request may have another. requested is when the request was made: Kubernetes never changes it.
--
-- An update that changes a column of an index writes the index as well, so no index speaks of what signing changes.
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
    last_seen_from TEXT,
    released       BIGINT NOT NULL DEFAULT 0 CHECK (released = 0 OR state = 'abandoned'),
    requested      BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX certificates_serial ON certificates (serial);
-- One certificate per request. UIDs are random: with the time before them the index grows at its end.
CREATE UNIQUE INDEX certificates_uid ON certificates (requested, uid, released);
-- The agent too: a cluster chooses the names of its agents, and may have thousands of them.
CREATE INDEX certificates_holder ON certificates (cluster, addon, agent, seq);
-- What came to nothing: few, and asked for.
CREATE INDEX certificates_ended ON certificates (seq) WHERE ended_seq IS NOT NULL;
-- For lists: the first page at once, whatever is asked for. Names are few and rows are added in their order, so that each commit
-- touches the ends of these indexes only.
CREATE INDEX certificates_signer ON certificates (signer, seq);
CREATE INDEX certificates_addon ON certificates (addon, seq);
CREATE INDEX certificates_agent ON certificates (agent, seq);
CREATE INDEX certificates_issuer ON certificates (issuer, seq);
CREATE INDEX certificates_end ON certificates (not_after, seq);
-- Those that were never used are many, and all have one time: with their numbers beside it they are in the order in which they
-- are listed. The end is here because both are asked together, in the words of that question: PostgreSQL looks only at what an
-- index's condition names before it goes to the row.
CREATE INDEX certificates_seen ON certificates ((COALESCE(last_seen, 0)), seq, (not_after + 0));
-- A row is written again when it is signed. With room beside it no index learns of that.
ALTER TABLE certificates SET (fillfactor = 50);

-- What is decided and not signed, or signed and not known to have been handed over: a handful. A table of its own, because an
-- index with such a condition makes PostgreSQL write all indexes of a row that is handed over.
CREATE TABLE unfinished (seq BIGINT PRIMARY KEY);

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
