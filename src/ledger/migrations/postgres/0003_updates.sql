-- An update that changes a column of an index writes the index as well: that of the UIDs, which are random, somewhere else each
-- time. No index speaks of what signing changes; of what comes later those of the unfinished, the ended and the last use do.
ALTER TABLE certificates ADD COLUMN released BIGINT NOT NULL DEFAULT 0 CHECK (released = 0 OR state = 'abandoned');
UPDATE certificates SET released = ended_seq WHERE state = 'abandoned';
-- One certificate per request: 0, or the entry that abandoned the row, after which the request may have another.
DROP INDEX certificates_uid;
CREATE UNIQUE INDEX certificates_uid ON certificates (uid, released);
-- What is not known to have been handed over: a handful.
DROP INDEX certificates_open;
CREATE INDEX certificates_open ON certificates (seq) WHERE published_at IS NULL AND ended_seq IS NULL;
-- What came to nothing: few, and asked for.
DROP INDEX certificates_ended;
CREATE INDEX certificates_ended ON certificates (seq) WHERE ended_seq IS NOT NULL;
-- A row is written again when it is signed. With room beside it no index learns of that.
ALTER TABLE certificates SET (fillfactor = 50);
