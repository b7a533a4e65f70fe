"""Products over HTTP: looked for, looked at, and what they cost."""

import base64
import json
from decimal import Decimal
from urllib.parse import quote

import httpx
import psycopg
import pytest

from holdfast.model.parse_result import Availability, Rating
from tests.support.api import Api, Shared
from tests.support.shop import Shop, day, product

OTHER = "https://other.example/p"


@pytest.fixture
def shop(connection: psycopg.Connection) -> Shop:
    return Shop(connection)


@pytest.fixture(scope="module")
def one_product(stage: Shared) -> int:
    """A product for all tests that only look for it; its id."""
    shop = Shop(stage.connection)
    shop.see(0, product())
    return shop.only().id


def walked(client: httpx.Client, path: str, field: str = "name") -> list[list[str]]:
    """One field of what is on all pages of a list, by their Link headers."""
    found, target = [], path
    while target:
        answer = client.get(target)
        assert answer.status_code == 200, answer.text
        found.append([item[field] for item in answer.json()["items"]])
        target = answer.links.get("next", {}).get("url", "")
    return found


def cursor(*key: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).rstrip(b"=").decode()


def test_the_list_and_its_filters(api: Api, shop: Shop) -> None:
    shop.see(0, product("Lamp", "10", brand="Acme"), product("Desk", "99.50"), product("Chair", "50", brand="acme"))
    sold = product("Red lamp", "7", currency="USD", availability=Availability.SOLD_OUT)
    shop.see(0, sold, product("Free lamp", None), url=OTHER)
    client = api.reader
    everything = ["Free lamp", "Red lamp", "Chair", "Desk", "Lamp"]
    assert sorted(walked(client, "/api/products")[0]) == sorted(everything)
    in_order = walked(client, "/api/products")[0]
    assert walked(client, "/api/products?limit=2") == [in_order[:2], in_order[2:4], in_order[4:]]
    assert walked(client, "/api/products?order=oldest&limit=3") == [in_order[:1:-1], in_order[1::-1]]
    for query, names in {
        "search=lamp": {"Lamp", "Red lamp", "Free lamp"},
        "search=lamp+-red": {"Lamp", "Free lamp"},
        "brand=ACME": {"Lamp", "Chair"},
        "min_price=50": {"Chair", "Desk"},
        "max_price=10": {"Lamp", "Red lamp"},
        "min_price=9.99&max_price=50.000001": {"Lamp", "Chair"},
        "currency=usd": {"Red lamp"},
        "domain=www.other.example": {"Red lamp", "Free lamp"},
        "available=true": {"Lamp", "Desk", "Chair", "Free lamp"},
        "available=false": {"Red lamp"},
        "search=%27%22%28%29%26%7C%21%3A%2A": set(),
        "search=%F0%9F%90%88": set(),
    }.items():
        assert {name for page in walked(client, f"/api/products?{query}&limit=1") for name in page} == names, query


def test_one_product(api: Api, shop: Shop) -> None:
    task_id = shop.see(
        3,
        product(
            "Lämp <script>",
            "12.34",
            brand="Acme",
            gtin="4006381333931",
            images=("https://shop.example/1.png",),
            rating=Rating(Decimal("4.5"), count=7),
        ),
    )
    client = api.reader
    found = client.get(f"/api/products/{shop.only().id}").json()
    first, last = found.pop("first_seen_at"), found.pop("last_seen_at")
    assert first == last == "2026-01-04T00:00:00Z"
    assert found == {
        "id": shop.only().id,
        "domain": "shop.example",
        "name": "Lämp <script>",
        "brand": "Acme",
        "sku": "LÄM",
        "gtin": "4006381333931",
        "price": "12.34",
        "currency": "EUR",
        "availability": "in_stock",
        "images": ["https://shop.example/1.png"],
        "rating": {"value": "4.5", "best": "5", "count": 7},
        "url": None,
        "page_url": "https://shop.example/p",
        "last_task_id": task_id,
    }
    assert client.get("/api/products").json()["items"][0]["price"] == "12.34"


def test_the_history_of_prices_goes_on_to_its_end(api: Api, shop: Shop) -> None:
    for number, price in enumerate(["10", "11", "11", "12", None, "9"]):
        shop.see(number, product("Lamp", price))
    client = api.reader
    path = f"/api/products/{shop.only().id}/history"
    runs = client.get(path).json()["items"]
    assert [run["price"] for run in runs] == ["9", None, "12", "11", "10"]
    assert (runs[3]["since"], runs[3]["until"]) == ("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z")
    assert walked(client, f"{path}?limit=2", "price") == [["9", None], ["12", "11"], ["10"]]
    assert walked(client, f"{path}?limit=5", "price") == [["9", None, "12", "11", "10"], []]
    after = cursor(day(1).isoformat())
    assert [run["price"] for run in client.get(f"{path}?cursor={after}").json()["items"]] == ["10"]


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "2026-01-01T00:00:00+00:00:00.5",
        "2026-01-01",
        "today",
        None,
        7,
    ],
)
def test_a_cursor_that_is_no_time_is_refused_or_harmless(shared: Shared, one_product: int, text: object) -> None:
    answer = shared.reader.get(f"/api/products/{one_product}/history?cursor={cursor(text)}")
    expected = 200 if isinstance(text, str) and text.startswith("2026") else 422
    assert answer.status_code == expected, answer.text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("domain=nobody.example", 404),
        ("domain=a%20b", 422),
        ("search=", 422),
        ("search=%20", 422),
        (f"search={'x' * 256}", 422),
        ("brand=", 422),
        ("min_price=-1", 422),
        ("min_price=NaN", 422),
        ("min_price=Infinity", 422),
        ("min_price=1e-999999", 422),
        ("max_price=1e999999", 422),
        ("max_price=1e13", 422),
        ("min_price=2&max_price=1", 422),
        ("currency=EURO", 422),
        (f"currency={quote('€')}", 422),
        ("available=perhaps", 422),
        ("order=price", 422),
        (f"cursor={cursor(None)}", 422),
        (f"cursor={cursor(2**63)}", 422),
        ("limit=501", 422),
    ],
)
def test_what_cannot_be_looked_for(shared: Shared, query: str, status: int) -> None:
    answer = shared.reader.get(f"/api/products?{query}")
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


def test_what_is_not_there(api: Api) -> None:
    client = api.reader
    for path in ("/api/products/815", f"/api/products/{2**63 - 1}", "/api/products/815/history"):
        assert client.get(path).status_code == 404
    for odd in ("0", "-1", str(2**63), "x"):
        assert client.get(f"/api/products/{odd}").status_code == 422
        assert client.get(f"/api/products/{odd}/history").status_code == 422
    assert api.anybody.get("/api/products").status_code == 401
