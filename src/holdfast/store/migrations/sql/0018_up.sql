-- Headers, cookies and credentials of jobs and domains.

-- A row per kind ("headers", "cookies", "basic_auth"), so that one kind is replaced without opening another. The values are sealed with a
-- key that is not in the database; names and origins are in the clear, for people and for the choice of requests.
CREATE TABLE job_secrets (
    job_id   bigint NOT NULL REFERENCES crawl_jobs ON DELETE CASCADE,
    set_at   timestamptz NOT NULL DEFAULT now(),
    kind     varchar(20) NOT NULL CHECK (kind IN ('headers', 'cookies', 'basic_auth')),
    names    text[] NOT NULL,
    origins  text[] NOT NULL,
    sealed   text NOT NULL,
    PRIMARY KEY (job_id, kind)
);
COMMENT ON TABLE job_secrets IS 'What is sent with the requests of a job to exactly these origins, sealed.';

CREATE TABLE domain_secrets (
    domain_id  bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    set_at     timestamptz NOT NULL DEFAULT now(),
    kind       varchar(20) NOT NULL CHECK (kind IN ('headers', 'cookies', 'basic_auth')),
    names      text[] NOT NULL,
    origins    text[] NOT NULL,
    sealed     text NOT NULL,
    PRIMARY KEY (domain_id, kind)
);
COMMENT ON TABLE domain_secrets IS 'What is sent with the requests of all jobs to exactly these origins of a domain, sealed.';
