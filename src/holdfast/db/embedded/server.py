"""A running embedded server, as the rest of Holdfast sees it.

Owns the addresses of its two roles. One rule: an address holds no secret; a password stays in its file.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from holdfast.store.embedded.sockets import PORT

OWNER = "holdfast"  # the role that owns the database of the same name; it may do nothing else
SUPERUSER = "postgres"


@dataclass(frozen=True, slots=True)
class Server:
    """A running embedded server."""

    cluster: Path
    bin: Path
    socket_dir: Path
    pid: int
    passfile: Path | None = None

    def url(self, database: str = OWNER) -> str:
        """libpq's address of `database` for the unprivileged role that owns Holdfast's tables."""
        return self._url(OWNER, database)

    def admin_url(self, database: str = "postgres") -> str:
        """The same for the superuser, which only set-up and tests need."""
        return self._url(SUPERUSER, database)

    def _url(self, role: str, database: str) -> str:
        # The port too: a PGPORT in the caller's environment would lead elsewhere.
        query = {"host": os.fsencode(self.socket_dir), "port": str(PORT)}
        if self.passfile:
            query["passfile"] = os.fsencode(self.passfile)
        return f"postgresql://{role}@/{quote(database, safe='')}?{urlencode(query, quote_via=quote, safe='/')}"
