"""Products in the dashboard: search, filters, a product's page with its prices."""

from decimal import Decimal

import psycopg
import pytest

from holdfast.dashboard.pages.products import price_series
from holdfast.model.parse_result import Availability, Rating
from holdfast.products import queries
from tests.support.browsing import Browser
from tests.support.shop import Shop, day, product

HOSTILE = "<script>alert(1)</script> lamp"


@pytest.fixture
def shop(connection: psycopg.Connection) -> Shop:
    return Shop(connection)


def test_without_products_the_page_says_how_to_find_some(rita: Browser) -> None:
    page = rita.get("/products")
    assert page.status == 200
    assert "No product is known yet." in page.words
    assert "--parser product" in page.words


def test_the_list_and_its_filters(rita: Browser, shop: Shop) -> None:
    shop.see(0, product("Lamp", "10", brand="Acme"), product("Desk", "99.50"))
    sold = product(HOSTILE, "7", currency="USD", availability=Availability.SOLD_OUT)
    shop.see(0, sold, url="https://other.example/p")
    page = rita.get("/products")
    assert "99.50 EUR" in page.words
    assert "sold out" in page.words
    assert HOSTILE not in page.text
    assert HOSTILE in page.words
    assert ">Images</th>" not in page.text
    assert 'href="/api/exports/products?format=csv"' in page.text
    for query, names in {
        "search=desk": {"Desk"},
        "brand=ACME": {"Lamp"},
        "domain=other.example": {HOSTILE},
        "min_price=50": {"Desk"},
        "max_price=8,5": {HOSTILE},
        "currency=eur": {"Lamp", "Desk"},
        "available=no": {HOSTILE},
    }.items():
        words = rita.get(f"/products?{query}").words
        assert {name for name in ("Lamp", "Desk", HOSTILE) if f"{name} " in words} == names, query
    filtered = rita.get("/products?search=lamp&currency=USD")
    assert 'value="lamp"' in filtered.text
    assert "All products" in filtered.words
    assert "No product fits these filters." in rita.get("/products?search=sofa").words


def test_wrong_filters_are_said_at_the_top(rita: Browser) -> None:
    assert rita.get("/products?min_price=cheap").notice == "“Price from” must be a number, such as 9.99."
    assert "is no currency" in rita.get("/products?currency=XYX").notice
    assert rita.get("/products?cursor=nonsense").status == 200
    assert "no cursor" in rita.get("/products?cursor=nonsense").notice


def test_the_list_has_pages(rita: Browser, shop: Shop) -> None:
    shop.see(0, *(product(f"Lamp {number}", sku=f"L{number}") for number in range(60)))
    first = rita.get("/products")
    assert "50 rows shown" in first.words
    assert first.next is not None
    second = rita.get(first.next)
    assert "10 rows shown" in second.words
    assert second.next is None
    assert "First page" in second.words


def test_a_product_with_its_prices(rita: Browser, shop: Shop) -> None:
    image = "https://shop.example/lamp.jpg"
    more = {"brand": "Acme", "images": (image,), "rating": Rating(Decimal("4.5"), Decimal(5), 12)}
    for number, price in enumerate(("10", "12", "11.50")):
        shop.see(number, product("Lamp", price, **more))
    page = rita.get(f"/products/{shop.only().id}")
    assert page.status == 200
    assert "11.50 EUR" in page.words
    assert "4.5 of 5 12 reviews" in page.words
    assert "-0.50" in page.words
    assert "+2.00" in page.words
    assert 'id="chart-price"' in page.text
    assert "highest 12.00" in page.words
    assert f'href="{image}"' in page.text
    assert '<img src="https' not in page.text
    assert "/pages/page?url=https%3A%2F%2Fshop.example%2Fp" in page.text
    assert "Images" in rita.get("/products").words


def test_a_product_that_is_not_there(rita: Browser) -> None:
    page = rita.get("/products/77")
    assert page.status == 404
    assert "There is no product 77." in page.words
    assert rita.get("/products/0").status == 422


def test_the_series_of_a_chart_have_gaps_and_a_line_for_each_currency(shop: Shop) -> None:
    shop.see(0, product("Lamp", "10"))
    shop.see(1, product("Lamp", "10"))
    shop.see(2, product("Lamp", None))
    shop.see(3, product("Lamp", "9", currency="USD"))
    times, series = price_series(queries.history(shop.connection, shop.only().id))
    assert times == [day(0), day(1), day(2), day(3)]
    assert series == {"EUR": [10.0, 10.0, None, None], "USD": [None, None, None, 9.0]}
    assert price_series([]) == ([], {})
