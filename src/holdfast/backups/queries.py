"""SQL of backups: their rows, what a backup asks of the server, and what following its log takes.

The rule: what needs more rights than those of the owner of the tables says `admin`: a connection of the bundled server's superuser.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import psycopg

from holdfast.backups.records import Backup, Following
from holdfast.db.connection import Database
from holdfast.db.embedded.process import Server
from holdfast.db.rows import by_name
from holdfast.errors import NotFound, Refused

SLOT: Final = "holdfast_backup"
"""The replication slot that keeps the log on the server until it is copied."""
_BACKUP_LOCK: Final = 0x6261636B  # "back"
_FOLLOW_LOCK: Final = 0x666F6C6C  # "foll"
_IMAGES: Final = "SELECT id, file FROM images WHERE id > %(after)s AND file IS NOT NULL ORDER BY id LIMIT %(chunk)s"
_CHUNK: Final = 1000
_COUNTED: Final = ("url_frontier", "crawled_pages", "crawl_log", "domains")
_LIST: Final = """
SELECT b.id, regexp_replace(b.place, '^.*/', '') AS name, b.kind, b.state, b.started_at, b.ended_at, b.verified_at, b.bytes, b.generation,
       regexp_replace(p.place, '^.*/', '') AS parent, b.place, b.error
FROM backups b LEFT JOIN backups p ON p.id = b.parent_id
WHERE b.state <> 'deleted' ORDER BY b.started_at DESC, b.id DESC LIMIT %(limit)s
"""
_BEGIN: Final = """
INSERT INTO backups (kind, place, generation, parent_id)
SELECT %(kind)s, %(place)s, s.generation, (SELECT max(id) FROM backups WHERE place = %(parent)s AND state = 'complete')
FROM store_identity s RETURNING id, started_at
"""
_COMPLETE: Final = """
UPDATE backups SET state = 'complete', ended_at = %(ended)s, bytes = %(bytes)s, error = NULL WHERE id = %(id)s
"""
_FAIL: Final = """
UPDATE backups SET state = 'failed', ended_at = clock_timestamp(), error = left(%(error)s, 1000) WHERE id = %(id)s AND state = 'running'
"""
_STALLED: Final = "UPDATE backups SET error = left(%(error)s, 1000) WHERE id = %(id)s AND state = 'running'"
_FAIL_KILLED: Final = """
UPDATE backups SET state = 'failed', ended_at = clock_timestamp(), error = 'It was killed before it was complete.' WHERE state = 'running'
"""
_FOLLOWED: Final = """
INSERT INTO backup_following (since, until) VALUES (%(since)s, %(until)s)
ON CONFLICT (only_row) DO UPDATE SET since = excluded.since, until = excluded.until, problem = NULL, problem_since = NULL, given_up = NULL,
    updated_at = clock_timestamp()
"""
_PROBLEM: Final = """
INSERT INTO backup_following (problem, problem_since) VALUES (%(problem)s, clock_timestamp())
ON CONFLICT (only_row) DO UPDATE SET problem = excluded.problem, updated_at = clock_timestamp(),
    problem_since = COALESCE(backup_following.problem_since, clock_timestamp())
"""
_COPIED_AGAIN: Final = "UPDATE backup_following SET problem = NULL, problem_since = NULL WHERE problem IS NOT NULL"
_GIVEN_UP: Final = """
INSERT INTO backup_following (given_up) VALUES (%(given_up)s)
ON CONFLICT (only_row) DO UPDATE SET given_up = excluded.given_up, since = NULL, updated_at = clock_timestamp()
WHERE backup_following.given_up IS NULL
"""
_IN_FOLDER: Final = """
SELECT place FROM backups WHERE state = 'complete' AND left(place, length(%(folder)s) + 1) = %(folder)s || '/' ORDER BY id
"""
_POSITION: Final = """
SELECT clock_timestamp(), (pg_current_wal_flush_lsn() - '0/0')::bigint, pg_postmaster_start_time()
"""
# The ids of transactions that are open may be less than the last one; they are read again until these have ended.
_IMAGES_SEEN: Final = """
SELECT COALESCE(pg_sequence_last_value(pg_get_serial_sequence('images', 'id')::regclass), 0),
       pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() s
