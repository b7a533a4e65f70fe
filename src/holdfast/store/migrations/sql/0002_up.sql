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

-- A hand that starts a domain over means all jobs that know it, also those that are completed.
CREATE OR REPLACE FUNCTION domain_status_changes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    by_hand boolean := false;
BEGIN
    -- A reset by a person is allowed from every state, but it must take the claim away.
    IF NOT domain_transition_allowed(OLD.status, NEW.status)
       AND NOT (NEW.status = 'pending' AND NEW.status_reason LIKE 'reset%' AND NEW.claim_epoch > OLD.claim_epoch AND NEW.claimed_by IS NULL)
    THEN
        RAISE EXCEPTION 'domain %: a domain that is % cannot become %', OLD.domain, OLD.status, NEW.status
            USING ERRCODE = 'check_violation',
                  HINT = 'Allowed from ' || OLD.status || ': '
                      || (SELECT string_agg(s::text, ', ') FROM unnest(enum_range(NULL::domain_status)) s
                          WHERE s <> OLD.status AND domain_transition_allowed(OLD.status, s))
                      || '. To start over use: holdfast domain-reset ' || OLD.domain;
    END IF;
    -- Each event leads to one status only, so two changes in a row never have the same reason: the same text means none was given.
    IF NEW.status_reason IS NOT DISTINCT FROM OLD.status_reason THEN
        NEW.status_reason := 'manual: changed in SQL as ' || session_user;
        by_hand := true;
    END IF;
    -- Holdfast itself always says until when. A hand that does not means: until a hand says otherwise, or the usual refresh.
    IF NEW.status IN ('blocked', 'unreachable', 'exhausted') AND NEW.next_crawl_after IS NULL THEN
        NEW.next_crawl_after := CASE WHEN NEW.status = 'exhausted' THEN clock_timestamp() + NEW.default_crawl_frequency ELSE 'infinity' END;
        by_hand := true;
    END IF;
    IF by_hand THEN
        -- The next sweep makes its work ready, or not ready, as it now is. Where nothing is left to do, all pages are wanted again.
        INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after)
        SELECT NEW.id, jd.job_id, 0, CASE WHEN NEW.status IN ('pending', 'active')
            AND NOT bool_or(jd.state <> 'done') OVER () THEN ''::bytea END
        FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id
        WHERE jd.domain_id = NEW.id AND j.state NOT IN ('cancelled', 'failed');
    END IF;
    IF NEW.status IN ('blocked', 'unreachable') THEN
        NEW.block_reason_code := COALESCE(NEW.block_reason_code, 'manual');
        NEW.first_blocked_at := COALESCE(NEW.first_blocked_at, clock_timestamp());
    ELSE
        NEW.block_reason_code := NULL;
        NEW.block_reason := NULL;
        IF NEW.status IN ('pending', 'active') THEN
            NEW.next_crawl_after := NULL;
            NEW.consecutive_error_count := CASE WHEN OLD.status = 'pending' THEN NEW.consecutive_error_count ELSE 0 END;
        END IF;
    END IF;
    NEW.version := OLD.version + 1;
    INSERT INTO domain_transitions (domain_id, version, from_status, to_status, reason, worker, claim_epoch)
    VALUES (NEW.id, NEW.version, OLD.status, NEW.status, NEW.status_reason, OLD.claimed_by, NEW.claim_epoch);
    RETURN NEW;
END
$$;
