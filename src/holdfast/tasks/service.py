"""What people do with tasks: ask for them, look at them, restart, pause, resume, cancel and hurry them, one by one or by batch.

The rule: everything that changes something says who did it (`actor`), and what cannot be meant is refused before the store is asked.
"""

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import BinaryIO, Final

from holdfast.db import audit, domains, tasks
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.errors import BadUrl, UsageError
from holdfast.model.domain import Seed
from holdfast.model.domain_name import canonical_domain
from holdfast.model.seed_lines import SeedLineParser, make_seed
from holdfast.model.task import (
    DEFAULT_PRIORITY,
    DEFAULT_RETRIES,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_FREQUENCY,
    MAX_RETRIES,
    MIN_FREQUENCY,
    NewTask,
    Task,
    TaskStatus,
)
from holdfast.model.url import UrlRules, parse_url
from holdfast.tasks import explain as task_story
from holdfast.tasks.input_file import lines
from holdfast.tasks.queries import actions as task_control
from holdfast.tasks.queries import tasks as task_reports

BULK: Final = 1_000
"""Tasks that go into the store in one transaction."""
PAGE: Final = 500
"""The most that a list gives at once."""
BAD_KEPT: Final = 1_000

_PARSER: Final = re.compile(r"[\w.-]{1,100}")
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MAX_WEBHOOK: Final = 2048
_LAST_ID: Final = 2**63 - 1
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FARTHEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wish:
    """How tasks that somebody asks for are to be."""

    priority: int = DEFAULT_PRIORITY
    scheduled_at: datetime | None = None
    """With its time zone; None: now."""
    frequency: timedelta | None = None
    """None: the domain's."""
    recurring: bool = True
    max_retries: int = DEFAULT_RETRIES
    parent_task_id: int | None = None
    batch: str | None = None
    """By name; it must exist."""
    webhook_url: str | None = None
    parser: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A task that was asked for; `created` is false if its URL had a live one, which then stays as it is."""

    task: Task
    created: bool


@dataclass(slots=True)
class Bulk:
    """How far a bulk of tasks is."""

    seen: int = 0
    created: int = 0
    known: int = 0
    """URLs that had a live task already."""
    bad: int = 0
    bad_urls: list[tuple[int, str]] = field(default_factory=list)
    """The first ones, each with its place (from 1) and what is wrong with it; `bad` counts them all."""


@dataclass(frozen=True, slots=True)
class TaskService:
    """Tasks of one store, as the command line, the API and the dashboard handle them."""

    database: Database
    rules: UrlRules
    defaults: NewDomains
    registrable: bool = False

    # Asking for tasks

    def add(self, url: str, wish: Wish, *, actor: str) -> Asked:
        """Ask for a task; the one that is new, or the live one that there was."""
        check(wish)
        seed = self._seed(url)
        with self.database.session() as connection, connection.transaction():
            new = _new_task(connection, wish)
            (added,) = tasks.add(connection, [new(seed)], created_by=_actor(actor), defaults=self.defaults)
            if added.created:
                _audit_new(connection, actor, added.id, {"url": seed.url})
            return Asked(tasks.get(connection, added.id), added.created)

    def add_many(self, urls: Iterable[str], wish: Wish, *, actor: str) -> Generator[Bulk]:
        """Ask for tasks, any number; yields how far it is after each transaction, the last time at the end.

        A bad URL is counted and the rest go in; what was answered before an interruption is in the store, and asking for the same
        again adds what is missing.
        """
        return self._bulk((partial(self._seed, url) for url in urls), wish, actor)

    def load(self, file: BinaryIO, wish: Wish, *, actor: str) -> Generator[Bulk]:
        """Ask for a task for each line of a file, written as in a seed file; `seen` counts lines. As `add_many` otherwise."""
        reader = SeedLineParser(self.rules, self.registrable)
        return self._bulk((partial(reader.read, line) for line in lines(file)), wish, actor)

    def _bulk(self, wanted: Iterable[Callable[[], Seed | None]], wish: Wish, actor: str) -> Generator[Bulk]:
        """Each of `wanted` gives a seed, nothing, or BadUrl."""
        check(wish)
        bulk = Bulk()
        with self.database.session() as connection:
            new = _new_task(connection, wish)
            batch: list[NewTask] = []
            for read in wanted:
                bulk.seen += 1
                try:
                    if seed := read():
                        batch.append(new(seed))
                except BadUrl as problem:
                    bulk.bad += 1
                    if len(bulk.bad_urls) < BAD_KEPT:
                        bulk.bad_urls.append((bulk.seen, str(problem)))
                if len(batch) == BULK:
                    self._put(connection, batch, bulk, actor)
                    batch = []
                    yield bulk
            if batch:
                self._put(connection, batch, bulk, actor)
            yield bulk

    def _put(self, connection: Connection, batch: Sequence[NewTask], bulk: Bulk, actor: str) -> None:
        with connection.transaction():
            added = tasks.add(connection, batch, created_by=_actor(actor), defaults=self.defaults)
            new = [task.id for task in added if task.created]
            if new:
                _audit_new(connection, actor, "*", {"tasks": len(new), "from_id": min(new), "to_id": max(new)})
        bulk.created += len(new)
        bulk.known += len(added) - len(new)

    # Looking

    def show(self, task_id: int) -> Task:
        """One task."""
        with self.database.session() as connection:
            return tasks.get(connection, task_id)

    def story(self, task_id: int) -> task_story.Story:
        """One task: where it is, why, and what comes next."""
        with self.database.session() as connection:
            return task_story.tell(connection, tasks.get(connection, task_id), self._seed)

    def history(self, task_id: int, *, before: int | None = None, limit: int = 100) -> list[task_reports.Crawled]:
        """The last crawls of the task's URL, the newest first, with all that happened to each; `before` is the id of the last one seen."""
        with self.database.session() as connection:
            return task_reports.history(connection, task_id, before=before, limit=limit)

    def listing(
        self,
        *,
        status: TaskStatus | None = None,
        domain: str | None = None,
        batch: str | None = None,
        parent: int | None = None,
        priority: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Task]:
        """Tasks, the newest first; `before` is the id of the last one seen."""
        _check_page(limit)
        with self.database.session() as connection:
            name = None if domain is None else self._canonical(domain)
            if name is not None:
                domains.id_of(connection, name)
            chosen = task_reports.TaskFilter(status, name, _batch(connection, batch), parent, priority)
            return task_reports.listing(connection, chosen, before=before, limit=limit)

    def stats(self, span: timedelta = timedelta(days=1)) -> dict[TaskStatus, task_reports.StatusCount]:
        """How many tasks are in each status, and how it went in the last `span`."""
        with self.database.session() as connection:
            return task_reports.stats(connection, span=span)

    # Changing one

    def restart(
        self,
        task_id: int,
        *,
        actor: str,
        reset_retries: bool = True,
        priority: int | None = None,
        scheduled_at: datetime | None = None,
        tell: Callable[[bool], None] = lambda _: None,
    ) -> Task:
        """Crawl a task again from the beginning; the task afterwards, here and below. `tell` hears whether anything was changed: one
        that is pending already stays as it is."""
        if priority is not None:
            _check_priority(priority)
        _check_time(scheduled_at)
        return self._change(
            task_id,
            lambda connection: task_control.restart(
                connection,
                task_id,
                actor=_actor(actor),
                reset_retries=reset_retries,
                priority=priority,
                scheduled_at=scheduled_at,
            ),
            tell,
        )

    def restart_parsing(
        self, task_id: int, *, actor: str, reset_retries: bool = True, tell: Callable[[bool], None] = lambda _: None
    ) -> Task:
        """Parse a task's page again, from the archive. `tell` as in `restart`."""
        return self._change(
            task_id,
            lambda connection: task_control.restart_parsing(
                connection, task_id, actor=_actor(actor), reset_retries=reset_retries
            ),
            tell,
        )

    def pause(self, task_id: int, *, actor: str) -> Task:
        """Let a task rest."""
        return self._change(task_id, lambda connection: task_control.pause(connection, task_id, actor=_actor(actor)))

    def resume(self, task_id: int, *, actor: str) -> Task:
        """Let a paused task go on."""
        return self._change(task_id, lambda connection: task_control.resume(connection, task_id, actor=_actor(actor)))

    def cancel(self, task_id: int, *, actor: str) -> Task:
        """Give a task up, and the crawls that would follow it."""
        return self._change(task_id, lambda connection: task_control.cancel(connection, task_id, actor=_actor(actor)))

    def set_priority(self, task_id: int, priority: int, *, actor: str) -> Task:
        """Let a task come sooner (1) or later (10)."""
        _check_priority(priority)
        return self._change(
            task_id,
            lambda connection: task_control.set_priority(connection, task_id, priority, actor=_actor(actor)),
        )

    def _change(
        self, task_id: int, deed: Callable[[Connection], bool], tell: Callable[[bool], None] = lambda _: None
    ) -> Task:
        with self.database.session() as connection, connection.transaction():
            tell(deed(connection))
            return tasks.get(connection, task_id)

    # Changing many

    def restart_failed(
        self,
        *,
        actor: str,
        domain: str | None = None,
        domain_id: int | None = None,
        batch: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] = lambda _: None,
        tell: Callable[[Sequence[task_control.RestartedTask]], None] = lambda _: None,
    ) -> int:
        """Restart failed tasks, at most `limit`; how many. `progress` hears after each chunk how many so far, `tell` which ones."""
        if limit is not None and limit < 1:
            raise UsageError(f"A limit is 1 or more, not {limit}.")
        _check_time(since)
        with self.database.session() as connection:
            if domain is not None:
                named = domains.id_of(connection, self._canonical(domain))
                if domain_id not in (None, named):
                    raise UsageError(f"{domain} is domain {named}, not {domain_id}: give one of them.")
                domain_id = named
            elif domain_id is not None:
                domains.check_id(connection, domain_id)
            chosen = task_control.FailedFilter(domain_id, _batch(connection, batch), since)
            return task_control.restart_failed(
                connection, chosen, actor=_actor(actor), limit=limit, progress=progress, tell=tell
            )

    def create_batch(self, name: str, *, actor: str) -> task_reports.Batch:
        """A new batch."""
        if not name.strip() or len(name) > 255 or _UNFIT.search(name):
            raise UsageError("A batch is called by 1 to 255 characters on one line.")
        with self.database.session() as connection, connection.transaction():
            task_reports.create_batch(connection, name, actor=_actor(actor))
            return task_reports.batch(connection, name)

    def batches(self, *, before: int | None = None, limit: int = 100) -> list[task_reports.Batch]:
        """Batches, the newest first."""
        _check_page(limit)
        with self.database.session() as connection:
            return task_reports.batches(connection, before=before, limit=limit)

    def batch(self, name: str) -> task_reports.Batch:
        """One batch."""
        with self.database.session() as connection:
            return task_reports.batch(connection, name)

    def restart_batch(
        self,
        name: str,
        *,
        actor: str,
        unchanged_since: datetime | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Restart every task of a batch that rests, or of those to which nothing has happened since a time; how many."""
        who = _actor(actor)
        with self.database.session() as connection:
            found = task_reports.batch(connection, name)
            return task_control.restart_batch(
                connection, found.id, actor=who, unchanged_since=unchanged_since, progress=progress
            )

    def _seed(self, url: str) -> Seed:
        return make_seed(url, rules=self.rules, registrable=self.registrable)

    def _canonical(self, name: str) -> str:
        return canonical_domain(name, registrable=self.registrable)


def check(wish: Wish) -> None:
    """Raise UsageError for a task that cannot be meant. Needs no database."""
    _check_priority(wish.priority)
    _check_time(wish.scheduled_at)
    if wish.frequency is not None and not MIN_FREQUENCY <= wish.frequency <= MAX_FREQUENCY:
        raise UsageError("A frequency is from one second to 36500 days.")
    if not 0 <= wish.max_retries <= MAX_RETRIES:
        raise UsageError(f"A task is tried again 0 to {MAX_RETRIES} times, not {wish.max_retries}.")
    if wish.parser is not None and not _PARSER.fullmatch(wish.parser):
        raise UsageError("A parser is one word of letters, digits, dots and dashes.")
    if wish.parent_task_id is not None and not 0 < wish.parent_task_id <= _LAST_ID:
        raise UsageError(f"{wish.parent_task_id} is not the id of a task.")
    if wish.webhook_url is not None:
        webhook = parse_url(wish.webhook_url)
        if len(webhook.href) > _MAX_WEBHOOK:
            raise UsageError(f"A webhook's URL is at most {_MAX_WEBHOOK} bytes long.")
        if webhook.has_credentials:
            raise UsageError("A webhook's URL must not contain a password: every user who can read tasks would see it.")


def _new_task(connection: Connection, wish: Wish) -> Callable[..., NewTask]:
    """Makes tasks of seeds, as wished; NotFound if the batch does not exist."""
    batch_id = _batch(connection, wish.batch)
    webhook = None if wish.webhook_url is None else parse_url(wish.webhook_url).href
    return lambda seed: NewTask(
        seed,
        priority=wish.priority,
        scheduled_at=wish.scheduled_at,
        frequency=wish.frequency,
        recurring=wish.recurring,
        max_retries=wish.max_retries,
        parent_task_id=wish.parent_task_id,
        batch_id=batch_id,
        webhook_url=webhook,
        parser=wish.parser,
    )


def _batch(connection: Connection, name: str | None) -> int | None:
    return None if name is None else task_reports.batch(connection, name).id


def _audit_new(connection: Connection, actor: str, object_id: object, details: dict[str, object]) -> None:
    audit.write(
        connection,
        actor=_actor(actor),
        action="create",
        kind=task_control.KIND,
        object_id=object_id,
        details=details,
    )


def _actor(name: str) -> str:
    """Who is said to have done it; a name that cannot be one is refused."""
    if not name or len(name) > 100 or _UNFIT.search(name):
        raise UsageError("Who does it is named by 1 to 100 characters on one line.")
    return name


def _check_priority(priority: int) -> None:
    if not HIGHEST_PRIORITY <= priority <= LOWEST_PRIORITY:
        raise UsageError(f"A priority is from {HIGHEST_PRIORITY} (first) to {LOWEST_PRIORITY}, not {priority}.")


def _check_time(moment: datetime | None) -> None:
    if moment is not None and (moment.tzinfo is None or not _EARLIEST <= moment < _FARTHEST):
        raise UsageError("A time is written with its time zone, and lies after 1970 and before the year 9999.")


def _check_page(limit: int) -> None:
    if not 1 <= limit <= PAGE:
        raise UsageError(f"A list gives 1 to {PAGE} at once, not {limit}.")
