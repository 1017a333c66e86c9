-- For lists: the first page at once, whatever is asked for. Names are few and rows are added in their order, so that each commit
-- touches the ends of these indexes only. not_after is with last_seen because both are asked together.
CREATE INDEX certificates_signer ON certificates (signer, seq);
CREATE INDEX certificates_addon ON certificates (addon, seq);
CREATE INDEX certificates_agent ON certificates (agent, seq);
CREATE INDEX certificates_issuer ON certificates (issuer, seq);
CREATE INDEX certificates_end ON certificates (not_after, seq);
CREATE INDEX certificates_seen ON certificates ((COALESCE(last_seen, 0)), not_after);
