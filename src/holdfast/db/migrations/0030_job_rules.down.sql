-- Else they would be taken for resets. What they had not reached yet stays as it was.
DELETE FROM domain_wakes WHERE by_rules;
ALTER TABLE domain_wakes DROP COLUMN by_rules;
ALTER TABLE job_domains DROP COLUMN seeded;
ALTER TABLE crawl_jobs DROP COLUMN rules_version, DROP COLUMN rules_after;
DROP TABLE job_rules;
