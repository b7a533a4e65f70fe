"""A running embedded server and the URLs of its two roles.

The rule: a URL holds no secret; the password stays in its file.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from holdfast.db.embedded.sockets import PORT

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
        """The libpq URL of `database` for the unprivileged role that owns Holdfast's tables."""
        return self._url(OWNER, database)

    def admin_url(self, database: str = "postgres") -> str:
        """The libpq URL of `database` for the superuser, for set-up and tests."""
        return self._url(SUPERUSER, database)

    def _url(self, role: str, database: str) -> str:
        # The port too: a PGPORT in the caller's environment would lead elsewhere.
        query = {"host": os.fsencode(self.socket_dir), "port": str(PORT)}
        if self.passfile:
            query["passfile"] = os.fsencode(self.passfile)
        return f"postgresql://{role}@/{quote(database, safe='')}?{urlencode(query, quote_via=quote, safe='/')}"
