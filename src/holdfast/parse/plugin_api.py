"""The public API for authors of parser plug-ins: the parser protocol, its input and result types, and helpers to read a document.

The rule: names here do not change their meaning within a major version.
"""

from typing import Final, Protocol
from urllib.parse import urljoin

from selectolax.lexbor import LexborHTMLParser

from holdfast.model.parse_result import MAX_ADDRESS, Availability, Document, Extracted, Product, Rating, is_gtin
from holdfast.parse import charset
from holdfast.parse.html_tokens import clean_href
from holdfast.parse.prices import Money, parse_price

__all__ = [
    "Availability",
    "Document",
    "Extracted",
    "Money",
    "Parser",
    "Product",
    "Rating",
    "absolute_url",
    "is_gtin",
    "parse_price",
    "text",
    "tree",
]

_WITHOUT_EVENTS: Final = 1


class Parser(Protocol):
    """The interface of a parser: a module, an object, or a class whose constructor takes no arguments."""

    @property
    def version(self) -> str:
        """The version, stored with every result. A new version says that older results may differ."""

    def parse(self, document: Document) -> Extracted:
        """Extract data from `document`. May raise: the parse fails with the exception as its reason."""


def text(document: Document) -> str:
    """Decode the body. The encoding comes from the byte order mark, the header, `meta`, or a guess; any bytes give a text."""
    encoded = charset.detect(document.body, document.content_type)
    return charset.decode(document.body[encoded.bom_length :], encoded.name)


def tree(document: Document) -> LexborHTMLParser:
    """Parse the body as HTML into a tree of elements; malformed markup is accepted."""
    return LexborHTMLParser(text(document).encode("utf-8", "replace"), options=_WITHOUT_EVENTS)


def absolute_url(base: str, address: str | None) -> str | None:
    """Resolve `address` against `base`. None if it is empty, not HTTP or HTTPS, invalid, or longer than 2048 characters."""
    web = clean_href(address)
    if web is None:
        return None
    try:
        joined = urljoin(base, "".join(web.split()) if web.count("\n") else web.replace(" ", "%20"))
    except ValueError:
        return None
    absolute = joined.lower().startswith(("http://", "https://")) and len(joined) <= MAX_ADDRESS
    return joined if absolute and joined.partition("://")[2].strip("/") else None
