"""The scheduler: puts due tasks into the frontier, follows up completed tasks that recur, starts recurring jobs, queues background work.

The rule: a tick is idempotent and may be run by any number of processes at once; the database lets one of them schedule at a time. The
transaction of a killed process is rolled back, and the next tick repeats it.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.db import audit, crawls, job_queue, jobs, parse_results, sweeper, task_frontier, tasks
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.db.task_frontier import TaskUrl
from holdfast.db.tasks import DueTask
from holdfast.errors import BadUrl
from holdfast.jobs.seed_import import restore_seeds
from holdfast.model.domain import Seed
from holdfast.model.schedule import next_run, parse
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import UrlRules
from holdfast.webhooks import queries as webhook_queries

ACTOR: Final = "schedule"
"""The actor of starts by a schedule, in the audit log."""
CHUNK: Final = 1_000
"""Tasks that one transaction queues."""


def has_anything_to_do(database: Database) -> bool:
    """Whether there is work for a background process, now or at a later time."""
    with database.session() as connection:
        return tasks.any_live(connection) or jobs.any_scheduled(connection) or webhook_queries.any_due(connection)


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
    """Queues what is due. It has the rules of URLs and domains, since redirects lead tasks to new ones."""

    rules: UrlRules
    defaults: NewDomains
    registrable: bool = False
    parse_lost_after: timedelta = timedelta(minutes=2)
    """How long a task may be parsing before its parse is repeated: longer than a parser may take."""

    def tick(self, connection: Connection) -> Ticked:
        """Queue everything that is due. Before: no transaction is open. After: it is queued, and its domains can be claimed."""
        spawned = queued = 0
        while new := len(tasks.spawn_due(connection, CHUNK)):
            spawned += new
        while due := self._queue(connection):
            queued += len(due)
            sweeper.fold_wakes_now(connection, *{one.domain_id for one in due})
        lost = parse_results.reclaim_parses(connection, older_than=self.parse_lost_after, limit=CHUNK)
        job_queue.defer_parse(connection, parse_results.parse_due(connection, CHUNK))
        if webhook_queries.any_due(connection):
            job_queue.defer_notify(connection)
        return Ticked(spawned, queued, len(lost), self._start_jobs(connection))

    def _start_jobs(self, connection: Connection) -> int:
        """Start recurring jobs that are due; returns how many. A job that still runs is not started again before its next time."""
        started = 0
        with jobs.alone(connection) as alone:
            for job in jobs.due(connection) if alone else ():
                if job.idle:
                    with connection.transaction():
                        jobs.begins(connection, job.job_id)
                        audit.write(
                            connection,
                            actor=ACTOR,
                            action="start",
                            kind="job",
                            object_id=job.job_id,
                            details={"schedule": job.schedule},
                        )
                    restore_seeds(
                        connection,
                        job.job_id,
                        rules=self.rules,
                        registrable=self.registrable,
                        defaults=self.defaults,
                    )
                    crawls.restart(connection, job.job_id)
                    started += 1
                following = next_run(parse(job.schedule), job.due, job.now)
                jobs.set_schedule(connection, job.job_id, job.schedule, following)
        return started

    def _queue(self, connection: Connection) -> list[TaskUrl]:
        with connection.transaction():
            due = tasks.due(connection, CHUNK)
            wanted = self._urls(connection, due)
            task_frontier.enqueue(connection, wanted)
        return wanted

    def _urls(self, connection: Connection, due: list[DueTask]) -> list[TaskUrl]:
        """Return the URLs to fetch for due tasks: their own, or those that redirects led to."""
        moved = task_frontier.redirected_tasks(connection, [task.id for task in due])
        seeds = [self._seed(target.url) for target, _ in moved.values()]
        domain_ids = (
            tasks.know_domains(connection, [seed for seed in seeds if seed is not None], self.defaults) if moved else {}
        )
        domains = {
            task_id: domain_ids[seed.domain] for task_id, seed in zip(moved, seeds, strict=True) if seed is not None
        }
        wanted = []
        for task in due:
            if task.id in moved:
                target, hops = moved[task.id]
                wanted.append(
                    TaskUrl(domains.get(task.id, task.domain_id), target.url_key, target.url, task.priority, hops)
                )
            else:
                wanted.append(TaskUrl(task.domain_id, task.url_key, task.url, task.priority))
        return wanted

    def _seed(self, url: str) -> Seed | None:
        """Return the seed of a URL; None: it cannot be fetched, and the task fails when a worker finds that out."""
        try:
            return make_seed(url, rules=self.rules, registrable=self.registrable)
        except BadUrl:
            return None
