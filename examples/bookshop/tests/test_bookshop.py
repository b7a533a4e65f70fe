"""Tests of the example, as an author would write them: with pages kept as files, and the helpers of `plugin_testing`."""

from decimal import Decimal
from pathlib import Path

import bookshop

from holdfast.parse.plugin_api import Availability, Product, Rating
from holdfast.parse.plugin_testing import ParseDone, document, run, run_isolated

NOVEL = document(Path(__file__).parent / "pages" / "novel.html", url="https://books.example/p/sea.html")


def test_a_book_is_read() -> None:
    found = run(bookshop, NOVEL, name="bookshop")
    assert found.data == {"kind": "book", "author": "Iris Murdoch"}
    assert found.products == (
        Product(
            name="The Sea, the Sea",
            price=Decimal("9.99"),
            currency="GBP",
            availability=Availability.IN_STOCK,
            sku="B-1978",
            gtin="9780099284093",
            brand="Chatto",
            images=("https://books.example/covers/sea.jpg",),
            rating=Rating(Decimal(4)),
            url="https://books.example/p/sea.html",
        ),
    )


def test_other_pages_have_no_product() -> None:
    assert run(bookshop, document("<title>Contact</title>")).products == ()


def test_it_keeps_to_the_limits_of_a_crawl() -> None:
    done = run_isolated(Path(bookshop.__file__), NOVEL)
    assert isinstance(done, ParseDone)
    assert (done.parser, done.version) == ("bookshop", "1.0")
    assert done.extracted == run(bookshop, NOVEL)
