DROP TABLE storage_days, unnamed_files, segment_originals, proxy_log_rollups, retention_runs, retention_state, retention_progress, archive_files, archives;
DROP FUNCTION job_ended_at(crawl_jobs);
CREATE OR REPLACE FUNCTION job_state_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state_reason IS NOT DISTINCT FROM OLD.state_reason THEN
        NEW.state_reason := NULL;
    END IF;
    RETURN NEW;
END
$$;
ALTER TABLE crawl_jobs DROP COLUMN kept_until, DROP COLUMN aged_at, DROP COLUMN ended_at;
ALTER TABLE url_frontier DROP COLUMN settled_at;
