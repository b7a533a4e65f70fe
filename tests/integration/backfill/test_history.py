"""Logs of other tools become domains: from every kind of source, once, and provably."""

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet

from holdfast.backfill import pages
from holdfast.backfill.queries import checks, history, imports, source_tables
from holdfast.db.connection import Database
from holdfast.db.verify import CHECKS, parameters, verify
from tests.support.cli import Cli
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store
from tests.support.killed import run_through_kills

COLUMNS = ("domain", "page_url", "status", "images_found", "crawled_at")
GOOD: list[tuple[Any, ...]] = [
    ("A.example", "http://www.a.example/1", 200, 3, "2026-02-13 08:00:00+00"),
    ("www.a.example", "http://a.example/2", 404, 0, "2026-02-14 08:00:00+00"),
    ("a.example.", "http://a.example/3", 301, 1, "2026-02-12 08:00:00+00"),
    ("münchen.example", "https://münchen.example/", 403, 0, "2026-02-13 08:00:00+00"),
    ("xn--mnchen-3ya.example", None, 403, 0, None),
    ("down.example", None, 500, 0, None),
    ("down.example", None, None, 0, None),
    ("gone.example", None, 404, 0, None),
]
BAD: list[tuple[Any, ...]] = [("not a domain", None, 200, 0, None), ("ok.example", None, 7, 0, None)]
FOUND = {
    "a.example": ("exhausted", None, 3, 2, 1, 4, "http://www.a.example"),
    "down.example": ("exhausted", None, 2, 0, 1, 0, "https://down.example"),
    "gone.example": ("blocked", "manual", 1, 0, 1, 0, "https://gone.example"),
    "xn--mnchen-3ya.example": ("blocked", "forbidden", 2, 0, 2, 0, "https://xn--mnchen-3ya.example"),
}
DOMAINS = """
SELECT domain, status::text, block_reason_code, pages_discovered, pages_crawled, total_error_count, images_found, base_url
FROM domains WHERE source LIKE 'backfill%' ORDER BY domain
"""


def as_csv(rows: list[Any]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([COLUMNS, *rows])
    return text.getvalue().encode()


def write_csv(folder: Path, store: Store) -> list[str]:
    (folder / "log.csv").write_bytes(as_csv(GOOD + BAD))
    return ["log.csv"]


def write_gzip(folder: Path, store: Store) -> list[str]:
    (folder / "log.csv.gz").write_bytes(gzip.compress(as_csv(GOOD + BAD)))
    return ["log.csv.gz"]


def write_parquet(folder: Path, store: Store) -> list[str]:
    columns: list[Any] = list(map(list, zip(*(GOOD + BAD), strict=True)))
    parquet.write_table(pa.table(dict(zip(COLUMNS, columns, strict=True))), folder / "log.parquet", row_group_size=3)
    return ["log.parquet"]


def write_table(folder: Path, store: Store) -> list[str]:
    """In partitions, with a column of another type than usual."""
    store.connection.execute("CREATE SCHEMA old")
    store.connection.execute(
        "CREATE TABLE old.crawl_log (id uuid DEFAULT gen_random_uuid(), domain varchar(255), page_url text, status integer,"
        " images_found integer, crawled_at timestamptz) PARTITION BY LIST (status)"
    )
    store.connection.execute("CREATE TABLE old.log_ok PARTITION OF old.crawl_log FOR VALUES IN (200, 301)")
    store.connection.execute("CREATE TABLE old.log_rest PARTITION OF old.crawl_log DEFAULT")
    with store.connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO old.crawl_log (domain, page_url, status, images_found, crawled_at) VALUES (%s, %s, %s, %s, %s)",
            GOOD + BAD,
        )
    return ["--schema", "old"]


def assert_sound(connection: psycopg.Connection) -> None:
    """All checks of `holdfast verify`, and scores as `domain_score` has them."""
    assert [(one.check, one.rows) for one in verify(connection, retries=4, checks=CHECKS) if one.faults] == []
    assert (
        connection.execute(
            "SELECT domain, priority_score, domain_score(d) FROM domains d"
            " WHERE source LIKE 'backfill%' AND status <> 'blocked' AND priority_score <> domain_score(d)"
        ).fetchall()
        == []
    )


def domains(connection: psycopg.Connection) -> dict[str, tuple[Any, ...]]:
    return {name: facts for name, *rest in connection.execute(DOMAINS) if (facts := tuple(rest))}


def everything(connection: psycopg.Connection) -> list[Any]:
    tables = (
        "domains",
        "crawl_log_rollups",
        "backfill_imports",
        "backfill_domains",
        "crawl_jobs",
        "domain_transitions",
    )
    return [connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall() for table in tables]


