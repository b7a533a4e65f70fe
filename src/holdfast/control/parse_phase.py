"""The parse phase: pages of tasks from the archive, through a parser, to results in the store; and once more, when a parser is better.

The rule: `crawl_tasks` is the truth. A parse belongs to the attempt under which it was taken; under any other it writes nothing. So
whoever is killed leaves nothing to repair, and two at once do no harm.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.archive import reader
from holdfast.control.parse_diff import Change, Found, Tally, differences
from holdfast.crawler.db_thread import DbThread
from holdfast.db import audit, domains, parse_results, tasks
from holdfast.db.connection import Connection, Database
from holdfast.db.parse_results import Result, ToParse
from holdfast.db.products import identity_key
from holdfast.errors import HoldfastError, NotFound, StoreError, StoreUnavailable, UsageError
from holdfast.model.domain_name import canonical_domain
from holdfast.model.parse_result import Document, ParseDone, ParseFailed, encode
from holdfast.model.task import TaskStatus
from holdfast.parse.plugin_pool import PluginPool
from holdfast.tasks.queries import KIND
from holdfast.tasks.records import Task

CHUNK: Final = 500
"""Tasks that are looked at by one statement."""
EXAMPLES: Final = 10
CHANGES: Final = 20
"""Of one page, that are shown."""
_AT_ONCE: Final = 4
_MAX_VERSION: Final = 100


def page_of(archive: Path, task: Task) -> Document:
    """A task's page. NotFound or ArchiveDamaged if the archive does not have it, which no other try will change."""
    if task.archive is None:
        raise NotFound(f"The page of task {task.id} is not in the archive: it was fetched without being kept.")
    stored = reader.read(archive, task.archive.ref)
    return Document(stored.url, stored.body, stored.headers.get("content-type"), stored.headers, stored.fetched_at)


# The phase ------------------------------------------------------------------------------------------------------------


class ParsePhase:
    """Parses tasks that wait to be parsed, any number at once. For one event loop; the runner is its own."""

    def __init__(self, database: Database, runner: PluginPool, archive: Path) -> None:
        self._desk = DbThread(database, "parse")
        self._runner = runner
        self._archive = archive

    async def parse_task(self, task_id: int) -> TaskStatus | None:
        """Parse one task; what it is then, or None if it was not to be parsed, or was taken away meanwhile.

        Before: nothing. After: it is completed and what was found is in the store, or it waits for another try, or it has failed.
        Only a page that the archive has lost is given up at once: a parser may be installed or mended meanwhile.
        Whoever is stopped in the middle leaves it parsing, and `reclaim_parses` takes it back.
        """
        taken = await self._desk.call(parse_results.take, task_id)
        if taken is None:
            return None
        try:
            document = await asyncio.to_thread(page_of, self._archive, taken.task)
        except HoldfastError as problem:
            return await self._failed(taken, str(problem), permanent=_is_here(self._archive, taken.task))
        except OSError as problem:
            return await self._failed(taken, f"The archive cannot be read: {problem.strerror}.")
        found = await self._runner.parse(taken.parser, document)
        if isinstance(found, ParseFailed):
            return await self._failed(taken, said(found))
        try:
            await self._desk.call(parse_results.finish, taken, found)
        except StoreError as problem:
            return await self._failed(taken, str(problem))
        # Asked in any case: the answer to a commit may have been lost, and then the second time says that it is another's.
        return await self._desk.call(_outcome, taken)

    async def _failed(self, taken: ToParse, error: str, *, permanent: bool = False) -> TaskStatus | None:
        task = taken.task
        return await self._desk.call(parse_results.fail_parse, task.id, task.attempt, error=error, permanent=permanent)

    async def aclose(self) -> None:
        """Before: nothing. After: no process and no connection of its own is left; calls that were under way raise."""
        self._desk.give_up()
        await self._runner.aclose()
        await asyncio.to_thread(self._desk.close)


def _is_here(archive: Path, task: Task) -> bool:
    """Whether what this archive does not have is nowhere. A worker of another machine has no folder here, and its pages are there."""
    return task.archive is None or (archive / task.archive.segment).parent.is_dir()


