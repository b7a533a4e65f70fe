"""Search as the service answers it: what was committed is found, what was deleted is not, and a killed process leaves the last commit."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.crawler import site_blocks
from holdfast.db.connection import Database
from holdfast.errors import NotFound, UnderWay
from holdfast.model.url import url_key
from holdfast.search import service as search_service
from holdfast.search.records import SearchFilter
from holdfast.search.service import SearchService
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
    index = search._open()
    assert index is not None
    writer = index.writer()
    site.save(HOME, "Later.")
    with pytest.raises(UnderWay):
        search.update()
    with pytest.raises(UnderWay):
        search.rebuild()
    assert len(urls(search, "says")) == 6, "the last commit is searched"
    writer.close()
    assert search.update() == 1
