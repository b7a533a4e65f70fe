"""Products are found by words, brand, price, currency, domain and availability, a page at a time, by an index."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from holdfast.errors import NotFound
from holdfast.model.parse_result import Availability
from holdfast.products import queries
from holdfast.products.records import AVAILABLE, ProductFilter
from tests.support.shop import Shop, day, product


@pytest.fixture
def shop(connection: psycopg.Connection) -> Shop:
    """Five products of two domains."""
    shop = Shop(connection)
    shop.see(
        1,
        product("Red oak table", "499.90", brand="Tischler"),
        product("Blue table lamp", "20", brand="TISCHLER", sku="X-77", availability=Availability.SOLD_OUT),
        product("Été à la plage", None, brand="Ñandú", currency=None, availability=None),
    )
    shop.see(
        2,
        product("Desk lamp", "35", currency="USD", gtin="4006381333931"),
        product("100% 'quoted' \\ & | ! (:*)", "1", brand="%_"),
        url="https://other.example/",
    )
    return shop


def names(shop: Shop, **chosen: Any) -> set[str]:
    return {found.name.split()[0] for found in shop.all(**chosen)}


FOUND: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"Red", "Blue", "Été", "Desk", "100%"}),
    ({"search": "lamp"}, {"Blue", "Desk"}),
    ({"search": "TABLE lamp"}, {"Blue"}),
    ({"search": "table -lamp"}, {"Red"}),
    ({"search": "oak or desk"}, {"Red", "Desk"}),
    ({"search": '"oak table"'}, {"Red"}),
    ({"search": '"table oak"'}, set()),
    ({"search": "tischler"}, {"Red", "Blue"}),
    ({"search": "X-77"}, {"Blue"}),
    ({"search": "4006381333931"}, {"Desk"}),
    ({"search": "été PLAGE"}, {"Été"}),
    ({"search": "'; DROP TABLE products; -- & | ! <-> (:*"}, set()),
    ({"brand": "tischler"}, {"Red", "Blue"}),
    ({"brand": "tisch"}, set()),
    ({"brand": "ñANDÚ"}, {"Été"}),
    ({"brand": "%_"}, {"100%"}),
    ({"min_price": Decimal(20)}, {"Red", "Blue", "Desk"}),
    ({"max_price": Decimal(20)}, {"Blue", "100%"}),
    ({"min_price": Decimal("499.9"), "max_price": Decimal("499.9")}, {"Red"}),
    ({"currency": "USD"}, {"Desk"}),
    ({"currency": "EUR", "min_price": Decimal(2)}, {"Red", "Blue"}),
    ({"available": True}, {"Red", "Desk", "100%"}),
    ({"available": False}, {"Blue", "Été"}),
    ({"search": "table", "brand": "Tischler", "max_price": Decimal(30), "available": False}, {"Blue"}),
]


def test_what_is_found(shop: Shop) -> None:
    assert [(chosen, names(shop, **chosen)) for chosen, _ in FOUND] == FOUND


def test_by_domain(shop: Shop) -> None:
    domain_id = shop.tasks.value("SELECT id FROM domains WHERE domain = 'other.example'")
    assert names(shop, domain_id=domain_id) == {"Desk", "100%"}


def test_a_list_goes_on_behind_the_last_one_seen(shop: Shop) -> None:
    seen: list[int] = []
    page = queries.page(shop.connection, ProductFilter(), limit=2)
    seen += [found.id for found in page.rows]
    while page.next is not None:
        page = queries.page(shop.connection, ProductFilter(), after=page.next, limit=2)
        seen += [found.id for found in page.rows]
    assert seen == sorted({found.id for found in shop.all()}, reverse=True)
    assert len(seen) == 5


def test_a_history_goes_on_likewise(connection: psycopg.Connection) -> None:
    shop = Shop(connection)
    for number in range(5):
        shop.see(number, product(price=str(number)))
    product_id = shop.only().id
    first = queries.history(connection, product_id, limit=2)
    rest = queries.history(connection, product_id, before=first[-1].since, limit=9)
    assert [str(run.price) for run in first + rest] == ["4", "3", "2", "1", "0"]
    assert queries.history(connection, product_id, before=datetime(2020, 1, 1, tzinfo=UTC)) == []
    assert first[0].since == day(4)


@pytest.mark.parametrize("ask", [queries.get, queries.history])
def test_a_product_that_is_not_there(connection: psycopg.Connection, ask: Any) -> None:
    with pytest.raises(NotFound, match="There is no product 7"):
        ask(connection, 7)


def test_what_can_be_had_is_decided_for_every_word() -> None:
    assert set(Availability) - set(AVAILABLE) == {
        Availability.PRE_ORDER,
        Availability.PRE_SALE,
        Availability.BACK_ORDER,
        Availability.RESERVED,
        Availability.OUT_OF_STOCK,
        Availability.SOLD_OUT,
        Availability.DISCONTINUED,
    }


def test_the_database_knows_the_same_words(connection: psycopg.Connection) -> None:
    rows = connection.execute("SELECT unnest(enum_range(NULL::product_availability))::text").fetchall()
    assert [row[0] for row in rows] == list(Availability)
