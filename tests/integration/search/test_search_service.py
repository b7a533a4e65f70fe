"""Search as the service answers it: what was committed is found, what was deleted is not, and a killed process leaves the last commit."""

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.crawler import site_blocks
from holdfast.db.connection import Database
from holdfast.errors import NotFound, SearchUnavailable, UnderWay
from holdfast.model.url import url_key
from holdfast.search import service as search_service
from holdfast.search.index import IndexDamaged, IndexWriter, SearchIndex, exclusive
from holdfast.search.queries import DocumentId
from holdfast.search.records import SearchFilter
from holdfast.search.service import SearchService, index_key
from tests.support.crawled import HOME
from tests.support.documents import FOOTER, MENU, DocumentSite
from tests.support.factories import Store


@pytest.fixture
def site(database: Database, store: Store) -> DocumentSite:
    return DocumentSite(database, store, 6)


@pytest.fixture
def search(database: Database, tmp_path: Path) -> SearchService:
    return SearchService(database, tmp_path)


def urls(search: SearchService, words: str, where: SearchFilter | None = None) -> list[str]:
    return sorted(hit.url for hit in search.search(words, where).hits)


def test_documents_are_found_and_the_lag_is_said(site: DocumentSite, search: SearchService) -> None:
    before = search.search("page")
    assert (before.total, before.hits, before.index.waiting, before.index.updated_at) == (0, [], 6, None)
    assert search.update() == 6
    found = search.search("says page", limit=2)
    assert (found.total, len(found.hits), found.index.waiting, found.index.documents) == (6, 2, 0, 6)
    assert [part.text for part in found.hits[0].snippet if part.marked][:1] == ["Page"]
    assert urls(search, "xxx") == [f"{HOME}3"]
    assert urls(search, "xxx", SearchFilter(job="default", domain="EXAMPLE.com", language="en")) == [f"{HOME}3"]
    assert urls(search, "xxx", SearchFilter(kind="product")) == []
    with pytest.raises(NotFound):
        search.search("xxx", SearchFilter(job="absent"))


def test_changes_and_deletions_reach_the_index(site: DocumentSite, search: SearchService) -> None:
    search.update()
    assert search.update() == 0
    site.save(HOME, "Quite another text.")
    site.connection.execute("DELETE FROM crawled_pages WHERE url_key = %s", (url_key(f"{HOME}3"),))
    assert urls(search, "xxx") == [], "a deleted page is not shown before the index knows"
    assert search.status().waiting == 1
    assert search.update() == 1
    assert urls(search, "another") == [HOME]
    assert search.status().documents == 5


def test_a_transaction_that_is_still_open_is_not_missed(
    site: DocumentSite, search: SearchService, database: Database
) -> None:
    with database.connect() as other, other.transaction():
        other.execute(
            "UPDATE documents SET changed = pg_current_xact_id(), language = 'de' WHERE url_key = %s", (url_key(HOME),)
        )
        site.save(f"{HOME}1", "Written after the open one began.")
        search.update()
        assert urls(search, "written") == [], "it waits for the older transaction"
    search.update()
    assert urls(search, "written") == [f"{HOME}1"]
    assert urls(search, "page", SearchFilter(language="de")) == [HOME]


def test_removed_blocks_are_not_found(site: DocumentSite, search: SearchService) -> None:
    search.update()
    assert len(urls(search, MENU)) == 6
    site_blocks.decide_some(site.connection)
    search.update()
    assert urls(search, f"{MENU} OR ({FOOTER})") == []


def test_documents_that_a_dump_brought_from_another_server_are_found(site: DocumentSite, search: SearchService) -> None:
    search.update()
    site.connection.execute("UPDATE documents SET changed = (1000000000 + words)::text::xid8, language = 'de'")
    site.connection.execute(
        "INSERT INTO document_deletions SELECT '2000000000', now(), domain_id, job_id, url_key FROM documents"
    )
    search.update()
    assert len(urls(search, "says", SearchFilter(language="de"))) == 6
    assert search.status().waiting == 0
    assert search.rebuild() == 6


