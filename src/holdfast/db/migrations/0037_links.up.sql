-- 0037: links: what pages of jobs that ask for it link to, and what targets led to that are no page.

-- A row is a page with its links. Hot: no foreign keys (docs/adr/0020). One row a page and not one a link: docs/adr/0075.
CREATE TABLE page_links (
    domain_id  bigint NOT NULL,
    job_id     bigint NOT NULL,
    links      integer NOT NULL,
    cut        integer NOT NULL,
    url_key    bytea NOT NULL CHECK (octet_length(url_key) = 16),
    targets    bigint[] NOT NULL,
    body       bytea NOT NULL,
    places     bytea,
    PRIMARY KEY (domain_id, job_id, url_key)
);
ALTER TABLE page_links ALTER COLUMN targets SET STORAGE EXTERNAL, ALTER COLUMN body SET STORAGE EXTERNAL, ALTER COLUMN places SET STORAGE EXTERNAL;
COMMENT ON TABLE page_links IS 'The links of a page, of jobs that record links. Its address is in url_frontier under the same key.';
COMMENT ON COLUMN page_links.cut IS 'Links beyond crawl.links_per_page, which are not recorded.';
COMMENT ON COLUMN page_links.targets IS 'Which URLs it links to, without itself: the first 64 bits of their keys.';
COMMENT ON COLUMN page_links.body IS 'The links in their order: JSON, compressed by zstd before it comes here.';
COMMENT ON COLUMN page_links.places IS 'CRC-32 of the ids that fragments of links can name. NULL: they are not known.';
-- Pages that link to a URL. A list of pending entries makes the commit half as dear; a look-up reads it, at most 1 MB.
CREATE INDEX page_links_targets ON page_links USING gin (targets) WITH (fastupdate = on, gin_pending_list_limit = 1024);
CREATE INDEX page_links_job ON page_links (job_id, domain_id, url_key);

CREATE FUNCTION target_number(url_key bytea) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT ('x' || encode(substr(url_key, 1, 8), 'hex'))::bit(64)::bigint
$$;
COMMENT ON FUNCTION target_number IS 'The number of a URL in page_links.targets, as `model/page_links.target_number` makes it.';

-- A row is a URL whose last answer is an error or a redirect.
CREATE TABLE link_answers (
    domain_id    bigint NOT NULL,
    job_id       bigint NOT NULL,
    answered_at  timestamptz NOT NULL,
    status       smallint,
    checked      boolean NOT NULL,
    url_key      bytea NOT NULL CHECK (octet_length(url_key) = 16),
    outcome      varchar(50) NOT NULL,
    url          text NOT NULL,
    detail       text,
    moved_to     text,
    PRIMARY KEY (domain_id, job_id, url_key)
);
COMMENT ON TABLE link_answers IS 'What a URL led to that is no page, of jobs that record links: an error, a refusal, or a redirect. All others have no row.';
COMMENT ON COLUMN link_answers.checked IS 'It was only checked, for the links to it: its key is that of a check.';
COMMENT ON COLUMN link_answers.moved_to IS 'The target of a redirect.';
CREATE INDEX link_answers_job ON link_answers (job_id, domain_id, url_key);

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
    DELETE FROM page_links l USING unnest(of_domains, of_jobs, keys) AS u(domain_id, job_id, url_key)
    WHERE l.domain_id = u.domain_id AND l.job_id = u.job_id AND l.url_key = u.url_key;
    DELETE FROM link_answers a USING unnest(of_domains, of_jobs, keys) AS u(domain_id, job_id, url_key)
    WHERE a.domain_id = u.domain_id AND a.job_id = u.job_id AND a.url_key = u.url_key;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION forget_urls IS
    'Delete URLs with their pages, links, sitemaps, versions, texts, parses and items, and adjust the counts; how many URLs there were. Before: the domain rows are locked.';

-- Targets out of scope that are fetched once, for the links to them.
ALTER TYPE url_resource ADD VALUE 'check';
