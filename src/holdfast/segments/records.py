"""Segments of the archive and the machines that have them, as the manifest knows them."""

from datetime import datetime

from holdfast.model.record import Int64, record


@record
class ArchiveMachine:
    """A machine whose archive goes to an object store."""

    id: int
    name: str
    open: int
    """Segments that a worker writes, or wrote when it was last heard of."""
    waiting: int
    """Finished segments that are not uploaded yet."""
    waiting_bytes: Int64
    """Bytes on its disk that the object store does not have, at the last look."""
    uploaded: int
    uploaded_bytes: Int64
    lost: int
    seen_at: datetime
    """The last heartbeat of a process of the machine."""
    lost_at: datetime | None
    """When it was declared lost; null: it was not, or it is back."""
    problem: str | None
    """Why it cannot upload at present."""
    problem_since: datetime | None


@record
class Segment:
    """A file of the archive."""

    segment: str
    """Its name: the folder of its worker, and the file."""
    machine: str
    state: str
    """`open`, `local`, `uploaded` or `lost`."""
    bytes: Int64 | None
    """Its size; null: it is not finished."""
    sha256: str | None
    opened_at: datetime
    uploaded_at: datetime | None
    lost_at: datetime | None


@record
class LostMachine:
    """What went with a machine."""

    machine: str
    dry_run: bool
    segments: list[str]
    """Its segments that the object store does not have."""
    pages: Int64
    """Pages whose last answer is in one of them."""
    versions: Int64
    """Earlier versions of pages, likewise."""


@record
class UploadedSegments:
    """What an upload by hand did."""

    machine: str
    uploaded: int
    bytes: Int64
    left: int
    """Segments that still wait, because a worker writes them."""
