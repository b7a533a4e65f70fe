-- Rounds of a crawl, and limits that a person gave.
-- The default number of pages of a domain was a limit; now it is a share of a round, after which others have their turn.

ALTER TABLE crawls
    ADD COLUMN max_rounds integer CHECK (max_rounds > 0),
    ADD COLUMN round_below bigint;
COMMENT ON COLUMN crawls.max_rounds IS 'Shares that a domain may use in this crawl, if a person limited them.';
COMMENT ON COLUMN crawls.round IS 'Raised by compare-and-set when nothing of the job is ready; spent rows of older rounds are reopened in chunks.';
COMMENT ON COLUMN crawls.round_below IS 'Under max_pages: only domains with fewer granted pages take part in this round. NULL: all.';

ALTER TABLE job_domains
    ADD COLUMN round integer NOT NULL DEFAULT 0,
    ADD COLUMN round_start bigint NOT NULL DEFAULT 0 CHECK (round_start >= 0),
    ADD COLUMN limit_reached text CHECK (limit_reached IN ('max_pages_per_domain', 'rounds', 'domain_budget')),
    ADD COLUMN yielded_until timestamptz;
COMMENT ON COLUMN job_domains.round IS 'The round of its crawl that it takes part in.';
COMMENT ON COLUMN job_domains.round_start IS 'budget_used when its present share began.';
COMMENT ON COLUMN job_domains.limit_reached IS 'The limit of a person that ended it. Spent without one: its share is used, or max_pages.';
COMMENT ON COLUMN job_domains.yielded_until IS 'It gave way to another job on this domain, which may claim first until then.';
-- What waits for a round, and what an earlier crawl or round left. A flush writes crawl_id, but changes it only with the crawl.
CREATE INDEX job_domains_spent ON job_domains (job_id, crawl_id, limit_reached, round, domain_id) WHERE state = 'spent';

ALTER TABLE domains ADD COLUMN max_pages_is_limit boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN domains.max_pages_is_limit IS 'A person set max_pages_per_run: a crawl ends there. False: it is only the size of a share.';
UPDATE domains SET max_pages_is_limit = true WHERE max_pages_per_run <> 1000;

UPDATE job_domains jd SET budget_limit = NULL FROM domains d
WHERE d.id = jd.domain_id AND NOT d.max_pages_is_limit AND jd.budget_limit IS NOT NULL
  AND NOT EXISTS (SELECT FROM crawls c WHERE c.id = jd.crawl_id AND c.max_pages_per_domain IS NOT NULL);
UPDATE job_domains jd SET limit_reached = CASE WHEN EXISTS (
    SELECT FROM crawls c WHERE c.id = jd.crawl_id AND c.max_pages_per_domain IS NOT NULL) THEN 'max_pages_per_domain' ELSE 'domain_budget' END
WHERE jd.state = 'spent' AND jd.budget_used >= jd.budget_limit;
