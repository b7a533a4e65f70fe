"""Who created or changed what, when, as people look it up.

The rule: it only reads. The rows are written by whoever does the deed.
"""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.db import audit
from holdfast.db.audit import Entry
from holdfast.db.connection import Database
from holdfast.errors import UsageError

PAGE: Final = 500
"""The most that a list gives at once."""

_UNFIT: Final = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class AuditDesk:
    """The audit log of one store."""

    database: Database

    def listing(
        self,
        *,
        actor: str | None = None,
        kind: str | None = None,
        object_id: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        """Deeds, the newest first; `before` is the id of the last one seen. An id is looked for among things of one kind only."""
        if not 1 <= limit <= PAGE:
            raise UsageError(f"A list gives 1 to {PAGE} at once, not {limit}.")
        if object_id is not None and kind is None:
            raise UsageError("An id means something with its kind only: name the kind, too.")
        if any(_UNFIT.search(text) for text in (actor, kind, object_id) if text is not None):
            raise UsageError("What is looked for is text.")
        with self.database.session() as connection:
            return audit.listing(connection, actor=actor, kind=kind, object_id=object_id, before=before, limit=limit)
