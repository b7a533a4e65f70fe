"""A visit: one domain, from its claim to its release, by one worker.

The rule: a visit reads URLs from the frontier into memory and requests them one after the other as politeness allows. It owns nothing
but its claim; its uncommitted results may be lost at any moment, and then the URLs are crawled again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypedDict

from holdfast.crawler.crawl_url import cancelled_row, crawl_url, internal_error_row, request_for
from holdfast.crawler.link_filter import LinkFilter, Site
from holdfast.crawler.maintenance_watch import MaintenanceWatch
from holdfast.crawler.proxy_router import ProxyRouter
from holdfast.crawler.request_gate import NEVER, RequestGate, RequestWithheld
from holdfast.crawler.request_slots import RequestSlots
from holdfast.crawler.robots_gate import RobotsGate
from holdfast.crawler.url_buffer import UrlBuffer
from holdfast.crawler.worker_context import WorkerContext
from holdfast.db import budget, crawls, frontier, jobs, task_frontier, visit_state
from holdfast.db.frontier import FrontierBatch
from holdfast.model.commit_batch import DiscoveredUrl, FrontierItem, PolitenessClocks, UrlOutcome
from holdfast.model.domain import UNREACHABLE_EVENTS, Claim, Event
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.job import DomainLimits, Job, JobKind
from holdfast.model.outcome import TREATMENT, Circuit, Outcome, UrlState
from holdfast.model.proxy import ProxyMode
from holdfast.model.request_secrets import OriginHeaders
from holdfast.model.visit_report import FrontierGrowth, VisitEnd
from holdfast.model.wait import DelaySource, Wait, WaitKind
from holdfast.politeness.circuit_breaker import MAX_OPENINGS, STUCK_SECONDS
from holdfast.politeness.error_streak import ErrorStreak
from holdfast.politeness.scope import ScopeRules

log: Final = logging.getLogger(__name__)

TASK_POLL: Final = 10.0
"""Seconds between two checks whether a task waits for the domain that a job crawls."""
JOB_POLL: Final = 1.0
"""Seconds between two checks, after a slice, whether another job waits for the domain."""
PAUSE_GRACE: Final = 0.5
"""Seconds that requests in flight may take after their job was paused."""


_SERVER_WAITS: Final = frozenset({WaitKind.BACK_OFF, WaitKind.CIRCUIT, WaitKind.RETRY})
"""Waits that are caused by a response of the server, or by its absence."""


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
        self.context = context
        self.job = job
        self.settings_version = state.settings_version
        self.domain = claim.domain
        self.domain_id = claim.domain_id
        self.epoch = claim.epoch
        self.tenure = (claim.domain_id, claim.epoch)
        self.agent = spec.user_agent or state.user_agent or context.agent
        self.secrets = secrets
        self.allow_private = spec.allow_private or settings.fetch.allow_private
        self.stopping = False
        self.lost = False
        self._started_at = now
        self._clean = claim.clean
        self.for_tasks = job.kind is JobKind.TASKS
        self.parser = None if self.for_tasks or not spec.archive else spec.parser or state.parser
        """Name of the parser for its pages; None: there is none, or its pages are not archived."""
        self.keeps_status = self.for_tasks or not settings.rollout.domain_tracking
        """Its results do not change the status of the domain, and start no cool-down."""
        self._next_task_check = now + TASK_POLL
        self._next_job_check = now + settings.crawl.slice.total_seconds()
        """Not before the end of its slice."""
        self._limits = DomainLimits()
        if settings.rollout.per_domain_budget and not self.for_tasks:
            self._limits = DomainLimits.of(
                share=settings.domains.max_pages_per_run,
                max_pages_per_domain=spec.max_pages_per_domain,
                rounds=spec.rounds,
                domain_budget=state.page_limit,
            )
        self._has_page_limit = self._limits.limit is not None or spec.max_pages is not None
        """Whether the number of its pages has an exact limit, not only a share per visit."""
        self._budget: int | None = None
        self._pages = 0
        concurrency = spec.concurrency or state.max_concurrent
        rules = state.live_settings.proxies.rules(use=settings.proxies.use, direct=settings.proxies.direct)
        self.proxy_router: ProxyRouter | None = None
        """None: the domain uses no proxies."""
        if rules.use is not ProxyMode.DIRECT:
            patience = settings.crawl.patience.total_seconds()
            self.proxy_router = ProxyRouter(
                context.proxies, context.clock, claim.domain, claim.domain_id, rules, state.pool, patience=patience
            )
        self.gate = RequestGate(
            context,
            self.tenure,
            state.clocks,
            delay=state.crawl_delay if spec.delay is None else spec.delay,
            source=self._delay_source(state),
            # The stored Crawl-delay applies until robots.txt is read again.
            crawl_delay=state.clocks.delay if state.clocks.delay_source == DelaySource.ROBOTS and spec.robots else None,
            concurrency=concurrency,
            is_over=lambda: self._is_over,
            proxy_router=self.proxy_router,
            on_proxy_use=lambda use: context.batch_writer.add_proxy_use(self, use),
        )
        if not claim.clean:
            self.gate.rate.assume_unrecorded_request(now)
        self._streak = ErrorStreak(
            settings.domains.max_errors,
            length=state.refusal_streak,
            errors=state.consecutive_errors,
            had_pages=state.pages_crawled > 0,
        )
        self._event: Event | None = None
        self._detail = ""
        self._unreached: Event | None = None
        """Why the server could not be reached, if that was the last failure."""
        self._last_refusal = ""
        """Detail of the last request that was refused, or did not reach the server."""
        self._retry_after: float | None = None
        self._robots_gate = RobotsGate(self, state.robots)
        self._maintenance = MaintenanceWatch(context, claim.domain_id, state.live_settings)
        rules_of_job = context.rules.with_stripped(spec.strip_params)
        self.links = LinkFilter(
            job.id,
            Site(state.domain, state.parent_domain, state.base_url),
            scope=scope,
            sites=context.sites,
            rules=rules_of_job,
            own_rules=rules_of_job.with_stripped(state.strip_params),
            limits=settings.crawl,
            max_depth=settings.crawl.max_depth if spec.max_depth is None else spec.max_depth,
            this_year=datetime.now(UTC).year,
            memory=context.memory,
            templates=state.templates,
        )
        take: Callable[..., FrontierBatch] = partial(frontier.take, domain_id=claim.domain_id, job_id=job.id)
        if self.for_tasks:
            take = partial(task_frontier.take, domain_id=claim.domain_id, job_id=job.id, epoch=claim.epoch)
        self._buffer = UrlBuffer(context, take)
        self._uncommitted = 0
        self._added_elsewhere = 0
        """Number of URLs that pages of this visit added to other domains, for the flood guard."""
        self._clocks_pending = False
        self.slots = RequestSlots(concurrency, self._next_request, self._crawl, self.gate.notify)

    # The visit --------------------------------------------------------------------------------------------------------

    async def run(self) -> VisitEnd | None:
        """Crawl until there is a reason to end, and return it; None: the claim is lost, and there is nothing to release.

        Before: the claim is held. After: nothing is in flight, and all results are committed.
        """
        self.context.memory.sharers += 1
        try:
            self._budget = await self._ask_budget()
            ending = await self.slots.run()
        finally:
            self._buffer.close()
            if self.proxy_router is not None:
                self.proxy_router.close()
            self.context.memory.sharers -= 1
            await self.slots.drain(0 if self.lost else self.context.settings.worker.drain.total_seconds())
        if self.gate.has_sent and not self.lost:
            self._clocks_pending = True
            self.context.batch_writer.save_clocks(self)
        await self._wait_until_committed()
        if self.lost:
            return None
        ending = ending or self._make_ending()
        # Requests that were in flight at the decision may have brought the event, and the first proper response.
        return replace(ending, **self._answer_summary()) if ending.event is None else ending

    async def _next_request(self) -> FrontierItem | VisitEnd:
        """Return the next URL when its request may start, or the end of the visit. Before: no other call runs."""
        while not (self.stopping or self.lost):
            if self.context.batch_writer.is_full:
                await self.context.batch_writer.wait_for_room()
            if (ending := await self._reason_to_end()) is not None:
                return ending
            item = await self._next_url()
            if item is None:
                nothing_waits = self._event is None and not self.stopping and self._buffer.next_in is None
                return self._make_ending(self._streak.final_event() if nothing_waits else None)
            if self.for_tasks and not item.tasks:
                self.deny(
                    item, Outcome.EXCLUDED, UrlState.DENIED, "excluded: its task was paused, cancelled, or has ended"
                )
                continue
            if not self.for_tasks and self._is_excluded_now(item):
                continue
            if not await self._robots_gate.allows(item):
                if self._robots_gate.visit_wait is not None:
                    return self._make_ending(wait=self._robots_gate.visit_wait)
                continue
            wait = await self.gate.wait_for_turn(item.url_key)
            if wait is not None:
                return self._make_ending(wait=wait)
            if not self._is_over:
                self._uncommitted += 1
                return item
        return self._make_ending()

    def _is_excluded_now(self, item: FrontierItem) -> bool:
        """Whether the current rules exclude a URL that waited. After: if so, it is in the batch as denied."""
        if (why_not := self.links.excluded_reason(item)) is not None:
            self.deny(item, Outcome.EXCLUDED, UrlState.DENIED, why_not)
        elif (own := self.links.for_other_domain(item)) is not None:
            where = self.context.sites.site_of(item.url).domain
            self.deny(item, Outcome.OTHER_DOMAIN, UrlState.DENIED, f"other_domain: {where}", found=[own])
        elif (shorter := self.links.folded(item)) is not None:
            self.deny(item, Outcome.FOLDED, UrlState.DENIED, f"folded: into {shorter.url}", found=[shorter])
        else:
            return False
        return True

    async def _reason_to_end(self) -> VisitEnd | None:
        """Return the end of the visit, if it must end before another URL is chosen; None: it goes on."""
        if self._event is not None or self.gate.stuck:
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
        judged_by = None if wait is None else self.settings_version
        if not self._clean and not self.gate.has_sent and wait is None:
            # The next visit may not know the time of the last request.
            wait = self.gate.rate.wait(self.context.clock.now())
        if event is not None and self._event is None:
            self._event, self._detail = event, f"no request was answered, the last: {self._last_refusal}"[:500]
        if self.gate.stuck:
            wait = STUCK_SECONDS
            if self._event is None:
                detail = (
                    f"the circuit opened {MAX_OPENINGS} times without a success, the last: {self.gate.last_problem}"
                )
                self._event, self._detail = self._unreached, detail[:500]
        return VisitEnd(
            self.domain_id,
            self.epoch,
            **self._answer_summary(),
            crawled=self.gate.has_sent,
            spent_jobs=frozenset({self.job.id} if spent else ()),
            yielding_jobs=frozenset({self.job.id} if yields else ()),
            wait=wait,
            settings_version=judged_by,
            keeps_status=self.keeps_status,
        )

    def _answer_summary(self) -> _AnswerSummary:
        """Return what the server's responses so far mean for the domain."""
        return {
            "event": None if self.keeps_status else self._event,
            "detail": self._detail,
            "retry_after": None if self._retry_after is None else timedelta(seconds=self._retry_after),
            "answered": self._streak.answered,
        }

    def _delay_source(self, state: visit_state.VisitState) -> DelaySource:
        if self.job.spec.delay is not None:
            return DelaySource.JOB
        default = self.context.settings.domains.crawl_delay.total_seconds()
        return DelaySource.DEFAULT if state.crawl_delay == default else DelaySource.DOMAIN

    async def _task_waits(self) -> bool:
        """Whether a task waits for this domain."""
        now = self.context.clock.now()
        if self.for_tasks or now < self._next_task_check:
            return False
        self._next_task_check = now + TASK_POLL
        return await self.context.db.call(task_frontier.has_waiting_task, self.domain_id)

    async def _other_job_waits(self) -> bool:
        """Whether the slice is over and another job waits for this domain."""
        now = self.context.clock.now()
        if now < self._next_job_check:
            return False
        self._next_job_check = now + JOB_POLL
        return await self.context.db.call(crawls.other_job_waits, self.domain_id, self.job.id)

    @property
    def _is_over(self) -> bool:
        """Whether no more requests may start."""
        return self.stopping or self.lost or self._event is not None

    # Choosing URLs ----------------------------------------------------------------------------------------------------

    async def _next_url(self) -> FrontierItem | None:
        """Return the next URL; None if there is none now, nothing is in flight and everything is committed."""
        buffer = self._buffer
        while not self._is_over:
            buffer.prefetch()
            if (item := buffer.pop()) is not None:
                return item
            if await buffer.wait_for_prefetch():
                continue
            if self.slots.in_flight:
                await self.gate.wait(NEVER)
            elif self._uncommitted:
                self.context.batch_writer.commit_soon()
                await self.gate.wait(NEVER)
            elif buffer.next_in is None or buffer.next_in > self.context.settings.crawl.patience.total_seconds():
                return None
            else:
                await self.gate.wait(buffer.next_in, WaitKind.RETRY)
                buffer.mark_stale()
        return None

    async def _within_budget(self) -> bool:
        """Whether another page is within the budget. Near an exact limit, wait for the requests in flight: they may be pages or not."""
        asked = self._has_page_limit
        while self._budget is not None and self._pages + self.slots.in_flight >= self._budget:
            if not asked:  # a share need not be exact: ask for the next one without waiting
                asked = True
                self._budget, self._pages = await self._ask_budget(self._uncommitted), 0
                continue
            if self.slots.in_flight:
                await self.gate.wait(NEVER)
                if self._is_over:
                    return True  # the caller checks that first
                continue
            await self._wait_until_committed()
            if self.lost:
                return True
            self._budget, self._pages = await self._ask_budget(), 0
            if not self._budget:
                return self._budget is None
        return True

    async def _ask_budget(self, pending: int = 0) -> int | None:
        return await self.context.db.call(
            budget.grant,
            worker=self.context.worker,
            domain_id=self.domain_id,
            epoch=self.epoch,
            job=self.job,
            limits=self._limits,
            pending=pending,
        )

    # Politeness -------------------------------------------------------------------------------------------------------

    def put_back(self, item: FrontierItem) -> None:
        """Put a URL back that was not requested."""
        self._buffer.put_back(item)

    def deny(
        self,
        item: FrontierItem,
        outcome: Outcome,
        state: UrlState,
        reason: str,
        retry_in: float | None = None,
        found: Sequence[DiscoveredUrl] = (),
    ) -> None:
        """Add a URL that is not requested to the batch, with the reason and the URLs that replace it."""
        self._uncommitted += 1
        row = UrlOutcome(
            self.job.id,
            item.url_key,
            item.url,
            item.depth,
            outcome,
            state,
            reason,
            item.attempts,
            retry_in,
            fetched=False,
            tasks=item.tasks,
        )
        self.context.batch_writer.add(self, row, found)

    async def is_guessed(self, item: FrontierItem) -> bool:
        """Whether a URL is a seed of the job whose scheme was guessed. Reads the database: for failed URLs only."""
        if item.depth or item.hops or not item.url.startswith("https:"):
            return False
        return await self.context.db.call(jobs.is_guessed_seed, self.job.id, item.url_key)

    def use_http(self, item: FrontierItem, detail: str) -> None:
        """Replace a seed by its http URL, since its server does not speak TLS. After: both are in the batch."""
        self._uncommitted += 1
        state = TREATMENT[Outcome.NO_HTTPS].state
        row = UrlOutcome(self.job.id, item.url_key, item.url, item.depth, Outcome.NO_HTTPS, state, fetched=False)
        row.reason = f"{Outcome.NO_HTTPS}: {detail}"[:500]
        self.context.batch_writer.add(self, row, [self.links.over_http(item.url, item.url_key)])

    async def send(self, request: FetchRequest, item: FrontierItem) -> FetchResult:
        """Send the request of a page. Before: `_next_request` has returned the URL."""
        return await self.gate.send(request, item.url_key, last_attempt=self.is_last_attempt(item))

    def is_last_attempt(self, item: FrontierItem) -> bool:
        """Whether a URL has no attempt left after this one."""
        return item.attempts >= self.context.settings.politeness.retries

    def record_answer(self, outcome: Outcome, result: FetchResult, *, logged: bool = True) -> None:
        """Record what a response means for the domain. `logged`: it is that of a page, not of a robots.txt."""
        if TREATMENT[outcome].page:
            self._pages += 1
        if result.retry_after is not None:
            self._retry_after = result.retry_after.total_seconds()
        treatment = TREATMENT[outcome]
        if treatment.event is not None:
            self._last_refusal = result.detail or str(outcome)
        if treatment.circuit is not Circuit.NOTHING:
            self._unreached = treatment.event if treatment.event in UNREACHABLE_EVENTS else None
        event = self._streak.record(outcome, logged=logged)
        if event is not None and self._event is None and not self.keeps_status:
            self._event, self._detail = event, f"{self._streak.length} in a row, the last: {self._last_refusal}"[:500]

    def record_unreachable(self, detail: str) -> None:
        """Record that not even robots.txt can be requested. After: if the visit has no page yet, it ends."""
        if not self._pages and self._event is None:
            self._event, self._detail = self._streak.final_event(), detail[:500]

    @property
    def is_first_contact(self) -> bool:
        """Whether the visit has no page yet, and may change the domain's status."""
        return not self.keeps_status and not self._pages

    def end_as_denied(self) -> None:
        """End the visit: robots.txt denies everything."""
        self._event, self._detail = Event.ROBOTS_DENIED, "robots.txt denies everything"

    # In flight --------------------------------------------------------------------------------------------------------

    async def _crawl(self, item: FrontierItem) -> None:
        request: FetchRequest | None = None
        try:
            request = request_for(self, item)
            await crawl_url(self, item, request)
        except asyncio.CancelledError:  # it stays in the frontier as it was
            if request is not None and request.sent and not self.lost:
                self.context.batch_writer.add(self, cancelled_row(self, item))
            else:
                self._uncommitted -= 1
            raise
        except RequestWithheld:
            self._uncommitted -= 1
            self.put_back(item)
        except Exception as problem:
            # An internal error must cost this page, not the domain, and must not be retried for ever.
            log.exception("%s failed with an internal error", item.url)
            try:
                self.context.batch_writer.add(self, internal_error_row(self, item, problem))
            except Exception:
                self._uncommitted -= 1
                raise

    async def _wait_until_committed(self) -> None:
        """Wait until all results and clocks are committed."""
        while (self._uncommitted or self._clocks_pending) and not self.lost:
            self.context.batch_writer.commit_soon()
            await self.gate.wait(NEVER)

    # Called by batch writer and worker --------------------------------------------------------------------------------

    def clocks(self) -> PolitenessClocks:
        """Return request rate and circuit breaker at this moment, for the database."""
        return self.gate.clocks()

    @property
    def streak(self) -> int:
        """Consecutive refusals and failures to reach the server."""
        return self._streak.length

    @property
    def consecutive_errors(self) -> int:
        """Consecutive errors of every kind."""
        return self._streak.errors

    @property
    def buffered_urls(self) -> int:
        """Number of URLs in memory."""
        return self._buffer.count

    def overdue(self, now: float) -> float:
        """Return for how many seconds the worker was too busy for this domain; 0: a request is in flight, or there is a reason to wait."""
        if self.stopping or self.lost or self.slots.in_flight or self._robots_gate.wait_reason() is not None:
            return 0.0
        return min(now - self._started_at, self.gate.overdue(now))

    def wait_reason(self) -> tuple[Wait, str] | None:
        """Return why no request starts at this moment, with a detail; None: there is no known reason. Thread-safe."""
        if (problem := self.context.batch_writer.problem) is not None:
            return Wait(WaitKind.STORE, NEVER), problem
        if (robots := self._robots_gate.wait_reason()) is not None:
            return robots
        reason = self.gate.wait_reason()
        return None if reason is None else (reason, self.gate.last_problem if reason.kind in _SERVER_WAITS else "")

    def on_committed(self, outcomes: Sequence[UrlOutcome], growth: FrontierGrowth, *, clocks_saved: bool) -> None:
        """Called when these outcomes are committed. After: the URLs that they led to can be read from the frontier."""
        self._uncommitted -= len(outcomes)
        self._clocks_pending = self._clocks_pending and not clocks_saved
        self._buffer.remove_committed(outcome.url_key for outcome in outcomes if not outcome.again)
        self.links.on_committed(growth)
        if growth.added:
            self._added_elsewhere += growth.elsewhere
            self.gate.rate.discovered(growth.added, growth.waiting + self._added_elsewhere, self.context.clock.now())
        self.gate.notify()

    def lose_claim(self) -> None:
        """End the visit because another worker holds the claim. After: no request starts, and nothing is committed."""
        if not self.lost:
            self.lost = True
            self.context.leases.drop(self.tenure)
            self.context.batch_writer.discard(self)
            self.slots.cancel()
            self.gate.notify()

    def stop(self) -> None:
        """Start no more requests; finish those in flight."""
        self.stopping = True
        self.gate.notify()

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
            asyncio.get_running_loop().call_later(PAUSE_GRACE, self.slots.cancel)
