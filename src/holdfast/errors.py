"""Every exception that Holdfast raises on purpose.

Failures of the web are values, not exceptions; these are for the caller, and for our own faults.
Each message is one sentence that says what to do; each class has the exit code of the CLI::

    HoldfastError                     1
    ├── UsageError                    2   invalid usage
    │   ├── BadUrl                        a URL or domain that no crawler can visit
    │   └── SettingsError                 a setting that is unknown or out of range
    ├── StoreError                    3   the database cannot be used
    │   ├── StoreUnavailable              no server answers
    │   │   └── StoreDiskFull             its disk is full
    │   ├── EmbeddedServerError           the bundled PostgreSQL cannot start here
    │   │   └── DiskFull                  its disk is full
    │   ├── SchemaMismatch                the schema is older or newer than this Holdfast
    │   ├── RolledBack                    the connection broke; the transaction may be run again
    │   └── Unsettled                     the result of a transaction is unknown
    ├── ImageStoreUnavailable         3   the files of images cannot be stored or read at present
    ├── ArchiveUnavailable            3   the store of archive segments does not answer at present
    ├── BackupsUnavailable            3   the folder of backups cannot be used at present
    ├── ArchiveDamaged                3   the bytes in the archive are not those that were written
    ├── SearchUnavailable             3   the search index cannot be read or written at present
    ├── NotFound                      4   no such domain, worker, job …
    │   └── SegmentMissing                a segment of the archive that cannot be read from this machine
    ├── Refused                       5   the current state forbids it (or the operator said no)
    │   ├── ClaimLost                     another worker holds the claim now
    │   ├── NameInUse                     another live worker uses that name
    │   ├── Changed                       it was changed since it was read
    │   ├── StoreRestored                 the store is of another generation: restored from a backup, or moved
    │   │   └── StoreMoved                    another database is the store now
    │   └── UnderWay                      the same request is still being processed
    ├── Denied                        6   the caller lacks the permission
    │   └── Unauthenticated               the caller has no valid credentials
    └── TooMany                       7   a rate limit is exceeded; it says when to retry
"""

from typing import ClassVar


class HoldfastError(Exception):
    """The base of all errors that Holdfast raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(HoldfastError):
    """Invalid usage: an argument, option or request that makes no sense."""

    exit_code = 2


class BadUrl(UsageError):
    """A URL or domain that no crawler can visit."""


class SettingsError(UsageError):
    """A setting that is unknown or out of range."""


class StoreError(HoldfastError):
    """The database cannot be used."""

    exit_code = 3


class StoreUnavailable(StoreError):
    """No server answers at the database's address."""


class StoreDiskFull(StoreUnavailable):
    """The server refuses connections, since its disk is full."""


class EmbeddedServerError(StoreError):
    """The bundled PostgreSQL cannot start or stop here."""


class DiskFull(EmbeddedServerError):
    """The disk of the bundled PostgreSQL is full; it starts when there is room."""


class SchemaMismatch(StoreError):
    """The schema is older or newer than this Holdfast."""


class RolledBack(StoreError):
    """The connection broke and the transaction is certainly rolled back: it may be run again."""


class Unsettled(StoreError):
    """The result of a transaction could not be determined in time; it must not be run again."""


class ImageStoreUnavailable(HoldfastError):
    """The files of images cannot be stored or read at present: disk full, no connection, access denied. It may be tried again."""

    exit_code = 3


class ArchiveUnavailable(HoldfastError):
    """The object store of the archive cannot be used at present: no connection, access denied. It may be tried again."""

    exit_code = 3


class BackupsUnavailable(HoldfastError):
    """The folder of backups cannot be used at present: its disk is full, read-only or away. It may be tried again."""

    exit_code = 3


class ArchiveDamaged(HoldfastError):
    """The bytes in the archive are not those that were written."""

    exit_code = 3


class SearchUnavailable(HoldfastError):
    """The search index of this machine cannot be read or written at present: damaged, disk full, access denied."""

    exit_code = 3


class NotFound(HoldfastError):
    """The store has no such object."""

    exit_code = 4


class SegmentMissing(NotFound):
    """A segment of the archive is not on this machine and not in the object store; the message says where it is."""

    def __init__(self, sentence: str, *, machine: str | None = None, lost: bool = False) -> None:
        super().__init__(sentence)
        self.machine = machine
        """The machine that it is on, or was lost with; None: it is not known."""
        self.lost = lost
        """It is gone for good."""


class Refused(HoldfastError):
    """The current state forbids it."""

    exit_code = 5


class ClaimLost(Refused):
    """Another worker holds the claim now; nothing was written."""


class NameInUse(Refused):
    """Another live worker uses that name."""


class Changed(Refused):
    """The object was changed since it was read."""


class StoreRestored(Refused):
    """The store was restored from a backup or moved since this process began to use it."""


class StoreMoved(StoreRestored):
    """The database takes no writes: another one is the store now, or is about to be."""


class UnderWay(Refused):
    """The same request is still being processed; a retry a little later gets its answer."""

    retry_after: ClassVar[float] = 2.0
    """Seconds until a retry."""


class Denied(HoldfastError):
    """The caller lacks the permission."""

    exit_code = 6


class Unauthenticated(Denied):
    """The caller has no valid name and password, session or key."""


class TooMany(HoldfastError):
    """A rate limit is exceeded."""

    exit_code = 7

    def __init__(self, sentence: str, *, retry_after: float) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after
        """Seconds until a retry."""
