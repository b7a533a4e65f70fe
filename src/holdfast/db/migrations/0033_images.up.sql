-- 0033: images: what they are, which URL led to which, and on which pages they were seen. Their bytes are files (`archive/image_store`).

-- No row was ever written before this step.
ALTER TABLE images
    ADD COLUMN stored_at          timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN size               bigint NOT NULL DEFAULT 0 CHECK (size >= 0),
    ADD COLUMN dhash              bigint,
    ADD COLUMN near_duplicate_of  bigint,
    ADD COLUMN width              integer CHECK (width > 0),
    ADD COLUMN height             integer CHECK (height > 0),
    ADD COLUMN frames             integer NOT NULL DEFAULT 1 CHECK (frames > 0),
    ADD COLUMN animated           boolean NOT NULL DEFAULT false,
    ADD COLUMN format             varchar(10),
    ADD COLUMN media_type         varchar(50),
    ADD COLUMN file               text;
COMMENT ON TABLE images IS 'An image by its content. Its bytes are a file, which is on disk before the row.';
COMMENT ON COLUMN images.file IS 'Its key in the store of images: ab/cd/<sha256>.<extension>.';
COMMENT ON COLUMN images.dhash IS 'A hash of its first frame that changes little when the image does. NULL: it is too small or too even.';
COMMENT ON COLUMN images.near_duplicate_of IS 'The earlier image that it looks like, which is itself like none before it.';

-- The bands of a hash, as `model/image.band_keys` cuts it: hashes that differ in few bits have one band that differs in fewer.
CREATE FUNCTION image_bands(dhash bigint) RETURNS integer[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT ARRAY[((dhash >> 42) & 4194303)::integer, 4194304 | ((dhash >> 21) & 2097151)::integer, 8388608 | (dhash & 2097151)::integer]
$$;
COMMENT ON FUNCTION image_bands IS 'The three bands of a hash as keys, by which near ones are found.';
-- Not with a list of pending entries, which every look-up would have to read.
CREATE INDEX images_bands ON images USING gin (image_bands(dhash)) WITH (fastupdate = off) WHERE dhash IS NOT NULL AND near_duplicate_of IS NULL;
CREATE INDEX images_near ON images (near_duplicate_of, id) WHERE near_duplicate_of IS NOT NULL;
CREATE INDEX images_format ON images (format, id);

-- A row is a URL of an image.
CREATE TABLE image_urls (
    fetched_at  timestamptz,
    image_id    bigint,
    url_key     bytea PRIMARY KEY CHECK (octet_length(url_key) = 16),
    url         text NOT NULL,
    problem     varchar(50),
    detail      text
) WITH (fillfactor = 80);
COMMENT ON TABLE image_urls IS 'A URL of an image, for all pages that have it, and the image that it led to at last.';
COMMENT ON COLUMN image_urls.image_id IS 'NULL: it was not fetched yet, or led to no image that is stored.';
COMMENT ON COLUMN image_urls.problem IS 'Why what it led to is not stored.';
CREATE INDEX image_urls_image ON image_urls (image_id) WHERE image_id IS NOT NULL;

-- A row is an image on a page that waits until its URL is fetched.
CREATE TABLE image_links (
    domain_id       bigint NOT NULL,
    job_id          bigint NOT NULL,
    seen_at         timestamptz NOT NULL DEFAULT now(),
    image_key       bytea NOT NULL CHECK (octet_length(image_key) = 16),
    page_key        bytea NOT NULL CHECK (octet_length(page_key) = 16),
    discovery_type  text NOT NULL,
    page_url        text NOT NULL,
    alt             varchar(200) NOT NULL DEFAULT '',
    found_in        varchar(20) NOT NULL,
    PRIMARY KEY (image_key, domain_id, page_key)
);
COMMENT ON TABLE image_links IS 'An image on a page whose URL is not fetched yet; with the image it becomes a row of provenance.';
CREATE INDEX image_links_domain ON image_links (domain_id);

-- Hot: no foreign keys (docs/adr/0020). Who removes a domain deletes its rows, in chunks.
ALTER TABLE provenance RENAME COLUMN seen_at TO first_seen_at;
ALTER TABLE provenance
    ADD COLUMN last_seen_at  timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN job_id        bigint,
    ADD COLUMN page_key      bytea CHECK (octet_length(page_key) = 16),
    ADD COLUMN image_key     bytea CHECK (octet_length(image_key) = 16),
    ADD COLUMN image_url     text,
    ADD COLUMN alt           varchar(200) NOT NULL DEFAULT '',
    ADD COLUMN found_in      varchar(20);
UPDATE provenance SET page_key = substr(sha256(convert_to(source_page_url, 'UTF8')), 1, 16);
ALTER TABLE provenance
    ALTER COLUMN page_key SET NOT NULL,
    DROP CONSTRAINT provenance_domain_id_fkey,
    DROP CONSTRAINT provenance_image_id_fkey,
    ADD CONSTRAINT image_is_known_once_on_a_page UNIQUE (domain_id, image_id, page_key);
DROP INDEX provenance_domain;
COMMENT ON TABLE provenance IS 'An image that is stored, and a page on which it was seen.';
COMMENT ON COLUMN provenance.page_key IS 'The key of the page''s URL, as in url_frontier.url_key; image_key: that of the image''s URL at last.';
COMMENT ON COLUMN provenance.job_id IS 'The job that saw it first.';
COMMENT ON COLUMN provenance.found_in IS 'Where in the page: img, srcset, picture, lazy, svg, og:image, link or json-ld.';

-- A row is an image on a domain, however many of its pages have it.
CREATE TABLE domain_images (
    domain_id  bigint NOT NULL,
    image_id   bigint NOT NULL,
    PRIMARY KEY (domain_id, image_id)
);
COMMENT ON TABLE domain_images IS 'An image that pages of a domain have: what domains.images_stored counts.';

ALTER TABLE domain_wakes ADD COLUMN images_stored integer NOT NULL DEFAULT 0 CHECK (images_stored >= 0 AND (images_stored = 0 OR inserted = 0));
COMMENT ON COLUMN domain_wakes.images_stored IS 'Not 0: so many images of its pages were stored by workers that hold the domains of the images.';

-- Images have a lane of their own, below all pages. Valid for all rows there are: those of before have at least 1.
ALTER TABLE url_frontier DROP CONSTRAINT url_frontier_priority_check,
    ADD CONSTRAINT url_frontier_priority_check CHECK (priority BETWEEN 0 AND 12) NOT VALID;
