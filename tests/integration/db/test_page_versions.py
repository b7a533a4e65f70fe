"""Versions of pages: a replaced answer is stored once, in the transaction that replaces it, and only if the content differs."""

from datetime import datetime
from typing import Any

import psycopg
import pytest

from holdfast import failpoints
from holdfast.db import crawls, migrate
from holdfast.db.commit import commit
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.errors import RolledBack
from holdfast.jobs.service import JobService
from holdfast.model.commit_batch import CommitBatch, PageRow
from holdfast.model.domain import Claim
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import PAGES, Outcome
from holdfast.pages.service import PageService
from tests.support.batches import Worker, outcome
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants, violations

HOME = "https://a.example/"
STATUS = {Outcome.OK: 200, Outcome.NOT_FOUND: 404, Outcome.SERVER_ERROR: 500, Outcome.NOT_MODIFIED: 304}
VERSIONS = "SELECT number, change, title, status, crawl_id FROM page_versions ORDER BY url_key, number"


def archived(place: int) -> ArchiveRef:
    return ArchiveRef("w1/1.warc.gz", place, 10, bytes([place]) * 32)


class Site:
    """One URL of a job, crawled again and again."""

    def __init__(self, database: Database, store: Store) -> None:
        self.database, self.store = database, store
        self.worker = Worker(database, store)
        store.seed(HOME)
        self.crawl_id = 0
        self.claim: Claim | None = None

    def again(self) -> Claim:
        """Begin the next crawl of the job, and claim the domain."""
        connection = self.store.connection
        if self.claim is not None:
            self.store.release(self.claim)
            connection.execute("UPDATE crawls SET state = 'finished', ended_at = clock_timestamp()")
            connection.execute("UPDATE crawl_jobs SET state = 'completed' WHERE name = 'default'")
            crawls.restart(connection, self.store.job)
        self.crawl_id, _ = crawls.begin(connection, self.store.job)
        self.claim = self.store.claim_one()
        return self.claim

    def row(self, text: str | None, kind: Outcome = Outcome.OK, **facts: Any) -> PageRow:
        hashed = None if text is None else text.encode().ljust(32)
        return PageRow(STATUS[kind], title=text, content_hash=hashed, content_length=len(text or ""), **facts)

    def fetch(self, text: str | None, kind: Outcome = Outcome.OK, *, versions: int = 20, **facts: Any) -> None:
        """Crawl the job again, with this answer for the URL."""
        claim = self.again()
        self.commit(claim, self.row(text, kind, **facts), kind, versions=versions)

    def commit(self, claim: Claim, page: PageRow, kind: Outcome = Outcome.OK, *, versions: int = 20) -> set[int]:
        rows = [outcome(HOME, self.store.job, kind, page=page, status=STATUS[kind])]
        done = commit(
            self.store.connection,
            self.database.connect,
            worker="w1",
            batch=CommitBatch(self.worker.run_id, [self.worker.part(claim, rows)]),
            lease=LEASE,
            defaults=NewDomains(),
            versions=versions,
        )
        return done.refused

    def versions(self) -> list[tuple[Any, ...]]:
        return self.store.connection.execute(VERSIONS).fetchall()

    def changes(self) -> list[tuple[int, str, str | None]]:
        return [(number, change, title) for number, change, title, *_ in self.versions()]

    def new_in(self) -> int | None:
        found = self.store.connection.execute("SELECT new_in_crawl FROM crawled_pages").fetchone()
        assert found is not None
        return found[0] and int(found[0])


@pytest.fixture
def site(database: Database, store: Store) -> Site:
    return Site(database, store)


def test_the_schema_and_the_outcomes_agree_on_what_a_page_is(connection: psycopg.Connection) -> None:
    rows = connection.execute("SELECT o FROM unnest(%s::text[]) o WHERE is_page(o)", ([str(o) for o in Outcome],))
    assert {row[0] for row in rows} == PAGES
    known = connection.execute(
        "SELECT count(*) FROM unnest(%s::text[]) o WHERE o = 'not_found'", ([str(o) for o in Outcome],)
    )
    assert known.fetchone() == (1,)


