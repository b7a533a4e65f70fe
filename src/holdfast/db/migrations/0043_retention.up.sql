-- 0043: retention: when URLs were settled, what was archived before it was deleted, and since when the log is complete.

-- No index names it: a flush writes it.
ALTER TABLE url_frontier ADD COLUMN settled_at timestamptz;
COMMENT ON COLUMN url_frontier.settled_at IS
    'When it was last fetched to an end, or denied. NULL: it never was, or by a release of the program before this column.';

ALTER TABLE crawl_jobs ADD COLUMN ended_at timestamptz, ADD COLUMN aged_at timestamptz, ADD COLUMN kept_until timestamptz;
COMMENT ON COLUMN crawl_jobs.ended_at IS 'When it was completed, failed or was cancelled; NULL: it is none of these.';
COMMENT ON COLUMN crawl_jobs.aged_at IS
    'When retention last deleted URLs of this job. Time does not reopen it after that: it would fetch pages again that it no longer knows.';
COMMENT ON COLUMN crawl_jobs.kept_until IS 'Retention leaves the rows of this job alone until then: they were restored from an archive.';

UPDATE crawl_jobs SET ended_at = COALESCE(completed_at, updated_at) WHERE state IN ('completed', 'failed', 'cancelled');

CREATE OR REPLACE FUNCTION job_state_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state_reason IS NOT DISTINCT FROM OLD.state_reason THEN
        NEW.state_reason := NULL;
    END IF;
    NEW.ended_at := CASE WHEN NEW.state IN ('completed', 'failed', 'cancelled') THEN clock_timestamp() END;
    RETURN NEW;
END
$$;

CREATE FUNCTION job_ended_at(job crawl_jobs) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN job.state IN ('completed', 'failed', 'cancelled') AND job.kind = 'crawl' AND job.name <> 'default'
                 AND job.deleted_at IS NULL AND job.schedule IS NULL AND NOT job.beginning AND NOT job_wants_refresh(job)
                 AND (job.state = 'cancelled' OR job.aged_at > job.ended_at OR NOT EXISTS (
                     SELECT FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
                     WHERE jd.job_id = job.id AND d.status IN ('blocked', 'unreachable') AND d.next_crawl_after < 'infinity'
                     AND (jd.waiting > 0 OR jd.denied > 0 OR jd.failed > 0)))
                THEN COALESCE(job.ended_at, job.updated_at) END
$$;
COMMENT ON FUNCTION job_ended_at IS
    'When a job ended for good: no schedule, refresh or cool-down begins it again, only a person. NULL: it is live, and its rows are its memory.';

