DROP TABLE page_texts, crawled_pages;
ALTER TABLE url_frontier DROP COLUMN hops;
DROP INDEX job_domains_job;
ALTER TABLE job_domains DROP COLUMN crawl_id, DROP COLUMN granted, DROP COLUMN budget_limit;
DELETE FROM domain_robots r USING domain_robots other
WHERE other.domain_id = r.domain_id AND other.robots_txt_url > r.robots_txt_url;
ALTER TABLE domain_robots DROP CONSTRAINT domain_robots_pkey, ADD PRIMARY KEY (domain_id),
    ALTER COLUMN robots_txt_url DROP NOT NULL;
ALTER TABLE domain_robots DROP COLUMN status, DROP COLUMN reachable, DROP COLUMN expires_at, DROP COLUMN problem;
ALTER TABLE domains DROP COLUMN next_request_at, DROP COLUMN back_off_until, DROP COLUMN back_off_level, DROP COLUMN response_ms,
    DROP COLUMN best_response_ms, DROP COLUMN circuit_failures, DROP COLUMN circuit_successes, DROP COLUMN circuit_open_until;
ALTER TABLE crawl_runs DROP COLUMN crawl_id, DROP COLUMN errors, DROP COLUMN bytes, DROP COLUMN in_window;
DROP TABLE crawls;
ALTER TABLE crawl_jobs DROP COLUMN spec, DROP COLUMN fingerprint, DROP COLUMN completed_at;
DROP TYPE crawl_state;
