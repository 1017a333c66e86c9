-- When the request was made: Kubernetes gives a UID one such time and never changes it. UIDs are random; with the time before
-- them their index grows at its end. 0 where a version of before recorded none.
ALTER TABLE certificates ADD COLUMN requested BIGINT NOT NULL DEFAULT 0;
DROP INDEX certificates_uid;
CREATE UNIQUE INDEX certificates_uid ON certificates (requested, uid, released);
-- What is decided and not signed, or signed and not known to have been handed over: a handful. A table of its own, because an
-- index with such a condition makes PostgreSQL write all indexes of a row that is handed over.
CREATE TABLE unfinished (seq BIGINT PRIMARY KEY);
INSERT INTO unfinished (seq) SELECT seq FROM certificates WHERE published_at IS NULL AND ended_seq IS NULL;
DROP INDEX certificates_open;
