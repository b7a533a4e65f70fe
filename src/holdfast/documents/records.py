"""Documents: the main content of pages as Markdown, with what is known of it."""

from datetime import date, datetime

from holdfast.model.record import Int64, record


@record
class DocumentHeading:
    """A heading of a document."""

    level: int
    """1 to 6."""
    title: str
    path: list[str]
    """The titles of the headings above it, and its own."""
    markdown_offset: int
    """Where it begins in the Markdown, in characters."""
    text_offset: int
    """Where it begins in the text, in characters."""


@record
class Document:
    """The main content of a page."""

    id: str
    """The same for the same page of the same job, also after it was crawled again."""
    url: str
    domain: str
    job: str
    title: str | None
    author: str | None
    site_name: str | None
    language: str | None
    kind: str
    """The kind of page that was recognized, as `article`."""
    published: date | None
    """As the page states it."""
    fetched_at: datetime
    words: Int64
    markdown: str
    text: str
    """Without markup, with its lines."""
    headings: list[DocumentHeading]
    extractor: str
    """The version of the extraction."""
    counted_pages: Int64 | None
    """Text that stands on many of this number of pages of the site was removed; null: nothing was removed yet."""
    stored: bool
    """It is stored with its job (`--markdown`); otherwise it was made from the archive for this answer."""