def test_the_index_is_opened_for_writing_only_when_there_is_something_to_write(
    site: DocumentSite, search: SearchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    search.update()
    opened: list[SearchIndex] = []
    write = SearchIndex.writer

    def open_for_writing(index: SearchIndex) -> IndexWriter:
        opened.append(index)
        return write(index)

    monkeypatch.setattr(SearchIndex, "writer", open_for_writing)
    site.connection.execute("UPDATE crawl_jobs SET state_reason = 'another transaction'")
    updated_at = search.status().updated_at
    assert (search.update(), opened, search.status().updated_at) == (0, [], updated_at)
    site.connection.execute("DELETE FROM documents WHERE url_key = %s", (url_key(HOME),))
    assert (search.update(), len(opened), search.status().documents) == (0, 1, 5)
    monkeypatch.setattr(search_service, "MARK_EVERY", timedelta(0))
    site.connection.execute("UPDATE crawl_jobs SET state_reason = 'one more'")
    assert (search.update(), len(opened)) == (0, 2)


def _other_store(site: DocumentSite, _: SearchService) -> None:
    site.connection.execute("UPDATE store_identity SET generation = generation + 1")


def _old_index(_: DocumentSite, __: SearchService) -> None:
    search_service.DELETIONS_KEPT = timedelta(0)  # type: ignore[misc]


def _no_index(_: DocumentSite, search: SearchService) -> None:
    for file in search._folder.iterdir():
        file.unlink()


@pytest.mark.parametrize("spoil", [_other_store, _old_index, _no_index])
def test_an_index_that_cannot_be_continued_is_built_anew(
    spoil: Callable[[DocumentSite, SearchService], None],
    site: DocumentSite,
    search: SearchService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_service, "DELETIONS_KEPT", search_service.DELETIONS_KEPT)  # restored afterwards
    search.update()
    site.connection.execute("ALTER TABLE documents DISABLE TRIGGER documents_deleted")
    site.connection.execute("DELETE FROM documents WHERE url_key = %s", (url_key(HOME),))
    spoil(site, search)
    assert search.update() == 5
    assert search.status().documents == 5
    assert search.rebuild() == 5


def test_one_process_updates_the_index(site: DocumentSite, search: SearchService) -> None:
    search.update()
    site.save(HOME, "Later.")
    with exclusive(search._folder):
        with pytest.raises(UnderWay):
            search.update()
        with pytest.raises(UnderWay):
            search.rebuild()
        assert len(urls(search, "says")) == 6, "the last commit is searched"
    assert search.update() == 1


def test_a_rebuild_by_another_process_is_seen(site: DocumentSite, search: SearchService, database: Database) -> None:
    search.update()
    assert len(urls(search, "says")) == 6
    other = SearchService(database, search._folder.parent)
    site.save(HOME, "Quite another text.")
    assert other.rebuild() == 6
    assert len(urls(search, "says")) == 5


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _overwrite(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(b"\xff" * (len(content) - 200) + content[-200:])  # the footer stays: it opens


@pytest.mark.parametrize("damage", [_truncate, _overwrite, Path.unlink])
@pytest.mark.parametrize("name", ["meta.json", "*.term", "*.store", "*.idx"])
def test_a_damaged_index_is_said_to_be_and_built_anew(
    name: str, damage: Callable[[Path], None], site: DocumentSite, search: SearchService, database: Database
) -> None:
    search.update()
    damage(next(search._folder.glob(name)))
    searcher = SearchService(database, search._folder.parent)  # another process: nothing of the index is open in it
    if SearchIndex.exists(search._folder):
        with pytest.raises(IndexDamaged, match=r"is damaged .* `holdfast serve` builds it anew"):
            searcher.search("says")
    searcher.update()
    assert len(urls(searcher, "says")) == 6
    assert (searcher.status().documents, searcher.status().waiting) == (6, 0)


def test_an_index_that_cannot_be_written_stays_as_it_is(
    site: DocumentSite, search: SearchService, monkeypatch: pytest.MonkeyPatch
) -> None:
    search.update()
    site.save(HOME, "Quite another text.")

    def refuse(*_: object) -> None:
        raise SearchUnavailable("No space left on device.")

    with monkeypatch.context() as patch:
        patch.setattr(IndexWriter, "commit", refuse)
        with pytest.raises(SearchUnavailable):
            search.update()
    assert (len(urls(search, "says")), search.status().waiting) == (6, 1)
    assert search.update() == 1
    assert urls(search, "another") == [HOME]


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.db.connection import Database
from holdfast.search import service
from holdfast.search.index import IndexWriter

url, data, name, moment, number = sys.argv[1:]
service.CHUNK, service.COMMIT_DOCUMENTS = 3, 9
real, calls = getattr(IndexWriter, name), 0

def call(*values):
    global calls
    calls += 1
    if calls == int(number) and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(*values)
    if calls == int(number):
        os.kill(os.getpid(), signal.SIGKILL)

setattr(IndexWriter, name, call)
service.SearchService(Database(url), Path(data)).update()
"""


def test_killed_while_indexing_it_has_what_was_committed(
    database: Database, store: Store, search: SearchService
) -> None:
    site = DocumentSite(database, store, 40)
    rows = site.connection.execute("SELECT changed::text::bigint, domain_id, job_id, url_key FROM documents").fetchall()
    changes = {index_key(DocumentId(*row[1:])): row[0] for row in rows}
    for name, moment, number in [
        ("put", "after", 2),
        ("commit", "after", 1),
        ("commit", "before", 2),
        ("finish", "before", 1),
    ]:
        script = [sys.executable, "-c", KILLED, database.url, str(search._folder.parent), name, moment, str(number)]
        assert subprocess.run(script, check=False).returncode == -signal.SIGKILL
        index = SearchIndex(search._folder)
        mark, keys = index.watermark(), index.keys()
        assert len(keys) == len(set(keys))
        seen = 0 if mark is None else mark.changed
        assert {key for key, changed in changes.items() if changed < seen} <= set(keys)
        assert set(keys) <= {key for key, changed in changes.items() if changed <= seen}
    search.update()
    found = SearchIndex(search._folder).keys()
    assert sorted(found) == sorted(changes)
    assert search.search("says").total == 40
