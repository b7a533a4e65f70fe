ALTER TABLE job_domains DROP COLUMN pages, DROP COLUMN errors, DROP COLUMN bytes;
