-- consecutive_error_count is the streak that blocks again.
DROP FUNCTION transition_domain_status;
CREATE OR REPLACE FUNCTION domain_status_changes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    by_hand boolean := false;
BEGIN
    -- A reset by a person is allowed from every state, but it must take the claim away.
    IF NOT domain_transition_allowed(OLD.status, NEW.status)
       AND NOT (NEW.status = 'pending' AND NEW.status_reason LIKE 'reset%' AND NEW.claim_epoch > OLD.claim_epoch AND NEW.claimed_by IS NULL)
    THEN
        RAISE EXCEPTION 'domain %: a domain that is % cannot become %', OLD.domain, OLD.status, NEW.status
            USING ERRCODE = 'check_violation',
                  HINT = 'Allowed from ' || OLD.status || ': '
                      || (SELECT string_agg(s::text, ', ') FROM unnest(enum_range(NULL::domain_status)) s
                          WHERE s <> OLD.status AND domain_transition_allowed(OLD.status, s))
                      || '. To start over use: holdfast domain-reset ' || OLD.domain;
    END IF;
    -- Each event leads to one status only, so two changes in a row never have the same reason: the same text means none was given.
    IF NEW.status_reason IS NOT DISTINCT FROM OLD.status_reason THEN
        NEW.status_reason := 'manual: changed in SQL as ' || session_user;
        by_hand := true;
    END IF;
    -- Holdfast itself always says until when. A hand that does not means: until a hand says otherwise, or the usual refresh.
    IF NEW.status IN ('blocked', 'unreachable', 'exhausted') AND NEW.next_crawl_after IS NULL THEN
        NEW.next_crawl_after := CASE WHEN NEW.status = 'exhausted' THEN clock_timestamp() + NEW.default_crawl_frequency ELSE 'infinity' END;
        by_hand := true;
    END IF;
    IF by_hand THEN
        -- The next sweep makes its work ready, or not ready, as it now is. Where nothing is left to do, all pages are wanted again.
        INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after)
        SELECT NEW.id, jd.job_id, 0, CASE WHEN NEW.status IN ('pending', 'active')
            AND NOT bool_or(jd.state <> 'done') OVER () THEN ''::bytea END
        FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id
        WHERE jd.domain_id = NEW.id AND j.state NOT IN ('cancelled', 'failed') AND j.kind = 'crawl';
    END IF;
    IF NEW.status IN ('blocked', 'unreachable') THEN
        NEW.block_reason_code := COALESCE(NEW.block_reason_code, 'manual');
        NEW.first_blocked_at := COALESCE(NEW.first_blocked_at, clock_timestamp());
    ELSE
        NEW.block_reason_code := NULL;
        NEW.block_reason := NULL;
        IF NEW.status IN ('pending', 'active') THEN
            NEW.next_crawl_after := NULL;
            NEW.consecutive_error_count := CASE WHEN OLD.status = 'pending' THEN NEW.consecutive_error_count ELSE 0 END;
        END IF;
    END IF;
    NEW.version := OLD.version + 1;
    INSERT INTO domain_transitions (domain_id, version, from_status, to_status, reason, worker, claim_epoch)
    VALUES (NEW.id, NEW.version, OLD.status, NEW.status, NEW.status_reason, OLD.claimed_by, NEW.claim_epoch);
    RETURN NEW;
END
$$;

UPDATE domains SET consecutive_error_count = refusal_streak WHERE consecutive_error_count <> refusal_streak;
ALTER TABLE domains DROP COLUMN refusal_streak;
COMMENT ON COLUMN domains.consecutive_error_count IS NULL;
