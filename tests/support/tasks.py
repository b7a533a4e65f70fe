"""Short ways to put tasks into a test's database and move them about, by the product's own functions."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from holdfast.db import parse_results, task_frontier, tasks
from holdfast.db.domains import NewDomains
from holdfast.db.task_frontier import CrawlResult
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.seed_lines import make_seed
from holdfast.model.task import TaskStatus
from holdfast.tasks import queries as task_queries
from holdfast.tasks.queries import NewTask
from holdfast.tasks.records import Archived, Task, TaskOptions

PAGE = ArchiveRef("w1-1.warc.gz", 10, 200, b"d" * 32)
PLACE = Archived("w1-1.warc.gz", 10, 200, "64" * 32)
S = TaskStatus


@dataclass(frozen=True)
class Tasks:
    """Tasks of a test's database."""

    connection: psycopg.Connection

    def add(self, *urls: str, batch_id: int | None = None, **options: Any) -> list[int]:
        wanted = [NewTask(make_seed(url), TaskOptions(**options), batch_id) for url in urls]
        return [
            added.id for added in task_queries.add(self.connection, wanted, created_by="test", defaults=NewDomains())
        ]

    def one(self, url: str = "a.example/x", **how: Any) -> int:
        (task_id,) = self.add(url, **how)
        return task_id

    def get(self, task_id: int) -> Task:
        return tasks.get(self.connection, task_id)

    def status(self, task_id: int) -> TaskStatus:
        return self.get(task_id).status

    def due(self, limit: int = 100) -> list[int]:
        return [task.id for task in tasks.due(self.connection, limit)]

    def now(self, *task_ids: int) -> None:
        """Let the time of these come."""
        self.connection.execute(
            "UPDATE crawl_tasks SET scheduled_at = clock_timestamp() - interval '1 s', parse_after = clock_timestamp() - interval '1 s'"
            " WHERE id = ANY(%s)",
            (list(task_ids),),
        )

    def result(self, task_id: int, **what: Any) -> CrawlResult:
        return CrawlResult(task_id, self.get(task_id).attempt, **what)

    def fetched(self, task_id: int) -> None:
        assert task_frontier.record_results(self.connection, [self.result(task_id, archive=PAGE, http_status=200)]) == {
            task_id: S.QUEUED_PARSE
        }

    def parse(self, task_id: int) -> Task:
        taken = parse_results.take(self.connection, task_id)
        assert taken
        return taken.task

    def parsed(self, task_id: int) -> None:
        attempt = self.parse(task_id).attempt
        assert parse_results.complete_parse(self.connection, task_id, attempt, parser="generic", parser_version="1.0")

    def bring(self, task_id: int, status: TaskStatus) -> None:
        """Bring a task that is pending and due into a status, by the way that leads there."""
        if status is S.PENDING:
            return
        if status in {S.PAUSED, S.CANCELLED}:
            deed = task_queries.pause if status is S.PAUSED else task_queries.cancel
            assert deed(self.connection, task_id, actor="test")
            return
        assert task_id in self.due()
        if status is S.CRAWLING:
            assert task_frontier.begin_crawl(self.connection, [(task_id, self.get(task_id).attempt)], epoch=7) == [
                task_id
            ]
        elif status is S.FAILED:
            task_frontier.record_results(self.connection, [self.result(task_id, error="gone", permanent=True)])
        elif status is not S.QUEUED:
            self.fetched(task_id)
            if status is S.DOWNLOADED:  # it does not stay there by itself
                self.by_hand(task_id, S.PAUSED)
                self.by_hand(task_id, S.DOWNLOADED)
            elif status is S.PARSING:
                self.parse(task_id)
            elif status is S.COMPLETED:
                self.parsed(task_id)
        assert self.status(task_id) is status

    def by_hand(self, task_id: int, status: TaskStatus) -> None:
        self.connection.execute("UPDATE crawl_tasks SET status = %s WHERE id = %s", (status, task_id))

    def completed(self, url: str = "a.example/x", **how: Any) -> int:
        task_id = self.one(url, **how)
        self.bring(task_id, S.COMPLETED)
        return task_id

    def failed(self, url: str = "a.example/x", **how: Any) -> int:
        task_id = self.one(url, **how)
        self.bring(task_id, S.FAILED)
        return task_id

    def recur(self, *task_ids: int) -> None:
        """Let the next crawl of these be due."""
        self.connection.execute(
            "UPDATE crawl_tasks SET next_crawl_at = clock_timestamp() - interval '1 s' WHERE id = ANY(%s)",
            (list(task_ids),),
        )

    def spawn(self, limit: int = 100) -> list[int]:
        return tasks.spawn_due(self.connection, limit)

    def reasons(self, task_id: int) -> list[tuple[str, str, str]]:
        """All that happened to a task: from, to, why."""
        (mine,) = [row for row in task_queries.history(self.connection, task_id) if row.task.id == task_id]
        return [(event.from_status, event.to_status, event.why) for event in mine.events]

    def waits(self, task_id: int) -> timedelta:
        """How long until its time."""
        row = self.connection.execute(
            "SELECT CASE WHEN status = 'queued_parse' THEN parse_after ELSE scheduled_at END - clock_timestamp()"
            " FROM crawl_tasks WHERE id = %s",
            (task_id,),
        ).fetchone()
        assert row
        wait: timedelta = row[0]
        return wait

    def value(self, query: str, *parameters: object) -> Any:
        row = self.connection.execute(query, parameters).fetchone()
        assert row
        return row[0]
