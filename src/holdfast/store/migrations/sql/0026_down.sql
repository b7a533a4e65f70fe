-- 0026 taken back

DROP TRIGGER crawl_jobs_told ON crawl_jobs;
DROP FUNCTION job_is_told();
DELETE FROM webhook_deliveries WHERE job_id IS NOT NULL;
ALTER TABLE webhook_deliveries
    DROP CONSTRAINT delivery_is_about_one_thing,
    DROP COLUMN job_id,
    ADD CONSTRAINT delivery_is_about_one_thing CHECK (num_nonnulls(task_id, task_version) IN (0, 2) AND (task_id IS NULL) <> (alert_id IS NULL));
DROP TABLE webhook_receivers;
