-- 0025: when a task is parsed is its own time, so that scheduled_at stays what was asked for. NULL: at once, as for those that wait now.

ALTER TABLE crawl_tasks ADD COLUMN parse_after timestamptz CHECK (isfinite(parse_after));
COMMENT ON COLUMN crawl_tasks.parse_after IS 'While queued_parse: not parsed before then; NULL: at once.';
COMMENT ON COLUMN crawl_tasks.scheduled_at IS 'Not fetched before then: as it was asked for, or the next try after a failure.';
DROP INDEX crawl_tasks_parse_due;
CREATE INDEX crawl_tasks_parse_due ON crawl_tasks (priority, parse_after NULLS FIRST, id) WHERE status = 'queued_parse';