@pytest.mark.parametrize("write", [write_csv, write_gzip, write_parquet, write_table])
def test_a_log_becomes_domains(write: Callable[[Path, Store], list[str]], cli: Cli, store: Store) -> None:
    arguments = write(cli.folder, store)
    before = everything(store.connection)
    preview = cli("backfill", *arguments, "--dry-run", "--json")
    assert preview.code == 1, preview  # bad rows
    assert everything(store.connection) == before
    answer = cli("backfill", *arguments, "--json")
    assert answer.code == 1, answer
    (one,), (expected,) = answer.json["imports"], preview.json["imports"]
    assert {name for name in one if one[name] != expected[name]} == {"dry_run"}
    facts = {
        name: one[name] for name in ("rows", "bad", "pages", "errors", "images_found", "domains_new", "domains_merged")
    }
    assert facts == {
        "rows": 10,
        "bad": 2,
        "pages": 2,
        "errors": 5,
        "images_found": 4,
        "domains_new": 4,
        "domains_merged": 2,
    }
    assert one["reasons"] == {"not a domain": 1, "not an HTTP status": 1}
    assert one["statuses"] == {"exhausted": 2, "blocked": 2}
    assert answer.json["validation"]["ok"] is True
    assert domains(store.connection) == FOUND
    assert store.connection.execute(
        "SELECT first_seen_at::date::text, last_crawled_at::date::text FROM domains WHERE domain = 'a.example'"
    ).fetchone() == ("2026-02-12", "2026-02-14")
    assert_sound(store.connection)
    after = everything(store.connection)
    again = cli("backfill", *arguments)
    assert again.code == 0
    assert "was imported before: 10 rows. Nothing was changed." in again.out
    assert everything(store.connection) == after
    assert cli("backfill", "--check").code == 0


