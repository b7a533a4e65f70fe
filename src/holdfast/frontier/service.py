"""The frontier, as people feed it, look at it, set it right and clear it.

The rule: nobody is in a state "in progress" that could be left behind. A URL waits until what came of it is committed; a worker that dies
leaves claims, and those end by themselves.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.db import audit, domains, jobs, sweeper
from holdfast.db.connection import Connection, Database
from holdfast.errors import Refused, UsageError
from holdfast.frontier.queries import clear as frontier_clear
from holdfast.frontier.queries import lists as frontier_lists
from holdfast.frontier.queries.clear import Cleared, Meant
from holdfast.frontier.queries.lists import FrontierStats
from holdfast.jobs.seed_import import ImportProgress, SeedImporter
from holdfast.model.job import JobState

PRIORITIES: Final = {"high": 3, "medium": 2, "low": 1}
"""Of URLs; seeds have the first."""
MOST: Final = 10_000
"""URLs that are added at once."""
KIND: Final = "frontier"
_ENDED: Final = frozenset({JobState.CANCELLED, JobState.FAILED})


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was set right."""

    claims: int
    """Freed, since their leases had ended or their workers were dead."""
    domains: int
    """Whose news were counted."""
    cooled: int
    """Domains whose cool-down had ended."""
    delayed: int
    """Domains whose time to go on had come."""
    runs: int
    """Given up, since they were not heard of."""
    jobs: int
    """Pieces of work on jobs, such as to end one."""
    faults: list[str]
    """What could not be done."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """What came of clearing the frontier."""

    cleared: Cleared
    ended_jobs: list[int] = field(default_factory=list)
    """Jobs that had nothing left to do, by id."""


@dataclass(frozen=True, slots=True)
class FrontierService:
    """The frontier of one store."""

    database: Database
    sower: SeedImporter
    run_silence: timedelta = timedelta(minutes=30)
    """Runs that were not heard of for so long are given up when somebody has the frontier set right."""
    rest: timedelta | None = None
    """After which the pages of a domain are looked at again that has nothing else to do, since its frontier was cleared; None: after as
    long as the domain says itself."""

    def stats(self, job: str | int | None = None) -> FrontierStats:
        """The frontier of all jobs, or of one, in figures."""
        with self.database.session() as connection:
            return frontier_lists.stats(connection, None if job is None else _job(connection, job))

    def seed(self, urls: list[str], job: str | int | None = None, *, actor: str) -> ImportProgress:
        """URLs or domains as seeds of a job (None: the standing one), before all others; bad ones are counted, and the rest go in."""
        return self._add("seed", urls, job, PRIORITIES["high"], actor)

    def add(
        self, urls: list[str], job: str | int | None = None, *, actor: str, priority: str = "medium"
    ) -> ImportProgress:
        """URLs into the frontier of a job (None: the standing one). What is there already stays as it is."""
        if priority not in PRIORITIES:
            raise UsageError(f"The priority of a URL is {', '.join(PRIORITIES)}, not {priority!r}.")
        return self._add("add", urls, job, PRIORITIES[priority], actor)

    def _add(self, action: str, urls: list[str], job: str | int | None, priority: int, actor: str) -> ImportProgress:
        if not 1 <= len(urls) <= MOST:
            raise UsageError(f"1 to {MOST} URLs are added at once, not {len(urls)}.")
        with self.database.session() as connection:
            job_id = _job(connection, jobs.DEFAULT if job is None else job)
            state = jobs.state(connection, job_id)
            if job_id == jobs.find(connection, jobs.TASKS):
                raise Refused("The frontier of that job are tasks: add a task instead.")
            if state in _ENDED:
                raise Refused(f"Job {job} is {state}: no worker would crawl what is added to it. Start it again first.")
        sower = replace(self.sower, job=job_id, source="API", priority=priority)

        def note(connection: Connection, loaded: ImportProgress) -> None:
            details = {"seeds": loaded.seeds, "urls": loaded.urls, "domains": loaded.domains, "priority": priority}
            audit.write(connection, actor=actor, action=action, kind=KIND, object_id=job_id, details=details)

        return sower.add(urls, note=note)

    def recover(self, *, actor: str) -> Recovered:
        """Do now what the next sweep would do: free the claims that expired and those of dead workers, fold news, end what is over;
        what was done.

        There are no URLs "in progress" to be recovered, as other crawlers have them: what a dead worker had in memory still waits, and
        its domains are free two minutes after its last heartbeat.
        """
        with self.database.session() as connection:
            freed = sweeper.release_expired(connection, actor=actor)
            swept = sweeper.sweep(connection, run_silence=self.run_silence)
            done = Recovered(
                freed + swept.expired + swept.abandoned,
                swept.woken,
                swept.cooled,
                swept.delayed,
                swept.runs,
                swept.jobs,
                swept.faults,
            )
            details = {name: count for name, count in asdict(done).items() if isinstance(count, int)}
            if any(details.values()):
                with connection.transaction():
                    audit.write(connection, actor=actor, action="recover", kind=KIND, object_id="*", details=details)
        return done

    def check_clear(
        self, job: str | int | None = None, domain: str | None = None, *, everything: bool = False
    ) -> dict[str, Any]:
        """What `clear` is to be given, in words that JSON has: a job by its id, a domain by its name. Raises NotFound, UsageError."""
        if job is None and domain is None and not everything:
            raise UsageError("Name a job or a domain; `?confirm=all` takes out all URLs that wait, of all jobs.")
        with self.database.session() as connection:
            job_id = None if job is None else _job(connection, job)
            _meant(connection, job_id)
            name = None if domain is None else self.sower.canonical(domain)
            if name is not None:
                domains.id_of(connection, name)
        return {"job": job_id, "domain": name}

    def clear(
        self,
        *,
        actor: str,
        job: str | int | None = None,
        domain: str | None = None,
        asked_at: datetime | None = None,
        again: bool = False,
        watch: Callable[[Cleared], None] = lambda _: None,
    ) -> Clearing:
        """Take the URLs out that wait: of a job, of a domain, of both, or all of them. What is done stays.

        What was added after `asked_at` stays as well. Links that a crawl has found since go, but not if this is done `again` because
        whoever did it died: nobody could tell them from links of what was added meanwhile.
        Workers lose the domains of which something goes, and with them what they have in memory. A job without anything left to do is
        completed. `watch` hears after each step how far it is; killed in between, the rest waits as before, and another call does it.
        """
        total = Cleared()
        with self.database.session() as connection:
            job_id = None if job is None else _job(connection, job)
            meant = Meant(_meant(connection, job_id), asked_at, links=not again, rest=self.rest)
            domain_id = None if domain is None else domains.id_of(connection, self.sower.canonical(domain))
            said: dict[str, object] = {"job": job_id, "domain": domain}
            after = 0
            while ids := frontier_clear.places(connection, meant.job_ids, domain_id, after=after):
                more = True
                while more:  # not until nothing comes any more: others may go on finding links
                    step = self._step(connection, ids, meant, actor, said, total)
                    more = step.urls >= frontier_clear.ROWS
                    total += step
                    watch(total)
                after = ids[-1]
            touched = {*total.jobs, *([] if job_id is None else [job_id])}
            ended = [one for one in sorted(touched) if frontier_clear.end_if_nothing_is_left(connection, one)]
        return Clearing(total, ended)

    def _step(
        self,
        connection: Connection,
        ids: list[int],
        meant: Meant,
        actor: str,
        said: dict[str, object],
        before: Cleared,
    ) -> Cleared:
        with connection.transaction():
            step = frontier_clear.clear(connection, ids, meant)
            if step.urls and not before.urls:
                audit.write(
                    connection, actor=actor, action="clear", kind=KIND, object_id=said["job"] or "*", details=said
                )
        return step


def _meant(connection: Connection, job_id: int | None) -> list[int]:
    meant = frontier_clear.jobs_meant(connection, job_id)
    if not meant:
        raise Refused("The frontier of that job are tasks: cancel or pause those instead.")
    return meant


def _job(connection: Connection, named: str | int) -> int:
    if isinstance(named, int):
        jobs.state(connection, named)  # raises NotFound
        return named
    return jobs.find(connection, named)
