-- 0027: which jobs workers may serve, and one place each where the counts of a frontier are adjusted and URLs are deleted.

CREATE FUNCTION job_is_runnable(job crawl_jobs) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT job.state IN ('pending', 'processing')
$$;
COMMENT ON FUNCTION job_is_runnable IS 'Whether workers may serve the job now: it is neither paused nor at its end.';

CREATE VIEW runnable_jobs AS SELECT j.id, j.name, j.kind, j.parked_after FROM crawl_jobs j WHERE job_is_runnable(j);
COMMENT ON VIEW runnable_jobs IS 'Jobs that workers may serve now.';

-- What a URL counts as is its state: `discovered` is the sum of the four.
CREATE FUNCTION add_counts(
    of_domain bigint, of_job bigint, more_waiting bigint, more_done bigint DEFAULT 0, more_denied bigint DEFAULT 0,
    more_failed bigint DEFAULT 0
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    more_discovered constant bigint := more_waiting + more_done + more_denied + more_failed;
BEGIN
    UPDATE job_domains SET discovered = discovered + more_discovered, waiting = waiting + more_waiting, done = done + more_done,
        denied = denied + more_denied, failed = failed + more_failed,
        state = CASE WHEN more_waiting > 0 AND state = 'done' THEN 'open' ELSE state END
    WHERE domain_id = of_domain AND job_id = of_job;
    UPDATE domains SET pages_discovered = pages_discovered + more_discovered, frontier_size = frontier_size + more_waiting,
        frontier_updated_at = clock_timestamp()
    WHERE id = of_domain;
END
$$;
COMMENT ON FUNCTION add_counts IS
    'Adjust the counts of a job''s URLs on a domain, of the job''s work and of the domain. Work that was done is open if URLs wait again. Before: the domain row is locked.';

-- A URL is (of_domains[n], of_jobs[n], keys[n]).
CREATE FUNCTION forget_urls(of_domains bigint[], of_jobs bigint[], keys bytea[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    forgotten bigint;
BEGIN
    WITH urls AS (SELECT * FROM unnest(of_domains, of_jobs, keys) AS u(domain_id, job_id, url_key)), deleted AS (
        DELETE FROM url_frontier f USING urls u WHERE f.domain_id = u.domain_id AND f.job_id = u.job_id AND f.url_key = u.url_key
        RETURNING f.domain_id, f.job_id, f.state
    ), counts AS (
        SELECT domain_id, job_id, count(*) AS urls, count(*) FILTER (WHERE state = 'waiting') AS waiting,
               count(*) FILTER (WHERE state = 'done') AS done, count(*) FILTER (WHERE state = 'denied') AS denied,
               count(*) FILTER (WHERE state = 'failed') AS failed
        FROM deleted GROUP BY domain_id, job_id
    ), counted AS MATERIALIZED (
        SELECT urls, add_counts(domain_id, job_id, -waiting, -done, -denied, -failed) FROM counts ORDER BY domain_id, job_id
    )
    SELECT COALESCE(sum(urls), 0) INTO forgotten FROM counted;
    DELETE FROM crawled_pages p USING unnest(of_domains, of_jobs, keys) AS u(domain_id, job_id, url_key)
    WHERE p.domain_id = u.domain_id AND p.job_id = u.job_id AND p.url_key = u.url_key;
    DELETE FROM page_texts t USING unnest(of_domains, of_jobs, keys) AS u(domain_id, job_id, url_key)
    WHERE t.domain_id = u.domain_id AND t.job_id = u.job_id AND t.url_key = u.url_key;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION forget_urls IS
    'Delete URLs with their pages, texts, parses and items, and adjust the counts; how many URLs there were. Before: the domain rows are locked.';