def test_known_domains_keep_what_they_have_learnt(cli: Cli, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    before = store.connection.execute(
        "SELECT status, pages_crawled, version FROM domains WHERE domain = 'example.com'"
    ).fetchone()
    (cli.folder / "log.csv").write_bytes(as_csv([("WWW.Example.com", None, 500, 2, "2026-02-13")] * 5))
    answer = cli("backfill", "log.csv", "--json")
    assert (answer.code, answer.json["imports"][0]["domains_updated"], answer.json["imports"][0]["domains_new"]) == (
        0,
        1,
        0,
    )
    assert (
        store.connection.execute(
            "SELECT status, pages_crawled, version FROM domains WHERE domain = 'example.com'"
        ).fetchone()
        == before
    )
    assert_sound(store.connection)
    store.connection.execute(
        "UPDATE domains SET total_error_count = total_error_count + 1 WHERE domain = 'example.com'"
    )
    checked = cli("backfill", "--check")
    assert checked.code == 1
    assert "a domain's pages and errors are those of the log and its roll-up" in checked.out
    assert "Validation: no. 1 of 10 checks failed." in checked.out


FAULTS = {
    "every import has finished": "UPDATE backfill_imports SET state = 'merging', finished_at = NULL",
    "nothing of a finished import is left to merge": "INSERT INTO backfill_domains"
    " SELECT 1, 'x', 1, 1, 0, 0, 0, 0, 0, 0, NULL, NULL, false, '', '', ''",
    "every backfilled domain has a history or pages": "DELETE FROM crawl_log_rollups",
    "the sums of the domains are those of the imports": "UPDATE crawl_log_rollups SET images_found = images_found + 1",
    "images of the history are counted by their domains": "UPDATE domains SET images_found = 0 WHERE domain = 'a.example'",
    "a domain is blocked if more than half of its history failed, else exhausted": "ALTER TABLE domains DISABLE TRIGGER domains_status;"
    " UPDATE domains SET status = 'exhausted', block_reason_code = NULL WHERE domain = 'gone.example'",
    "a domain discovered what its jobs and the roll-up discovered, and waits for what waits in them": "UPDATE crawl_log_rollups"
    " SET discovered = discovered + 1",
    "a domain's pages and errors are those of the log and its roll-up": "UPDATE crawl_log_rollups SET errors = errors + 1",
    "a job's pages and errors on a domain are those of the log and its roll-up": "INSERT INTO job_domains (domain_id, job_id, pages)"
    " SELECT domain_id, 1, 1 FROM crawl_log_rollups",
}
"""What makes each check fail."""


def test_every_check_finds_the_fault_that_it_is_there_for(cli: Cli, store: Store) -> None:
    (cli.folder / "log.csv").write_bytes(as_csv(GOOD))
    assert cli("backfill", "log.csv").code == 0
    assert set(FAULTS) == set(checks.CHECKS)
    for name, fault in FAULTS.items():
        with store.connection.transaction(force_rollback=True):
            store.connection.execute(fault)
            found = store.connection.execute(checks.CHECKS[name], parameters(retries=0)).fetchone()
        assert found is not None, name
    store.connection.execute("UPDATE domains SET domain = 'www.a.example' WHERE domain = 'a.example'")
    answer = cli("backfill", "--check")
    assert (answer.code, "1 faults: www.a.example" in answer.out) == (1, True), answer


def test_images_count_once_a_domain_however_it_is_written(cli: Cli, store: Store) -> None:
    store.connection.execute("CREATE SCHEMA old")
    store.connection.execute("CREATE TABLE old.crawl_log (domain text, status smallint)")
    store.connection.execute("INSERT INTO old.crawl_log VALUES ('a.example', 200), ('www.a.example', 200)")
    store.connection.execute(
        "CREATE TABLE old.provenance (id bigint, source_domain text, source_page_url text, image_id uuid)"
    )
    store.connection.execute(
        "INSERT INTO old.provenance SELECT n, d, 'https://' || d, ('00000000-0000-0000-0000-00000000000' || n % 3)::uuid"
        " FROM generate_series(1, 9) n, (VALUES ('a.example'), ('WWW.a.example'), ('only.example')) v(d)"
    )
    answer = cli("backfill", "--schema", "old", "--json")
    log, images = answer.json["imports"]
    assert (answer.code, log["domains_merged"], images["images_stored"], images["domains_new"]) == (0, 1, 6, 1)
    assert "There is no column crawled_at: new domains have no time of a crawl." in log["notes"]
    assert store.connection.execute(
        "SELECT domain, images_stored, image_yield_rate, status::text FROM domains WHERE source LIKE 'backfill%' ORDER BY 1"
    ).fetchall() == [("a.example", 3, 1.5, "exhausted"), ("only.example", 3, None, "exhausted")]
    assert_sound(store.connection)


def test_kills_neither_lose_nor_double(cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second commit of each run is never reached, in the reading and in the merging."""
    rows = [
        (f"{'www.' if n % 3 else ''}d{n % 40}.example", None, 404 if n % 7 == 0 else 200, 1, None) for n in range(400)
    ]
    (cli.folder / "log.csv").write_bytes(as_csv(rows))
    (cli.folder / "small.py").write_text(
        "from holdfast.backfill import service\nfrom holdfast.backfill.queries import history\nservice.ROWS = 200\nhistory.CHUNK = 20\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(cli.folder))
    (cli.folder / "sitecustomize.py").write_text("import small\n")
    kills = run_through_kills("in_backfill", "backfill", "log.csv", folder=cli.folder)
    assert kills >= 4
    totals = store.connection.execute(
        "SELECT count(*), sum(pages_discovered), sum(pages_crawled), sum(total_error_count), sum(images_found) FROM domains"
    ).fetchone()
    assert totals == (40, 400, 342, 58, 400)
    assert_sound(store.connection)
    assert cli("backfill", "--check").code == 0


def test_domains_that_are_held_or_locked_are_left_and_hold_up_nothing(
    cli: Cli, store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "WAIT", 0.0)
    monkeypatch.setattr(history, "CHUNK", 2)
    store.seed("a.example", "b.example", "c.example")
    (cli.folder / "log.csv").write_bytes(as_csv([(f"{name}.example", None, 200, 1, None) for name in "abcd"]))
    held = store.claim_one()
    before = store.connection.execute("SELECT d::text FROM domains d WHERE id = %s", (held.domain_id,)).fetchone()
    with database.session() as other, other.transaction():
        other.execute("SELECT FROM domains WHERE domain = 'b.example' FOR NO KEY UPDATE")
        said = cli("backfill", "log.csv").refused(5)
    assert f"not imported yet: 2. {held.domain} is held by worker w1." in said
    assert (
        store.connection.execute("SELECT d::text FROM domains d WHERE id = %s", (held.domain_id,)).fetchone() == before
    )
    counted = "SELECT domain FROM domains WHERE images_found = 1 ORDER BY domain"
    assert store.connection.execute(counted).fetchall() == [("c.example",), ("d.example",)]
    store.release(held)
    answer = cli("backfill", "log.csv", "--json")
    (one,) = answer.json["imports"]
    assert (answer.code, one["domains_new"], one["domains_updated"]) == (0, 1, 3), answer
    assert len(store.connection.execute(counted).fetchall()) == 4


def test_a_file_that_changes(cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cli.folder / "log.csv"
    file.write_bytes(as_csv(GOOD[:3]))

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(imports, "add", fail)
        assert cli("backfill", "log.csv").code == 130
    file.write_bytes(as_csv(GOOD[:4]))
    answer = cli("backfill", "log.csv")
    assert (answer.code, "is read from the beginning" in answer.err) == (0, True), answer
    file.write_bytes(as_csv(GOOD))
    refused = cli("backfill", "log.csv").refused(5)
    assert "was imported before with another content" in refused
    (cli.folder / "copy.csv").write_bytes(as_csv(GOOD[:4]))
    assert "was imported before: 4 rows" in cli("backfill", "copy.csv").out
    assert cli("backfill", "log.csv", "--again").code == 0
    assert store.value("SELECT sum(requests)::bigint FROM crawl_log_rollups") == 4 + 8
    assert_sound(store.connection)


def test_a_damaged_file_gives_what_could_be_read(cli: Cli, store: Store) -> None:
    (cli.folder / "log.csv.gz").write_bytes(gzip.compress(as_csv(GOOD * 2000))[:-200])
    answer = cli("backfill", "log.csv.gz")
    assert answer.code == 1
    assert "the gzip file is damaged or incomplete" in answer.err
    assert sorted(domains(store.connection)) == sorted(FOUND)
    assert_sound(store.connection)


def test_tables_are_read_in_pieces_and_know_when_they_were_rewritten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_tables, "BLOCKS", 2)
    store.connection.execute(
        "CREATE TABLE log AS SELECT n AS status, repeat('x', 50) AS domain FROM generate_series(1, 1000) n"
    )
    table = source_tables.find(store.connection, "public", "log")
    pieces = list(table.pieces({"domain": "domain", "status": "status"}, None, 0))
    assert len(pieces) > 3
    assert [int(row.status) for rows, _, _ in pieces for row in rows] == list(range(1, 1001))
    rest = [row for rows, _, _ in table.pieces({"status": "status"}, pieces[1][1], 0) for row in rows]
    assert [int(row.status) for row in rest] == [int(row.status) for rows, _, _ in pieces[2:] for row in rows]
    assert not table.is_rewritten(pieces[1][1])
    store.connection.execute("VACUUM FULL log")
    assert table.is_rewritten(pieces[1][1])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "Name a SOURCE"),
        (["a.csv", "--check"], 2, "use --check alone"),
        (["a.csv", "--schema", "old"], 2, "are for tables"),
        (["-"], 2, "a source must be a file"),
        (["/dev/null"], 2, "a source must be a file"),
        (["missing.csv"], 2, "cannot be read: No such file or directory"),
        (["a.csv"], 2, "has no column with a domain or a URL; it has: x, y"),
        (["none.csv"], 2, "none.csv is empty; the first line must name the columns"),
        (["a.jsonl"], 2, "is JSON, which is not read; convert it to CSV"),
        (["zeros"], 2, "is not text"),
        (["a.csv", "--map", "nothing=x"], 2, "--map is COLUMN=NAME"),
        (["a.csv", "--map", "domain=x", "--map", "status=z"], 2, "has no column 'z' for status"),
        (["a.csv", "--format", "table"], 2, "is not the format of a file"),
        (["a.csv", "--format", "parquet"], 2, "is not a Parquet file"),
        (["empty"], 2, "not a file cache of Scrapy"),
        (["jobdir"], 2, "Its queues are pickles"),
        (["--schema", "none"], 4, "has no table crawl_log or provenance"),
        (["--table", "nothing"], 4, "There is no table public.nothing"),
        (["--table", "runnable_jobs"], 2, "is not a table"),
        (["--table", "commit_markers"], 2, "has no column with a domain or a URL"),
        (["--from-database", "postgresql://nobody@127.0.0.1:1/x"], 3, "does not answer"),
        (["a.csv", "--server", "http://127.0.0.1:1"], 2, "cannot be used with --server"),
    ],
)
def test_refusals(arguments: list[str], code: int, said: str, cli: Cli) -> None:
    (cli.folder / "a.csv").write_text("x,y\n1,2\n")
    (cli.folder / "none.csv").touch()
    (cli.folder / "a.jsonl").write_text('{"domain": "a.example"}\n')
    (cli.folder / "zeros").write_bytes(bytes(20))
    (cli.folder / "empty").mkdir()
    (cli.folder / "jobdir" / "requests.queue").mkdir(parents=True)
    assert said in cli("backfill", *arguments).refused(code)