def said(failed: ParseFailed) -> str:
    """Why a parser gave nothing, in one line."""
    return f"The parser {failed.parser!r} gave nothing ({failed.kind.replace('_', ' ')}): {failed.reason}"


def _outcome(connection: Connection, taken: ToParse) -> TaskStatus | None:
    try:
        task = tasks.get(connection, taken.task.id)
    except NotFound:
        return None
    own = task.attempt == taken.task.attempt and task.status is TaskStatus.COMPLETED
    return TaskStatus.COMPLETED if own else None


# Once more ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """Which pages of completed tasks and of crawls are parsed again; None: all."""

    domain: str | None = None
    since: datetime | None = None
    """Fetched then or later; `until`: before then."""
    until: datetime | None = None
    parser: str | None = None
    """That parsed them the last time."""
    below: str | None = None
    """Parsed by a version before this one."""
    after: int = 0
    """Tasks with a higher id: where an earlier call ended."""
    limit: int | None = None
    job: str | None = None
    """Of crawls only: pages of this job."""
    by: str | None = None
    """Of crawls only: parse by this parser, whatever the pages are for."""

    @property
    def tasks(self) -> bool:
        """Whether pages of tasks are meant, too."""
        return self.job is None and self.by is None

    def check(self) -> None:
        """Raise UsageError for what cannot be meant. Needs no database."""
        if any(moment is not None and moment.tzinfo is None for moment in (self.since, self.until)):
            raise UsageError("A time is written with its time zone.")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError("Nothing was fetched since a time and before an earlier one.")
        if self.below is not None and not 0 < len(self.below) <= _MAX_VERSION:
            raise UsageError(f"A version is a text of 1 to {_MAX_VERSION} characters.")
        if self.domain is not None:
            canonical_domain(self.domain)

    def means(self, candidate: ToParse) -> bool:
        """Whether this one is wanted; its domain is looked at elsewhere."""
        task, at = candidate.task, candidate.fetched_at
        return (
            task.archive is not None
            and self.is_in_time(at)
            and (self.parser is None or task.parsed_by == self.parser)
            and self.is_below(task.parser_version)
        )

    def is_in_time(self, fetched_at: datetime) -> bool:
        """Whether a page that was fetched then is wanted."""
        return (self.since is None or fetched_at >= self.since) and (self.until is None or fetched_at < self.until)

    def is_below(self, version: str | None) -> bool:
        """Whether a page that this version parsed is wanted; None: no version did."""
        return self.below is None or version is None or _order(version) < _order(self.below)


