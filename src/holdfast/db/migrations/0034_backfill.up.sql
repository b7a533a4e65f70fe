-- 0034: history of other tools: what it adds to the counters of domains, and how far each import is.

-- A row is what rows that are not in the log add to the counters of a domain, for one job.
-- No foreign key: as the log, it stays when its domain is removed.
CREATE TABLE crawl_log_rollups (
    domain_id      bigint NOT NULL,
    job_id         bigint NOT NULL DEFAULT 0,
    requests       bigint NOT NULL DEFAULT 0 CHECK (requests >= 0),
    discovered     bigint NOT NULL DEFAULT 0 CHECK (discovered >= 0),
    pages          bigint NOT NULL DEFAULT 0 CHECK (pages >= 0),
    errors         bigint NOT NULL DEFAULT 0 CHECK (errors >= 0),
    images_found   bigint NOT NULL DEFAULT 0 CHECK (images_found >= 0),
    images_stored  bigint NOT NULL DEFAULT 0 CHECK (images_stored >= 0),
    first_at       timestamptz,
    last_at        timestamptz,
    PRIMARY KEY (domain_id, job_id)
);
COMMENT ON TABLE crawl_log_rollups IS 'Sums of log rows that are not in crawl_log: counter of a domain = roll-up + log.';
COMMENT ON COLUMN crawl_log_rollups.job_id IS '0: history of other tools, which belongs to no job.';

CREATE TYPE backfill_state AS ENUM ('reading', 'merging', 'finished');

-- A row is the import of one source: a file, a folder or a table.
CREATE TABLE backfill_imports (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity         bytea NOT NULL UNIQUE,
    started_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at      timestamptz,
    job_id           bigint,
    rows             bigint NOT NULL DEFAULT 0,
    bad              bigint NOT NULL DEFAULT 0,
    skipped          bigint NOT NULL DEFAULT 0,
    pages            bigint NOT NULL DEFAULT 0,
    errors           bigint NOT NULL DEFAULT 0,
    images_found     bigint NOT NULL DEFAULT 0,
    images_stored    bigint NOT NULL DEFAULT 0,
    domains_new      bigint NOT NULL DEFAULT 0,
    domains_updated  bigint NOT NULL DEFAULT 0,
    domains_merged   bigint NOT NULL DEFAULT 0,
    state            backfill_state NOT NULL DEFAULT 'reading',
    format           varchar(20) NOT NULL,
    source           text NOT NULL,
    position         jsonb,
    reasons          jsonb NOT NULL DEFAULT '{}',
    CHECK ((state = 'finished') = (finished_at IS NOT NULL))
);
COMMENT ON TABLE backfill_imports IS 'Sources that `holdfast backfill` has read, or is reading. Its counters are written with each chunk, and its position.';
COMMENT ON COLUMN backfill_imports.identity IS 'By which the source is known again: a hash of its content, or of its address.';
COMMENT ON COLUMN backfill_imports.position IS 'Where the next chunk begins; its form is the source''s.';
COMMENT ON COLUMN backfill_imports.rows IS 'Rows or records that were read; those of them that are bad or skipped count nowhere else.';
COMMENT ON COLUMN backfill_imports.reasons IS 'How many rows were bad or skipped, by reason.';
COMMENT ON COLUMN backfill_imports.domains_merged IS 'Domains that the source writes in more than one way.';
CREATE INDEX backfill_imports_source ON backfill_imports (source);

-- A row is what one import has read of a domain so far. It is moved to domains when the source is read to its end.
CREATE TABLE backfill_domains (
    import_id      bigint NOT NULL,
    domain         varchar(255) COLLATE "C" NOT NULL,
    requests       bigint NOT NULL,
    pages          bigint NOT NULL,
    errors         bigint NOT NULL,
    login          bigint NOT NULL,
    forbidden      bigint NOT NULL,
    rate_limited   bigint NOT NULL,
    server_errors  bigint NOT NULL,
    images_found   bigint NOT NULL,
    first_at       timestamptz,
    last_at        timestamptz,
    merged         boolean NOT NULL,
    spelling       text NOT NULL,
    parent_domain  varchar(255) COLLATE "C" NOT NULL,
    base_url       varchar(512) NOT NULL,
    PRIMARY KEY (import_id, domain)
) WITH (fillfactor = 70);
COMMENT ON TABLE backfill_domains IS 'Sums of a source that is being read, by canonical domain.';
COMMENT ON COLUMN backfill_domains.spelling IS 'The domain as the source writes it first; merged: it writes it in other ways, too.';

-- A row is an image of a domain in a source that is being read: each counts once, however often it was seen.
CREATE TABLE backfill_images (
    import_id  bigint NOT NULL,
    domain     varchar(255) COLLATE "C" NOT NULL,
    image_key  bytea NOT NULL,
    PRIMARY KEY (import_id, domain, image_key)
);
COMMENT ON TABLE backfill_images IS 'Images of a source that is being read, by canonical domain.';
