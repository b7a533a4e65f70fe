"""Moving a store to another database: `holdfast db move`.

The order: closed partitions of the log, and closed segments where the data folder changes, are copied while the crawl goes on; the old
store is closed; the rest is copied, indexed, counted and hashed; the old store is marked as moved; the new one begins a generation.

The rule: at every moment exactly one of the two is the store, or none takes writes. A kill at any point leaves the old store whole; the
same command goes on where it was, and `abandon` opens the old store again.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from holdfast import failpoints
from holdfast.control import move_files
from holdfast.db import generation, migrate, move_tables, move_target, store_move
from holdfast.db.connection import Connection, Database
from holdfast.db.move_tables import Fingerprint, Table
from holdfast.db.move_target import Content
from holdfast.db.store_move import Move, State
from holdfast.errors import Refused, StoreError, StoreMoved, StoreUnavailable

STREAMS: Final = 2
"""Tables that are copied, indexed and compared at the same time."""
BYTES_PER_SECOND: Final = 15_000_000
"""Bytes of tables and indexes that a move copies, indexes and compares in a second, where nothing was measured yet: 2 cores, local disk."""
_SMALLEST_SAMPLE: Final = 32_000_000
"""Bytes that must have been copied ahead for their speed to say more than `BYTES_PER_SECOND`."""
_FIXED_SECONDS: Final = 2.0
"""What a pause lasts for an empty store: a trigger, a hash and the statistics of each table."""

_STILL_CLOSED: Final = """\
The old store is whole, and closed: the same command goes on where it was, `holdfast db move --abandon` opens the store again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a store moves to."""

    database: Callable[[], Database]
    """Opens the database; a bundled server is started for it."""
    name: str
    """For people and for the mark in the old store: no password."""
    advice: str
    """What a user has to do to use it, without an end."""
    data: Path | None = None
    """The data folder that the files go to; None: they stay where they are."""
    look: Callable[[], AbstractContextManager[Database | None]] | None = None
    """Opens the database for reading, and leaves nothing behind; yields None if it is yet to be created. None: as `database`."""

    def reading(self) -> AbstractContextManager[Database | None]:
        """Open the database for a plan. After: no server was created, and none runs that did not run before."""
        return nullcontext(self.database()) if self.look is None else self.look()


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What a move would do."""

    destination: str
    state: str
    """`new`, or how far an earlier attempt is: copying, closed, moved."""
    tables: int
    rows: int
    """As the planner estimates them."""
    bytes: int
    """Of tables and indexes."""
    ahead_bytes: int
    """Of those that are copied while the crawl goes on and are not copied yet."""
    pause_bytes: int
    files: int
    file_bytes: int
    pause_seconds: float
    """The estimated pause."""
    replaces: bool
    """The old generation of this store, which was moved from there, is overwritten."""