"""
_SLOT_STATE: Final = """
SELECT wal_status, (restart_lsn - '0/0')::bigint, COALESCE((pg_current_wal_lsn() - restart_lsn)::bigint, 0)
FROM pg_replication_slots WHERE slot_name = %(slot)s
"""
_OTHERS: Final = """
SELECT COALESCE(NULLIF(application_name, ''), 'without a name') FROM pg_stat_activity
WHERE datname = %(database)s AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY 1
"""
_FORGET_OTHERS: Final = """
UPDATE backups SET state = 'failed', ended_at = clock_timestamp(), error = 'The store was restored to a second before it was complete.'
WHERE state = 'running' AND place <> ALL(%(places)s)
"""
# Those that were complete, or begun, after the second to which the store was restored.
_REMEMBER: Final = """
WITH known AS (
    UPDATE backups SET state = 'complete', ended_at = %(ended)s, bytes = %(bytes)s
    WHERE place = %(place)s AND state IN ('running', 'complete') RETURNING id
)
INSERT INTO backups (kind, place, generation, started_at, ended_at, bytes, state, parent_id)
SELECT %(kind)s, %(place)s, %(generation)s, %(started)s, %(ended)s, %(bytes)s, 'complete',
       (SELECT max(id) FROM backups WHERE place = %(parent)s AND state = 'complete')
WHERE NOT EXISTS (SELECT FROM known)
"""

_as_backup: Final = by_name(Backup)


# Rows


def listing(connection: psycopg.Connection, limit: int = 200) -> list[Backup]:
    """Return backups, the newest first, without deleted ones."""
    with connection.cursor(row_factory=_as_backup) as cursor:
        return cursor.execute(_LIST, {"limit": limit}).fetchall()


def following(connection: psycopg.Connection) -> Following | None:
    """Return between which seconds the store can be restored."""
    row = connection.execute("SELECT since, until, problem, problem_since, given_up FROM backup_following").fetchone()
    return Following(*row) if row else None


def begin(connection: psycopg.Connection, *, kind: str, place: str, parent: str | None) -> tuple[int, datetime]:
    """Insert the row of a backup that begins now; return its id and time. From now on no file is deleted that it may name."""
    row = connection.execute(_BEGIN, {"kind": kind, "place": place, "parent": parent}).fetchone()
    assert row is not None  # noqa: S101 — store_identity has a row
    return int(row[0]), row[1]


def complete(connection: psycopg.Connection, backup_id: int, *, ended: datetime, size: int) -> None:
    """Mark a backup as complete. Before: it has its name on the disk."""
    connection.execute(_COMPLETE, {"id": backup_id, "ended": ended, "bytes": size})


def fail(connection: psycopg.Connection, backup_id: int, error: str) -> None:
    """Mark a backup as failed."""
    connection.execute(_FAIL, {"id": backup_id, "error": error})


def record_stalled(connection: psycopg.Connection, backup_id: int, error: str | None) -> None:
    """Record why a backup that runs makes no progress; None: it does again."""
    connection.execute(_STALLED, {"id": backup_id, "error": error})


def fail_killed(connection: psycopg.Connection) -> None:
    """Mark backups as failed that say they run. Before: the lock of backups is held, so none does."""
    connection.execute(_FAIL_KILLED)


def mark_verified(connection: psycopg.Connection, places: list[str]) -> None:
    """Record that backups were restored and verified without a fault."""
    query = "UPDATE backups SET verified_at = clock_timestamp() WHERE place = ANY(%s) AND state = 'complete'"
    connection.execute(query, (places,))


def complete_in(connection: psycopg.Connection, folder: str) -> list[str]:
    """Return the places of the complete backups that a folder has, as far as the store knows."""
    return [str(place) for (place,) in connection.execute(_IN_FOLDER, {"folder": folder})]


def mark_deleted(connection: psycopg.Connection, place: str) -> None:
    """Record that a backup is deleted: files that it names need not stay."""
    connection.execute("UPDATE backups SET state = 'deleted' WHERE place = %s", (place,))


def settle_after_restore(connection: psycopg.Connection, found: Sequence[Mapping[str, object]]) -> None:
    """Bring the rows of a restored store to what is on the disk. `found`: the complete backups, the oldest first."""
    connection.execute(_FORGET_OTHERS, {"places": [one["place"] for one in found]})
    for one in found:
        connection.execute(_REMEMBER, one)
    connection.execute("DELETE FROM backup_following")


def end_sessions(connection: psycopg.Connection) -> None:
    """Log out all users: a session that was ended after the backup must not come back."""
    connection.execute("DELETE FROM sessions")


def record_following(connection: psycopg.Connection, *, since: datetime, until: datetime) -> None:
    """Record between which seconds the store can be restored. After: nothing is wrong with the log."""
    connection.execute(_FOLLOWED, {"since": since, "until": until})


def record_problem(connection: psycopg.Connection, problem: str) -> None:
    """Record why the log is not copied at present. After: what can be restored, and why a log was given up, is known as before."""
    connection.execute(_PROBLEM, {"problem": problem})


def record_copied_again(connection: psycopg.Connection) -> None:
    """Record that the log is copied again. After: why an earlier one was given up is still known."""
    connection.execute(_COPIED_AGAIN)


def record_given_up(connection: psycopg.Connection, given_up: str) -> None:
    """Record that the log ends, and why, unless that is known: the first reason stays until seconds can be restored by another log."""
    connection.execute(_GIVEN_UP, {"given_up": given_up})


def forget_following(connection: psycopg.Connection) -> None:
    """Record that no log is kept."""
    connection.execute("DELETE FROM backup_following")


def last_attempt(connection: psycopg.Connection) -> tuple[datetime | None, datetime | None, datetime]:
    """Return when the last complete or running backup and the last failed one began, and the database's time."""
    row = connection.execute(
        "SELECT max(started_at) FILTER (WHERE state IN ('complete', 'running', 'deleted')), "
        "max(started_at) FILTER (WHERE state = 'failed'), clock_timestamp() FROM backups"
    ).fetchone()
    assert row is not None  # noqa: S101 — an aggregate
    return row[0], row[1], row[2]


