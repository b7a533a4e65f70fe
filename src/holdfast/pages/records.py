"""Pages: the last response for each URL, what an export and `explain` show of it, its archived source, the log of requests, and the
filter of the list.

The rule: a column of `crawled_pages` that people see is a field of these records. Queries, exports, the API, the client and `explain` take
their columns from here.
"""

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.errors import UsageError
from holdfast.model.list_filter import ListFilter
from holdfast.model.record import Int64, record

if TYPE_CHECKING:
    from holdfast.model.outcome import Outcome  # it needs ada-url, which the client does without

_HASH: Final = re.compile(r"(?:[0-9a-fA-F]{2}){1,64}")


@record
class CrawledPage:
    """The last response for a URL, as it is listed."""

    url: str | None
    domain: str | None
    job: str | None
    crawled_at: datetime
    status: int | None
    outcome: str
    content_type: str | None
    content_length: int
    content_hash: str | None
    """Of its text: pages with the same hash have the same text."""
    title: str | None
    description: str | None
    links_count: int
    """Different addresses that it leads to: links, frames, alternates and the canonical one, also those that are not followed."""
    images_count: int
    depth: int
    duration_ms: int | None
    archived: bool
    """Its bytes are in the archive."""
    problem: str | None
    """What was wrong with the answer, such as `not_found: HTTP 404`, or why the page could be read only in part."""
    content_language: str | None = None
    """From `<html lang>`, else from the header `Content-Language`; in lower case."""


@record
class PageFacts:
    """Everything that a job knows of a URL. If it was never fetched, `crawled_at` and the fields of the response are null."""

    url: str
    url_key: str
    domain: str
    job: str
    state: str
    """`waiting`, `done`, `denied` or `failed`."""
    kind: str
    reason: str | None
    priority: int
    depth: int
    hops: int
    attempts: int
    discovered_at: datetime
    next_attempt_at: datetime | None
    parent_url: str | None
    """The page that led here, if it is of the same domain."""
    crawled_at: datetime | None
    status: int | None
    outcome: str | None
    problem: str | None
    duration_ms: int | None
    content_type: str | None
    charset: str | None
    content_length: int | None
    content_hash: str | None
    payload_digest: str | None
    title: str | None
    description: str | None
    canonical: str | None
    links_count: int | None
    images_count: int | None
    noindex: bool | None
    nofollow: bool | None
    etag: str | None
    last_modified: str | None
    archive_segment: str | None
    archive_offset: int | None
    archive_length: int | None
    has_text: bool
    next_crawl_at: datetime | None
    """When it is fetched again, if it is done and its job asked for refresh."""
    error_count: int
    """Attempts in a row that failed; 0 once the URL is done."""
    domain_errors: int
    """Errors in a row of its domain."""
    content_language: str | None = None
    """From `<html lang>`, else from the header `Content-Language`; in lower case."""


@record
class PageLink:
    """A link on a page."""

    url: str
    """Absolute."""
    text: str
    """Visible text of the link, at most 200 characters."""
    rel: str
    """As the page writes it, such as `nofollow`; empty: none."""


@record
class ArchivedPage:
    """The archived response for a URL: what the server sent, and what the page says. Where a part is null, a sentence says why."""

    url: str
    domain: str
    job: str
    state: str
    """Of the URL: `waiting`, `done`, `denied` or `failed`."""
    fetched_at: datetime | None
    """When the response was fetched; null: `missing` says why."""
    status_line: str | None
    """Such as `HTTP/1.1 200 OK`."""
    headers: dict[str, str]
    """By name in lower case. Those that do not describe the decoded body begin with `x-archive-orig-`."""
    content_type: str | None
    charset: str | None
    """The encoding by which the body was decoded."""
    body: str | None
    """The body as text, at most 1,000,000 characters. It is what a server sent: never show it as HTML."""
    body_bytes: int | None
    """Length of the decoded body as it is archived."""
    truncated: bool
    """Body or text are longer than they are here."""
    incomplete: bool
    """The body was longer than the crawl reads, and only its beginning is archived."""
    missing: str | None
    """Why there is no archived response, or no body; null: both are here."""
    text: str | None
    """Visible text of the page, at most 1,000,000 characters."""
    text_missing: str | None
    """Why there is no text; null: it is here."""
    links: list[PageLink]
    """Links with a visible or invisible text, in page order, at most 1,000."""
    links_left_out: int
    """Links beyond that number."""
    problem: str | None
    """Why the page could be read only in part; null: it was read as a whole."""


@record
class PageCount:
    """How many pages a purge would delete."""

    pages: int
    """Up to 100,000."""
    more: bool
    """There are more than `pages`."""


@record
class LastResponse:
    """The last response for a URL, as `explain` shows it."""

    crawled_at: datetime
    status: int | None
    outcome: str
    content_type: str | None
    content_length: int
    content_hash: str | None
    title: str | None
    archive_segment: str | None
    archive_offset: int | None
    archive_length: int | None
    content_language: str | None = None
    """From `<html lang>`, else from the header `Content-Language`; in lower case."""


