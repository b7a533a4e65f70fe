"""The outbox: messages about the ends of tasks, about alerts and about jobs, taken by senders, and the result of each attempt.

The rule: a message is in the store before it is sent, and the time of its next attempt is set before it is sent. So messages of a killed
sender are sent again, no two senders have the same one at once, and each is sent at least once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psycopg
from psycopg.rows import class_row

from holdfast.db import audit
from holdfast.db.keyset_pagination import Key, Listing, Order, Page, SortColumn, only_id
from holdfast.errors import NotFound, Refused
from holdfast.model.webhook import NextStep, WebhookMessage
from holdfast.webhooks.records import Delivery, DeliveryFilter, Outbox

KIND: Final = "webhook"
LOOK: Final = 1_000
"""Messages at the head of the queue that are moved away in one statement: their receiver rests, or is switched off."""
CHUNK: Final = 1_000
NEVER_ENDED: Final = "the sender never reported the result"

# Compared with the time of the statement: no index serves a clock that goes on while it is read.
_ANY_DUE: Final = "SELECT EXISTS (SELECT FROM webhook_deliveries WHERE next_attempt_at <= statement_timestamp())"

_IN_THE_WAY: Final = """
(e.disabled_at IS NOT NULL OR e.rest_until > statement_timestamp() OR d.attempts - d.attempts_before >= %(max_attempts)s)
"""
_CLEAR: Final = f"""
WITH head AS MATERIALIZED (
    SELECT id FROM webhook_deliveries WHERE next_attempt_at <= statement_timestamp() ORDER BY next_attempt_at, id LIMIT %(look)s
), blocked AS MATERIALIZED (
    SELECT d.id, e.rest_until,
           CASE WHEN e.disabled_at IS NOT NULL THEN e.reason
                WHEN d.attempts - d.attempts_before >= %(max_attempts)s THEN COALESCE(d.last_error, %(never)s) END AS ended
    FROM head JOIN webhook_deliveries d USING (id) LEFT JOIN webhook_endpoints e ON e.url = d.url
    WHERE d.next_attempt_at <= statement_timestamp() AND {_IN_THE_WAY}
    FOR UPDATE OF d SKIP LOCKED
)
UPDATE webhook_deliveries d SET
    sending = false,
    next_attempt_at = CASE WHEN b.ended IS NULL THEN b.rest_until END,
    gave_up_at = CASE WHEN b.ended IS NOT NULL THEN clock_timestamp() END,
    last_error = COALESCE(b.ended, d.last_error)
FROM blocked b WHERE d.id = b.id
"""  # noqa: S608 — a constant
_TAKE: Final = f"""
WITH due AS MATERIALIZED (
    SELECT d.id FROM webhook_deliveries d LEFT JOIN webhook_endpoints e ON e.url = d.url
    WHERE d.next_attempt_at <= statement_timestamp() AND {_IN_THE_WAY} IS NOT TRUE
    ORDER BY d.next_attempt_at, d.id LIMIT %(count)s
    FOR UPDATE OF d SKIP LOCKED
)
UPDATE webhook_deliveries d SET
    attempts = d.attempts + 1, sending = true, last_attempt_at = clock_timestamp(), next_attempt_at = clock_timestamp() + %(lease)s
FROM due WHERE d.id = due.id
RETURNING d.id, d.url, d.attempts, d.attempts - d.attempts_before, d.message_id, d.event, d.created_at, d.body
"""  # noqa: S608 — a constant

_RECORD: Final = """
UPDATE webhook_deliveries SET
    sending = false, last_status = %(status)s, last_error = %(error)s,
    delivered_at = CASE WHEN %(next)s = 'delivered' THEN clock_timestamp() END,
    gave_up_at = CASE WHEN %(next)s IN ('give_up', 'switch_off') THEN clock_timestamp() END,
    next_attempt_at = CASE WHEN %(next)s = 'again' THEN clock_timestamp() + %(wait)s::interval END
WHERE id = %(id)s AND attempts = %(attempt)s AND sending
RETURNING url
"""
_REST: Final = """
INSERT INTO webhook_endpoints AS e (url, rest_until) VALUES (%(url)s, clock_timestamp() + %(rest)s::interval)
ON CONFLICT (url) DO UPDATE SET rest_until = GREATEST(e.rest_until, excluded.rest_until)
"""
_SWITCH_OFF: Final = """
INSERT INTO webhook_endpoints AS e (url, disabled_at, reason) VALUES (%(url)s, clock_timestamp(), %(reason)s)
ON CONFLICT (url) DO UPDATE SET disabled_at = COALESCE(e.disabled_at, excluded.disabled_at), reason = COALESCE(e.reason, excluded.reason)
"""
_ANSWERED: Final = "DELETE FROM webhook_endpoints WHERE url = %(url)s AND disabled_at IS NULL"
_SWITCH_ON: Final = "DELETE FROM webhook_endpoints WHERE url = %(url)s RETURNING disabled_at IS NOT NULL"

_STATE: Final = """
CASE WHEN d.delivered_at IS NOT NULL THEN 'delivered' WHEN d.gave_up_at IS NOT NULL THEN 'given_up'
     WHEN d.sending AND d.next_attempt_at > clock_timestamp() THEN 'sending' ELSE 'waiting' END
