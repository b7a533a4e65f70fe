"""Retention: what is old goes into archives, what lives stays, and all of it comes back."""

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.db.connection import Database
from tests.support.aged import DATA, JobStore, Kept, crawl_site, end_job, let_pass, rows_of
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

DAY = timedelta(days=1)


@pytest.fixture
def kept(database: Database, tmp_path: Path) -> Kept:
    return Kept(database, tmp_path)


@pytest.fixture
def shop(database: Database, store: Store, kept: Kept) -> JobStore:
    """A job that ended a hundred days ago, and the standing job, which lives: each crawled a site in two rounds."""
    shop = JobStore(store.connection, store.new_job("shop"))
    crawl_site(database, shop, kept.archive, "shop.example", rounds=2)
    end_job(store.connection, shop.job_id)
    crawl_site(database, store, kept.archive, "live.example", rounds=2)
    let_pass(store.connection, 100 * DAY)
    assert_invariants(store.connection)
    return shop


def counts(connection: psycopg.Connection, job_id: int, *tables: str) -> dict[str, int]:
    found = {}
    for table in tables:
        row = connection.execute(f"SELECT count(*) FROM {table} WHERE job_id = %s", (job_id,)).fetchone()
        assert row
        found[table] = row[0]
    return found


def archived(kept: Kept) -> dict[str, int]:
    """Rows in complete archives by table; every file has the size and the hash that the manifest says."""
    found: dict[str, int] = {}
    for entry in kept.archives.listing(state="complete", limit=500):
        for file in kept.archives.show(entry.id).files:
            path = kept.folder / "retention" / file.key
            assert (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) == (file.bytes, file.sha256)
            table = "crawl_log" if file.table_name.startswith("crawl_log") else file.table_name
            found[table] = found.get(table, 0) + file.rows
    return found


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_what_is_old_is_archived_and_comes_back(
    database: Database, store: Store, shop: JobStore, kept: Kept, format_: str
) -> None:
    kept = Kept(database, kept.folder, format_)
    before, live = rows_of(store.connection, *DATA), counts(store.connection, store.job, *DATA[:4])
    sizes = {table: len(rows) for table, rows in before.items()}
    domains = rows_of(store.connection, "domains")

    result = kept.service().run()
    assert result.problems == []
    assert counts(store.connection, shop.job_id, *DATA) == dict.fromkeys(DATA, 0)
    versions = {"page_versions": live.pop("page_versions")}
    assert counts(store.connection, store.job, *live) == live, "the rows of a live job stay"
    assert versions["page_versions"] == 3
    left = {table: len(rows) for table, rows in rows_of(store.connection, *DATA).items()}
    gone = archived(kept)
    assert {table: left[table] + gone.get(table, 0) for table in DATA} == sizes
    assert_invariants(store.connection)
    discovered = store.value("SELECT pages_discovered FROM domains WHERE domain = 'shop.example'")
    assert discovered == 7
    assert kept.service().run().steps == [step for step in kept.service().run().steps if step.rows == 0], (
        "a second run finds nothing"
    )

    ids = [entry.id for entry in kept.archives.listing(limit=500)]
    pages_first = sorted(ids, key=lambda one: (kept.archives.show(one).archive.kind != "pages", one))
    for archive in pages_first:
        if kept.archives.show(archive).archive.kind not in {"claims", "transitions", "audit"}:
            kept.archives.restore(archive)
    assert rows_of(store.connection, *DATA) == before
    assert_invariants(store.connection)
    again = [kept.archives.restore(one).restored for one in ids if kept.archives.show(one).archive.kind == "pages"]
    assert again == [0] * len(again)
    assert rows_of(store.connection, *DATA) == before
    assert {step.step: step.rows for step in kept.service().run().steps if step.rows} == {}, "it is kept for a while"
    now = rows_of(store.connection, "domains")
    assert [strip(row) for row in now["domains"]] == [strip(row) for row in domains["domains"]]


def strip(row: str) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(row)
    return {name: value for name, value in found.items() if name not in {"updated_at", "frontier_updated_at"}}