@dataclass(frozen=True, slots=True)
class Example:
    """A page that is different now: the first of its changes, and how many there are."""

    task_id: int | None
    """None: a page of a crawl; likewise below."""
    url: str
    changes: tuple[Change, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A page that cannot be parsed now. What was found in it before stays."""

    task_id: int | None
    url: str
    reason: str


@dataclass(slots=True)
class Again:
    """How far parsing again is."""

    applied: bool
    """False: nothing is written, this is only what would differ."""
    parsed: int = 0
    """Pages, of which `same` say what they said, `different` something else, and `first` had no result before."""
    same: int = 0
    different: int = 0
    first: int = 0
    failed: int = 0
    taken: int = 0
    """Tasks that somebody restarted meanwhile, and that were left alone."""
    tally: Tally = field(default_factory=Tally)
    examples: list[Example] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    last_id: int = 0
    """All tasks up to this one are done: another call goes on behind it."""


Watch = Callable[[Again], None]


@dataclass(frozen=True, slots=True)
class Reparser:
    """Parses pages of completed tasks again, from the archive."""

    database: Database
    runner: PluginPool
    archive: Path
    actor: str
    """Who does it, for the audit log."""
    registrable: bool = False
    examples: int = EXAMPLES

    async def again(self, selection: Selection, *, apply: bool, watch: Watch = lambda _: None) -> Again:
        """Parse the selected pages again, by the parsers that they are for now; `watch` hears how far it is.

        Before: nothing. After: with `apply`, results are those of now wherever the parse was good, each in a transaction of its own
        that leaves a row in the audit log if something differs; all others, and without it all, are as they were. Stopped in the
        middle, it goes on behind `last_id`.
        """
        selection.check()
        so_far = Again(apply, last_id=selection.after)
        with self.database.session() as connection:
            domain_id = None
            if selection.domain is not None:
                name = canonical_domain(selection.domain, registrable=self.registrable)
                domain_id = domains.get(connection, name)["id"]
            left = selection.limit
            while left is None or left > 0:
                chunk = parse_results.completed(connection, after=so_far.last_id, limit=CHUNK, domain_id=domain_id)
                if not chunk:
                    break
                wanted = [candidate for candidate in chunk if selection.means(candidate)][:left]
                for start in range(0, len(wanted), _AT_ONCE):
                    group = wanted[start : start + _AT_ONCE]
                    await self._some(connection, group, so_far)
                    so_far.last_id = group[-1].task.id
                    watch(so_far)
                left = None if left is None else left - len(wanted)
                if left != 0:
                    so_far.last_id = chunk[-1].task.id
        return so_far

    async def _some(self, connection: Connection, group: list[ToParse], so_far: Again) -> None:
        found = await asyncio.gather(*map(self._parsed, group))
        for one, done in zip(group, found, strict=True):
            if isinstance(done, str):
                self._fail(one, done, so_far)
            else:
                self._compare(connection, one, done, so_far)

    async def _parsed(self, one: ToParse) -> ParseDone | str:
        """What is found, or why nothing."""
        try:
            document = await asyncio.to_thread(page_of, self.archive, one.task)
        except (HoldfastError, OSError) as problem:
            return str(problem)
        try:
            found = await self.runner.parse(one.parser, document)
        except OSError as problem:
            raise HoldfastError(f"No process for parsers could be started: {problem.strerror}.") from problem
        return said(found) if isinstance(found, ParseFailed) else found

    def _compare(self, connection: Connection, one: ToParse, done: ParseDone, so_far: Again) -> None:
        changes = _changes(parse_results.get(connection, one.task.id), done)
        if so_far.applied and not self._replaced(connection, one, done, so_far, changed=changes != []):
            return
        so_far.parsed += 1
        if changes is None:
            so_far.first += 1
        elif not changes:
            so_far.same += 1
        else:
            so_far.different += 1
            for change in changes:
                so_far.tally.count(change)
            if len(so_far.examples) < self.examples:
                shown = tuple(changes[:CHANGES])
                so_far.examples.append(Example(one.task.id, one.task.url, shown, len(changes)))

    def _replaced(self, connection: Connection, one: ToParse, done: ParseDone, so_far: Again, *, changed: bool) -> bool:
        try:
            with connection.transaction():
                own = parse_results.replace(connection, one, done)
                if own and changed:
                    self._record(connection, one, done)
        except StoreUnavailable:
            raise
        except StoreError as problem:
            self._fail(one, str(problem), so_far)
            return False
        so_far.taken += not own
        return own

    def _record(self, connection: Connection, one: ToParse, done: ParseDone) -> None:
        was = [one.task.parsed_by, one.task.parser_version]
        audit.write(
            connection,
            actor=self.actor,
            action="parse_again",
            kind=KIND,
            object_id=one.task.id,
            details={"was": was, "is": [done.parser, done.version]},
        )

    def _fail(self, one: ToParse, reason: str, so_far: Again) -> None:
        so_far.failed += 1
        if len(so_far.failures) < self.examples:
            so_far.failures.append(Failure(one.task.id, one.task.url, reason))


def _changes(old: Result | None, done: ParseDone) -> list[Change] | None:
    """What differs now; None: there was nothing before."""
    if old is None:
        return None
    new = json.loads(encode(done.extracted))
    keys = map(identity_key, done.extracted.products)
    was = Found(old.data, dict(zip(old.product_keys, old.products, strict=True)))
    return list(differences(was, Found(done.extracted.record, dict(zip(keys, new["products"], strict=True)))))


def _order(version: str) -> list[tuple[int | str, ...]]:
    """By which versions are in order: numbers as numbers, and a word behind them means that it came before (1.0rc1, 1.0, 1.0.1)."""
    parts = re.findall(r"[0-9]+|[^0-9.\-_+]+", version)
    return [*((2, int(part)) if part.isascii() and part.isdigit() else (0, part) for part in parts), (1,)]
