"""The schema's revision: read, compared, changed.

The rule: a worker refuses a schema that it does not know. The bundled server's is brought up at start; a shared one is only ever
changed by `holdfast db upgrade`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psycopg

from holdfast.errors import SchemaMismatch, StoreError, UsageError
from holdfast.store.connect import Database, first_line

HEAD: Final = "0026"
"""The newest revision. Written here so that commands need not load Alembic to compare; a test keeps it true."""

OLDER: Final[frozenset[str | None]] = frozenset({None, *(f"{number:04}" for number in range(1, int(HEAD)))})
"""Revisions that `upgrade` leads from to HEAD; None is an empty database."""

_MIGRATION_LOCK: Final = 0x6D696772  # "migr"


def current(connection: psycopg.Connection) -> str | None:
    """The revision that the database is at; None for an empty one."""
    try:
        row = connection.execute("SELECT version_num FROM schema_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return str(row[0]) if row else None


def check(connection: psycopg.Connection, address: str) -> None:
    """Raise SchemaMismatch unless the schema is the one that this Holdfast knows."""
    at = current(connection)
    if at == HEAD:
        return
    if at in OLDER:
        state = "has no Holdfast schema yet" if at is None else f"is at revision {at}, this Holdfast needs {HEAD}"
        raise SchemaMismatch(f"The database at {address} {state}; run `holdfast db upgrade`.")
    raise SchemaMismatch(
        f"The database at {address} is at revision {at}, newer than this Holdfast ({HEAD}); "
        "upgrade Holdfast, or go back with the newer version's `holdfast db downgrade`.",
    )


def upgrade(database: Database, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring the schema up; (revision before, revision after). Two at once: the second waits and finds nothing to do."""
    return _migrate(database, lambda command, config: command.upgrade(config, revision))


def downgrade(database: Database, revision: str = "-1") -> tuple[str | None, str | None]:
    """Take the schema back; (revision before, revision after). `base` removes everything that Holdfast made."""

    def change(command: Any, config: Any) -> None:
        command.downgrade(config, revision)
        connection = config.attributes["connection"]
        if not connection.exec_driver_sql("SELECT count(*) FROM schema_version").scalar():
            connection.exec_driver_sql("DROP TABLE schema_version")  # Alembic would leave it

    return _migrate(database, change)


def _migrate(database: Database, change: Callable[[Any, Any], None]) -> tuple[str | None, str | None]:
    # Imported here: SQLAlchemy takes longer to load than most commands take to run.
    from alembic import command, config
    from alembic.util import CommandError
    from sqlalchemy.exc import DBAPIError

    settings = config.Config()
    settings.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    with database.session() as watch:
        before = current(watch)
        try:
            with _engine(database) as connection:
                settings.attributes["connection"] = connection
                change(command, settings)
                connection.commit()
        except CommandError as problem:
            if before != HEAD and before not in OLDER:
                raise SchemaMismatch(
                    f"This Holdfast does not know revision {before} of the database at {database.address}; upgrade Holdfast.",
                ) from problem
            raise UsageError(f"The schema cannot go there: {first_line(problem)}.") from problem
        except (DBAPIError, psycopg.Error) as problem:  # SQL files go past SQLAlchemy, and fail past it
            raise StoreError(
                f"The schema of {database.address} could not be changed, and is as it was: {first_line(problem)}.",
            ) from problem
        return before, current(watch)


@contextmanager
def _engine(database: Database) -> Iterator[Any]:
    """A SQLAlchemy connection that holds the migration lock, so that two migrations never run at once."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.pool import NullPool

    patient = replace(database, statement_timeout=0, idle_timeout=0, application="holdfast migrate")
    engine = create_engine("postgresql+psycopg://", creator=lambda: _manual_commit(patient), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
            connection.commit()
            yield connection
    finally:
        engine.dispose()


def _manual_commit(database: Database) -> psycopg.Connection:
    connection = database.connect()
    connection.autocommit = False
    return connection