@dataclass(slots=True)
class MoveResult:
    """What a move has done."""

    destination: str
    advice: str
    tables: int = 0
    rows: int = 0
    ahead_rows: int = 0
    files: int = 0
    file_bytes: int = 0
    generation: int = 0
    pause_seconds: float = 0.0
    """From the first refused write to the end of the switch, in this invocation."""
    seconds: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds of each step of the pause."""


class Progress(NamedTuple):
    """How far a step is."""

    step: str
    rows: int
    bytes: int
    of_bytes: int


class _Sides(NamedTuple):
    source: Connection
    target: Connection


class MoveService:
    """Moves one store."""

    def __init__(
        self,
        source: Database,
        destination: Destination,
        *,
        data: Path,
        actor: str,
        say: Callable[[str], None],
        progress: Callable[[Progress], None] = lambda _: None,
        lock_timeout: float = store_move.LOCK_TIMEOUT,
    ) -> None:
        """`source` has the schema of this version. `data` is the data folder of this machine."""
        self._source = source
        self._destination = destination
        self._data = data
        self._actor = actor
        self._say = say
        self._progress = progress
        self._lock_timeout = lock_timeout
        self._closed = False
        self._lock = threading.Lock()
        self._shown = Progress("", 0, 0, 0)

    def plan(self) -> MovePlan:
        """What a move would do. Nothing is changed: no bundled server is created, and one that is started for this is stopped again."""
        with move_tables.open_side(self._source, "old") as source, self._destination.reading() as database:
            found = store_move.read(source)
            if found is not None and found.destination != self._destination.name:
                found = None
            if database is None:
                return self._plan(source, found, Content.NOTHING, {})
            with move_tables.open_side(database, "new") as target:
                content = self._content(source, target, found, replace=True)
                done = move_target.copied(target) if content is Content.THIS_MOVE else {}
            return self._plan(source, found, content, done)

    def _plan(self, source: Connection, found: Move | None, content: Content, done: dict[str, int]) -> MovePlan:
        tables = move_tables.tables(source)
        left = [table for table in tables if table.key not in done]
        ahead = sum(table.bytes + table.index_bytes for table in left if table.closed)
        pause = sum(table.bytes + table.index_bytes for table in left if not table.closed)
        files = move_files.size(self._data) if self._destination.data else move_files.CopiedFiles()
        return MovePlan(
            destination=self._destination.name,
            state="new" if found is None else found.state.value,
            tables=len(tables),
            rows=sum(table.rows for table in tables),
            bytes=sum(table.bytes + table.index_bytes for table in tables),
            ahead_bytes=ahead,
            pause_bytes=pause,
            files=files.files,
            file_bytes=files.bytes,
            pause_seconds=round(_FIXED_SECONDS + pause / BYTES_PER_SECOND, 1),
            replaces=content is Content.OLD_STORE,
        )

    def run(self, *, confirm: Callable[[float], None], replace: bool = False) -> MoveResult:
        """Move the store, or go on with a move that was killed. `confirm` is called with the estimated seconds before the pause begins.

        After: the new database is the store, in a new generation, and the old one refuses writes and says where it went. An exception
        (also of `confirm`) leaves the old store whole: open, or closed if it says so.
        """
        began = time.monotonic()
        result = MoveResult(self._destination.name, self._destination.advice)
        database = self._destination.database()
        with ExitStack() as stack:
            source = stack.enter_context(move_tables.open_side(self._source, "old"))
            target = stack.enter_context(move_tables.open_side(database, "new"))
            _check_apart(source, target)
            stack.enter_context(store_move.exclusive(source))
            move = self._begin(source, target, database, replace=replace)
            if move.state is not State.MOVED:
                pace = self._copy_ahead(source, target, result)
                if move.state is State.COPYING:
                    confirm(self._estimate(source, target, pace))
                try:
                    self._pause(database, source, target, result)
                except BaseException:
                    self._say(
                        _STILL_CLOSED if self._closed else "The old store is open and whole; nothing of it was changed."
                    )
                    raise
            with self._step("switch", result):
                failpoints.reach("move_marked")
                result.generation = move_target.activate(
                    target, why=f"moved to {self._destination.name}", actor=self._actor
                )
            failpoints.reach("move_switched")
        result.pause_seconds = sum(result.steps.values())
        result.seconds = time.monotonic() - began
        return result

    def abandon(self) -> str:
        """Give a move up: the old store takes writes again. Returns where it was to go to.

        Raises Refused if there is no move, or if the new database is the store already or cannot be asked whether it is.
        """
        with move_tables.open_side(self._source, "old") as source, store_move.exclusive(source):
            move = store_move.read(source)
            if move is None:
                raise Refused("This store does not move, so there is nothing to take back.")
            if move.state is State.MOVED:
                self._check_unused(move)
            store_move.reopen(source)
            return move.destination

    def _check_unused(self, move: Move) -> None:
        """Raise Refused unless the new database never became the store."""
        if self._destination.name != move.destination:
            raise Refused(
                f"This store was moved to {move.destination}. To take that back, say `--abandon --to` with its address, so that it can be "
                "asked whether it was used since."
            )
        try:
            with move_tables.open_side(self._destination.database(), "new") as target:
                at = migrate.current(target)
        except StoreUnavailable as problem:
            raise Refused(
                f"Whether the store is used there already cannot be asked, so nothing was changed. {problem}"
            ) from problem
        if at != migrate.MOVING:
            raise Refused(
                f"This store was moved to {move.destination}, and is in use there. To come back, move it back: `holdfast db move` with the "
                "settings of the new place."
            )

    # Steps ------------------------------------------------------------------------------------------------------------

    def _begin(self, source: Connection, target: Connection, database: Database, *, replace: bool) -> Move:
        """The move, begun or found; the target is ready to be filled, or filled in part."""
        found = store_move.read(source)
        content = self._content(source, target, found, replace=replace)
        if found is None or found.state is State.COPYING:
            # Refused before anything is changed.
            self._check_folder()
        move = store_move.begin(source, destination=self._destination.name, advice=self._destination.advice)
        if content is not Content.THIS_MOVE:
            if move.state is State.MOVED:
                raise Refused(
                    f"This store was moved to {self._destination.name}, but that database does not have it; nothing was changed. "
                    "If it was lost, restore it from a backup."
                )
            self._say(f"Preparing {self._destination.name} …")
            move_target.prepare(database, target, move_id=move.id, found=content)
        elif move.state is not State.MOVED:
            done = len(move_target.copied(target))
            self._say(f"Going on with the move of {move.started_at:%Y-%m-%d %H:%M} UTC: {done} tables are copied.")
        failpoints.reach("move_prepared")
        return move

    def _content(self, source: Connection, target: Connection, found: Move | None, *, replace: bool) -> Content:
        """What the target has. Raises Refused if it must not be overwritten."""
        here = generation.current(source)
        move_id = found.id if found is not None and found.destination == self._destination.name else None
        content = move_target.content(target, move_id=move_id, source=here)
        if content is Content.THE_STORE:
            raise StoreMoved(
                f"{self._destination.name} is this store already, in a later generation: {self._destination.advice}."
            )
        if content is Content.OTHER:
            raise Refused(
                f"{self._destination.name} has another Holdfast store, which is not overwritten; move to an empty database."
            )
        if content is Content.OLD_STORE and not replace:
            raise Refused(
                f"{self._destination.name} still has this store as it was when it was moved away from there; `--replace` overwrites it."
            )
        return content

    def _check_folder(self) -> None:
        if self._destination.data is not None and self._destination.data.resolve() == self._data.resolve():
            raise Refused(f"The store is in {self._data} already.")

    def _copy_ahead(self, source: Connection, target: Connection, result: MoveResult) -> float:
        """Copy what does not change any more; returns the bytes a second that it took, or the default."""
        done = move_target.copied(target)
        tables = [table for table in move_tables.tables(source) if table.closed and table.key not in done]
        size = sum(table.bytes + table.index_bytes for table in tables)
        began = time.monotonic()
        if tables:
            self._say(
                f"Copying {len(tables)} closed partitions of the log ({_megabytes(size)}) while the crawl goes on."
            )
            self._show("copying ahead", sum(table.bytes for table in tables))
            for table in tables:
                result.ahead_rows += self._fill(_Sides(source, target), table, in_chunks=True)
                failpoints.reach("move_copied_ahead")
        took = time.monotonic() - began
        if self._destination.data is not None:
            self._copy_files(result, closed_only=True)
        return max(size / took, BYTES_PER_SECOND / 4) if size > _SMALLEST_SAMPLE else BYTES_PER_SECOND

    def _estimate(self, source: Connection, target: Connection, pace: float) -> float:
        done = move_target.copied(target)
        left = [table for table in move_tables.tables(source) if table.key not in done]
        return _FIXED_SECONDS + sum(table.bytes + table.index_bytes for table in left) / pace

    def _pause(self, database: Database, source: Connection, target: Connection, result: MoveResult) -> None:
        self._say("The pause begins.")
        with self._step("close", result):
            store_move.close(source, lock_timeout=self._lock_timeout)
        self._closed = True
        failpoints.reach("move_closed")
        with self._streams(database, source, target) as streams:
            with self._step("copy", result):
                tables = self._copy_rest(streams, source, target)
            with self._step("files", result):
                if self._destination.data is not None:
                    self._copy_files(result, closed_only=False)
            self._say("Making indexes …")
            with self._step("index", result):
                self._index(streams, target, tables)
            failpoints.reach("move_indexed")
            self._say("Comparing every table …")
            with self._step("compare", result):
                result.rows = self._compare(streams, tables)
            with self._step("sequences", result):
                move_target.set_sequences(target, move_tables.sequences(source))
        result.tables = len(tables)
        failpoints.reach("move_compared")
        store_move.mark_moved(source)

    def _copy_rest(self, streams: "_Streams", source: Connection, target: Connection) -> Sequence[Table]:
        tables = move_tables.tables(source)
        names = {table.key for table in tables}
        done = move_target.copied(target)
        for gone in done.keys() - names:
            move_target.drop_partition(target, gone)
        left = [table for table in tables if table.key not in done]
        self._show("copying", sum(table.bytes for table in left))

        def fill(sides: _Sides, table: Table) -> None:
            self._fill(sides, table, in_chunks=False)
            failpoints.reach("move_copied")

        streams.each(fill, left)
        return tables

    def _fill(self, sides: _Sides, table: Table, *, in_chunks: bool) -> int:
        return move_target.fill(sides.source, sides.target, table, in_chunks=in_chunks, progress=self._count)

    def _index(self, streams: "_Streams", target: Connection, tables: Sequence[Table]) -> None:
        for stage in (1, 2):
            numbers = move_target.definitions(target, stage)
            self._show("making indexes" if stage == 1 else "checking references", len(numbers))

            def define(sides: _Sides, number: int) -> None:
                move_target.define(sides.target, number)
                self._count(0, 1)

            streams.each(define, numbers)
        streams.each(lambda sides, table: move_target.analyze(sides.target, [table]), tables)

    def _compare(self, streams: "_Streams", tables: Sequence[Table]) -> int:
        """Count and hash every table in both databases; the number of rows. A table that differs is copied once more.

        Rows of a partition that was copied ahead may have been deleted since.
        """
        self._show("comparing", sum(table.bytes for table in tables))
        different: list[Table] = []
        rows: list[int] = []

        def compare(sides: _Sides, table: Table) -> tuple[Fingerprint, Fingerprint]:
            there = streams.beside(lambda: move_tables.fingerprint(sides.target, table))
            found = move_tables.fingerprint(sides.source, table), there.result()
            self._count(found[0].rows, table.bytes)
            return found

        def look(sides: _Sides, table: Table) -> None:
            here, there = compare(sides, table)
            (rows.append(here.rows) if here == there else different.append(table))

        def mend(sides: _Sides, table: Table) -> None:
            self._fill(sides, table, in_chunks=False)
            here, there = compare(sides, table)
            if here != there:
                raise StoreError(
                    f"{table.key} is not the same in both databases ({here.rows:,} rows with the hash {here.hash} here, "
                    f"{there.rows:,} with {there.hash} there). The old store is whole; it is closed until the same command succeeds, or "
                    "`holdfast db move --abandon` opens it."
                )
            rows.append(here.rows)

        streams.each(look, tables)
        streams.each(mend, different)
        return sum(rows)

    def _copy_files(self, result: MoveResult, *, closed_only: bool) -> None:
        assert self._destination.data is not None  # noqa: S101 — the caller looked
        self._show("copying files", move_files.size(self._data).bytes)
        done = move_files.copy(
            self._data, self._destination.data, closed_only=closed_only, progress=lambda size: self._count(0, size)
        )
        result.files += done.files
        result.file_bytes += done.bytes

    # Helpers ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _streams(self, database: Database, source: Connection, target: Connection) -> Iterator["_Streams"]:
        with ExitStack() as stack:
            more = [
                _Sides(
                    stack.enter_context(move_tables.open_side(self._source, "old")),
                    stack.enter_context(move_tables.open_side(database, "new")),
                )
                for _ in range(STREAMS - 1)
            ]
            pool = stack.enter_context(ThreadPoolExecutor(2 * STREAMS, thread_name_prefix="move"))
            yield _Streams([_Sides(source, target), *more], pool)

    @contextmanager
    def _step(self, name: str, result: MoveResult) -> Iterator[None]:
        began = time.monotonic()
        yield
        result.steps[name] = round(time.monotonic() - began, 3)

    def _show(self, step: str, of_bytes: int) -> None:
        with self._lock:
            self._shown = Progress(step, 0, 0, of_bytes)
            self._progress(self._shown)

    def _count(self, rows: int, size: int) -> None:
        with self._lock:
            shown = self._shown
            self._shown = shown._replace(rows=shown.rows + rows, bytes=shown.bytes + size)
            self._progress(self._shown)


class _Streams:
    """Pairs of connections, each used by one thread at a time."""

    def __init__(self, sides: Sequence[_Sides], pool: ThreadPoolExecutor) -> None:
        self._sides = sides
        self._pool = pool
        self.beside = pool.submit

    def each(self, work: Callable[[_Sides, T], object], what: Iterable[T]) -> None:
        """Do the work for each, in order, as many at a time as there are pairs. The first failure ends all, and is raised."""
        queue = list(what)[::-1]
        lock = threading.Lock()

        def serve(sides: _Sides) -> None:
            while True:
                with lock:
                    if not queue:
                        return
                    item = queue.pop()
                try:
                    work(sides, item)
                except BaseException:
                    with lock:
                        queue.clear()
                    raise

        futures = [self._pool.submit(serve, sides) for sides in self._sides]
        try:
            problems = [problem for future in futures if (problem := future.exception()) is not None]
        except BaseException:  # Ctrl-C: what runs on the servers ends now, not with its table
            with lock:
                queue.clear()
            for side in (connection for sides in self._sides for connection in sides):
                side.cancel()
            raise
        if problems:
            raise problems[0]


def _check_apart(source: Connection, target: Connection) -> None:
    """Raise Refused if both are the same database."""
    if move_tables.place(source) == move_tables.place(target):
        raise Refused("That is the database that the store is in already; nothing was changed.")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def source_database(database: Database, upgraded: Callable[[], Database]) -> Database:
    """The database to move from, also if it was moved already: an attempt that was killed is finished. `upgraded` opens one with an older
    schema, or says what is wrong with it."""
    with database.session() as connection:
        if migrate.current(connection) == migrate.HEAD:
            return database
    return upgraded()
