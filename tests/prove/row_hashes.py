"""The rows of a store and of its archives as hashes, table by table; and which of them retention must take.

The rule: what must go is said here in SQL of its own, from the table in docs/retention.md and from what the proof knows of its jobs. None
of the product's queries is asked, and archives are read with pyarrow.
"""

import hashlib
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import csv, parquet

_DERIVED: Final = {("documents", "changed")}
"""Columns that are written anew with each row."""


def _ended(days: int) -> str:
    return f"t.job_id IN (SELECT job_id FROM proof.jobs WHERE age >= interval '{days} days')"


def _old(column: str, days: int) -> str:
    return f"t.{column} < now() - interval '{days} days'"


_LED_SOMEWHERE: Final = "({})".format(
    " OR ".join(
        f"EXISTS (SELECT FROM {table} p WHERE (p.domain_id, p.job_id, p.url_key) = (t.domain_id, t.job_id, t.url_key))"
        for table in ("crawled_pages", "sitemaps", "link_answers")
    )
)
_OLD_TASK: Final = f"""t.status IN ('completed', 'failed', 'cancelled') AND {_old("completed_at", 90)}
    AND EXISTS (SELECT FROM crawl_tasks n WHERE n.url_hash = t.url_hash AND n.id > t.id)"""
_OF_OLD_TASK: Final = f"t.task_id IN (SELECT t.id FROM crawl_tasks t WHERE {_OLD_TASK})"
GOES: Final[Mapping[str, str]] = {
    "url_frontier": f"""CASE WHEN {_LED_SOMEWHERE} THEN {_ended(90)} WHEN t.state = 'failed' THEN {_ended(30)} ELSE {_ended(7)} END""",
    "crawled_pages": _ended(90),
    "page_versions": f"""{_ended(90)} OR {_old("replaced_at", 90)} AND EXISTS (SELECT FROM page_versions n
        WHERE (n.domain_id, n.job_id, n.url_key) = (t.domain_id, t.job_id, t.url_key) AND n.number > t.number)""",
    "page_texts": _ended(30),
    "documents": _ended(30),
    "page_links": _ended(90),
    "sitemaps": _ended(90),
    "link_answers": _ended(90),
    "page_parses": _ended(90),
    "items": _ended(90),
    "crawl_log": "(date_trunc('week', t.crawled_at AT TIME ZONE 'UTC') + interval '97 days') AT TIME ZONE 'UTC' <= now()",
    "crawl_tasks": _OLD_TASK,
    "task_events": _OF_OLD_TASK,
    "parse_results": _OF_OLD_TASK,
    "claim_log": _old("ended_at", 365),
    "domain_transitions": f"""{_old("at", 365)} AND EXISTS (SELECT FROM domain_transitions n
        WHERE n.domain_id = t.domain_id AND n.version > t.version)""",
    "audit_log": _old("at", 365),
    "webhook_deliveries": f"{_old('delivered_at', 30)} OR {_old('gave_up_at', 30)}",
    "provenance": f"""{_old("last_seen_at", 90)} AND NOT EXISTS (SELECT FROM job_domains jd JOIN proof.jobs j USING (job_id)
        WHERE jd.domain_id = t.domain_id AND (j.age < interval '90 days' OR j.age IS NULL))""",
}
"""What goes of each table."""
_SETTLED: Final = {
    "url_frontier": "t.state <> 'waiting'",
    "page_parses": "NOT t.due",
    "page_texts": """NOT EXISTS (SELECT FROM page_parses p
        WHERE (p.domain_id, p.job_id, p.url_key) = (t.domain_id, t.job_id, t.url_key) AND p.due)""",
}
"""Rows that a worker may change at any time are not compared."""
_OF_LIVE: Final = "t.job_id IN (SELECT job_id FROM proof.jobs WHERE age IS NULL)"
_NEW: Final = {
    "claim_log": "t.claimed_at >= %(since)s",
    "domain_transitions": "t.at >= %(since)s",
    "audit_log": "t.at >= %(since)s",
    "webhook_deliveries": "t.created_at >= %(since)s",
    "crawl_tasks": "false",
    "task_events": "false",
    "parse_results": "false",
    "provenance": "false",
}
"""Rows that may be there afterwards and were not before; of all others those of live jobs."""
BACK: Final = ("pages", "frontier_completed", "frontier_failed", "content", "versions", "log", "segment")
"""The kinds of archives that go back into their tables, in an order in which they can."""
FOR_ANALYSIS: Final = (
    *(
        "crawl_tasks",
        "task_events",
        "parse_results",
        "claim_log",
        "domain_transitions",
        "audit_log",
        "webhook_deliveries",
    ),
    "provenance",
)
"""Tables whose rows are restored into a schema only."""
_COUNTERS: Final = {
    "domains": "id, status, pages_discovered, pages_crawled, images_found, images_stored, frontier_size, total_error_count, version",
    "job_domains": "domain_id, job_id, state, ready, discovered, waiting, done, denied, failed, budget_used, pages, errors, bytes",
}
"""What retention counts in, by table: as before when all is restored."""


