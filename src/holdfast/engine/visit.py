"""A visit: one domain, from its claim to its release, by one worker.

The rule: a visit takes URLs from the frontier into memory and asks for them one after the other as politeness allows. It owns nothing
but its claim; what it knows and has not committed may be lost at any moment, and nothing is.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypedDict

from holdfast.engine.lanes import Lanes
from holdfast.engine.links import LinkFinder, Site
from holdfast.engine.opening import Opening
from holdfast.engine.permission import Permission
from holdfast.engine.pipeline import fault, given_up, request_for, walk
from holdfast.engine.routes import Routes
from holdfast.engine.tools import Tools
from holdfast.engine.turns import NEVER, Turns, Withheld
from holdfast.engine.window import Window
from holdfast.model.batch import Clocks, FoundUrl, UrlOutcome, Waiting
from holdfast.model.delay import DelaySource
from holdfast.model.domain import UNREACHING, Claim, Event
from holdfast.model.job import Job, JobKind
from holdfast.model.limits import DomainLimits
from holdfast.model.outcome import TREATMENT, Circuit, Outcome, UrlState
from holdfast.model.page import FetchRequest, FetchResult
from holdfast.model.proxy import Use
from holdfast.model.request_secrets import OriginHeaders
from holdfast.model.wait import Wait, WaitKind
from holdfast.model.work import Ending, Growth
from holdfast.politeness.circuit import OPENINGS, STUCK_FOR
from holdfast.politeness.scope import ScopeRules
from holdfast.politeness.streak import Streak
from holdfast.store import budget, crawls, frontier, job_seeds, task_frontier, visits
from holdfast.store.frontier import Taken

log: Final = logging.getLogger(__name__)

TASK_LOOK: Final = 10.0
"""Seconds between two looks at whether a task waits for the domain that a job crawls."""
JOB_LOOK: Final = 1.0
"""Seconds between two looks, after a slice, at whether another job waits for the domain."""
MOMENT: Final = 0.5
"""Seconds that a page has to come when its job was paused."""


_SERVERS: Final = frozenset({WaitKind.BACK_OFF, WaitKind.CIRCUIT, WaitKind.RETRY})
"""Waits that an answer of the server is the cause of, or that there was none."""


class _Learnt(TypedDict):
    """The part of an `Ending` that answers decide about."""

    event: Event | None
    detail: str
    retry_after: timedelta | None
    answered: bool


class Visit:
    """One tenure of one domain, for one job."""

    def __init__(
        self,
        tools: Tools,
        claim: Claim,
        job: Job,
        state: visits.VisitState,
        scope: ScopeRules,
        secrets: OriginHeaders | None = None,
    ) -> None:
        """*secrets*: what people want sent to which origins; None: nothing to any."""
        settings, spec = tools.settings, job.spec
        now = tools.clock.now()
        self.tools = tools
        self.job = job
        self.settings_version = state.settings_version
        self.domain = claim.domain
        self.domain_id = claim.domain_id
        self.epoch = claim.epoch
        self.tenure = (claim.domain_id, claim.epoch)
        self.agent = spec.user_agent or state.user_agent or tools.agent
        self.secrets = secrets
        self.allow_private = spec.allow_private or settings.fetch.allow_private
        self.stopping = False
        self.lost = False
        self._began = now
        self._clean = claim.clean
        self.for_tasks = job.kind is JobKind.TASKS
        self.parser = None if self.for_tasks or not spec.archive else spec.parser or state.parser
        """Finds items on the pages; None: none is asked for, or what it would read is not kept."""
        self.keeps_status = self.for_tasks or not settings.rollout.domain_tracking
        """What it learns changes no status, and begins no cool-down."""
        self._look_for_tasks = now + TASK_LOOK
        self._look_for_jobs = now + settings.crawl.slice.total_seconds()
        """Not before its slice is over."""
        self._limits = DomainLimits()
        if settings.rollout.per_domain_budget and not self.for_tasks:
            self._limits = DomainLimits.of(
                share=settings.domains.max_pages_per_run,
                max_pages_per_domain=spec.max_pages_per_domain,
                rounds=spec.rounds,
                domain_budget=state.page_limit,
            )
        self._exact = self._limits.limit is not None or spec.max_pages is not None
        """Whether its pages are limited, not only shared."""
        self._budget: int | None = None
        self._pages = 0
        concurrency = spec.concurrency or state.max_concurrent
        rules = state.said.proxies.rules(use=settings.proxies.use, direct=settings.proxies.direct)
        self.routes: Routes | None = None
        """None: it uses no proxies."""
        if rules.use is not Use.DIRECT:
            patience = settings.crawl.patience.total_seconds()
            self.routes = Routes(
                tools.board, tools.clock, claim.domain, claim.domain_id, rules, state.pool, patience=patience
            )
        self.turns = Turns(
            tools,
            self.tenure,
            state.clocks,
            delay=state.crawl_delay if spec.delay is None else spec.delay,
            source=self._delay_source(state),
            # Until its robots.txt is read again, the Crawl-delay that was in force is.
            crawl_delay=state.clocks.delay if state.clocks.delay_source == DelaySource.ROBOTS and spec.robots else None,
            concurrency=concurrency,
            over=lambda: self._over,
            routes=self.routes,
            used=lambda use: tools.committer.used(self, use),
        )
        if not claim.clean:
            self.turns.pace.unclean(now)
        self._streak = Streak(
            settings.domains.max_errors,
            length=state.refusal_streak,
            errors=state.consecutive_errors,
            had_pages=state.pages_crawled > 0,
        )
        self._event: Event | None = None
        self._detail = ""
        self._unreached: Event | None = None
        """Why the server could not be reached, if the last failure is of that kind."""
        self._refusal = ""
        """What the last request said that was refused, or reached no server."""
        self._retry_after: float | None = None
        self._permission = Permission(self, state.robots)
        self._opening = Opening(tools, claim.domain_id, state.said)
        rules_of_job = tools.rules.stripping(spec.strip_params)
        self.links = LinkFinder(
            job.id,
            Site(state.domain, state.parent_domain, state.base_url),
            scope=scope,
            sites=tools.sites,
            rules=rules_of_job,
            own_rules=rules_of_job.stripping(state.strip_params),
            limits=settings.crawl,
            max_depth=settings.crawl.max_depth if spec.max_depth is None else spec.max_depth,
            this_year=datetime.now(UTC).year,
            memory=tools.memory,
            templates=state.templates,
        )
        take: Callable[..., Taken] = partial(frontier.take, domain_id=claim.domain_id, job_id=job.id)
        if self.for_tasks:
            take = partial(task_frontier.take, domain_id=claim.domain_id, job_id=job.id, epoch=claim.epoch)
        self._window = Window(tools, take)
        self._uncommitted = 0
        self._added_elsewhere = 0
        """URLs that pages of this visit added to other domains, for the flood guard."""
        self._noted = False
        self.lanes = Lanes(concurrency, self._choose, self._walk, self.turns.changed)

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
            if self.routes is not None:
                self.routes.close()
            self.tools.memory.sharers -= 1
            await self.lanes.land(0 if self.lost else self.tools.settings.worker.drain.total_seconds())
        if self.turns.asked and not self.lost:
            self._noted = True
            self.tools.committer.note(self)
        await self._settle()
        if self.lost:
            return None
        ending = ending or self._end()
        # What was in flight when it was decided to end may have brought the event, and the first proper answer.
        return replace(ending, **self._learnt()) if ending.event is None else ending

    async def _choose(self) -> Waiting | Ending:
        """The next URL, when it is its turn, or how the visit ends. One call of it at a time."""
        while not (self.stopping or self.lost):
            if self.tools.committer.is_full:
                await self.tools.committer.room()
            if (ending := await self._must_end()) is not None:
                return ending
            item = await self._next()
            if item is None:
                nothing_waits = self._event is None and not self.stopping and self._window.next_in is None
                return self._end(self._streak.verdict_at_end() if nothing_waits else None)
            if self.for_tasks and not item.tasks:
                self.deny(
                    item, Outcome.EXCLUDED, UrlState.DENIED, "excluded: its task was paused, cancelled, or has ended"
                )
                continue
            if not self.for_tasks and self._judged_again(item):
                continue
            if not await self._permission.given(item):
                if self._permission.hold is not None:
                    return self._end(wait=self._permission.hold)
                continue
            wait = await self.turns.turn(item.url_key)
            if wait is not None:
                return self._end(wait=wait)
            if not self._over:
                self._uncommitted += 1
                return item
        return self._end()

    def _judged_again(self, item: Waiting) -> bool:
        """Whether a URL that waited is not asked for by the rules of today; then that is in the batch."""
        if (why_not := self.links.excludes(item)) is not None:
            self.deny(item, Outcome.EXCLUDED, UrlState.DENIED, why_not)
        elif (own := self.links.elsewhere(item)) is not None:
            where = self.tools.sites.of(item.url).domain
            self.deny(item, Outcome.OTHER_DOMAIN, UrlState.DENIED, f"other_domain: {where}", found=[own])
        elif (shorter := self.links.folded(item)) is not None:
            self.deny(item, Outcome.FOLDED, UrlState.DENIED, f"folded: into {shorter.url}", found=[shorter])
        else:
            return False
        return True

    async def _must_end(self) -> Ending | None:
        """How it ends before another URL is looked for; None: it goes on."""
        if self._event is not None or self.turns.stuck:
            return self._end()
        if (closed := await self._opening.closed_for()) is not None:
            return self._end(wait=closed)
        if await self._tasks_turn():
            return self._end()
        if await self._others_turn():
            return self._end(yields=True)
        if self._budget is not None and not await self._within_budget():
            return self._end(spent=True)
        return None

    def _end(
        self, event: Event | None = None, *, wait: float | None = None, spent: bool = False, yields: bool = False
    ) -> Ending:
        judged_by = None if wait is None else self.settings_version
        if not self._clean and not self.turns.asked and wait is None:
            # Whoever comes next may not know of the request before.
            wait = self.turns.pace.wait(self.tools.clock.now())
        if event is not None and self._event is None:
            self._event, self._detail = event, f"no request was answered, the last: {self._refusal}"[:500]
        if self.turns.stuck:
            wait = STUCK_FOR
            if self._event is None:
                told = f"the circuit opened {OPENINGS} times without a success, the last: {self.turns.problem}"
                self._event, self._detail = self._unreached, told[:500]
        return Ending(
            self.domain_id,
            self.epoch,
            **self._learnt(),
            crawled=self.turns.asked,
            spent_jobs=frozenset({self.job.id} if spent else ()),
            yielding_jobs=frozenset({self.job.id} if yields else ()),
            wait=wait,
            settings_version=judged_by,
            keeps_status=self.keeps_status,
        )

    def _learnt(self) -> _Learnt:
        """What the server's answers up to now mean for the domain."""
        return {
            "event": None if self.keeps_status else self._event,
            "detail": self._detail,
            "retry_after": None if self._retry_after is None else timedelta(seconds=self._retry_after),
            "answered": self._streak.answered,
        }

    def _delay_source(self, state: visits.VisitState) -> DelaySource:
        if self.job.spec.delay is not None:
            return DelaySource.JOB
        default = self.tools.settings.domains.crawl_delay.total_seconds()
        return DelaySource.DEFAULT if state.crawl_delay == default else DelaySource.DOMAIN

    async def _tasks_turn(self) -> bool:
        """Whether a task waits for this domain."""
        now = self.tools.clock.now()
        if self.for_tasks or now < self._look_for_tasks:
            return False
        self._look_for_tasks = now + TASK_LOOK
        return await self.tools.desk.call(task_frontier.task_waits, self.domain_id)

    async def _others_turn(self) -> bool:
        """Whether the slice is over and another job waits for this domain."""
        now = self.tools.clock.now()
        if now < self._look_for_jobs:
            return False
        self._look_for_jobs = now + JOB_LOOK
        return await self.tools.desk.call(crawls.another_waits, self.domain_id, self.job.id)

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
                await self.turns.wait(NEVER)
            elif self._uncommitted:
                self.tools.committer.hurry()
                await self.turns.wait(NEVER)
            elif window.next_in is None or window.next_in > self.tools.settings.crawl.patience.total_seconds():
                return None
            else:
                await self.turns.wait(window.next_in, WaitKind.RETRY)
                window.look_again()
        return None

    async def _within_budget(self) -> bool:
        """Whether another page may be begun; waits for those in flight that may or may not be pages, where a limit must be exact."""
        asked = self._exact
        while self._budget is not None and self._pages + self.lanes.flying >= self._budget:
            if not asked:  # a share need not be exact: nothing has to land before the next one begins
                asked = True
                self._budget, self._pages = await self._ask_budget(self._uncommitted), 0
                continue
            if self.lanes.flying:
                await self.turns.wait(NEVER)
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

    async def _ask_budget(self, pending: int = 0) -> int | None:
        return await self.tools.desk.call(
            budget.ask,
            worker=self.tools.worker,
            domain_id=self.domain_id,
            epoch=self.epoch,
            job=self.job,
            limits=self._limits,
            pending=pending,
        )

    # Politeness -------------------------------------------------------------------------------------------------------

    def put_back(self, item: Waiting) -> None:
        """It was not its turn after all."""
        self._window.put_back(item)

    def deny(
        self,
        item: Waiting,
        outcome: Outcome,
        state: UrlState,
        reason: str,
        retry_in: float | None = None,
        found: Sequence[FoundUrl] = (),
    ) -> None:
        """Not asked for, and why: into the batch, with the URLs that stand for it."""
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
        self.tools.committer.add(self, row, found)

    async def is_guessed(self, item: Waiting) -> bool:
        """Whether a URL is a seed of the job whose scheme was guessed. Asks the store: for URLs that failed only."""
        if item.depth or item.hops or not item.url.startswith("https:"):
            return False
        return await self.tools.desk.call(job_seeds.is_guessed, self.job.id, item.url_key)

    def use_http(self, item: Waiting, detail: str) -> None:
        """Crawl a seed over http, since nothing speaks TLS there: into the batch."""
        self._uncommitted += 1
        state = TREATMENT[Outcome.NO_HTTPS].state
        row = UrlOutcome(self.job.id, item.url_key, item.url, item.depth, Outcome.NO_HTTPS, state, fetched=False)
        row.reason = f"{Outcome.NO_HTTPS}: {detail}"[:500]
        self.tools.committer.add(self, row, [self.links.over_http(item.url, item.url_key)])

    async def ask(self, request: FetchRequest, item: Waiting) -> FetchResult:
        """Send a page's request. Before: it is its turn."""
        return await self.turns.ask(request, item.url_key, last=self.last_attempt(item))

    def last_attempt(self, item: Waiting) -> bool:
        """Whether a URL has no attempt left after this one."""
        return item.attempts >= self.tools.settings.politeness.retries

    def learn(self, outcome: Outcome, result: FetchResult, *, logged: bool = True) -> None:
        """What an answer means for the domain. `logged`: it is of a page, not of a robots.txt."""
        if TREATMENT[outcome].page:
            self._pages += 1
        if result.retry_after is not None:
            self._retry_after = result.retry_after.total_seconds()
        treatment = TREATMENT[outcome]
        if treatment.event is not None:
            self._refusal = result.detail or str(outcome)
        if treatment.circuit is not Circuit.NOTHING:
            self._unreached = treatment.event if treatment.event in UNREACHING else None
        event = self._streak.record(outcome, logged=logged)
        if event is not None and self._event is None and not self.keeps_status:
            self._event, self._detail = event, f"{self._streak.length} in a row, the last: {self._refusal}"[:500]

    def not_reached(self, detail: str) -> None:
        """Not even its robots.txt can be asked for: that may be the end."""
        if not self._pages and self._event is None:
            self._event, self._detail = self._streak.verdict_at_end(), detail[:500]

    @property
    def is_new_here(self) -> bool:
        """No page was had, and what it learns may change the domain's status."""
        return not self.keeps_status and not self._pages

    def shut_out(self) -> None:
        """Its robots.txt denies everything: that is the end."""
        self._event, self._detail = Event.ROBOTS_DENIED, "robots.txt denies everything"

    # In flight --------------------------------------------------------------------------------------------------------

    async def _walk(self, item: Waiting) -> None:
        request: FetchRequest | None = None
        try:
            request = request_for(self, item)
            await walk(self, item, request)
        except asyncio.CancelledError:  # it stays in the frontier as it was
            if request is not None and request.sent and not self.lost:
                self.tools.committer.add(self, given_up(self, item))
            else:
                self._uncommitted -= 1
            raise
        except Withheld:
            self._uncommitted -= 1
            self.put_back(item)
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
            await self.turns.wait(NEVER)

    # What the committer and the worker call ---------------------------------------------------------------------------

    def clocks(self) -> Clocks:
        """Its politeness at this moment, for the store."""
        return self.turns.clocks()

    @property
    def streak(self) -> int:
        """Refusals and failures to reach the server in a row."""
        return self._streak.length

    @property
    def consecutive_errors(self) -> int:
        """Errors of every kind in a row."""
        return self._streak.errors

    @property
    def in_window(self) -> int:
        """URLs in memory."""
        return self._window.held

    def overdue(self, now: float) -> float:
        """Seconds for which the worker was too busy to go on with this domain; 0: it is being visited, or waits for a reason."""
        if self.stopping or self.lost or self.lanes.flying or self._permission.wait_reason() is not None:
            return 0.0
        return min(now - self._began, self.turns.overdue(now))

    def wait_reason(self) -> tuple[Wait, str] | None:
        """Why nothing is asked for at this moment, and the detail; None: no reason, or none is known. For any thread."""
        if (trouble := self.tools.committer.trouble) is not None:
            return Wait(WaitKind.STORE, NEVER), trouble
        if (robots := self._permission.wait_reason()) is not None:
            return robots
        reason = self.turns.wait_reason()
        return None if reason is None else (reason, self.turns.problem if reason.kind in _SERVERS else "")

    def committed(self, outcomes: Sequence[UrlOutcome], growth: Growth, *, noted: bool) -> None:
        """These outcomes are in the store; what they led to can be taken."""
        self._uncommitted -= len(outcomes)
        self._noted = self._noted and not noted
        self._window.settled(outcome.url_key for outcome in outcomes if not outcome.again)
        self.links.committed(growth)
        if growth.added:
            self._added_elsewhere += growth.elsewhere
            self.turns.pace.discovered(growth.added, growth.waiting + self._added_elsewhere, self.tools.clock.now())
        self.turns.changed()

    def lose(self) -> None:
        """The claim is somebody else's: nothing more is asked for, nothing is written."""
        if not self.lost:
            self.lost = True
            self.tools.leases.drop(self.tenure)
            self.tools.committer.forget(self)
            self.lanes.cancel()
            self.turns.changed()

    def stop(self) -> None:
        """Begin nothing more, finish what is in flight."""
        self.stopping = True
        self.turns.changed()

    def settings_changed(self, crawl_delay: float, job: Job) -> None:
        """People edited the domain or the job: begin nothing more; the next visit goes by what they say.

        After: what is in flight is finished, and the domain released at once. The new delay counts from the last request already.
        """
        self.turns.pace.set_delay(crawl_delay if job.spec.delay is None else job.spec.delay)
        self.stop()

    def put_aside(self) -> None:
        """The job is not to be crawled now: begin nothing more. What does not come within a moment is given up, and waits as before."""
        if not self.stopping:
            self.stop()
            asyncio.get_running_loop().call_later(MOMENT, self.lanes.cancel)