-- A row is a chunk of rows, or a file of the WARC archive, that retention has moved to the store of archives, or is moving there.
CREATE TABLE archives (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id          bigint,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at    timestamptz,
    restored_at     timestamptz,
    kept_until      timestamptz,
    deleted_at      timestamptz,
    first_at        timestamptz,
    last_at         timestamptz,
    rows            bigint NOT NULL DEFAULT 0 CHECK (rows >= 0),
    state           varchar(10) NOT NULL DEFAULT 'writing' CHECK (state IN ('writing', 'complete', 'restored')),
    kind            varchar(20) NOT NULL,
    revision        varchar(32) NOT NULL,
    place           text NOT NULL,
    source          text,
    CHECK ((state = 'writing') = (completed_at IS NULL)),
    CHECK (state <> 'restored' OR restored_at IS NOT NULL)
);
COMMENT ON TABLE archives IS 'What retention has archived. The transaction that completes an archive deletes its rows.';
COMMENT ON COLUMN archives.state IS 'writing: its rows are in the store, and its files may be incomplete. complete: its files hold them. restored: they are back.';
COMMENT ON COLUMN archives.source IS 'The partition, or the segment of the WARC archive.';
COMMENT ON COLUMN archives.first_at IS 'The time of its oldest row; last_at that of its newest.';
COMMENT ON COLUMN archives.kept_until IS 'It was restored: what it holds is not archived again until then.';
COMMENT ON COLUMN archives.deleted_at IS 'Of a segment: when its file was deleted from the folder that it was in. NULL: a backup may name it, or it was restored.';
COMMENT ON COLUMN archives.revision IS 'The revision of the schema that its rows are of.';
CREATE UNIQUE INDEX archives_source ON archives (kind, source) WHERE source IS NOT NULL AND state IN ('writing', 'complete');
CREATE INDEX archives_job ON archives (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX archives_kind ON archives (kind, id);
CREATE INDEX archives_writing ON archives (id) WHERE state = 'writing';

-- A row is a file of an archive.
CREATE TABLE archive_files (
    archive_id  bigint NOT NULL REFERENCES archives ON DELETE CASCADE,
    number      integer NOT NULL,
    rows        bigint NOT NULL CHECK (rows >= 0),
    bytes       bigint NOT NULL CHECK (bytes >= 0),
    sha256      bytea NOT NULL CHECK (octet_length(sha256) = 32),
    table_name  varchar(63) NOT NULL,
    key         text NOT NULL,
    mark        text,
    PRIMARY KEY (archive_id, number)
);
COMMENT ON TABLE archive_files IS 'The files of archives, with their counts and hashes. A file is in its place before its row.';
COMMENT ON COLUMN archive_files.mark IS 'Of a partition: the last row of the file, after which the next file begins.';

-- How far a step of retention is with a job. A step that is done is not looked at again until the job ends anew.
CREATE TABLE retention_progress (
    job_id     bigint NOT NULL REFERENCES crawl_jobs ON DELETE CASCADE,
    domain_id  bigint NOT NULL DEFAULT 0,
    ended_at   timestamptz NOT NULL,
    done_at    timestamptz,
    step       varchar(20) NOT NULL,
    url_key    bytea NOT NULL DEFAULT ''::bytea,
    PRIMARY KEY (job_id, step)
);
COMMENT ON TABLE retention_progress IS 'The last URL of a job that a step of retention has looked at; done_at: all of them.';

-- There is one row.
CREATE TABLE retention_state (
    only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    log_begins_at  timestamptz,
    vacuumed_at    timestamptz
);
COMMENT ON TABLE retention_state IS 'What retention has done to the store as a whole.';
COMMENT ON COLUMN retention_state.log_begins_at IS 'crawl_log is complete since then; what was before is in roll-ups. NULL: since the beginning.';
INSERT INTO retention_state DEFAULT VALUES;

-- A row is when retention last ran on one machine.
CREATE TABLE retention_runs (
    machine     varchar(64) PRIMARY KEY,
    due_from    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at  timestamptz,
    ended_at    timestamptz,
    result      jsonb,
    problem     text
);
COMMENT ON TABLE retention_runs IS 'The last run of retention on each machine: rows belong to all, files of the WARC archive to one.';

-- Roll-ups of proxies, as crawl_log_rollups of domains.
CREATE TABLE proxy_log_rollups (
    domain_id  bigint NOT NULL,
    proxy_id   bigint NOT NULL,
    requests   bigint NOT NULL CHECK (requests >= 0),
    successes  bigint NOT NULL CHECK (successes >= 0),
    refusals   bigint NOT NULL CHECK (refusals >= 0),
    failures   bigint NOT NULL CHECK (failures >= 0),
    bytes      bigint NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (domain_id, proxy_id)
);
COMMENT ON TABLE proxy_log_rollups IS 'Sums of rows that are no longer in crawl_log, by domain and proxy: figures of a proxy = roll-up + log.';

-- Files of the WARC archive to which records of another file refer for their bodies.
CREATE TABLE segment_originals (
    segment    text PRIMARY KEY,
    originals  text[] NOT NULL
);
COMMENT ON TABLE segment_originals IS 'Which other segments hold bodies of the revisit records of a closed segment: these stay while it does.';

-- Files that no row names, until no kept backup names them either.
CREATE TABLE unnamed_files (
    since  timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind   varchar(10) NOT NULL CHECK (kind IN ('image', 'segment')),
    key    text NOT NULL,
    PRIMARY KEY (kind, key)
);
COMMENT ON TABLE unnamed_files IS 'Files that nothing in the store names since then. Each is deleted when every kept backup is younger.';

-- Sizes as they were on a day, for the trend.
CREATE TABLE storage_days (
    day    date NOT NULL,
    rows   bigint,
    bytes  bigint NOT NULL,
    kind   varchar(10) NOT NULL CHECK (kind IN ('database', 'table', 'domain', 'folder')),
    name   text NOT NULL,
    PRIMARY KEY (day, kind, name)
);
COMMENT ON TABLE storage_days IS 'What the database, its tables, the largest domains and the folders of machines took, once a day.';
