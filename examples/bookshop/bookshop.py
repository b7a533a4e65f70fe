"""An example parser: books of a shop without structured data, read from its markup.

The same file works as a package (see pyproject.toml) and in a folder of parsers.
"""

from decimal import Decimal

from selectolax.lexbor import LexborNode

from holdfast.parse.plugin_api import (
    Availability,
    Document,
    Extracted,
    Product,
    Rating,
    absolute_url,
    is_gtin,
    parse_price,
    tree,
)

version = "1.0"

STARS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


def parse(document: Document) -> Extracted:
    """Extract the book of a page. A page without a book gives no product."""
    book = tree(document).css_first("article.book")
    if book is None:
        return Extracted({"kind": "other"})
    facts = {words(row, "th"): words(row, "td") for row in book.css("tr")}
    money = parse_price(words(book, ".price"))
    cover = book.css_first("img")
    isbn = facts.get("ISBN", "").replace("-", "")
    image = absolute_url(document.url, cover.attributes.get("src")) if cover else None
    product = Product(
        name=words(book, "h1"),
        price=money.amount if money else None,
        currency=money.currency if money else None,
        availability=availability(facts.get("Availability", "")),
        sku=facts.get("Number"),
        gtin=isbn if is_gtin(isbn) else None,
        brand=facts.get("Publisher"),
        images=(image,) if image else (),
        rating=rating(book.css_first(".stars")),
        url=document.url,
    )
    return Extracted({"kind": "book", "author": facts.get("Author")}, (product,))


def words(node: LexborNode, selector: str) -> str:
    """Return the text of the first element that the selector matches, or an empty text."""
    found = node.css_first(selector)
    return found.text(strip=True) if found else ""


def availability(text: str) -> Availability | None:
    """Translate the shop's words for availability."""
    if not text:
        return None
    return Availability.IN_STOCK if text.startswith("In stock") else Availability.OUT_OF_STOCK


def rating(stars: LexborNode | None) -> Rating | None:
    """Read the rating: the number of stars is a class of their element."""
    names = (stars.attributes.get("class") or "").split() if stars else []
    return next((Rating(Decimal(STARS[name])) for name in names if name in STARS), None)
