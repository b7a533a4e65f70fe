"""A visit: one domain, from its claim to its release, by one worker.

The rule: a visit takes URLs from the frontier into memory and asks for them one after the other as politeness allows. It owns nothing
but its claim; what it knows and has not committed may be lost at any moment, and nothing is.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.engine.lanes import Lanes
from holdfast.engine.links import LinkFinder, Site
from holdfast.engine.pipeline import fault, walk
from holdfast.engine.robots import RobotsKeeper
from holdfast.engine.tools import Tools
from holdfast.engine.turns import NEVER, Turns
from holdfast.engine.window import Window
from holdfast.model.batch import Clocks, UrlOutcome, Waiting
from holdfast.model.domain import Claim, Event
from holdfast.model.job import Job
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.model.page import FetchRequest, FetchResult
from holdfast.model.work import Ending
from holdfast.politeness.robots import product_token
from holdfast.politeness.scope import ScopeRules
from holdfast.politeness.streak import Streak
from holdfast.store import budget, crawls, visits

log: Final = logging.getLogger(__name__)


class Visit:
    """One tenure of one domain, for one job."""

    def __init__(self, tools: Tools, claim: Claim, job: Job, state: visits.VisitState, scope: ScopeRules) -> None:
        settings, spec = tools.settings, job.spec
        now = tools.clock.now()
        self.tools = tools
        self.job = job
        self.domain = claim.domain
        self.domain_id = claim.domain_id
        self.epoch = claim.epoch
        self.tenure = (claim.domain_id, claim.epoch)
        self.agent = state.user_agent or tools.agent
        self._token = product_token(self.agent)
        self.allow_private = spec.allow_private or settings.fetch.allow_private
        self.stopping = False
        self.lost = False
        self._clean = claim.clean
        self._slice_ends = now + settings.crawl.slice.total_seconds()
        self._per_domain = None
        if settings.rollout.per_domain_budget:
            self._per_domain = spec.max_pages_per_domain or state.max_pages_per_run
        self._budget: int | None = None
        self._pages = 0
        concurrency = spec.concurrency or state.max_concurrent
        self._turns = Turns(
            tools,
            self.tenure,
            state.clocks,
            delay=state.crawl_delay if spec.delay is None else spec.delay,
            concurrency=concurrency,
            over=lambda: self._over,
        )
        if not claim.clean:
            self._turns.pace.unclean(now)
        self._streak = Streak(
            settings.domains.max_errors, length=state.consecutive_errors, had_pages=state.pages_crawled > 0
        )
        self._event: Event | None = None
        self._detail = ""
        self._hold: float | None = None
        """Robots cannot be had, or not soon: seconds until it is asked for again."""
        self._postponed = 0
        """URLs in a row that wait for a robots.txt."""
        self._retry_after: float | None = None
        self._robots = RobotsKeeper(
            dict(state.robots),
            settings.politeness,
            tools.clock,
            agent=self.agent,
            allow_private=self.allow_private,
            ask=self._turns.ask_in_turn,
            save=self._save_robots,
            learn=self.learn,
        )
        self.links = LinkFinder(
            job.id,
            Site(state.domain, state.parent_domain, state.base_url),
            scope=scope,
            sites=tools.sites,
            rules=tools.rules,
            limits=settings.crawl,
            max_depth=settings.crawl.max_depth if spec.max_depth is None else spec.max_depth,
            this_year=datetime.now(UTC).year,
            memory=tools.memory,
        )
        self._window = Window(tools, claim.domain_id, job.id)
        self._uncommitted = 0
        self._noted = False
        self.lanes = Lanes(concurrency, self._choose, self._walk, self._turns.changed)

    # The visit --------------------------------------------------------------------------------------------------------

    async def run(self) -> Ending | None:
        """Crawl until there is a reason to end; how it ends. None: the claim is lost, and there is nothing to release.

        Before: the claim is held. After: nothing is in flight, and everything that it learnt is committed.
        """
        self.tools.memory.sharers += 1
        try:
            self._budget = await self._ask_budget()
            ending = await self.lanes.run()
        finally:
            self._window.close()
            self.tools.memory.sharers -= 1
            await self.lanes.land(0 if self.lost else self.tools.settings.worker.drain.total_seconds())
        if self._turns.asked and not self.lost:
            self._noted = True
            self.tools.committer.note(self)
        await self._settle()
        return None if self.lost else ending

    async def _choose(self) -> Waiting | Ending:
        """The next URL, when it is its turn, or how the visit ends. One call of it at a time."""
        while not (self.stopping or self.lost):
            if self.tools.committer.is_full:
                await self.tools.committer.room()
            if self._event is not None:
                return self._end(self._event)
            if self._slice_over() and await self.tools.desk.call(crawls.another_waits, self.domain_id, self.job.id):
                return self._end()
            if self._budget is not None and not await self._within_budget():
                return self._end(spent=True)
            item = await self._next()
            if item is None:
                return self._end(None if self._window.next_in is not None else self._streak.verdict_at_end())
            if not await self._allowed(item):
                if self._hold is not None:
                    return self._end(self._event, wait=self._hold)
                continue
            wait = await self._turns.turn()
            if wait is not None:
                return self._end(wait=wait)
            if not self._over:
                self._uncommitted += 1
                return item
        return self._end()

    def _end(self, event: Event | None = None, *, wait: float | None = None, spent: bool = False) -> Ending:
        if not self._clean and not self._turns.asked and wait is None:
            # Whoever comes next may not know of the request before.
            wait = self._turns.pace.wait(self.tools.clock.now())
        return Ending(
            self.domain_id,
            self.epoch,
            event if self.tools.settings.rollout.domain_tracking else None,
            self._detail,
            None if self._retry_after is None else timedelta(seconds=self._retry_after),
            crawled=self._turns.asked,
            spent_jobs=frozenset({self.job.id} if spent else ()),
            run_id=self.tools.run_id,
            wait=wait,
        )

    def _slice_over(self) -> bool:
        return self.tools.clock.now() > self._slice_ends

    @property
    def _over(self) -> bool:
        """Nothing more is to be begun."""
        return self.stopping or self.lost or self._event is not None

    # Taking URLs ------------------------------------------------------------------------------------------------------

    async def _next(self) -> Waiting | None:
        """The next URL; None if there is none now, nothing is in flight and everything is committed."""
        window = self._window
        while not self._over:
            window.look_ahead()
            if (item := window.pop()) is not None:
                return item
            if await window.looked():
                continue
            if self.lanes.flying:
                await self._turns.wait(NEVER)
            elif self._uncommitted:
                self.tools.committer.hurry()
                await self._turns.wait(NEVER)
            elif window.next_in is None or window.next_in > self.tools.settings.crawl.patience.total_seconds():
                return None
            else:
                await self._turns.wait(window.next_in)
                window.look_again()
        return None

    async def _within_budget(self) -> bool:
        """Whether another page may be begun; waits for those in flight that may or may not be pages."""
        while self._budget is not None and self._pages + self.lanes.flying >= self._budget:
            if self.lanes.flying:
                await self._turns.wait(NEVER)
                if self._over:
                    return True  # the caller looks at these first
                continue
            await self._settle()
            if self.lost:
                return True
            self._budget, self._pages = await self._ask_budget(), 0
            if not self._budget:
                return self._budget is None
        return True

    async def _ask_budget(self) -> int | None:
        return await self.tools.desk.call(
            budget.ask,
            worker=self.tools.worker,
            domain_id=self.domain_id,
            epoch=self.epoch,
            job=self.job,
            per_domain=self._per_domain,
        )

    # Politeness -------------------------------------------------------------------------------------------------------

    async def _allowed(self, item: Waiting) -> bool:
        """What robots.txt says; a URL that is denied goes into the batch with its reason."""
        if not self.job.spec.robots:
            return True
        known = await self._robots.of(item.url)
        if known is None:
            self._window.put_back(item)
            self._hold = self._turns.far  # None: the visit is over anyway
            return False
        if not known.reachable:
            wait = max(1.0, known.until - self.tools.clock.now())
            if known.why is Outcome.ADDRESS_REFUSED:
                self._deny(item, known.why, UrlState.FAILED, f"{known.why}: {known.detail}"[:500])
                return False
            if known.why is Outcome.NO_SUCH_HOST and not self._pages and self._event is None:
                self._event, self._detail = self._streak.verdict_at_end(), known.detail[:500]
            self._postponed += 1
            if self._postponed > self.tools.settings.worker.window:
                self._hold = wait
                return False
            # Another origin of the domain may answer; so far only this URL waits.
            self._deny(
                item, Outcome.ROBOTS_DENIED, UrlState.WAITING, "robots_unavailable: asked again later", retry_in=wait
            )
            return False
        self._postponed = 0
        token = self._token
        self._turns.pace.set_crawl_delay(known.robots.crawl_delay(token))
        decision = known.robots.allowed(item.url, token)
        if not decision.allowed:
            self._deny(item, Outcome.ROBOTS_DENIED, UrlState.DENIED, f"robots_denied: {decision.line or ''}"[:500])
            tracking = self.tools.settings.rollout.domain_tracking
            if tracking and not self._pages and known.robots.denies_everything(token):
                self._event, self._detail = Event.ROBOTS_DENIED, "robots.txt denies everything"
            return False
        return True

    def _deny(
        self, item: Waiting, outcome: Outcome, state: UrlState, reason: str, retry_in: float | None = None
    ) -> None:
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
        )
        self.tools.committer.add(self, row)

    async def ask(self, request: FetchRequest) -> FetchResult:
        """Send a page's request. Before: it is its turn."""
        return await self._turns.ask(request)

    def learn(self, outcome: Outcome, result: FetchResult) -> None:
        """What an answer means for the domain."""
        if TREATMENT[outcome].page:
            self._pages += 1
        if result.retry_after is not None:
            self._retry_after = result.retry_after.total_seconds()
        event = self._streak.record(outcome)
        if event is not None and self._event is None and self.tools.settings.rollout.domain_tracking:
            self._event, self._detail = (
                event,
                f"{self._streak.length} in a row, the last: {result.detail or outcome}"[:500],
            )

    # In flight --------------------------------------------------------------------------------------------------------

    async def _walk(self, item: Waiting) -> None:
        try:
            await walk(self, item)
        except asyncio.CancelledError:  # it stays in the frontier as it was
            self._uncommitted -= 1
            raise
        except Exception as problem:
            # A fault of ours must cost this page, not the domain, and must not come back for ever.
            log.exception("%s could not be dealt with", item.url)
            try:
                self.tools.committer.add(self, fault(self, item, problem))
            except Exception:
                self._uncommitted -= 1
                raise

    async def _settle(self) -> None:
        """Wait until everything that was learnt is committed."""
        while (self._uncommitted or self._noted) and not self.lost:
            self.tools.committer.hurry()
            await self._turns.wait(NEVER)

    async def _save_robots(self, **facts: Any) -> object:
        return await self.tools.desk.call(
            visits.save_robots, worker=self.tools.worker, domain_id=self.domain_id, epoch=self.epoch, **facts
        )

    # What the committer and the worker call ---------------------------------------------------------------------------

    def clocks(self) -> Clocks:
        """Its politeness at this moment, for the store."""
        return self._turns.clocks()

    @property
    def streak(self) -> int:
        """Errors in a row."""
        return self._streak.length

    @property
    def in_window(self) -> int:
        """URLs in memory."""
        return self._window.held

    def committed(self, outcomes: Sequence[UrlOutcome], discovered: int, *, noted: bool) -> None:
        """These outcomes are in the store; what they led to can be taken."""
        self._uncommitted -= len(outcomes)
        self._noted = self._noted and not noted
        self._window.settled(outcome.url_key for outcome in outcomes)
        if discovered:
            self._turns.pace.discovered(discovered, self.tools.clock.now())
        self._turns.changed()

    def lose(self) -> None:
        """The claim is somebody else's: nothing more is asked for, nothing is written."""
        if not self.lost:
            self.lost = True
            self.tools.leases.drop(self.tenure)
            self.tools.committer.forget(self)
            self.lanes.cancel()
            self._turns.changed()

    def stop(self) -> None:
        """Begin nothing more, finish what is in flight."""
        self.stopping = True
        self._turns.changed()
