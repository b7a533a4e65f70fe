"""Tasks and batches: ask for them, list, show, restart, pause, resume, cancel, change the priority.

The rule: every change names its actor, and invalid usage is refused before the database is asked.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import BinaryIO, Final

from holdfast.db import audit, domains, tasks
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.db.keyset_pagination import Key, Page, check_page_size
from holdfast.errors import BadUrl, HoldfastError, UsageError
from holdfast.model.domain import Seed
from holdfast.model.domain_name import canonical_domain
from holdfast.model.seed_lines import SeedLineParser, make_seed
from holdfast.model.url import UrlRules, parse_url
from holdfast.tasks import explain, queries
from holdfast.tasks.queries import NewTask, RestartFilter
from holdfast.tasks.records import (
    AskedTask,
    BadTask,
    Batch,
    BatchFilter,
    Bulk,
    FailedTasks,
    RestartedTasks,
    Task,
    TaskCount,
    TaskCrawl,
    TaskFilter,
    TaskOptions,
    TaskRestart,
    TaskStory,
    check_priority,
    check_time,
)

BULK: Final = 1_000
"""Tasks that one transaction creates."""
BAD_KEPT: Final = 1_000
"""Invalid URLs of a bulk that are listed."""

MAX_LINE: Final = 64 * 1024
"""Bytes of a line in a file of URLs."""
_PACKED: Final = {
    b"\x1f\x8b": "gzip -dc",
    b"PK\x03\x04": "unzip -p",
    b"BZh": "bzip2 -dc",
    b"\xfd7zXZ": "xz -dc",
    b"\x28\xb5\x2f\xfd": "zstd -dc",
}
"""The first bytes of packed files, and the command that unpacks them."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class TaskService:
    """The tasks and batches of one database."""

    database: Database
    rules: UrlRules
    defaults: NewDomains
    registrable: bool = False

    # Create

    def add(self, url: str, options: TaskOptions, *, actor: str) -> AskedTask:
        """Ask for a task; returns the new one, or the live one that its URL had."""
        options.check()
        seed = self._seed(url)
        with self.database.session() as connection, connection.transaction():
            new = _new_task(connection, options)
            (added,) = queries.add(connection, [new(seed)], created_by=_actor(actor), defaults=self.defaults)
            if added.created:
                _audit_new(connection, actor, added.id, {"url": seed.url})
            return AskedTask.extend(tasks.get(connection, added.id), created=added.created)

    def add_many(self, urls: Iterable[str], options: TaskOptions, *, actor: str) -> Generator[Bulk]:
        """Ask for any number of tasks; yields the progress after each transaction, and the result at the end.

        An invalid URL is counted and the rest is created. After an interruption, what was yielded is stored; the same call adds what is
        missing.
        """
        return self._add((partial(self._seed, url) for url in urls), options, actor)

    def load(self, file: BinaryIO, options: TaskOptions, *, actor: str) -> Generator[Bulk]:
        """Ask for a task for each line of a file, written as in a seed file; `seen` counts lines. As `add_many` otherwise."""
        reader = SeedLineParser(self.rules, self.registrable)
        return self._add((partial(reader.read, line) for line in read_lines(file)), options, actor)

    def _add(self, seeds: Iterable[Callable[[], Seed | None]], options: TaskOptions, actor: str) -> Generator[Bulk]:
        """Create a task for each of `seeds`, which return a seed or nothing, or raise BadUrl."""
        options.check()
        bulk = Bulk(0, 0, 0, 0, [])
        with self.database.session() as connection:
            new = _new_task(connection, options)
            batch: list[NewTask] = []
            for seen, read in enumerate(seeds, 1):
                try:
                    if seed := read():
                        batch.append(new(seed))
                    bulk = replace(bulk, seen=seen)
                except BadUrl as problem:
                    bad = [BadTask(seen, str(problem))] if bulk.bad < BAD_KEPT else []
                    bulk = replace(bulk, seen=seen, bad=bulk.bad + 1, bad_urls=bulk.bad_urls + bad)
                if len(batch) == BULK:
                    bulk = self._create(connection, batch, bulk, actor)
                    batch = []
                    yield bulk
            if batch:
                bulk = self._create(connection, batch, bulk, actor)
            yield bulk

    def _create(self, connection: Connection, batch: Sequence[NewTask], bulk: Bulk, actor: str) -> Bulk:
        with connection.transaction():
            added = queries.add(connection, batch, created_by=_actor(actor), defaults=self.defaults)
            new = [task.id for task in added if task.created]
            if new:
                _audit_new(connection, actor, "*", {"tasks": len(new), "from_id": min(new), "to_id": max(new)})
        return replace(bulk, created=bulk.created + len(new), known=bulk.known + len(added) - len(new))

    # Read

    def page(
        self, where: TaskFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[Task]:
        """Return one page of tasks; `after` is the `next` of the page before. Raises UsageError, NotFound."""
        filters = (where or TaskFilter()).given()
        check_page_size(limit)
        with self.database.session() as connection:
            if "domain" in filters:
                filters["domain"] = domains.id_of(connection, self._canonical(str(filters["domain"])))
            if "batch" in filters:
                filters["batch"] = queries.batch_id(connection, str(filters["batch"]))
            return queries.page(connection, filters, order=order, after=after, limit=limit)

    def show(self, task_id: int) -> Task:
        """Return one task. Raises NotFound."""
        with self.database.session() as connection:
            return tasks.get(connection, task_id)

    def story(self, task_id: int) -> TaskStory:
        """Return one task with the reason of its state and what comes next. Raises NotFound."""
        with self.database.session() as connection:
            return explain.story(connection, tasks.get(connection, task_id), self._seed)

    def history(self, task_id: int, *, before: int | None = None, limit: int = 100) -> list[TaskCrawl]:
        """Return the last crawls of the task's URL, the newest first; `before` is the id of the last one seen. Raises NotFound."""
        with self.database.session() as connection:
            return queries.history(connection, task_id, before=before, limit=limit)

    def stats(self, span: timedelta = timedelta(days=1)) -> list[TaskCount]:
        """Return how many tasks are in each status, and how many ended in the last `span`."""
        with self.database.session() as connection:
            return queries.stats(connection, span=span)

    # Change one task; each returns the task afterwards

    def restart(
        self,
        task_id: int,
        *,
        actor: str,
        reset_retries: bool = True,
        priority: int | None = None,
        scheduled_at: datetime | None = None,
    ) -> TaskRestart:
        """Crawl a task again from the beginning. One that is pending already stays as it is."""
        if priority is not None:
            check_priority(priority)
        check_time(scheduled_at)
        restart = partial(queries.restart, reset_retries=reset_retries, priority=priority, scheduled_at=scheduled_at)
        return _restarted(*self._change(restart, task_id, actor), "Task restarted successfully")

    def restart_parsing(self, task_id: int, *, actor: str, reset_retries: bool = True) -> TaskRestart:
        """Parse a task's page again, from the archive. One that waits to be parsed stays as it is."""
        restart = partial(queries.restart_parsing, reset_retries=reset_retries)
        return _restarted(*self._change(restart, task_id, actor), "Parsing restarted successfully")

    def pause(self, task_id: int, *, actor: str) -> Task:
        """Pause a task."""
        return self._change(queries.pause, task_id, actor)[0]

    def resume(self, task_id: int, *, actor: str) -> Task:
        """Resume a paused task."""
        return self._change(queries.resume, task_id, actor)[0]

    def cancel(self, task_id: int, *, actor: str) -> Task:
        """Cancel a task, and the crawls that would follow it."""
        return self._change(queries.cancel, task_id, actor)[0]

    def set_priority(self, task_id: int, priority: int, *, actor: str) -> Task:
        """Set the priority of a task, from 1 (first) to 10."""
        check_priority(priority)
        return self._change(partial(queries.set_priority, priority=priority), task_id, actor)[0]

    def _change(self, operation: Callable[..., bool], task_id: int, actor: str) -> tuple[Task, bool]:
        """Return the task after an operation, and whether it changed anything."""
        with self.database.session() as connection, connection.transaction():
            changed = operation(connection, task_id, actor=_actor(actor))
            return tasks.get(connection, task_id), changed

    # Change many tasks; `on_progress` is called after each chunk with the number so far

    def restart_failed(
        self,
        *,
        actor: str,
        domain: str | None = None,
        domain_id: int | None = None,
        batch: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> RestartedTasks:
        """Restart failed tasks, at most `limit`."""
        if limit is not None and limit < 1:
            raise UsageError(f"A limit is 1 or more, not {limit}.")
        check_time(since)
        with self.database.session() as connection:
            if domain is not None:
                found_id = domains.id_of(connection, self._canonical(domain))
                if domain_id not in (None, found_id):
                    raise UsageError(f"{domain} is domain {found_id}, not {domain_id}: give one of them.")
                domain_id = found_id
            elif domain_id is not None:
                domains.check_id(connection, domain_id)
            where = RestartFilter(domain_id, _batch_id(connection, batch), since)
            return queries.restart_failed(connection, where, actor=_actor(actor), limit=limit, on_progress=on_progress)

    def count_failed(
        self, *, domain: str | None = None, batch: str | None = None, since: datetime | None = None
    ) -> FailedTasks:
        """Return how many tasks `restart_failed` would restart with these filters. Raises NotFound."""
        check_time(since)
        with self.database.session() as connection:
            domain_id = None if domain is None else domains.id_of(connection, self._canonical(domain))
            return queries.count_failed(connection, RestartFilter(domain_id, _batch_id(connection, batch), since))

    def restart_batch(
        self,
        name: str,
        *,
        actor: str,
        unchanged_since: datetime | None = None,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Restart every task of a batch that has ended or is paused, or those that have not changed since a time; returns how many."""
        _actor(actor)
        with self.database.session() as connection:
            batch_id = queries.batch_id(connection, name)
            return queries.restart_batch(
                connection, batch_id, actor=actor, unchanged_since=unchanged_since, on_progress=on_progress
            )

    # Batches

    def create_batch(self, name: str, *, actor: str) -> Batch:
        """Create a batch."""
        if not name.strip() or len(name) > 255 or _CONTROL.search(name):
            raise UsageError("A batch is called by 1 to 255 characters on one line.")
        with self.database.session() as connection, connection.transaction():
            queries.create_batch(connection, name, actor=_actor(actor))
            return queries.batch(connection, name)

    def batch(self, name: str) -> Batch:
        """Return one batch. Raises NotFound."""
        with self.database.session() as connection:
            return queries.batch(connection, name)

    def batches(
        self,
        where: BatchFilter | None = None,
        *,
        order: str = "newest",
        after: Key | None = None,
        limit: int = 100,
        count_all: bool = False,
    ) -> Page[Batch]:
        """Return one page of batches; `after` is the `next` of the page before. `count_all`: also of batches with very many tasks."""
        filters = (where or BatchFilter()).given()
        check_page_size(limit)
        with self.database.session() as connection:
            return queries.batches(connection, filters, order=order, after=after, limit=limit, count_all=count_all)

    def _seed(self, url: str) -> Seed:
        return make_seed(url, rules=self.rules, registrable=self.registrable)

    def _canonical(self, name: str) -> str:
        return canonical_domain(name, registrable=self.registrable)


def _new_task(connection: Connection, options: TaskOptions) -> Callable[[Seed], NewTask]:
    """Return a function that makes a new task of a seed. Raises NotFound if the batch does not exist."""
    batch_id = _batch_id(connection, options.batch)
    if options.webhook_url is not None:
        options = replace(options, webhook_url=parse_url(options.webhook_url).href)
    return lambda seed: NewTask(seed, options, batch_id)


def _batch_id(connection: Connection, name: str | None) -> int | None:
    return None if name is None else queries.batch_id(connection, name)


def _restarted(task: Task, restarted: bool, message: str) -> TaskRestart:
    if not restarted:
        message = f"Nothing was changed: the task is {task.status} already"
    return TaskRestart.extend(task, task_id=task.id, restarted=restarted, message=message)


def _audit_new(connection: Connection, actor: str, object_id: object, details: Mapping[str, object]) -> None:
    audit.write(connection, actor=actor, action="create", kind=queries.KIND, object_id=object_id, details=details)


def _actor(name: str) -> str:
    """Check the name of an actor. Raises UsageError."""
    if not name or len(name) > 100 or _CONTROL.search(name):
        raise UsageError("The name of an actor has 1 to 100 characters on one line.")
    return name


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file of any length, in little memory; one that is too long is cut, so it is invalid but harmless.

    Raises UsageError before the first line if the file is no text, and HoldfastError if it cannot be read any further.
    """
    number = 0
    try:
        while line := file.readline(MAX_LINE):
            if not number:
                _check_text(line)
            number += 1
            cut = line
            while len(cut) == MAX_LINE and not cut.endswith(b"\n"):
                cut = file.readline(MAX_LINE)
            yield line
    except OSError as problem:
        raise HoldfastError(
            f"Reading stopped after line {number}: {problem.strerror or problem}. The same command adds what is missing."
        ) from problem


def _check_text(head: bytes) -> None:
    for magic, unpack in _PACKED.items():
        if head.startswith(magic):
            raise UsageError(f"The file is packed; unpack it first: `{unpack} FILE | holdfast tasks add --file -`.")
    if b"\0" in head:
        raise UsageError("The file is not UTF-8 text; it takes a URL or a domain a line.")
