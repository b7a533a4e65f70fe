"""Administration of the database: schema, psql, stop."""

import shutil
from collections.abc import Callable

from holdfast.db import embedded, migrate
from holdfast.db.connection import Database, libpq_environment
from holdfast.db.embedded import binaries
from holdfast.errors import Refused
from holdfast.settings import Settings


def upgrade(database: Database, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrade the schema; return the revisions (before, after)."""
    return migrate.upgrade(database, revision)


def downgrade(database: Database, revision: str) -> tuple[str | None, str | None]:
    """Downgrade the schema; return the revisions (before, after)."""
    return migrate.downgrade(database, revision)


def revisions(database: Database) -> tuple[str | None, str]:
    """Return the revision of the schema, and the one that this version needs."""
    with database.session() as connection:
        return migrate.current(connection), migrate.HEAD


def check(database: Database) -> None:
    """Raise SchemaMismatch or StoreMoved unless it is a store that this version can use."""
    with database.session() as connection:
        migrate.check(connection, database.address)


def psql(database: Database, settings: Settings) -> tuple[str, dict[str, str]]:
    """Return the path of psql, and the environment with the address of the database: no secret is on a command line."""
    # Another server may need what the bundled psql was built without, such as Kerberos; the operator's own psql has it.
    installed = shutil.which("psql") if settings.database_url else None
    return installed or str(binaries.wheel().bin / "psql"), libpq_environment(database.url)


def stop(settings: Settings, say: Callable[[str], None]) -> bool:
    """Stop the bundled server; return False if it was not running."""
    if settings.database_url is not None:
        raise Refused("HOLDFAST_DATABASE_URL names a server that Holdfast does not run, so it does not stop it.")
    return embedded.stop(settings.data, say)
