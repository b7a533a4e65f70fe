-- 0023, undone: visits under way hear of edits when they end.

DROP TRIGGER proxies_edited ON proxies;
DROP TRIGGER proxies_tell ON proxies;
DROP FUNCTION tell_of_proxies();
DROP TRIGGER crawl_jobs_edited ON crawl_jobs;
DROP TRIGGER domains_edited ON domains;
DROP FUNCTION settings_are_edited();
ALTER TABLE crawl_jobs DROP COLUMN settings_version;
ALTER TABLE domains DROP COLUMN settings_version, DROP COLUMN pace_delay_seconds, DROP COLUMN pace_delay_source;
