"""Tasks, batches and products of a server."""

from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import BinaryIO, Final, TypeVar, cast

from holdfast.cli.remote import page_after
from holdfast.cli.remote.operations import finish
from holdfast.cli.remote.seeds import Lines, Portion
from holdfast.client import Client, endpoints
from holdfast.client.request_spec import ListSpec
from holdfast.db.keyset_pagination import Key, Page
from holdfast.errors import BadUrl, UsageError
from holdfast.images.records import Image, ImageDetails, ImageFilter
from holdfast.model.cursor import decode_cursor, encode_cursor
from holdfast.products.records import Price, Product, ProductFilter
from holdfast.tasks.records import (
    AskedTask,
    BadTask,
    Batch,
    Bulk,
    RestartedTasks,
    Task,
    TaskArguments,
    TaskCount,
    TaskCrawl,
    TaskFilter,
    TaskOptions,
    TaskRestart,
    TaskStory,
)
from holdfast.tasks.service import BAD_KEPT, read_lines

T = TypeVar("T")

_DAY: Final = timedelta(days=1)
_RESTART_CHUNK: Final = 1_000


@dataclass(frozen=True, slots=True)
class RemoteTasks:
    """The methods of `TaskService` that commands use. The actor is the owner of the API key, not `actor`."""

    client: Client

    def add(self, url: str, options: TaskOptions, *, actor: str) -> AskedTask:  # noqa: ARG002 — see above; likewise below
        """Ask for a task. Before: the options were checked, so that a refusal means the URL."""
        try:
            return self.client.create_task(url, **_arguments(options))
        except UsageError as problem:
            raise BadUrl(str(problem)) from problem

    def load(self, file: BinaryIO, options: TaskOptions, *, actor: str) -> Generator[Bulk]:  # noqa: ARG002
        """Ask for a task for each line of a file."""
        bulk = Bulk(0, 0, 0, 0, [])
        found = Lines(read_lines(file))
        for portion in found.portions():
            bad = [BadTask(line, problem) for line, problem in found.bad]
            found.bad = []
            added = self._create(portion, options)
            bad = sorted([*bad, *added.bad_urls], key=lambda one: one.place)
            bulk = Bulk(
                found.seen,
                bulk.created + added.created,
                bulk.known + added.known,
                bulk.bad + len(bad),
                bulk.bad_urls + bad[: BAD_KEPT - len(bulk.bad_urls)],
            )
            yield bulk

    def _create(self, portion: Portion, options: TaskOptions) -> Bulk:
        """Create the tasks of a portion; the places of invalid URLs are the numbers of their lines."""
        if not portion:
            return Bulk(0, 0, 0, 0, [])
        added = self.client.create_tasks([url for _, url in portion], **_arguments(options))
        bad = [BadTask(portion[one.place - 1][0], one.problem) for one in added.bad_urls]
        return replace(added, bad_urls=bad)

    def page(self, where: TaskFilter, *, after: Key | None, limit: int) -> Page[Task]:
        """Return one page of tasks, the newest first."""
        return self._page(endpoints.tasks(**asdict(where)), after, limit)

    def story(self, task_id: int) -> TaskStory:
        """Return one task with the reason of its state and what comes next."""
        return self.client.task(task_id)

    def history(self, task_id: int, *, limit: int) -> list[TaskCrawl]:
        """Return the last crawls of the task's URL, the newest first."""
        return list(islice(self.client.task_history(task_id), limit))

    def stats(self, span: timedelta) -> list[TaskCount]:
        """Return how many tasks are in each status, and how many ended in the last day."""
        if span != _DAY:
            raise UsageError("A server looks back for a day; leave --last out.")
        return self.client.task_stats()

    def restart(
        self,
        task_id: int,
        *,
        actor: str,  # noqa: ARG002
        reset_retries: bool,
        priority: int | None,
        scheduled_at: datetime | None,
    ) -> TaskRestart:
        """Crawl a task again from the beginning."""
        return self.client.restart_task(
            task_id, reset_retry_count=reset_retries, priority=priority, scheduled_at=scheduled_at
        )

    def restart_parsing(self, task_id: int, *, actor: str, reset_retries: bool) -> TaskRestart:  # noqa: ARG002
        """Parse a task's page again, from the archive."""
        return self.client.restart_parsing(task_id, reset_retry_count=reset_retries)

    def pause(self, task_id: int, *, actor: str) -> Task:  # noqa: ARG002
        """Pause a task."""
        return self.client.pause_task(task_id)

    def resume(self, task_id: int, *, actor: str) -> Task:  # noqa: ARG002
        """Resume a paused task."""
        return self.client.resume_task(task_id)

    def cancel(self, task_id: int, *, actor: str) -> Task:  # noqa: ARG002
        """Cancel a task, and the crawls that would follow it."""
        return self.client.cancel_task(task_id)

    def set_priority(self, task_id: int, priority: int, *, actor: str) -> Task:  # noqa: ARG002
        """Set the priority of a task, from 1 (first) to 10."""
        return self.client.set_priority(task_id, priority)

    def restart_failed(
        self,
        *,
        actor: str,  # noqa: ARG002
        domain: str | None,
        batch: str | None,
        since: datetime | None,
        limit: int | None,
        on_progress: Callable[[int], None],
    ) -> RestartedTasks:
        """Restart failed tasks in chunks, at most `limit`."""
        total = RestartedTasks(0, [])
        while limit is None or total.restarted < limit:
            chunk = _RESTART_CHUNK if limit is None else min(_RESTART_CHUNK, limit - total.restarted)
            done = self.client.restart_failed(domain=domain, batch=batch, failed_after=since, limit=chunk)
            total = RestartedTasks(total.restarted + done.restarted, (total.tasks + done.tasks)[:_RESTART_CHUNK])
            on_progress(total.restarted)
            if done.restarted < chunk:
                break
        return total

    def create_batch(self, name: str, *, actor: str) -> Batch:  # noqa: ARG002
        """Create a batch."""
        return self.client.create_batch(name)

    def batch(self, name: str) -> Batch:
        """Return one batch."""
        return self.client.batch(name)

    def batches(self, *, after: Key | None, limit: int, count_all: bool) -> Page[Batch]:
        """Return one page of batches, the newest first."""
        found = self._page(endpoints.batches(), after, limit)
        if not count_all:
            return found
        return Page([one if one.counted_all else self.batch(one.name) for one in found.rows], found.next)

    def restart_batch(self, name: str, *, actor: str, on_progress: Callable[[int], None]) -> int:  # noqa: ARG002
        """Restart every task of a batch that has ended or is paused; returns how many."""
        asked = self.client.restart_batch(name)
        result = finish(self.client, asked, lambda progress: on_progress(progress.get("tasks", 0)))
        return int(result.get("tasks", 0))

    def _page(self, spec: ListSpec[T], after: Key | None, limit: int) -> Page[T]:
        rows, cursor = self.client.ask(spec.page(None if after is None else encode_cursor(after), limit))
        return Page(rows, decode_cursor(cursor, int))


def _arguments(options: TaskOptions) -> TaskArguments:
    return cast("TaskArguments", asdict(options))


@dataclass(frozen=True, slots=True)
class RemoteImages:
    """The images of a server, like `ImageService`."""

    client: Client

    def page(self, where: ImageFilter, *, after: Key | None, limit: int) -> Page[Image]:
        """Return one page, those that were stored last first."""
        return page_after(self.client, endpoints.images(**asdict(where)), after, limit)

    def show(self, image_id: int) -> ImageDetails:
        """Return one image."""
        return self.client.image(image_id)


@dataclass(frozen=True, slots=True)
class RemoteProducts:
    """The products of a server, like `ProductService`."""

    client: Client

    def page(self, where: ProductFilter, *, after: Key | None, limit: int) -> Page[Product]:
        """Return one page, those that were first seen last first."""
        return page_after(self.client, endpoints.products(**asdict(where)), after, limit)

    def show(self, product_id: int) -> Product:
        """Return one product."""
        return self.client.product(product_id)

    def history(self, product_id: int, *, before: datetime | None, limit: int) -> list[Price]:
        """Return prices, the newest first."""
        after = None if before is None else (before,)
        return page_after(self.client, endpoints.prices(product_id), after, limit).rows
