"""Health check of the database: it answers, and its schema is the one of this version.

The rule: it never raises, and its causes name no address, since the result is public.
"""

from typing import Final

from holdfast.db import migrate
from holdfast.db.connection import Database
from holdfast.errors import SchemaMismatch, StoreError, StoreMoved
from holdfast.model.health import Part

_UNKNOWN: Final = Part("schema", works=False, cause="Unknown, since the database does not answer.")
NO_ANSWER: Final = [Part("database", works=False, cause="It does not answer in time."), _UNKNOWN]
"""The result while a check takes too long."""


def look(database: Database) -> list[Part]:
    """Check each part, in the order in which they depend on each other."""
    try:
        with database.session() as connection:
            at = migrate.current(connection)
            try:
                migrate.check(connection, "")
            except StoreMoved:
                return [
                    Part("database", works=True),
                    Part("schema", works=False, cause="The store was moved to another database."),
                ]
            except SchemaMismatch:
                cause = f"It is at revision {at}, this Holdfast needs {migrate.HEAD}."
                return [Part("database", works=True), Part("schema", works=False, cause=cause)]
    except StoreError as problem:
        cause = f"It does not answer ({type(problem).__name__})."
        return [Part("database", works=False, cause=cause), _UNKNOWN]
    return [Part("database", works=True), Part("schema", works=True)]
