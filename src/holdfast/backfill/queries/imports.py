"""Imports: which sources were read, how far, and with what counts.

The rule: the position of an import is written in the transaction of its chunk, so that a kill neither loses nor doubles a row.
"""

from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from holdfast import failpoints
from holdfast.backfill.records import Counts, Format, Import, ImportState
from holdfast.db.rows import by_name, names_of
from holdfast.errors import UnderWay

_SUMS: Final = tuple(name for name in Counts.__slots__ if name != "reasons")
_IMPORT: Final = f"SELECT {', '.join(names_of(Import))} FROM backfill_imports"  # noqa: S608 — constants
_BEGIN: Final = """
INSERT INTO backfill_imports (identity, format, source) VALUES (%(identity)s, %(format)s, %(source)s) RETURNING id
"""
_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended('holdfast backfill ' || encode(%(identity)s, 'hex'), 0))"
_ADDED: Final = ", ".join(f"{name} = {name} + %({name})s" for name in _SUMS)
_ADD: Final = f"""
UPDATE backfill_imports i SET {_ADDED}, position = COALESCE(%(position)s, position), state = %(state)s::backfill_state,
    finished_at = CASE WHEN %(state)s = 'finished' THEN clock_timestamp() END,
    reasons = (SELECT COALESCE(jsonb_object_agg(key, n), '{{}}') FROM (
        SELECT key, sum(value::bigint) AS n FROM (
            SELECT * FROM jsonb_each_text(i.reasons) UNION ALL SELECT * FROM jsonb_each_text(%(reasons)s)) parts GROUP BY key) sums)
WHERE id = %(id)s
"""  # noqa: S608 — constants
_COUNTS: Final = f"SELECT {', '.join(_SUMS)}, reasons FROM backfill_imports WHERE id = %(id)s"  # noqa: S608 — constants
_as_import: Final = by_name(Import)


def lock(connection: psycopg.Connection, identity: bytes) -> None:
    """Let no other process import this source until the session ends. Raises UnderWay if one does."""
    row = connection.execute(_LOCK, {"identity": identity}).fetchone()
    if not (row and row[0]):
        raise UnderWay("Another process imports this source at this moment.")


def find(connection: psycopg.Connection, identity: bytes) -> Import | None:
    """The import of the source with this identity, if there is one."""
    with connection.cursor(row_factory=_as_import) as cursor:
        return cursor.execute(f"{_IMPORT} WHERE identity = %(identity)s", {"identity": identity}).fetchone()


def begin(connection: psycopg.Connection, identity: bytes, format_: Format, source: str) -> Import:
    """Begin the import of a source. Before: it is locked, and `find` found none."""
    connection.execute(_BEGIN, {"identity": identity, "format": format_, "source": source})
    found = find(connection, identity)
    assert found is not None  # noqa: S101 — just inserted
    return found


def of_source(connection: psycopg.Connection, identity: bytes, format_: Format, source: str) -> Import | None:
    """The last import of another content under the same name; None: there is none."""
    query = f"{_IMPORT} WHERE source = %(source)s AND format = %(format)s AND identity <> %(identity)s ORDER BY id DESC LIMIT 1"
    with connection.cursor(row_factory=_as_import) as cursor:
        return cursor.execute(query, {"identity": identity, "format": format_, "source": source}).fetchone()


def add(
    connection: psycopg.Connection,
    import_id: int,
    counts: Counts,
    *,
    state: ImportState,
    position: dict[str, Any] | None = None,
) -> None:
    """Add the counts of a chunk, and set state and position. Before: the transaction of the chunk is open."""
    values = {name: getattr(counts, name) for name in _SUMS}
    connection.execute(
        _ADD,
        {
            **values,
            "reasons": Jsonb(dict(counts.reasons)),
            "position": None if position is None else Jsonb(position),
            "state": state,
            "id": import_id,
        },
    )
    failpoints.reach("in_backfill")


def counts(connection: psycopg.Connection, import_id: int) -> Counts:
    """The counts of an import so far."""
    row = connection.execute(_COUNTS, {"id": import_id}).fetchone()
    assert row is not None  # noqa: S101 — imports are not deleted
    found = Counts(**dict(zip(_SUMS, row[:-1], strict=True)))
    found.reasons.update(row[-1])
    return found


def set_job(connection: psycopg.Connection, import_id: int, job_id: int) -> None:
    """Note the job that has the pages of an import."""
    connection.execute("UPDATE backfill_imports SET job_id = %s WHERE id = %s", (job_id, import_id))


def forget(connection: psycopg.Connection, import_id: int) -> None:
    """Forget an import that was interrupted before its history was merged: what it read is gone, and it can begin anew."""
    with connection.transaction():
        for table in ("backfill_domains", "backfill_images"):
            connection.execute(f"DELETE FROM {table} WHERE import_id = %s", (import_id,))  # noqa: S608 — constants
        connection.execute("DELETE FROM backfill_imports WHERE id = %s AND state = 'reading'", (import_id,))
