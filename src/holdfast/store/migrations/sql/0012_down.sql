-- 0012 taken back

SELECT 1;

-- The API

DROP TABLE operations;
DROP TYPE operation_state;
DROP FUNCTION rate_hit(text, integer, interval, integer);
DROP TABLE rate_hits;
DROP TABLE rate_keys;
DROP TABLE kept_answers;

-- Lists

DROP TABLE page_purges;
DROP INDEX domains_removed;
ALTER TABLE domains DROP CONSTRAINT removed_is_switched_off, DROP COLUMN removed_at;
DROP INDEX audit_log_at, crawl_runs_worker, crawl_runs_job, url_frontier_failed, crawled_pages_job, crawled_pages_domain, crawled_pages_newest,
    domains_windows, domains_inactive, domains_parent, domains_score, domains_crawled, domains_status, domains_held;
CREATE INDEX domains_held ON domains (claimed_by) WHERE claimed_by IS NOT NULL;
