"""Whether requests could be answered now: the database answers, and its schema is the one that this Holdfast knows.

The rule: it never raises, and its causes name no address: whoever watches a server may be anybody.
"""

from dataclasses import dataclass
from typing import Literal

from holdfast.errors import SchemaMismatch, StoreError
from holdfast.store import migrate
from holdfast.store.connect import Database


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is needed."""

    name: Literal["database", "schema"]
    works: bool
    cause: str | None = None


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
        return [Part("database", works=False, cause=cause), Part("schema", works=False, cause="Nobody can tell.")]
    return [Part("database", works=True), Part("schema", works=True)]
