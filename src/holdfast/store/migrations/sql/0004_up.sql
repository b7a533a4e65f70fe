-- 0004: jobs that can be paused, deleted and scheduled.

ALTER TABLE crawl_jobs
    ADD COLUMN parked_after bigint,
    ADD COLUMN resumed_at timestamptz,
    ADD COLUMN deleted_at timestamptz,
    ADD COLUMN schedule text,
    ADD COLUMN next_run_at timestamptz,
    ADD COLUMN beginning boolean NOT NULL DEFAULT false,
    ADD CHECK (deleted_at IS NULL OR state = 'cancelled'),
    ADD CHECK (next_run_at IS NULL OR schedule IS NOT NULL);
COMMENT ON COLUMN crawl_jobs.parked_after IS 'Not NULL: it was paused, and work of domains behind this id may not be ready though it could. A chunk at a time moves it on.';
COMMENT ON COLUMN crawl_jobs.deleted_at IS 'Not NULL: nobody finds the job any more. The row goes when nothing that belonged to it is left.';
COMMENT ON COLUMN crawl_jobs.beginning IS 'Its pages are being made to wait again, which a kill may have cut off in the middle.';
COMMENT ON COLUMN crawl_jobs.schedule IS 'When it is crawled again: an interval or a cron expression.';
CREATE INDEX crawl_jobs_due ON crawl_jobs (next_run_at) WHERE next_run_at IS NOT NULL;
UPDATE crawl_jobs SET parked_after = 0 WHERE state = 'paused';

-- A chunk of a job's work, found without a walk through what was looked at before. Its columns do not change in a flush.
DROP INDEX job_domains_job;
CREATE INDEX job_domains_job ON job_domains (job_id, state, domain_id);

ALTER TABLE job_domains ADD COLUMN depth_reached smallint NOT NULL DEFAULT 0;

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
