"""Segments of the archive: their states, and where the bytes of one are."""

from dataclasses import dataclass
from enum import StrEnum


class SegmentState(StrEnum):
    """How far a segment is on its way into the object store."""

    OPEN = "open"
    """A worker writes it."""
    LOCAL = "local"
    """It is finished, and on its machine only."""
    UPLOADED = "uploaded"
    """The object store has it, whole and checked."""
    LOST = "lost"
    """It went with its machine before it was uploaded."""


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Where a segment is, as the database knows it."""

    machine: str
    state: SegmentState