def prepare(connection: psycopg.Connection, jobs: Mapping[int, int | None]) -> None:
    """Make the tables of the proof. `jobs`: how many days ago each ended; None: it lives."""
    connection.execute("DROP SCHEMA IF EXISTS proof CASCADE; CREATE SCHEMA proof")
    connection.execute("CREATE TABLE proof.jobs (job_id bigint PRIMARY KEY, age interval)")
    connection.execute("CREATE UNLOGGED TABLE proof.before (tab text, h bigint, goes boolean)")
    connection.execute("CREATE UNLOGGED TABLE proof.now (tab text, h bigint)")
    connection.execute("CREATE UNLOGGED TABLE proof.archived (tab text, h bigint, archive bigint)")
    connection.execute("CREATE UNLOGGED TABLE proof.counted (tab text, row jsonb)")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO proof.jobs VALUES (%s, make_interval(days => %s))", list(jobs.items()))
    for table in GOES:
        settled = _SETTLED.get(table, "true")
        connection.execute(
            f"INSERT INTO proof.before SELECT '{table}', {_hash(connection, table)}, COALESCE({GOES[table]}, false) "
            f"FROM {table} t WHERE {settled}".encode()
        )
    connection.execute(f"INSERT INTO proof.counted {_counts()}".encode())
    connection.execute("ANALYZE proof.before")


def _hash(connection: psycopg.Connection, table: str) -> str:
    """The hash of a row of a table `t`: of its text, column by column."""
    rows = connection.execute(
        """SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
           ORDER BY attnum""",
        (f"public.{table}",),
    )
    names = ", ".join(f't."{name}"' for (name,) in rows if (table, name) not in _DERIVED)
    return f"hashtextextended(ROW({names})::text, 0)"


def _counts() -> str:
    """The counters of domains that no live job is on, as JSON."""
    free = "NOT IN (SELECT jd.domain_id FROM job_domains jd JOIN proof.jobs j USING (job_id) WHERE j.age IS NULL)"
    return " UNION ALL ".join(
        f"SELECT '{table}' AS tab, to_jsonb(c) AS row FROM (SELECT {columns} FROM {table} t) c "
        f"WHERE {'id' if table == 'domains' else 'domain_id'} {free}"
        for table, columns in _COUNTERS.items()
    )


def summary(connection: psycopg.Connection) -> dict[str, tuple[int, int, str]]:
    """By table: rows, how many of them must go, and a hash of all that does not depend on their order."""
    rows = connection.execute(
        """SELECT tab, count(*), count(*) FILTER (WHERE goes), to_hex((sum(h::numeric) % 9223372036854775807)::bigint)
           FROM proof.before GROUP BY tab ORDER BY tab"""
    )
    return {tab: (count, goes, print_) for tab, count, goes, print_ in rows}


