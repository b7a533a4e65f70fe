-- What waits to be parsed is due at scheduled_at again; times that lie ahead (a restart for later, then parsed again) would keep it back.
UPDATE crawl_tasks SET scheduled_at = COALESCE(parse_after, now())
WHERE status = 'queued_parse' AND (parse_after > now() OR scheduled_at > now());
DROP INDEX crawl_tasks_parse_due;
CREATE INDEX crawl_tasks_parse_due ON crawl_tasks (priority, scheduled_at, id) WHERE status = 'queued_parse';
COMMENT ON COLUMN crawl_tasks.scheduled_at IS 'Not before then; while queued_parse: not parsed before then.';
ALTER TABLE crawl_tasks DROP COLUMN parse_after;
