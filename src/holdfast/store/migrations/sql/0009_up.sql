-- 0009: proxies, which domains use which of them, and their hourly limits.

CREATE TABLE proxies (
    id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    last_failure_at        timestamptz,
    next_try_at            timestamptz,
    proxy_port             integer NOT NULL,
    failure_count          integer NOT NULL DEFAULT 0,
    max_requests_per_hour  integer DEFAULT 1000,
    version                integer NOT NULL DEFAULT 1,
    is_active              boolean NOT NULL DEFAULT true,
    allow_private          boolean NOT NULL DEFAULT false,
    proxy_protocol         varchar(20) NOT NULL DEFAULT 'http',
    proxy_url              varchar(255) COLLATE "C" NOT NULL,
    proxy_username         varchar(255),
    proxy_password         text,
    disabled_by            varchar(20),
    last_error             text,
    country_code           varchar(2),
    city                   varchar(100),
    provider               varchar(100),
    monthly_cost           numeric(10, 2),

    CONSTRAINT proxy_known_once UNIQUE NULLS NOT DISTINCT (proxy_protocol, proxy_url, proxy_port, proxy_username),
    CONSTRAINT proxy_protocol_known CHECK (proxy_protocol IN ('http', 'https', 'socks5', 'socks5h')),
    CONSTRAINT proxy_port_sane CHECK (proxy_port BETWEEN 1 AND 65535),
    CONSTRAINT proxy_numbers_sane CHECK (failure_count >= 0 AND max_requests_per_hour > 0 AND monthly_cost >= 0),
    CONSTRAINT proxy_country_sane CHECK (country_code ~ '^[A-Z]{2}$'),
    CONSTRAINT proxy_login_whole CHECK (proxy_password IS NULL OR proxy_username IS NOT NULL),
    CONSTRAINT proxy_off_by_somebody CHECK (is_active = (disabled_by IS NULL) AND disabled_by IN ('operator', 'health'))
);
COMMENT ON TABLE proxies IS 'Proxies and their health. What went through them is counted in domain_proxies, and summed in proxy_totals.';
COMMENT ON COLUMN proxies.proxy_url IS 'The host: a name or an address.';
COMMENT ON COLUMN proxies.proxy_password IS 'A Fernet token. The key is not in the database.';
COMMENT ON COLUMN proxies.failure_count IS 'Failures in a row that were the fault of the proxy. From 5 on it is only tried now and then, from 10 on it is not active.';
COMMENT ON COLUMN proxies.next_try_at IS 'It failed too often: one request may try it then.';
COMMENT ON COLUMN proxies.disabled_by IS 'health: a success makes it active again. operator: only a person does.';
COMMENT ON COLUMN proxies.allow_private IS 'The operator knows that it has a private address.';
COMMENT ON COLUMN proxies.max_requests_per_hour IS 'In any hour, whoever uses it; null: no limit.';

CREATE TABLE domain_proxies (
    id                    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain_id             bigint NOT NULL REFERENCES domains ON DELETE CASCADE,
    proxy_id              bigint NOT NULL REFERENCES proxies ON DELETE CASCADE,
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    last_used_at          timestamptz,
    last_success_at       timestamptz,
    last_failure_at       timestamptz,
    next_try_at           timestamptz,
    success_count         bigint NOT NULL DEFAULT 0,
    total_failures        bigint NOT NULL DEFAULT 0,
    proxy_failures        bigint NOT NULL DEFAULT 0,
    requests              bigint NOT NULL DEFAULT 0,
    other_requests        bigint NOT NULL DEFAULT 0,
    bytes                 bigint NOT NULL DEFAULT 0,
    avg_response_time_ms  double precision,
    failure_count         integer NOT NULL DEFAULT 0,
    priority              integer NOT NULL DEFAULT 5,
    version               integer NOT NULL DEFAULT 1,
    is_active             boolean NOT NULL DEFAULT true,
    assigned              boolean NOT NULL DEFAULT true,
    disabled_by           varchar(20),
    last_error            text,

    CONSTRAINT unique_domain_proxy UNIQUE (domain_id, proxy_id),
    CONSTRAINT mapping_numbers_sane CHECK (success_count >= 0 AND total_failures >= 0 AND proxy_failures >= 0 AND failure_count >= 0
        AND other_requests >= 0 AND bytes >= 0 AND requests >= success_count + total_failures + proxy_failures AND priority BETWEEN 1 AND 10),
    CONSTRAINT mapping_off_by_somebody CHECK (is_active = (disabled_by IS NULL) AND disabled_by IN ('operator', 'health'))
) WITH (fillfactor = 75);
CREATE INDEX domain_proxies_proxy ON domain_proxies (proxy_id);
COMMENT ON TABLE domain_proxies IS 'The pool of a domain, and what went through each proxy there. Written by the holder of the domain, with the batch.';
COMMENT ON COLUMN domain_proxies.requests IS 'Rows of crawl_log. Those of them that were neither a success nor a failure were errors of the site.';
COMMENT ON COLUMN domain_proxies.other_requests IS 'For robots.txt; these are not in crawl_log.';
COMMENT ON COLUMN domain_proxies.failure_count IS 'Times in a row that the site refused this proxy. From 5 on the mapping is not active, and tried now and then.';
COMMENT ON COLUMN domain_proxies.proxy_failures IS 'Requests that did not get through the proxy: its fault, not that of the site.';
COMMENT ON COLUMN domain_proxies.assigned IS 'False: nobody assigned it; it was taken from the global pool.';

