"""Whether requests could be answered now: the database answers, and its schema is the one that this Holdfast knows.

The rule: it never raises, and its causes name no address: whoever watches a server may be anybody.
"""

from dataclasses import dataclass
from typing import Final, Literal

from holdfast.db import migrate
from holdfast.db.connection import Database
from holdfast.errors import SchemaMismatch, StoreError


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is needed."""

    name: Literal["database", "schema"]
    works: bool
    cause: str | None = None


_UNKNOWN: Final = Part("schema", works=False, cause="Unknown, since the database does not answer.")
NO_ANSWER: Final = [Part("database", works=False, cause="It does not answer in time."), _UNKNOWN]
"""What is said while a look takes too long."""


def look(database: Database) -> list[Part]:
    """Each part, in the order in which they need each other."""
    try:
        with database.session() as connection:
            at = migrate.current(connection)
            try:
                migrate.check(connection, "")
            except SchemaMismatch:
                cause = f"It is at revision {at}, this Holdfast needs {migrate.HEAD}."
                return [Part("database", works=True), Part("schema", works=False, cause=cause)]
    except StoreError as problem:
        cause = f"It does not answer ({type(problem).__name__})."
        return [Part("database", works=False, cause=cause), _UNKNOWN]
    return [Part("database", works=True), Part("schema", works=True)]
