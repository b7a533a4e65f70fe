"""What is due: tasks go into the frontier, completed ones that recur get their next row, recurring jobs begin again, bells are rung.

The rule: a tick is idempotent and may be run by any number of processes at once; the store lets one of them schedule at a time. What a
killed one began is rolled back, and the next tick does it.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.db import crawls, job_queue, jobs, sweeper, task_frontier, task_schedule, tasks
from holdfast.db import task_results as task_work
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.db.task_frontier import TaskUrl
from holdfast.db.task_schedule import DueTask
from holdfast.errors import BadUrl
from holdfast.jobs.seed_import import restore_seeds
from holdfast.model.domain import Seed
from holdfast.model.schedule import next_run, parse
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import UrlRules
from holdfast.webhooks import queries

CHUNK: Final = 1_000
"""Tasks that one transaction queues."""


def has_anything_to_do(database: Database) -> bool:
    """Whether a background would find something to do, now or when its time comes."""
    with database.session() as connection:
        return tasks.any_live(connection) or jobs.any_scheduled(connection) or queries.any_due(connection)


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a tick did."""

    spawned: int = 0
    queued: int = 0
    reclaimed: int = 0
    """Tasks whose parser was lost."""
    begun: int = 0
    """Recurring jobs."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Queues what is due. It needs to know what makes a URL and a domain, since redirects lead tasks to new ones."""

    rules: UrlRules
    defaults: NewDomains
    registrable: bool = False
    parse_lost_after: timedelta = timedelta(minutes=2)
    """A task that has been parsing for so long is another's to parse: longer than a parser may take."""

    def tick(self, connection: Connection) -> Ticked:
        """Do all that is due now. Before: no transaction is open. After: it is queued, and its domains can be claimed."""
        spawned = queued = 0
        while new := len(task_schedule.spawn_due(connection, CHUNK)):
            spawned += new
        while due := self._queue(connection):
            queued += len(due)
            sweeper.fold_wakes_now(connection, *{one.domain_id for one in due})
        lost = task_work.reclaim_parses(connection, older_than=self.parse_lost_after, limit=CHUNK)
        job_queue.defer_parse(connection, task_work.parse_due(connection, CHUNK))
        if queries.any_due(connection):
            job_queue.defer_notify(connection)
        return Ticked(spawned, queued, len(lost), self._begin_jobs(connection))

    def _begin_jobs(self, connection: Connection) -> int:
        """A job that is still under way is not begun again: its next time is the next one on its schedule."""
        begun = 0
        with jobs.alone(connection) as alone:
            for job in jobs.due(connection) if alone else ():
                if job.idle:
                    jobs.begins(connection, job.job_id)
                    restore_seeds(
                        connection,
                        job.job_id,
                        rules=self.rules,
                        registrable=self.registrable,
                        defaults=self.defaults,
                    )
                    crawls.restart(connection, job.job_id)
                    begun += 1
                following = next_run(parse(job.schedule), job.due, job.now)
                jobs.set_schedule(connection, job.job_id, job.schedule, following)
        return begun

    def _queue(self, connection: Connection) -> list[TaskUrl]:
        with connection.transaction():
            due = task_schedule.due(connection, CHUNK)
            wanted = self._where_they_are(connection, due)
            task_frontier.enqueue(connection, wanted)
        return wanted

    def _where_they_are(self, connection: Connection, due: list[DueTask]) -> list[TaskUrl]:
        moved = task_frontier.redirected_tasks(connection, [task.id for task in due])
        seeds = [self._seed(place.url) for place, _ in moved.values()]
        homes = (
            tasks.know_domains(connection, [seed for seed in seeds if seed is not None], self.defaults) if moved else {}
        )
        domains = {task_id: homes[seed.domain] for task_id, seed in zip(moved, seeds, strict=True) if seed is not None}
        wanted = []
        for task in due:
            if task.id in moved:
                place, hops = moved[task.id]
                wanted.append(
                    TaskUrl(domains.get(task.id, task.domain_id), place.url_key, place.url, task.priority, hops)
                )
            else:
                wanted.append(TaskUrl(task.domain_id, task.url_key, task.url, task.priority))
        return wanted

    def _seed(self, url: str) -> Seed | None:
        """None: nobody can be asked there. The engine says so again, and the task fails by it."""
        try:
            return make_seed(url, rules=self.rules, registrable=self.registrable)
        except BadUrl:
            return None