@record
class Explanation:
    """The explanation of the state of a URL or a domain."""

    kind: Literal["url", "domain"]
    subject: str
    told: dict[str, Any]
    """Everything that is known about it."""


@record
class ExportedPage:
    """A row of `export pages`: the fields are the columns of the file, in their order."""

    url: str | None
    domain: str | None
    job: str | None
    status: int | None
    outcome: str
    title: str | None
    description: str | None
    crawled_at: datetime
    depth: int
    content_type: str | None
    charset: str | None
    content_length: Int64
    content_hash: str | None
    canonical: str | None
    links_count: int
    images_count: int
    noindex: bool
    nofollow: bool
    etag: str | None
    last_modified: str | None
    duration_ms: int | None
    problem: str | None
    archive_segment: str | None
    archive_offset: Int64 | None
    archive_length: Int64 | None
    url_key: str
    content_language: str | None = None
    """From `<html lang>`, else from the header `Content-Language`; in lower case."""


@record
class StoredPage:
    """A page with what its text is read from."""

    page: ExportedPage
    body: bytes | None
    """Its text, compressed; None: it is not stored, or was not asked for."""
    payload_digest: bytes | None


@record
class PageVersion:
    """A version of a page: the last answer for a URL (`current`), or an earlier one that another with different content replaced."""

    number: int
    """Counts up with each version of the URL in this job; the first that is kept may be greater than 1."""
    current: bool
    job: str
    crawled_at: datetime
    """When this content was answered for the last time."""
    replaced_at: datetime | None
    """When the answer that replaced it was fetched; null if it is current."""
    change: str | None
    """By what it was replaced: `changed`: by other content; `gone`: by "not found"; `failed`: by an error; `back`: it was "not found", and
    the URL is a page again. Null if it is current."""
    crawl: int | None
    """The id of the crawl that replaced it."""
    status: int | None
    outcome: str
    title: str | None
    content_type: str | None
    charset: str | None
    content_length: int
    content_hash: str | None
    """Of its text: versions with the same hash have the same text."""
    payload_digest: str | None
    archived: bool
    """Its bytes are in the archive."""


@record
class StoredVersion:
    """A version with what its text is read from."""

    version: PageVersion
    noindex: bool
    body: bytes | None
    """Its text, compressed; None: it is not stored."""
    archive_segment: str | None
    archive_offset: int | None
    archive_length: int | None


@record
class FactChange:
    """A fact in which two versions of a page differ."""

    name: str
    """`status`, `outcome`, `title`, `content_type`, `charset` or `content_length`."""
    older: str | int | None
    newer: str | int | None


@record
class PageDiff:
    """The differences between two versions of a page."""

    url: str
    older: PageVersion
    newer: PageVersion
    facts: list[FactChange]
    text: str | None
    """The unified diff of the visible texts, which are split into lines for it; empty: they are the same; null: `note` says why not."""
    note: str | None
    """Why there is no diff of the texts, or that they are compared only in part."""


@record
class LoggedRequest:
    """A row of `export log`, the outcome of one request: the fields are the columns of the file, in their order."""

    url: str
    domain: str | None
    job: str | None
    crawled_at: datetime
    outcome: str
    status: int | None
    duration_ms: int | None
    bytes: Int64 | None
    images_found: int
    run: Int64 | None
    claim_epoch: Int64
    url_key: str


@record
class PageFilter(ListFilter):
    """Which pages to list; None: all."""

    domain: str | None = None
    job: str | int | None = None
    """By name or id."""
    status: int | None = None
    """Of the response: 200, 404."""
    status_class: int | None = None
    """4 means 400 to 499."""
    outcome: "Outcome | None" = None
    content_type: str | None = None
    """What it begins with."""
    content_hash: str | None = None
    """In hexadecimal digits: pages with the same text."""
    url_prefix: str | None = None
    """What the URL begins with: a host, and perhaps the beginning of a path. Without a scheme both http and https are meant."""
    title: str | None = None
    """Words of the title, in any order; `"two words"` in quotes next to each other, `-word` absent."""
    since: datetime | None = None
    until: datetime | None = None
    """Before then."""

    def given(self) -> dict[str, object]:
        """Return the filters that are present, by the names of the query. Raises UsageError."""
        filters = ListFilter.given(self)
        if self.status is not None and not 100 <= self.status <= 999:
            raise UsageError("A status is a number of three digits.")
        if self.status_class is not None and not 1 <= self.status_class <= 9:
            raise UsageError("A class of statuses is a number from 1 to 9; 4 means 400 to 499.")
        if self.content_hash is not None:
            if not _HASH.fullmatch(self.content_hash):
                raise UsageError("A hash is written in hexadecimal digits.")
            filters["content_hash"] = bytes.fromhex(self.content_hash)
        return filters
