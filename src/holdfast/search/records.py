"""Records of search: what is searched for, and what is found."""

from datetime import datetime

from holdfast.model.record import Int64, record


@record
class SearchFilter:
    """What found documents must have besides the words. Unset fields do not filter."""

    domain: str | None = None
    job: str | None = None
    language: str | None = None
    """By its code, as `en`."""
    kind: str | None = None
    """The kind of page: article, product, forum …"""
    since: datetime | None = None
    """Fetched at or after this time."""
    until: datetime | None = None


@record
class SnippetPart:
    """A piece of a snippet."""

    text: str
    marked: bool
    """It is one of the words that were searched for."""


@record
class SearchHit:
    """A found document."""

    url: str
    domain: str
    job: str
    title: str | None
    language: str | None
    kind: str
    fetched_at: datetime
    score: float
    snippet: list[SnippetPart]


@record
class IndexStatus:
    """The search index of a machine."""

    documents: Int64
    """In the index."""
    waiting: Int64
    """Documents of the database that are new or changed and not in the index yet: counted up to 10,000, and up to 1,000 with results."""
    behind_seconds: float | None
    """How long the oldest of them has waited, at the least; null: none waits."""
    updated_at: datetime | None
    """When the database was read last; null: never."""
    bytes: Int64
    """Size of the index on disk."""


@record
class SearchResults:
    """Found documents, the best first."""

    total: Int64
    """How many match in all."""
    hits: list[SearchHit]
    index: IndexStatus
