-- The streak that blocks has a column of its own: consecutive_error_count counts every failure (000 §3.3). Neither is in an index.
ALTER TABLE domains ADD COLUMN refusal_streak integer NOT NULL DEFAULT 0 CONSTRAINT refusal_streak_not_negative CHECK (refusal_streak >= 0);
COMMENT ON COLUMN domains.refusal_streak IS
    'Refusals and failures to reach it in a row, also of its robots.txt: domains.max_errors of them end a visit and begin a cool-down.';
COMMENT ON COLUMN domains.consecutive_error_count IS 'Errors of every kind in a row among the rows of the log; a success sets it to 0.';
UPDATE domains SET refusal_streak = consecutive_error_count, consecutive_error_count = LEAST(consecutive_error_count, total_error_count)
WHERE consecutive_error_count > 0;

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
            IF OLD.status <> 'pending' THEN
                NEW.consecutive_error_count := 0;
                NEW.refusal_streak := 0;
            END IF;
        END IF;
    END IF;
    NEW.version := OLD.version + 1;
    INSERT INTO domain_transitions (domain_id, version, from_status, to_status, reason, worker, claim_epoch)
    VALUES (NEW.id, NEW.version, OLD.status, NEW.status, NEW.status_reason, OLD.claimed_by, NEW.claim_epoch);
    RETURN NEW;
END
$$;

-- 000 §7.2, and what Holdfast itself changes a status by. The matrix is the one of the trigger, which also keeps the history.
CREATE FUNCTION transition_domain_status(
    p_domain_id bigint, p_from_status domain_status, p_to_status domain_status, p_worker_id varchar DEFAULT NULL,
    p_expected_version integer DEFAULT NULL, p_reason text DEFAULT NULL, p_next_crawl_after timestamptz DEFAULT NULL,
    p_block_reason_code varchar DEFAULT NULL, p_block_reason text DEFAULT NULL
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    is_reset boolean := p_to_status = 'pending' AND COALESCE(p_reason LIKE 'reset%', false);
BEGIN
    IF NOT domain_transition_allowed(p_from_status, p_to_status) AND NOT is_reset THEN
        RAISE EXCEPTION 'Invalid transition: % -> %', p_from_status, p_to_status USING ERRCODE = 'check_violation';
    END IF;
    -- A reset takes the claim away, as the trigger demands; all else leaves it.
    UPDATE domains SET
        status = p_to_status,
        status_reason = COALESCE(p_reason, status_reason),
        next_crawl_after = CASE WHEN p_to_status IN ('pending', 'active') THEN NULL ELSE COALESCE(p_next_crawl_after, next_crawl_after) END,
        block_reason_code = COALESCE(p_block_reason_code, block_reason_code),
        block_reason = COALESCE(p_block_reason, block_reason),
        claim_epoch = claim_epoch + CASE WHEN is_reset THEN 1 ELSE 0 END,
        claimed_by = CASE WHEN is_reset THEN NULL ELSE claimed_by END,
        claim_expires_at = CASE WHEN is_reset THEN NULL ELSE claim_expires_at END
    WHERE id = p_domain_id AND status = p_from_status
      AND (p_worker_id IS NULL OR claimed_by = p_worker_id) AND (p_expected_version IS NULL OR version = p_expected_version);
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION transition_domain_status IS
    'Change a domain''s status if it is still as expected; whether it was. NULL as worker or version: whichever it is.';
