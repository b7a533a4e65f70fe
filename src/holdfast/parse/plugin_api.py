"""All that the author of a parser imports: what a parser is, what it is given, what it gives, and how to read a document.

The rule: names here do not change their meaning within a major version.
"""

from typing import Final, Protocol
from urllib.parse import urljoin

from selectolax.lexbor import LexborHTMLParser

from holdfast.model.parsed import MAX_ADDRESS, Availability, Document, Extracted, Product, Rating, is_gtin
from holdfast.parse import charset
from holdfast.parse.money import Money, read_money
from holdfast.parse.words import crawlable

__all__ = [
    "Availability",
    "Document",
    "Extracted",
    "Money",
    "Parser",
    "Product",
    "Rating",
    "is_gtin",
    "join",
    "read_money",
    "text",
    "tree",
]

_WITHOUT_EVENTS: Final = 1


class Parser(Protocol):
    """A parser: a module, an object or a class without arguments that has these."""

    @property
    def version(self) -> str:
        """Is kept with what it finds. A new one says that older results may be found differently now."""

    def parse(self, document: Document) -> Extracted:
        """What `document` says. May raise: the task fails with the exception as its reason."""


def text(document: Document) -> str:
    """The body as text, in the encoding that its mark, its header, its `meta` or its bytes say. Any bytes give a text."""
    encoded = charset.detect(document.body, document.content_type)
    return charset.decode(document.body[encoded.skip :], encoded.name)


def tree(document: Document) -> LexborHTMLParser:
    """The body as a tree of elements, whatever is wrong with its markup."""
    return LexborHTMLParser(text(document).encode("utf-8", "replace"), options=_WITHOUT_EVENTS)


def join(base: str, address: str | None) -> str | None:
    """`address` made absolute; None if there is none, or none of the web, or none that could be kept."""
    web = crawlable(address)
    if web is None:
        return None
    try:
        joined = urljoin(base, "".join(web.split()) if web.count("\n") else web.replace(" ", "%20"))
    except ValueError:
        return None
    absolute = joined.lower().startswith(("http://", "https://")) and len(joined) <= MAX_ADDRESS
    return joined if absolute and joined.partition("://")[2].strip("/") else None
