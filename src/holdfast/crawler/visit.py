"""A visit: one domain, from its claim to its release, by one worker.

The rule: a visit reads URLs from the frontier into memory and crawls them one after the other (`crawl_url`) until there is a reason to
end. It owns nothing but its claim; its uncommitted results may be lost at any moment, and then the URLs are crawled again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypedDict

from holdfast.crawler.crawl_image import ImageBudget
from holdfast.crawler.crawl_sitemap import SitemapFinder, are_wanted
from holdfast.crawler.crawl_url import CrawlContext, crawl_url
from holdfast.crawler.link_filter import LinkFilter
from holdfast.crawler.link_recorder import CheckBudget, LinkRecorder
from holdfast.crawler.proxied_fetcher import ProxiedFetcher
from holdfast.crawler.request_gate import NEVER, Fetcher, RequestGate, RequestSlots, VisitOver
from holdfast.crawler.robots_cache import RobotsCache
from holdfast.crawler.url_buffer import UrlBuffer
from holdfast.crawler.visit_results import VisitResults
from holdfast.crawler.worker_context import WorkerContext
from holdfast.db import budget, crawls, frontier, task_frontier, visit_state
from holdfast.db.frontier import FrontierBatch
from holdfast.fetch.site_fetcher import SiteFetcher
from holdfast.model.activity import DelaySource, Wait, WaitKind
from holdfast.model.commit_batch import FrontierItem, Resource
from holdfast.model.content_type import expand
from holdfast.model.domain import Claim, Event
from holdfast.model.domain_name import Site
from holdfast.model.job import DomainLimits, Job, JobKind, Sitemaps
from holdfast.model.maintenance_window import closed_until
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.proxy import ProxyMode
from holdfast.model.request_secrets import OriginHeaders
from holdfast.model.scope import Denial, ScopeRules
from holdfast.model.visit_report import VisitEnd
from holdfast.politeness.circuit_breaker import MAX_OPENINGS, STUCK_SECONDS
from holdfast.politeness.error_streak import ErrorStreak, VisitAnswers

TASK_POLL: Final = 10.0
"""Seconds between two checks whether a task waits for the domain that a job crawls."""
JOB_POLL: Final = 1.0
"""Seconds between two checks, after a slice, whether another job waits for the domain."""
MAINTENANCE_POLL: Final = 60.0
"""Seconds between two reads of the maintenance window."""
PAUSE_GRACE: Final = 0.5
"""Seconds that requests in flight may take after their job was paused."""


_SERVER_WAITS: Final = frozenset({WaitKind.BACK_OFF, WaitKind.CIRCUIT, WaitKind.RETRY})
"""Waits that are caused by a response of the server, or by its absence."""


class MaintenanceWatch:
    """The maintenance window of one visit's domain.

    The rule: the time is that of the database's clock, never of the worker's; it is read about once a minute. An edited window ends the
    visit (`Visit.settings_changed`).
    """

    def __init__(self, context: WorkerContext, domain_id: int, said: visit_state.LiveSettings) -> None:
        """*said*: as the visit found it when it began."""
        self._context = context
        self._domain_id = domain_id
        self._said: visit_state.LiveSettings | None = said
        self._next_poll = 0.0

    async def closed_for(self) -> float | None:
        """Return the seconds until the domain opens; None: it is open, or was at the last read."""
        now = self._context.clock.now()
        if now < self._next_poll:
            return None
        self._next_poll = now + MAINTENANCE_POLL
        said, self._said = self._said, None
        if said is None:
            said = await self._context.db.call(visit_state.live_settings, self._domain_id)
        until = closed_until(said.window, said.now)
        return None if until is None else (until - said.now).total_seconds()


class _AnswerSummary(TypedDict):
    """The part of a `VisitEnd` that depends on the server's responses."""

    event: Event | None
    detail: str
    retry_after: timedelta | None
    answered: bool


