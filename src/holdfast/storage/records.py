"""Storage: what the database and the folders of this machine take on the disk."""

from dataclasses import field
from datetime import date, datetime

from holdfast.model.health import SpaceState
from holdfast.model.record import Int64, record


@record
class TableSize:
    """A table of the database, with its partitions."""

    name: str
    rows: int | None
    """Estimated by the last ANALYZE; null: the table was never analyzed."""
    table_bytes: int
    """The rows, with those that are stored out of line."""
    index_bytes: int
    bytes_per_day: float | None = None
    """By which it grew a day lately; null: it was not measured on two days yet."""


@record
class FolderSize:
    """A folder of this machine."""

    name: str
    """`archive`, `images`, `retention`, `logs`, `backups`, or `database log`: the log (WAL) of the bundled server."""
    path: str
    files: int
    bytes: int
    complete: bool
    """Whether all files were counted; else these are the first ones."""


@record
class VolumeSize:
    """A volume of this machine."""

    path: str
    """A folder on it."""
    holds: list[str]
    """What is on it: `database`, or a name of a folder."""
    total_bytes: int
    free_bytes: int
    """What Holdfast may still write."""
    state: SpaceState = "ok"
    """`low`: less than `disk.warn_free`. `full`: less than `disk.min_free`, and nothing is fetched."""
    bytes_per_day: float | None = None
    """By which what is on it grew a day lately; null: it was not measured on two days yet."""
    days_until_full: float | None = None
    """When it is full if that goes on; null: it does not grow, or it is not known yet."""


@record
class OldestRow:
    """The oldest row of a table that grows with time."""

    table: str
    at: datetime | None
    """null: the table is empty."""


@record
class DomainSize:
    """A domain, and what was fetched from it."""

    domain: str
    pages: Int64
    bytes: Int64
    """Of all answers that were fetched, before they are compressed in the archive."""
    bytes_per_day: float | None


@record
class DaySize:
    """The database on one day."""

    day: date
    bytes: Int64


@record
class StorageReport:
    """What is stored, where, and how much room is left."""

    at: datetime
    """The time of the database."""
    database_bytes: int
    tables: list[TableSize]
    """The largest first."""
    oldest: list[OldestRow]
    folders: list[FolderSize]
    """Of this machine only: other machines have archives of their own."""
    volumes: list[VolumeSize]
    notes: list[str]
    """What could not be found out, a sentence each."""
    bytes_per_day: float | None = None
    """By which the database grew a day lately; null: it was not measured on two days yet."""
    days: list[DaySize] = field(default_factory=list)
    """The size of the database on the last days, the oldest first; the background measures it once a day."""
    domains: list[DomainSize] = field(default_factory=list)
    """The domains from which most was fetched, as they were measured last."""
