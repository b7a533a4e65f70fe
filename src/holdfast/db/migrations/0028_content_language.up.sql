-- 0028: the language of a page.

ALTER TABLE crawled_pages ADD COLUMN content_language text;
COMMENT ON COLUMN crawled_pages.content_language IS
    'From <html lang>, else from the header Content-Language: as sent, in lower case, at most 35 characters.';