def _look(connection: psycopg.Connection) -> None:
    connection.execute("TRUNCATE proof.now")
    for table in GOES:
        connection.execute(
            f"INSERT INTO proof.now SELECT '{table}', {_hash(connection, table)} FROM {table} t".encode()
        )
    connection.execute("ANALYZE proof.now")


def _differences(
    connection: psycopg.Connection, what: str, left: str, right: str, how: str = "EXCEPT ALL"
) -> list[str]:
    rows = connection.execute(
        f"SELECT tab, count(*) FROM ((SELECT tab, h FROM {left}) {how} (SELECT tab, h FROM {right})) d GROUP BY tab ORDER BY tab".encode()
    ).fetchall()
    return [f"{count} rows of {table} {what}" for table, count in rows]


def _unexplained(connection: psycopg.Connection, since: Any) -> list[str]:
    """Rows that were not there before, and that nobody had to write."""
    found = []
    for table in GOES:
        hash_ = _hash(connection, table)
        row = connection.execute(
            f"""SELECT count(*) FROM (
                    SELECT {hash_} FROM {table} t WHERE NOT ({_NEW.get(table, _OF_LIVE)}) AND {_SETTLED.get(table, "true")}
                    EXCEPT SELECT h FROM proof.before WHERE tab = '{table}') d""".encode(),
            {"since": since},
        ).fetchone()
        if row and row[0]:
            found.append(f"{row[0]} rows of {table} are there that were not there before, and belong to no live job")
    return found


def judge_left(connection: psycopg.Connection, since: Any) -> list[str]:
    """What a run left must be what must stay, row for row."""
    _look(connection)
    stays, goes = "proof.before WHERE NOT goes", "proof.before WHERE goes"
    return [
        *_differences(connection, "must have stayed, and are gone or changed", stays, "proof.now"),
        *_differences(connection, "are old, and are still there", goes, "proof.now", "INTERSECT ALL"),
        *_unexplained(connection, since),
    ]


def judge_archived(connection: psycopg.Connection) -> list[str]:
    """What the archives hold must be what must go, each row once. Before: `load_archives`."""
    goes = "proof.before WHERE goes"
    return [
        *_differences(connection, "went, and are in no archive", goes, "proof.archived"),
        *_differences(connection, "are in an archive twice, or must have stayed", "proof.archived", goes),
    ]


def judge_restored(connection: psycopg.Connection, since: Any) -> list[str]:
    """All that goes back into its table must be there as before; of the rest what must stay."""
    _look(connection)
    whole = "proof.before WHERE NOT goes OR tab NOT IN ({})".format(", ".join(f"'{table}'" for table in FOR_ANALYSIS))
    different = connection.execute(
        f"SELECT tab, row FROM (SELECT * FROM proof.counted EXCEPT SELECT * FROM ({_counts()}) n) d LIMIT 3".encode()
    ).fetchall()
    return [
        *_differences(connection, "were there before, and are not there after the restore", whole, "proof.now"),
        *_unexplained(connection, since),
        *(f"{table} counted {row} before, and does not after the restore" for table, row in different),
    ]


def judge_for_analysis(connection: psycopg.Connection, schema: str) -> list[str]:
    """What was restored into a schema must be what the archives hold."""
    found = []
    for table in FOR_ANALYSIS:
        row = connection.execute("SELECT to_regclass(%s)", (f"{schema}.{table}",)).fetchone()
        rows = f"SELECT '{table}' AS tab, {_hash(connection, table)} AS h FROM {schema}.{table} t"
        if row == (None,):
            rows = "SELECT '' AS tab, 0::bigint AS h WHERE false"
        held = f"(SELECT tab, h FROM proof.archived WHERE tab = '{table}') a"
        found += _differences(connection, f"are archived and not in the schema {schema}", held, f"({rows}) r")
        found += _differences(connection, f"are in the schema {schema} and in no archive", f"({rows}) r", held)
    return found


