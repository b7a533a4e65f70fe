"""Backfill: rows and responses of other tools, imports and checks."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.model.record import record

BAD_ROWS_KEPT: Final = 1_000
"""Bad rows of a source that are reported with their numbers; all are counted."""
MAX_IMAGES: Final = 2**31 - 1
FIRST_YEAR: Final = 1990
"""No page was crawled before."""


class Format(StrEnum):
    """The format of a source."""

    CSV = "csv"
    PARQUET = "parquet"
    TABLE = "table"
    WARC = "warc"
    SCRAPY_CACHE = "scrapy-cache"


HISTORY: Final = frozenset({Format.CSV, Format.PARQUET, Format.TABLE})
"""Formats whose rows say what was crawled; the others have the responses themselves."""


class ImportState(StrEnum):
    """The state of an import."""

    READING = "reading"
    MERGING = "merging"
    """It is read to its end; its domains are being written, a chunk at a time."""
    FINISHED = "finished"


class RawRow(NamedTuple):
    """A row of a log or of provenance, as a source has it: text, or values of its types. None: the source has no such column."""

    number: int
    """Of its line or row, from 1."""
    domain: Any
    page_url: Any
    status: Any
    images_found: Any
    crawled_at: Any
    image_id: Any


COLUMNS: Final = RawRow._fields[1:]
"""The columns that rows of history may have."""


class BadRow(NamedTuple):
    """A row or record that cannot be used."""

    number: int
    reason: str
    """A few words, the same for all rows that are bad in the same way."""
    detail: str
    """A sentence about this row."""


@dataclass(slots=True)
class DomainSums:
    """What rows of one domain add up to."""

    parent_domain: str
    base_url: str
    spelling: str
    """The domain as the source writes it first."""
    merged: bool = False
    """The source writes it in other ways, too."""
    requests: int = 0
    pages: int = 0
    errors: int = 0
    login: int = 0
    forbidden: int = 0
    rate_limited: int = 0
    server_errors: int = 0
    images_found: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    images: set[bytes] | None = None
    """Keys of the images that were seen on it; None: the source is a log."""


@dataclass(slots=True)
class Capture:
    """A response of another tool."""

    number: int
    """Of its record, from 1."""
    url: str
    fetched_at: datetime
    status: int
    head: bytes
    """Status line and headers."""
    headers: dict[str, str]
    """As in `FetchResult`."""
    body: bytes
    """Decoded from its transfer and content encoding."""
    cut: bool = False
    """The body was longer."""
    same_as: str | None = None
    """A revisit: it has the body of the record with this digest."""
    same_url: str | None = None
    """A revisit: the URL of that record."""
    digest: str = ""
    """The digest of its payload, if the source has one."""


@dataclass(slots=True)
class Counts:
    """Counts of an import, or of a chunk of it."""

    rows: int = 0
    """Rows or records that were read."""
    bad: int = 0
    skipped: int = 0
    """Records that are no responses, or older than what is stored."""
    pages: int = 0
    errors: int = 0
    images_found: int = 0
    images_stored: int = 0
    domains_new: int = 0
    domains_updated: int = 0
    domains_merged: int = 0
    """Domains that the source writes in more than one way."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Bad and skipped rows by reason."""

    def add(self, other: "Counts") -> None:
        """Add the counts of a chunk."""
        for name in self.__slots__:
            if name == "reasons":
                self.reasons.update(other.reasons)
            else:
                setattr(self, name, getattr(self, name) + getattr(other, name))


@record
class Import:
    """The import of one source."""

    id: int
    identity: bytes
    format: Format
    source: str
    state: ImportState
    position: dict[str, Any] | None
    """Where the next chunk begins."""
    job_id: int | None
    rows: int


@dataclass(slots=True)
class ImportReport:
    """The progress and the result of importing one source."""

    source: str
    format: Format
    dry_run: bool = False
    state: ImportState = ImportState.READING
    resumed_at: int | None = None
    """Rows that an interrupted import had read before."""
    known: bool = False
    """It was imported before, so nothing was done."""
    job: str | None = None
    """The job of its pages."""
    notes: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    statuses: dict[str, int] = field(default_factory=dict)
    """New domains by status, of history."""
    bad_rows: list[BadRow] = field(default_factory=list)
    """The first ones of this run."""
    stopped: str | None = None
    """Why the rest of the source could not be read."""
    bytes_read: int = 0
    size: int | None = None
    """Of what `bytes_read` counts; None: unknown."""

    def refuse(self, bad: BadRow) -> None:
        """Keep a bad row for the report; its chunk counts it."""
        if len(self.bad_rows) < BAD_ROWS_KEPT:
            self.bad_rows.append(bad)


@record
class Check:
    """One check of what was imported, with its result."""

    check: str
    ok: bool
    detail: str


@record
class StatusFigures:
    """Figures of the domains of the history with one status."""

    status: str
    domains: int
    avg_yield: float | None
    """Images stored for each page."""
    avg_pages: float


@record
class CheckReport:
    """The validation of all that was imported."""

    ok: bool
    history_domains: int
    """Domains of the history."""
    backfilled_domains: int
    """Domains that an import created."""
    total_domains: int
    statuses: list[StatusFigures]
    checks: list[Check]
