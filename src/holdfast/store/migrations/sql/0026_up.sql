-- 0026: ends, pauses and reopenings of jobs are told by webhook.

CREATE TABLE webhook_receivers (
    about  varchar(10) PRIMARY KEY,
    url    text NOT NULL
);
COMMENT ON TABLE webhook_receivers IS 'Where messages about everything of a kind go, as the settings of the process that sends them say. Kinds without a row are not told.';

ALTER TABLE webhook_deliveries
    ADD COLUMN job_id bigint,
    DROP CONSTRAINT delivery_is_about_one_thing,
    ADD CONSTRAINT delivery_is_about_one_thing CHECK (num_nonnulls(task_id, task_version) IN (0, 2) AND num_nonnulls(task_id, alert_id, job_id) = 1);
COMMENT ON COLUMN webhook_deliveries.job_id IS 'No foreign key: the job may be deleted first.';

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
