"""Where no job stores the content of its pages, search says so, and what to do."""

from pathlib import Path

import pytest

from holdfast.db.connection import Database
from holdfast.model.auth import Role
from tests.support.api import serving, settings
from tests.support.browsing import log_in
from tests.support.cli import Cli, only_ours
from tests.support.documents import DocumentSite
from tests.support.factories import Store


def test_search_without_documents(
    database: Database,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    only_ours(monkeypatch, tmp_path, database)
    answer = Cli(tmp_path, monkeypatch, capsys)("search", "x")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith(
        "No page found: no job has stored the content of pages. `holdfast crawl URL --markdown`"
    )
    with serving(database, settings(tmp_path / "elsewhere")) as api:
        rita = log_in(api, "rita", Role.USER)
        for path in ("/documents", "/documents?q=x"):
            assert "There is nothing to search yet." in rita.get(path).words
        DocumentSite(database, store, 2)
        assert "2 new or changed documents are not in the index yet" in rita.get("/documents?q=page").words
        assert api.reader.get("/api/search", params={"q": "page"}).json()["index"]["updated_at"] is None
