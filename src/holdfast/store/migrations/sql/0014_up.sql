-- A job's figures were those of the runs that served it alone: what standing workers fetched for it counted nowhere.
ALTER TABLE job_domains ADD COLUMN pages bigint NOT NULL DEFAULT 0, ADD COLUMN errors bigint NOT NULL DEFAULT 0,
    ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
UPDATE job_domains jd SET pages = l.pages, errors = l.errors, bytes = l.bytes
FROM (SELECT domain_id, job_id, count(*) FILTER (WHERE outcome IN ('ok', 'not_modified')) AS pages,
             count(*) FILTER (WHERE outcome IN (
                 'client_error', 'login_wall', 'forbidden', 'captcha', 'rate_limited', 'unavailable', 'server_error', 'too_large',
                 'bad_encoding', 'bad_response', 'dns_failure', 'no_such_host', 'connection_failed', 'tls_failure', 'timeout',
                 'too_slow', 'address_refused')) AS errors,
             COALESCE(sum(bytes), 0)::bigint AS bytes
      FROM crawl_log GROUP BY domain_id, job_id) l
WHERE l.domain_id = jd.domain_id AND l.job_id = jd.job_id;
COMMENT ON COLUMN job_domains.pages IS 'Fetched in all crawls of the job, as the log says; errors and bytes likewise.';
