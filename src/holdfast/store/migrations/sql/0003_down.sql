DROP TABLE audit_log, task_events, crawl_tasks, crawl_batches;
DROP FUNCTION task_is_deleted(), task_status_changes(), task_transition_allowed(task_status, task_status);
DROP TYPE task_status;
