-- 0011: Figures and events: statistics by minute, alerts, what happens to jobs and domains.

-- Figures ------------------------------------------------------------------------------------------------------------
-- What a transaction adds to the log it also adds, in sums of ten seconds, to stats_fresh. Whoever ticks moves what is a few minutes old
-- from there into minutes, days and totals, in one transaction: so a figure counts once, however late its row came, and every figure is
-- what was added up and what is still fresh.

-- Upper bounds in milliseconds. model/figures.py holds the same ones, and a test compares them.
CREATE FUNCTION fetch_bucket(ms integer) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT width_bucket(ms - 1, ARRAY[5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000])::smallint
$$;

CREATE FUNCTION stats_plus(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(array_agg(COALESCE(x, 0) + COALESCE(y, 0) ORDER BY n), '{}') FROM unnest(a, b) WITH ORDINALITY AS t(x, y, n)
$$;
CREATE FUNCTION stats_plus(a jsonb, b jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(jsonb_object_agg(key, n), '{}') FROM (
        SELECT key, sum(value::bigint) AS n FROM (SELECT * FROM jsonb_each_text(a) UNION ALL SELECT * FROM jsonb_each_text(b)) t GROUP BY key) s
$$;
CREATE AGGREGATE stats_sum(bigint[]) (SFUNC = stats_plus, STYPE = bigint[], INITCOND = '{}', PARALLEL = SAFE);
CREATE AGGREGATE stats_sum(jsonb) (SFUNC = stats_plus, STYPE = jsonb, INITCOND = '{}', PARALLEL = SAFE);

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
COMMENT ON TABLE stats_minute IS 'What was crawled in a minute, and how things stood at its end if somebody looked. Kept for a week.';
COMMENT ON COLUMN stats_minute.latency IS 'How many requests took how long; see fetch_bucket.';

CREATE TABLE stats_day (LIKE stats_minute INCLUDING DEFAULTS, PRIMARY KEY (at)) WITH (fillfactor = 80);
COMMENT ON TABLE stats_day IS 'The same of a day of UTC: sums; the frontier and domains as they were last seen, the most workers.';

CREATE TABLE stats_total (
    name   varchar(30) NOT NULL,
    label  varchar(50) NOT NULL DEFAULT '',
    value  bigint NOT NULL CHECK (value >= 0),
    PRIMARY KEY (name, label)
) WITH (fillfactor = 50);
COMMENT ON TABLE stats_total IS 'The same since the beginning: what counters show, with what is fresh. It never goes down.';

CREATE TABLE duties (
    name     varchar(30) PRIMARY KEY,
    done_at  timestamptz NOT NULL DEFAULT '-infinity',
    mark     text
) WITH (fillfactor = 50);
COMMENT ON TABLE duties IS 'What is done now and then by whoever ticks first, and when it last was. Who does it holds the row.';
COMMENT ON COLUMN duties.mark IS 'How far it is: of events, the last one that was deleted.';
INSERT INTO duties (name) VALUES ('figures'), ('gauges'), ('alerts'), ('proxies'), ('trim');

-- What only the worker knows is written with its signs of life, as totals of the run. So saying it twice does no harm.
ALTER TABLE crawl_runs
    ADD COLUMN lease_renewals bigint NOT NULL DEFAULT 0,
    ADD COLUMN fenced_writes bigint NOT NULL DEFAULT 0,
    ADD COLUMN robots_denied bigint NOT NULL DEFAULT 0,
    ADD COLUMN commits bigint NOT NULL DEFAULT 0,
    ADD COLUMN commit_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN commit_latency bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN counted bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN settled boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN crawl_runs.commit_latency IS 'How many commits took how long, by the bounds of model/figures.py.';
COMMENT ON COLUMN crawl_runs.counted IS 'Of the six columns before it, in their order: what is in stats_total already.';
COMMENT ON COLUMN crawl_runs.settled IS 'It has ended, and all of it is in stats_total.';
UPDATE crawl_runs SET settled = true WHERE status <> 'running';
CREATE INDEX crawl_runs_unsettled ON crawl_runs (id) WHERE NOT settled;

-- What was done before there were figures: by minute for the last week, by day before.
INSERT INTO stats_fresh (at, kind, label, status, bucket, n, bytes, ms)
SELECT date_bin(CASE WHEN crawled_at < now() - interval '7 days' THEN interval '1 day' ELSE interval '1 minute' END, crawled_at, 'epoch'),
       'fetch', outcome, status, fetch_bucket(duration_ms), count(*), COALESCE(sum(bytes), 0), COALESCE(sum(duration_ms), 0)
FROM crawl_log GROUP BY 1, 3, 4, 5;
INSERT INTO stats_fresh (at, kind, label, n)
SELECT date_bin('1 day', now(), 'epoch'), 'claim', label, count(*)
FROM claim_log, unnest(ARRAY['acquired', why]) AS label WHERE label IS NOT NULL GROUP BY label;

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

-- The log by time alone. A range that is being filled is not in it yet, so an insert does not touch it.
CREATE INDEX crawl_log_time ON crawl_log USING brin (crawled_at) WITH (pages_per_range = 32, autosummarize = on);

-- Events -------------------------------------------------------------------------------------------------------------
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
COMMENT ON TABLE events IS 'What happened lately to jobs, domains, tasks, workers and alerts, for whoever listens. Written by triggers, kept for a day.';
CREATE INDEX events_job ON events (job_id, xid, id) WHERE job_id IS NOT NULL;

-- A notice takes a lock that all transactions with one share until they have ended, so none is given for what workers commit all the time.
-- Listeners look twice a second anyway.
CREATE FUNCTION tell_of_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY holdfast_events;
    RETURN NULL;
END
$$;
CREATE TRIGGER events_tell AFTER INSERT ON events
    FOR EACH ROW WHEN (NEW.kind IN ('job', 'alert')) EXECUTE FUNCTION tell_of_events();

CREATE FUNCTION job_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO events (kind, job_id, data)
        VALUES ('job', NEW.id, jsonb_build_object('what', 'created', 'name', NEW.name, 'to', NEW.state));
    ELSE
        INSERT INTO events (kind, job_id, data)
        VALUES ('job', NEW.id, jsonb_build_object(
            'what', CASE WHEN NEW.deleted_at IS NULL THEN 'changed' ELSE 'deleted' END,
            'name', OLD.name, 'from', OLD.state, 'to', NEW.state));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_jobs_made_event AFTER INSERT ON crawl_jobs FOR EACH ROW EXECUTE FUNCTION job_event();
CREATE TRIGGER crawl_jobs_event AFTER UPDATE OF state, deleted_at ON crawl_jobs
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state OR (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL))
    EXECUTE FUNCTION job_event();

CREATE FUNCTION domain_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO events (kind, domain_id, domain, data)
    VALUES ('domain', NEW.domain_id, (SELECT d.domain FROM domains d WHERE d.id = NEW.domain_id), jsonb_build_object(
        'from', NEW.from_status, 'to', NEW.to_status, 'reason', left(NEW.reason, 1000), 'worker', NEW.worker));
    RETURN NULL;
END
$$;
CREATE TRIGGER domain_transitions_event AFTER INSERT ON domain_transitions FOR EACH ROW EXECUTE FUNCTION domain_event();

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

-- Alerts -------------------------------------------------------------------------------------------------------------

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
COMMENT ON TABLE alerts IS 'What somebody should look at, or should have: what, since when, until when. Raised and resolved by the tick.';
COMMENT ON COLUMN alerts.subject IS 'Whom it is about: a worker, a domain; empty: everything.';
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

-- The outbox also has messages about alerts: one when it begins, one when it ends.
ALTER TABLE webhook_deliveries
    ALTER COLUMN task_id DROP NOT NULL,
    ALTER COLUMN task_version DROP NOT NULL,
    ADD COLUMN alert_id bigint,
    ADD CONSTRAINT delivery_once_an_alert UNIQUE (alert_id, event),
    ADD CONSTRAINT delivery_is_about_one_thing CHECK (num_nonnulls(task_id, task_version) IN (0, 2) AND (task_id IS NULL) <> (alert_id IS NULL));
COMMENT ON COLUMN webhook_deliveries.alert_id IS 'No foreign key: the alert may age out first.';
