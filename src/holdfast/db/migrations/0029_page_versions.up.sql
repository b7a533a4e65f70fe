-- 0029: earlier versions of pages, and which pages were new in which crawl.

-- A row is an answer for a URL that another one with different content replaced.
CREATE TABLE page_versions (
    domain_id        bigint NOT NULL,
    job_id           bigint NOT NULL,
    crawl_id         bigint,
    crawled_at       timestamptz NOT NULL,
    replaced_at      timestamptz NOT NULL,
    content_length   bigint NOT NULL,
    archive_offset   bigint,
    archive_length   bigint,
    number           integer NOT NULL CHECK (number > 0),
    status           smallint,
    noindex          boolean NOT NULL,
    url_key          bytea NOT NULL,
    content_hash     bytea,
    payload_digest   bytea,
    change           varchar(10) NOT NULL CHECK (change IN ('changed', 'gone', 'failed', 'back')),
    outcome          varchar(50) NOT NULL,
    content_type     varchar(255),
    charset          varchar(50),
    archive_segment  text,
    title            text,
    PRIMARY KEY (domain_id, job_id, url_key, number),
    CHECK ((archive_segment IS NULL) = (archive_offset IS NULL) AND (archive_segment IS NULL) = (archive_length IS NULL))
);
COMMENT ON TABLE page_versions IS 'Answers for a URL before the one in crawled_pages: those that one with different content replaced, with where their bytes are.';
COMMENT ON COLUMN page_versions.number IS 'Of the versions of this URL, from 1; the answer in crawled_pages has the next one.';
COMMENT ON COLUMN page_versions.crawled_at IS 'When this content was answered for the last time.';
COMMENT ON COLUMN page_versions.replaced_at IS 'When the answer that replaced it was fetched.';
COMMENT ON COLUMN page_versions.crawl_id IS 'The crawl that replaced it.';
COMMENT ON COLUMN page_versions.change IS 'By what it was replaced: changed: by other content; gone: by "not found"; failed: by an error; back: it was "not found", and is a page again.';
-- What a crawl changed, by kind.
CREATE INDEX page_versions_crawl ON page_versions (crawl_id, change, domain_id, url_key, number);

ALTER TABLE crawled_pages ADD COLUMN new_in_crawl bigint;
COMMENT ON COLUMN crawled_pages.new_in_crawl IS
    'The crawl in which this URL became a page. NULL: the first crawl of its job, or it is not found.';
CREATE INDEX crawled_pages_new ON crawled_pages (new_in_crawl, domain_id, url_key) WHERE new_in_crawl IS NOT NULL;

-- Outcomes that are a page; "not modified" says that the page is as it was.
CREATE FUNCTION is_page(outcome text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT outcome IN ('ok', 'not_modified')
$$;

CREATE FUNCTION content_differs(
    one_hash bytea, one_digest bytea, one_length bigint, other_hash bytea, other_digest bytea, other_length bigint
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN one_hash IS NOT NULL AND other_hash IS NOT NULL THEN one_hash <> other_hash
                WHEN one_digest IS NOT NULL AND other_digest IS NOT NULL THEN one_digest <> other_digest
                ELSE one_length <> other_length END
$$;
COMMENT ON FUNCTION content_differs IS 'Whether two answers have different content: by the hash of the text, else of the bytes, else by their length.';

-- Of all ways to read the answer that an upsert replaces, a trigger is the one whose cost does not hang on the planner's statistics.
CREATE FUNCTION page_is_replaced() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept constant integer := COALESCE(NULLIF(current_setting('holdfast.page_versions', true), ''), '20')::integer;
    last page_versions%ROWTYPE;
    crawl bigint;
BEGIN
    IF kept = 0 THEN
        RETURN NEW;
    END IF;
    SELECT v.* INTO last FROM page_versions v
    WHERE v.domain_id = NEW.domain_id AND v.job_id = NEW.job_id AND v.url_key = NEW.url_key ORDER BY v.number DESC LIMIT 1;
    SELECT max(c.id) INTO crawl FROM crawls c WHERE c.job_id = NEW.job_id;
    IF NOT is_page(OLD.outcome) AND OLD.outcome <> 'not_found' THEN
        -- An error was in between. What it replaced is the last answer again, or is replaced only now.
        IF last.change = 'failed' THEN
            NEW.new_in_crawl := OLD.new_in_crawl;
            IF content_differs(last.content_hash, last.payload_digest, last.content_length,
                               NEW.content_hash, NEW.payload_digest, NEW.content_length) THEN
                UPDATE page_versions v SET change = 'changed', crawl_id = crawl, replaced_at = NEW.crawled_at
                WHERE v.domain_id = NEW.domain_id AND v.job_id = NEW.job_id AND v.url_key = NEW.url_key AND v.number = last.number;
            ELSE
                DELETE FROM page_versions v
                WHERE v.domain_id = NEW.domain_id AND v.job_id = NEW.job_id AND v.url_key = NEW.url_key AND v.number = last.number;
            END IF;
        END IF;
        RETURN NEW;
    END IF;
    IF NOT is_page(OLD.outcome) AND last.number IS NULL THEN
        RETURN NEW;  -- it was never a page before
    END IF;
    INSERT INTO page_versions (domain_id, job_id, url_key, number, replaced_at, crawl_id, change, crawled_at, status, outcome, title,
                               content_type, charset, content_length, content_hash, noindex, archive_segment, archive_offset,
                               archive_length, payload_digest)
    VALUES (OLD.domain_id, OLD.job_id, OLD.url_key, COALESCE(last.number, 0) + 1, NEW.crawled_at, crawl,
            CASE WHEN NOT is_page(OLD.outcome) THEN 'back' WHEN is_page(NEW.outcome) THEN 'changed'
                 WHEN NEW.outcome = 'not_found' THEN 'gone' ELSE 'failed' END,
            OLD.crawled_at, OLD.status, OLD.outcome, OLD.title, OLD.content_type, OLD.charset, OLD.content_length, OLD.content_hash,
            OLD.noindex, OLD.archive_segment, OLD.archive_offset, OLD.archive_length, OLD.payload_digest);
    IF last.number >= kept THEN
        DELETE FROM page_versions v WHERE v.domain_id = NEW.domain_id AND v.job_id = NEW.job_id AND v.url_key = NEW.url_key
        AND v.number <= last.number + 1 - kept;
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION page_is_replaced IS
    'Store the answer that is replaced as a version of its page. holdfast.page_versions is the number of versions to keep; 0: none is stored.';
CREATE TRIGGER crawled_pages_replaced BEFORE UPDATE ON crawled_pages FOR EACH ROW
    WHEN (NEW.outcome <> 'not_modified' AND CASE WHEN is_page(OLD.outcome)
          THEN NOT is_page(NEW.outcome) OR content_differs(OLD.content_hash, OLD.payload_digest, OLD.content_length,
                                                           NEW.content_hash, NEW.payload_digest, NEW.content_length)
          ELSE is_page(NEW.outcome) END)
    EXECUTE FUNCTION page_is_replaced();

-- A URL is (of_domains[n], of_jobs[n], keys[n]).
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
    DELETE FROM page_versions v USING unnest(of_domains, of_jobs, keys) AS u(domain_id, job_id, url_key)
    WHERE v.domain_id = u.domain_id AND v.job_id = u.job_id AND v.url_key = u.url_key;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION forget_urls IS
    'Delete URLs with their pages, versions, texts, parses and items, and adjust the counts; how many URLs there were. Before: the domain rows are locked.';
