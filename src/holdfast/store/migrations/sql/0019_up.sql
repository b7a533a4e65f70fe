-- 0019: items that parsers find on the pages of a crawl.

CREATE TABLE page_parses (
    domain_id       bigint NOT NULL,
    job_id          bigint NOT NULL,
    fetched_at      timestamptz NOT NULL,
    parsed_at       timestamptz,
    archive_offset  bigint NOT NULL,
    archive_length  bigint NOT NULL,
    items           integer NOT NULL DEFAULT 0,
    attempts        smallint NOT NULL DEFAULT 0,
    due             boolean NOT NULL DEFAULT true,
    url_key         bytea NOT NULL,
    payload_digest  bytea NOT NULL,
    parser          varchar(100) NOT NULL,
    parser_version  varchar(100),
    archive_segment text NOT NULL,
    error           text,
    product_keys    bytea[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (domain_id, job_id, url_key, parser),
    -- Whoever deletes a page deletes its parses and their items, too: a parser may be about to write them.
    FOREIGN KEY (domain_id, job_id, url_key) REFERENCES crawled_pages ON DELETE CASCADE
) WITH (fillfactor = 80);
COMMENT ON TABLE page_parses IS 'Which parser is for a page of a crawl, and whether it has parsed it.';
COMMENT ON COLUMN page_parses.due IS 'The page waits for its parser. Set by the transaction that commits the page, cleared by the one that replaces its items.';
COMMENT ON COLUMN page_parses.archive_segment IS 'The answer that is parsed, and the fence: a result for another segment and offset is out of date.';
COMMENT ON COLUMN page_parses.fetched_at IS 'When that answer was fetched, by the database''s clock.';
COMMENT ON COLUMN page_parses.attempts IS 'Parses of this answer that failed.';
COMMENT ON COLUMN page_parses.error IS 'Why the last parse of this answer failed. What an earlier parse found stays.';
COMMENT ON COLUMN page_parses.product_keys IS 'The identity_key of each product of this answer.';
-- What is due lies in archives of several machines; a worker asks for its own.
CREATE INDEX page_parses_due ON page_parses (split_part(archive_segment, '/', 1), domain_id, job_id, url_key, parser) WHERE due;
CREATE INDEX page_parses_failed ON page_parses (domain_id, job_id, url_key) WHERE error IS NOT NULL;

CREATE TABLE items (
    domain_id       bigint NOT NULL,
    job_id          bigint NOT NULL,
    fetched_at      timestamptz NOT NULL,
    extracted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    position        integer NOT NULL CHECK (position >= 0),
    url_key         bytea NOT NULL,
    parser          varchar(100) NOT NULL,
    parser_version  varchar(100) NOT NULL,
    data            jsonb NOT NULL CHECK (jsonb_typeof(data) = 'object'),
    PRIMARY KEY (domain_id, url_key, job_id, parser, position),
    FOREIGN KEY (domain_id, job_id, url_key, parser) REFERENCES page_parses ON DELETE CASCADE
);
COMMENT ON TABLE items IS 'What a parser found on a page. The items of a page and a parser are replaced as a whole.';
CREATE INDEX items_job ON items (job_id, domain_id, url_key);

ALTER TABLE domains ADD COLUMN parser_chosen boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN domains.parser_chosen IS 'A person set parser_name: it parses the pages of crawls, too, not only those of tasks.';

ALTER TABLE products ALTER COLUMN last_task_id DROP NOT NULL;
ALTER TABLE product_prices ALTER COLUMN task_id DROP NOT NULL, ALTER COLUMN last_task_id DROP NOT NULL;
COMMENT ON COLUMN products.last_task_id IS 'No foreign key: that task may age out first. NULL: seen by a crawl.';
UPDATE products SET last_task_id = NULL WHERE last_task_id = 0;
UPDATE product_prices SET task_id = NULLIF(task_id, 0), last_task_id = NULLIF(last_task_id, 0) WHERE task_id = 0 OR last_task_id = 0;