def is_running(connection: psycopg.Connection) -> bool:
    """Whether a backup is being made, as far as its row says."""
    row = connection.execute("SELECT EXISTS (SELECT FROM backups WHERE state = 'running')").fetchone()
    return bool(row and row[0])


@contextmanager
def lock(database: Database, *, follower: bool = False) -> Iterator[psycopg.Connection]:
    """Hold the lock of backups, or of the follower, on a connection of its own. Raises Refused if another process has it."""
    with database.with_application_name("holdfast backup").session() as connection:
        row = connection.execute(
            "SELECT pg_try_advisory_lock(%s)", (_FOLLOW_LOCK if follower else _BACKUP_LOCK,)
        ).fetchone()
        if not (row and row[0]):
            what = "keeps the log of the database already" if follower else "makes or deletes a backup at this moment"
            raise Refused(f"Another process {what}.")
        yield connection


# What a backup asks


def now(connection: psycopg.Connection) -> datetime:
    """The database's time."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # noqa: S101
    moment: datetime = row[0]
    return moment


def database_size(connection: psycopg.Connection) -> int:
    """The bytes of the database."""
    row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0


def counts(connection: psycopg.Connection) -> dict[str, int]:
    """Count rows of tables, in one statement."""
    columns = ", ".join(f"(SELECT count(*) FROM {table})" for table in _COUNTED)  # noqa: S608 — constants
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        row = connection.execute(f"SELECT {columns}".encode()).fetchone()
    return dict(zip(_COUNTED, row or (), strict=True))


def images(connection: psycopg.Connection, after: int = 0) -> Iterator[list[tuple[int, str]]]:
    """Yield ids and keys of stored images, in chunks, each in a short statement."""
    while rows := connection.execute(_IMAGES, {"after": after, "chunk": _CHUNK}).fetchall():
        yield [(int(image_id), str(key)) for image_id, key in rows]
        after = int(rows[-1][0])


def images_seen(connection: psycopg.Connection) -> tuple[int, int, int]:
    """Return the last id that was given to an image, the oldest open transaction, and the next one."""
    row = connection.execute(_IMAGES_SEEN).fetchone()
    assert row is not None  # noqa: S101
    return int(row[0]), int(row[1]), int(row[2])


def position(connection: psycopg.Connection) -> tuple[datetime, int, datetime]:
    """Return the time, how far the log is on disk, and when the server was started. What was committed before is on disk."""
    row = connection.execute(_POSITION).fetchone()
    assert row is not None  # noqa: S101
    return row[0], int(row[1]), row[2]


def last_change(connection: psycopg.Connection) -> datetime | None:
    """The time of the last transaction that was replayed. Before: the server was started to recover."""
    row = connection.execute("SELECT pg_last_xact_replay_timestamp()").fetchone()
    return row[0] if row else None


def analyze(connection: psycopg.Connection) -> None:
    """Let the planner know a restored dump."""
    connection.execute("SET statement_timeout = 0")
    connection.execute("ANALYZE")


def is_empty(connection: psycopg.Connection) -> bool:
    """Whether the database has no table."""
    row = connection.execute("SELECT NOT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'public')").fetchone()
    return bool(row and row[0])


def others(connection: psycopg.Connection, database: str) -> list[str]:
    """The other connections to the database, each by the name that its program gave it; a program may have several."""
    return [str(name) for (name,) in connection.execute(_OTHERS, {"database": database})]


def any_domain(connection: psycopg.Connection) -> str | None:
    """A domain of the store, one with pages if there is any."""
    query = "SELECT domain FROM domains WHERE removed_at IS NULL ORDER BY pages_crawled DESC, id LIMIT 1"
    row = connection.execute(query).fetchone()
    return str(row[0]) if row else None


def stored_secrets(connection: psycopg.Connection) -> int:
    """Count what is stored sealed, and cannot be used without the key of secrets."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM job_secrets) + (SELECT count(*) FROM domain_secrets) + "
        "(SELECT count(*) FROM proxies WHERE proxy_password IS NOT NULL)"
    ).fetchone()
    return int(row[0]) if row else 0


