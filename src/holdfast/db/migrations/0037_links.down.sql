-- Back from 0037. Links are forgotten, and so are checks of targets that are not in the scope of their job.

CREATE OR REPLACE FUNCTION forget_urls(of_domains bigint[], of_jobs bigint[], keys bytea[]) RETURNS bigint LANGUAGE plpgsql AS $$
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
    DELETE FROM sitemaps s USING unnest(of_domains, of_jobs, keys) AS u(domain_id, job_id, url_key)
    WHERE s.domain_id = u.domain_id AND s.job_id = u.job_id AND s.url_key = u.url_key;
    DELETE FROM page_versions v USING unnest(of_domains, of_jobs, keys) AS u(domain_id, job_id, url_key)
    WHERE v.domain_id = u.domain_id AND v.job_id = u.job_id AND v.url_key = u.url_key;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION forget_urls IS
    'Delete URLs with their pages, sitemaps, versions, texts, parses and items, and adjust the counts; how many URLs there were. Before: the domain rows are locked.';

SELECT count(forget_urls(ARRAY[domain_id], ARRAY[job_id], ARRAY[url_key])) FROM url_frontier WHERE resource = 'check';
DROP TABLE page_links, link_answers;
DROP FUNCTION target_number;
DROP INDEX url_frontier_images, url_frontier_sitemaps;
ALTER TYPE url_resource RENAME TO url_resource_before;
CREATE TYPE url_resource AS ENUM ('page', 'sitemap', 'image');
ALTER TABLE url_frontier ALTER COLUMN resource TYPE url_resource USING resource::text::url_resource;
DROP TYPE url_resource_before;
CREATE INDEX url_frontier_sitemaps ON url_frontier (domain_id, job_id, url_key) WHERE resource = 'sitemap';
CREATE INDEX url_frontier_images ON url_frontier (domain_id, job_id, url_key) WHERE resource = 'image';
