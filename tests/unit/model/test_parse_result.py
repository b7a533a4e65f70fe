"""Validation of parser results: invalid ones are refused with a reason, valid ones can be stored and encoded as JSON."""

import itertools
import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import parse_result
from holdfast.model.parse_result import (
    MAX_DATA_BYTES,
    MAX_IMAGES,
    MAX_ITEMS,
    MAX_NAME,
    MAX_PRODUCTS,
    Availability,
    BadResult,
    Extracted,
    Product,
    Rating,
    decode,
    encode,
    is_gtin,
    merge_products,
    validate_result,
)

FULL = Product(
    name="Lamp",
    price=Decimal("1299.90"),
    currency="EUR",
    availability=Availability.IN_STOCK,
    sku="L-1",
    gtin="4006381333931",
    brand="Light",
    images=("https://shop.example/l.jpg",),
    rating=Rating(Decimal("4.5"), Decimal(5), 12),
    url="https://shop.example/l",
)


def one(**fields: Any) -> Extracted:
    """A result with one product, which differs from a full one in these."""
    return Extracted({}, (replace(FULL, **fields),))


def test_what_is_right_passes_unchanged_and_goes_over_the_wire() -> None:
    extracted = Extracted({"a": [1, 2.5, None, True, {"b": "ü"}]}, (FULL, Product(name="Bare")))
    assert validate_result(extracted) == extracted
    assert decode(encode(extracted)) == extracted


def test_text_is_cleaned() -> None:
    found = validate_result(
        Extracted({"a\0": "x\0\ud800\x1b[31m\ty\n"}, (Product(name=" A\n\x07 B\0 ", sku="", brand=" "),))
    )
    assert found.data == {"a\ufffd": "x\ufffd\ufffd[31m\ty\n"}
    assert found.products == (Product(name="A B\ufffd"),)


class Sly(dict[str, Any]):
    """A dict of a class of its own."""


def test_subclasses_become_plain() -> None:
    found = validate_result(Extracted(Sly(a=Sly(b=(Availability.LIMITED,)))))
    assert found.data == {"a": {"b": ["limited"]}}
    assert {type(found.data), type(found.data["a"]), type(found.data["a"]["b"])} == {dict, list}
    assert type(found.data["a"]["b"][0]) is str


@dataclass
class Quote:
    """An item as a dataclass."""

    text: str
    tags: list[str]


def test_a_parser_may_return_or_yield_items_in_short() -> None:
    assert validate_result(None) == Extracted()
    assert validate_result({"a": "\0"}) == Extracted(items=({"a": "\ufffd"},))
    assert validate_result(FULL) == Extracted(products=(FULL,))
    quote = Quote("Be.", ["short"])
    assert validate_result(one for one in [{"a": 1}, FULL, quote]) == Extracted(
        {}, (FULL,), ({"a": 1}, {"text": "Be.", "tags": ["short"]})
    )
    assert decode(encode(Extracted({"b": 1}, (FULL,), ({"a": 1},)))) == Extracted({"b": 1}, (FULL,), ({"a": 1},))


