"""Items in the dashboard: the list with its filters, and an item's page."""

import psycopg

from holdfast.dashboard.pages.items import summary
from holdfast.db.connection import Database
from tests.support.api import Api
from tests.support.browsing import Browser
from tests.support.crawled import HOME, crawl_a_little
from tests.support.factories import Store
from tests.support.furnished import put_items

HOSTILE = '"><img src=x onerror=alert(1)>'


def furnish(database: Database, connection: psycopg.Connection) -> str:
    """Items of two parsers on one page; the name of their job."""
    store = Store(connection)
    crawl_a_little(database, store)
    lamp = {"name": "Lamp", "tags": ["a", "b"], "url": "https://example.com/lamp", "note": HOSTILE, "stock": 3}
    put_items(connection, HOME, lamp, {"name": HOSTILE})
    put_items(connection, HOME, {"heading": "About us"}, parser="generic")
    return str(store.value("SELECT name FROM crawl_jobs WHERE id = %s", store.job))


def test_without_items_the_page_says_how_to_find_some(rita: Browser) -> None:
    page = rita.get("/items")
    assert page.status == 200
    assert "No item was found yet." in page.words
    assert "--parser" in page.words


def test_the_list_and_its_filters(rita: Browser, database: Database, connection: psycopg.Connection) -> None:
    job = furnish(database, connection)
    page = rita.get("/items")
    assert "3 rows shown" in page.words
    assert "Lamp" in page.words
    assert HOSTILE not in page.text
    assert f"/jobs/{job}" in page.text
    assert 'href="/api/exports/items?format=jsonl"' in page.text
    generic = rita.get("/items?parser=generic")
    assert "About us" in generic.words
    assert "Lamp" not in generic.words
    assert "3 rows shown" in rita.get("/items", url=HOME, job=job, domain="example.com").words
    assert f"format=csv&amp;domain=example.com&amp;job={job}" in rita.get("/items", job=job, domain="example.com").text
    none = rita.get("/items?parser=shop2")
    assert "No item fits these filters." in none.words
    assert rita.get("/items?job=nothing").notice
    assert "is a page of example.com" in rita.get("/items", url=HOME, domain="other.example").notice


def test_an_item_with_its_data(rita: Browser, database: Database, connection: psycopg.Connection) -> None:
    job = furnish(database, connection)
    page = rita.get("/items/item", url=HOME, job=job, parser="shop", position=0)
    assert page.status == 200
    assert "<h1>Lamp</h1>" in page.text
    assert '[ "a", "b" ]' in page.words
    assert HOSTILE not in page.text
    assert HOSTILE in page.words
    assert "/pages/page?url=https%3A%2F%2Fexample.com%2Flamp" in page.text
    assert 'class="out" href="https://example.com/lamp"' in page.text
    second = rita.get("/items/item", url=HOME, job=job, parser="shop", position=1)
    assert "Position on the page 2" in second.words


def test_an_item_that_is_not_there(rita: Browser, database: Database, connection: psycopg.Connection) -> None:
    job = furnish(database, connection)
    page = rita.get("/items/item", url=HOME, job=job, parser="shop", position=9)
    assert page.status == 404
    assert "has no item 10" in page.words
    assert rita.get("/items/item", url=HOME, job=job, parser="shop", position=-1).status == 422


def test_items_by_position_over_the_api(api: Api, database: Database, connection: psycopg.Connection) -> None:
    furnish(database, connection)
    found = api.reader.get("/api/items", params={"url": HOME, "parser": "shop", "position": 0}).json()["items"]
    assert [(item["position"], item["data"]["name"]) for item in found] == [(0, "Lamp")]
    assert api.reader.get("/api/items?position=-1").status_code == 422


def test_the_summary_of_an_item() -> None:
    assert summary({"id": 7, "title": " Chair "}) == "Chair"
    assert summary({"price": 3, "tags": ["a"]}) == 'price: 3, tags: ["a"]'
    assert summary({"name": "x" * 500}) == "x" * 120 + "…"
    assert summary({}) == "no fields"
