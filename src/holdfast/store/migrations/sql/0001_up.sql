-- 0001: domains held by fenced claims, the jobs and frontier that hang on them, and the tables around them.

CREATE TYPE domain_status AS ENUM ('pending', 'active', 'exhausted', 'blocked', 'unreachable');
CREATE TYPE job_state AS ENUM ('pending', 'processing', 'paused', 'completed', 'failed', 'cancelled');
CREATE TYPE job_domain_state AS ENUM ('open', 'parked', 'spent', 'done');
CREATE TYPE frontier_state AS ENUM ('waiting', 'done', 'denied', 'failed');
CREATE TYPE frontier_kind AS ENUM ('discovery', 'refresh');
CREATE TYPE run_status AS ENUM ('running', 'completed', 'failed');

-- Jobs and runs ------------------------------------------------------------------------------------------------------

CREATE TABLE crawl_jobs (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        varchar(100) NOT NULL UNIQUE,
    state       job_state NOT NULL DEFAULT 'pending',
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE crawl_jobs IS 'What a user asked to be crawled.';
INSERT INTO crawl_jobs (name) VALUES ('default');

CREATE TABLE workers (
    name          varchar(255) PRIMARY KEY,
    boot_epoch    bigint NOT NULL DEFAULT 1,
    host          text NOT NULL,
    pid           integer NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    heartbeat_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE workers IS 'Names that worker processes bear. A name is held by a session advisory lock, not by this row.';

CREATE TABLE crawl_runs (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id             bigint REFERENCES crawl_jobs ON DELETE SET NULL,
    worker             varchar(255) NOT NULL,
    status             run_status NOT NULL DEFAULT 'running',
    started_at         timestamptz NOT NULL DEFAULT now(),
    heartbeat_at       timestamptz NOT NULL DEFAULT now(),
    completed_at       timestamptz,
    error_message      text,
    pages_crawled      bigint NOT NULL DEFAULT 0,
    images_found       bigint NOT NULL DEFAULT 0,
    images_downloaded  bigint NOT NULL DEFAULT 0,
    CHECK ((status = 'running') = (completed_at IS NULL))
);
COMMENT ON TABLE crawl_runs IS 'One worker process at work.';
CREATE INDEX crawl_runs_running ON crawl_runs (id) WHERE status = 'running';

-- Domains ------------------------------------------------------------------------------------------------------------
-- A flush writes the claim expiry and the counters, every second, for every held domain. No index may name one of those
-- columns, in its keys or its predicate, or each flush stops being a heap-only update.

CREATE TABLE domains (
    id                        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- who holds it
    claim_epoch               bigint NOT NULL DEFAULT 0,
    claim_expires_at          timestamptz,
    claimed_by                varchar(255),
    -- written by every flush
    pages_discovered          bigint NOT NULL DEFAULT 0,
    pages_crawled             bigint NOT NULL DEFAULT 0,
    images_found              bigint NOT NULL DEFAULT 0,
    images_stored             bigint NOT NULL DEFAULT 0,
    frontier_size             bigint NOT NULL DEFAULT 0,
    total_error_count         integer NOT NULL DEFAULT 0,
    consecutive_error_count   integer NOT NULL DEFAULT 0,
    crawl_depth_reached       integer NOT NULL DEFAULT 0,
    frontier_updated_at       timestamptz,
    updated_at                timestamptz NOT NULL DEFAULT now(),
    -- written at release
    status                    domain_status NOT NULL DEFAULT 'pending',
    is_active                 boolean NOT NULL DEFAULT true,
    priority_score            integer NOT NULL DEFAULT 0,
    version                   integer NOT NULL DEFAULT 0,
    retry_count               integer NOT NULL DEFAULT 0,
    next_crawl_after          timestamptz,
    last_crawled_at           timestamptz,
    last_crawl_run_id         bigint REFERENCES crawl_runs ON DELETE SET NULL,
    priority_computed_at      timestamptz,
    first_blocked_at          timestamptz,
    block_reason_code         varchar(50),
    block_reason              text,
    status_reason             text,
    -- what it is
    first_seen_at             timestamptz NOT NULL DEFAULT now(),
    seed_rank                 integer,
    source                    varchar(100),
    domain                    varchar(255) COLLATE "C" NOT NULL UNIQUE,
    parent_domain             varchar(255) COLLATE "C" NOT NULL,
    base_url                  varchar(512) NOT NULL,
    -- how to crawl it: as the settings said when it was first seen, until a person changes it
    max_pages_per_run         integer DEFAULT 1000,
    parser_name               varchar(100) NOT NULL DEFAULT 'generic',
    crawl_delay_seconds       double precision NOT NULL DEFAULT 1,
    max_concurrent_requests   integer NOT NULL DEFAULT 5,
    default_crawl_frequency   interval NOT NULL DEFAULT '1 day',
    user_agent                varchar(255),
    maintenance_window        varchar(100),
    frontier_checkpoint_id    varchar(100),
    -- quality signals: from integers, so they cannot drift
    image_yield_rate          double precision GENERATED ALWAYS AS (images_stored::double precision / NULLIF(pages_crawled, 0)) STORED,
    avg_images_per_page       double precision GENERATED ALWAYS AS (images_found::double precision / NULLIF(pages_crawled, 0)) STORED,
    error_rate                double precision GENERATED ALWAYS AS (total_error_count::double precision / NULLIF(pages_crawled, 0)) STORED,

    CONSTRAINT claim_is_whole CHECK ((claimed_by IS NULL) = (claim_expires_at IS NULL)),
    CONSTRAINT counters_not_negative CHECK (pages_discovered >= 0 AND pages_crawled >= 0 AND images_found >= 0 AND images_stored >= 0
        AND frontier_size >= 0 AND total_error_count >= 0 AND consecutive_error_count >= 0 AND retry_count >= 0),
    CONSTRAINT block_reason_known CHECK (block_reason_code IN ('login_required', 'rate_limited', 'forbidden', 'unavailable', 'robots_denied',
        'dns_failure', 'connection_failed', 'timeout', 'tls_failure', 'manual')),
    CONSTRAINT stopped_has_reason CHECK ((status IN ('blocked', 'unreachable')) = (block_reason_code IS NOT NULL)),
    CONSTRAINT sane_configuration CHECK (crawl_delay_seconds >= 0 AND max_concurrent_requests > 0 AND max_pages_per_run > 0 AND seed_rank > 0),
    CONSTRAINT domain_is_canonical CHECK (domain <> '' AND domain = lower(domain))
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE domains IS 'A web host as a persistent entity: who holds it, what it has learnt, how it is to be treated.';
COMMENT ON COLUMN domains.next_crawl_after IS 'Cooling down until then; infinity: until a person resets it.';
COMMENT ON COLUMN domains.status_reason IS 'The event that led to this status, and a detail: "event: detail".';
COMMENT ON COLUMN domains.priority_score IS 'Learnt terms less 5 x day of the last crawl; the order does not change with time. Shown with 5 x today added.';

CREATE INDEX domains_held ON domains (claimed_by) WHERE claimed_by IS NOT NULL;
CREATE INDEX domains_cooling ON domains (next_crawl_after) WHERE next_crawl_after IS NOT NULL;

CREATE TABLE domain_robots (
    domain_id                bigint PRIMARY KEY REFERENCES domains ON DELETE CASCADE,
    robots_txt_url           varchar(512),
    robots_txt_content       text,
    robots_txt_last_fetched  timestamptz
);
COMMENT ON TABLE domain_robots IS 'The robots cache, apart from the hot row.';

CREATE TABLE domain_transitions (
    domain_id    bigint NOT NULL,
    version      integer NOT NULL,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    from_status  domain_status NOT NULL,
    to_status    domain_status NOT NULL,
    reason       text NOT NULL,
    worker       varchar(255),
    claim_epoch  bigint NOT NULL,
    PRIMARY KEY (domain_id, version)
);
COMMENT ON TABLE domain_transitions IS 'Every change of a domain''s status, with its reason. Written by trigger, also for SQL by hand.';

-- The transition matrix. model/domain.py holds the same one, and a test compares all 25 pairs.
CREATE FUNCTION domain_transition_allowed(old domain_status, new domain_status) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE old
        WHEN 'pending'     THEN new IN ('active', 'blocked', 'unreachable')
        WHEN 'active'      THEN new IN ('active', 'exhausted', 'blocked', 'unreachable')
        WHEN 'exhausted'   THEN new IN ('pending', 'active')
        WHEN 'blocked'     THEN new IN ('pending', 'active')
        WHEN 'unreachable' THEN new IN ('pending', 'active')
    END
$$;

CREATE FUNCTION domain_status_changes() RETURNS trigger LANGUAGE plpgsql AS $$
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
        WHERE jd.domain_id = NEW.id AND j.state IN ('pending', 'processing', 'paused');
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

CREATE TRIGGER domains_status BEFORE UPDATE OF status ON domains
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION domain_status_changes();

CREATE FUNCTION touch_updated_at() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END
$$;
CREATE TRIGGER domains_updated_at BEFORE UPDATE ON domains FOR EACH ROW EXECUTE FUNCTION touch_updated_at();
CREATE TRIGGER crawl_jobs_updated_at BEFORE UPDATE ON crawl_jobs FOR EACH ROW EXECUTE FUNCTION touch_updated_at();

-- Five points a day, so that a domain left alone rises; the same for all, hence stored without "now".
CREATE FUNCTION staleness_points(since timestamptz) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT (extract(epoch FROM since)::double precision / 86400 * 5)::integer $$;

CREATE FUNCTION rank_points(rank integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT COALESCE(GREATEST(1000 - 150 * log(rank::double precision), 0), 0)::integer $$;

CREATE FUNCTION domain_score(d domains) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (rank_points(d.seed_rank)
        + LEAST(round(COALESCE(d.image_yield_rate, 0) * 1000), 5000000)
        + LEAST(GREATEST(d.pages_discovered - d.pages_crawled, 0), 500) * 2
        - LEAST(round(COALESCE(d.error_rate, 0) * 500), 5000000)
        - staleness_points(COALESCE(d.last_crawled_at, d.first_seen_at - interval '30 days')))::integer
$$;

-- What there is to do, for whom --------------------------------------------------------------------------------------
-- A row of job_domains is only ever changed by one who holds the lock of its domain row.
-- No foreign keys on the hot tables: one to domains doubles the cost of a frontier insert (9.5 of 16 us), one to crawl_jobs makes every
-- batch of every worker lock the same row. Who inserts for a domain that he does not hold takes FOR KEY SHARE on it once instead,
-- which is what makes a release wait for him. Deleting a job or a domain deletes its rows here, in chunks.

CREATE TABLE job_domains (
    domain_id   bigint NOT NULL,
    job_id      bigint NOT NULL,
    priority    integer NOT NULL DEFAULT 0,
    state       job_domain_state NOT NULL DEFAULT 'open',
    ready       boolean NOT NULL DEFAULT false,
    discovered  bigint NOT NULL DEFAULT 0,
    waiting     bigint NOT NULL DEFAULT 0,
    done        bigint NOT NULL DEFAULT 0,
    denied      bigint NOT NULL DEFAULT 0,
    failed      bigint NOT NULL DEFAULT 0,
    budget_used bigint NOT NULL DEFAULT 0,
    not_before  timestamptz,
    PRIMARY KEY (domain_id, job_id),
    CHECK (NOT ready OR state = 'open')
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE job_domains IS 'What a job has to do on a domain. ready is a hint for the claim; the locked domain row is the proof.';
CREATE INDEX job_domains_ready ON job_domains (job_id, priority DESC, domain_id) WHERE ready;
CREATE INDEX job_domains_delayed ON job_domains (not_before) WHERE not_before IS NOT NULL;

CREATE TABLE domain_wakes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain_id  bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    job_id     bigint NOT NULL,
    inserted   bigint NOT NULL CHECK (inserted >= 0),
    again_after bytea
);
COMMENT ON TABLE domain_wakes IS 'News for a domain from one who does not hold it: so many frontier rows were inserted. Folded by the holder or the sweep.';
COMMENT ON COLUMN domain_wakes.again_after IS 'Not NULL: everything behind this key is to be crawled again (a reset). A fold moves it on, a chunk at a time.';
CREATE INDEX domain_wakes_domain ON domain_wakes (domain_id);

CREATE TABLE commit_markers (
    worker  varchar(255) PRIMARY KEY,
    token   uuid NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE commit_markers IS 'The last transaction of each worker whose end may have to be asked for.';

CREATE TABLE claim_log (
    domain_id   bigint NOT NULL,
    epoch       bigint NOT NULL,
    claimed_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    worker      varchar(255) NOT NULL,
    why         varchar(20),
    PRIMARY KEY (domain_id, epoch),
    CHECK ((ended_at IS NULL) = (why IS NULL)),
    CHECK (ended_at >= claimed_at),
    CHECK (why IN ('released', 'expired', 'reclaimed', 'forced', 'reset'))
) WITH (fillfactor = 80);
COMMENT ON TABLE claim_log IS 'Who held what, when: one row a tenure.';

CREATE TABLE url_frontier (
    domain_id      bigint NOT NULL,
    job_id         bigint NOT NULL,
    discovered_at  timestamptz NOT NULL DEFAULT now(),
    not_before     timestamptz,
    depth          smallint NOT NULL DEFAULT 0,
    priority       smallint NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 3),
    attempts       smallint NOT NULL DEFAULT 0,
    state          frontier_state NOT NULL DEFAULT 'waiting',
    kind           frontier_kind NOT NULL DEFAULT 'discovery',
    url_key        bytea NOT NULL CHECK (octet_length(url_key) = 16),
    parent_key     bytea,
    url            text NOT NULL,
    reason         text,
    PRIMARY KEY (domain_id, job_id, url_key)
) WITH (fillfactor = 90);
COMMENT ON TABLE url_frontier IS 'Every URL a job has met on a domain. "Seen" and "queued" are one row; it stays when crawled.';
-- In the order in which a visit takes them.
CREATE INDEX url_frontier_waiting ON url_frontier (domain_id, job_id, priority DESC, depth, url_key) WHERE state = 'waiting';

-- What was fetched ---------------------------------------------------------------------------------------------------

CREATE TABLE crawl_log (
    domain_id     bigint NOT NULL,
    job_id        bigint NOT NULL,
    claim_epoch   bigint NOT NULL,
    crawl_run_id  bigint,
    crawled_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    duration_ms   integer,
    bytes         bigint,
    images_found  integer NOT NULL DEFAULT 0,
    status        smallint,
    proxy_id      bigint,
    url_key       bytea NOT NULL,
    outcome       varchar(50) NOT NULL,
    page_url      text NOT NULL
) PARTITION BY RANGE (crawled_at);
COMMENT ON TABLE crawl_log IS 'Append-only: one row an outcome. By week, so that retention drops partitions.';
CREATE INDEX crawl_log_domain ON crawl_log (domain_id, crawled_at);
CREATE TABLE crawl_log_default PARTITION OF crawl_log DEFAULT;

CREATE FUNCTION ensure_crawl_log_partitions(weeks_ahead integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    week date;
    part text;
    first timestamptz;
    beyond timestamptz;
    made integer := 0;
BEGIN
    FOR i IN 0 .. weeks_ahead LOOP
        week := date_trunc('week', now() AT TIME ZONE 'UTC')::date + 7 * i;
        part := 'crawl_log_' || to_char(week, 'YYYYMMDD');
        first := week::timestamp AT TIME ZONE 'UTC';
        beyond := (week + 7)::timestamp AT TIME ZONE 'UTC';
        IF to_regclass(part) IS NULL THEN
            -- After weeks without a sweep, rows of this week lie in the default partition and would forbid a new one: they move.
            LOCK TABLE crawl_log_default IN ACCESS EXCLUSIVE MODE;
            EXECUTE format('CREATE TABLE %I (LIKE crawl_log INCLUDING DEFAULTS)', part);
            EXECUTE format('WITH moved AS (DELETE FROM crawl_log_default WHERE crawled_at >= %L AND crawled_at < %L RETURNING *)
                            INSERT INTO %I SELECT * FROM moved', first, beyond, part);
            EXECUTE format('ALTER TABLE crawl_log ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part, first, beyond);
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END
$$;
SELECT ensure_crawl_log_partitions(4);

CREATE TABLE images (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sha256         bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    first_seen_at  timestamptz NOT NULL DEFAULT now(),
    last_seen_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE provenance (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain_id        bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    image_id         bigint NOT NULL REFERENCES images ON DELETE CASCADE,
    source_page_url  text NOT NULL,
    discovery_type   frontier_kind NOT NULL DEFAULT 'discovery',
    seen_at          timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE provenance IS 'On which page of which domain an image was seen.';
CREATE INDEX provenance_domain ON provenance (domain_id);
CREATE INDEX provenance_image ON provenance (image_id);
