"""The built-in parser `product` on pages of shops; the table of docs/plugins.md has the same rows."""

from decimal import Decimal
from pathlib import Path

import pytest

from holdfast.model.parse_result import MAX_IMAGES, MAX_PRODUCTS, Product
from holdfast.parse import product
from holdfast.parse.plugin_testing import document, run
from holdfast.parse.prices import parse_price
from tests.unit.parse.shops import SHOPS, ld, offer

PLUGINS = Path(__file__).parents[3] / "docs" / "plugins.md"


def told(found: Product) -> str:
    """Format a product in one line."""
    rating = found.rating
    return " | ".join(
        (
            found.name,
            f"{'-' if found.price is None else found.price} {found.currency or '-'}",
            found.availability or "-",
            found.sku or "-",
            found.gtin or "-",
            found.brand or "-",
            str(len(found.images)),
            f"{rating.value}/{rating.best} ({'-' if rating.count is None else rating.count})" if rating else "-",
            found.url or "-",
        )
    )


def products(page: str) -> list[Product]:
    return list(run(product, document(page), name="product").products)


@pytest.mark.parametrize("shop", SHOPS)
def test_what_is_found(shop: str) -> None:
    page, expected = SHOPS[shop]
    assert [told(found) for found in products(page)] == expected


def row(shop: str) -> str:
    """A row of the table in the documentation."""
    found = []
    for line in SHOPS[shop][1]:
        name, price, available, sku, gtin, brand, images, rating, url = (part.strip(" -") for part in line.split("|"))
        said = (
            (price, price),
            (available, available.replace("_", " ")),
            (sku, f"sku {sku}"),
            (gtin, f"GTIN {gtin}"),
            (brand, f"of {brand}"),
            (images, "1 image" if images == "1" else f"{images} images"),
            (rating, f"rated {rating}"),
            (url, url),
        )
        found.append(", ".join([name, *(words for value, words in said if value not in {"", "0"})]))
    return f"| {shop} | {'; '.join(found) or 'nothing'} |"


def test_the_documentation_says_what_is_found() -> None:
    written = PLUGINS.read_text("utf-8").splitlines()
    assert [row(shop) for shop in SHOPS if row(shop) not in written] == []


def test_the_documentation_says_how_prices_are_read() -> None:
    table = PLUGINS.read_text("utf-8").partition("| written | read |\n| --- | --- |\n")[2].splitlines()
    prices = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("|")]
    assert len(prices) > 10
    for written, read in prices:
        money = parse_price(written)
        assert money is not None
        assert f"{money.amount} {money.currency or 'without a currency'}" == read


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        ('"1.234,56 €"', "1234.56 EUR"),
        ('"US$1,299.00"', "1299.00 USD"),
        ('"Rs. 1,23,456"', "123456 INR"),
        ('"1 299 kr"', "1299 SEK"),
        ('"CHF 1\'299.-"', "1299 CHF"),
        ('"\\u00a512,800"', "12800 JPY"),
        ('"12.99 - 19.99"', "12.99 -"),
        ('"0.00"', "0.00 -"),
        ("0", "0 -"),
        ("1299.95", "1299.95 -"),
        ("1.299", "1.299 -"),
        ('"1.299"', "1299 -"),
        ("1e3", "1000.0 -"),
        ("1e999", "- -"),
        ("true", "- -"),
        ('["", null, "5 €"]', "5 EUR"),
        ('"free"', "0 -"),
        ('"call us"', "- -"),
        ("123456789012345678901234567890", "- -"),
        ("0.123456789", "0.123457 -"),
    ],
)
def test_prices(price: str, expected: str) -> None:
    (found,) = products(offer(price))
    assert f"{'-' if found.price is None else format(found.price, 'f')} {found.currency or '-'}" == expected


@pytest.mark.parametrize(
    ("price", "currency", "expected"),
    [
        ('"$5"', "CAD", "CAD"),
        ('"$5"', "cad", "CAD"),
        ('"$5"', "€", "EUR"),
        ('"$5"', "XYZ", "USD"),
        ('"5"', "", None),
        ('"10.500"', "KWD", "KWD"),
    ],
)
def test_a_sign_counts_only_if_nothing_better_is_said(price: str, currency: str, expected: str | None) -> None:
    (found,) = products(offer(price, f',"priceCurrency":"{currency}"'))
    assert found.currency == expected
    assert found.price == (Decimal("10.500") if "10.500" in price else 5)


def test_an_address_base_is_obeyed_and_odd_addresses_are_left_out() -> None:
    page = """<base href="/shop/"><div itemscope itemtype="https://schema.org/Product"><b itemprop="name">N</b>
    <img itemprop="image" src="i 1.jpg"><img itemprop="image" data-src="//cdn.example/x.jpg"><a itemprop="url" href="http://[bad/">x</a></div>"""
    (found,) = products(page)
    assert found.images == ("https://shop.example/shop/i%201.jpg", "https://cdn.example/x.jpg")
    assert found.url is None


def test_a_page_full_of_products_keeps_to_the_limits() -> None:
    images = ",".join(f'"/{number}.jpg"' for number in range(2 * MAX_IMAGES))
    many = ",".join(
        f'{{"@type":"Product","name":"{"x" * 2000}{n}","sku":"{n}","image":[{images}]}}'
        for n in range(MAX_PRODUCTS + 9)
    )
    found = products(ld(f"[{many}]"))
    assert len(found) == MAX_PRODUCTS
    assert {len(one.images) for one in found} == {MAX_IMAGES}


HOSTILE = {
    "a reference to itself": ld(
        '{"@type":"Product","@id":"#a","name":"A","isVariantOf":{"@id":"#a"},"offers":{"@id":"#a"}}'
    ),
    "offers in offers": ld(
        '{"@type":"Product","@id":"#p","name":"A","offers":{"@id":"#o"}}',
        '{"@id":"#o","offers":[{"@id":"#o"},{"@id":"#o"}]}',
    ),
    "deep JSON": ld(
        '{"@type":"Product","name":"A","x":' + "[" * 5000 + "]" * 5000 + "}", '{"@type":"Product","name":"A"}'
    ),
    "items that name each other": '<div itemscope itemtype="Product" id="a" itemref="b a"><b itemprop="name">A</b></div>'
    '<div itemscope itemtype="x" id="b" itemref="a b"></div>',
    "nested items": '<div itemscope itemtype="https://schema.org/Product"><b itemprop="name">A</b>' * 300,
    "no text": """<div itemscope itemtype="https://schema.org/Product"><b itemprop="name">A</b><b itemprop=""></b>
    <img itemprop="image"></div>""",
    "wrong types": ld(
        '{"@type":"Product","name":"A","brand":[[]],"image":{"url":{}},"offers":"none","aggregateRating":5,"sku":[{"@id":3}]}'
    ),
    "lone surrogates": ld('{"@type":"Product","name":"A","sku":"\\ud800","brand":"\\u0000"}'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_are_read(name: str) -> None:
    assert [found.name for found in products(HOSTILE[name])][:1] == ["A"]
