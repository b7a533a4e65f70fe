-- 0032: sitemaps as URLs of the frontier.

CREATE TYPE url_resource AS ENUM ('page', 'sitemap', 'image');

-- No index names these columns, and a row of a page has no value in them.
ALTER TABLE url_frontier ADD COLUMN resource url_resource, ADD COLUMN listed boolean, ADD COLUMN lastmod timestamptz;
COMMENT ON COLUMN url_frontier.resource IS 'What the URL is expected to lead to. NULL: a page.';
COMMENT ON COLUMN url_frontier.listed IS 'True: a sitemap lists it. NULL: none that was read.';
COMMENT ON COLUMN url_frontier.lastmod IS 'When it was last changed, as its sitemap says.';

-- A row is a sitemap or a feed that a job has read.
CREATE TABLE sitemaps (
    domain_id  bigint NOT NULL,
    job_id     bigint NOT NULL,
    read_at    timestamptz NOT NULL,
    entries    bigint NOT NULL,
    skipped    bigint NOT NULL,
    bytes      bigint NOT NULL,
    url_key    bytea NOT NULL,
    format     varchar(20),
    problem    text,
    PRIMARY KEY (domain_id, job_id, url_key)
);
COMMENT ON TABLE sitemaps IS 'What was read from a sitemap, the last time. Its address is in url_frontier under the same key.';
COMMENT ON COLUMN sitemaps.entries IS 'URLs and sitemaps that it lists.';
COMMENT ON COLUMN sitemaps.skipped IS 'Entries that are no URL, or more than a sitemap may have.';
COMMENT ON COLUMN sitemaps.bytes IS 'Its size, unpacked.';
COMMENT ON COLUMN sitemaps.format IS 'urlset, index, rss, atom or text. NULL: it is none that can be read.';
COMMENT ON COLUMN sitemaps.problem IS 'Why it was read only in part, or not at all.';
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
