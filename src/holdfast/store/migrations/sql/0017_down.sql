-- Without its column a wake would ask for all pages again.
DELETE FROM domain_wakes WHERE retry IS NOT NULL;
ALTER TABLE domain_wakes DROP COLUMN retry;
ALTER TABLE domains DROP COLUMN retried_at;
DROP TABLE job_seed_files;
DROP TABLE job_seeds;
