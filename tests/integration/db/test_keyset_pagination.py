"""Lists in pages: nothing is left out or shown twice, whichever way is taken, and no page looks at more rows than it may."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from benchmarks.lists_data import fill
from holdfast.control.listings import LISTINGS
from holdfast.db import embedded
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import Key, Listing, Order
from holdfast.db.rows import by_name
from holdfast.errors import UsageError

PAGES, DOMAINS = 5_000, 1_000
ALSO = {"silence": timedelta(days=1), "count_limit": 10, "limit": 100}
NEED = {"transitions": {"domain"}, "tenures": {"domain"}}
GIVEN: dict[str, dict[str, object]] = {
    "domains": {"status": "blocked", "worker": "crawler-8", "prefix": "a", "parent": "shared-0.example"},
    "pages": {
        "status": 404,
        "status_class": 5,
        "outcome": "ok",
        "content_type": "application/pdf",
        "content_hash": b"x",
        "url_prefix": ["https://a", "https://example.com/articles/1"],
        "title": "keeping 17",
        "since": datetime.now(UTC) - timedelta(hours=20),
        "until": datetime.now(UTC) - timedelta(hours=4),
    },
    "urls": {
        "state": "denied",
        "reason": "too_deep",
        "kind": "refresh",
        "priority": 1,
        "first_domain": 17,
        "last_domain": 900,
    },
    "page changes": {"change": "changed"},
    "fetched pages": {"since": datetime.now(UTC) - timedelta(hours=4)},
    "items": {"parser": "rare", "url_key": b"x" * 16, "position": 3},
    "images": {
        "format": "png",
        "min_width": 500,
        "min_height": 300,
        "near": 17,
        "since": datetime.now(UTC) - timedelta(hours=4),
    },
    "jobs": {"state": "paused", "prefix": "job-9"},
    "job_domains": {"state": "done"},
    "runs": {"status": "completed", "worker": "crawler-8", "crawl": 1, "id": 17},
    "workers": {"name": "crawler-8"},
    "claims": {"worker": "crawler-8"},
    "windows": {"prefix": "a"},
    "batches": {"prefix": "batch 4"},
    "tasks": {"status": "failed", "batch": 7, "parent_task_id": 1, "priority": 3, "url": b"x" * 16},
    "products": {
        "search": "red lamp",
        "brand": "acme 7",
        "min_price": 500,
        "max_price": 510,
        "currency": "EUR",
        "available": ["in_stock"],
        "not_available": ["in_stock"],
    },
    "proxies": {"provider": "provider 3", "country": "DE"},
    "deliveries": {"task": 77, "url": "https://receiver.example/1"},
    "audit": {
        "actor": "person-1",
        "kind": "domain",
        "object_id": "5",
        "action": "edit",
        "since": datetime.now(UTC) - timedelta(hours=20),
        "until": datetime.now(UTC) - timedelta(hours=10),
        "from_id": 100,
        "to_id": 9000,
    },
}
"""A value for each filter that has one."""


@pytest.fixture(scope="module")
def filled(server: embedded.Server, template: str) -> Iterator[psycopg.Connection]:
    """A store with some tens of thousands of rows of everything, which nobody changes."""
    name = sql.Identifier("test_listing")
    with psycopg.connect(server.admin_url(), autocommit=True) as admin:
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER holdfast STRATEGY file_copy")
        admin.execute(copy.format(name, sql.Identifier(template)))
        with Database(server.url("test_listing")).connect() as connection:
            fill(connection, pages=PAGES, domains=DOMAINS)
            yield connection
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def values(connection: psycopg.Connection, which: str) -> dict[str, object]:
    """A value for every filter of a list; those that are yes or no have none of their own."""
    row = connection.execute(
        "SELECT (SELECT min(id) FROM domains), (SELECT min(id) FROM crawl_jobs), (SELECT max(id) FROM crawls)"
    ).fetchone()
    assert row
    flags = dict.fromkeys(LISTINGS[which].filters, True)
    crawl = {"crawl": row[2], "unchanged": row[2]}
    return {**flags, "domain": row[0], "job": row[1], **crawl, **GIVEN.get(which, {})}


def cases(connection: psycopg.Connection, which: str, order: str) -> Iterator[dict[str, object]]:
    """No filter, each one, and each pair; with those without which there is no such list."""
    listing, given = LISTINGS[which], values(connection, which)
    needed = listing.orders[order].index_filters[-1]
    names = sorted(listing.filters)
    for chosen in [(), *((one,) for one in names), *((one, two) for one in names for two in names if one < two)]:
        yield {name: given[name] for name in {*chosen, *needed}}


def walk(
    listing: Listing[Any], connection: psycopg.Connection, given: dict[str, object], order: str, limit: int
) -> list[Any]:
    """All rows, page by page."""
    rows: list[Any] = []
    after: Key | None = None
    while True:
        page = listing.page(connection, given, order=order, after=after, limit=limit, extra=ALSO)
        assert len(page.rows) <= limit
        rows += page.rows
        if page.next is None:
            return rows
        assert page.next != after
        after = page.next


def whole(listing: Listing[Any], connection: psycopg.Connection, given: dict[str, object], order: str) -> list[Any]:
    """The same by one plain statement that nothing bounds."""
    by = listing.orders[order].order_by(nulls=True)
    where = " AND ".join([listing.condition, *(f"({listing.filters[name]})" for name in given)])
    query = f"SELECT {listing.columns} FROM {listing.table} t {listing.joins} WHERE {where} ORDER BY {by}"
    with connection.cursor(row_factory=by_name(listing.build_row)) as cursor:
        return cursor.execute(query.encode(), {**ALSO, **given}).fetchall()


def told(rows: list[Any]) -> list[str]:
    """What can be compared: clocks go on between two looks."""
    return [str(row).split("datetime(")[0] for row in rows]


ORDERS = [(which, order) for which, listing in LISTINGS.items() for order in listing.orders]


@pytest.mark.parametrize(("which", "order"), ORDERS)
def test_every_row_is_shown_once_and_in_order(filled: psycopg.Connection, which: str, order: str) -> None:
    listing = LISTINGS[which]
    for given in cases(filled, which, order):
        expected = told(whole(listing, filled, given, order))
        page = 500 if len(expected) > 100 else 7
        if len(expected) > 3000:  # the first pages have to do
            found = listing.page(filled, given, order=order, limit=500, extra=ALSO).rows
            assert told(found) == expected[: len(found)], given
            continue
        assert told(walk(listing, filled, given, order, page)) == expected, given


@pytest.mark.parametrize("ways", [{"few": 0, "look": 97}, {"few": 0, "look": 1}, {"few": 10**9, "look": 97}], ids=str)
@pytest.mark.parametrize(
    ("which", "order", "names"),
    [
        ("domains", "crawled", {"held"}),
        ("domains", "crawled", {"status", "prefix"}),
        ("domains", "name", {"worker"}),
        ("domains", "priority", {"windows", "active"}),
        ("claims", "worker", {"expired"}),
        ("runs", "newest", {"worker", "status"}),
        ("products", "oldest", {"brand", "min_price"}),
    ],
)
def test_whichever_way_is_taken_the_rows_are_the_same(
    filled: psycopg.Connection, which: str, order: str, names: set[str], ways: dict[str, int]
) -> None:
    given = {name: values(filled, which)[name] for name in names}
    listing = replace(LISTINGS[which], sort_limit=ways["few"], scan_limit=ways["look"])
    expected = told(whole(listing, filled, given, order))
    assert expected
    if ways.get("look") == 1:  # each page is one row then: some of them
        first = listing.page(filled, given, order=order, limit=5, extra=ALSO)
        assert len(first.rows) <= 1
        assert first.next is not None
        return
    assert told(walk(listing, filled, given, order, 13)) == expected


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a plan, from the top."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from scans(part)


def explain(connection: psycopg.Connection, order: Order, statement: str, values: dict[str, object]) -> tuple[Any, ...]:
    """What the server did for a page: where an index has the whole order by the plan that serves for all of them."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    prepared = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", statement)
    with connection.transaction():
        connection.execute(
            "; ".join(f"SET LOCAL {name} = {value}" for name, value in order.planner_settings.items()).encode()
        )
        connection.execute(f"PREPARE page AS {prepared}".encode())
        given = f"({', '.join(f'%({name})s' for name in names)})" if names else ""
        explained = f"EXPLAIN (ANALYZE, SETTINGS, FORMAT JSON) EXECUTE page {given}"
        row = psycopg.ClientCursor(connection).execute(explained.encode(), values).fetchone()
        connection.execute("DEALLOCATE page")
    assert row
    assert row[0][0]["Settings"]["plan_cache_mode"] == (
        "force_generic_plan" if order.covered_by_index else "force_custom_plan"
    )
    return row


