"""Products are found by words, brand, price, currency, domain and availability, a page at a time, by an index."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from holdfast.errors import NotFound
from holdfast.model.parsed import Availability
from holdfast.store import product_reports
from holdfast.store.product_reports import AVAILABLE, ProductFilter
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
    while page := product_reports.listing(shop.connection, ProductFilter(), before=seen[-1] if seen else None, limit=2):
        seen += [found.id for found in page]
    assert seen == sorted({found.id for found in shop.all()}, reverse=True)
    assert len(seen) == 5


def test_a_history_goes_on_likewise(connection: psycopg.Connection) -> None:
    shop = Shop(connection)
    for number in range(5):
        shop.see(number, product(price=str(number)))
    product_id = shop.only().id
    first = product_reports.history(connection, product_id, limit=2)
    rest = product_reports.history(connection, product_id, before=first[-1].since, limit=9)
    assert [str(run.price) for run in first + rest] == ["4", "3", "2", "1", "0"]
    assert product_reports.history(connection, product_id, before=datetime(2020, 1, 1, tzinfo=UTC)) == []
    assert first[0].since == day(4)


@pytest.mark.parametrize("ask", [product_reports.get, product_reports.history])
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


INDEX: list[tuple[dict[str, Any], str]] = [
    ({"search": "rare"}, "products_words"),
    ({"brand": "b77"}, "products_brand"),
    ({"min_price": Decimal(77), "max_price": Decimal(78)}, "products_price"),
    ({"domain_id": 7}, "products_domain"),
    ({}, "products_pkey"),
]


def test_a_list_is_answered_by_an_index(connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    _many(connection)
    connection.execute("SET plan_cache_mode = force_custom_plan")
    monkeypatch.setattr(product_reports, "_READ", f"EXPLAIN (FORMAT TEXT) {product_reports._READ}")
    monkeypatch.setattr(product_reports, "_as_product", lambda _: lambda row: row[0])
    for chosen, index in INDEX:
        plan = "\n".join(map(str, product_reports.listing(connection, ProductFilter(**chosen), limit=20)))
        assert index in plan, chosen
        assert "Seq Scan on products" not in plan, chosen


def _many(connection: psycopg.Connection) -> None:
    connection.execute(
        """
        INSERT INTO domains (domain, parent_domain, base_url) SELECT 'd' || n, 'd', 'https://d/' FROM generate_series(1, 100) n;
        INSERT INTO products (domain_id, page_key, identity_key, identity, name, brand, price, currency, page_url, first_seen_at,
                              last_seen_at, last_task_id)
        SELECT 1 + n % 100, decode(md5(n::text), 'hex'), decode(md5('i'), 'hex'), 'i',
               CASE WHEN n % 5000 = 7 THEN 'rare' ELSE 'common' END || ' thing ' || n, 'B' || n % 2000, n % 10000, 'EUR', 'https://d/',
               now(), now(), n
        FROM generate_series(1, 20000) n;
        ANALYZE products;
        """
    )
