"""Reads, checks and changes the revision of the schema.

A new store is made by `schema.sql` (the baseline) and Procrastinate's own schema; every later revision is a step in `migrations/`:
`NNNN_name.up.sql`, and `NNNN_name.down.sql`, which takes it back.

The rule: a worker refuses a schema that it does not know. The bundled server's is brought up at start; a shared one is only ever
changed by `holdfast db upgrade`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psycopg

from holdfast import failpoints
from holdfast.db import store_move
from holdfast.db.connection import Database, first_line
from holdfast.errors import SchemaMismatch, StoreError, UsageError

BASELINE: Final = "0026"
"""The revision of `schema.sql`: the oldest that this Holdfast upgrades from."""

_LAST_WITH_OLDER: Final = "108b5aa"
"""The last commit that upgrades from revisions before the baseline."""

_FOLDER: Final = Path(__file__).parent
_MIGRATION_LOCK: Final = 0x6D696772  # "migr"
_PROCRASTINATE: Final = "3.10"
"""The version of Procrastinate whose schema the baseline has. Changes that a later one brings need a step."""

# Procrastinate's triggers also fire for our own inserts, where another search path is set.
_PROCRASTINATE_AT_HOME: Final = """
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'procrastinate'::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = procrastinate', function);
    END LOOP;
