"""An example of a parser: books of a shop that says nothing to machines, so that its markup has to be read.

The same file works as a package (see pyproject.toml) and in a folder of parsers.
"""

from decimal import Decimal

from selectolax.lexbor import LexborNode

from holdfast.parse.plugin import Availability, Document, Extracted, Product, Rating, is_gtin, join, read_money, tree

version = "1.0"

STARS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


def parse(document: Document) -> Extracted:
    """The book of a page. A page that is about no book has no product."""
    book = tree(document).css_first("article.book")
    if book is None:
        return Extracted({"kind": "other"})
    facts = {words(row, "th"): words(row, "td") for row in book.css("tr")}
    money = read_money(words(book, ".price"))
    cover = book.css_first("img")
    isbn = facts.get("ISBN", "").replace("-", "")
    image = join(document.url, cover.attributes.get("src")) if cover else None
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
    """The text of the first element below `node` that the selector finds, or none."""
    found = node.css_first(selector)
    return found.text(strip=True) if found else ""


def availability(text: str) -> Availability | None:
    """What the shop's words mean."""
    if not text:
        return None
    return Availability.IN_STOCK if text.startswith("In stock") else Availability.OUT_OF_STOCK


def rating(stars: LexborNode | None) -> Rating | None:
    """The number of stars is a class of their element."""
    names = (stars.attributes.get("class") or "").split() if stars else []
    return next((Rating(Decimal(STARS[name])) for name in names if name in STARS), None)
