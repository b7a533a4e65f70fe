ALTER TABLE crawled_pages DROP COLUMN content_language;