"""
_READ: Final = f"""
SELECT d.id, d.task_id, d.alert_id, d.job_id, d.event, {_STATE} AS state, d.url, d.attempts, d.created_at, d.last_attempt_at,
       d.next_attempt_at, d.delivered_at, d.gave_up_at, d.last_status, d.last_error, d.message_id, d.body FROM webhook_deliveries d
"""  # noqa: S608 — a constant
DELIVERIES: Final = Listing(
    "webhook_deliveries",
    "t.id",
    only_id,
    {
        "waiting": "t.next_attempt_at IS NOT NULL",
        "delivered": "t.delivered_at IS NOT NULL",
        "given_up": "t.gave_up_at IS NOT NULL",
        "task": "t.task_id = %(task)s",
        "url": "t.url = %(url)s",
    },
    {"newest": Order((SortColumn("t.id", int, descending=True),)), "oldest": Order((SortColumn("t.id", int),))},
    selective=frozenset({"waiting", "given_up", "task"}),
)
"""The list of messages."""
_TELL_JOBS: Final = """
INSERT INTO webhook_receivers AS r (about, url) VALUES ('jobs', %(url)s)
ON CONFLICT (about) DO UPDATE SET url = excluded.url WHERE r.url <> excluded.url
"""
_TELL_NO_JOBS: Final = "DELETE FROM webhook_receivers WHERE about = 'jobs'"
_STATS: Final = """
SELECT count(next_attempt_at) AS waiting, count(delivered_at) AS delivered, count(gave_up_at) AS given_up,
       min(created_at) FILTER (WHERE next_attempt_at IS NOT NULL) AS oldest_waiting,
       (SELECT count(*) FROM webhook_endpoints WHERE disabled_at IS NOT NULL) AS endpoints_off
FROM webhook_deliveries
"""

_LOCK: Final = f"""
SELECT {_STATE}, d.next_attempt_at <= statement_timestamp(), d.url FROM webhook_deliveries d WHERE d.id = %(id)s FOR UPDATE
"""  # noqa: S608 — a constant
_ONCE_MORE: Final = """
sending = false, delivered_at = NULL, gave_up_at = NULL, attempts_before = attempts, next_attempt_at = clock_timestamp()
"""
_SEND_AGAIN: Final = f"UPDATE webhook_deliveries SET {_ONCE_MORE} WHERE id = %(id)s"  # noqa: S608 — a constant
_SEND_CHUNK_AGAIN: Final = f"""
WITH chunk AS MATERIALIZED (
    SELECT id FROM webhook_deliveries WHERE gave_up_at IS NOT NULL AND url = %(url)s AND id > %(after)s
    ORDER BY id LIMIT %(chunk)s FOR UPDATE
)
UPDATE webhook_deliveries d SET {_ONCE_MORE} FROM chunk WHERE d.id = chunk.id RETURNING d.id
"""  # noqa: S608 — a constant
_PURGES: Final = tuple(
    f"""
