"""A worker process: it holds domains, visits them, and lets them go.

The rule: nothing that it does needs to be undone. It may be killed at any instant; the next life under its name takes its claims
back, and whoever else is alive goes on without waiting for it.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from holdfast.archive.segments import Segments
from holdfast.engine.activity import observe
from holdfast.engine.board import Board
from holdfast.engine.committer import Committer
from holdfast.engine.desk import Away, Desk
from holdfast.engine.extraction import Extraction
from holdfast.engine.lease import Heartbeat, Leases
from holdfast.engine.links import LinkMemory, Sites
from holdfast.engine.plan import Plan
from holdfast.engine.serving import Serving
from holdfast.engine.sharing import Sharing
from holdfast.engine.tally import Tally
from holdfast.engine.tools import Tools
from holdfast.engine.visit import Visit
from holdfast.engine.waiting import heard
from holdfast.errors import ClaimLost, SettingsError
from holdfast.fetch.client import Client
from holdfast.fetch.dns import Resolver
from holdfast.model.domain import Claim
from holdfast.model.job import Job
from holdfast.model.request_secrets import compose
from holdfast.model.work import Ending
from holdfast.parse.isolate import PageParser
from holdfast.politeness.cooldown import CooldownPolicy
from holdfast.store import claims, crawls, edits, release, rounds, runs, stats, sweep, visits
from holdfast.telemetry.clock import Clock, SystemClock

log: Final = logging.getLogger(__name__)

STOP_SPARE: Final = 10.0
"""Seconds beyond a drain that a stop waits for a database that is away."""
JOB_LOOK: Final = 1.0
"""Seconds between two looks at whether a job is still to be crawled."""
LOCKED: Final = 300.0
"""Seconds until a domain is tried again whose secrets no key opens."""


class Worker:
    """One process at work."""

    def __init__(self, plan: Plan, clock: Clock | None = None, chance: random.Random | None = None) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._clock = clock or SystemClock()
        self._chance = chance or random.Random()  # noqa: S311 — jitter, not secrets
        self._lease = plan.settings.claims.lease
        if self._lease <= plan.settings.fetch.timeout:
            raise SettingsError(
                "claims.lease must be longer than fetch.timeout: no request begins unless the lease outlasts it."
            )
        self._leases = Leases(self._clock, self._lease)
        self._tally = Tally()
        self._desk = Desk(plan.database, "desk")
        self._sweeper = Desk(plan.database, "sweeper")
        self._visits: dict[Visit, asyncio.Task[None]] = {}
        self._serving = Serving(self._desk, plan.job_id)
        self._sharing = Sharing(self._desk, self._clock, plan.siblings)
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._sweep_soon = asyncio.Event()
        self._job_news = asyncio.Event()
        self._doom: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._cooldown = CooldownPolicy(plan.settings.cooldown, plan.settings.domains.max_block_retries, self._chance)
        self.tools: Tools

    async def run(self) -> None:
        """Work until told to stop, or until the job has nothing more to do.

        After: nothing is held, and everything that was learnt is in the store; or the database was away, and it is as if what was
        not committed had never been fetched.
        """
        loop = asyncio.get_running_loop()
        alone = not self._settings.rollout.claim_protocol
        heartbeat = Heartbeat(
            self._plan.database,
            self._leases,
            self._clock,
            wanted=self._plan.name,
            lease=self._lease,
            every=self._settings.worker.heartbeat,
            lost=lambda held: _from_thread(loop, lambda: self._lose(held)),
            doomed=lambda why: _from_thread(loop, lambda: self._fall(why)),
            rung=lambda: _from_thread(loop, self._hear),
            in_window=lambda: sum(visit.in_window for visit in list(self._visits)),
            tally=self._tally,
            activity=lambda: observe(list(self._visits), self._clock.now()),
        )
        try:
            identity = await asyncio.to_thread(heartbeat.take_name, alone=alone)
            run_id = await self._begin_run(identity.name)
            heartbeat.start(run_id)
            log.info("worker %s, life %d, run %d: %s", identity.name, identity.boot_epoch, run_id, self._mode())
            await self._run(identity.name, run_id)
        finally:
            await asyncio.to_thread(heartbeat.stop)
            self._desk.close()
            self._sweeper.close()
        if self._doom:
            raise ClaimLost(self._doom)

    async def _run(self, name: str, run_id: int) -> None:
        error: str | None = None
        try:
            async with Resolver(self._settings.fetch) as resolver, Client(self._settings.fetch, resolver) as client:
                self.tools = self._make_tools(name, run_id, client)
                await self._work()
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"[:1000]
            raise
        finally:
            await self._end_run(run_id, error or self._doom)

    def stop(self) -> None:
        """Begin nothing more, finish what is in flight, commit, let go."""
        if not self._stop.is_set():
            log.info("told to stop: %d domains held", len(self._visits))
        self._end_in_time()
        self._stop.set()
        self._changed.set()
        for visit in self._visits:
            visit.stop()

    def _end_in_time(self) -> None:
        """A database that is away must not keep us longer than a drain and a little more."""
        if self._deadline is None:
            patience = self._settings.worker.drain.total_seconds() + STOP_SPARE
            self._deadline = asyncio.get_running_loop().call_later(patience, self._give_up)

    def _give_up(self) -> None:
        """It did not come back in time: what is not committed is as if it had never been fetched."""
        self._desk.give_up()
        if hasattr(self, "tools"):
            self.tools.committer.give_up()
        for visit in list(self._visits):
            log.warning("%s: let go without a release, the database is away", visit.domain)
            visit.lose()

    def _make_tools(self, name: str, run_id: int, client: Client) -> Tools:
        plan, settings = self._plan, self._settings
        board = Board(self._desk, self._clock, settings, plan.unseal)
        self._extraction = Extraction(
            plan.database,
            plan.archive_folder,
            settings.parsing,
            worker=name,
            job_id=plan.job_id,
            parser_file=plan.parser_file,
            desk=self._desk,
            changed=self._changed.set,
        )
        committer = Committer(
            plan.database,
            self._leases,
            self._clock,
            worker=name,
            run_id=run_id,
            lease=self._lease,
            flush=settings.flush,
            defaults=plan.defaults,
            rests=board.rests,
            archive=lambda: Segments(plan.archive_folder, name, settings.archive, software=plan.agent),
            tally=self._tally,
            to_parse=self._extraction.offer,
            report=plan.report,
        )
        return Tools(
            settings=settings,
            worker=name,
            run_id=run_id,
            agent=plan.agent,
            rules=plan.rules,
            sites=Sites(registrable=settings.domains.registrable),
            memory=LinkMemory(),
            clock=self._clock,
            chance=self._chance,
            desk=self._desk,
            leases=self._leases,
            committer=committer,
            board=board,
            client=client,
            parser=PageParser(links_per_page=settings.crawl.links_per_page),
        )

    async def _begin_run(self, name: str) -> int:
        crawl_id = None
        if self._plan.job_id is not None:
            crawl_id = (await self._desk.call(crawls.get, self._plan.job_id)).crawl_id
            if crawl_id is None:
                crawl_id, _ = await self._desk.call(crawls.begin, self._plan.job_id, reopen=True)
        return await self._desk.call(runs.begin, worker=name, job_id=self._plan.job_id, crawl_id=crawl_id)

    async def _end_run(self, run_id: int, error: str | None) -> None:
        try:
            ending = self._desk.call(runs.end, run_id, error=error, counts=self._tally.counts())
            await asyncio.wait_for(ending, 5)
        except (Away, TimeoutError):
            log.warning("run %d could not be ended: the database is away", run_id)

    def _mode(self) -> str:
        rollout = self._settings.rollout
        order = "by priority" if rollout.smart_scheduling else "in the order of their seeds"
        hold = "held by claims" if rollout.claim_protocol else "by this worker alone (claims are off)"
        return f"domains are chosen {order} and {hold}"

    # The work ---------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        self.tools.committer.start()
        self.tools.committer.when_failed(self._fall)
        self._extraction.start()
        sweeping = asyncio.create_task(self._sweep())
        looking = asyncio.create_task(self._look_at_jobs())
        giving = asyncio.create_task(self._give_back())
        for task in (sweeping, looking, giving):
            task.add_done_callback(self._watch)
        try:
            await self._take_back()
            while not self._stop.is_set():
                claimed = await self._claim() or (await self._next_round() and await self._claim())
                over = not claimed and not self._visits and await self._is_over()
                if over and self._extraction.finished():
                    break
                await self._wait(self._settings.worker.idle.total_seconds())
        except Away:
            if not self._stop.is_set():
                raise
        finally:
            for task in (sweeping, looking, giving):
                task.cancel()
            await asyncio.gather(sweeping, looking, giving, return_exceptions=True)
            await self._let_go()

    async def _take_back(self) -> None:
        """What an earlier life held is this one's again. Its last request may be unknown: a full delay passes first."""
        asked_at = self._clock.now()
        taken = await self._desk.call(claims.reclaim, worker=self.tools.worker, lease=self._lease)
        if taken:
            log.info("took back %d domains from an earlier life", len(taken))
            self._leases.begin(((claim.domain_id, claim.epoch) for claim in taken), asked_at)
            await self._visit(taken, await self._serving.in_turn())

    async def _claim(self) -> int:
        """Claim for the free slots; how many domains were got."""
        room = self._settings.worker.domains - len(self._visits)
        count = min(room, self._settings.claims.batch)
        # While the store does not hear of us others may take our domains over, and nothing could be asked for on new ones.
        job = await self._serving.in_turn() if count > 0 and self._leases.speaks else None
        count = 0 if job is None else await self._sharing.share(job.id, count)
        if job is None or not count:
            return 0
        asked_at = self._clock.now()
        broke = self._desk.broke
        taken = await self._desk.call(
            claims.claim,
            worker=self.tools.worker,
            job_id=job.id,
            count=count,
            lease=self._lease,
            by_priority=self._settings.rollout.smart_scheduling,
        )
        if self._desk.broke != broke:
            # A claim may have been granted and its answer lost: what is ours and not known to us is taken back.
            mine = [domain_id for domain_id, _ in self._leases.all()] + [claim.domain_id for claim in taken]
            taken += await self._desk.call(claims.reclaim, worker=self.tools.worker, lease=self._lease, besides=mine)
        self._leases.begin(((claim.domain_id, claim.epoch) for claim in taken), asked_at)
        await self._visit(taken, job)
        return len(taken)

    async def _visit(self, taken: list[Claim], job: Job | None) -> None:
        if not taken:
            return
        ids = {claim.domain_id for claim in taken}
        for before in [visit for visit in self._visits if visit.domain_id in ids]:
            before.lose()  # its lease ended without its noticing, and the domain has come back to us
        states = await self._desk.call(visits.load, sorted(ids), None if job is None else job.id)
        for claim in taken:
            if job is None or claim.domain_id not in states:
                # Its last request may be unknown: nobody begins there before a delay has passed.
                delay = states[claim.domain_id].crawl_delay if claim.domain_id in states else None
                await self._release(Ending(claim.domain_id, claim.epoch, crawled=False, wait=delay))
                continue
            state = states[claim.domain_id]
            try:
                secrets = compose((secret, self._plan.unseal(secret.sealed)) for secret in state.secrets)
            except SettingsError as problem:
                # Without them the site would answer with its login page, and be marked for it.
                log.warning(
                    "%s is not crawled: its headers, cookies or password cannot be opened. %s", claim.domain, problem
                )
                await self._release(Ending(claim.domain_id, claim.epoch, crawled=False, wait=LOCKED))
                continue
            visit = Visit(self.tools, claim, job, state, self._serving.scope(job), secrets)
            task = asyncio.create_task(self._run_visit(visit), name=f"visit {claim.domain}")
            self._visits[visit] = task
            if self._stop.is_set():
                visit.stop()

    async def _run_visit(self, visit: Visit) -> None:
        try:
            ending = await visit.run()
            if ending is not None:
                await self._release(ending)
        except Away:
            log.warning("%s: let go without a release, the database is away", visit.domain)
        except Exception:
            log.exception("%s: the visit failed", visit.domain)
            self._fall(f"The visit of {visit.domain} failed by a fault of ours.")
        finally:
            self._leases.drop(visit.tenure)
            self._visits.pop(visit, None)
            self._changed.set()

    async def _release(self, ending: Ending) -> None:
        try:
            status = await self._desk.call(
                release.release, worker=self.tools.worker, ending=ending, cooldown=self._cooldown
            )
            log.debug("domain %d released: %s", ending.domain_id, status)
        except ClaimLost:
            self._tally.fenced_writes += 1
            log.info("domain %d was not ours any more at its release", ending.domain_id)
        finally:
            self._leases.drop((ending.domain_id, ending.epoch))

    async def _is_over(self) -> bool:
        """Whether the job has nothing to do that would not take longer than a crawl waits for."""
        if self._plan.job_id is None:
            return False
        job = await self._serving.only(self._plan.job_id)
        crawl_id = job.crawl_id or 0
        if await self._serving.ended([job.id]):
            return True
        standing = await self._desk.call(crawls.standing, job.id, crawl_id)
        patience = self._settings.crawl.patience.total_seconds()
        soon = standing.next_in is not None and standing.next_in <= patience
        if standing.wakes or (standing.next_in is not None and standing.next_in <= 0):
            self._sweep_soon.set()
        if standing.held or standing.ready or standing.wakes or standing.yielding or soon:
            return False
        return not await self._desk.call(rounds.advance, job.id, crawl_id)

    async def _next_round(self) -> bool:
        """Let domains of the job that wait for a round go on; whether there is something to claim now. Before: nothing could be claimed.

        A worker for all jobs has done this when it asked which of them can be worked on.
        """
        if self._plan.job_id is None or len(self._visits) >= self._settings.worker.domains:
            return False
        job = await self._serving.only(self._plan.job_id)
        if job.crawl_id is None or not await self._desk.call(rounds.waits, job.id, job.crawl_id):
            return False
        return await self._desk.call(rounds.advance, job.id, job.crawl_id)

    # Time passes ------------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """What time brings about. Any worker may do it; one at a time does."""
        every = self._settings.claims.sweep_interval.total_seconds()
        while True:
            swept = await self._sweeper.call(
                sweep.sweep,
                run_silence=max(4 * self._settings.worker.heartbeat, self._lease),
                refresh=self._settings.rollout.refresh_mode,
            )
            folded = await self._sweeper.call(stats.fold)
            for fault in (*swept.faults, *folded.faults):
                log.error("sweep: %s", fault)
            if swept.woken or swept.expired or swept.abandoned or swept.cooled or swept.delayed or swept.jobs:
                self._changed.set()
            self._sweep_soon.clear()
            await heard(self._sweep_soon, every * self._chance.uniform(0.8, 1.2))

    async def _look_at_jobs(self) -> None:
        """Let go of jobs that were paused, cancelled or deleted, of domains that a person wants to be tried again, and of those that were
        edited or whose job was: at once after a notice, else within a second or two."""
        proxies: tuple[int, int, int] | None = None
        while True:
            await heard(self._job_news, JOB_LOOK)
            self._job_news.clear()
            looked_at = list(self._visits)
            job_ids = {visit.job.id for visit in looked_at} | ({self._plan.job_id} if self._plan.job_id else set())
            through_proxies = any(visit.routes is not None for visit in looked_at)
            now = await self._desk.call(
                edits.look, [visit.domain_id for visit in looked_at], job_ids, proxies=through_proxies
            )
            await self._serving.update(now.jobs)  # before the visits of them end: the next ones go by it
            for visit in looked_at:
                job, domain = now.jobs.get(visit.job.id), now.domains.get(visit.domain_id)
                if job is None or not job.runnable:
                    visit.put_aside()
                elif domain is not None and domain.retry:
                    visit.stop()  # what it knows of failures is out of date; its release makes the domain ready again
                elif domain is not None and (domain.settings_version, job.settings_version) != (
                    visit.settings_version,
                    visit.job.settings_version,
                ):
                    visit.settings_changed(domain.crawl_delay, self._serving.known(visit.job))
            if through_proxies and now.proxies != proxies:
                proxies = now.proxies
                await self.tools.board.look(since=self._clock.now())

    async def _give_back(self) -> None:
        """At each heartbeat, domains that this worker is too busy to visit are released for one that is idle."""
        while True:
            await self._clock.sleep(self._settings.worker.heartbeat.total_seconds())
            for visit in await self._sharing.give_back(list(self._visits), self.tools.worker):
                log.info("%s is given back: another worker is idle", visit.domain)
                visit.stop()

    def _hear(self) -> None:
        """Jobs have changed: some may have to be let go of, others can be worked on."""
        self._job_news.set()
        self._changed.set()

    async def _wait(self, seconds: float) -> None:
        self._changed.clear()
        if self._stop.is_set():
            return
        await heard(self._changed, seconds)

    async def _let_go(self) -> None:
        self._end_in_time()
        for visit in self._visits:
            visit.stop()
        if self._visits:
            await asyncio.wait(
                list(self._visits.values()), timeout=self._settings.worker.drain.total_seconds() + 2 * STOP_SPARE
            )
        await self.tools.board.close()
        await self.tools.committer.close()
        await self._extraction.close()
        await self.tools.parser.aclose()

    def _lose(self, held: set[tuple[int, int]]) -> None:
        """These tenures (domain id, epoch) are over; a later one of the same domain is not."""
        for visit in [visit for visit in self._visits if visit.tenure in held]:
            visit.lose()

    def _watch(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (problem := task.exception()) is not None and not isinstance(problem, Away):
            log.error("%s ended", task, exc_info=problem)
            self._fall(f"Housekeeping ended by a fault of ours: {problem}")

    def _fall(self, why: str) -> None:
        """Our own fault, or a twin has our name: stop, and say so."""
        if self._doom is None:
            self._doom = why
            log.error("%s", why)
        self.stop()


def _from_thread(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(function)
