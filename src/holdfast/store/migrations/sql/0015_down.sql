-- Rounds of a crawl, and limits that a person gave.
ALTER TABLE domains DROP COLUMN max_pages_is_limit;
DROP INDEX job_domains_spent;
ALTER TABLE job_domains DROP COLUMN round, DROP COLUMN round_start, DROP COLUMN limit_reached, DROP COLUMN yielded_until;
ALTER TABLE crawls DROP COLUMN max_rounds, DROP COLUMN round_below;
COMMENT ON COLUMN crawls.round IS 'Under max_pages a domain that has used up its share waits for the next round.';