# Archives -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Archives:
    """What the archives of a store hold."""

    rows: Counter[str]
    bytes: int
    files: int
    segments: dict[str, str]
    """The SHA-256 of each archived segment."""
    violations: list[str]


def load_archives(connection: psycopg.Connection, folder: Path) -> Archives:
    """Read every file of the store of archives, compare it with the manifest, and note the hashes of its rows."""
    found = Archives(Counter(), 0, 0, {}, [])
    listed = connection.execute(
        """SELECT a.id, a.kind, a.state, a.source, a.rows, f.table_name, f.key, f.rows, f.bytes, encode(f.sha256, 'hex')
           FROM archives a LEFT JOIN archive_files f ON f.archive_id = a.id ORDER BY a.id, f.number"""
    ).fetchall()
    in_archive: Counter[int] = Counter()
    said = {archive: rows for archive, _, _, _, rows, *_ in listed}
    size = 0
    connection.execute("TRUNCATE proof.archived")
    made: set[str] = set()
    for archive, kind, state, source, _, table_name, key, rows, bytes_, sha256 in listed:
        if state == "writing" or key is None:
            found.violations.append(f"archive {archive} ({kind}) is {state} and has no file {key}")
            continue
        path = folder / key
        content = path.read_bytes() if path.exists() else b""
        if (len(content), hashlib.sha256(content).hexdigest()) != (bytes_, sha256):
            found.violations.append(
                f"{key} of archive {archive} has {len(content)} bytes, or another SHA-256 than its row says"
            )
            continue
        size += bytes_
        if kind == "segment":
            found.segments[source] = sha256
            in_archive[archive] += 1
            continue
        table = "crawl_log" if table_name.startswith("crawl_log") else table_name
        if table not in made:
            made.add(table)
            connection.execute(f"CREATE UNLOGGED TABLE proof.a_{table} (LIKE {table})".encode())
            connection.execute(f"ALTER TABLE proof.a_{table} ADD COLUMN in_archive bigint".encode())
        held = _copy(connection, table, archive, parquet.read_table(io.BytesIO(content)))
        if held != rows:
            found.violations.append(f"{key} of archive {archive} has {held} rows, and its row says {rows}")
        in_archive[archive] += held
        found.rows[table] += held
    for archive, rows in said.items():
        if rows != in_archive[archive]:
            found.violations.append(
                f"archive {archive} says that it has {rows} rows, and its files have {in_archive[archive]}"
            )
    for table in made:
        connection.execute(
            f"INSERT INTO proof.archived SELECT '{table}', {_hash(connection, table)}, t.in_archive FROM proof.a_{table} t".encode()
        )
        connection.execute(f"DROP TABLE proof.a_{table}".encode())
    connection.execute("ANALYZE proof.archived")
    known = {key for *_, key, _, _, _ in listed}
    stray = [path for path in folder.rglob("*") if path.is_file() and str(path.relative_to(folder)) not in known]
    found.violations.extend([f"{len(stray)} files of no archive are left, first {stray[0]}"] if stray else [])
    return Archives(found.rows, size, len(known), found.segments, found.violations)


def _copy(connection: psycopg.Connection, table: str, archive: int, rows: pa.Table) -> int:
    """Copy rows as text into the table of the proof; return how many."""
    columns = [_written(column) for column in rows.columns]
    names = [*rows.column_names, "in_archive"]
    made = pa.table([*columns, pa.array([archive] * rows.num_rows, pa.int64())], names=names)
    text = io.BytesIO()
    csv.write_csv(made, text, csv.WriteOptions(include_header=False, quoting_style="needed"))
    query = sql.SQL("COPY proof.{} ({}) FROM STDIN (FORMAT csv)").format(
        sql.Identifier(f"a_{table}"), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.write(text.getvalue())
    return int(rows.num_rows)


def _written(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    return column.combine_chunks()