WITH old AS MATERIALIZED (
    SELECT id FROM webhook_deliveries WHERE {ended} < statement_timestamp() - %(older)s::interval LIMIT %(chunk)s FOR UPDATE SKIP LOCKED
)
DELETE FROM webhook_deliveries d USING old WHERE d.id = old.id
"""  # noqa: S608 — a constant
    for ended in ("delivered_at", "gave_up_at")
)


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that this sender has taken."""

    id: int
    url: str
    attempt: int
    """Of all attempts; the result is recorded under this number."""
    number: int
    """The same, counted from the last manual retry."""
    message: WebhookMessage


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of an attempt."""

    next: NextStep
    wait: timedelta | None = None
    """Until the next attempt, if there is one."""
    status: int | None = None
    error: str | None = None
    rest: timedelta | None = None
    """The time in which nothing is sent to that receiver."""


def tell_jobs(connection: psycopg.Connection, url: str | None) -> None:
    """Set the receiver of messages about ended, paused and reopened jobs; None: there is none. A trigger writes the messages, in the
    transaction of each change."""
    connection.execute(_TELL_NO_JOBS if url is None else _TELL_JOBS, {"url": url})


# Sending --------------------------------------------------------------------------------------------------------------


def any_due(connection: psycopg.Connection) -> bool:
    """Return whether a message may be due."""
    row = connection.execute(_ANY_DUE).fetchone()
    return bool(row and row[0])


def take(connection: psycopg.Connection, *, count: int, lease: timedelta, max_attempts: int) -> list[Taken]:
    """Take messages that are due, the oldest first; the caller has until the end of `lease` to send them and to record the results.

    After: an attempt of each has started, and no other sender takes it before the end of `lease`. Messages whose receiver is switched
    off, or with `max_attempts` attempts, are given up; those whose receiver rests wait until then.
    """
    parameters = {"count": count, "lease": lease, "max_attempts": max_attempts, "look": LOOK, "never": NEVER_ENDED}
    while connection.execute(_CLEAR, parameters).rowcount == LOOK:
        continue  # otherwise every message would be searched behind them
    rows = connection.execute(_TAKE, parameters).fetchall()
    return [
        Taken(row_id, url, attempt, number, WebhookMessage(str(message_id), event, created_at, body))
        for row_id, url, attempt, number, message_id, event, created_at, body in sorted(rows)
    ]


def record(connection: psycopg.Connection, taken: Taken, attempt: Attempt) -> bool:
    """Record the result of an attempt; False, with nothing written, if it is no longer the last one.

    After: the message has ended or waits for its next attempt. A receiver that answered 410 is switched off; one that did not answer
    rests; one that accepted the message does not.
    """
    values = {
        "id": taken.id,
        "attempt": taken.attempt,
        "next": attempt.next,
        "wait": attempt.wait,
        "status": attempt.status,
        "error": attempt.error,
    }
    with connection.transaction():
        row = connection.execute(_RECORD, values).fetchone()
        if row is None:
            return False
        endpoint = {"url": row[0], "rest": attempt.rest, "reason": attempt.error or ""}
        if attempt.next is NextStep.SWITCH_OFF:
            connection.execute(_SWITCH_OFF, endpoint)
        elif attempt.rest is not None:
            connection.execute(_REST, endpoint)
        elif attempt.next is NextStep.DELIVERED:
            connection.execute(_ANSWERED, endpoint)
    return True


def purge(connection: psycopg.Connection, *, older_than: timedelta) -> int:
    """Delete messages that ended longer ago than `older_than`, in chunks; return how many. Waiting messages stay."""
    deleted = 0
    for statement in _PURGES:
        while rows := connection.execute(statement, {"older": older_than, "chunk": CHUNK}).rowcount:
            deleted += rows
    return deleted


# Reading --------------------------------------------------------------------------------------------------------------


def get(connection: psycopg.Connection, delivery_id: int) -> Delivery:
    """Return one message. Raises NotFound."""
    with connection.cursor(row_factory=class_row(Delivery)) as cursor:
        found = cursor.execute(f"{_READ} WHERE d.id = %(id)s", {"id": delivery_id}).fetchone()
    if found is None:
        raise _no_delivery(delivery_id)
    return found


def page(
    connection: psycopg.Connection,
    where: DeliveryFilter,
    *,
    order: str = "newest",
    after: Key | None = None,
    limit: int = 100,
) -> Page[Delivery]:
    """Return one page of messages."""
    values = {"task": where.task, "url": where.url, str(where.state): where.state and True}
    filters = {name: value for name, value in values.items() if value is not None}
    return DELIVERIES.records(connection, _by_ids, filters, order=order, after=after, limit=limit)


def _by_ids(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, Delivery]:
    with connection.cursor(row_factory=class_row(Delivery)) as cursor:
        return {delivery.id: delivery for delivery in cursor.execute(f"{_READ} WHERE d.id = ANY(%s)", (list(ids),))}


def stats(connection: psycopg.Connection) -> Outbox:
    """Return the outbox in numbers."""
    with connection.cursor(row_factory=class_row(Outbox)) as cursor:
        found = cursor.execute(_STATS).fetchone()
    assert found is not None  # noqa: S101 — an aggregate has one row
    return found


# Manual retries --------------------------------------------------------------------------------------------------------------


def retry(connection: psycopg.Connection, delivery_id: int, *, actor: str) -> bool:
    """Send a message again, in any state; False, with nothing written, if it is due already.

    After: it is due, with all attempts before it, and its receiver is switched on. Refused while it is being sent.
    """
    with connection.transaction():
        row = connection.execute(_LOCK, {"id": delivery_id}).fetchone()
        if row is None:
            raise _no_delivery(delivery_id)
        state, due, url = row
        if state == "sending":
            raise Refused(f"Message {delivery_id} is being sent at this moment; look again in a minute.")
        known = connection.execute(_SWITCH_ON, {"url": url}).fetchone()
        if due and known is None:
            return False
        connection.execute(_SEND_AGAIN, {"id": delivery_id})
        details = {"was": state, "switched_on": bool(known and known[0])}
        audit.write(connection, actor=actor, action="retry", kind=KIND, object_id=delivery_id, details=details)
    return True


def retry_all(
    connection: psycopg.Connection, url: str, *, actor: str, progress: Callable[[int], None] = lambda _: None
) -> int:
    """Send again all messages that were given up for one receiver, in chunks; return how many. After: it is switched on."""
    done = after = 0
    while True:
        with connection.transaction():
            rows = connection.execute(_SEND_CHUNK_AGAIN, {"url": url, "after": after, "chunk": CHUNK}).fetchall()
            known = connection.execute(_SWITCH_ON, {"url": url}).fetchone()
            details: dict[str, object] = {"messages": len(rows), "switched_on": bool(known and known[0])}
            if any(details.values()):
                audit.write(connection, actor=actor, action="retry", kind=KIND, object_id="*", details=details)
        if not rows:
            return done
        after = max(row[0] for row in rows)
        done += len(rows)
        progress(done)


def _no_delivery(delivery_id: int) -> NotFound:
    return NotFound(f"There is no message {delivery_id}.")
