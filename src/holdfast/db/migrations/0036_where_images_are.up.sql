-- 0036: where images are: the URL that one was redirected to, and the folder that its file is in.

ALTER TABLE image_urls ADD COLUMN moved_to bytea CHECK (octet_length(moved_to) = 16);
COMMENT ON COLUMN image_urls.moved_to IS 'The key of the URL that it was redirected to when it was last fetched.';

ALTER TABLE images ADD COLUMN store_id varchar(32);
COMMENT ON COLUMN images.store_id IS
    'The folder in which its file was stored first, as the file store-id there names it. NULL: an S3-compatible store, or not known.';
