CREATE OR REPLACE FUNCTION job_event() RETURNS trigger LANGUAGE plpgsql AS $$
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
DROP TRIGGER crawl_jobs_state ON crawl_jobs;
DROP FUNCTION job_state_changes();
DROP FUNCTION job_wants_refresh(crawl_jobs);
DROP FUNCTION job_is_used_up(crawl_jobs);
DROP INDEX crawls_job;
UPDATE crawl_jobs SET spec = spec - 'refresh' WHERE spec ? 'refresh';
ALTER TABLE crawl_jobs DROP COLUMN new_crawl, DROP COLUMN state_reason;
DELETE FROM duties WHERE name = 'priorities';
DROP INDEX domains_visited;
ALTER TABLE domains DROP COLUMN last_visit_ended_at;
CREATE INDEX domains_crawled ON domains (last_crawled_at, id);
