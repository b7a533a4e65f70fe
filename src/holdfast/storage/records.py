"""Storage: what the database and the folders of this machine take on the disk."""

from datetime import datetime

from holdfast.model.health import SpaceState
from holdfast.model.record import record


@record
class TableSize:
    """A table of the database, with its partitions."""

    name: str
    rows: int | None
    """Estimated by the last ANALYZE; null: the table was never analyzed."""
    table_bytes: int
    """The rows, with those that are stored out of line."""
    index_bytes: int


@record
class FolderSize:
    """A folder of this machine."""

    name: str
    """`archive` or `logs`."""
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
    """What is on it: `archive`, `logs`, `database`."""
    total_bytes: int
    free_bytes: int
    """What Holdfast may still write."""
    state: SpaceState = "ok"
    """`low`: less than `disk.warn_free`. `full`: less than `disk.min_free`, and nothing is fetched."""


@record
class OldestRow:
    """The oldest row of a table that grows with time."""

    table: str
    at: datetime | None
    """null: the table is empty."""


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
