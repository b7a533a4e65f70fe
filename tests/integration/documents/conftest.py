"""One store for all tests of documents: a site with what was stored of it, pages that only the archive has, and hostile ones.

No test changes it. The command line, the API, both clients and the dashboard are asked for the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.crawler import site_blocks
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from holdfast.model.url import url_key
from holdfast.search.service import SearchService
from tests.conftest import MakeDatabase
from tests.support.api import Api, serving, settings
from tests.support.cli import Answer, Cli, only_ours
from tests.support.crawled import HOME
from tests.support.documents import DocumentSite
from tests.support.factories import Store

ARCHIVED = f"{HOME}4"
"""Only the archive has its content."""
NOINDEX, PICTURE, EMPTY = f"{HOME}5", f"{HOME}6", f"{HOME}7"
HOSTILE = f"{HOME}8"
TITLE = "<script>alert(1)</script>\x1b[2J & more"
"""Of the hostile page, as the store would never have it: what shows it must not rely on that."""
PAGES = 9


@dataclass(frozen=True)
class Documents:
    """The site, and where its server and its data folder are."""

    site: DocumentSite
    database: Database
    data: Path
    api: Api
    key: str


@pytest.fixture(scope="module")
def documents(make_database: MakeDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documents]:
    """Five stored documents with an index, four pages without."""
    data = tmp_path_factory.mktemp("data")
    with make_database() as database, database.connect() as connection:
        site = DocumentSite(database, Store(connection), PAGES)
        site.save(HOSTILE, "# Danger", "Danger: <img src=x onerror=alert(1)> \x1b[2Jand \u202emore.", title=TITLE)
        site_blocks.decide_some(connection)
        archive = data / "archive"
        site.unstore(ARCHIVED, archive, b"<title>The Lamp</title><h1>The Lamp</h1><p>It was <b>dark</b>.</p>")
        site.unstore(NOINDEX, archive, b"<meta name=robots content=noindex><p>Not for you.</p>")
        site.unstore(PICTURE, archive, b"\x89PNG\r\n\x1a\n", b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
        site.unstore(EMPTY, archive, b"<p> </p>")
        connection.execute(
            "UPDATE crawled_pages SET content_type = 'image/png' WHERE url_key = %s", (url_key(PICTURE),)
        )
        connection.execute("UPDATE crawled_pages SET noindex = true WHERE url_key = %s", (url_key(NOINDEX),))
        SearchService(database, data).update()
        with serving(database, settings(data)) as api:
            yield Documents(site, database, data, api, api.key(Role.ADMIN))


@dataclass
class Both:
    """The command line on the store, and on its server."""

    cli: Cli
    documents: Documents
    monkeypatch: pytest.MonkeyPatch

    def near(self, *arguments: str) -> Answer:
        """Ask the store."""
        return self.cli("--data", str(self.documents.data), *arguments)

    def far(self, *arguments: str) -> Answer:
        """Ask the server, where no store could be opened."""
        with self.monkeypatch.context() as patch:
            patch.setenv("HOLDFAST_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
            patch.setenv("HOLDFAST_API_KEY", self.documents.key)
            return self.cli("--server", self.documents.api.url, *arguments)

    def same(self, *arguments: str) -> Answer:
        """The answer, which is the same from both."""
        near, far = self.near(*arguments), self.far(*arguments)
        assert far == near
        return near


@pytest.fixture
def both(
    documents: Documents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Both:
    """`holdfast` on the module's store."""
    only_ours(monkeypatch, tmp_path, documents.database)
    return Both(Cli(tmp_path, monkeypatch, capsys), documents, monkeypatch)