-- All of them null for most domains, so the hot row is as long as before.
ALTER TABLE domains
    ADD COLUMN proxy_use varchar(10),
    ADD COLUMN proxy_direct boolean,
    ADD COLUMN proxy_resolves boolean,
    ADD COLUMN proxy_country varchar(2),
    ADD COLUMN proxy_sticky interval,
    ADD CONSTRAINT proxy_use_known CHECK (proxy_use IN ('direct', 'pool', 'any')),
    ADD CONSTRAINT proxy_use_sane CHECK (proxy_country ~ '^[A-Z]{2}$' AND proxy_sticky > interval '0');
CREATE INDEX domains_proxied ON domains (id) WHERE proxy_use IS NOT NULL;
COMMENT ON COLUMN domains.proxy_use IS 'direct: no proxy. pool: those of domain_proxies. any: when these give none, any other. Null: as the settings say.';
COMMENT ON COLUMN domains.proxy_direct IS 'It may be asked without a proxy when none can be had.';
COMMENT ON COLUMN domains.proxy_resolves IS 'Names are handed to the proxy as they are; nobody here looks whether they are public.';
COMMENT ON COLUMN domains.proxy_sticky IS 'For so long the same proxy is used, as long as it can be.';

CREATE FUNCTION proxy_pause(failures integer, first interval, longest interval) RETURNS interval LANGUAGE sql IMMUTABLE AS $$
    SELECT LEAST(first * 2 ^ LEAST(failures - 5, 24), longest) WHERE failures >= 5
$$;
COMMENT ON FUNCTION proxy_pause IS 'How long nobody tries what has failed so many times in a row; null: it is still used.';

CREATE FUNCTION proxy_failures(before integer, worked boolean, streak integer, probes integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN worked THEN LEAST(streak, 5) WHEN before < 5 THEN LEAST(before + streak, 5) ELSE before + probes END
$$;
COMMENT ON FUNCTION proxy_failures IS 'Failures in a row after so many more. What fails while nobody is to use it any more belongs to the same incident; only a probe counts.';

CREATE TABLE proxy_blocks (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    proxy_id      bigint NOT NULL REFERENCES proxies ON DELETE CASCADE,
    counts_until  timestamptz NOT NULL,
    requests      integer NOT NULL CHECK (requests > 0)
);
CREATE INDEX proxy_blocks_proxy ON proxy_blocks (proxy_id, counts_until);
COMMENT ON TABLE proxy_blocks IS 'Requests that a worker may make through a proxy, taken from its hourly limit at once.';
COMMENT ON COLUMN proxy_blocks.counts_until IS 'An hour after the last moment at which one of them can reach the proxy.';

CREATE VIEW proxy_totals AS
SELECT p.id, COALESCE(sum(m.success_count), 0)::bigint AS success_count, COALESCE(sum(m.total_failures), 0)::bigint AS total_failures,
       COALESCE(sum(m.proxy_failures), 0)::bigint AS proxy_failures, COALESCE(sum(m.requests), 0)::bigint AS requests,
       COALESCE(sum(m.other_requests), 0)::bigint AS other_requests, COALESCE(sum(m.bytes), 0)::bigint AS bytes,
       sum(m.avg_response_time_ms * m.success_count) / NULLIF(sum(m.success_count) FILTER (WHERE m.avg_response_time_ms IS NOT NULL), 0)
           AS avg_response_time_ms,
       max(m.last_used_at) AS last_used_at, max(m.last_success_at) AS last_success_at,
       count(m.id) FILTER (WHERE m.assigned) AS domains
FROM proxies p LEFT JOIN domain_proxies m ON m.proxy_id = p.id GROUP BY p.id;
COMMENT ON VIEW proxy_totals IS 'What went through each proxy, over all domains.';
