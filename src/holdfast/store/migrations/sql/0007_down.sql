-- 0007 taken back

DROP TRIGGER crawl_tasks_told ON crawl_tasks;
DROP FUNCTION task_end_is_told();
DROP TABLE webhook_deliveries;
DROP TABLE webhook_endpoints;

-- One that does not fit any more would be another window if it were cut.
UPDATE domains SET maintenance_window = NULL WHERE length(maintenance_window) > 100;
ALTER TABLE domains ALTER COLUMN maintenance_window TYPE varchar(100);