def test_a_first_crawl_stores_no_version(site: Site) -> None:
    site.fetch("one")
    assert site.versions() == []
    assert site.new_in() is None, "in the first crawl every page is new"
    assert_invariants(site.store.connection)


def test_changed_content_stores_the_replaced_answer_once(site: Site) -> None:
    site.fetch("one", archive=archived(1), content_type="text/html", charset="utf-8")
    fetched = site.store.value("SELECT crawled_at FROM crawled_pages")
    site.fetch("two", archive=archived(2))
    assert site.versions() == [(1, "changed", "one", 200, site.crawl_id)]
    found = site.store.connection.execute(
        "SELECT v.crawled_at, v.replaced_at = p.crawled_at, v.archive_segment, v.archive_offset, v.archive_length, v.payload_digest,"
        " v.content_type, v.charset, v.content_hash, v.content_length, v.outcome FROM page_versions v JOIN crawled_pages p"
        " USING (domain_id, job_id, url_key)"
    ).fetchone()
    assert found == (fetched, True, "w1/1.warc.gz", 1, 10, b"\1" * 32, "text/html", "utf-8", b"one".ljust(32), 3, "ok")
    site.fetch("three")
    assert site.changes() == [(1, "changed", "one"), (2, "changed", "two")]
    assert_invariants(site.store.connection)


def test_unchanged_and_not_modified_store_none(site: Site) -> None:
    site.fetch("one", archive=archived(1))
    site.fetch("one", archive=archived(2))
    assert site.versions() == [], "the hash of the text is the same, whatever the bytes are"
    site.fetch(None, Outcome.NOT_MODIFIED)
    assert site.versions() == []
    site.fetch("one")
    assert site.versions() == []
    site.fetch("two")
    assert site.changes() == [(1, "changed", "one")]


def test_without_a_hash_of_the_text_the_bytes_decide(site: Site) -> None:
    site.fetch(None, archive=archived(1))
    site.fetch(None, archive=archived(1))
    assert site.versions() == []
    site.fetch(None, archive=archived(2))
    assert [change for _, change, _ in site.changes()] == ["changed"]


def test_a_page_that_is_gone_and_comes_back(site: Site) -> None:
    site.fetch("one")
    site.fetch(None, Outcome.NOT_FOUND)
    assert site.versions() == [(1, "gone", "one", 200, site.crawl_id)]
    site.fetch(None, Outcome.NOT_FOUND)
    assert len(site.versions()) == 1, "it is gone already"
    site.fetch("one")
    assert [(change, status) for _, change, _, status, _ in site.versions()] == [("gone", 200), ("back", 404)]
    assert site.new_in() == site.crawl_id
    assert_invariants(site.store.connection)


def test_a_url_that_was_never_a_page_has_no_version(site: Site) -> None:
    site.fetch(None, Outcome.NOT_FOUND)
    site.fetch(None, Outcome.SERVER_ERROR)
    site.fetch("one")
    assert site.versions() == []
    assert site.new_in() == site.crawl_id


def test_an_error_in_between_is_no_change_of_the_content(site: Site) -> None:
    site.fetch("one", archive=archived(1))
    site.fetch(None, Outcome.SERVER_ERROR)
    assert site.changes() == [(1, "failed", "one")], "the last answer does not point to the bytes any more"
    site.fetch("one", archive=archived(2))
    assert site.versions() == [], "it is the last answer again"
    assert site.new_in() is None
    site.fetch(None, Outcome.SERVER_ERROR)
    failed_in = site.crawl_id
    site.fetch(None, Outcome.SERVER_ERROR)
    assert site.versions() == [(1, "failed", "one", 200, failed_in)]
    site.fetch("two")
    assert site.versions() == [(1, "changed", "one", 200, site.crawl_id)]
    assert site.new_in() is None, "it was a page before the errors"
    assert_invariants(site.store.connection)