def keys_in(listing: Listing[Any], connection: psycopg.Connection, given: dict[str, object], order: str) -> list[Any]:
    """Keys at the beginning, in the middle and near the end of a list."""
    columns = listing.orders[order].columns
    where = " AND ".join([listing.condition, *(f"({listing.filters[name]})" for name in given)])
    names = ", ".join(by.column for by in columns)
    query = f"SELECT {names} FROM {listing.table} t WHERE {where} ORDER BY {listing.orders[order].order_by(nulls=True)}"
    rows = connection.execute(query.encode(), {**ALSO, **given}).fetchall()
    return [None, *(rows[place] for place in (len(rows) // 2, max(0, len(rows) - 50)) if rows)]


@pytest.mark.parametrize(("which", "order"), ORDERS)
def test_a_page_looks_at_no_more_rows_than_it_shows_where_an_index_has_them(
    filled: psycopg.Connection, which: str, order: str
) -> None:
    """Every way of every order, at its beginning, in its middle and at its end, by what the server says that it did."""
    listing, all_values = LISTINGS[which], values(filled, which)
    chosen = listing.orders[order]
    for way in chosen.index_filters:
        for ranges in ({}, dict.fromkeys(chosen.range_filters)) if chosen.range_filters else ({},):
            given = {name: all_values[name] for name in {*way, *ranges}}
            for after in keys_in(listing, filled, given, order):
                bound = {**ALSO, **given} | {f"key{place}": value for place, value in enumerate(after or ())}
                for statement in listing.statements(given, order=order, after=after):
                    row = explain(filled, chosen, statement, bound)
                    said = (which, order, way, after, json.dumps(row[0]))
                    for node in scans(row[0][0]["Plan"]):
                        if node.get("Relation Name") == listing.table and node.get("Alias") == "t":
                            seen = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                            assert node["Node Type"] in {"Index Scan", "Index Only Scan"}, said
                            assert node["Actual Loops"] * seen <= 100 + 64, (
                                said
                            )  # a group of equal times is read to its end
                        assert node["Node Type"] != "Sort" or node["Actual Rows"] <= 100, said  # what is shown may be


def test_a_filter_that_no_index_serves_looks_at_so_many_rows_and_says_where_to_go_on(
    filled: psycopg.Connection,
) -> None:
    listing = replace(LISTINGS["pages"], scan_limit=1_000)
    given = {"outcome": "timeout"}
    (statement,) = listing.statements(given, order="newest")
    row = explain(filled, listing.orders["newest"], statement, {**ALSO, **given})
    looked = [node for node in scans(row[0][0]["Plan"]) if node.get("Relation Name") == "crawled_pages"]
    assert [node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in looked] in (
        [n] for n in range(1_000, 1_064)
    )  # a group of equal times is read to its end
    page = listing.page(filled, given, order="newest", limit=10)
    assert page.rows == []
    pages, after = 1, page.next
    while after is not None:
        page = listing.page(filled, given, order="newest", after=after, limit=10)
        pages, after = pages + 1, page.next
        assert page.rows == []
    assert PAGES // 1_000 <= pages <= PAGES // 1_000 + 1


def test_domains_that_were_never_crawled_come_last(filled: psycopg.Connection) -> None:
    rows = walk(LISTINGS["domains"], filled, {}, "crawled", 300)
    times = [row.last_visit_ended_at for row in rows]
    never = times.index(None)
    assert 0 < never < len(times) == DOMAINS
    assert set(times[never:]) == {None}
    assert times[:never] == sorted(times[:never], reverse=True)


@pytest.mark.parametrize(
    ("which", "order", "after"),
    [
        ("domains", "name", (1,)),
        ("domains", "name", ("a", "b")),
        ("domains", "name", (None,)),
        ("domains", "name", ("nul\0",)),
        ("domains", "name", ("lone \ud800",)),
        ("domains", "newest", (True,)),
        ("domains", "newest", (2**63,)),
        ("domains", "crawled", ("2026-02-05", 1)),
        ("domains", "crawled", (datetime(2026, 2, 5), 1)),  # noqa: DTZ001 — that is the point
        ("pages", "key", (1, 1, "x")),
        ("pages", "key", ()),
    ],
    ids=str,
)
def test_a_key_of_another_list_is_refused(connection: psycopg.Connection, which: str, order: str, after: Key) -> None:
    with pytest.raises(UsageError, match="belongs to another list or order"):
        LISTINGS[which].page(connection, {}, order=order, after=after)


def test_an_order_that_there_is_not_is_refused(connection: psycopg.Connection) -> None:
    with pytest.raises(UsageError, match=r"no order 'yield' here; there are name, crawled, priority, oldest, newest\."):
        LISTINGS["domains"].page(connection, {}, order="yield")
    with pytest.raises(UsageError, match="needs domain and job and waiting"):
        LISTINGS["urls"].page(connection, {}, order="taken")


def test_nothing_is_a_page_too(connection: psycopg.Connection) -> None:
    for which, order in ORDERS:
        given = {name: values_of_nothing(name) for name in LISTINGS[which].orders[order].index_filters[-1]}
        page = LISTINGS[which].page(connection, given, order=order, extra=ALSO)
        assert page.next is None
        assert which == "jobs" or page.rows == [], which  # the standing jobs are always there


def values_of_nothing(name: str) -> object:
    return {"domain": 1, "job": 1, "crawl": 1, "change": 1, "state": "done"}.get(name, True)
