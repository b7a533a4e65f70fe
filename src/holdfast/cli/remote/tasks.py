"""Tasks of a server."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final

from holdfast.cli.remote import rows
from holdfast.cli.remote.seeds import Lines, Portion
from holdfast.client import Client
from holdfast.client.decoding import read
from holdfast.client.request_spec import format_path
from holdfast.client.values import TaskOptions
from holdfast.control.explain_text import Wait
from holdfast.errors import BadUrl, UsageError
from holdfast.model.task import Task, TaskStatus
from holdfast.model.url import url_key
from holdfast.tasks.explain import Next, Story
from holdfast.tasks.input_file import lines
from holdfast.tasks.queries.actions import RestartedTask
from holdfast.tasks.queries.tasks import Crawled, StatusCount
from holdfast.tasks.service import BAD_KEPT, Asked, Bulk, Wish

_DAY: Final = timedelta(days=1)
_RESTARTED_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class RemoteTasks:
    """As `tasks/service` has them. Who does it is whoever the key belongs to, not `actor`."""

    client: Client

    def add(self, url: str, wish: Wish, *, actor: str) -> Asked:  # noqa: ARG002 — see above; likewise below
        """Ask for a task. Before: the wish was checked, so that what is refused is the URL."""
        try:
            raw = self.client.request("POST", "/api/admin/tasks", body={"url": url, **_wish(wish)})
        except UsageError as problem:
            raise BadUrl(str(problem)) from problem
        return Asked(task_of(raw), raw["created"])

    def load(self, file: BinaryIO, wish: Wish, *, actor: str) -> Generator[Bulk]:  # noqa: ARG002
        """Ask for a task for each line of a file."""
        bulk = Bulk()
        found = Lines(lines(file))
        for portion in found.portions():
            bulk.seen = found.seen
            bad, found.bad = found.bad, []
            if portion:
                bad += self._put(portion, wish, bulk)
            bulk.bad += len(bad)
            bulk.bad_urls += sorted(bad)[: BAD_KEPT - len(bulk.bad_urls)]
            yield bulk

    def _put(self, portion: Portion, wish: Wish, bulk: Bulk) -> list[tuple[int, str]]:
        added = self.client.create_tasks([url for _, url in portion], **_wish(wish))
        bulk.created += added.created
        bulk.known += added.known
        return [(portion[one.place - 1][0], one.problem) for one in added.bad_urls]

    def listing(
        self,
        *,
        status: TaskStatus | None,
        domain: str | None,
        batch: str | None,
        priority: int | None,
        before: int | None,
        limit: int,
    ) -> list[Task]:
        """Tasks, the newest first."""
        query = {"status": status, "domain": domain, "batch": batch, "priority": priority}
        return [task_of(raw) for raw in rows.part(self.client, "/api/tasks", query, before, limit)]

    def story(self, task_id: int) -> Story:
        """One task: where it is, why, and what comes next."""
        raw = self._raw(task_id)
        parent = None if raw["parent_task_id"] is None else task_of(self._raw(raw["parent_task_id"]))
        return Story(
            now=datetime.now(UTC),
            task=task_of(raw),
            batch=raw["batch"],
            parent=parent,
            moved_to=raw["moved_to"],
            next=read(Next, raw["next"]),
            waits=[read(Wait, wait) for wait in raw["waits"]],
        )

    def history(self, task_id: int, *, limit: int) -> list[Crawled]:
        """The last crawls of the task's URL, the newest first."""
        found = rows.listed(self.client, format_path("/api/tasks/{}/history", task_id), {}, limit)
        return [read(Crawled, {**raw, "task": task_of(raw["task"])}) for raw in found]

    def stats(self, span: timedelta) -> dict[TaskStatus, StatusCount]:
        """How many tasks are in each status, and how it went in the last day."""
        if span != _DAY:
            raise UsageError("A server looks back for a day; leave --last away.")
        found = self.client.task_stats()
        return {TaskStatus(one.status): StatusCount(one.tasks, one.lately, one.mean_seconds) for one in found}

    def restart(
        self,
        task_id: int,
        *,
        actor: str,  # noqa: ARG002
        reset_retries: bool,
        priority: int | None,
        scheduled_at: datetime | None,
    ) -> Task:
        """Crawl a task again from the beginning; the task afterwards, here and below."""
        body = {"reset_retry_count": reset_retries, "priority": priority, "scheduled_at": scheduled_at}
        return self._changed(task_id, "restart", body)

    def restart_parsing(self, task_id: int, *, actor: str, reset_retries: bool) -> Task:  # noqa: ARG002
        """Parse a task's page again, from the archive."""
        return self._changed(task_id, "restart-parsing", {"reset_retry_count": reset_retries})

    def pause(self, task_id: int, *, actor: str) -> Task:  # noqa: ARG002
        """Let a task rest."""
        return self._changed(task_id, "pause")

    def resume(self, task_id: int, *, actor: str) -> Task:  # noqa: ARG002
        """Let a paused task go on."""
        return self._changed(task_id, "resume")

    def cancel(self, task_id: int, *, actor: str) -> Task:  # noqa: ARG002
        """Give a task up, and the crawls that would follow it."""
        return self._changed(task_id, "cancel")

    def set_priority(self, task_id: int, priority: int, *, actor: str) -> Task:  # noqa: ARG002
        """Let a task come sooner (1) or later (10)."""
        path = format_path("/api/admin/tasks/{}/priority", task_id)
        return task_of(self.client.request("PATCH", path, body={"priority": priority}))

    def restart_failed(
        self,
        *,
        actor: str,  # noqa: ARG002
        domain: str | None,
        batch: str | None,
        since: datetime | None,
        limit: int | None,
        progress: Callable[[int], None],
        tell: Callable[[Sequence[RestartedTask]], None],
    ) -> int:
        """Restart failed tasks, a thousand at once, until there are no more or it is enough; how many."""
        total = 0
        while limit is None or total < limit:
            most = _RESTARTED_AT_ONCE if limit is None else min(_RESTARTED_AT_ONCE, limit - total)
            done = self.client.restart_failed(domain=domain, batch=batch, failed_after=since, limit=most)
            total += done.restarted
            progress(total)
            tell([RestartedTask(task.id, task.url) for task in done.tasks])
            if done.restarted < most:
                break
        return total

    def _raw(self, task_id: int) -> rows.Row:
        found: rows.Row = self.client.request("GET", format_path("/api/tasks/{}", task_id))
        return found

    def _changed(self, task_id: int, deed: str, body: object = None) -> Task:
        return task_of(self.client.request("POST", format_path(f"/api/admin/tasks/{{}}/{deed}", task_id), body=body))


def task_of(raw: dict[str, Any]) -> Task:
    """The task that a server tells of. The epoch of its claim it may leave out."""
    archive = raw.get("archive")
    if archive is not None:
        archive = {**archive, "payload_digest": bytes.fromhex(archive["payload_digest"])}
    return read(
        Task, {"claim_epoch": None, "parse_after": None, **raw, "url_hash": url_key(raw["url"]), "archive": archive}
    )


def _wish(wish: Wish) -> TaskOptions:
    return {
        "priority": wish.priority,
        "scheduled_at": wish.scheduled_at,
        "crawl_frequency": wish.frequency,
        "is_recurring": wish.recurring,
        "max_retries": wish.max_retries,
        "parent_task_id": wish.parent_task_id,
        "batch": wish.batch,
        "webhook_url": wish.webhook_url,
        "parser_name": wish.parser,
    }