def test_the_oldest_versions_are_deleted_beyond_the_limit(site: Site) -> None:
    for number in range(6):
        site.fetch(f"text {number}", versions=3)
    assert site.changes() == [(3, "changed", "text 2"), (4, "changed", "text 3"), (5, "changed", "text 4")]
    site.fetch("text 6", versions=1)
    assert site.changes() == [(6, "changed", "text 5")], "a lower limit counts from the next change on"
    site.fetch("text 7", versions=0)
    assert site.changes() == [(6, "changed", "text 5")], "none is stored, and none deleted"


def test_a_stale_epoch_writes_no_version(site: Site) -> None:
    site.fetch("one")
    stale = site.again()
    site.store.expire(stale.domain_id)
    site.store.connection.execute("UPDATE domains SET claim_epoch = claim_epoch + 1")
    assert site.commit(stale, site.row("two")) == {stale.domain_id}
    assert site.versions() == []
    assert site.store.value("SELECT title FROM crawled_pages") == "one"


def test_a_batch_that_is_committed_again_stores_one_version(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.fetch("one")
    claim = site.again()

    def fail(name: str) -> None:
        if name == "before_commit":
            site.store.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(failpoints, "reach", fail)
    with pytest.raises(RolledBack):
        site.commit(claim, site.row("two"))
    monkeypatch.undo()
    with site.database.connect() as connection:
        store = Store(connection)
        again = Site.__new__(Site)
        again.database, again.store, again.worker = site.database, store, Worker(site.database, store)
        assert again.versions() == []
        assert again.commit(claim, again.row("two")) == set()
        assert again.changes() == [(1, "changed", "one")]
        again.commit(claim, again.row("two"))
        assert len(again.versions()) == 1, "the URL does not wait any more"
        assert_invariants(connection)


def test_versions_are_deleted_with_their_page(site: Site) -> None:
    site.fetch("one")
    site.fetch("two")
    assert site.claim is not None
    site.store.release(site.claim)
    assert len(site.versions()) == 1
    before = site.store.value("SELECT min(crawled_at) FROM page_versions")
    assert isinstance(before, datetime)
    assert PageService(site.database).purge(actor="ann", before=before).forgotten == 0
    assert len(site.versions()) == 1
    assert PageService(site.database).purge(actor="ann").forgotten == 1
    assert site.versions() == []
    assert_invariants(site.store.connection)


def test_versions_are_deleted_with_their_job(site: Site) -> None:
    site.fetch("one")
    site.fetch("two")
    news = site.store.new_job("news")
    site.store.connection.execute("UPDATE page_versions SET job_id = %s", (news,))
    site.store.connection.execute(
        "INSERT INTO url_frontier (domain_id, job_id, url_key, url, state) SELECT domain_id, %s, url_key, url, 'done' FROM url_frontier",
        (news,),
    )
    site.store.connection.execute(
        "INSERT INTO job_domains (domain_id, job_id, state, discovered, done) SELECT domain_id, %s, 'done', 1, 1 FROM job_domains",
        (news,),
    )
    JobService(site.database, "ann").delete("news")
    assert site.versions() == []


def test_a_crawl_under_way_goes_on_after_the_step_down_and_up(site: Site) -> None:
    """Pages stay; of those that the schema before forgot, a version is stored at their next change, and none is called new."""
    site.fetch("one")
    site.fetch("two")
    claim = site.again()
    migrate.downgrade(site.database, "0028")
    migrate.upgrade(site.database)
    assert site.versions() == []
    assert site.store.value("SELECT title FROM crawled_pages") == "two"
    site.commit(claim, site.row("three"))
    assert site.versions() == [(1, "changed", "two", 200, site.crawl_id)]
    assert site.new_in() is None
    assert_invariants(site.store.connection)


def test_verify_finds_a_version_without_a_page_and_half_a_reference(site: Site) -> None:
    site.fetch("one", archive=archived(1))
    site.fetch("two", archive=archived(2))
    connection = site.store.connection
    assert violations(connection) == {}
    connection.execute("UPDATE page_versions SET payload_digest = 'x'")
    assert list(violations(connection)) == ["I11 every reference to the archive is whole"]
    connection.execute("UPDATE page_versions SET payload_digest = NULL, url_key = 'other'")
    assert "I11 every version of a page belongs to a page" in violations(connection)
