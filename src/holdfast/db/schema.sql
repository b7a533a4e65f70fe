-- Holdfast's schema at revision 0026, the baseline: a new store is made by this file, then by the steps in `migrations/`.
-- Nothing in it but comments is ever changed: what changes the schema is a step (see CONTRIBUTING.md). The tables of the job queue are Procrastinate's
-- own, in the schema `procrastinate`; its library has their SQL, and `migrate.py` runs it.

-- Version -----------------------------------------------------------------------------------------------------------------------------

-- A row is the revision that this schema is at. There is one.
CREATE TABLE schema_version (
    version_num  varchar(32) NOT NULL,
    CONSTRAINT schema_version_pkc PRIMARY KEY (version_num)
);

-- Shared by several tables ------------------------------------------------------------------------------------------------------------

CREATE FUNCTION touch_updated_at() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END
$$;

-- Fires only where a statement names one of these columns: no flush, claim or release does.
CREATE FUNCTION settings_are_edited() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.settings_version = OLD.settings_version THEN
        NEW.settings_version := OLD.settings_version + 1;
    END IF;
    PERFORM pg_notify('holdfast_jobs', 'settings');
    RETURN NEW;
END
$$;

-- Jobs and their crawls ---------------------------------------------------------------------------------------------------------------

CREATE TYPE job_state AS ENUM ('pending', 'processing', 'paused', 'completed', 'failed', 'cancelled');
CREATE TYPE job_kind AS ENUM ('crawl', 'tasks');

-- A row is a job: what a user asked to be crawled.
CREATE TABLE crawl_jobs (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              varchar(100) NOT NULL UNIQUE,
    state             job_state NOT NULL DEFAULT 'pending',
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    spec              jsonb NOT NULL DEFAULT '{}',
    fingerprint       bytea UNIQUE,
    completed_at      timestamptz,
    parked_after      bigint,
    resumed_at        timestamptz,
    deleted_at        timestamptz,
    schedule          text,
    next_run_at       timestamptz,
    beginning         boolean NOT NULL DEFAULT false,
    kind              job_kind NOT NULL DEFAULT 'crawl',
    new_crawl         boolean NOT NULL DEFAULT true,
    state_reason      text,
    settings_version  integer NOT NULL DEFAULT 0,
    CHECK (deleted_at IS NULL OR state = 'cancelled'),
    CHECK (next_run_at IS NULL OR schedule IS NOT NULL)
);
COMMENT ON TABLE crawl_jobs IS 'What a user asked to be crawled.';
COMMENT ON COLUMN crawl_jobs.fingerprint IS 'Of its seeds and scope: `holdfast crawl` with the same ones goes on with this job.';
COMMENT ON COLUMN crawl_jobs.parked_after IS 'Not NULL: it was paused, and work of domains behind this id may not be ready though it could. A chunk at a time moves it on.';
COMMENT ON COLUMN crawl_jobs.deleted_at IS 'Not NULL: the job is hidden from every query. The row is deleted when nothing that belonged to it is left.';
COMMENT ON COLUMN crawl_jobs.beginning IS 'Its pages are being made to wait again, which a kill may have cut off in the middle.';
COMMENT ON COLUMN crawl_jobs.schedule IS 'When it is crawled again: an interval or a cron expression.';
COMMENT ON COLUMN crawl_jobs.kind IS 'tasks: the one whose frontier are the URLs of queued tasks. It changes no domain''s status, and no cool-down but a stop holds it.';
COMMENT ON COLUMN crawl_jobs.new_crawl IS 'A person or a schedule asked for it: the next worker begins a new crawl. Otherwise the last crawl goes on under what is left of its limits.';
COMMENT ON COLUMN crawl_jobs.state_reason IS 'Why it is in this state: the event that reopened it, or the cause of a failure.';
COMMENT ON COLUMN crawl_jobs.settings_version IS 'Rises with every change of the spec, the limits of the open crawl and the secrets; visits that began under another one end.';
CREATE INDEX crawl_jobs_due ON crawl_jobs (next_run_at) WHERE next_run_at IS NOT NULL;
CREATE UNIQUE INDEX crawl_jobs_of_tasks ON crawl_jobs (kind) WHERE kind = 'tasks';
-- The standing jobs: seeds feed the first, queued tasks the second. Before the triggers, as their beginning is no event.
INSERT INTO crawl_jobs (name, kind, spec) VALUES ('default', 'crawl', '{"refresh": true}'), ('tasks', 'tasks', '{"follow": false}');
CREATE TRIGGER crawl_jobs_updated_at BEFORE UPDATE ON crawl_jobs FOR EACH ROW EXECUTE FUNCTION touch_updated_at();

-- Workers listen: what a person does to a job takes effect at once. They look every second anyway.
CREATE FUNCTION tell_of_jobs() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('holdfast_jobs', NEW.id::text);
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_jobs_tell AFTER UPDATE OF state ON crawl_jobs
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION tell_of_jobs();

CREATE FUNCTION job_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO events (kind, job_id, data)
        VALUES ('job', NEW.id, jsonb_build_object('what', 'created', 'name', NEW.name, 'to', NEW.state));
    ELSE
        INSERT INTO events (kind, job_id, data)
        VALUES ('job', NEW.id, jsonb_build_object(
            'what', CASE WHEN NEW.deleted_at IS NOT NULL THEN 'deleted'
                         WHEN OLD.state IN ('completed', 'failed') AND NEW.state IN ('pending', 'processing') THEN 'reopened'
                         ELSE 'changed' END,
            'name', OLD.name, 'from', OLD.state, 'to', NEW.state, 'reason', left(NEW.state_reason, 1000)));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_jobs_made_event AFTER INSERT ON crawl_jobs FOR EACH ROW EXECUTE FUNCTION job_event();
CREATE TRIGGER crawl_jobs_event AFTER UPDATE OF state, deleted_at ON crawl_jobs
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state OR (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL))
    EXECUTE FUNCTION job_event();

-- A reason belongs to one state: a change that names none has none.
CREATE FUNCTION job_state_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state_reason IS NOT DISTINCT FROM OLD.state_reason THEN
        NEW.state_reason := NULL;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER crawl_jobs_state BEFORE UPDATE OF state ON crawl_jobs
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION job_state_changes();
CREATE TRIGGER crawl_jobs_edited BEFORE UPDATE OF spec, settings_version ON crawl_jobs
    FOR EACH ROW WHEN ((OLD.spec, OLD.settings_version) IS DISTINCT FROM (NEW.spec, NEW.settings_version))
    EXECUTE FUNCTION settings_are_edited();

-- As task_end_is_told: in the transaction of the change, and given up at once if the receiver wants no more.
CREATE FUNCTION job_is_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    what constant text := CASE WHEN NEW.state IN ('completed', 'failed', 'cancelled', 'paused') THEN NEW.state::text
                               WHEN OLD.state IN ('completed', 'failed') THEN 'reopened' END;
BEGIN
    INSERT INTO webhook_deliveries (job_id, event, url, body, next_attempt_at, gave_up_at, last_error)
    SELECT NEW.id, 'job.' || what, r.url,
        jsonb_build_object('job_id', NEW.id, 'name', NEW.name, 'state', NEW.state, 'was', OLD.state,
                           'reason', left(NEW.state_reason, 1000), 'completed_at', NEW.completed_at),
        CASE WHEN e.reason IS NULL THEN clock_timestamp() END, CASE WHEN e.reason IS NOT NULL THEN clock_timestamp() END, e.reason
    FROM webhook_receivers r LEFT JOIN webhook_endpoints e ON e.url = r.url AND e.disabled_at IS NOT NULL
    WHERE r.about = 'jobs' AND what IS NOT NULL;
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_jobs_told AFTER UPDATE OF state ON crawl_jobs
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state AND NEW.deleted_at IS NULL) EXECUTE FUNCTION job_is_told();

CREATE TYPE crawl_state AS ENUM ('running', 'stopped', 'finished');

-- A row is one crawl of a job: an invocation, or a run of its schedule.
CREATE TABLE crawls (
    id                    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id                bigint NOT NULL REFERENCES crawl_jobs ON DELETE CASCADE,
    state                 crawl_state NOT NULL DEFAULT 'running',
    started_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at              timestamptz,
    max_pages             bigint CHECK (max_pages > 0),
    max_pages_per_domain  bigint CHECK (max_pages_per_domain > 0),
    pages_granted         bigint NOT NULL DEFAULT 0 CHECK (pages_granted >= 0),
    round                 integer NOT NULL DEFAULT 1,
    max_rounds            integer CHECK (max_rounds > 0),
    round_below           bigint,
    CHECK ((state = 'finished') = (ended_at IS NOT NULL))
);
COMMENT ON TABLE crawls IS 'One invocation or schedule of a job. Budgets count in it, whatever dies meanwhile; a stopped one goes on.';
COMMENT ON COLUMN crawls.pages_granted IS 'Of max_pages: what is promised to domains, used or not. What a tenure did not use comes back at its end.';
COMMENT ON COLUMN crawls.round IS 'Raised by compare-and-set when nothing of the job is ready; spent rows of older rounds are reopened in chunks.';
COMMENT ON COLUMN crawls.max_rounds IS 'Shares that a domain may use in this crawl, if a person limited them.';
COMMENT ON COLUMN crawls.round_below IS 'Under max_pages: only domains with fewer granted pages take part in this round. NULL: all.';
CREATE UNIQUE INDEX crawls_open ON crawls (job_id) WHERE state <> 'finished';
CREATE INDEX crawls_job ON crawls (job_id, id);

-- Whether the last crawl of a job has used up its pages: time cannot go on with it.
CREATE FUNCTION job_is_used_up(job crawl_jobs) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT NOT job.new_crawl AND (job.spec->>'max_pages') IS NOT NULL AND EXISTS (
        SELECT FROM crawls c WHERE c.id = (SELECT max(last.id) FROM crawls last WHERE last.job_id = job.id)
        AND c.pages_granted >= (job.spec->>'max_pages')::bigint)
$$;

-- Whether the pages of a job are fetched again when a refresh of their domain is due.
CREATE FUNCTION job_wants_refresh(job crawl_jobs) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT COALESCE((job.spec->>'refresh')::boolean, false) AND job.kind = 'crawl' AND job.deleted_at IS NULL
        AND job.state <> 'cancelled' AND NOT job_is_used_up(job)
$$;

