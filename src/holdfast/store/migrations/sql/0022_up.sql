-- 0022: time reopens jobs without a new budget; the last crawl of a domain is known from its first flush on.

ALTER TABLE crawl_jobs
    ADD COLUMN new_crawl boolean NOT NULL DEFAULT true,
    ADD COLUMN state_reason text;
COMMENT ON COLUMN crawl_jobs.new_crawl IS 'A person or a schedule asked for it: the next worker begins a new crawl. Otherwise the last crawl goes on under what is left of its limits.';
COMMENT ON COLUMN crawl_jobs.state_reason IS 'Why it is in this state: the event that reopened it, or the cause of a failure.';
UPDATE crawl_jobs j SET new_crawl = false WHERE EXISTS (SELECT FROM crawls c WHERE c.job_id = j.id);
UPDATE crawl_jobs SET spec = spec || '{"refresh": true}' WHERE name = 'default';
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

CREATE OR REPLACE FUNCTION job_event() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- Flushes write last_crawled_at, so no index may name it. Lists go by the end of the last visit, which a release writes.
ALTER TABLE domains ADD COLUMN last_visit_ended_at timestamptz;
COMMENT ON COLUMN domains.last_visit_ended_at IS 'When its last visit was released. last_crawled_at and last_crawl_run_id are those of the last flush.';
UPDATE domains SET last_visit_ended_at = last_crawled_at WHERE last_crawled_at IS NOT NULL;
DROP INDEX domains_crawled;
CREATE INDEX domains_visited ON domains (last_visit_ended_at, id);

-- Every hour, a few chunks a sweep; the mark is the last domain of the last chunk.
INSERT INTO duties (name, done_at) VALUES ('priorities', now());
