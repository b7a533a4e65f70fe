"""The plan of a crawl before it starts: pages and time of each domain and of all of them, with every assumption as a sentence.

The rule: nothing is written, nothing is fetched. A request to a domain starts when its delay has passed and a request slot is free, so a
page takes the longer of the delay in force and the response time divided by the concurrency. A crawl takes as long as its slowest domain,
or as all pages take at the speed that was measured here, whichever is longer. What is not known is said, never guessed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from holdfast.db import crawls, jobs
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.errors import BadUrl, Refused, UsageError
from holdfast.jobs.crawls import CrawlRequest, check_parser
from holdfast.jobs.queries import plan as queries
from holdfast.jobs.queries.plan import KnownDomain
from holdfast.jobs.records import CrawlPlan, DomainPlan, PagesFrom
from holdfast.jobs.seed_import import ImportProgress, SeedImporter, open_seeds, read_seeds
from holdfast.model.activity import DelaySource
from holdfast.model.domain import Seed
from holdfast.model.job import DomainLimits, Job, JobKind, JobSpec, Limit, Scope, Sitemaps
from holdfast.model.scope import compile_rules
from holdfast.model.seed_lines import make_seed
from holdfast.sitemaps import queries as sitemaps

LISTED: Final = 100
"""Domains that are listed one by one."""
ASSUMED_RESPONSE: Final = 0.5
"""Seconds that a response is assumed to take where none was measured."""
_STOPPED: Final = ("blocked", "unreachable")
_OPTIONS: Final = {
    Limit.MAX_PAGES_PER_DOMAIN: "`--max-pages-per-domain`",
    Limit.ROUNDS: "`--rounds` times `domains.max_pages_per_run`",
    Limit.DOMAIN_BUDGET: "`holdfast domains set DOMAIN budget=`",
    Limit.MAX_PAGES: "`--max-pages`",
}


@dataclass(slots=True)
class _Totals:
    """Sums over all domains."""

    domains: int = 0
    pages: int = 0
    unknown: int = 0
    stopped: int = 0
    by_source: Counter[PagesFrom] = field(default_factory=Counter)
    pages_by_source: Counter[PagesFrom] = field(default_factory=Counter)
    limits: Counter[tuple[int, Limit]] = field(default_factory=Counter)
    """Domains whose pages are a limit, by the limit."""
    by_delay: Counter[DelaySource] = field(default_factory=Counter)
    without_response: int = 0
    slowest: DomainPlan | None = None
    known: list[int] = field(default_factory=list)
    """Ids of the domains that are known."""
    listed: list[DomainPlan] = field(default_factory=list)

    def is_shown(self, seconds: float | None) -> bool:
        """Whether a domain that takes so long is listed, or is the slowest so far: all others are only counted."""
        return len(self.listed) < LISTED or (seconds is not None and (self.slowest is None or seconds > self._longest))

    def show(self, plan: DomainPlan) -> None:
        """Before: it is shown (`is_shown`)."""
        if len(self.listed) < LISTED:
            self.listed.append(plan)
        if plan.seconds is not None and (self.slowest is None or plan.seconds > self._longest):
            self.slowest = plan

    @property
    def _longest(self) -> float:
        return 0.0 if self.slowest is None or self.slowest.seconds is None else self.slowest.seconds


@dataclass(frozen=True, slots=True)
class CrawlPlanner:
    """Plans crawls of one database."""

    database: Database
    importer: SeedImporter
    """Its rules of URLs and its defaults of new domains are those of the plan."""
    max_depth: int = 10
    """Of a job without one of its own."""

    def plan(self, request: CrawlRequest, seeds: Sequence[Seed] | None = None) -> CrawlPlan:
        """Plan the crawl of a new job, or of an existing one that is named without seeds. `seeds`: those of `request.urls`, if the caller
        has read them already. Raises UsageError, NotFound, BadUrl; Refused if a new job has the name of another."""
        spec = JobSpec(**(request.options or {}))
        compile_rules(spec)
        check_parser(spec)
        with self.database.session() as connection, connection.transaction():
            queries.read_only(connection)
            if not request.urls and request.seeds_file is None:
                if request.job is None:
                    raise UsageError("Name what to plan: URLs, a file of seeds, or a job.")
                return self._plan_existing(
                    connection, crawls.get(connection, jobs.find(connection, request.job)), request
                )
            if request.job is not None and crawls.find(connection, name=request.job) is not None:
                raise Refused(f"There is a job called {request.job!r} already; without seeds it is planned as it is.")
            return self._plan_new(connection, request, spec, seeds)

    def _plan_new(
        self, connection: Connection, request: CrawlRequest, spec: JobSpec, read: Sequence[Seed] | None
    ) -> CrawlPlan:
        progress = ImportProgress() if read is None else ImportProgress(lines=len(read), seeds=len(read))
        seeds = Counter(seed.domain for seed in (self._seeds(request, progress) if read is None else read))
        if not seeds and progress.bad:
            raise BadUrl(f"{progress.bad_lines[0].problem} Write it as https://example.com/path.")
        known = queries.by_name(connection, list(seeds))
        totals = _Totals()
        only_seeds = not spec.follow or self._depth(spec) == 0
        for name, count in seeds.items():
            found = known.get(name)
            pages = count if only_seeds else found.known if found and found.known else None
            source = PagesFrom.SEEDS if only_seeds else PagesFrom.LAST_CRAWL
            self._add(totals, spec, name, count, found, pages, source)
        return self._answer(connection, request.job, None, totals, spec, progress, existing=False, again=False)

    def _plan_existing(self, connection: Connection, job: Job, request: CrawlRequest) -> CrawlPlan:
        if job.kind is JobKind.TASKS:
            raise Refused(f"Job {job.name} is the one of all tasks, each of which is one page.")
        totals, again = _Totals(), request.again
        for found in queries.of_job(connection, job.id):
            pages, source = (found.known, PagesFrom.LAST_CRAWL) if again else (found.waiting, PagesFrom.WAITING)
            self._add(totals, job.spec, found.domain, 0, found, pages, source)
        return self._answer(
            connection, job.name, job.id, totals, job.spec, ImportProgress(), existing=True, again=again
        )

    def _add(
        self,
        totals: _Totals,
        spec: JobSpec,
        name: str,
        seeds: int,
        found: KnownDomain | None,
        pages: int | None,
        source: PagesFrom,
    ) -> None:
        defaults = self.importer.defaults
        limit, limited_by = _limit(spec, found, defaults)
        if pages is None:
            source = PagesFrom.UNKNOWN
        if limit is not None and (pages is None or limit < pages):
            pages, source = limit, PagesFrom.LIMIT
        delay, delay_source = _delay(spec, found, defaults)
        measured, stopped, own = None, False, defaults.max_concurrent_requests
        if found is not None:
            measured, own = found.response_ms, found.max_concurrent_requests
            stopped = found.status in _STOPPED or not found.is_active
            totals.known.append(found.domain_id)
        concurrency = spec.concurrency or own
        per_page = max(delay, (ASSUMED_RESPONSE if measured is None else measured / 1000) / concurrency)
        seconds = None if pages is None else round(pages * per_page, 1)
        totals.domains += 1
        totals.by_source[source] += 1
        totals.by_delay[delay_source] += 1
        totals.without_response += measured is None
        totals.stopped += stopped
        if pages is None:
            totals.unknown += 1
        else:
            totals.pages += pages
            totals.pages_by_source[source] += pages
            if source is PagesFrom.LIMIT and limit is not None and limited_by is not None:
                totals.limits[limit, limited_by] += 1
        if totals.is_shown(seconds):  # of ten thousand domains few are
            totals.show(
                DomainPlan(
                    domain=name,
                    seeds=seeds,
                    pages=pages,
                    pages_from=source,
                    limit=limit,
                    delay_seconds=delay,
                    delay_source=delay_source,
                    concurrency=concurrency,
                    seconds_per_page=round(per_page, 3),
                    seconds=seconds,
                    stopped=stopped,
                )
            )

    def _answer(
        self,
        connection: Connection,
        job: str | None,
        job_id: int | None,
        totals: _Totals,
        spec: JobSpec,
        progress: ImportProgress,
        *,
        existing: bool,
        again: bool,
    ) -> CrawlPlan:
        pages = totals.pages if spec.max_pages is None else min(totals.pages, spec.max_pages)
        speed = queries.best_minute(connection)
        by_domain = totals.slowest.seconds if totals.slowest else None
        by_speed = None if speed is None else round(pages / speed, 1)
        complete = totals.unknown == 0 or spec.max_pages is not None
        assumptions = list(_assumptions(totals, spec, speed, self.importer.defaults, existing=existing, again=again))
        if spec.sitemaps is not Sitemaps.NO:
            assumptions += _known_from_sitemaps(*sitemaps.listed(connection, totals.known, job_id=job_id))
        return CrawlPlan(
            job=job,
            existing=existing,
            seeds=progress.seeds,
            bad=progress.bad,
            bad_seeds=progress.bad_lines,
            domains=totals.domains,
            pages=pages,
            unknown_domains=totals.unknown,
            complete=complete,
            seconds=max((one for one in (by_domain, by_speed) if one is not None), default=None),
            slowest_domain=totals.slowest.domain if totals.slowest else None,
            slowest_seconds=by_domain,
            pages_per_second=None if speed is None else round(speed, 2),
            listed=totals.listed,
            assumptions=assumptions,
            problem=progress.stopped,
        )

    def _seeds(self, request: CrawlRequest, progress: ImportProgress) -> Iterator[Seed]:
        """The seeds of a request; `progress` counts them and the invalid ones."""
        rules, registrable = self.importer.rules, self.importer.registrable
        arguments = ImportProgress()
        for text in request.urls:
            arguments.lines += 1
            try:
                yield make_seed(text, rules=rules, registrable=registrable)
            except BadUrl as problem:
                arguments.refuse(str(problem))
            else:
                arguments.seeds += 1
        if request.seeds_file is None:
            progress.lines, progress.seeds, progress.bad = arguments.lines, arguments.seeds, arguments.bad
            progress.bad_lines += arguments.bad_lines
            return
        stream, _, _ = open_seeds(request.seeds_file)
        with stream:
            yield from read_seeds(stream, rules, registrable=registrable, progress=progress)
        progress.add_arguments(arguments)

    def _depth(self, spec: JobSpec) -> int:
        return self.max_depth if spec.max_depth is None else spec.max_depth


def _limit(spec: JobSpec, found: KnownDomain | None, defaults: NewDomains) -> tuple[int | None, Limit | None]:
    """The smallest limit of pages that applies to a domain, and which it is."""
    own = None if found is None else found.max_pages_per_run
    limit, limited_by = _limit_of(
        own or defaults.max_pages_per_run,
        spec.max_pages_per_domain,
        spec.rounds,
        own if found is not None and found.max_pages_is_limit else None,
    )
    if spec.max_pages is not None and (limit is None or spec.max_pages < limit):
        return spec.max_pages, Limit.MAX_PAGES
    return limit, limited_by


@lru_cache(maxsize=1024)  # most domains of a plan have the same
def _limit_of(
    share: int, max_pages_per_domain: int | None, rounds: int | None, domain_budget: int | None
) -> tuple[int | None, Limit | None]:
    limits = DomainLimits.of(
        share=share, max_pages_per_domain=max_pages_per_domain, rounds=rounds, domain_budget=domain_budget
    )
    return limits.limit, limits.limited_by


def _delay(spec: JobSpec, found: KnownDomain | None, defaults: NewDomains) -> tuple[float, DelaySource]:
    """The delay in force, and where it comes from: of the job, else of the domain; a longer one of robots.txt or of a slow server."""
    own = defaults.crawl_delay if found is None else found.crawl_delay_seconds
    source = DelaySource.DEFAULT if own == defaults.crawl_delay else DelaySource.DOMAIN
    if spec.delay is not None:
        own, source = spec.delay, DelaySource.JOB
    if found is not None and found.pace_delay_seconds is not None and found.pace_delay_seconds > own:
        slower = {DelaySource.LEARNT, DelaySource.ROBOTS} if spec.robots else {DelaySource.LEARNT}
        if found.pace_delay_source in slower:
            return found.pace_delay_seconds, DelaySource(found.pace_delay_source)
    return own, source


def _assumptions(
    totals: _Totals, spec: JobSpec, speed: float | None, defaults: NewDomains, *, existing: bool, again: bool
) -> Iterable[str]:
    """What a plan assumes, each a sentence with its number and the option that changes it."""
    sources, pages = totals.by_source, totals.pages_by_source
    if count := sources[PagesFrom.LAST_CRAWL]:
        where = "All known URLs are fetched again" if again else "As many pages as the last crawl knew"
        yield f"{where}: {pages[PagesFrom.LAST_CRAWL]:,} on {_domains(count)}; new links are not counted."
    if count := sources[PagesFrom.WAITING]:
        yield f"Only URLs that wait now are counted: {pages[PagesFrom.WAITING]:,} on {_domains(count)}; `--again` plans all known URLs."
    if count := sources[PagesFrom.SEEDS]:
        yield f"Links are not followed (`--max-depth`): only the seeds are fetched, {pages[PagesFrom.SEEDS]:,} on {_domains(count)}."
    for (limit, limited_by), count in totals.limits.most_common(3):
        yield f"{_domains(count)} {_reach(count)} a limit of {limit:,} pages ({_OPTIONS[limited_by]})."
    if totals.unknown:
        yield (
            f"{_domains(totals.unknown)} without a known number of pages and without a limit: not in the totals; "
            "`--max-pages-per-domain N` sets one."
        )
    if spec.max_pages is not None:
        yield f"The crawl ends after {spec.max_pages:,} pages over all domains (`--max-pages`)."
    for source, count in totals.by_delay.most_common():
        yield f"{_domains(count)}: {_DELAYS[source].format(default=defaults.crawl_delay, job=spec.delay)}."
    if totals.without_response:
        yield (
            f"{_domains(totals.without_response)}: no response time was measured yet, {ASSUMED_RESPONSE} s is assumed, with up to "
            f"{spec.concurrency or defaults.max_concurrent_requests} requests at a time (`--concurrency`)."
        )
    if speed is None:
        yield "No page was fetched here within 7 days, so no speed was measured: only delays and responses count."
    else:
        yield f"All domains together are fetched at up to {speed:,.1f} pages/s, the best minute of 7 days (`--workers`)."
    if totals.stopped:
        yield (
            f"{_domains(totals.stopped)} blocked, unreachable or switched off: counted as if open; `holdfast domains info DOMAIN` says "
            "until when."
        )
    if not existing and spec.follow and spec.scope is not Scope.HOST:
        yield f"Only the domains of the seeds are planned; with `--scope {spec.scope}` links may lead to more."


_DELAYS: Final = {
    DelaySource.DEFAULT: "the default delay of {default} s between requests (`--delay`)",
    DelaySource.DOMAIN: "the delay that was set for the domain (`holdfast domains set DOMAIN delay=`, `--delay`)",
    DelaySource.JOB: "a delay of {job} s between requests (`--delay`)",
    DelaySource.ROBOTS: "the delay that robots.txt demands (`politeness.max_crawl_delay`, `--no-robots`)",
    DelaySource.LEARNT: "the longer delay that slow responses led to in the last visit (`politeness` settings)",
}


def _known_from_sitemaps(urls: int, sitemaps_read: int) -> Iterator[str]:
    """What is known from sitemaps, as a sentence."""
    if urls:
        names = "1 sitemap" if sitemaps_read == 1 else f"{sitemaps_read:,} sitemaps"
        yield f"{names} listed {urls:,} URLs when they were read last; they are read again, and new URLs are not counted (`--sitemaps`)."


def _domains(count: int) -> str:
    return "1 domain" if count == 1 else f"{count:,} domains"


def _reach(count: int) -> str:
    return "reaches" if count == 1 else "reach"
