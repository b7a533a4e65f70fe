"""Backups: what was taken when, what is kept, and to which seconds the store can be restored."""

from datetime import datetime

from holdfast.model.record import Int64, record


@record
class Backup:
    """A backup of the store. What it names on the disk stays while it is kept."""

    id: Int64
    name: str
    """The name of its folder; commands take it."""
    kind: str
    """`full`, `incremental` (the blocks that changed since the one before) or `dump` (of a shared server)."""
    state: str
    """`running`, `complete`, `failed` or `deleted`."""
    started_at: datetime
    ended_at: datetime | None
    """The second that it holds; null: it is not complete."""
    verified_at: datetime | None
    """When it was last restored into a scratch place and verified without a fault."""
    bytes: Int64 | None
    """The database's part, without the archive and images, which all backups share."""
    generation: int
    """Of the store, when it was taken."""
    parent: str | None
    """The backup that an incremental one begins at, and cannot be restored without."""
    place: str
    """Its folder, on the machine that took it."""
    error: str | None
    """Why it failed."""


@record
class Following:
    """How far the log of the database is kept, so that any second can be restored."""

    restorable_since: datetime | None
    """The first second; null: none, only what backups hold."""
    restorable_until: datetime | None
    """The last second; at most half a minute old."""
    problem: str | None
    """Why it does not go on at present."""
    problem_since: datetime | None
    given_up: str | None
    """Why it was given up for this chain of backups; the next full backup begins another."""


@record
class BackupReport:
    """The backups of the store, and the schedule."""

    backups: list[Backup]
    """The newest first; deleted ones are left out."""
    following: Following | None
    """null: the log is not kept: `backup.daily` is off, or nothing has followed yet."""
    daily: bool
    """Whether the background makes a backup each day (`backup.daily`)."""
    at: str
    """When, in UTC (`backup.daily_at`)."""
    keep: int
    """How many are kept at least (`backup.keep`)."""
    folder: str
    """Where backups of this machine are (`backup.folder`)."""


@record
class Check:
    """A line of the checklist of a drill or restore."""

    name: str
    ok: bool
    result: str
    """What was found, in one sentence."""
    seconds: float


@record
class Restored:
    """What a restore made."""

    backup: str
    data: str
    """The data folder that holds the store now."""
    asked_for: datetime | None
    """The second that was asked for; null: what the backup holds."""
    last_change_at: datetime | None
    """The time of the last transaction that is in the restored store."""
    generation: int
    bytes: Int64
    """Of files that were copied into the data folder."""
    checks: int
    """Checks of `verify` that were run; 0: none was asked for."""
    faults: int
    aside: str | None
    """Where the replaced database is now; null: there was none."""
    notes: list[str]
    """What the backup does not have, a sentence each."""
    seconds: float


@record
class Drill:
    """The result of a restore drill."""

    backup: str
    at: datetime
    ok: bool
    checks: list[Check]
    """The recovery testing checklist, in its order."""
    report: str
    """The file in which this result is kept."""


@record
class Verified:
    """The result of restoring a backup into a scratch place and verifying it."""

    backup: str
    ok: bool
    last_change_at: datetime | None
    checks: int
    faults: list[str]
    """What is wrong, a sentence each."""
    seconds: float
