DROP TRIGGER crawl_jobs_tell ON crawl_jobs;
DROP FUNCTION tell_of_jobs();
ALTER TABLE job_domains DROP COLUMN depth_reached;
DROP INDEX job_domains_job;
CREATE INDEX job_domains_job ON job_domains (job_id, state);
DELETE FROM crawl_jobs WHERE deleted_at IS NOT NULL;
ALTER TABLE crawl_jobs DROP COLUMN parked_after, DROP COLUMN resumed_at, DROP COLUMN beginning, DROP COLUMN deleted_at, DROP COLUMN schedule, DROP COLUMN next_run_at;