END
$$
"""


@dataclass(frozen=True)
class Step:
    """A change of the schema from the revision before to `revision`, and the way back: plain SQL, one transaction each."""

    revision: str
    up: Callable[[], str]
    down: Callable[[], str]


def read_steps(folder: Path) -> tuple[Step, ...]:
    """The steps of a folder, in order. Raises ValueError unless they are numbered on from the baseline, each with its way back."""
    found = sorted(folder.glob("*.up.sql"))
    steps = []
    for number, up in enumerate(found, start=int(BASELINE) + 1):
        down = up.with_name(up.name.replace(".up.sql", ".down.sql"))
        if up.name[:5] != f"{number:04}_" or not down.is_file():
            raise ValueError(f"{up}: expected {number:04}_name.up.sql with a .down.sql beside it")
        steps.append(Step(f"{number:04}", _text_of(up), _text_of(down)))
    return tuple(steps)


def _text_of(file: Path) -> Callable[[], str]:
    return lambda: file.read_text(encoding="utf-8")


STEPS: Final = read_steps(_FOLDER / "migrations")

HEAD: Final = STEPS[-1].revision if STEPS else BASELINE
"""The newest revision: the one that this Holdfast needs."""

OLDER: Final[frozenset[str | None]] = frozenset({None, BASELINE, *(step.revision for step in STEPS)} - {HEAD})
"""Revisions that `upgrade` leads from to HEAD; None is an empty database."""

MOVING: Final = "moving"
"""The revision of a database that `holdfast db move` fills: no store yet, and refused by every version."""

BEFORE_BASELINE: Final = frozenset(f"{number:04}" for number in range(1, int(BASELINE)))
"""Revisions that an earlier Holdfast upgrades from, and this one does not."""


def current(connection: psycopg.Connection) -> str | None:
    """The revision that the database is at; None for an empty one."""
    try:
        row = connection.execute("SELECT version_num FROM schema_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return str(row[0]) if row else None


def check(connection: psycopg.Connection, address: str) -> None:
    """Raise SchemaMismatch unless the schema is the one that this Holdfast knows, StoreMoved if another database is the store now."""
    at = current(connection)
    if at == HEAD:
        store_move.check(connection)
        return
    if at == MOVING:
        raise _half_filled(address)
    if at in OLDER:
        state = "has no Holdfast schema yet" if at is None else f"is at revision {at}, this Holdfast needs {HEAD}"
        raise SchemaMismatch(f"The database at {address} {state}; run `holdfast db upgrade`.")
    if at in BEFORE_BASELINE:
        raise _too_old(at, address)
    raise SchemaMismatch(
        f"The database at {address} is at revision {at}, newer than this Holdfast ({HEAD}); "
        "upgrade Holdfast, or go back with the newer version's `holdfast db downgrade`.",
    )


def upgrade(
    database: Database, revision: str = "head", *, steps: Sequence[Step] = STEPS
) -> tuple[str | None, str | None]:
    """Bring the schema up; (revision before, revision after). Two at once: the second waits and finds nothing to do."""
    with _Migration.of(database, steps) as migration:
        target = migration.known[-1] if revision == "head" else migration.position_of(revision)
        if migration.known.index(target) < migration.known.index(migration.at):
            raise UsageError(
                f"The schema cannot go there: {target} is before {migration.at}; see `holdfast db downgrade`."
            )
        while migration.at != target:
            migration.up()
        return migration.before, migration.at


def downgrade(
    database: Database, revision: str = "-1", *, steps: Sequence[Step] = STEPS
) -> tuple[str | None, str | None]:
    """Take the schema back; (revision before, revision after). `base` removes everything that Holdfast made."""
    with _Migration.of(database, steps) as migration:
        target = migration.back_to(revision)
        while migration.at != target:
            migration.down()
        return migration.before, migration.at


class _Migration:
    """Changes the schema step by step, each in one transaction with its revision. It holds the lock of migrations."""

    def __init__(self, connection: psycopg.Connection, address: str, steps: Sequence[Step]) -> None:
        self._connection = connection
        self._address = address
        self._steps: dict[str | None, Step] = {step.revision: step for step in steps}
        self.known: list[str | None] = [None, BASELINE, *self._steps]
        self.before = self.at = current(connection)
        if self.at in BEFORE_BASELINE:
            raise _too_old(self.at, address)
        if self.at == MOVING:
            raise _half_filled(address)
        if self.at == HEAD:
            store_move.check(connection)
        if self.at not in self.known:
            raise SchemaMismatch(
                f"This Holdfast does not know revision {self.at} of the database at {address}; upgrade Holdfast."
            )

    @classmethod
    @contextmanager
    def of(cls, database: Database, steps: Sequence[Step]) -> Iterator["_Migration"]:
        """After: no other migration runs on this database until the end of the block."""
        patient = replace(database, statement_timeout=0, idle_timeout=0, application="holdfast migrate")
        with patient.session() as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
            yield cls(connection, database.address, steps)

    def position_of(self, revision: str) -> str:
        """The revision, if there is such a one."""
        if revision in BEFORE_BASELINE:
            raise UsageError(
                f"The schema cannot go there: {BASELINE} is the oldest revision of this Holdfast. "
                "To remove the schema with all data: `holdfast db downgrade base`."
            )
        if revision not in self.known:
            raise UsageError(
                f"The schema cannot go there: there is no revision {revision}; the newest is {self.known[-1]}."
            )
        return revision

    def back_to(self, revision: str) -> str | None:
        """Where a downgrade leads: a revision, a number of steps back (-1), or None for `base`."""
        if revision == "base":
            return None
        here = self.known.index(self.at)
        if revision.startswith("-") and revision[1:].isdecimal():
            there = here - int(revision[1:])
            target = self.known[there] if there > 0 else self.position_of("0001")
        else:
            target = self.position_of(revision)
        if self.known.index(target) > here:
            raise UsageError(
                f"The schema cannot go there: {target} is after {self.at or 'no schema'}; see `holdfast db upgrade`."
            )
        return target

    def up(self) -> None:
        """One step on."""
        after = self.known[self.known.index(self.at) + 1]
        step = self._steps.get(after)
        self._run(step.up() if step else _baseline(), after)

    def down(self) -> None:
        """One step back."""
        step = self._steps.get(self.at)
        self._run(step.down() if step else _read("schema.drop.sql"), self.known[self.known.index(self.at) - 1])

    def _run(self, sql: str, after: str | None) -> None:
        try:
            with self._connection.transaction():
                self._connection.execute(sql.encode())  # without parameters: the file goes to the server in one piece
                failpoints.reach("in_migration")
                if self.at is None:
                    self._connection.execute("INSERT INTO schema_version (version_num) VALUES (%s)", (after,))
                elif after is not None:
                    self._connection.execute("UPDATE schema_version SET version_num = %s", (after,))
        except psycopg.Error as problem:
            if self._connection.broken:
                raise
            state = "is as it was" if self.at == self.before else f"is at revision {self.at}"
            raise StoreError(
                f"The schema of {self._address} could not be changed, and {state}: {first_line(problem)}."
            ) from problem
        self.at = after


def _baseline() -> str:
    # Imported here: few commands make a store.
    from procrastinate.schema import SchemaManager

    if not version("procrastinate").startswith(f"{_PROCRASTINATE}."):
        raise StoreError(
            f"A new store needs Procrastinate {_PROCRASTINATE}, not {version('procrastinate')}; install Holdfast again."
        )
    queue = f"SET LOCAL search_path TO procrastinate; {SchemaManager.get_schema()}; SET LOCAL search_path TO DEFAULT;"
    return f"{_read('schema.sql')}\nCREATE SCHEMA procrastinate; {queue} {_PROCRASTINATE_AT_HOME}"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _half_filled(address: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"The database at {address} is being filled by `holdfast db move` and is no store yet. If that was killed, run it again with the "
        "settings of the old store, which is whole; `holdfast db move --abandon` there gives the move up."
    )


def _too_old(at: str | None, address: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"The database at {address} is at revision {at}, older than {BASELINE}, the oldest that this Holdfast upgrades from. "
        f"Upgrade it first with an earlier Holdfast: `git checkout {_LAST_WITH_OLDER}`, `make setup`, `holdfast db upgrade` "
        "with the same settings. Then come back to this version."
    )
