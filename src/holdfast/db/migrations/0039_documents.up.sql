-- 0039: documents: the main content of pages as Markdown, and how often each block of text stands on pages of a domain.

-- A row is the main content of a page, for jobs that ask for it.
CREATE TABLE documents (
    domain_id      bigint NOT NULL,
    job_id         bigint NOT NULL,
    changed        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    fetched_at     timestamptz NOT NULL,
    extracted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    published      date,
    words          integer NOT NULL CHECK (words >= 0),
    counted_pages  integer CHECK (counted_pages >= 0),
    url_key        bytea NOT NULL,
    extractor      varchar(100) NOT NULL,
    kind           varchar(20) NOT NULL,
    language       varchar(35),
    title          text,
    author         text,
    site_name      text,
    block_hashes   bigint[] NOT NULL,
    block_words    integer[] NOT NULL,
    heading_blocks integer[] NOT NULL,
    removed        integer[] NOT NULL DEFAULT '{}',
    body           bytea NOT NULL,
    PRIMARY KEY (domain_id, job_id, url_key),
    FOREIGN KEY (domain_id, job_id, url_key) REFERENCES crawled_pages ON DELETE CASCADE
);
ALTER TABLE documents ALTER COLUMN body SET STORAGE EXTERNAL;
COMMENT ON TABLE documents IS 'The main content of pages as Markdown, for jobs that ask for it.';
COMMENT ON COLUMN documents.changed IS 'The transaction that wrote the row last: what a search index has not seen yet is after its watermark.';
COMMENT ON COLUMN documents.extractor IS 'The version of the extraction.';
COMMENT ON COLUMN documents.block_hashes IS 'A hash for each block of the content, in its order; equal blocks of other pages have the same one.';
COMMENT ON COLUMN documents.block_words IS 'The words of each block.';
COMMENT ON COLUMN documents.heading_blocks IS 'The blocks (from 0) that are headings.';
COMMENT ON COLUMN documents.removed IS 'The blocks (from 0) that are left out when the document is read, since they stand on many pages of the domain.';
COMMENT ON COLUMN documents.counted_pages IS 'How many documents of the domain were counted when that was decided; NULL: not decided yet.';
COMMENT ON COLUMN documents.body IS 'JSON of the content with its blocks and headings, compressed by zstd.';
CREATE INDEX documents_changed ON documents (changed, domain_id, job_id, url_key);
CREATE INDEX documents_undecided ON documents (domain_id) WHERE counted_pages IS NULL;

-- A row is a document that was deleted: a search index that has it must remove it.
CREATE TABLE document_deletions (
    changed     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    deleted_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    domain_id   bigint NOT NULL,
    job_id      bigint NOT NULL,
    url_key     bytea NOT NULL
);
COMMENT ON TABLE document_deletions IS 'Documents that were deleted lately. An index that was not updated for longer is built anew.';
CREATE INDEX document_deletions_changed ON document_deletions (changed, domain_id, job_id, url_key);
CREATE INDEX document_deletions_age ON document_deletions (deleted_at);

CREATE FUNCTION note_deleted_documents() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO document_deletions (domain_id, job_id, url_key) SELECT domain_id, job_id, url_key FROM gone;
    RETURN NULL;
END
$$;
CREATE TRIGGER documents_deleted AFTER DELETE ON documents REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION note_deleted_documents();

-- One row: which store this is. What is derived from it elsewhere (indexes, caches) is made anew where that differs.
CREATE TABLE store_identity (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id          uuid NOT NULL DEFAULT gen_random_uuid(),
    generation  integer NOT NULL DEFAULT 1 CHECK (generation > 0)
);
COMMENT ON TABLE store_identity IS 'Which store this is, for files that are derived from it.';
COMMENT ON COLUMN store_identity.generation IS 'Rises when the store is restored from a backup or moved.';
INSERT INTO store_identity DEFAULT VALUES;

-- A row is a block of text that stands on several pages of a domain.
CREATE TABLE domain_blocks (
    domain_id   bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    block_hash  bigint NOT NULL,
    pages       integer NOT NULL CHECK (pages > 0),
    PRIMARY KEY (domain_id, block_hash)
);
COMMENT ON TABLE domain_blocks IS 'On how many documents of a domain a block of text stands, for the most frequent blocks.';

-- A row is a count of the blocks of a domain.
CREATE TABLE domain_block_counts (
    domain_id   bigint PRIMARY KEY REFERENCES domains ON DELETE CASCADE,
    documents   integer NOT NULL CHECK (documents >= 0),
    counted_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE domain_block_counts IS 'When the blocks of a domain were counted, and in how many documents.';
