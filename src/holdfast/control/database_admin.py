"""The database as an operator handles it: schema, prompt, stop."""

import shutil
from collections.abc import Callable

from holdfast.db import embedded, migrate
from holdfast.db.connection import Database, libpq_environment
from holdfast.db.embedded import binaries
from holdfast.errors import Refused
from holdfast.settings import Settings


def upgrade(database: Database, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring the schema up; (before, after)."""
    return migrate.upgrade(database, revision)


def downgrade(database: Database, revision: str) -> tuple[str | None, str | None]:
    """Take the schema back; (before, after)."""
    return migrate.downgrade(database, revision)


def revisions(database: Database) -> tuple[str | None, str]:
    """The schema's revision, and the one that this version needs."""
    with database.session() as connection:
        return migrate.current(connection), migrate.HEAD


def psql(database: Database, settings: Settings) -> tuple[str, dict[str, str]]:
    """The psql program, and the environment that leads it to the database: no secret goes on a command line."""
    # Another server may ask for what the bundled client was built without, such as Kerberos; its owner's client has it.
    own = shutil.which("psql") if settings.database_url else None
    return own or str(binaries.wheel().bin / "psql"), libpq_environment(database.url)


def stop(settings: Settings, say: Callable[[str], None]) -> bool:
    """Stop the bundled server; False if it was not running."""
    if settings.database_url is not None:
        raise Refused("HOLDFAST_DATABASE_URL names a server that Holdfast does not run, so it does not stop it.")
    return embedded.stop(settings.data, say)