def health_facts(connection: psycopg.Connection) -> tuple[int, int, int]:
    """Count URLs, those that were settled, and pages without a URL, in a restored store."""
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        row = connection.execute(
            "SELECT (SELECT count(*) FROM url_frontier), (SELECT count(*) FROM url_frontier WHERE state <> 'waiting'), "
            "(SELECT count(*) FROM crawled_pages p WHERE NOT EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = p.domain_id "
            "AND f.job_id = p.job_id AND f.url_key = p.url_key))"
        ).fetchone()
    assert row is not None  # noqa: S101
    return int(row[0]), int(row[1]), int(row[2])


# The server


@dataclass(frozen=True, slots=True)
class Cluster:
    """What tells a cluster and its log from others."""

    system: str
    timeline: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class SlotState:
    """The replication slot."""

    lost: bool
    """The server has deleted log that was not copied."""
    start: int
    behind: int
    """Bytes of log since its position."""


@contextmanager
def admin(server: Server) -> Iterator[psycopg.Connection]:
    """A connection of the superuser of the bundled server."""
    with Database(server.admin_url("postgres"), application="holdfast backup").session() as connection:
        yield connection


def admin_database(server: Server) -> Database:
    """The store, for the superuser."""
    return Database(server.admin_url("holdfast"), application="holdfast follower")


def cluster(connection: psycopg.Connection) -> Cluster:
    """What the server says of itself. `connection`: of the superuser."""
    row = connection.execute(
        "SELECT s.system_identifier::text, c.timeline_id, current_setting('wal_segment_size') "
        "FROM pg_control_system() s, pg_control_checkpoint() c"
    ).fetchone()
    assert row is not None  # noqa: S101
    size = connection.execute("SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size'").fetchone()
    assert size is not None  # noqa: S101
    return Cluster(row[0], int(row[1]), int(size[0]))


def summarize(connection: psycopg.Connection) -> None:
    """Let the server note which blocks change, which incremental backups need. `connection`: of the superuser."""
    _set(connection, "summarize_wal", "on")


def limit_log(connection: psycopg.Connection, size: int) -> None:
    """Let the server give the slot up when it would have to keep more than `size` bytes of log. `connection`: of the superuser."""
    _set(connection, "max_slot_wal_keep_size", f"{max(1, size >> 20)}MB")


def _set(connection: psycopg.Connection, name: str, value: str) -> None:
    row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    if row and row[0] == value:
        return
    connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
    connection.execute("SELECT pg_reload_conf()")


def slot(connection: psycopg.Connection) -> SlotState | None:
    """The state of the slot; None: there is none."""
    row = connection.execute(_SLOT_STATE, {"slot": SLOT}).fetchone()
    if row is None:
        return None
    return SlotState(row[0] == "lost" or row[1] is None, int(row[1] or 0), int(row[2]))


def checkpoint(connection: psycopg.Connection) -> None:
    """Let the server write a checkpoint: it deletes log that is not needed, and gives up a slot for which it would keep more than the
    limit. `connection`: of the superuser."""
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("CHECKPOINT")


def create_slot(connection: psycopg.Connection) -> int:
    """Create the slot; return the position from which the server keeps its log. `connection`: of the superuser."""
    connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", (SLOT,))
    found = slot(connection)
    if found is None:
        raise NotFound("The replication slot of backups is gone.")
    return found.start


def drop_slot(connection: psycopg.Connection) -> None:
    """Drop the slot, if there is one. After: the server deletes log that it does not need itself. `connection`: of the superuser."""
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)
    )


def advance_slot(connection: psycopg.Connection, to: int) -> None:
    """Let the server delete log before `to`. Before: it is copied and on disk. `connection`: of the superuser."""
    connection.execute("SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s::numeric)", (SLOT, to))
