DROP TABLE provenance, images, crawl_log, url_frontier, claim_log, commit_markers, domain_wakes, job_domains, domain_transitions, domain_robots;
DROP FUNCTION ensure_crawl_log_partitions(integer), domain_score(domains);
DROP TABLE domains, crawl_runs, workers, crawl_jobs;
DROP FUNCTION rank_points(integer), staleness_points(timestamptz), domain_status_changes(), touch_updated_at(),
    domain_transition_allowed(domain_status, domain_status);
DROP TYPE run_status, frontier_kind, frontier_state, job_domain_state, job_state, domain_status;