def test_what_a_crawl_keeps_of_a_page() -> None:
    both = Extracted({"title": "T"}, (Product(name="Lamp", price=Decimal("9.90")),), ({"a": 1},))
    assert both.page_items() == [{"title": "T"}, {"a": 1}, {"name": "Lamp", "price": "9.90"}]
    assert Extracted().page_items() == []
    assert both.record == {"title": "T", "items": [{"a": 1}]}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("items", "the parser returned a value of type str instead of items or an Extracted"),
        (7, "a value of type int instead of items or an Extracted"),
        ([{}, "x"], "items[1] is a value of type str instead of a dict"),
        ([{"a": {1}}], "items[0].a is a value of type set, which JSON does not know"),
        ([Extracted()], "it returns one, or yields items"),
        (({} for _ in itertools.count()), f"there are more than {MAX_ITEMS} items"),
        (({"a": "x" * MAX_DATA_BYTES} for _ in range(1)), f"items[0] is {MAX_DATA_BYTES + 9} bytes as JSON"),
        (Extracted([]), "data is a value of type list instead of a dict"),  # type: ignore[arg-type]
        (Extracted({1: 2}), "data has a key that is a value of type int"),  # type: ignore[dict-item]
        (Extracted({"x" * 501: 2}), "data has a key of 501 characters; 500 are allowed"),
        (Extracted({"a": [1, {2}]}), "data.a[1] is a value of type set, which JSON does not know"),
        (Extracted({"a": b""}), "data.a is a value of type bytes, which JSON does not know"),
        (Extracted({"a": Decimal(1)}), "data.a is a value of type Decimal, which JSON does not know"),
        (Extracted({"a": float("nan")}), "data.a is nan, which JSON does not know"),
        (Extracted({"a": float("-inf")}), "data.a is -inf, which JSON does not know"),
        (Extracted({"a": 2**63}), "data.a is a whole number beyond 64 bits"),
        (
            Extracted({"a": "x" * MAX_DATA_BYTES}),
            f"data is {MAX_DATA_BYTES + 9} bytes as JSON; {MAX_DATA_BYTES} are allowed",
        ),
        (Extracted({}, FULL), "products is a value of type Product instead of a tuple"),  # type: ignore[arg-type]
        (Extracted({}, (FULL, {})), "products[1] is a value of type dict instead of a Product"),  # type: ignore[arg-type]
        (
            Extracted({}, (FULL,) * (MAX_PRODUCTS + 1)),
            f"there are {MAX_PRODUCTS + 1} products; {MAX_PRODUCTS} are allowed",
        ),
        (one(name=None), "products[0].name is empty"),
        (one(name=" \n"), "products[0].name is empty"),
        (one(name=5), "products[0].name is a value of type int instead of a str"),
        (one(name="x" * (MAX_NAME + 1)), f"products[0].name has {MAX_NAME + 1} characters; {MAX_NAME} are allowed"),
        (one(price=12.5), "products[0].price is a value of type float instead of a Decimal"),
        (one(price=Decimal("nan")), "products[0].price is not between 0 and 1000000000000"),
        (one(price=Decimal("sNaN")), "products[0].price is not between 0 and 1000000000000"),
        (one(price=Decimal("inf")), "products[0].price is not between 0 and 1000000000000"),
        (one(price=Decimal("-0.01")), "products[0].price is not between 0 and 1000000000000"),
        (one(price=Decimal("1e12")), "products[0].price is not between 0 and 1000000000000"),
        (one(price=Decimal("0.1234567")), "products[0].price has more than 6 decimals"),
        (one(currency="euro"), "products[0].currency has 4 characters; 3 are allowed"),
        (one(currency="XYZ"), "products[0].currency is XYZ, which is not an ISO 4217 code"),
        (one(availability="in_stock"), "products[0].availability is a value of type str instead of an Availability"),
        (one(gtin="4006381333932"), "products[0].gtin is 4006381333932: not 8, 12, 13 or 14 digits"),
        (one(images="https://x.example/"), "products[0].images is a value of type str instead of a tuple"),
        (one(images=("/relative.jpg",)), "products[0].images[0] is not an absolute http or https URL"),
        (one(images=("https://x.example/",) * (MAX_IMAGES + 1)), "has 51 images; 50 are allowed"),
        (one(url="javascript:alert(1)"), "products[0].url is not an absolute http or https URL"),
        (one(url="https://x.example/" + "x" * 2048), "products[0].url has 2066 characters; 2048 are allowed"),
        (one(rating=4.5), "products[0].rating is a value of type float instead of a Rating"),
        (one(rating=Rating(Decimal(6))), "products[0].rating is not a value up to its best"),
        (one(rating=Rating(Decimal(0), Decimal(0))), "products[0].rating is not a value up to its best"),
        (one(rating=Rating(Decimal(4), Decimal(5), True)), "products[0].rating.count is not a whole number"),
        (one(rating=Rating(Decimal(4), Decimal(5), -1)), "products[0].rating.count is not a whole number"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(result: object, words: str) -> None:
    with pytest.raises(BadResult) as bad:
        validate_result(result)
    assert words in str(bad.value)


def test_depth_is_limited_also_of_what_contains_itself() -> None:
    round_: dict[str, Any] = {}
    round_["r"] = round_
    with pytest.raises(BadResult, match="nested too deep; 32 levels are allowed"):
        validate_result(Extracted(round_))


def test_results_that_are_too_long_in_all_are_refused() -> None:
    images = tuple(f"https://x.example/{number:02}{'x' * 2000}" for number in range(MAX_IMAGES))
    many = tuple(Product(name=f"P{number}", images=images) for number in range(50))
    with pytest.raises(BadResult, match="bytes as JSON; 4194304 are allowed"):
        encode(validate_result(Extracted({}, many)))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"data":{},"products":[{}]}',
        b'{"data":{},"products":[{"name":"x","rating":[],"price":null,"availability":null}]}',
        b'{"data":{},"products":[{"name":"x","rating":null,"price":"x","availability":null}]}',
        b'{"data":{},"products":[{"name":"x","rating":null,"price":null,"availability":"maybe"}]}',
        b'{"data":{},"products":[{"name":"x","rating":null,"price":null,"availability":null,"more":1}]}',
        b'{"data":{"a":NaN},"products":[]}',
        b'{"data":{"a":1e999},"products":[]}',
        b'{"data":{"a":' + b"9" * 5000 + b'},"products":[]}',
    ],
)
def test_an_answer_from_somebody_who_lies_is_a_sentence(message: bytes) -> None:
    with pytest.raises(BadResult):
        decode(message)


