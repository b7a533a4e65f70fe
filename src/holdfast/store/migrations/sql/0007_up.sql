-- 0007: webhooks: what is to be told to whom, and what came of it; maintenance windows as long as people write them.

-- Longer than before, so no row is looked at.
ALTER TABLE domains ALTER COLUMN maintenance_window TYPE varchar(4000);

CREATE TABLE webhook_endpoints (
    url          text PRIMARY KEY,
    rest_until   timestamptz,
    disabled_at  timestamptz,
    reason       text,

    CONSTRAINT endpoint_off_has_reason CHECK (disabled_at IS NULL OR reason IS NOT NULL)
);
COMMENT ON TABLE webhook_endpoints IS 'Receivers that there is something to say about; others have no row.';
COMMENT ON COLUMN webhook_endpoints.rest_until IS 'It did not answer, or asked for time: nothing is sent there before.';
COMMENT ON COLUMN webhook_endpoints.disabled_at IS 'It wants no more messages (410 Gone), until a person has one sent again.';

-- No foreign key to the task: it may age out before somebody was told of its end.
CREATE TABLE webhook_deliveries (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id          bigint NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_attempt_at  timestamptz DEFAULT clock_timestamp(),
    last_attempt_at  timestamptz,
    delivered_at     timestamptz,
    gave_up_at       timestamptz,
    message_id       uuid NOT NULL DEFAULT gen_random_uuid(),
    task_version     integer NOT NULL,
    attempts         integer NOT NULL DEFAULT 0,
    attempts_before  integer NOT NULL DEFAULT 0,
    last_status      smallint,
    sending          boolean NOT NULL DEFAULT false,
    event            varchar(50) NOT NULL,
    url              text NOT NULL,
    last_error       text,
    body             jsonb NOT NULL,

    CONSTRAINT delivery_once_a_task_end UNIQUE (task_id, task_version),
    CONSTRAINT delivery_counts_sane CHECK (attempts_before BETWEEN 0 AND attempts),
    CONSTRAINT delivery_waits_or_has_ended CHECK (num_nonnulls(next_attempt_at, delivered_at, gave_up_at) = 1),
    CONSTRAINT delivery_sent_while_waiting CHECK (NOT sending OR next_attempt_at IS NOT NULL)
) WITH (fillfactor = 80);
COMMENT ON TABLE webhook_deliveries IS 'The outbox: one message for each end of a task that has a webhook. Written by trigger, in the transaction that ends the task.';
COMMENT ON COLUMN webhook_deliveries.message_id IS 'What receivers know it by; the same in every attempt.';
COMMENT ON COLUMN webhook_deliveries.attempts IS 'Attempts that were begun. It never goes back: the end of an attempt under an older number is refused.';
COMMENT ON COLUMN webhook_deliveries.attempts_before IS 'Those that were begun before a person had it sent again.';
COMMENT ON COLUMN webhook_deliveries.next_attempt_at IS 'Not before then. While it is being sent: when somebody else may, because the sender must be dead.';
COMMENT ON COLUMN webhook_deliveries.sending IS 'An attempt was begun, and nobody has said yet how it ended.';
COMMENT ON COLUMN webhook_deliveries.last_error IS 'In the words of the receiver, or ours if it has none.';

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX webhook_deliveries_delivered ON webhook_deliveries (delivered_at) WHERE delivered_at IS NOT NULL;
CREATE INDEX webhook_deliveries_given_up ON webhook_deliveries (gave_up_at) WHERE gave_up_at IS NOT NULL;

-- After, so that the row is as the other trigger left it. Who wants no more messages has one that was given up at once: it can be asked for.
CREATE FUNCTION task_end_is_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    off constant text := (SELECT e.reason FROM webhook_endpoints e WHERE e.url = NEW.webhook_url AND e.disabled_at IS NOT NULL);
BEGIN
    INSERT INTO webhook_deliveries (task_id, task_version, event, url, body, next_attempt_at, gave_up_at, last_error)
    VALUES (
        NEW.id, NEW.version, 'task.' || NEW.status, NEW.webhook_url,
        jsonb_build_object(
            'task_id', NEW.id,
            'url', NEW.url,
            'domain', (SELECT d.domain FROM domains d WHERE d.id = NEW.domain_id),
            'status', NEW.status,
            'reason', NEW.status_reason,
            'error', NEW.error_message,
            'http_status', NEW.http_status_code,
            'parser', NEW.parsed_by,
            'batch_id', NEW.batch_id,
            'attempt', NEW.attempt,
            'recrawl_count', NEW.recrawl_count,
            'previous_task_id', NEW.previous_task_id,
            'completed_at', NEW.completed_at,
            'next_crawl_at', NEW.next_crawl_at),
        CASE WHEN off IS NULL THEN clock_timestamp() END,
        CASE WHEN off IS NOT NULL THEN clock_timestamp() END,
        off);
    RETURN NULL;
END
$$;
CREATE TRIGGER crawl_tasks_told AFTER UPDATE OF status ON crawl_tasks
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('completed', 'failed') AND NEW.webhook_url IS NOT NULL)
    EXECUTE FUNCTION task_end_is_told();
