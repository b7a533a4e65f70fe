UPDATE url_frontier SET priority = 1 WHERE priority = 0;
ALTER TABLE url_frontier DROP CONSTRAINT url_frontier_priority_check,
    ADD CONSTRAINT url_frontier_priority_check CHECK (priority BETWEEN 1 AND 12);
-- Images that were stored are forgotten; their files stay until they are deleted by hand.
DELETE FROM domain_wakes WHERE images_stored > 0;
ALTER TABLE domain_wakes DROP COLUMN images_stored;
UPDATE domains SET images_stored = 0 WHERE images_stored > 0;
DROP TABLE domain_images, image_links, image_urls;
TRUNCATE provenance, images;
ALTER TABLE provenance
    DROP CONSTRAINT image_is_known_once_on_a_page,
    DROP COLUMN last_seen_at, DROP COLUMN job_id, DROP COLUMN page_key, DROP COLUMN image_key, DROP COLUMN image_url, DROP COLUMN alt,
    DROP COLUMN found_in;
ALTER TABLE provenance RENAME COLUMN first_seen_at TO seen_at;
ALTER TABLE provenance
    ADD CONSTRAINT provenance_domain_id_fkey FOREIGN KEY (domain_id) REFERENCES domains ON DELETE CASCADE,
    ADD CONSTRAINT provenance_image_id_fkey FOREIGN KEY (image_id) REFERENCES images ON DELETE CASCADE;
CREATE INDEX provenance_domain ON provenance (domain_id);
COMMENT ON TABLE provenance IS 'On which page of which domain an image was seen.';
DROP INDEX images_bands, images_near, images_format;
DROP FUNCTION image_bands;
ALTER TABLE images
    DROP COLUMN stored_at, DROP COLUMN size, DROP COLUMN dhash, DROP COLUMN near_duplicate_of, DROP COLUMN width, DROP COLUMN height,
    DROP COLUMN frames, DROP COLUMN animated, DROP COLUMN format, DROP COLUMN media_type, DROP COLUMN file;
COMMENT ON TABLE images IS NULL;
