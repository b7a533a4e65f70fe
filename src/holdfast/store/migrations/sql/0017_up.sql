-- The seeds of a job, kept with it, and the files that they came from.
-- No foreign keys: a million rows come at once, and who deletes a job forgets its seeds in chunks.
CREATE TABLE job_seeds (
    job_id    bigint NOT NULL,
    url_key   bytea NOT NULL CHECK (octet_length(url_key) = 16),
    url       text NOT NULL,
    guessed   boolean NOT NULL DEFAULT false,
    seed_rank integer,
    PRIMARY KEY (job_id, url_key)
) WITH (autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE job_seeds IS 'Where a job begins. A job whose frontier is gone starts from these when a person or a schedule starts it.';
COMMENT ON COLUMN job_seeds.guessed IS 'No scheme was given: https is tried first, and http if nothing speaks TLS there.';
INSERT INTO job_seeds (job_id, url_key, url)
SELECT f.job_id, f.url_key, f.url FROM url_frontier f JOIN crawl_jobs j ON j.id = f.job_id
WHERE f.depth = 0 AND f.parent_key IS NULL AND j.kind = 'crawl' AND j.deleted_at IS NULL
ORDER BY f.job_id, f.url_key
ON CONFLICT DO NOTHING;

CREATE TABLE job_seed_files (
    mark    bytea PRIMARY KEY,
    job_id  bigint NOT NULL,
    path    text NOT NULL,
    content bytea NOT NULL
);
CREATE INDEX job_seed_files_job ON job_seed_files (job_id);
CREATE INDEX job_seed_files_content ON job_seed_files (content);
COMMENT ON TABLE job_seed_files IS 'Files that jobs are known by: mark is a hash of the absolute path, scope, include, exclude and strip-param; content one of its seeds as last read, and the same.';

-- A person asks for another attempt.
ALTER TABLE domain_wakes ADD COLUMN retry text[], ADD CHECK (retry IS NULL OR again_after IS NOT NULL);
COMMENT ON COLUMN domain_wakes.retry IS 'Not NULL: a person asks for another attempt. What a failure made to wait waits no more, and URLs behind again_after that ended for one of these reasons wait again.';
ALTER TABLE domains ADD COLUMN retried_at timestamptz;
COMMENT ON COLUMN domains.retried_at IS 'When a person last asked for another attempt; 5 s after the one before at the earliest, so perhaps in the future.';