-- A row is a URL that a job begins with.
-- No foreign keys: a million rows come at once, and who deletes a job forgets its seeds in chunks.
CREATE TABLE job_seeds (
    job_id     bigint NOT NULL,
    url_key    bytea NOT NULL CHECK (octet_length(url_key) = 16),
    url        text NOT NULL,
    guessed    boolean NOT NULL DEFAULT false,
    seed_rank  integer,
    PRIMARY KEY (job_id, url_key)
) WITH (autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE job_seeds IS 'Where a job begins. A job whose frontier is gone starts from these when a person or a schedule starts it.';
COMMENT ON COLUMN job_seeds.guessed IS 'No scheme was given: https is tried first, and http if nothing speaks TLS there.';

-- A row is a seed file that a job is known by.
CREATE TABLE job_seed_files (
    mark     bytea PRIMARY KEY,
    job_id   bigint NOT NULL,
    path     text NOT NULL,
    content  bytea NOT NULL
);
COMMENT ON TABLE job_seed_files IS 'Files that jobs are known by: mark is a hash of the absolute path, scope, include, exclude and strip-param; content one of its seeds as last read, and the same.';
CREATE INDEX job_seed_files_job ON job_seed_files (job_id);
CREATE INDEX job_seed_files_content ON job_seed_files (content);

-- A row is the headers, cookies or login that the requests of one job send.
-- A row per kind ("headers", "cookies", "basic_auth"), so that one kind is replaced without opening another. The values are sealed with a
-- key that is not in the database; names and origins are in the clear, for people and for the choice of requests.
CREATE TABLE job_secrets (
    job_id   bigint NOT NULL REFERENCES crawl_jobs ON DELETE CASCADE,
    set_at   timestamptz NOT NULL DEFAULT now(),
    kind     varchar(20) NOT NULL CHECK (kind IN ('headers', 'cookies', 'basic_auth')),
    names    text[] NOT NULL,
    origins  text[] NOT NULL,
    sealed   text NOT NULL,
    PRIMARY KEY (job_id, kind)
);
COMMENT ON TABLE job_secrets IS 'What is sent with the requests of a job to exactly these origins, sealed.';

-- Workers -----------------------------------------------------------------------------------------------------------------------------

-- A row is the name of a worker process.
CREATE TABLE workers (
    name          varchar(255) PRIMARY KEY,
    boot_epoch    bigint NOT NULL DEFAULT 1,
    host          text NOT NULL,
    pid           integer NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    heartbeat_at  timestamptz NOT NULL DEFAULT now(),
    -- What it does at this moment. No index names these columns, and pages keep room: a change is a HOT update.
    activity      jsonb,
    activity_at   timestamptz,
    ended_at      timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE workers IS 'Names that worker processes bear. A name is held by a session advisory lock, not by this row.';
COMMENT ON COLUMN workers.activity IS 'Requests in flight and waits of its visits (model/activity.py); NULL: it does nothing.';
COMMENT ON COLUMN workers.activity_at IS 'When that was written; seconds in it count from then.';
COMMENT ON COLUMN workers.ended_at IS 'When the worker that bore this name ended in order; NULL: it runs, or it died.';

CREATE TYPE run_status AS ENUM ('running', 'completed', 'failed');

-- A row is a worker process at work.
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
    crawl_id           bigint,
    errors             bigint NOT NULL DEFAULT 0,
    bytes              bigint NOT NULL DEFAULT 0,
    in_window          integer NOT NULL DEFAULT 0,
    -- What only the worker knows is written with its signs of life, as totals of the run. So saying it twice does no harm.
    lease_renewals     bigint NOT NULL DEFAULT 0,
    fenced_writes      bigint NOT NULL DEFAULT 0,
    robots_denied      bigint NOT NULL DEFAULT 0,
    commits            bigint NOT NULL DEFAULT 0,
    commit_ms          bigint NOT NULL DEFAULT 0,
    commit_latency     bigint[] NOT NULL DEFAULT '{}',
    counted            bigint[] NOT NULL DEFAULT '{}',
    settled            boolean NOT NULL DEFAULT false,
    CHECK ((status = 'running') = (completed_at IS NULL))
);
COMMENT ON TABLE crawl_runs IS 'One worker process at work.';
COMMENT ON COLUMN crawl_runs.in_window IS 'URLs that the process has in memory, from its last heartbeat.';
COMMENT ON COLUMN crawl_runs.commit_latency IS 'How many commits took how long, by the bounds of model/figures.py.';
COMMENT ON COLUMN crawl_runs.counted IS 'Of the six columns before it, in their order: what is in stats_total already.';
COMMENT ON COLUMN crawl_runs.settled IS 'It has ended, and all of it is in stats_total.';
CREATE INDEX crawl_runs_running ON crawl_runs (id) WHERE status = 'running';
CREATE INDEX crawl_runs_crawl ON crawl_runs (crawl_id);
CREATE INDEX crawl_runs_unsettled ON crawl_runs (id) WHERE NOT settled;
CREATE INDEX crawl_runs_job ON crawl_runs (job_id, id);
CREATE INDEX crawl_runs_worker ON crawl_runs (worker, id);

CREATE FUNCTION run_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (kind, job_id, data)
    VALUES ('worker', NEW.job_id, jsonb_build_object(
        'what', CASE WHEN NEW.status = 'running' THEN 'started' ELSE 'ended' END,
        'worker', NEW.worker, 'run_id', NEW.id, 'status', NEW.status, 'error', left(NEW.error_message, 1000)));
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_runs_began_event AFTER INSERT ON crawl_runs FOR EACH ROW EXECUTE FUNCTION run_event();
CREATE TRIGGER crawl_runs_event AFTER UPDATE OF status ON crawl_runs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION run_event();

-- A row is the last commit of a worker: settles whether a COMMIT without an answer took place.
CREATE TABLE commit_markers (
    worker  varchar(255) PRIMARY KEY,
    token   uuid NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE commit_markers IS 'The last transaction of each worker whose end may have to be asked for.';

-- A row is a periodic duty: when it was done last, and how far it got.
CREATE TABLE duties (
    name     varchar(30) PRIMARY KEY,
    done_at  timestamptz NOT NULL DEFAULT '-infinity',
    mark     text
) WITH (fillfactor = 50);
COMMENT ON TABLE duties IS 'Periodic work and when it was last done. The process that does it holds the lock of the row.';
COMMENT ON COLUMN duties.mark IS 'How far it is: of events, the last one that was deleted.';
INSERT INTO duties (name) VALUES ('figures'), ('gauges'), ('alerts'), ('proxies'), ('trim');
-- Every hour, a few chunks a sweep; the mark is the last domain of the last chunk.
INSERT INTO duties (name, done_at) VALUES ('priorities', now());

-- Domains -----------------------------------------------------------------------------------------------------------------------------

CREATE TYPE domain_status AS ENUM ('pending', 'active', 'exhausted', 'blocked', 'unreachable');

-- A row is a web host.
-- A flush writes the claim expiry and the counters, every second, for every held domain. No index may name one of those columns, in its
-- keys or its predicate, or each flush stops being a heap-only update. (`status` it changes only with the first outcome of a visit.)
CREATE TABLE domains (
    id                       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- who holds it
    claim_epoch              bigint NOT NULL DEFAULT 0,
    claim_expires_at         timestamptz,
    claimed_by               varchar(255),
    -- written by every flush
    pages_discovered         bigint NOT NULL DEFAULT 0,
    pages_crawled            bigint NOT NULL DEFAULT 0,
    images_found             bigint NOT NULL DEFAULT 0,
    images_stored            bigint NOT NULL DEFAULT 0,
    frontier_size            bigint NOT NULL DEFAULT 0,
    total_error_count        integer NOT NULL DEFAULT 0,
    consecutive_error_count  integer NOT NULL DEFAULT 0,
    crawl_depth_reached      integer NOT NULL DEFAULT 0,
    frontier_updated_at      timestamptz,
    updated_at               timestamptz NOT NULL DEFAULT now(),
    -- written at release
    status                   domain_status NOT NULL DEFAULT 'pending',
    is_active                boolean NOT NULL DEFAULT true,
    priority_score           integer NOT NULL DEFAULT 0,
    version                  integer NOT NULL DEFAULT 0,
    retry_count              integer NOT NULL DEFAULT 0,
    next_crawl_after         timestamptz,
    last_crawled_at          timestamptz,
    last_crawl_run_id        bigint REFERENCES crawl_runs ON DELETE SET NULL,
    priority_computed_at     timestamptz,
    first_blocked_at         timestamptz,
    block_reason_code        varchar(50),
    block_reason             text,
    status_reason            text,
    -- what it is
    first_seen_at            timestamptz NOT NULL DEFAULT now(),
    seed_rank                integer,
    source                   varchar(100),
    domain                   varchar(255) COLLATE "C" NOT NULL UNIQUE,
    parent_domain            varchar(255) COLLATE "C" NOT NULL,
    base_url                 varchar(512) NOT NULL,
    -- how to crawl it: as the settings said when it was first seen, until a person changes it
    max_pages_per_run        integer DEFAULT 1000,
    parser_name              varchar(100) NOT NULL DEFAULT 'generic',
    crawl_delay_seconds      double precision NOT NULL DEFAULT 1,
    max_concurrent_requests  integer NOT NULL DEFAULT 5,
    default_crawl_frequency  interval NOT NULL DEFAULT '1 day',
    user_agent               varchar(255),
    maintenance_window       varchar(4000),
    frontier_checkpoint_id   varchar(100),
    -- quality signals: from integers, so they cannot drift
    image_yield_rate         double precision GENERATED ALWAYS AS (images_stored::double precision / NULLIF(pages_crawled, 0)) STORED,
    avg_images_per_page      double precision GENERATED ALWAYS AS (images_found::double precision / NULLIF(pages_crawled, 0)) STORED,
    error_rate               double precision GENERATED ALWAYS AS (total_error_count::double precision / NULLIF(pages_crawled, 0)) STORED,
    -- Politeness outlives the claim. Written by every flush, so no index may name these.
    next_request_at          timestamptz,
    back_off_until           timestamptz,
    back_off_level           smallint NOT NULL DEFAULT 0,
    response_ms              real,
    best_response_ms         real,
    circuit_failures         integer NOT NULL DEFAULT 0,
    circuit_successes        integer NOT NULL DEFAULT 0,
    circuit_open_until       timestamptz,
    -- All of them null for most domains, so the hot row stays short.
    proxy_use                varchar(10),
    proxy_direct             boolean,
    proxy_resolves           boolean,
    proxy_country            varchar(2),
    proxy_sticky             interval,
    -- Removed: its name is free for another domain, and no worker claims it. What hangs on it is deleted in chunks, the row last.
    removed_at               timestamptz,
    max_pages_is_limit       boolean NOT NULL DEFAULT false,
    strip_params             text[],
    retried_at               timestamptz,
    parser_chosen            boolean NOT NULL DEFAULT false,
    -- The streak that blocks; consecutive_error_count counts every failure. Neither is in an index.
    refusal_streak           integer NOT NULL DEFAULT 0 CONSTRAINT refusal_streak_not_negative CHECK (refusal_streak >= 0),
    -- Flushes write last_crawled_at, so no index may name it. Lists go by the end of the last visit, which a release writes.
    last_visit_ended_at      timestamptz,
    settings_version         integer NOT NULL DEFAULT 0,
    pace_delay_seconds       real,
    pace_delay_source        varchar(10),
    CONSTRAINT claim_is_whole CHECK ((claimed_by IS NULL) = (claim_expires_at IS NULL)),
    CONSTRAINT counters_not_negative CHECK (pages_discovered >= 0 AND pages_crawled >= 0 AND images_found >= 0 AND images_stored >= 0
        AND frontier_size >= 0 AND total_error_count >= 0 AND consecutive_error_count >= 0 AND retry_count >= 0),
    CONSTRAINT block_reason_known CHECK (block_reason_code IN ('login_required', 'rate_limited', 'forbidden', 'unavailable', 'robots_denied',
        'dns_failure', 'connection_failed', 'timeout', 'tls_failure', 'manual')),
    CONSTRAINT stopped_has_reason CHECK ((status IN ('blocked', 'unreachable')) = (block_reason_code IS NOT NULL)),
    CONSTRAINT sane_configuration CHECK (crawl_delay_seconds >= 0 AND max_concurrent_requests > 0 AND max_pages_per_run > 0 AND seed_rank > 0),
    CONSTRAINT domain_is_canonical CHECK (domain <> '' AND domain = lower(domain)),
    CONSTRAINT proxy_use_known CHECK (proxy_use IN ('direct', 'pool', 'any')),
    CONSTRAINT proxy_use_sane CHECK (proxy_country ~ '^[A-Z]{2}$' AND proxy_sticky > interval '0'),
    CONSTRAINT removed_is_switched_off CHECK (removed_at IS NULL OR NOT is_active)
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE domains IS 'A web host as a persistent entity: its holder, what was learnt about it, how to crawl it.';
COMMENT ON COLUMN domains.next_crawl_after IS 'Cooling down until then; infinity: until a person resets it.';
COMMENT ON COLUMN domains.status_reason IS 'The event that led to this status, and a detail: "event: detail".';
COMMENT ON COLUMN domains.priority_score IS 'Learnt terms less 5 x day of the last crawl; the order does not change with time. Shown with 5 x today added.';
COMMENT ON COLUMN domains.next_request_at IS 'The delay''s clock; back_off_until is the back-off''s. No request before either.';
COMMENT ON COLUMN domains.circuit_open_until IS 'NULL: closed. Open until then, half-open after.';
COMMENT ON COLUMN domains.proxy_use IS 'direct: no proxy. pool: those of domain_proxies. any: when these give none, any other. Null: as the settings say.';
COMMENT ON COLUMN domains.proxy_direct IS 'It may be asked without a proxy when none can be had.';
COMMENT ON COLUMN domains.proxy_resolves IS 'The proxy resolves host names; the address filter cannot check them.';
COMMENT ON COLUMN domains.proxy_sticky IS 'For so long the same proxy is used, as long as it can be.';
COMMENT ON COLUMN domains.removed_at IS 'Not NULL: a person removed it. The row goes when nothing that belonged to it is left.';
COMMENT ON COLUMN domains.max_pages_is_limit IS 'A person set max_pages_per_run: a crawl ends there. False: it is only the size of a share.';
COMMENT ON COLUMN domains.strip_params IS 'Parameters to drop from its URLs, besides those that the settings and the job name; x* is a prefix.';
COMMENT ON COLUMN domains.retried_at IS 'When a person last asked for another attempt; 5 s after the one before at the earliest, so perhaps in the future.';
COMMENT ON COLUMN domains.parser_chosen IS 'A person set parser_name: it parses the pages of crawls, too, not only those of tasks.';
COMMENT ON COLUMN domains.refusal_streak IS
    'Refusals and failures to reach it in a row, also of its robots.txt: domains.max_errors of them end a visit and begin a cool-down.';
COMMENT ON COLUMN domains.consecutive_error_count IS 'Errors of every kind in a row among the rows of the log; a success sets it to 0.';
COMMENT ON COLUMN domains.last_visit_ended_at IS 'When its last visit was released. last_crawled_at and last_crawl_run_id are those of the last flush.';
COMMENT ON COLUMN domains.settings_version IS 'Rises with every edit of how the domain is crawled, its secrets and its pool included; a visit that began under another one ends. version rises with the status, too.';
COMMENT ON COLUMN domains.pace_delay_seconds IS 'The delay that next_request_at was computed with, so the last request was so long before it. NULL: by an earlier release of the program.';
COMMENT ON COLUMN domains.pace_delay_source IS 'What the delay came from: robots, domain, job, default or learnt.';
CREATE INDEX domains_cooling ON domains (next_crawl_after) WHERE next_crawl_after IS NOT NULL;
CREATE INDEX domains_proxied ON domains (id) WHERE proxy_use IS NOT NULL;
CREATE INDEX domains_held ON domains (claimed_by, id) WHERE claimed_by IS NOT NULL;
CREATE INDEX domains_status ON domains (status, domain);
CREATE INDEX domains_score ON domains (priority_score, id);
CREATE INDEX domains_parent ON domains (parent_domain, domain) WHERE parent_domain <> domain;
CREATE INDEX domains_inactive ON domains (domain) WHERE NOT is_active;
CREATE INDEX domains_windows ON domains (domain) WHERE maintenance_window IS NOT NULL;
CREATE INDEX domains_removed ON domains (id) WHERE removed_at IS NOT NULL;
CREATE INDEX domains_visited ON domains (last_visit_ended_at, id);

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

-- What Holdfast itself changes a status by. The matrix is the one of the trigger, which also keeps the history.
CREATE FUNCTION transition_domain_status(
    p_domain_id bigint, p_from_status domain_status, p_to_status domain_status, p_worker_id varchar DEFAULT NULL,
    p_expected_version integer DEFAULT NULL, p_reason text DEFAULT NULL, p_next_crawl_after timestamptz DEFAULT NULL,
    p_block_reason_code varchar DEFAULT NULL, p_block_reason text DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    is_reset boolean := p_to_status = 'pending' AND COALESCE(p_reason LIKE 'reset%', false);
BEGIN
    IF NOT domain_transition_allowed(p_from_status, p_to_status) AND NOT is_reset THEN
        RAISE EXCEPTION 'Invalid transition: % -> %', p_from_status, p_to_status USING ERRCODE = 'check_violation';
    END IF;
    -- A reset takes the claim away, as the trigger demands; all else leaves it.
    UPDATE domains SET
        status = p_to_status,
        status_reason = COALESCE(p_reason, status_reason),
        next_crawl_after = CASE WHEN p_to_status IN ('pending', 'active') THEN NULL ELSE COALESCE(p_next_crawl_after, next_crawl_after) END,
        block_reason_code = COALESCE(p_block_reason_code, block_reason_code),
        block_reason = COALESCE(p_block_reason, block_reason),
        claim_epoch = claim_epoch + CASE WHEN is_reset THEN 1 ELSE 0 END,
        claimed_by = CASE WHEN is_reset THEN NULL ELSE claimed_by END,
        claim_expires_at = CASE WHEN is_reset THEN NULL ELSE claim_expires_at END
    WHERE id = p_domain_id AND status = p_from_status
      AND (p_worker_id IS NULL OR claimed_by = p_worker_id) AND (p_expected_version IS NULL OR version = p_expected_version);
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION transition_domain_status IS
    'Change a domain''s status if it is still as expected; whether it was. NULL as worker or version: whichever it is.';

-- A hand that starts a domain over means its jobs; a task is started over by itself.
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
        WHERE jd.domain_id = NEW.id AND j.state NOT IN ('cancelled', 'failed') AND j.kind = 'crawl';
    END IF;
    IF NEW.status IN ('blocked', 'unreachable') THEN
        NEW.block_reason_code := COALESCE(NEW.block_reason_code, 'manual');
        NEW.first_blocked_at := COALESCE(NEW.first_blocked_at, clock_timestamp());
    ELSE
        NEW.block_reason_code := NULL;
        NEW.block_reason := NULL;
        IF NEW.status IN ('pending', 'active') THEN
            NEW.next_crawl_after := NULL;
            IF OLD.status <> 'pending' THEN
                NEW.consecutive_error_count := 0;
                NEW.refusal_streak := 0;
            END IF;
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
CREATE TRIGGER domains_updated_at BEFORE UPDATE ON domains FOR EACH ROW EXECUTE FUNCTION touch_updated_at();
CREATE TRIGGER domains_edited BEFORE UPDATE OF
        base_url, crawl_delay_seconds, max_concurrent_requests, parser_name, parser_chosen, user_agent, is_active, max_pages_per_run,
        max_pages_is_limit, default_crawl_frequency, maintenance_window, strip_params, proxy_use, proxy_direct, proxy_resolves,
        proxy_country, proxy_sticky, settings_version ON domains
    FOR EACH ROW WHEN (
        (OLD.base_url, OLD.crawl_delay_seconds, OLD.max_concurrent_requests, OLD.parser_name, OLD.parser_chosen, OLD.user_agent,
         OLD.is_active, OLD.max_pages_per_run, OLD.max_pages_is_limit, OLD.default_crawl_frequency, OLD.maintenance_window,
         OLD.strip_params, OLD.proxy_use, OLD.proxy_direct, OLD.proxy_resolves, OLD.proxy_country, OLD.proxy_sticky, OLD.settings_version)
        IS DISTINCT FROM
        (NEW.base_url, NEW.crawl_delay_seconds, NEW.max_concurrent_requests, NEW.parser_name, NEW.parser_chosen, NEW.user_agent,
         NEW.is_active, NEW.max_pages_per_run, NEW.max_pages_is_limit, NEW.default_crawl_frequency, NEW.maintenance_window,
         NEW.strip_params, NEW.proxy_use, NEW.proxy_direct, NEW.proxy_resolves, NEW.proxy_country, NEW.proxy_sticky, NEW.settings_version))
    EXECUTE FUNCTION settings_are_edited();

-- A row is one change of a domain's status.
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

CREATE FUNCTION domain_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (kind, domain_id, domain, data)
    VALUES ('domain', NEW.domain_id, (SELECT d.domain FROM domains d WHERE d.id = NEW.domain_id), jsonb_build_object(
        'from', NEW.from_status, 'to', NEW.to_status, 'reason', left(NEW.reason, 1000), 'worker', NEW.worker));
    RETURN NULL;
END
$$;
CREATE TRIGGER domain_transitions_event AFTER INSERT ON domain_transitions FOR EACH ROW EXECUTE FUNCTION domain_event();

-- A row is the robots.txt of one origin of a domain.
CREATE TABLE domain_robots (
    domain_id                bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    robots_txt_url           varchar(512) NOT NULL,  -- one an origin: http and https, and each port, have their own
    robots_txt_content       text,
    robots_txt_last_fetched  timestamptz,
    status                   smallint,
    reachable                boolean NOT NULL DEFAULT true,
    expires_at               timestamptz,
    problem                  text,
    PRIMARY KEY (domain_id, robots_txt_url)
);
COMMENT ON TABLE domain_robots IS 'The robots cache, apart from the hot row.';
COMMENT ON COLUMN domain_robots.reachable IS 'False: it could not be had the last time; the content, if any, is of the time before.';

-- A row is the headers, cookies or login that all jobs send to one domain.
CREATE TABLE domain_secrets (
    domain_id  bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    set_at     timestamptz NOT NULL DEFAULT now(),
    kind       varchar(20) NOT NULL CHECK (kind IN ('headers', 'cookies', 'basic_auth')),
    names      text[] NOT NULL,
    origins    text[] NOT NULL,
    sealed     text NOT NULL,
    PRIMARY KEY (domain_id, kind)
);
COMMENT ON TABLE domain_secrets IS 'What is sent with the requests of all jobs to exactly these origins of a domain, sealed.';

-- A row is one claim of a domain, from its beginning to its end.
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
    CONSTRAINT claim_log_why_check CHECK (why IN ('released', 'expired', 'reclaimed', 'forced', 'reset', 'silent'))
) WITH (fillfactor = 80);
COMMENT ON TABLE claim_log IS 'Who held what, when: one row a tenure.';

CREATE FUNCTION claims_are_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stats_fresh (at, kind, label, n)
    SELECT date_bin('10 seconds', clock_timestamp(), 'epoch'), 'claim', 'acquired', count(*) FROM added HAVING count(*) > 0;
    RETURN NULL;
END
$$;
CREATE TRIGGER claim_log_counted AFTER INSERT ON claim_log REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION claims_are_counted();

CREATE FUNCTION claim_end_is_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stats_fresh (at, kind, label, n) VALUES (date_bin('10 seconds', NEW.ended_at, 'epoch'), 'claim', NEW.why, 1);
    RETURN NULL;
END
$$;
CREATE TRIGGER claim_log_end_counted AFTER UPDATE OF ended_at ON claim_log
    FOR EACH ROW WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION claim_end_is_counted();

-- The frontier: what is left to do on a domain, for which job -------------------------------------------------------------------------
-- A row of job_domains is only ever changed by one who holds the lock of its domain row.
-- No foreign keys on the hot tables: one to domains doubles the cost of a frontier insert (9.5 of 16 us), one to crawl_jobs makes every
-- batch of every worker lock the same row. An insert for a domain that the worker does not hold takes FOR KEY SHARE on it once instead,
-- which makes a release wait for it. Deleting a job or a domain deletes its rows here, in chunks.

CREATE TYPE job_domain_state AS ENUM ('open', 'parked', 'spent', 'done');

-- A row is the work of one job on one domain, with its counters and budget.
CREATE TABLE job_domains (
    domain_id      bigint NOT NULL,
    job_id         bigint NOT NULL,
    priority       integer NOT NULL DEFAULT 0,
    state          job_domain_state NOT NULL DEFAULT 'open',
    ready          boolean NOT NULL DEFAULT false,
    discovered     bigint NOT NULL DEFAULT 0,
    waiting        bigint NOT NULL DEFAULT 0,
    done           bigint NOT NULL DEFAULT 0,
    denied         bigint NOT NULL DEFAULT 0,
    failed         bigint NOT NULL DEFAULT 0,
    budget_used    bigint NOT NULL DEFAULT 0,
    not_before     timestamptz,
    -- A budget belongs to a crawl: with another crawl_id, used, granted and limit mean nothing.
    crawl_id       bigint,
    granted        bigint NOT NULL DEFAULT 0 CHECK (granted >= 0),
    budget_limit   bigint,
    depth_reached  smallint NOT NULL DEFAULT 0,
    pages          bigint NOT NULL DEFAULT 0,
    errors         bigint NOT NULL DEFAULT 0,
    bytes          bigint NOT NULL DEFAULT 0,
    round          integer NOT NULL DEFAULT 0,
    round_start    bigint NOT NULL DEFAULT 0 CHECK (round_start >= 0),
    limit_reached  text CHECK (limit_reached IN ('max_pages_per_domain', 'rounds', 'domain_budget')),
    yielded_until  timestamptz,
    PRIMARY KEY (domain_id, job_id),
    CHECK (NOT ready OR state = 'open')
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE job_domains IS 'What a job has to do on a domain. ready is a hint for the claim; the locked domain row is the proof.';
COMMENT ON COLUMN job_domains.budget_limit IS 'The domain''s own limit in this crawl, as its holder said it last; spent below it means: for this round.';
COMMENT ON COLUMN job_domains.pages IS 'Fetched in all crawls of the job, as the log says; errors and bytes likewise.';
COMMENT ON COLUMN job_domains.round IS 'The round of its crawl that it takes part in.';
COMMENT ON COLUMN job_domains.round_start IS 'budget_used when its present share began.';
COMMENT ON COLUMN job_domains.limit_reached IS 'The limit of a person that ended it. Spent without one: its share is used, or max_pages.';
COMMENT ON COLUMN job_domains.yielded_until IS 'It gave way to another job on this domain, which may claim first until then.';
CREATE INDEX job_domains_ready ON job_domains (job_id, priority DESC, domain_id) WHERE ready;
CREATE INDEX job_domains_delayed ON job_domains (not_before) WHERE not_before IS NOT NULL;
-- A chunk of a job's work, found without a walk through what was looked at before. Its columns do not change in a flush.
CREATE INDEX job_domains_job ON job_domains (job_id, state, domain_id);
-- What waits for a round, and what an earlier crawl or round left. A flush writes crawl_id, but changes it only with the crawl.
CREATE INDEX job_domains_spent ON job_domains (job_id, crawl_id, limit_reached, round, domain_id) WHERE state = 'spent';

-- A row is a message for a domain: URLs were added, or must be crawled again.
CREATE TABLE domain_wakes (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain_id    bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    job_id       bigint NOT NULL,
    inserted     bigint NOT NULL CHECK (inserted >= 0),
    again_after  bytea,
    again_key    bytea,
    priority     smallint,
    hops         smallint,
    deeper       smallint,
    -- A person asks for another attempt.
    retry        text[],
    CHECK (deeper IS NULL OR again_after IS NOT NULL),
    CHECK (retry IS NULL OR again_after IS NOT NULL)
);
COMMENT ON TABLE domain_wakes IS 'A message to a domain from a worker that does not hold it: the number of frontier rows that it inserted. Folded by the holder or the sweep.';
COMMENT ON COLUMN domain_wakes.again_after IS 'Not NULL: everything after this key must be crawled again (a reset). A fold moves it on, a chunk at a time.';
COMMENT ON COLUMN domain_wakes.again_key IS 'Not NULL: this URL must be crawled again, with this priority.';
COMMENT ON COLUMN domain_wakes.deeper IS 'Not NULL: URLs behind again_after that were too deep, and are not deeper than this, wait again.';
COMMENT ON COLUMN domain_wakes.retry IS 'Not NULL: a person asks for another attempt. What a failure made to wait waits no more, and URLs behind again_after that ended for one of these reasons wait again.';
CREATE INDEX domain_wakes_domain ON domain_wakes (domain_id);

CREATE TYPE frontier_state AS ENUM ('waiting', 'done', 'denied', 'failed');
CREATE TYPE frontier_kind AS ENUM ('discovery', 'refresh');

-- A row is a URL that a job has discovered.
CREATE TABLE url_frontier (
    domain_id      bigint NOT NULL,
    job_id         bigint NOT NULL,
    discovered_at  timestamptz NOT NULL DEFAULT now(),
    not_before     timestamptz,
    depth          smallint NOT NULL DEFAULT 0,
    priority       smallint NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 12),  -- tasks: 13 less the task's priority, above those of links
    attempts       smallint NOT NULL DEFAULT 0,
    state          frontier_state NOT NULL DEFAULT 'waiting',
    kind           frontier_kind NOT NULL DEFAULT 'discovery',
    url_key        bytea NOT NULL CHECK (octet_length(url_key) = 16),
    parent_key     bytea,
    url            text NOT NULL,
    reason         text,
    hops           smallint NOT NULL DEFAULT 0,
    steps          smallint NOT NULL DEFAULT 0,
    barren         smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (domain_id, job_id, url_key)
) WITH (fillfactor = 90);
COMMENT ON TABLE url_frontier IS 'Every URL a job has met on a domain. "Seen" and "queued" are one row; it stays when crawled.';
COMMENT ON COLUMN url_frontier.hops IS 'Redirects in a row that led here.';
COMMENT ON COLUMN url_frontier.steps IS 'Of a pagination, one after the other, that led here; they do not count as depth.';
COMMENT ON COLUMN url_frontier.barren IS 'Pages of that pagination before this one, in a row, that led to no other new URL.';
-- In the order in which a visit takes them.
CREATE INDEX url_frontier_waiting ON url_frontier (domain_id, job_id, priority DESC, depth, url_key) WHERE state = 'waiting';
CREATE INDEX url_frontier_failed ON url_frontier (domain_id, job_id, url_key) WHERE state = 'failed';

-- A row is the number of URLs that differ in their numbers only.
CREATE TABLE url_templates (
    domain_id  bigint NOT NULL,
    job_id     bigint NOT NULL,
    template   bigint NOT NULL,
    urls       integer NOT NULL,
    PRIMARY KEY (domain_id, job_id, template)
) WITH (fillfactor = 80);
COMMENT ON TABLE url_templates IS 'How many URLs of a job on a domain differ in their numbers only: what crawl.template_cap limits. Those with the only URL of their kind have none.';
COMMENT ON COLUMN url_templates.template IS 'Of 64 bits, a hash of the URL with its numbers replaced.';

-- Pages -------------------------------------------------------------------------------------------------------------------------------

-- A row is one request and its outcome.
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
-- The log by time alone. A range that is being filled is not in it yet, so an insert does not touch it.
CREATE INDEX crawl_log_time ON crawl_log USING brin (crawled_at) WITH (pages_per_range = 32, autosummarize = on);

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

CREATE FUNCTION log_is_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stats_fresh (at, kind, label, status, bucket, n, bytes, ms)
    SELECT date_bin('10 seconds', crawled_at, 'epoch'), 'fetch', outcome, status, fetch_bucket(duration_ms), count(*),
           COALESCE(sum(bytes), 0), COALESCE(sum(duration_ms), 0)
    FROM added GROUP BY 1, 3, 4, 5;
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_log_counted AFTER INSERT ON crawl_log REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION log_is_counted();

-- A row is the last response for a URL.
CREATE TABLE crawled_pages (
    domain_id        bigint NOT NULL,
    job_id           bigint NOT NULL,
    crawled_at       timestamptz NOT NULL,
    content_length   bigint NOT NULL DEFAULT 0,
    archive_offset   bigint,
    archive_length   bigint,
    duration_ms      integer,
    links_count      integer NOT NULL DEFAULT 0,
    images_count     integer NOT NULL DEFAULT 0,
    depth            smallint NOT NULL DEFAULT 0,
    status           smallint,
    noindex          boolean NOT NULL DEFAULT false,
    nofollow         boolean NOT NULL DEFAULT false,
    url_key          bytea NOT NULL,
    content_hash     bytea,
    payload_digest   bytea,
    outcome          varchar(50) NOT NULL,
    content_type     varchar(255),
    charset          varchar(50),
    archive_segment  text,
    etag             text,
    last_modified    text,
    title            text,
    description      text,
    canonical        text,
    problem          text,
    PRIMARY KEY (domain_id, job_id, url_key),
    CHECK ((archive_segment IS NULL) = (archive_offset IS NULL) AND (archive_segment IS NULL) = (archive_length IS NULL))
) WITH (fillfactor = 95);
COMMENT ON TABLE crawled_pages IS 'What was answered for a URL, the last time. Its address is in url_frontier under the same key.';
CREATE INDEX crawled_pages_newest ON crawled_pages (crawled_at);
CREATE INDEX crawled_pages_domain ON crawled_pages (domain_id, crawled_at);
CREATE INDEX crawled_pages_job ON crawled_pages (job_id, crawled_at);

-- A row is the visible text of a page.
CREATE TABLE page_texts (
    domain_id  bigint NOT NULL,
    job_id     bigint NOT NULL,
    url_key    bytea NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (domain_id, job_id, url_key)
);
ALTER TABLE page_texts ALTER COLUMN body SET STORAGE EXTERNAL;
COMMENT ON TABLE page_texts IS 'Visible text of pages, for jobs that ask for it; compressed by zstd before it comes here.';

-- A row is one parser for one page of a crawl: due or done, with its attempts.
CREATE TABLE page_parses (
    domain_id        bigint NOT NULL,
    job_id           bigint NOT NULL,
    fetched_at       timestamptz NOT NULL,
    parsed_at        timestamptz,
    archive_offset   bigint NOT NULL,
    archive_length   bigint NOT NULL,
    items            integer NOT NULL DEFAULT 0,
    attempts         smallint NOT NULL DEFAULT 0,
    due              boolean NOT NULL DEFAULT true,
    url_key          bytea NOT NULL,
    payload_digest   bytea NOT NULL,
    parser           varchar(100) NOT NULL,
    parser_version   varchar(100),
    archive_segment  text NOT NULL,
    error            text,
    product_keys     bytea[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (domain_id, job_id, url_key, parser),
    -- Deleting a page deletes its parses and their items, too: a parser may be about to write them.
    FOREIGN KEY (domain_id, job_id, url_key) REFERENCES crawled_pages ON DELETE CASCADE
) WITH (fillfactor = 80);
COMMENT ON TABLE page_parses IS 'Which parser is for a page of a crawl, and whether it has parsed it.';
COMMENT ON COLUMN page_parses.due IS 'The page waits for its parser. Set by the transaction that commits the page, cleared by the one that replaces its items.';
COMMENT ON COLUMN page_parses.archive_segment IS 'The answer that is parsed, and the fence: a result for another segment and offset is out of date.';
COMMENT ON COLUMN page_parses.fetched_at IS 'When that answer was fetched, by the database''s clock.';
COMMENT ON COLUMN page_parses.attempts IS 'Parses of this answer that failed.';
COMMENT ON COLUMN page_parses.error IS 'Why the last parse of this answer failed. What an earlier parse found stays.';
COMMENT ON COLUMN page_parses.product_keys IS 'The identity_key of each product of this answer.';
-- What is due lies in archives of several machines; a worker asks for its own.
CREATE INDEX page_parses_due ON page_parses (split_part(archive_segment, '/', 1), domain_id, job_id, url_key, parser) WHERE due;
CREATE INDEX page_parses_failed ON page_parses (domain_id, job_id, url_key) WHERE error IS NOT NULL;

-- A row is an item that a parser found on a page.
CREATE TABLE items (
    domain_id       bigint NOT NULL,
    job_id          bigint NOT NULL,
    fetched_at      timestamptz NOT NULL,
    extracted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    position        integer NOT NULL CHECK (position >= 0),
    url_key         bytea NOT NULL,
    parser          varchar(100) NOT NULL,
    parser_version  varchar(100) NOT NULL,
    data            jsonb NOT NULL CHECK (jsonb_typeof(data) = 'object'),
    PRIMARY KEY (domain_id, url_key, job_id, parser, position),
    FOREIGN KEY (domain_id, job_id, url_key, parser) REFERENCES page_parses ON DELETE CASCADE
);
COMMENT ON TABLE items IS 'What a parser found on a page. The items of a page and a parser are replaced as a whole.';
CREATE INDEX items_job ON items (job_id, domain_id, url_key);

-- A row is an order to delete pages.
CREATE TABLE page_purges (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    before     timestamptz NOT NULL,
    job_id     bigint,
    domain_id  bigint
);
COMMENT ON TABLE page_purges IS 'Which pages people wanted to be forgotten: why pages that are in the log are not kept any more.';
COMMENT ON COLUMN page_purges.before IS 'Pages that were fetched before then; of one job and one domain, or of all where that is NULL.';

-- A row is an image by its content.
CREATE TABLE images (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sha256         bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    first_seen_at  timestamptz NOT NULL DEFAULT now(),
    last_seen_at   timestamptz NOT NULL DEFAULT now()
);

-- A row is an image on a page.
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

-- Tasks -------------------------------------------------------------------------------------------------------------------------------

-- A row is a batch: a name for tasks that belong together.
CREATE TABLE crawl_batches (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        varchar(255) NOT NULL UNIQUE CHECK (name <> ''),
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  varchar(100) NOT NULL DEFAULT 'system'
);
COMMENT ON TABLE crawl_batches IS 'A name for a group of tasks.';

CREATE TYPE task_status AS ENUM (
    'pending', 'queued', 'crawling', 'downloaded', 'queued_parse', 'parsing', 'completed', 'failed', 'paused', 'cancelled');

-- A row is one crawl of a tracked URL.
CREATE TABLE crawl_tasks (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No cascade: a domain may have a million tasks. Who deletes it deletes them first, in chunks.
    domain_id         bigint NOT NULL REFERENCES domains,
    scheduled_at      timestamptz NOT NULL DEFAULT now(),
    started_at        timestamptz,
    completed_at      timestamptz,
    next_crawl_at     timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    parent_task_id    bigint REFERENCES crawl_tasks ON DELETE SET NULL,
    previous_task_id  bigint,
    batch_id          bigint REFERENCES crawl_batches,
    claim_epoch       bigint,
    proxy_id          bigint,
    archive_offset    bigint,
    archive_length    bigint,
    status            task_status NOT NULL DEFAULT 'pending',
    version           integer NOT NULL DEFAULT 0,
    attempt           integer NOT NULL DEFAULT 0,
    recrawl_count     integer NOT NULL DEFAULT 0,
    response_time_ms  integer,
    priority          smallint NOT NULL DEFAULT 5,
    retry_count       smallint NOT NULL DEFAULT 0,
    max_retries       smallint NOT NULL DEFAULT 3,
    http_status_code  smallint,
    is_recurring      boolean NOT NULL DEFAULT true,
    frees_children    boolean NOT NULL DEFAULT false,
    crawl_frequency   interval NOT NULL DEFAULT '1 day',
    url_hash          bytea NOT NULL,
    archive_digest    bytea,
    waits_for         varchar(10),
    created_by        varchar(100) NOT NULL DEFAULT 'system',
    parser_name       varchar(100),
    parsed_by         varchar(100),
    parser_version    varchar(100),
    url               text NOT NULL,
    webhook_url       text,
    archive_segment   text,
    error_message     text,
    status_reason     text NOT NULL DEFAULT 'created',
    fetch_url         text,
    fetch_key         bytea,
    hops              smallint NOT NULL DEFAULT 0,
    parse_after       timestamptz CHECK (isfinite(parse_after)),
    CONSTRAINT task_key_is_whole CHECK (octet_length(url_hash) = 16),
    CONSTRAINT task_priority_known CHECK (priority BETWEEN 1 AND 10),
    CONSTRAINT task_counts_sane CHECK (retry_count >= 0 AND max_retries BETWEEN 0 AND 20 AND recrawl_count >= 0 AND attempt >= 0),
    CONSTRAINT task_frequency_sane CHECK (crawl_frequency BETWEEN interval '1 second' AND interval '36500 days'),
    CONSTRAINT task_times_finite CHECK (isfinite(scheduled_at) AND isfinite(next_crawl_at)),
    CONSTRAINT task_archive_is_whole CHECK (num_nonnulls(archive_segment, archive_offset, archive_length, archive_digest) IN (0, 4)),
    CONSTRAINT task_end_has_time CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
    CONSTRAINT task_recurs_when_completed CHECK (next_crawl_at IS NULL OR status = 'completed'),
    CONSTRAINT task_waits_while_pending CHECK (waits_for IS NULL OR (status = 'pending' AND waits_for IN ('domain', 'parent'))),
    CONSTRAINT task_frees_when_completed CHECK (NOT frees_children OR status = 'completed'),
    CONSTRAINT task_is_not_its_parent CHECK (parent_task_id <> id),
    CONSTRAINT task_webhook_is_web CHECK (webhook_url ~ '^https?://' AND octet_length(webhook_url) <= 2048),
    CONSTRAINT task_place_is_whole CHECK ((fetch_url IS NULL) = (fetch_key IS NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE crawl_tasks IS 'One crawl of one tracked URL. The next crawl of the same URL is the next row, so the history stays.';
COMMENT ON COLUMN crawl_tasks.url_hash IS 'The key of the normalized URL, as in url_frontier. Unique among tasks that are not completed, failed or cancelled.';
COMMENT ON COLUMN crawl_tasks.priority IS '1 comes first, 10 last.';
COMMENT ON COLUMN crawl_tasks.scheduled_at IS 'Not fetched before then: as it was asked for, or the next try after a failure.';
COMMENT ON COLUMN crawl_tasks.retry_count IS 'Of the present phase: it starts anew when the page is there.';
COMMENT ON COLUMN crawl_tasks.attempt IS 'Rises whenever the task is handed to a worker or a parser (queued, parsing). A result under another number is refused.';
COMMENT ON COLUMN crawl_tasks.claim_epoch IS 'Under which claim it is being crawled; for display.';
COMMENT ON COLUMN crawl_tasks.next_crawl_at IS 'When the next row of this URL is due; NULL: never, or it is there already.';
COMMENT ON COLUMN crawl_tasks.previous_task_id IS 'The row before this one in the history of its URL. No foreign key: that row may age out first.';
COMMENT ON COLUMN crawl_tasks.waits_for IS 'Set aside by the schedule, so that it is not met again and again: its domain is inactive, or its parent not completed.';
COMMENT ON COLUMN crawl_tasks.frees_children IS 'Completed while tasks waited for it: the schedule takes those back.';
COMMENT ON COLUMN crawl_tasks.parser_name IS 'The parser that was asked for; NULL: the domain''s. parsed_by and parser_version say which one it was.';
COMMENT ON COLUMN crawl_tasks.status_reason IS 'Why it has this status: "what happened: detail".';
COMMENT ON COLUMN crawl_tasks.fetch_url IS 'Where redirects have led it to so far; NULL: to its own URL.';
COMMENT ON COLUMN crawl_tasks.parse_after IS 'While queued_parse: not parsed before then; NULL: at once.';
CREATE UNIQUE INDEX crawl_tasks_live ON crawl_tasks (url_hash) WHERE status NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX crawl_tasks_url ON crawl_tasks (url_hash, id);
CREATE INDEX crawl_tasks_due ON crawl_tasks (priority, scheduled_at, id) WHERE status = 'pending' AND waits_for IS NULL;
CREATE INDEX crawl_tasks_recurring ON crawl_tasks (next_crawl_at) WHERE next_crawl_at IS NOT NULL;
CREATE INDEX crawl_tasks_status ON crawl_tasks (status, id);
CREATE INDEX crawl_tasks_domain ON crawl_tasks (domain_id, id);
CREATE INDEX crawl_tasks_failed ON crawl_tasks (domain_id, id) WHERE status = 'failed';
CREATE INDEX crawl_tasks_batch ON crawl_tasks (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX crawl_tasks_ended ON crawl_tasks (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX crawl_tasks_children ON crawl_tasks (parent_task_id) WHERE parent_task_id IS NOT NULL;
CREATE INDEX crawl_tasks_freeing ON crawl_tasks (id) WHERE frees_children;
CREATE INDEX crawl_tasks_aside ON crawl_tasks (domain_id) WHERE waits_for = 'domain';
CREATE INDEX crawl_tasks_at_work ON crawl_tasks (COALESCE(fetch_key, url_hash)) WHERE status IN ('queued', 'crawling');
CREATE INDEX crawl_tasks_parse_due ON crawl_tasks (priority, parse_after NULLS FIRST, id) WHERE status = 'queued_parse';

-- The transition table. model/task.py holds the same one, and a test compares all 100 pairs.
CREATE FUNCTION task_transition_allowed(old task_status, new task_status) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE old
        WHEN 'pending'      THEN new IN ('queued', 'paused', 'cancelled')
        WHEN 'queued'       THEN new IN ('crawling', 'paused', 'cancelled')
        WHEN 'crawling'     THEN new IN ('downloaded', 'pending', 'failed', 'paused', 'cancelled')
        WHEN 'downloaded'   THEN new IN ('queued_parse', 'paused', 'cancelled')
        WHEN 'queued_parse' THEN new IN ('parsing', 'paused', 'cancelled')
        WHEN 'parsing'      THEN new IN ('completed', 'queued_parse', 'failed', 'paused', 'cancelled')
        WHEN 'completed'    THEN new IN ('pending', 'downloaded', 'cancelled')
        WHEN 'failed'       THEN new IN ('pending', 'downloaded', 'cancelled')
        WHEN 'paused'       THEN new IN ('pending', 'downloaded', 'cancelled')
        WHEN 'cancelled'    THEN new IN ('pending', 'downloaded')
    END
$$;

-- What follows from a status is written here and nowhere else, so that it also holds for SQL by hand.
CREATE FUNCTION task_status_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT task_transition_allowed(OLD.status, NEW.status) THEN
        RAISE EXCEPTION 'task %: a task that is % cannot become %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation',
                  HINT = 'Allowed from ' || OLD.status || ': '
                      || (SELECT string_agg(s::text, ', ') FROM unnest(enum_range(NULL::task_status)) s
                          WHERE task_transition_allowed(OLD.status, s)) || '.';
    END IF;
    -- Each reason of ours leads to one status only, so two changes in a row never have the same: the same text means none was given.
    IF NEW.status_reason IS NOT DISTINCT FROM OLD.status_reason THEN
        NEW.status_reason := 'manual: changed in SQL as ' || session_user;
    END IF;
    IF NEW.status IN ('queued', 'parsing') THEN
        NEW.attempt := OLD.attempt + 1;
    END IF;
    IF NEW.status = 'crawling' THEN
        NEW.started_at := clock_timestamp();
    ELSE
        NEW.claim_epoch := NULL;
        IF NEW.status = 'pending' THEN
            NEW.started_at := NULL;
        END IF;
    END IF;
    NEW.completed_at := CASE WHEN NEW.status IN ('completed', 'failed', 'cancelled') THEN clock_timestamp() END;
    NEW.next_crawl_at := CASE WHEN NEW.status = 'completed' AND NEW.is_recurring THEN NEW.completed_at + NEW.crawl_frequency END;
    NEW.waits_for := NULL;
    -- Any that is pending, set aside or not: the schedule may be about to set one aside at this moment, unseen from here.
    NEW.frees_children := NEW.status = 'completed'
        AND EXISTS (SELECT FROM crawl_tasks c WHERE c.parent_task_id = NEW.id AND c.status = 'pending');
    NEW.version := OLD.version + 1;
    INSERT INTO task_events (task_id, version, from_status, to_status, why, attempt, claim_epoch)
    VALUES (NEW.id, NEW.version, OLD.status, NEW.status, NEW.status_reason, NEW.attempt, COALESCE(NEW.claim_epoch, OLD.claim_epoch));
    RETURN NEW;
END
$$;
CREATE TRIGGER crawl_tasks_status BEFORE UPDATE OF status ON crawl_tasks
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION task_status_changes();
CREATE TRIGGER crawl_tasks_updated_at BEFORE UPDATE ON crawl_tasks FOR EACH ROW EXECUTE FUNCTION touch_updated_at();

CREATE FUNCTION task_is_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM task_events WHERE task_id = OLD.id;
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_tasks_deleted AFTER DELETE ON crawl_tasks FOR EACH ROW EXECUTE FUNCTION task_is_deleted();

-- After, so that the row is as the other trigger left it. Who wants no more messages has one that was given up at once: it can be asked for.
CREATE FUNCTION task_end_is_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    off constant text := (SELECT e.reason FROM webhook_endpoints e WHERE e.url = NEW.webhook_url AND e.disabled_at IS NOT NULL);
BEGIN
    INSERT INTO webhook_deliveries (task_id, task_version, event, url, body, next_attempt_at, gave_up_at, last_error)
    VALUES (
        NEW.id, NEW.version, 'task.' || NEW.status, NEW.webhook_url,
        jsonb_build_object(
            'task_id', NEW.id,
            'url', NEW.url,
            'domain', (SELECT d.domain FROM domains d WHERE d.id = NEW.domain_id),
            'status', NEW.status,
            'reason', NEW.status_reason,
            'error', NEW.error_message,
            'http_status', NEW.http_status_code,
            'parser', NEW.parsed_by,
            'batch_id', NEW.batch_id,
            'attempt', NEW.attempt,
            'recrawl_count', NEW.recrawl_count,
            'previous_task_id', NEW.previous_task_id,
            'completed_at', NEW.completed_at,
            'next_crawl_at', NEW.next_crawl_at),
        CASE WHEN off IS NULL THEN clock_timestamp() END,
        CASE WHEN off IS NOT NULL THEN clock_timestamp() END,
        off);
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_tasks_told AFTER UPDATE OF status ON crawl_tasks
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('completed', 'failed') AND NEW.webhook_url IS NOT NULL)
    EXECUTE FUNCTION task_end_is_told();

CREATE FUNCTION task_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (kind, domain_id, domain, data)
    VALUES ('task', NEW.domain_id, (SELECT d.domain FROM domains d WHERE d.id = NEW.domain_id), jsonb_build_object(
        'task_id', NEW.id, 'to', NEW.status, 'reason', left(NEW.status_reason, 1000), 'batch_id', NEW.batch_id));
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_tasks_event AFTER UPDATE OF status ON crawl_tasks
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('completed', 'failed', 'cancelled'))
    EXECUTE FUNCTION task_event();

-- A row is one change of a task's status.
-- No foreign key: it would lock the task's row once more for every event (15 of 68 us a change). A trigger deletes instead.
CREATE TABLE task_events (
    task_id      bigint NOT NULL,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim_epoch  bigint,
    version      integer NOT NULL,
    attempt      integer NOT NULL,
    from_status  task_status NOT NULL,
    to_status    task_status NOT NULL,
    why          text NOT NULL,
    PRIMARY KEY (task_id, version)
);
COMMENT ON TABLE task_events IS 'Every change of a task''s status, with its reason. Written by trigger, also for SQL by hand.';

-- A row is the result of one parser for a task's page.
CREATE TABLE parse_results (
    task_id         bigint PRIMARY KEY REFERENCES crawl_tasks ON DELETE CASCADE,
    fetched_at      timestamptz NOT NULL,
    parsed_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempt         integer NOT NULL,
    parser          varchar(100) NOT NULL,
    parser_version  varchar(100) NOT NULL,
    product_keys    bytea[] NOT NULL,
    data            jsonb NOT NULL,
    products        jsonb NOT NULL,
    CONSTRAINT result_is_an_object CHECK (jsonb_typeof(data) = 'object'),
    CONSTRAINT result_has_its_products CHECK (jsonb_typeof(products) = 'array' AND jsonb_array_length(products) = cardinality(product_keys))
);
COMMENT ON TABLE parse_results IS 'What a parser found in the page of a task, the last time that it succeeded.';
COMMENT ON COLUMN parse_results.fetched_at IS 'When the page was fetched, by the database''s clock: not when it was parsed.';
COMMENT ON COLUMN parse_results.product_keys IS 'The identity_key of each product, in the order of products.';

-- Products ----------------------------------------------------------------------------------------------------------------------------

CREATE TYPE product_availability AS ENUM ('in_stock', 'limited', 'online_only', 'in_store_only', 'made_to_order', 'pre_order', 'pre_sale',
    'back_order', 'reserved', 'out_of_stock', 'sold_out', 'discontinued');

-- A row is a product on a page.
CREATE TABLE products (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No cascade: a domain may have a million products. Who deletes it deletes them first, in chunks.
    domain_id      bigint NOT NULL REFERENCES domains,
    first_seen_at  timestamptz NOT NULL,
    last_seen_at   timestamptz NOT NULL,
    last_task_id   bigint,
    rating_count   integer CHECK (rating_count >= 0),
    availability   product_availability,
    page_key       bytea NOT NULL CHECK (octet_length(page_key) = 16),
    identity_key   bytea NOT NULL CHECK (octet_length(identity_key) = 16),
    currency       char(3),
    gtin           varchar(14),
    sku            varchar(200),
    price          numeric CHECK (price >= 0 AND price < 1000000000000 AND scale(price) <= 6),
    rating_value   numeric,
    rating_best    numeric,
    name           text NOT NULL CHECK (name <> ''),
    brand          text,
    url            text,
    page_url       text NOT NULL,
    identity       text NOT NULL,
    images         text[] NOT NULL DEFAULT '{}',
    words          tsvector GENERATED ALWAYS AS (
        setweight(to_tsvector('simple'::regconfig, name), 'A') || setweight(to_tsvector('simple'::regconfig, COALESCE(brand, '')), 'B')
        || setweight(to_tsvector('simple'::regconfig, COALESCE(sku, '') || ' ' || COALESCE(gtin, '')), 'C')) STORED,
    CONSTRAINT product_is_known_once UNIQUE (domain_id, page_key, identity_key),
    CONSTRAINT product_seen_in_order CHECK (first_seen_at <= last_seen_at),
    CONSTRAINT product_rating_is_whole CHECK (num_nonnulls(rating_value, rating_best) IN (0, 2))
) WITH (fillfactor = 80);
COMMENT ON TABLE products IS 'A product on a page, as the newest fetch of the page that has it says it.';
COMMENT ON COLUMN products.identity_key IS 'First 16 bytes of SHA-256 of identity, by which the product is known again on its page.';
COMMENT ON COLUMN products.page_key IS 'The key of the page''s URL, as in crawl_tasks.url_hash.';
COMMENT ON COLUMN products.last_seen_at IS 'Of the fetch. Likewise first_seen_at: when it was parsed does not count.';
COMMENT ON COLUMN products.last_task_id IS 'No foreign key: that task may age out first. NULL: seen by a crawl.';
CREATE INDEX products_words ON products USING gin (words);
CREATE INDEX products_domain ON products (domain_id, id);
CREATE INDEX products_brand ON products (lower(brand), id) WHERE brand IS NOT NULL;
CREATE INDEX products_price ON products (price, currency) WHERE price IS NOT NULL;

-- A row is a price of a product, and from when until when it was seen.
CREATE TABLE product_prices (
    product_id    bigint NOT NULL REFERENCES products ON DELETE CASCADE,
    fetched_at    timestamptz NOT NULL,
    seen_until    timestamptz NOT NULL,
    task_id       bigint,
    last_task_id  bigint,
    availability  product_availability,
    currency      char(3),
    price         numeric CHECK (price >= 0),
    PRIMARY KEY (product_id, fetched_at),
    CONSTRAINT price_seen_in_order CHECK (fetched_at <= seen_until)
) WITH (fillfactor = 90);
COMMENT ON TABLE product_prices IS 'A product''s price, currency and availability from one fetch to another, in which they did not change.';
COMMENT ON COLUMN product_prices.seen_until IS 'The last fetch that said the same, of last_task_id. Nothing is claimed from there to the next row.';

-- Proxies -----------------------------------------------------------------------------------------------------------------------------

-- A row is a proxy.
CREATE TABLE proxies (
    id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    last_failure_at        timestamptz,
    next_try_at            timestamptz,
    proxy_port             integer NOT NULL,
    failure_count          integer NOT NULL DEFAULT 0,
    max_requests_per_hour  integer DEFAULT 1000,
    version                integer NOT NULL DEFAULT 1,
    is_active              boolean NOT NULL DEFAULT true,
    allow_private          boolean NOT NULL DEFAULT false,
    proxy_protocol         varchar(20) NOT NULL DEFAULT 'http',
    proxy_url              varchar(255) COLLATE "C" NOT NULL,
    proxy_username         varchar(255),
    proxy_password         text,
    disabled_by            varchar(20),
    last_error             text,
    country_code           varchar(2),
    city                   varchar(100),
    provider               varchar(100),
    monthly_cost           numeric(10, 2),
    CONSTRAINT proxy_known_once UNIQUE NULLS NOT DISTINCT (proxy_protocol, proxy_url, proxy_port, proxy_username),
    CONSTRAINT proxy_protocol_known CHECK (proxy_protocol IN ('http', 'https', 'socks5', 'socks5h')),
    CONSTRAINT proxy_port_sane CHECK (proxy_port BETWEEN 1 AND 65535),
    CONSTRAINT proxy_numbers_sane CHECK (failure_count >= 0 AND max_requests_per_hour > 0 AND monthly_cost >= 0),
    CONSTRAINT proxy_country_sane CHECK (country_code ~ '^[A-Z]{2}$'),
    CONSTRAINT proxy_login_whole CHECK (proxy_password IS NULL OR proxy_username IS NOT NULL),
    CONSTRAINT proxy_off_by_somebody CHECK (is_active = (disabled_by IS NULL) AND disabled_by IN ('operator', 'health'))
);
COMMENT ON TABLE proxies IS 'Proxies and their health. What went through them is counted in domain_proxies, and summed in proxy_totals.';
COMMENT ON COLUMN proxies.proxy_url IS 'The host: a name or an address.';
COMMENT ON COLUMN proxies.proxy_password IS 'A Fernet token. The key is not in the database.';
COMMENT ON COLUMN proxies.failure_count IS 'Failures in a row that were the fault of the proxy. From 5 on it is only tried now and then, from 10 on it is not active.';
COMMENT ON COLUMN proxies.next_try_at IS 'It failed too often: one request may try it then.';
COMMENT ON COLUMN proxies.disabled_by IS 'health: a success makes it active again. operator: only a person does.';
COMMENT ON COLUMN proxies.allow_private IS 'The operator knows that it has a private address.';
COMMENT ON COLUMN proxies.max_requests_per_hour IS 'In any hour, over all users of the proxy; null: no limit.';

-- Proxies for all domains: their version is raised by people only, never by what goes through them.
CREATE FUNCTION tell_of_proxies() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('holdfast_jobs', 'proxies');
    RETURN NULL;
END
$$;
CREATE TRIGGER proxies_tell AFTER INSERT OR DELETE ON proxies FOR EACH STATEMENT EXECUTE FUNCTION tell_of_proxies();
CREATE TRIGGER proxies_edited AFTER UPDATE OF version ON proxies
    FOR EACH ROW WHEN (OLD.version IS DISTINCT FROM NEW.version) EXECUTE FUNCTION tell_of_proxies();

-- A row is a proxy in the pool of a domain.
CREATE TABLE domain_proxies (
    id                    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain_id             bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    proxy_id              bigint NOT NULL REFERENCES proxies ON DELETE CASCADE,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    last_used_at          timestamptz,
    last_success_at       timestamptz,
    last_failure_at       timestamptz,
    next_try_at           timestamptz,
    success_count         bigint NOT NULL DEFAULT 0,
    total_failures        bigint NOT NULL DEFAULT 0,
    proxy_failures        bigint NOT NULL DEFAULT 0,
    requests              bigint NOT NULL DEFAULT 0,
    other_requests        bigint NOT NULL DEFAULT 0,
    bytes                 bigint NOT NULL DEFAULT 0,
    avg_response_time_ms  double precision,
    failure_count         integer NOT NULL DEFAULT 0,
    priority              integer NOT NULL DEFAULT 5,
    version               integer NOT NULL DEFAULT 1,
    is_active             boolean NOT NULL DEFAULT true,
    assigned              boolean NOT NULL DEFAULT true,
    disabled_by           varchar(20),
    last_error            text,
    CONSTRAINT unique_domain_proxy UNIQUE (domain_id, proxy_id),
    CONSTRAINT mapping_numbers_sane CHECK (success_count >= 0 AND total_failures >= 0 AND proxy_failures >= 0 AND failure_count >= 0
        AND other_requests >= 0 AND bytes >= 0 AND requests >= success_count + total_failures + proxy_failures AND priority BETWEEN 1 AND 10),
    CONSTRAINT mapping_off_by_somebody CHECK (is_active = (disabled_by IS NULL) AND disabled_by IN ('operator', 'health'))
) WITH (fillfactor = 75);
COMMENT ON TABLE domain_proxies IS 'The pool of a domain, and what went through each proxy there. Written by the holder of the domain, with the batch.';
COMMENT ON COLUMN domain_proxies.requests IS 'Rows of crawl_log. Those of them that were neither a success nor a failure were errors of the site.';
COMMENT ON COLUMN domain_proxies.other_requests IS 'For robots.txt; these are not in crawl_log.';
COMMENT ON COLUMN domain_proxies.failure_count IS 'Times in a row that the site refused this proxy. From 5 on the mapping is not active, and tried now and then.';
COMMENT ON COLUMN domain_proxies.proxy_failures IS 'Requests that did not get through the proxy: its fault, not that of the site.';
COMMENT ON COLUMN domain_proxies.assigned IS 'False: no operator assigned it; it was taken from the global pool.';
CREATE INDEX domain_proxies_proxy ON domain_proxies (proxy_id);

CREATE VIEW proxy_totals AS
SELECT p.id, COALESCE(sum(m.success_count), 0)::bigint AS success_count, COALESCE(sum(m.total_failures), 0)::bigint AS total_failures,
       COALESCE(sum(m.proxy_failures), 0)::bigint AS proxy_failures, COALESCE(sum(m.requests), 0)::bigint AS requests,
       COALESCE(sum(m.other_requests), 0)::bigint AS other_requests, COALESCE(sum(m.bytes), 0)::bigint AS bytes,
       sum(m.avg_response_time_ms * m.success_count) / NULLIF(sum(m.success_count) FILTER (WHERE m.avg_response_time_ms IS NOT NULL), 0)
           AS avg_response_time_ms,
       max(m.last_used_at) AS last_used_at, max(m.last_success_at) AS last_success_at,
       count(m.id) FILTER (WHERE m.assigned) AS domains
FROM proxies p LEFT JOIN domain_proxies m ON m.proxy_id = p.id GROUP BY p.id;
COMMENT ON VIEW proxy_totals IS 'What went through each proxy, over all domains.';

CREATE FUNCTION proxy_pause(failures integer, first interval, longest interval) RETURNS interval LANGUAGE sql IMMUTABLE AS $$
    SELECT LEAST(first * 2 ^ LEAST(failures - 5, 24), longest) WHERE failures >= 5
$$;
COMMENT ON FUNCTION proxy_pause IS 'How long a proxy rests after this number of failures in a row; null: it is still used.';

CREATE FUNCTION proxy_failures(before integer, worked boolean, streak integer, probes integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN worked THEN LEAST(streak, 5) WHEN before < 5 THEN LEAST(before + streak, 5) ELSE before + probes END
$$;
COMMENT ON FUNCTION proxy_failures IS 'Failures in a row after further ones. A failure while the proxy rests belongs to the same incident; only a probe counts.';

-- A row is a share of a proxy's hourly limit, held by one worker.
CREATE TABLE proxy_blocks (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    proxy_id      bigint NOT NULL REFERENCES proxies ON DELETE CASCADE,
    counts_until  timestamptz NOT NULL,
    requests      integer NOT NULL CHECK (requests > 0)
);
COMMENT ON TABLE proxy_blocks IS 'Requests that a worker may make through a proxy, taken from its hourly limit at once.';
COMMENT ON COLUMN proxy_blocks.counts_until IS 'An hour after the last moment at which one of them can reach the proxy.';
CREATE INDEX proxy_blocks_proxy ON proxy_blocks (proxy_id, counts_until);

-- Webhooks ----------------------------------------------------------------------------------------------------------------------------

-- A row is an address that webhooks are sent to.
CREATE TABLE webhook_endpoints (
    url          text PRIMARY KEY,
    rest_until   timestamptz,
    disabled_at  timestamptz,
    reason       text,
    CONSTRAINT endpoint_off_has_reason CHECK (disabled_at IS NULL OR reason IS NOT NULL)
);
COMMENT ON TABLE webhook_endpoints IS 'Receivers that there is something to say about; others have no row.';
COMMENT ON COLUMN webhook_endpoints.rest_until IS 'It did not answer, or asked for time: nothing is sent there before.';
COMMENT ON COLUMN webhook_endpoints.disabled_at IS 'It wants no more messages (410 Gone), until a person has one sent again.';

-- A row is the address that gets all messages of one kind (jobs).
CREATE TABLE webhook_receivers (
    about  varchar(10) PRIMARY KEY,
    url    text NOT NULL
);
COMMENT ON TABLE webhook_receivers IS 'Where messages about everything of a kind go, as the settings of the process that sends them say. Kinds without a row are not sent.';

-- A row is a webhook message, with its attempts.
-- No foreign key to the task: it may age out before its message is delivered.
CREATE TABLE webhook_deliveries (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id          bigint,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_attempt_at  timestamptz DEFAULT clock_timestamp(),
    last_attempt_at  timestamptz,
    delivered_at     timestamptz,
    gave_up_at       timestamptz,
    message_id       uuid NOT NULL DEFAULT gen_random_uuid(),
    task_version     integer,
    attempts         integer NOT NULL DEFAULT 0,
    attempts_before  integer NOT NULL DEFAULT 0,
    last_status      smallint,
    sending          boolean NOT NULL DEFAULT false,
    event            varchar(50) NOT NULL,
    url              text NOT NULL,
    last_error       text,
    body             jsonb NOT NULL,
    alert_id         bigint,
    job_id           bigint,
    CONSTRAINT delivery_once_a_task_end UNIQUE (task_id, task_version),
    CONSTRAINT delivery_counts_sane CHECK (attempts_before BETWEEN 0 AND attempts),
    CONSTRAINT delivery_waits_or_has_ended CHECK (num_nonnulls(next_attempt_at, delivered_at, gave_up_at) = 1),
    CONSTRAINT delivery_sent_while_waiting CHECK (NOT sending OR next_attempt_at IS NOT NULL),
    CONSTRAINT delivery_once_an_alert UNIQUE (alert_id, event),
    CONSTRAINT delivery_is_about_one_thing CHECK (num_nonnulls(task_id, task_version) IN (0, 2) AND num_nonnulls(task_id, alert_id, job_id) = 1)
) WITH (fillfactor = 80);
COMMENT ON TABLE webhook_deliveries IS 'The outbox: one message for each end of a task that has a webhook. Written by trigger, in the transaction that ends the task.';
COMMENT ON COLUMN webhook_deliveries.message_id IS 'What receivers know it by; the same in every attempt.';
COMMENT ON COLUMN webhook_deliveries.attempts IS 'Attempts that were begun. It never goes back: the end of an attempt under an older number is refused.';
COMMENT ON COLUMN webhook_deliveries.attempts_before IS 'Those that were begun before a person had it sent again.';
COMMENT ON COLUMN webhook_deliveries.next_attempt_at IS 'Not before then. While it is being sent: when another process may send it, because the sender must be dead.';
COMMENT ON COLUMN webhook_deliveries.sending IS 'An attempt was begun, and its result is not recorded yet.';
COMMENT ON COLUMN webhook_deliveries.last_error IS 'In the words of the receiver, or ours if it has none.';
COMMENT ON COLUMN webhook_deliveries.alert_id IS 'No foreign key: the alert may age out first.';
COMMENT ON COLUMN webhook_deliveries.job_id IS 'No foreign key: the job may be deleted first.';
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX webhook_deliveries_delivered ON webhook_deliveries (delivered_at) WHERE delivered_at IS NOT NULL;
CREATE INDEX webhook_deliveries_given_up ON webhook_deliveries (gave_up_at) WHERE gave_up_at IS NOT NULL;

-- Accounts ----------------------------------------------------------------------------------------------------------------------------

CREATE TYPE account_role AS ENUM ('user', 'admin');

-- A row is a user.
CREATE TABLE users (
    id                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    password_changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_login_at        timestamptz,
    disabled_at          timestamptz,
    version              integer NOT NULL DEFAULT 1,
    role                 account_role NOT NULL DEFAULT 'user',
    name                 varchar(64) COLLATE "C" NOT NULL,
    password_hash        text NOT NULL,
    CONSTRAINT user_name_sane CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._@-]*$' AND name !~ '^[0-9]*$'),
    CONSTRAINT user_password_hashed CHECK (starts_with(password_hash, '$argon2id$'))
);
COMMENT ON TABLE users IS 'People and programs that may come in. Names differ by more than case.';
COMMENT ON COLUMN users.version IS 'Rises with every edit of the account; a login is no edit.';
COMMENT ON COLUMN users.password_hash IS 'Argon2id with its parameters and salt.';
CREATE UNIQUE INDEX users_name ON users (lower(name));

-- A row is a session: one login of a user.
CREATE TABLE sessions (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id       bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz NOT NULL,
    last_used_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at    timestamptz,
    token_hash    bytea NOT NULL UNIQUE,
    address       varchar(64) NOT NULL,
    origin        varchar(64) NOT NULL,
    user_agent    varchar(255) NOT NULL,
    CONSTRAINT session_token_hashed CHECK (octet_length(token_hash) = 32)
) WITH (fillfactor = 80);
COMMENT ON TABLE sessions IS 'Logins. Each has a token that only the client knows.';
COMMENT ON COLUMN sessions.token_hash IS 'SHA-256 of the token.';
COMMENT ON COLUMN sessions.last_used_at IS 'Written once a minute at the most.';
COMMENT ON COLUMN sessions.origin IS 'The address as failed logins are counted by it: of IPv6 the network of 64 bits.';
CREATE INDEX sessions_user ON sessions (user_id, id);
CREATE INDEX sessions_origin ON sessions (user_id, origin);
CREATE INDEX sessions_ended ON sessions (LEAST(expires_at, revoked_at));

-- A row is an API key.
CREATE TABLE api_keys (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id       bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz,
    last_used_at  timestamptz,
    revoked_at    timestamptz,
    version       integer NOT NULL DEFAULT 1,
    token_hash    bytea NOT NULL UNIQUE,
    name          varchar(64) NOT NULL,
    prefix        varchar(12) NOT NULL,
    scopes        text[] NOT NULL,
    CONSTRAINT api_key_token_hashed CHECK (octet_length(token_hash) = 32),
    CONSTRAINT api_key_name_sane CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9 ._@-]*$'),
    CONSTRAINT api_key_scopes_known CHECK (cardinality(scopes) > 0
        AND scopes <@ ARRAY['read', 'metrics', 'crawl', 'domains', 'proxies', 'operate', 'accounts'])
) WITH (fillfactor = 80);
COMMENT ON TABLE api_keys IS 'Keys of programs. Each narrows what its owner may do.';
COMMENT ON COLUMN api_keys.token_hash IS 'SHA-256 of the token.';
COMMENT ON COLUMN api_keys.prefix IS 'The beginning of the token, by which people know it again.';
COMMENT ON COLUMN api_keys.expires_at IS 'Null: never.';
CREATE UNIQUE INDEX api_keys_name ON api_keys (user_id, name) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_user ON api_keys (user_id, id);

-- A row is a failed login that still counts, or an attempt under way.
-- An attempt has its row before its password is looked at; one that succeeds is taken out again.
CREATE TABLE login_failures (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    pending       boolean NOT NULL DEFAULT true,
    told_account  boolean NOT NULL DEFAULT false,
    told_origin   boolean NOT NULL DEFAULT false,
    account       bytea,
    origin        varchar(64) NOT NULL,
    CONSTRAINT login_account_hashed CHECK (octet_length(account) = 32)
);
COMMENT ON TABLE login_failures IS 'Failed logins that still count, and attempts that are being looked at.';
COMMENT ON COLUMN login_failures.pending IS 'The result is not known yet. It counts as a failure meanwhile, and for good if the process that checks it dies.';
COMMENT ON COLUMN login_failures.account IS 'SHA-256 of the name that was given, in small letters, whether there is such a user or not. Null: a success has cleared it.';
COMMENT ON COLUMN login_failures.told_account IS 'With this one the limit of the account began, and the audit log says so.';
COMMENT ON COLUMN login_failures.told_origin IS 'Likewise the limit of the address.';
CREATE INDEX login_failures_account ON login_failures (account, at) WHERE account IS NOT NULL;
CREATE INDEX login_failures_origin ON login_failures (origin, at);
CREATE INDEX login_failures_at ON login_failures (at);
CREATE INDEX login_failures_told ON login_failures (at) WHERE told_account OR told_origin;

-- A row is an action of a user or program.
CREATE TABLE audit_log (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor        varchar(100) NOT NULL CHECK (actor <> ''),
    action       varchar(50) NOT NULL,
    object_kind  varchar(30) NOT NULL,
    object_id    text NOT NULL,
    details      jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE audit_log IS 'Who created or changed what, when. Written in the transaction that does it; never changed.';
CREATE INDEX audit_log_object ON audit_log (object_kind, object_id, id);
CREATE INDEX audit_log_actor ON audit_log (actor, id);
CREATE INDEX audit_log_at ON audit_log (at);

-- The API -----------------------------------------------------------------------------------------------------------------------------

-- A row is the stored response to a request with an Idempotency-Key.
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

-- A row is a caller of the API: the state of its rate limit.
-- Exact sliding windows in a ring of slots: a hit is allowed if the one that its slot has is older than the window. What a crash of the
-- server empties is a minute of counting.
CREATE UNLOGGED TABLE rate_keys (
    key      text PRIMARY KEY,
    next     bigint NOT NULL DEFAULT 0,
    tail     bigint NOT NULL DEFAULT 0,
    last_at  timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
COMMENT ON TABLE rate_keys IS 'Callers that were counted: hits tail to next - 1 are in the window, each in slot number modulo limit of rate_hits.';

-- A row is a request in a caller's window.
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

-- A row is a long-running operation that was started through the API.
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
COMMENT ON TABLE operations IS 'Long work started through the API; a background process runs it, and another one again if that one dies.';
CREATE INDEX operations_open ON operations (id) WHERE state IN ('waiting', 'running');
CREATE INDEX operations_ended ON operations (ended_at) WHERE ended_at IS NOT NULL;

-- Figures, events, alerts -------------------------------------------------------------------------------------------------------------
-- What a transaction adds to the log it also adds, in sums of ten seconds, to stats_fresh. The tick moves what is a few minutes old from
-- there into minutes, days and totals, in one transaction: so a figure counts once, however late its row came, and every figure is what
-- was added up and what is still fresh.

-- A row is figures of one transaction that are not added up yet.
CREATE TABLE stats_fresh (
    at      timestamptz NOT NULL,
    n       bigint NOT NULL,
    bytes   bigint NOT NULL DEFAULT 0,
    ms      bigint NOT NULL DEFAULT 0,
    status  smallint,
    bucket  smallint,
    kind    varchar(10) NOT NULL CHECK (kind IN ('fetch', 'claim')),
    label   varchar(50) NOT NULL
);
COMMENT ON TABLE stats_fresh IS 'What was counted and not added up yet. Written by triggers, with what is counted.';
COMMENT ON COLUMN stats_fresh.at IS 'The beginning of ten seconds; for rows of the log those in which they were crawled.';
COMMENT ON COLUMN stats_fresh.label IS 'The outcome of a fetch; of a claim how it ended, or acquired.';
COMMENT ON COLUMN stats_fresh.bucket IS 'Of the time that it took; see fetch_bucket.';

-- Upper bounds in milliseconds. model/figures.py holds the same ones, and a test compares them.
CREATE FUNCTION fetch_bucket(ms integer) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT width_bucket(ms - 1, ARRAY[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000])::smallint
$$;

-- A row is the figures of one minute (UTC).
CREATE TABLE stats_minute (
    at              timestamptz PRIMARY KEY,
    requests        bigint NOT NULL DEFAULT 0,
    pages           bigint NOT NULL DEFAULT 0,
    errors          bigint NOT NULL DEFAULT 0,
    bytes           bigint NOT NULL DEFAULT 0,
    robots_denied   bigint NOT NULL DEFAULT 0,
    latency_ms      bigint NOT NULL DEFAULT 0,
    frontier_size   bigint,
    active_workers  integer,
    outcomes        jsonb NOT NULL DEFAULT '{}',
    statuses        jsonb NOT NULL DEFAULT '{}',
    domains         jsonb,
    latency         bigint[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 80);
COMMENT ON TABLE stats_minute IS 'What was crawled in a minute, and the gauges at its end if they were sampled. Kept for a week.';
COMMENT ON COLUMN stats_minute.latency IS 'How many requests took how long; see fetch_bucket.';

-- A row is the figures of one day (UTC).
CREATE TABLE stats_day (
    LIKE stats_minute INCLUDING DEFAULTS,
    PRIMARY KEY (at)
) WITH (fillfactor = 80);
COMMENT ON TABLE stats_day IS 'The same of a day of UTC: sums; the frontier and domains as they were last seen, the most workers.';

-- A row is a running total.
CREATE TABLE stats_total (
    name   varchar(30) NOT NULL,
    label  varchar(50) NOT NULL DEFAULT '',
    value  bigint NOT NULL CHECK (value >= 0),
    PRIMARY KEY (name, label)
) WITH (fillfactor = 50);
COMMENT ON TABLE stats_total IS 'The same since the beginning: what counters show, with what is fresh. It never goes down.';

CREATE FUNCTION stats_plus(a jsonb, b jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(jsonb_object_agg(key, n), '{}') FROM (
        SELECT key, sum(value::bigint) AS n FROM (SELECT * FROM jsonb_each_text(a) UNION ALL SELECT * FROM jsonb_each_text(b)) t GROUP BY key) s
$$;

CREATE FUNCTION stats_plus(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(array_agg(COALESCE(x, 0) + COALESCE(y, 0) ORDER BY n), '{}') FROM unnest(a, b) WITH ORDINALITY AS t(x, y, n)
$$;

CREATE AGGREGATE stats_sum(bigint[]) (SFUNC = stats_plus, STYPE = bigint[], INITCOND = '{}', PARALLEL = SAFE);

CREATE AGGREGATE stats_sum(jsonb) (SFUNC = stats_plus, STYPE = jsonb, INITCOND = '{}', PARALLEL = SAFE);

-- A row is an event: what happened to a job, a domain, a task, a worker or an alert.
-- Numbers are given before a commit, so those of a slow transaction come late. A reader reads what every transaction before has decided
-- about (xid < pg_snapshot_xmin), in the order of transactions, and misses none.
CREATE TABLE events (
    xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    id         bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id     bigint,
    domain_id  bigint,
    kind       varchar(10) NOT NULL CHECK (kind IN ('job', 'domain', 'task', 'alert', 'worker')),
    domain     varchar(255),
    data       jsonb NOT NULL,
    PRIMARY KEY (xid, id)
);
COMMENT ON TABLE events IS 'What happened lately to jobs, domains, tasks, workers and alerts, for subscribers. Written by triggers, kept for a day.';
CREATE INDEX events_job ON events (job_id, xid, id) WHERE job_id IS NOT NULL;

-- A row is an alert, firing or resolved.
CREATE TABLE alerts (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    since         timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    resolved_at   timestamptz,
    value         double precision NOT NULL,
    kind          varchar(30) NOT NULL,
    subject       varchar(255) NOT NULL DEFAULT '',
    details       jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 80);
COMMENT ON TABLE alerts IS 'Problems for an operator: what, since when, until when. Raised and resolved by the periodic tick.';
COMMENT ON COLUMN alerts.subject IS 'The worker or domain that it is about; empty: the whole crawl.';
COMMENT ON COLUMN alerts.value IS 'As it was last seen; what it measures depends on the kind.';
CREATE UNIQUE INDEX alerts_firing ON alerts (kind, subject) WHERE resolved_at IS NULL;
CREATE INDEX alerts_resolved ON alerts (resolved_at) WHERE resolved_at IS NOT NULL;

CREATE FUNCTION alert_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (kind, data)
    VALUES ('alert', jsonb_build_object(
        'what', CASE WHEN NEW.resolved_at IS NULL THEN 'firing' ELSE 'resolved' END,
        'alert_id', NEW.id, 'alert', NEW.kind, 'subject', NEW.subject, 'value', NEW.value));
    RETURN NULL;
END
$$;
CREATE TRIGGER alerts_raised_event AFTER INSERT ON alerts FOR EACH ROW EXECUTE FUNCTION alert_event();
CREATE TRIGGER alerts_resolved_event AFTER UPDATE OF resolved_at ON alerts
    FOR EACH ROW WHEN (OLD.resolved_at IS NULL AND NEW.resolved_at IS NOT NULL) EXECUTE FUNCTION alert_event();