class Visit:
    """One tenure of one domain, for one job."""

    def __init__(
        self,
        context: WorkerContext,
        claim: Claim,
        job: Job,
        state: visit_state.VisitState,
        scope: ScopeRules,
        secrets: OriginHeaders | None = None,
    ) -> None:
        """*secrets*: headers, cookies and passwords by origin; None: there are none."""
        settings, spec = context.settings, job.spec
        now = context.clock.now()
        self._context = context
        self.job = job
        self.settings_version = state.settings_version
        self.domain = claim.domain
        self.domain_id = claim.domain_id
        self.tenure = (claim.domain_id, claim.epoch)
        self.stopping = False
        self._started_at = now
        self._clean = claim.clean
        self._for_tasks = job.kind is JobKind.TASKS
        self._next_task_check = now + TASK_POLL
        self._next_job_check = now + settings.crawl.slice.total_seconds()
        """Not before the end of its slice."""
        self._limits = DomainLimits()
        if settings.rollout.per_domain_budget and not self._for_tasks:
            self._limits = DomainLimits.of(
                share=settings.domains.max_pages_per_run,
                max_pages_per_domain=spec.max_pages_per_domain,
                rounds=spec.rounds,
                domain_budget=state.page_limit,
            )
        self._has_page_limit = self._limits.limit is not None or spec.max_pages is not None
        """Whether the number of its pages has an exact limit, not only a share per visit."""
        self._budget: int | None = None
        self._maintenance = MaintenanceWatch(context, claim.domain_id, state.live_settings)
        streak = ErrorStreak(
            settings.domains.max_errors,
            length=state.refusal_streak,
            errors=state.consecutive_errors,
            had_pages=state.pages_crawled > 0,
        )
        # The results of tasks do not change the status of the domain, and start no cool-down.
        self._answers = VisitAnswers(streak, keeps_status=self._for_tasks or not settings.rollout.domain_tracking)
        concurrency = spec.concurrency or state.max_concurrent
        fetcher = self._make_fetcher(state)
        self.gate = RequestGate(
            context,
            self.tenure,
            state.clocks,
            fetcher,
            self._answers,
            delay=state.crawl_delay if spec.delay is None else spec.delay,
            source=self._delay_source(state),
            # The stored Crawl-delay applies until robots.txt is read again.
            crawl_delay=state.clocks.delay if state.clocks.delay_source == DelaySource.ROBOTS and spec.robots else None,
            concurrency=concurrency,
        )
        if not claim.clean:
            self.gate.rate.assume_unrecorded_request(now)
        self._slots = RequestSlots(concurrency, self.gate.notify)
        take: Callable[..., FrontierBatch] = partial(
            frontier.take, domain_id=claim.domain_id, job_id=job.id, images=spec.images, links=spec.records_links
        )
        self._image_budget = ImageBudget(settings.images.max_per_host, state.images)
        if self._for_tasks:
            take = partial(task_frontier.take, domain_id=claim.domain_id, job_id=job.id, epoch=claim.epoch)
        self._buffer = UrlBuffer(context, take)
        self._max_depth = settings.crawl.max_depth if spec.max_depth is None else spec.max_depth
        self._links = self._make_links(state, scope)
        self._checks = CheckBudget(settings.crawl.checks_per_host, state.checks)
        self._results = VisitResults(
            context.batch_writer,
            context.clock,
            claim,
            job.id,
            for_tasks=self._for_tasks,
            answers=self._answers,
            gate=self.gate,
            buffer=self._buffer,
            links=self._links,
            on_lost=self._on_claim_lost,
        )
        agent = spec.user_agent or state.user_agent or context.agent
        allow_private = spec.allow_private or settings.fetch.allow_private
        sitemaps = spec.sitemaps or settings.crawl.sitemaps
        self._robots = RobotsCache(
            dict(state.robots),
            settings.politeness,
            context.clock,
            agent=agent,
            allow_private=allow_private,
            fetch=self.gate.fetch_in_turn,
            save=self._save_robots,
            answers=self._answers,
            secrets=secrets,
        )
        self._crawl = CrawlContext(
            worker=context,
            job=job,
            agent=agent,
            allow_private=allow_private,
            secrets=secrets,
            parsers=() if self._for_tasks else spec.parsers(state.parser),
            # A host that does not exist ends the visit of a job; a task has its own attempts, minutes apart.
            robots_final=frozenset({Outcome.ADDRESS_REFUSED} | ({Outcome.NO_SUCH_HOST} if self._for_tasks else set())),
            robots=self._robots,
            slots=self._slots,
            gate=self.gate,
            fetcher=fetcher,
            links=self._links,
            recorder=self._make_recorder(state) if spec.records_links else None,
            follow=spec.follow and sitemaps is not Sitemaps.ONLY,
            sitemaps=SitemapFinder(
                self._links,
                wanted=are_wanted(sitemaps, follow=spec.follow, max_depth=self._max_depth) and not self._for_tasks,
            ),
            image_budget=self._image_budget,
            types=expand(spec.types),
            answers=self._answers,
            buffer=self._buffer,
            results=self._results,
        )

    def _make_fetcher(self, state: visit_state.VisitState) -> Fetcher:
        context, settings = self._context, self._context.settings
        direct = SiteFetcher(context.client)
        rules = state.live_settings.proxies.rules(use=settings.proxies.use, direct=settings.proxies.direct)
        self.uses_proxies = rules.use is not ProxyMode.DIRECT
        if not self.uses_proxies:
            return direct
        return ProxiedFetcher(
            direct,
            context.proxies,
            context.clock,
            self.domain,
            self.domain_id,
            rules,
            state.pool,
            patience=settings.crawl.patience.total_seconds(),
            on_use=lambda use: self._results.add_proxy_use(use),
        )

    def _make_links(self, state: visit_state.VisitState, scope: ScopeRules) -> LinkFilter:
        context, crawl, spec = self._context, self._context.settings.crawl, self.job.spec
        rules = context.rules.with_stripped(spec.strip_params)
        return LinkFilter(
            self.job.id,
            Site(state.domain, state.parent_domain, state.base_url),
            scope=scope,
            sites=context.sites,
            rules=rules,
            own_rules=rules.with_stripped(state.strip_params),
            limits=crawl,
            max_depth=self._max_depth,
            this_year=datetime.now(UTC).year,
            memory=context.memory,
            templates=state.templates,
            rules_version=self.job.rules_version,
            in_reach=state.in_reach,
            check_external=spec.check_external,
        )

    def _make_recorder(self, state: visit_state.VisitState) -> LinkRecorder:
        rules = self._context.rules.with_stripped(self.job.spec.strip_params)
        site = Site(state.domain, state.parent_domain, state.base_url)
        return LinkRecorder(site, self._context.sites, rules, rules.with_stripped(state.strip_params))

    def _delay_source(self, state: visit_state.VisitState) -> DelaySource:
        if self.job.spec.delay is not None:
            return DelaySource.JOB
        default = self._context.settings.domains.crawl_delay.total_seconds()
        return DelaySource.DEFAULT if state.crawl_delay == default else DelaySource.DOMAIN

    async def _save_robots(self, **facts: Any) -> object:
        domain_id, epoch = self.tenure
        return await self._context.db.call(
            visit_state.save_robots, worker=self._context.worker, domain_id=domain_id, epoch=epoch, **facts
        )

    # The visit --------------------------------------------------------------------------------------------------------

    async def run(self) -> VisitEnd | None:
        """Crawl until there is a reason to end, and return it; None: the claim is lost, and there is nothing to release.

        Before: the claim is held. After: nothing is in flight, and all results are committed.
        """
        self._context.memory.sharers += 1
        try:
            self._budget = await self._ask_budget()
            ending = await self._slots.run(self._crawl_next)
        finally:
            self._buffer.close()
            self._crawl.fetcher.close()
            self._context.memory.sharers -= 1
            await self._slots.drain(0 if self.lost else self._context.settings.worker.drain.total_seconds())
        if self.gate.has_sent and not self.lost:
            self._results.save_clocks()
        await self._results.wait_until_committed()
        if self.lost:
            return None
        ending = ending or self._make_ending()
        # Requests that were in flight at the decision may have brought the event, and the first proper response.
        return replace(ending, **self._answer_summary()) if ending.event is None else ending

    async def _crawl_next(self) -> VisitEnd | None:
        """Crawl the next URL, or return the end of the visit. Before: no other slot chooses."""
        if self.stopping or self.lost:
            return self._make_ending()
        if self._context.batch_writer.is_full:
            await self._context.batch_writer.wait_for_room()
        if (ending := await self._reason_to_end()) is not None:
            return ending
        item = await self._next_url()
        if item is None:
            nothing_waits = self._answers.event is None and not self.stopping and self._buffer.next_in is None
            return self._make_ending(self._answers.streak.final_event() if nothing_waits else None)
        if self._is_excluded_now(item):
            return None
        try:
            if item.resource is not Resource.SITEMAP:
                await crawl_url(self._crawl, item)
            else:
                async with self._context.sitemap_reads:
                    await crawl_url(self._crawl, item)
        except VisitOver as over:
            return self._make_ending(wait=over.wait)
        return None

    def _is_excluded_now(self, item: FrontierItem) -> bool:
        """Whether the current rules exclude a URL that waited. After: if so, it is in the batch as denied."""
        results = self._results
        if self._for_tasks:
            if item.tasks:
                return False
            results.deny(
                item, Outcome.EXCLUDED, UrlState.DENIED, "excluded: its task was paused, cancelled, or has ended"
            )
        elif item.resource is Resource.IMAGE:
            if not self.job.spec.images:
                reason = f"{Outcome.EXCLUDED}: the job does not store images"
                results.deny(item, Outcome.EXCLUDED, UrlState.DENIED, reason)
                return True
            if not self._image_budget.reserve(item.url_key):
                results.deny(item, Outcome.IMAGE_LIMIT, UrlState.DENIED, self._image_budget.reason)
                return True
            return False
        elif item.resource is Resource.CHECK:
            if (denial := self._check_denied(item)) is None:
                return False
            results.deny(item, denial.outcome, UrlState.DENIED, f"{denial.outcome}: {denial.reason}")
        elif (denial := self._links.denied_now(item)) is not None:
            results.deny(item, denial.outcome, UrlState.DENIED, f"{denial.outcome}: {denial.reason}")
        elif (own := self._links.for_other_domain(item)) is not None:
            where = self._context.sites.site_of(item.url).domain
            results.deny(item, Outcome.OTHER_DOMAIN, UrlState.DENIED, f"other_domain: {where}", found=[own])
        elif (shorter := self._links.folded(item)) is not None:
            results.deny(item, Outcome.FOLDED, UrlState.DENIED, f"folded: into {shorter.url}", found=[shorter])
        else:
            return False
        return True

    def _check_denied(self, item: FrontierItem) -> Denial | None:
        """Why a link out of scope is not checked; None: it is. After: then it counts."""
        if not self.job.spec.check_external:
            return Denial(Outcome.EXCLUDED, "the job does not check links out of its scope")
        if self._links.is_excluded(item.url):
            return Denial(Outcome.EXCLUDED, "it matches an exclude pattern")
        if not self._checks.reserve(item.url_key):
            return Denial(Outcome.CHECK_LIMIT, self._checks.reason)
        return None

    async def _reason_to_end(self) -> VisitEnd | None:
        """Return the end of the visit, if it must end before another URL is chosen; None: it goes on."""
        if self._answers.event is not None or self.gate.stuck:
            return self._make_ending()
        if (closed := await self._maintenance.closed_for()) is not None:
            return self._make_ending(wait=closed)
        if await self._task_waits():
            return self._make_ending()
        if await self._other_job_waits():
            return self._make_ending(yields=True)
        if self._budget is not None and not await self._within_budget():
            return self._make_ending(spent=True)
        return None

    def _make_ending(
        self, event: Event | None = None, *, wait: float | None = None, spent: bool = False, yields: bool = False
    ) -> VisitEnd:
        answers = self._answers
        judged_by = None if wait is None else self.settings_version
        if not self._clean and not self.gate.has_sent and wait is None:
            # The next visit may not know the time of the last request.
            wait = self.gate.rate.wait(self._context.clock.now())
        if event is not None and answers.event is None:
            answers.event, answers.detail = (
                event,
                f"no request was answered, the last: {answers.last_refusal}"[:500],
            )
        if self.gate.stuck:
            wait = STUCK_SECONDS
            if answers.event is None:
                detail = (
                    f"the circuit opened {MAX_OPENINGS} times without a success, the last: {self.gate.last_problem}"
                )
                answers.event, answers.detail = answers.unreached, detail[:500]
        domain_id, epoch = self.tenure
        return VisitEnd(
            domain_id,
            epoch,
            **self._answer_summary(),
            crawled=self.gate.has_sent,
            spent_jobs=frozenset({self.job.id} if spent else ()),
            yielding_jobs=frozenset({self.job.id} if yields else ()),
            wait=wait,
            settings_version=judged_by,
            keeps_status=answers.keeps_status,
        )

    def _answer_summary(self) -> _AnswerSummary:
        """Return what the server's responses so far mean for the domain."""
        answers = self._answers
        return {
            "event": None if answers.keeps_status else answers.event,
            "detail": answers.detail,
            "retry_after": answers.retry_after,
            "answered": answers.streak.answered,
        }

    async def _task_waits(self) -> bool:
        """Whether a task waits for this domain."""
        now = self._context.clock.now()
        if self._for_tasks or now < self._next_task_check:
            return False
        self._next_task_check = now + TASK_POLL
        return await self._context.db.call(task_frontier.has_waiting_task, self.domain_id)

    async def _other_job_waits(self) -> bool:
        """Whether the slice is over and another job waits for this domain."""
        now = self._context.clock.now()
        if now < self._next_job_check:
            return False
        self._next_job_check = now + JOB_POLL
        return await self._context.db.call(crawls.other_job_waits, self.domain_id, self.job.id)

    # Choosing URLs ----------------------------------------------------------------------------------------------------

    async def _next_url(self) -> FrontierItem | None:
        """Return the next URL; None if there is none now, nothing is in flight and everything is committed."""
        buffer = self._buffer
        while not self.gate.is_over:
            buffer.prefetch()
            if (item := buffer.pop()) is not None:
                return item
            if await buffer.wait_for_prefetch():
                continue
            if self._slots.in_flight:
                await self.gate.wait(NEVER)
            elif self._results.uncommitted:
                self._context.batch_writer.commit_soon()
                await self.gate.wait(NEVER)
            elif buffer.next_in is None or buffer.next_in > self._context.settings.crawl.patience.total_seconds():
                return None
            else:
                await self.gate.wait(buffer.next_in, WaitKind.RETRY)
                buffer.mark_stale()
        return None

    async def _within_budget(self) -> bool:
        """Whether another page is within the budget. Near an exact limit, wait for the requests in flight: they may be pages or not."""
        asked, answers, slots = self._has_page_limit, self._answers, self._slots
        while self._budget is not None and answers.pages + slots.in_flight >= self._budget:
            if not asked:  # a share need not be exact: ask for the next one without waiting
                asked = True
                self._budget = await self._ask_budget(self._results.uncommitted + slots.in_flight)
                answers.pages = 0
                continue
            if slots.in_flight:
                await self.gate.wait(NEVER)
                if self.gate.is_over:
                    return True  # the caller checks that first
                continue
            await self._results.wait_until_committed()
            if self.lost:
                return True
            self._budget = await self._ask_budget()
            answers.pages = 0
            if not self._budget:
                return self._budget is None
        return True

    async def _ask_budget(self, pending: int = 0) -> int | None:
        domain_id, epoch = self.tenure
        return await self._context.db.call(
            budget.grant,
            worker=self._context.worker,
            domain_id=domain_id,
            epoch=epoch,
            job=self.job,
            limits=self._limits,
            pending=pending,
        )

    # For the worker ---------------------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """Whether another worker holds the claim."""
        return self._results.lost

    @property
    def buffered_urls(self) -> int:
        """Number of URLs in memory."""
        return self._buffer.count

    def overdue(self, now: float) -> float:
        """Return for how many seconds the worker was too busy for this domain; 0: a request is in flight, or there is a reason to wait."""
        if self.stopping or self.lost or self._slots.in_flight or self._robots.wait_reason() is not None:
            return 0.0
        return min(now - self._started_at, self.gate.overdue(now))

    def wait_reason(self) -> tuple[Wait, str] | None:
        """Return why no request starts at this moment, with a detail; None: there is no known reason. Thread-safe."""
        if (problem := self._context.batch_writer.problem) is not None:
            return Wait(WaitKind.STORE, NEVER), problem.text
        if (robots := self._robots.wait_reason()) is not None:
            return robots
        reason = self.gate.wait_reason()
        return None if reason is None else (reason, self.gate.last_problem if reason.kind in _SERVER_WAITS else "")

    def lose_claim(self) -> None:
        """End the visit because another worker holds the claim. After: no request starts, and nothing is committed."""
        self._results.lose_claim()

    def _on_claim_lost(self) -> None:
        self._context.leases.drop(self.tenure)
        self._slots.cancel()
        self.gate.close()

    def stop(self) -> None:
        """Start no more requests; finish those in flight."""
        self.stopping = True
        self.gate.close()

    def settings_changed(self, crawl_delay: float, job: Job) -> None:
        """Stop because the domain or the job was edited; the next visit has the new settings.

        After: what is in flight is finished, and the domain released at once. The new delay counts from the last request already.
        """
        self.gate.rate.set_delay(crawl_delay if job.spec.delay is None else job.spec.delay)
        self.stop()

    def pause_job(self) -> None:
        """Stop because the job is not runnable. Requests that take longer than `PAUSE_GRACE` are cancelled; their URLs wait as before."""
        if not self.stopping:
            self.stop()
            asyncio.get_running_loop().call_later(PAUSE_GRACE, self._slots.cancel)
