"""Every exception that Holdfast raises on purpose.

What the web does to us is a value, not an exception; these are for people and for our own faults.
Each is one clear sentence that says what to do, and carries the exit code that the CLI ends with::

    HoldfastError                     1
    ├── UsageError                    2   the request cannot be meant
    │   ├── BadUrl                        a URL or domain that no crawler can visit
    │   └── SettingsError                 a setting that is unknown or out of range
    ├── StoreError                    3   the database cannot be used
    │   ├── StoreUnavailable              nothing answers
    │   ├── EmbeddedServerError           the bundled PostgreSQL cannot start here
    │   ├── SchemaMismatch                the schema is older or newer than this Holdfast
    │   ├── RolledBack                    the connection broke; the transaction may be run again
    │   └── Unsettled                     we stopped asking how a transaction ended
    ├── NotFound                      4   no such domain, worker, job …
    ├── Refused                       5   the state of things forbids it (or the person said no)
    │   ├── ClaimLost                     the claim belongs to somebody else now
    │   ├── NameInUse                     another living worker bears that name
    │   ├── Changed                       somebody changed it since it was looked at
    │   └── UnderWay                      the same request is still being done
    ├── Denied                        6   whoever asks may not
    │   └── Unauthenticated               nobody knows who asks
    └── TooMany                       7   asked too often; it says when to ask again
"""

from typing import ClassVar


class HoldfastError(Exception):
    """Something Holdfast can explain."""

    exit_code: ClassVar[int] = 1


class UsageError(HoldfastError):
    """The request cannot be meant."""

    exit_code = 2


class BadUrl(UsageError):
    """A URL or domain that no crawler can visit."""


class SettingsError(UsageError):
    """A setting that is unknown or out of range."""


class StoreError(HoldfastError):
    """The database cannot be used."""

    exit_code = 3


class StoreUnavailable(StoreError):
    """Nothing answers at the database's address."""


class EmbeddedServerError(StoreError):
    """The bundled PostgreSQL cannot start or stop here."""


class SchemaMismatch(StoreError):
    """The schema is older or newer than this Holdfast."""


class RolledBack(StoreError):
    """The connection broke and the transaction is certainly rolled back: it may be run again."""


class Unsettled(StoreError):
    """We stopped asking how a transaction ended; it must not be run again."""


class NotFound(HoldfastError):
    """No such thing in the store."""

    exit_code = 4


class Refused(HoldfastError):
    """The present state forbids it."""

    exit_code = 5


class ClaimLost(Refused):
    """The claim belongs to somebody else now; nothing was written."""


class NameInUse(Refused):
    """Another living worker bears that name."""


class Changed(Refused):
    """Somebody changed it since it was looked at."""


class UnderWay(Refused):
    """The same request is still being done; asked again a little later, its answer is there."""

    retry_after: ClassVar[float] = 2.0
    """Seconds until it may be asked again."""


class Denied(HoldfastError):
    """Whoever asks may not."""

    exit_code = 6


class Unauthenticated(Denied):
    """Nobody knows who asks: no name and password, session or key that is valid."""


class TooMany(HoldfastError):
    """Asked too often."""

    exit_code = 7

    def __init__(self, sentence: str, *, retry_after: float) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after
        """Seconds until it may be asked again."""
