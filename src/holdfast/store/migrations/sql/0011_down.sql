-- 0011 taken back

DELETE FROM webhook_deliveries WHERE task_id IS NULL;
ALTER TABLE webhook_deliveries
    DROP CONSTRAINT delivery_is_about_one_thing,
    DROP COLUMN alert_id,
    ALTER COLUMN task_id SET NOT NULL,
    ALTER COLUMN task_version SET NOT NULL;

DROP TABLE alerts;
DROP FUNCTION alert_event();

DROP TRIGGER crawl_runs_event ON crawl_runs;
DROP TRIGGER crawl_runs_began_event ON crawl_runs;
DROP FUNCTION run_event();
DROP TRIGGER crawl_tasks_event ON crawl_tasks;
DROP FUNCTION task_event();
DROP TRIGGER domain_transitions_event ON domain_transitions;
DROP FUNCTION domain_event();
DROP TRIGGER crawl_jobs_event ON crawl_jobs;
DROP TRIGGER crawl_jobs_made_event ON crawl_jobs;
DROP FUNCTION job_event();
DROP TABLE events;
DROP FUNCTION tell_of_events();

DROP INDEX crawl_log_time;
DROP TRIGGER claim_log_end_counted ON claim_log;
DROP FUNCTION claim_end_is_counted();
DROP TRIGGER claim_log_counted ON claim_log;
DROP FUNCTION claims_are_counted();
DROP TRIGGER crawl_log_counted ON crawl_log;
DROP FUNCTION log_is_counted();

ALTER TABLE crawl_runs
    DROP COLUMN lease_renewals,
    DROP COLUMN fenced_writes,
    DROP COLUMN robots_denied,
    DROP COLUMN commits,
    DROP COLUMN commit_ms,
    DROP COLUMN commit_latency,
    DROP COLUMN counted,
    DROP COLUMN settled;

DROP TABLE duties;
DROP TABLE stats_total;
DROP TABLE stats_day;
DROP TABLE stats_minute;
DROP TABLE stats_fresh;
DROP AGGREGATE stats_sum(jsonb);
DROP AGGREGATE stats_sum(bigint[]);
DROP FUNCTION stats_plus(jsonb, jsonb);
DROP FUNCTION stats_plus(bigint[], bigint[]);
DROP FUNCTION fetch_bucket(integer);
