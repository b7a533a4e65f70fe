-- 0002: what the engine writes: pages, crawls with their budgets, politeness clocks, robots with an expiry.

CREATE TYPE crawl_state AS ENUM ('running', 'stopped', 'finished');

ALTER TABLE crawl_jobs
    ADD COLUMN spec jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN fingerprint bytea UNIQUE,
    ADD COLUMN completed_at timestamptz;
COMMENT ON COLUMN crawl_jobs.fingerprint IS 'Of its seeds and scope: `holdfast crawl` with the same ones goes on with this job.';

CREATE TABLE crawls (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         bigint NOT NULL REFERENCES crawl_jobs ON DELETE CASCADE,
    state          crawl_state NOT NULL DEFAULT 'running',
    started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at       timestamptz,
    max_pages      bigint CHECK (max_pages > 0),
    max_pages_per_domain bigint CHECK (max_pages_per_domain > 0),
    pages_granted  bigint NOT NULL DEFAULT 0 CHECK (pages_granted >= 0),
    round          integer NOT NULL DEFAULT 1,
    CHECK ((state = 'finished') = (ended_at IS NOT NULL))
);
COMMENT ON TABLE crawls IS 'One invocation or schedule of a job. Budgets count in it, whatever dies meanwhile; a stopped one goes on.';
COMMENT ON COLUMN crawls.pages_granted IS 'Of max_pages: what is promised to domains, used or not. What a tenure did not use comes back at its end.';
COMMENT ON COLUMN crawls.round IS 'Under max_pages a domain that has used up its share waits for the next round.';
CREATE UNIQUE INDEX crawls_open ON crawls (job_id) WHERE state <> 'finished';

ALTER TABLE crawl_runs
    ADD COLUMN crawl_id bigint,
    ADD COLUMN errors bigint NOT NULL DEFAULT 0,
    ADD COLUMN bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN in_window integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN crawl_runs.in_window IS 'URLs that the process has in memory, from its last heartbeat.';
CREATE INDEX crawl_runs_crawl ON crawl_runs (crawl_id);

-- Politeness survives whoever practised it. Written by every flush, so no index may name these.
ALTER TABLE domains
    ADD COLUMN next_request_at timestamptz,
    ADD COLUMN back_off_until timestamptz,
    ADD COLUMN back_off_level smallint NOT NULL DEFAULT 0,
    ADD COLUMN response_ms real,
    ADD COLUMN best_response_ms real,
    ADD COLUMN circuit_failures integer NOT NULL DEFAULT 0,
    ADD COLUMN circuit_successes integer NOT NULL DEFAULT 0,
    ADD COLUMN circuit_open_until timestamptz;
COMMENT ON COLUMN domains.next_request_at IS 'The delay''s clock; back_off_until is the back-off''s. No request before either.';
COMMENT ON COLUMN domains.circuit_open_until IS 'NULL: closed. Open until then, half-open after.';

ALTER TABLE domain_robots
    ADD COLUMN status smallint,
    ADD COLUMN reachable boolean NOT NULL DEFAULT true,
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN problem text;
-- One an origin: http and https, and each port, have their own.
DELETE FROM domain_robots WHERE robots_txt_url IS NULL;
ALTER TABLE domain_robots DROP CONSTRAINT domain_robots_pkey, ADD PRIMARY KEY (domain_id, robots_txt_url);
COMMENT ON COLUMN domain_robots.reachable IS 'False: it could not be had the last time; the content, if any, is of the time before.';

-- A budget belongs to a crawl: with another crawl_id, used, granted and limit mean nothing.
ALTER TABLE job_domains
    ADD COLUMN crawl_id bigint,
    ADD COLUMN granted bigint NOT NULL DEFAULT 0 CHECK (granted >= 0),
    ADD COLUMN budget_limit bigint;
COMMENT ON COLUMN job_domains.budget_limit IS 'The domain''s own limit in this crawl, as its holder said it last; spent below it means: for this round.';
-- How a job stands, without a walk through everybody else's work. Its columns do not change in a flush.
CREATE INDEX job_domains_job ON job_domains (job_id, state);

ALTER TABLE url_frontier ADD COLUMN hops smallint NOT NULL DEFAULT 0;
COMMENT ON COLUMN url_frontier.hops IS 'Redirects in a row that led here.';

CREATE TABLE crawled_pages (
    domain_id       bigint NOT NULL,
    job_id          bigint NOT NULL,
    crawled_at      timestamptz NOT NULL,
    content_length  bigint NOT NULL DEFAULT 0,
    archive_offset  bigint,
    archive_length  bigint,
    duration_ms     integer,
    links_count     integer NOT NULL DEFAULT 0,
    images_count    integer NOT NULL DEFAULT 0,
    depth           smallint NOT NULL DEFAULT 0,
    status          smallint,
    noindex         boolean NOT NULL DEFAULT false,
    nofollow        boolean NOT NULL DEFAULT false,
    url_key         bytea NOT NULL,
    content_hash    bytea,
    payload_digest  bytea,
    outcome         varchar(50) NOT NULL,
    content_type    varchar(255),
    charset         varchar(50),
    archive_segment text,
    etag            text,
    last_modified   text,
    title           text,
    description     text,
    canonical       text,
    problem         text,
    PRIMARY KEY (domain_id, job_id, url_key),
    CHECK ((archive_segment IS NULL) = (archive_offset IS NULL) AND (archive_segment IS NULL) = (archive_length IS NULL))
) WITH (fillfactor = 95);
COMMENT ON TABLE crawled_pages IS 'What was answered for a URL, the last time. Its address is in url_frontier under the same key.';

CREATE TABLE page_texts (
    domain_id  bigint NOT NULL,
    job_id     bigint NOT NULL,
    url_key    bytea NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (domain_id, job_id, url_key)
);
ALTER TABLE page_texts ALTER COLUMN body SET STORAGE EXTERNAL;
COMMENT ON TABLE page_texts IS 'Visible text of pages, for jobs that ask for it; compressed by zstd before it comes here.';
