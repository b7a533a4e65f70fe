"""Documents and search over HTTP: the routes, the two clients, and the pages of the dashboard."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from holdfast import AsyncClient, Client, NotFound, UsageError
from holdfast.model.auth import Role
from holdfast.search.service import MAX_OFFSET
from tests.integration.documents.conftest import ARCHIVED, EMPTY, HOSTILE, NOINDEX, PAGES, PICTURE, Documents
from tests.support.browsing import Browser, log_in
from tests.support.crawled import HOME


@pytest.fixture(scope="module")
def reader(documents: Documents) -> httpx.Client:
    """Somebody who may only read."""
    return documents.api.client(documents.api.key(Role.USER))


@pytest.fixture(scope="module")
def rita(documents: Documents) -> Browser:
    """The same with a session."""
    return log_in(documents.api, "rita", Role.USER)


def test_the_route_of_a_document(documents: Documents, reader: httpx.Client) -> None:
    found = reader.get("/api/pages/markdown", params={"url": f"{HOME}1"})
    assert found.status_code == 200
    assert found.json()["markdown"] == "# Page 1\n\nWhat only page 1 says: x."
    assert found.json()["counted_pages"] == PAGES
    archived = reader.get("/api/pages/markdown", params={"url": ARCHIVED, "job": "default"}).json()
    assert (archived["title"], archived["stored"]) == ("The Lamp", False)
    assert documents.api.anybody.get("/api/pages/markdown", params={"url": HOME}).status_code == 401


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ({"url": NOINDEX}, 404, "asked not to be indexed (noindex)"),
        ({"url": PICTURE}, 404, "it is image/png"),
        ({"url": EMPTY}, 404, "its HTML has no text"),
        ({"url": f"{HOME}never"}, 404, "was not crawled, and no page"),
        ({"url": HOME, "job": "absent"}, 404, "no job called 'absent'"),
        ({"url": "https://-bad-.com/"}, 422, "begins or ends with a hyphen"),
        ({}, 422, "url"),
    ],
)
def test_why_there_is_no_document(reader: httpx.Client, query: dict[str, str], status: int, sentence: str) -> None:
    answer = reader.get("/api/pages/markdown", params=query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert sentence in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "total"),
    [
        ({"domain": "EXAMPLE.com"}, 4), ({"job": "default"}, 4), ({"language": "en"}, 4), ({"language": "fr"}, 0),
        ({"kind": "article"}, 4), ({"kind": "forum"}, 0), ({"since": "2020-01-01T00:00:00Z"}, 4), ({"until": "2020-01-01T00:00:00Z"}, 0),
        ({"q": '"only page 3 says"'}, 1), ({"q": "says -xxx"}, 3), ({"q": "xx OR xxx"}, 2), ({"limit": "1", "offset": "3"}, 4),
    ],
)  # fmt: skip
def test_the_route_of_search(reader: httpx.Client, query: dict[str, str], total: int) -> None:
    found = reader.get("/api/search", params={"q": "says"} | query).json()
    assert found["total"] == total
    assert len(found["hits"]) == min(total, int(query.get("limit", 10)))
    assert (found["index"]["documents"], found["index"]["waiting"], found["index"]["behind_seconds"]) == (5, 0, None)


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ({"q": '"open'}, 422, "The query cannot be read"),
        ({"q": "a " * 101}, 422, "100 are allowed"),
        ({"q": " "}, 422, "give at least one word"),
        ({"q": "x", "domain": "-bad-.com"}, 422, "hyphen"),
        ({"q": "x", "job": "absent"}, 404, "no job called 'absent'"),
        ({"q": "x", "limit": "101"}, 422, "limit"),
        ({"q": "x", "offset": str(MAX_OFFSET + 1)}, 422, "offset"),
        ({}, 422, "q"),
    ],
)
def test_a_search_that_is_refused(reader: httpx.Client, query: dict[str, str], status: int, sentence: str) -> None:
    answer = reader.get("/api/search", params=query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert sentence in answer.json()["detail"]


def test_the_clients(documents: Documents) -> None:
    url, key = documents.api.url, documents.key
    yesterday = datetime.now(UTC) - timedelta(days=1)
    with Client(url, key=key) as client:
        page = client.page_markdown(f"{HOME}1")
        found = client.search("says", domain="example.com", job="default", kind="article", since=yesterday, limit=2)
        status = client.search_status()
        with pytest.raises(NotFound, match="noindex"):
            client.page_markdown(NOINDEX)
        with pytest.raises(UsageError, match="cannot be read"):
            client.search('"open')

    async def later() -> None:
        async with AsyncClient(url, key=key) as waiting:
            assert await waiting.page_markdown(f"{HOME}1", job="default") == page
            assert (
                await waiting.search(
                    "says", domain="example.com", job="default", kind="article", since=yesterday, limit=2
                )
                == found
            )
            assert await waiting.search_status() == status

    asyncio.run(later())
    assert page.headings[0].title == "Page 1"
    assert (found.total, len(found.hits), status.documents) == (4, 2, 5)


def test_the_content_of_a_page(rita: Browser) -> None:
    page = rita.get("/pages/content", url=f"{HOME}1")
    assert "What only page 1 says: x." in page.words
    assert f"without what stands on many of {PAGES} pages of the site" in page.words
    archived = rita.get("/pages/content", url=ARCHIVED)
    assert "It was **dark**." in archived.words
    assert "made from the archive" in archived.words
    for url, sentence in ((NOINDEX, "(noindex)"), (PICTURE, "it is image/png"), (EMPTY, "its HTML has no text")):
        none = rita.get("/pages/content", url=url)
        assert (none.status, sentence in none.words) == (200, True)
    assert rita.get("/pages/content", url=f"{HOME}never").status == 404


def test_hostile_content_stays_text_on_every_page(rita: Browser) -> None:
    for page in (rita.get("/pages/content", url=HOSTILE), rita.get("/documents?q=danger")):
        assert "<script>alert(1)</script>" in page.words
        assert "<img src=x onerror=alert(1)>" in page.words
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert not {"\x1b", "\u202e"} & set(page.text)


def test_the_search_page(rita: Browser) -> None:
    assert "5 documents can be searched." in rita.get("/documents").words
    found = rita.get("/documents?q=xxx&domain=example.com&language=en&kind=article")
    assert "1 page found." in found.words
    assert "<mark>xxx</mark>" in found.text
    assert "/pages/content?url=https%3A%2F%2Fexample.com%2F3" in found.text
    for kept in (
        'name="q" type="search" value="xxx"',
        'name="domain" value="example.com"',
        '<option value="article" selected>',
    ):
        assert kept in found.text
    assert "No page has all of these words. Use fewer words" in rita.get("/documents?q=zebra").words
    assert "No page has all of these words." in rita.get("/documents?q=xxx&since=2031-01-01T00:00").words
    assert "There are no further results." in rita.get("/documents?q=says&offset=99999999").words
    assert "The query cannot be read" in rita.get('/documents?q="open').notice
    assert rita.get("/documents?q=x&offset=-1").notice == "“Offset” must be a whole number."
    assert "“Since” must be a time" in rita.get("/documents?q=x&since=now").notice
    assert "There is no job called" in rita.get("/documents?q=x&job=absent").notice
    assert rita.get("/search?q=says+page").path == "/documents?q=says+page"


def test_results_have_pages(rita: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.dashboard.pages.pages._HITS", 3)
    first = rita.get("/documents?q=says")
    assert first.next == "/documents?q=says&offset=3"
    second = rita.get(first.next)
    assert (second.next, "4 pages found" in second.words) == (None, True)
    assert 'href="/documents?q=says">First page' in second.text


def test_a_document_that_is_not_in_the_index_yet_is_told(
    documents: Documents, reader: httpx.Client, rita: Browser
) -> None:
    documents.site.save(f"{HOME}1", "Later.")  # the last test of this module: it changes the store
    index = reader.get("/api/search", params={"q": "later"}).json()["index"]
    assert (index["waiting"], index["documents"]) == (1, 5)
    assert index["behind_seconds"] >= 0
    assert reader.get("/api/search/status").json()["waiting"] == 1
    assert "1 new or changed document is not in the index yet" in rita.get("/documents?q=later").words
