"""What a worker process is told at its start."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.batch import UrlOutcome
from holdfast.model.url import UrlRules
from holdfast.settings import Settings
from holdfast.store.connect import Database
from holdfast.store.domains import NewDomains


@dataclass(frozen=True, slots=True)
class Plan:
    """What a worker process is to do."""

    settings: Settings
    database: Database
    name: str
    agent: str
    rules: UrlRules
    defaults: NewDomains
    archive_folder: Path
    unseal: Callable[[str], str]
    """Opens the password of a proxy."""
    parser_file: Path | None = None
    """A parser that a person named by its path, beside those of the folder."""
    report: Callable[[Sequence[UrlOutcome]], None] | None = None
    """Called on the event loop with outcomes that were committed; returns at once."""
    siblings: int = 1
    """Workers that are started together with this one, itself included."""
    job_id: int | None = None
    """Serve this job and end when there is nothing more to do for it; None: serve all, for ever."""
