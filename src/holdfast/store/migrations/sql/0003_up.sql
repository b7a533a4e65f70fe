-- 0003: tasks: one URL each, crawled and parsed in two phases, usually again and again; their batches, their history, and who did what.

CREATE TYPE task_status AS ENUM (
    'pending', 'queued', 'crawling', 'downloaded', 'queued_parse', 'parsing', 'completed', 'failed', 'paused', 'cancelled');

CREATE TABLE crawl_batches (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        varchar(255) NOT NULL UNIQUE CHECK (name <> ''),
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  varchar(100) NOT NULL DEFAULT 'system'
);
COMMENT ON TABLE crawl_batches IS 'Tasks that somebody wants to speak of together, by a name.';

CREATE TABLE crawl_tasks (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No cascade: a domain may have a million tasks. Who deletes it deletes them first, in chunks.
    domain_id         bigint NOT NULL REFERENCES domains,
    scheduled_at      timestamptz NOT NULL DEFAULT now(),
    started_at        timestamptz,
    completed_at      timestamptz,
    next_crawl_at     timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    parent_task_id    bigint REFERENCES crawl_tasks ON DELETE SET NULL,
    previous_task_id  bigint,
    batch_id          bigint REFERENCES crawl_batches,
    claim_epoch       bigint,
    proxy_id          bigint,
    archive_offset    bigint,
    archive_length    bigint,
    status            task_status NOT NULL DEFAULT 'pending',
    version           integer NOT NULL DEFAULT 0,
    attempt           integer NOT NULL DEFAULT 0,
    recrawl_count     integer NOT NULL DEFAULT 0,
    response_time_ms  integer,
    priority          smallint NOT NULL DEFAULT 5,
    retry_count       smallint NOT NULL DEFAULT 0,
    max_retries       smallint NOT NULL DEFAULT 3,
    http_status_code  smallint,
    is_recurring      boolean NOT NULL DEFAULT true,
    frees_children    boolean NOT NULL DEFAULT false,
    crawl_frequency   interval NOT NULL DEFAULT '1 day',
    url_hash          bytea NOT NULL,
    archive_digest    bytea,
    waits_for         varchar(10),
    created_by        varchar(100) NOT NULL DEFAULT 'system',
    parser_name       varchar(100),
    parsed_by         varchar(100),
    parser_version    varchar(100),
    url               text NOT NULL,
    webhook_url       text,
    archive_segment   text,
    error_message     text,
    status_reason     text NOT NULL DEFAULT 'created',

    CONSTRAINT task_key_is_whole CHECK (octet_length(url_hash) = 16),
    CONSTRAINT task_priority_known CHECK (priority BETWEEN 1 AND 10),
    CONSTRAINT task_counts_sane CHECK (retry_count >= 0 AND max_retries BETWEEN 0 AND 20 AND recrawl_count >= 0 AND attempt >= 0),
    CONSTRAINT task_frequency_sane CHECK (crawl_frequency BETWEEN interval '1 second' AND interval '36500 days'),
    CONSTRAINT task_times_finite CHECK (isfinite(scheduled_at) AND isfinite(next_crawl_at)),
    CONSTRAINT task_archive_is_whole CHECK (num_nonnulls(archive_segment, archive_offset, archive_length, archive_digest) IN (0, 4)),
    CONSTRAINT task_end_has_time CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
    CONSTRAINT task_recurs_when_completed CHECK (next_crawl_at IS NULL OR status = 'completed'),
    CONSTRAINT task_waits_while_pending CHECK (waits_for IS NULL OR (status = 'pending' AND waits_for IN ('domain', 'parent'))),
    CONSTRAINT task_frees_when_completed CHECK (NOT frees_children OR status = 'completed'),
    CONSTRAINT task_is_not_its_parent CHECK (parent_task_id <> id),
    CONSTRAINT task_webhook_is_web CHECK (webhook_url ~ '^https?://' AND octet_length(webhook_url) <= 2048)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE crawl_tasks IS 'One crawl of one tracked URL. The next crawl of the same URL is the next row, so the history stays.';
COMMENT ON COLUMN crawl_tasks.url_hash IS 'The key of the normalized URL, as in url_frontier. Unique among tasks that are not completed, failed or cancelled.';
COMMENT ON COLUMN crawl_tasks.priority IS '1 comes first, 10 last.';
COMMENT ON COLUMN crawl_tasks.scheduled_at IS 'Not before then; while queued_parse: not parsed before then.';
COMMENT ON COLUMN crawl_tasks.retry_count IS 'Of the present phase: it starts anew when the page is there.';
COMMENT ON COLUMN crawl_tasks.attempt IS 'Rises whenever the task is handed to somebody (queued, parsing). A result under another number is refused.';
COMMENT ON COLUMN crawl_tasks.claim_epoch IS 'Under which claim it is being crawled; for display.';
COMMENT ON COLUMN crawl_tasks.next_crawl_at IS 'When the next row of this URL is due; NULL: never, or it is there already.';
COMMENT ON COLUMN crawl_tasks.previous_task_id IS 'The row before this one in the history of its URL. No foreign key: that row may age out first.';
COMMENT ON COLUMN crawl_tasks.waits_for IS 'Set aside by the schedule, so that it is not met again and again: its domain is inactive, or its parent not completed.';
COMMENT ON COLUMN crawl_tasks.frees_children IS 'Completed while tasks waited for it: the schedule takes those back.';
COMMENT ON COLUMN crawl_tasks.parser_name IS 'The parser that was asked for; NULL: the domain''s. parsed_by and parser_version say which one it was.';
COMMENT ON COLUMN crawl_tasks.status_reason IS 'Why it has this status: "what happened: detail".';

CREATE UNIQUE INDEX crawl_tasks_live ON crawl_tasks (url_hash) WHERE status NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX crawl_tasks_url ON crawl_tasks (url_hash, id);
CREATE INDEX crawl_tasks_due ON crawl_tasks (priority, scheduled_at, id) WHERE status = 'pending' AND waits_for IS NULL;
CREATE INDEX crawl_tasks_parse_due ON crawl_tasks (priority, scheduled_at, id) WHERE status = 'queued_parse';
CREATE INDEX crawl_tasks_recurring ON crawl_tasks (next_crawl_at) WHERE next_crawl_at IS NOT NULL;
CREATE INDEX crawl_tasks_status ON crawl_tasks (status, id);
CREATE INDEX crawl_tasks_domain ON crawl_tasks (domain_id, id);
CREATE INDEX crawl_tasks_failed ON crawl_tasks (domain_id, id) WHERE status = 'failed';
CREATE INDEX crawl_tasks_batch ON crawl_tasks (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX crawl_tasks_ended ON crawl_tasks (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX crawl_tasks_children ON crawl_tasks (parent_task_id) WHERE parent_task_id IS NOT NULL;
CREATE INDEX crawl_tasks_freeing ON crawl_tasks (id) WHERE frees_children;
CREATE INDEX crawl_tasks_aside ON crawl_tasks (domain_id) WHERE waits_for = 'domain';

-- No foreign key: it would lock the task's row once more for every event (15 of 68 us a change). A trigger deletes instead.
CREATE TABLE task_events (
    task_id      bigint NOT NULL,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim_epoch  bigint,
    version      integer NOT NULL,
    attempt      integer NOT NULL,
    from_status  task_status NOT NULL,
    to_status    task_status NOT NULL,
    why          text NOT NULL,
    PRIMARY KEY (task_id, version)
);
COMMENT ON TABLE task_events IS 'Every change of a task''s status, with its reason. Written by trigger, also for SQL by hand.';

-- The transition table. model/task.py holds the same one, and a test compares all 100 pairs.
CREATE FUNCTION task_transition_allowed(old task_status, new task_status) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE old
        WHEN 'pending'      THEN new IN ('queued', 'paused', 'cancelled')
        WHEN 'queued'       THEN new IN ('crawling', 'paused', 'cancelled')
        WHEN 'crawling'     THEN new IN ('downloaded', 'pending', 'failed', 'paused', 'cancelled')
        WHEN 'downloaded'   THEN new IN ('queued_parse', 'paused', 'cancelled')
        WHEN 'queued_parse' THEN new IN ('parsing', 'paused', 'cancelled')
        WHEN 'parsing'      THEN new IN ('completed', 'queued_parse', 'failed', 'paused', 'cancelled')
        WHEN 'completed'    THEN new IN ('pending', 'downloaded', 'cancelled')
        WHEN 'failed'       THEN new IN ('pending', 'downloaded', 'cancelled')
        WHEN 'paused'       THEN new IN ('pending', 'downloaded', 'cancelled')
        WHEN 'cancelled'    THEN new IN ('pending', 'downloaded')
    END
$$;

-- What follows from a status is written here and nowhere else, so that it also holds for SQL by hand.
CREATE FUNCTION task_status_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT task_transition_allowed(OLD.status, NEW.status) THEN
        RAISE EXCEPTION 'task %: a task that is % cannot become %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation',
                  HINT = 'Allowed from ' || OLD.status || ': '
                      || (SELECT string_agg(s::text, ', ') FROM unnest(enum_range(NULL::task_status)) s
                          WHERE task_transition_allowed(OLD.status, s)) || '.';
    END IF;
    -- Each reason of ours leads to one status only, so two changes in a row never have the same: the same text means none was given.
    IF NEW.status_reason IS NOT DISTINCT FROM OLD.status_reason THEN
        NEW.status_reason := 'manual: changed in SQL as ' || session_user;
    END IF;
    IF NEW.status IN ('queued', 'parsing') THEN
        NEW.attempt := OLD.attempt + 1;
    END IF;
    IF NEW.status = 'crawling' THEN
        NEW.started_at := clock_timestamp();
    ELSE
        NEW.claim_epoch := NULL;
        IF NEW.status = 'pending' THEN
            NEW.started_at := NULL;
        END IF;
    END IF;
    NEW.completed_at := CASE WHEN NEW.status IN ('completed', 'failed', 'cancelled') THEN clock_timestamp() END;
    NEW.next_crawl_at := CASE WHEN NEW.status = 'completed' AND NEW.is_recurring THEN NEW.completed_at + NEW.crawl_frequency END;
    NEW.waits_for := NULL;
    -- Any that is pending, set aside or not: the schedule may be about to set one aside at this moment, unseen from here.
    NEW.frees_children := NEW.status = 'completed'
        AND EXISTS (SELECT FROM crawl_tasks c WHERE c.parent_task_id = NEW.id AND c.status = 'pending');
    NEW.version := OLD.version + 1;
    INSERT INTO task_events (task_id, version, from_status, to_status, why, attempt, claim_epoch)
    VALUES (NEW.id, NEW.version, OLD.status, NEW.status, NEW.status_reason, NEW.attempt, COALESCE(NEW.claim_epoch, OLD.claim_epoch));
    RETURN NEW;
END
$$;
CREATE TRIGGER crawl_tasks_status BEFORE UPDATE OF status ON crawl_tasks
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION task_status_changes();
CREATE TRIGGER crawl_tasks_updated_at BEFORE UPDATE ON crawl_tasks FOR EACH ROW EXECUTE FUNCTION touch_updated_at();

CREATE FUNCTION task_is_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM task_events WHERE task_id = OLD.id;
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_tasks_deleted AFTER DELETE ON crawl_tasks FOR EACH ROW EXECUTE FUNCTION task_is_deleted();

CREATE TABLE audit_log (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor        varchar(100) NOT NULL CHECK (actor <> ''),
    action       varchar(50) NOT NULL,
    object_kind  varchar(30) NOT NULL,
    object_id    text NOT NULL,
    details      jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE audit_log IS 'Who created or changed what, when. Written in the transaction that does it; never changed.';
CREATE INDEX audit_log_object ON audit_log (object_kind, object_id, id);
CREATE INDEX audit_log_actor ON audit_log (actor, id);