def test_products_are_known_again() -> None:
    assert FULL.identity == "sku:L-1"
    assert replace(FULL, sku=None).identity == "gtin:04006381333931"
    assert replace(FULL, sku=None, gtin=None).identity == "url:https://shop.example/l"
    assert Product(name="Grüße").identity == Product(name="GRÜSSE").identity == "name:grüsse"


def test_products_with_one_identity_are_one() -> None:
    first, second = (
        Product(name="A", sku="1", price=Decimal(2)),
        Product(name="B", sku="1", brand="C", price=Decimal(3), currency="EUR"),
    )
    other = Product(name="A", sku="2")
    assert merge_products([first, other, second]) == (replace(first, brand="C"), other)
    assert merge_products([first, replace(second, price=Decimal(2))]) == (replace(first, brand="C", currency="EUR"),)


def test_a_currency_goes_with_its_price() -> None:
    priced = Product(name="A", price=Decimal(3), currency="EUR")
    assert Product(name="A", currency="USD").filled_from(priced) == priced
    assert Product(name="A", currency="USD").filled_from(replace(priced, currency=None)) == replace(
        priced, currency="USD"
    )
    assert Product(name="A", price=Decimal(4)).filled_from(priced) == Product(name="A", price=Decimal(4))


def test_numbers_are_kept_in_few_digits() -> None:
    (found,) = validate_result(one(price=Decimal("0E+999999"), rating=Rating(Decimal("-0"), Decimal("1E+1")))).products
    assert (str(found.price), found.rating) == ("0", Rating(Decimal(0), Decimal(10)))
    assert found.rating is not None
    assert (str(found.rating.value), str(found.rating.best)) == ("0", "10")


@pytest.mark.parametrize(
    ("digits", "right"),
    [
        ("4006381333931", True),
        ("4006381333932", False),
        ("96385074", True),
        ("036000291452", True),
        ("10614141000415", True),
        ("00000000", False),
        ("123", False),
        ("40063813339\uff131", False),
        ("", False),
    ],
)
def test_check_digits(digits: str, right: bool) -> None:
    assert is_gtin(digits) is right


def test_the_documentation_knows_the_limits() -> None:
    text = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text("utf-8")
    limits = dict(re.findall(r"^\| ([^|]+) \| (\d+) \| `bad_result` \|$", text, re.MULTILINE))
    assert {name: int(value) for name, value in limits.items()} == {
        "bytes of `data` as JSON": MAX_DATA_BYTES,
        "bytes of a whole result as JSON": parse_result.MAX_RESULT_BYTES,
        "levels in `data`": parse_result.MAX_DEPTH,
        "products of a page": MAX_PRODUCTS,
        "items that are returned": MAX_ITEMS,
        "images of a product": MAX_IMAGES,
        "characters of a name": MAX_NAME,
        "characters of a brand": parse_result.MAX_BRAND,
        "characters of a sku": parse_result.MAX_SKU,
        "characters of an address": parse_result.MAX_ADDRESS,
    }
    assert [kind for kind in parse_result.FailureKind if f"`{kind}`" not in text] == []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()) | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(st.characters(), max_size=5), ANYTHING, max_size=4))
def test_whatever_is_returned_can_be_stored_or_is_refused(data: dict[str, Any]) -> None:
    try:
        found = validate_result(Extracted(data))
    except BadResult:
        return
    stored = json.dumps(found.data, ensure_ascii=False, allow_nan=False).encode("utf-8", "strict")
    assert b"\\u0000" not in stored
    assert decode(encode(found)) == found
