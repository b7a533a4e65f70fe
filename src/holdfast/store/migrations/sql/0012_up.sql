-- 0012: The API: answers that are kept, limits, long work; orders that lists are read in.

SELECT 1;

-- The API ----------------------------------------------------------------------------------------------------------

CREATE TABLE kept_answers (
    owner        text NOT NULL,
    key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    fingerprint  bytea NOT NULL,
    expires_at   timestamptz NOT NULL,
    status       smallint,
    headers      jsonb NOT NULL DEFAULT '{}',
    body         bytea,
    PRIMARY KEY (owner, key)
);
COMMENT ON TABLE kept_answers IS 'Answers to requests with an Idempotency-Key, written in the transaction that did what they say.';
CREATE INDEX kept_answers_expiry ON kept_answers (expires_at);

-- Exact sliding windows in a ring of slots: a hit is allowed if the one that its slot has is older than the window. What a crash of the
-- server empties is a minute of counting.
CREATE UNLOGGED TABLE rate_keys (
    key      text PRIMARY KEY,
    next     bigint NOT NULL DEFAULT 0,
    tail     bigint NOT NULL DEFAULT 0,
    last_at  timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
COMMENT ON TABLE rate_keys IS 'Who has been counted: hits tail to next - 1 are in the window, each in slot number modulo limit of rate_hits.';
CREATE UNLOGGED TABLE rate_hits (
    key   text NOT NULL,
    slot  integer NOT NULL,
    at    timestamptz NOT NULL,
    PRIMARY KEY (key, slot)
) WITH (fillfactor = 50);
COMMENT ON TABLE rate_hits IS 'When the last requests came, for the limits of the API.';

CREATE FUNCTION rate_hit(who text, most integer, span interval, amount integer, OUT allowed boolean, OUT used integer, OUT oldest timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    counted rate_keys;
    cutoff timestamptz;
    at_slot timestamptz;
BEGIN
    LOOP
        SELECT * INTO counted FROM rate_keys WHERE key = who FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO rate_keys (key) VALUES (who) ON CONFLICT DO NOTHING;
    END LOOP;
    cutoff := clock_timestamp() - span;  -- once it is our turn
    IF counted.last_at <= cutoff THEN
        counted.tail := counted.next;
    END IF;
    WHILE counted.tail < counted.next LOOP
        SELECT h.at INTO at_slot FROM rate_hits h WHERE h.key = who AND h.slot = counted.tail % most;
        EXIT WHEN at_slot > cutoff;
        counted.tail := counted.tail + 1;
    END LOOP;
    allowed := counted.next - counted.tail + amount <= most;
    IF allowed AND amount > 0 THEN
        INSERT INTO rate_hits (key, slot, at)
        SELECT who, (counted.next + n) % most, clock_timestamp() FROM generate_series(0, amount - 1) n
        ON CONFLICT (key, slot) DO UPDATE SET at = excluded.at;
        counted.next := counted.next + amount;
        counted.last_at := clock_timestamp();
    END IF;
    UPDATE rate_keys SET next = counted.next, tail = counted.tail, last_at = counted.last_at WHERE key = who;
    used := counted.next - counted.tail;
    SELECT h.at INTO oldest FROM rate_hits h WHERE used > 0 AND h.key = who AND h.slot = counted.tail % most;
END
$$;

CREATE TYPE operation_state AS ENUM ('waiting', 'running', 'done', 'failed');
CREATE TABLE operations (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind          varchar(50) NOT NULL,
    state         operation_state NOT NULL DEFAULT 'waiting',
    attempts      smallint NOT NULL DEFAULT 0,
    asked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at    timestamptz,
    heartbeat_at  timestamptz,
    ended_at      timestamptz,
    asked_by      varchar(100) NOT NULL,
    arguments     jsonb NOT NULL DEFAULT '{}',
    progress      jsonb NOT NULL DEFAULT '{}',
    result        jsonb,
    problem       text,
    CHECK ((ended_at IS NULL) = (state IN ('waiting', 'running')))
);
COMMENT ON TABLE operations IS 'Long work that somebody asked the API for; a background does it, and again if that one dies.';
CREATE INDEX operations_open ON operations (id) WHERE state IN ('waiting', 'running');
CREATE INDEX operations_ended ON operations (ended_at) WHERE ended_at IS NOT NULL;

-- Lists -------------------------------------------------------------------------------------------------------------
-- None of these names a column that a flush changes; `status` it leaves as it is but for the first outcome of a visit.

DROP INDEX domains_held;
CREATE INDEX domains_held ON domains (claimed_by, id) WHERE claimed_by IS NOT NULL;
CREATE INDEX domains_status ON domains (status, domain);
CREATE INDEX domains_crawled ON domains (last_crawled_at, id);
CREATE INDEX domains_score ON domains (priority_score, id);
CREATE INDEX domains_parent ON domains (parent_domain, domain) WHERE parent_domain <> domain;
CREATE INDEX domains_inactive ON domains (domain) WHERE NOT is_active;
CREATE INDEX domains_windows ON domains (domain) WHERE maintenance_window IS NOT NULL;

CREATE INDEX crawled_pages_newest ON crawled_pages (crawled_at);
CREATE INDEX crawled_pages_domain ON crawled_pages (domain_id, crawled_at);
CREATE INDEX crawled_pages_job ON crawled_pages (job_id, crawled_at);
CREATE INDEX url_frontier_failed ON url_frontier (domain_id, job_id, url_key) WHERE state = 'failed';
CREATE INDEX crawl_runs_job ON crawl_runs (job_id, id);
CREATE INDEX crawl_runs_worker ON crawl_runs (worker, id);
CREATE INDEX audit_log_at ON audit_log (at);

-- A domain that is to go: nobody finds it by its name, which is free for another one, and nobody claims it. What hangs on it goes a chunk
-- at a time, and the row last.
ALTER TABLE domains ADD COLUMN removed_at timestamptz, ADD CONSTRAINT removed_is_switched_off CHECK (removed_at IS NULL OR NOT is_active);
COMMENT ON COLUMN domains.removed_at IS 'Not NULL: a person removed it. The row goes when nothing that belonged to it is left.';
CREATE INDEX domains_removed ON domains (id) WHERE removed_at IS NOT NULL;

CREATE TABLE page_purges (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    before     timestamptz NOT NULL,
    job_id     bigint,
    domain_id  bigint
);
COMMENT ON TABLE page_purges IS 'Which pages people wanted to be forgotten: why pages that are in the log are not kept any more.';
COMMENT ON COLUMN page_purges.before IS 'Pages that were fetched before then; of one job and one domain, or of all where that is NULL.';
