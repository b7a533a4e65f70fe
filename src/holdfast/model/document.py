"""Documents: the main content of a page as Markdown and as text, with what the page says about itself.

Owns the record that the extraction makes. The rule: all text is clean (no control characters, no invisible marks of direction), and offsets
count characters.
"""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum


class PageKind(StrEnum):
    """Kinds of pages, as the extraction judges them."""

    ARTICLE = "article"
    SERVICE = "service"
    PRODUCT = "product"
    COLLECTION = "collection"
    FORUM = "forum"
    LISTING = "listing"
    DOCUMENTATION = "documentation"


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document."""

    level: int
    """1 to 6."""
    title: str
    path: tuple[str, ...]
    """The titles of the headings above it, and its own."""
    markdown_offset: int
    """Where it begins in the Markdown."""
    text_offset: int
    """Where it begins in the text."""


@dataclass(frozen=True, slots=True)
class ContentBlock:
    """A paragraph, heading, list item, table or piece of code of a document, and where it stands."""

    markdown_start: int
    markdown_end: int
    text_start: int
    text_end: int
    block_hash: int
    """The hash of its words, by which the same block is found on other pages; a signed 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Document:
    """The main content of a page."""

    markdown: str
    text: str
    """Without markup; lines end as on the page."""
    title: str | None
    author: str | None
    published: date | None
    """The date of publication as the page states it."""
    language: str | None
    """As the page states it, for example `en-GB`."""
    site_name: str | None
    kind: PageKind
    headings: tuple[Heading, ...]
    blocks: tuple[ContentBlock, ...]
    """In order. What is between two blocks is white space."""
    extractor: str
    """The version of the extraction: another version may give another text for the same page."""

    @property
    def words(self) -> int:
        """The number of words of the text, separated by white space."""
        return len(self.text.split())
