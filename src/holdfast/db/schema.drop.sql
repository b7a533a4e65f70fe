-- Removes everything that schema.sql made, and the job queue: `holdfast db downgrade base`.

DROP SCHEMA procrastinate CASCADE;
DROP VIEW proxy_totals;
DROP FUNCTION domain_score, job_is_used_up, job_wants_refresh;
DROP TABLE crawl_jobs, crawls, job_seeds, job_seed_files, job_secrets, workers, crawl_runs, commit_markers, duties, domains,
    domain_transitions, domain_robots, domain_secrets, claim_log, job_domains, domain_wakes, url_frontier, url_templates, crawl_log,
    crawled_pages, page_texts, page_parses, items, page_purges, images, provenance, crawl_batches, crawl_tasks, task_events,
    parse_results, products, product_prices, proxies, domain_proxies, proxy_blocks, webhook_endpoints, webhook_receivers,
    webhook_deliveries, users, sessions, api_keys, login_failures, audit_log, kept_answers, rate_keys, rate_hits, operations,
    stats_fresh, stats_minute, stats_day, stats_total, events, alerts, schema_version;
DROP AGGREGATE stats_sum(bigint[]), stats_sum(jsonb);
DROP FUNCTION stats_plus(bigint[], bigint[]), stats_plus(jsonb, jsonb);
DROP FUNCTION touch_updated_at, settings_are_edited, tell_of_jobs, job_event, job_state_changes, job_is_told, run_event,
    staleness_points, rank_points, transition_domain_status, domain_status_changes, domain_transition_allowed, domain_event,
    claims_are_counted, claim_end_is_counted, ensure_crawl_log_partitions, log_is_counted, task_transition_allowed,
    task_status_changes, task_is_deleted, task_end_is_told, task_event, tell_of_proxies, proxy_pause, proxy_failures, rate_hit,
    fetch_bucket, alert_event;
DROP TYPE job_state, job_kind, crawl_state, run_status, domain_status, job_domain_state, frontier_state, frontier_kind, task_status,
    product_availability, account_role, operation_state;
