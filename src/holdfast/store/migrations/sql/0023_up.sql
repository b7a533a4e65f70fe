-- 0023: edits by people reach visits under way, and the delay in force is known.

ALTER TABLE domains
    ADD COLUMN settings_version integer NOT NULL DEFAULT 0,
    ADD COLUMN pace_delay_seconds real,
    ADD COLUMN pace_delay_source varchar(10);
ALTER TABLE crawl_jobs ADD COLUMN settings_version integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN domains.settings_version IS 'Rises with every edit of how the domain is crawled, its secrets and its pool included; a visit that began under another one ends. version rises with the status, too.';
COMMENT ON COLUMN domains.pace_delay_seconds IS 'The delay that next_request_at was computed with, so the last request was so long before it. NULL: by an earlier release of the program.';
COMMENT ON COLUMN domains.pace_delay_source IS 'What the delay came from: robots, domain, job, default or learnt.';
COMMENT ON COLUMN crawl_jobs.settings_version IS 'Rises with every change of the spec, the limits of the open crawl and the secrets; visits that began under another one end.';

-- Fires only where a statement names one of these columns: no flush, claim or release does.
CREATE FUNCTION settings_are_edited() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.settings_version = OLD.settings_version THEN
        NEW.settings_version := OLD.settings_version + 1;
    END IF;
    PERFORM pg_notify('holdfast_jobs', 'settings');
    RETURN NEW;
END
$$;
CREATE TRIGGER domains_edited BEFORE UPDATE OF
        base_url, crawl_delay_seconds, max_concurrent_requests, parser_name, parser_chosen, user_agent, is_active, max_pages_per_run,
        max_pages_is_limit, default_crawl_frequency, maintenance_window, strip_params, proxy_use, proxy_direct, proxy_resolves,
        proxy_country, proxy_sticky, settings_version ON domains
    FOR EACH ROW WHEN (
        (OLD.base_url, OLD.crawl_delay_seconds, OLD.max_concurrent_requests, OLD.parser_name, OLD.parser_chosen, OLD.user_agent,
         OLD.is_active, OLD.max_pages_per_run, OLD.max_pages_is_limit, OLD.default_crawl_frequency, OLD.maintenance_window,
         OLD.strip_params, OLD.proxy_use, OLD.proxy_direct, OLD.proxy_resolves, OLD.proxy_country, OLD.proxy_sticky, OLD.settings_version)
        IS DISTINCT FROM
        (NEW.base_url, NEW.crawl_delay_seconds, NEW.max_concurrent_requests, NEW.parser_name, NEW.parser_chosen, NEW.user_agent,
         NEW.is_active, NEW.max_pages_per_run, NEW.max_pages_is_limit, NEW.default_crawl_frequency, NEW.maintenance_window,
         NEW.strip_params, NEW.proxy_use, NEW.proxy_direct, NEW.proxy_resolves, NEW.proxy_country, NEW.proxy_sticky, NEW.settings_version))
    EXECUTE FUNCTION settings_are_edited();
CREATE TRIGGER crawl_jobs_edited BEFORE UPDATE OF spec, settings_version ON crawl_jobs
    FOR EACH ROW WHEN ((OLD.spec, OLD.settings_version) IS DISTINCT FROM (NEW.spec, NEW.settings_version))
    EXECUTE FUNCTION settings_are_edited();

-- Proxies for all domains: their version is raised by people only, never by what goes through them.
CREATE FUNCTION tell_of_proxies() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('holdfast_jobs', 'proxies');
    RETURN NULL;
END
$$;
CREATE TRIGGER proxies_tell AFTER INSERT OR DELETE ON proxies FOR EACH STATEMENT EXECUTE FUNCTION tell_of_proxies();
CREATE TRIGGER proxies_edited AFTER UPDATE OF version ON proxies
    FOR EACH ROW WHEN (OLD.version IS DISTINCT FROM NEW.version) EXECUTE FUNCTION tell_of_proxies();
