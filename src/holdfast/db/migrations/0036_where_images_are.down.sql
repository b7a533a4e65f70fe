-- Back from 0036. Pages that are met later wait for the URL that was redirected until it is fetched again.

ALTER TABLE image_urls DROP COLUMN moved_to;
ALTER TABLE images DROP COLUMN store_id;
