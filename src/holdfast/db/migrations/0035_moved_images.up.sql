-- 0035: images that were redirected: a page that is met later shows what the URL led to at last.

ALTER TABLE image_urls ADD COLUMN moved_to bytea CHECK (octet_length(moved_to) = 16);
COMMENT ON COLUMN image_urls.moved_to IS 'The key of the URL that it was redirected to when it was last fetched.';
