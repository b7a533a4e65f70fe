"""The frontier: list, statistics, add, retry, recover, clear.

The rule: no URL has a state "in progress" that could be left behind. A URL waits until its outcome is committed; a worker that dies
leaves claims, which expire.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from holdfast.control.listings import resolve_names
from holdfast.db import audit, domains, jobs, sweeper
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import Key, Page, check_page_size
from holdfast.errors import BadUrl, Refused, UsageError
from holdfast.frontier import queries
from holdfast.frontier.queries import Cleared, ClearScope
from holdfast.frontier.records import (
    AddedUrls,
    FrontierStats,
    FrontierUrl,
    Recovered,
    RejectedUrl,
    Retried,
    UrlFilter,
)
from holdfast.frontier.retries import ENDED_JOBS, RetrySelection, retried_codes
from holdfast.jobs.queries import retries as retry_queries
from holdfast.jobs.seed_import import ImportProgress, SeedImporter
from holdfast.model.job import JobState
from holdfast.model.outcome import UrlState
from holdfast.model.seed_lines import make_seed
from holdfast.model.url_reason import check_code, state_of

PRIORITIES: Final = {"high": 3, "medium": 2, "low": 1}
"""Priorities of URLs; seeds have `high`."""
MAX_URLS: Final = 10_000
"""URLs that are added at once."""
MAX_RETRIED_URLS: Final = 1_000
"""URLs that are named for one retry."""
RETRIED_AT_ONCE: Final = 10_000
"""A retry of more URLs may be finished after its answer."""
KIND: Final = "frontier"
_ENDED: Final = frozenset({JobState.CANCELLED, JobState.FAILED})


@dataclass(frozen=True, slots=True)
class Clearing:
    """The result of clearing the frontier."""

    cleared: Cleared
    ended_jobs: list[int] = field(default_factory=list)
    """Jobs that were completed because they had nothing left to do, by id."""


@dataclass(frozen=True, slots=True)
class FrontierService:
    """The frontier of one database."""

    database: Database
    importer: SeedImporter
    run_silence: timedelta = timedelta(minutes=30)
    """`recover` gives up runs without a heartbeat for this long."""
    rest: timedelta | None = None
    """How long a domain that has nothing left to do after clearing rests until its pages are refreshed; None: as its own setting says."""

    def page(
        self, where: UrlFilter | None = None, *, order: str = "key", after: Key | None = None, limit: int = 100
    ) -> Page[FrontierUrl]:
        """Return one page of the list; the order `taken`, that of a visit, needs a domain, a job and the state waiting.

        `after` is the `next` of the page before. Raises UsageError, NotFound.
        """
        check_page_size(limit)
        queries.URLS.order(order).check(after)
        filters = {} if where is None else _with_state(where).given()
        with self.database.session() as connection:
            ids = resolve_names(connection, filters, registrable=self.importer.registrable)
            return queries.page(connection, ids, order=order, after=after, limit=limit)

    def stats(self, job: str | int | None = None) -> FrontierStats:
        """Return statistics of the frontier of all jobs, or of one. Raises NotFound."""
        with self.database.session() as connection:
            return queries.stats(connection, None if job is None else jobs.id_of(connection, job))

    def seed(self, urls: list[str], job: str | int | None = None, *, actor: str) -> AddedUrls:
        """Add URLs or domains as seeds of a job (None: the job `default`), with high priority. Invalid ones are counted and left out."""
        return self._add("seed", urls, job, PRIORITIES["high"], actor)

    def add(self, urls: list[str], job: str | int | None = None, *, actor: str, priority: str = "medium") -> AddedUrls:
        """Add URLs to the frontier of a job (None: the job `default`). Known URLs stay as they are."""
        if priority not in PRIORITIES:
            raise UsageError(f"The priority of a URL is {', '.join(PRIORITIES)}, not {priority!r}.")
        return self._add("add", urls, job, PRIORITIES[priority], actor)

    def _add(self, action: str, urls: list[str], job: str | int | None, priority: int, actor: str) -> AddedUrls:
        if not 1 <= len(urls) <= MAX_URLS:
            raise UsageError(f"1 to {MAX_URLS} URLs are added at once, not {len(urls)}.")
        with self.database.session() as connection:
            job_id = jobs.id_of(connection, jobs.DEFAULT if job is None else job)
            state = jobs.state(connection, job_id)
            if job_id == jobs.find(connection, jobs.TASKS):
                raise Refused("The frontier of that job are tasks: add a task instead.")
            if state in _ENDED:
                raise Refused(f"Job {job} is {state}: no worker would crawl what is added to it. Start it again first.")
        importer = replace(self.importer, job=job_id, source="API", priority=priority)

        def note(connection: Connection, loaded: ImportProgress) -> None:
            details = {"seeds": loaded.seeds, "urls": loaded.urls, "domains": loaded.domains, "priority": priority}
            audit.write(connection, actor=actor, action=action, kind=KIND, object_id=job_id, details=details)

        loaded = importer.add(urls, note=note)
        rejected = [RejectedUrl(bad.line, bad.problem) for bad in loaded.bad_lines]
        return AddedUrls(loaded.lines, loaded.urls, loaded.domains, loaded.bad, rejected)

    def count_retry(
        self,
        job: str | int,
        *,
        urls: Sequence[str] = (),
        reason: str | None = None,
        state: UrlState | None = None,
        domain: str | None = None,
        within: timedelta | None = None,
    ) -> Retried:
        """Count what `retry` would take: exactly up to 100 000 URLs, or by an estimate if that takes longer than `within`. Nothing is
        changed. Raises as `retry` does."""
        with self.database.session() as connection:
            with connection.transaction():
                selected = self._select(connection, job, urls, reason, state, domain, within)
            return selected.answer(connection, dry_run=True)

    def retry(
        self,
        job: str | int,
        *,
        actor: str,
        urls: Sequence[str] = (),
        reason: str | None = None,
        state: UrlState | None = None,
        domain: str | None = None,
        within: timedelta | None = None,
        later: Callable[[Callable[[], object]], None] | None = None,
        watch: Callable[[int], None] = lambda _: None,
    ) -> Retried:
        """Retry URLs of a job that were not crawled: these `urls`, or all of a reason, a state, a domain. Without any of them: all that
        failed and can be retried.

        After: they wait with attempts 0, or will in a moment where a worker holds their domain; failed robots.txt files are due again and
        unreachable domains are pending; delays, a pause that a server asked for, and blocks stay. A completed or failed job is reopened.
        Raises NotFound, UsageError; Refused for a cancelled job, and for a reason that is not retried, with what to do instead. `later` is
        called with the rest of the work if there are more than 10 000 URLs, or may be, as counting took longer than `within`; None: this
        call does it. `watch` is called after each chunk with the number of domains so far; if it is killed in between, the rest stays as
        it was, and another call retries it.
        """
        with self.database.session() as connection:
            with connection.transaction():
                selected = self._select(connection, job, urls, reason, state, domain, within)
                if selected.found.urls or selected.found.estimated:
                    details = {"urls": selected.found.urls, "reason": reason, "state": state, "domain": domain}
                    audit.write(
                        connection, actor=actor, action="retry", kind="job", object_id=selected.job.id, details=details
                    )
            ended = jobs.state(connection, selected.job.id) in ENDED_JOBS
            if later is not None and (selected.found.urls > RETRIED_AT_ONCE or selected.found.estimated):
                later(partial(self._retry_selected, selected, watch))
                answer = selected.answer(connection, dry_run=False)
                return replace(answer, reopened=ended, finished=False)
        reopened = self._retry_selected(selected, watch)
        with self.database.session() as connection:
            return replace(selected.answer(connection, dry_run=False), reopened=reopened)

    def _retry_selected(self, selected: RetrySelection, watch: Callable[[int], None]) -> bool:
        """Retry the URLs of a selection, a chunk of domains at a time; returns whether the job was reopened."""
        reopened, after, domains_done = False, 0, 0
        with self.database.session() as connection:
            while ids := selected.domains_after(connection, after):
                reopened |= selected.retry_on(connection, ids)
                after, domains_done = ids[-1], domains_done + len(ids)
                watch(domains_done)
        return reopened

    def _select(
        self,
        connection: Connection,
        job: str | int,
        urls: Sequence[str],
        reason: str | None,
        state: UrlState | None,
        domain: str | None,
        within: timedelta | None,
    ) -> RetrySelection:
        if urls and (reason or state or domain):
            raise UsageError("Name URLs, or a reason, state or domain: not both.")
        if len(urls) > MAX_RETRIED_URLS:
            raise UsageError(
                f"1 to {MAX_RETRIED_URLS:,} URLs are retried at once, not {len(urls):,}; a reason takes all of its URLs."
            )
        job_id = jobs.id_of(connection, job)
        found, _ = retry_queries.lock_job(connection, job_id)
        if urls:
            return RetrySelection.of_urls(connection, found, [self._place(url) for url in urls])
        domain_id = None if domain is None else domains.id_of(connection, self.importer.canonical(domain))
        return RetrySelection.of_reasons(connection, found, retried_codes(found.name, reason, state), domain_id, within)

    def _place(self, url: str) -> tuple[str, str, bytes]:
        """A URL, its domain and its key. Raises UsageError."""
        try:
            seed = make_seed(url, rules=self.importer.rules, registrable=self.importer.registrable)
        except BadUrl as problem:
            raise UsageError(str(problem)) from problem
        return url, seed.domain, seed.url_key

    def recover(self, *, actor: str) -> Recovered:
        """Sweep now: release claims that have expired and those of dead workers, count new URLs, complete jobs without work.

        No URL is ever "in progress", so none has to be reset: what a dead worker had in memory still waits, and its domains are free
        two minutes after its last heartbeat.
        """
        with self.database.session() as connection:
            freed = sweeper.release_expired(connection, actor=actor)
            swept = sweeper.sweep(connection, run_silence=self.run_silence)
            recovered = Recovered(
                freed + swept.expired + swept.abandoned,
                swept.woken,
                swept.cooled,
                swept.delayed,
                swept.runs,
                swept.jobs,
                swept.faults,
            )
            details = {name: count for name, count in asdict(recovered).items() if isinstance(count, int)}
            if any(details.values()):
                with connection.transaction():
                    audit.write(connection, actor=actor, action="recover", kind=KIND, object_id="*", details=details)
        return recovered

    def check_clear(
        self, job: str | int | None = None, domain: str | None = None, *, everything: bool = False
    ) -> dict[str, Any]:
        """Return the arguments of `clear` as JSON: a job by its id, a domain by its name. Raises NotFound, UsageError."""
        if job is None and domain is None and not everything:
            raise UsageError("Name a job or a domain; `?confirm=all` takes out all URLs that wait, of all jobs.")
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            _clearable_jobs(connection, job_id)
            name = None if domain is None else self.importer.canonical(domain)
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
        """Clear waiting URLs: of a job, of a domain, of both, or all of them.

        After: URLs that were added after `asked_at` still wait. Links that a crawl has found since are cleared, too, unless this call
        repeats one that died (`again`): then they may be links of pages that were added meanwhile. Claims of domains whose URLs were
        cleared are revoked. A job with nothing left to do is completed. `watch` is called after each step with the counts so far; if it
        is killed in between, the rest waits as before, and another call clears it.
        """
        total = Cleared()
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            scope = ClearScope(_clearable_jobs(connection, job_id), asked_at, links=not again, rest=self.rest)
            domain_id = None if domain is None else domains.id_of(connection, self.importer.canonical(domain))
            after = 0
            while ids := queries.domains_to_clear(connection, scope.job_ids, domain_id, after=after):
                more = True
                while more:  # not until there are none: crawls may go on finding links
                    with connection.transaction():
                        step = queries.clear(connection, ids, scope)
                        if step.urls and not total.urls:
                            details = {"job": job_id, "domain": domain}
                            target = job_id or "*"
                            audit.write(
                                connection, actor=actor, action="clear", kind=KIND, object_id=target, details=details
                            )
                    more = step.urls >= queries.ROWS
                    total += step
                    watch(total)
                after = ids[-1]
            touched = {*total.jobs, *([] if job_id is None else [job_id])}
            ended = [one for one in sorted(touched) if queries.complete_if_done(connection, one)]
        return Clearing(total, ended)


def _with_state(where: UrlFilter) -> UrlFilter:
    """The filter with the state that follows from its reason: of failed URLs there is an index. Raises UsageError."""
    if where.reason is None:
        return where
    check_code(where.reason)
    failed = where.state is None and state_of(where.reason) is UrlState.FAILED
    return replace(where, state=UrlState.FAILED) if failed else where


def _clearable_jobs(connection: Connection, job_id: int | None) -> list[int]:
    found = queries.clearable_jobs(connection, job_id)
    if not found:
        raise Refused("The frontier of that job are tasks: cancel or pause those instead.")
    return found
