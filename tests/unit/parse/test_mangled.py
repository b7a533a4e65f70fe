"""Mutated pages of shops: the built-in parsers give an allowed result for any of them."""

from decimal import Decimal
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.parse_result import Extracted, Rating
from holdfast.parse import generic, product
from holdfast.parse.plugin_testing import document, run
from tests.unit.parse.shops import SHOPS, ld

_BITS = (
    *(
        '"',
        "{",
        "}",
        "[",
        "]",
        "null",
        "{}",
        "[]",
        "1e9",
        "-1",
        "true",
        "9" * 400,
        "\0",
        "\ud800",
        "<",
        ">",
        "&quot;",
        "hasVariant",
    ),
    *(
        '"@id":"#a",',
        '"@type":"Product",',
        "itemscope",
        'itemprop="offers"',
        'typeof="Product"',
        'property="name"',
        "@graph",
    ),
)
_EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 60), st.sampled_from(_BITS)), max_size=6)


def mangled(page: str, edits: list[tuple[float, int, str]]) -> bytes:
    """`page` with some of it replaced."""
    for where, length, bit in edits:
        place = int(where * len(page))
        page = page[:place] + bit + page[place + length :]
    return page.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("parser", [generic, product], ids=["generic", "product"])
@given(page=st.sampled_from([page for page, _ in SHOPS.values()]), edits=_EDITS)
def test_whatever_is_left_of_a_page_is_read(parser: ModuleType, page: str, edits: list[tuple[float, int, str]]) -> None:
    found = run(parser, document(mangled(page, edits)))
    assert isinstance(found, Extracted)
    assert len({one.identity for one in found.products}) == len(found.products)


def test_numbers_beyond_all_measure_are_no_ratings() -> None:
    rating = '{"ratingValue":"4","bestRating":"%s"}' % ("9" * 400)
    (found,) = run(product, document(ld(f'{{"@type":"Product","name":"A","aggregateRating":{rating}}}'))).products
    assert found.rating == Rating(Decimal(4), Decimal(5))
