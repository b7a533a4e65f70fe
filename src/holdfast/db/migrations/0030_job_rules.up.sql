-- 0030: the rules of a job as versions, and the judging of its stored URLs by them.

-- A row is one version of a job's rules.
CREATE TABLE job_rules (
    job_id       bigint NOT NULL REFERENCES crawl_jobs ON DELETE CASCADE,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    version      integer NOT NULL CHECK (version >= 0),
    restores     integer CHECK (restores < version),
    depth_limit  smallint NOT NULL CHECK (depth_limit >= 0),
    registrable  boolean NOT NULL,
    actor        text,
    rules        jsonb NOT NULL,
    PRIMARY KEY (job_id, version)
);
COMMENT ON TABLE job_rules IS 'The rules of jobs that were edited: scope, include, exclude and max_depth. Version 0 is what the job was created with.';
COMMENT ON COLUMN job_rules.restores IS 'Not NULL: an undo made it, and these are the rules of that version.';
COMMENT ON COLUMN job_rules.depth_limit IS 'What stored URLs are judged by: max_depth of the rules, or that of the settings at the time of the edit.';
COMMENT ON COLUMN job_rules.registrable IS 'domains.registrable of the settings at the time of the edit: which URLs belong to a domain.';

ALTER TABLE crawl_jobs ADD COLUMN rules_version integer NOT NULL DEFAULT 0, ADD COLUMN rules_after bigint;
COMMENT ON COLUMN crawl_jobs.rules_version IS 'The version of its rules in job_rules; 0: they were never edited, and there may be no row.';
COMMENT ON COLUMN crawl_jobs.rules_after IS 'Not NULL: the rules were edited, and domains behind this id have not been told. A chunk at a time moves it on.';

-- Neither column is in an index: a flush stays a HOT update.
ALTER TABLE job_domains ADD COLUMN seeded boolean;
COMMENT ON COLUMN job_domains.seeded IS 'Whether a URL of depth 0 is there: a seed, or where it was redirected to. NULL: not known; new URLs make false unknown.';

ALTER TABLE domain_wakes ADD COLUMN by_rules boolean NOT NULL DEFAULT false, ADD CHECK (NOT by_rules OR again_after IS NOT NULL);
COMMENT ON COLUMN domain_wakes.by_rules IS 'The rules of the job were edited: URLs behind again_after are judged by its present ones.';
