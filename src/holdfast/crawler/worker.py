"""A worker: claims domains, visits them, and releases them.

The rule: nothing that it does needs to be undone. It may be killed at any instant; the next process of its name reclaims its domains,
and all other workers go on without waiting for it.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from holdfast.archive import image_store
from holdfast.archive.writer import ArchiveWriter
from holdfast.crawler.activity import observe
from holdfast.crawler.batch_writer import BatchWriter
from holdfast.crawler.claim_plan import ClaimShare, JobRotation
from holdfast.crawler.crawl_sitemap import MAX_SITEMAPS_IN_MEMORY
from holdfast.crawler.db_thread import DbThread, StoppedWaiting
from holdfast.crawler.extraction import Extraction
from holdfast.crawler.leases import Heartbeat, Leases, RunCounters
from holdfast.crawler.link_filter import LinkMemoryBudget
from holdfast.crawler.problems import DISK_SECONDS, DiskGuard, worker_problems
from holdfast.crawler.proxy_registry import ProxyRegistry
from holdfast.crawler.segment_uploader import SegmentUploader
from holdfast.crawler.visit import Visit
from holdfast.crawler.worker_context import WorkerConfig, WorkerContext
from holdfast.db import claims, crawls, edits, migrate, release, rounds, runs, stats, sweeper, visit_state
from holdfast.db.generation import GenerationGuard
from holdfast.errors import ClaimLost, NotFound, SettingsError, StoreError, StoreRestored
from holdfast.fetch.dns import Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.model.activity import WorkerProblem
from holdfast.model.domain import Claim
from holdfast.model.domain_name import SiteCache
from holdfast.model.job import Job
from holdfast.model.request_secrets import headers_by_origin
from holdfast.model.visit_report import VisitEnd
from holdfast.parse.image_check import ImageChecker, ImageLimits
from holdfast.parse.page_parser import PageParser
from holdfast.politeness.retry import CooldownPolicy
from holdfast.telemetry.clock import Clock, SystemClock, wait_for_event

log: Final = logging.getLogger(__name__)

STOP_GRACE: Final = 10.0
"""Seconds in addition to `worker.drain` that a stop waits for an unavailable database."""
JOB_POLL: Final = 1.0
"""Seconds between two checks whether jobs are still runnable, and whether jobs or domains were edited."""
CHECK_BACKGROUND_SECONDS: Final = 30.0
"""Seconds between two checks whether a background process runs."""
SEALED_RETRY_SECONDS: Final = 300.0
"""Seconds until the next attempt on a domain whose secrets no key opens."""


class Worker:
    """The worker of one process."""

    def __init__(self, config: WorkerConfig, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self._generation = GenerationGuard()
        config = replace(config, database=replace(config.database, guard=self._generation))
        self._config = config
        self._settings = config.settings
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311 — jitter, not secrets
        self._lease = config.settings.claims.lease
        if self._lease <= config.settings.fetch.timeout:
            raise SettingsError(
                "claims.lease must be longer than fetch.timeout: no request begins unless the lease outlasts it."
            )
        self._leases = Leases(self._clock, self._lease)
        self._counters = RunCounters()
        self._db = DbThread(config.database, "worker")
        self._sweeper = DbThread(config.database, "sweeper")
        self._visits: dict[Visit, asyncio.Task[None]] = {}
        self._rotation = JobRotation(self._db, config.job_id)
        self._claim_share = ClaimShare(self._db, self._clock, config.siblings)
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._sweep_soon = asyncio.Event()
        self._jobs_changed = asyncio.Event()
        self._failure: str | None = None
        self._disks = DiskGuard(config.disks)
        self._paused_by_disk = False
        self._next_check = 0.0
        """When this worker next checks whether a background process runs."""
        self._deadline: asyncio.TimerHandle | None = None
        self._cooldown = CooldownPolicy(config.settings.cooldown, config.settings.domains.max_block_retries, self._rng)
        self.context: WorkerContext

    async def run(self) -> None:
        """Work until `stop`, or until the job has nothing more to do.

        After: no claim is held, and all results are committed; or the database was unavailable, and it is as if what was not committed
        had never been fetched.
        """
        loop = asyncio.get_running_loop()
        alone = not self._settings.rollout.claim_protocol
        heartbeat = Heartbeat(
            self._config.database,
            self._leases,
            self._clock,
            wanted_name=self._config.name,
            lease=self._lease,
            interval=self._settings.worker.heartbeat,
            on_lost=lambda held: _from_thread(loop, lambda: self._lose_claims(held)),
            on_failure=lambda why: _from_thread(loop, lambda: self._fail(why)),
            on_notification=lambda: _from_thread(loop, self._on_notification),
            buffered_urls=lambda: sum(visit.buffered_urls for visit in list(self._visits)),
            counters=self._counters,
            activity=lambda: observe(list(self._visits), self._clock.now(), self._problems(heartbeat)),
            generation=self._generation,
        )
        try:
            identity = await asyncio.to_thread(heartbeat.take_name, alone=alone)
            run_id = await self._begin_run(identity.name)
            heartbeat.start(run_id)
            log.info("worker %s, life %d, run %d: %s", identity.name, identity.boot_epoch, run_id, self._mode())
            await self._run(identity.name, run_id)
        finally:
            await asyncio.to_thread(heartbeat.stop)
            self._db.close()
            self._sweeper.close()
        if self._failure:
            raise ClaimLost(self._failure)

    async def _run(self, name: str, run_id: int) -> None:
        error: str | None = None
        try:
            async with Resolver(self._settings.fetch) as resolver, HttpClient(self._settings.fetch, resolver) as client:
                self.context = self._make_context(name, run_id, client)
                await self._work()
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"[:1000]
            raise
        finally:
            await self._end_run(run_id, error or self._failure)

    def _problems(self, heartbeat: Heartbeat) -> list[WorkerProblem]:
        if not hasattr(self, "context"):
            return []
        return worker_problems(self.context.batch_writer, self._disks, heartbeat.last_outage)

    def stop(self) -> None:
        """Start no more requests; finish those in flight, commit, release."""
        if not self._stop.is_set():
            log.info("told to stop: %d domains held", len(self._visits))
        self._set_stop_deadline()
        self._stop.set()
        self._changed.set()
        for visit in self._visits:
            visit.stop()
        if hasattr(self, "context"):
            self.context.batch_writer.resume()  # visits that wait for room on a disk end, too

    def _set_stop_deadline(self) -> None:
        """Give up an unavailable database after `worker.drain` and `STOP_GRACE`."""
        if self._deadline is None:
            patience = self._settings.worker.drain.total_seconds() + STOP_GRACE
            self._deadline = asyncio.get_running_loop().call_later(patience, self._give_up)

    def _give_up(self) -> None:
        """Stop waiting for the database: what is not committed is as if it had never been fetched."""
        self._db.give_up()
        if hasattr(self, "context"):
            self.context.batch_writer.give_up()
        for visit in list(self._visits):
            log.warning("%s: ended without a release, the database is unavailable", visit.domain)
            visit.lose_claim()

    def _make_context(self, name: str, run_id: int, client: HttpClient) -> WorkerContext:
        config, settings = self._config, self._settings
        proxies = ProxyRegistry(self._db, self._clock, settings, config.unseal)
        self._extraction = Extraction(
            config.database,
            config.archive,
            settings.parsing,
            worker=name,
            job_id=config.job_id,
            parser_file=config.parser_file,
            db=self._db,
            on_idle=self._changed.set,
        )
        uploader = None
        if config.archive.store is not None:
            uploader = SegmentUploader(config.database, config.archive_folder, settings.archive, config.archive.store)
        batch_writer = BatchWriter(
            config.database,
            self._leases,
            self._clock,
            worker=name,
            run_id=run_id,
            lease=self._lease,
            flush=settings.flush,
            defaults=config.defaults,
            proxy_pauses=proxies.rests,
            versions=settings.crawl.page_versions,
            near_distance=settings.images.near_distance,
            image_store=lambda: image_store.open_store(settings.images, settings.data),
            archive=lambda on_opened: ArchiveWriter(
                config.archive_folder,
                name,
                settings.archive,
                software=config.agent,
                on_opened=on_opened,
            ),
            uploader=uploader,
            counters=self._counters,
            check_schema=lambda connection: migrate.check(connection, config.database.address),
            offer_page=self._extraction.offer,
            report=config.report,
        )
        return WorkerContext(
            settings=settings,
            worker=name,
            run_id=run_id,
            agent=config.agent,
            rules=config.rules,
            sites=SiteCache(registrable=settings.domains.registrable),
            memory=LinkMemoryBudget(),
            clock=self._clock,
            rng=self._rng,
            db=self._db,
            leases=self._leases,
            batch_writer=batch_writer,
            proxies=proxies,
            client=client,
            parser=PageParser(links_per_page=settings.crawl.links_per_page),
            images=ImageChecker(
                ImageLimits(settings.images.max_bytes, settings.images.max_pixels, settings.images.max_frames),
                deadline=settings.images.timeout.total_seconds(),
                processes=settings.images.processes,
            ),
            sitemap_reads=asyncio.Semaphore(MAX_SITEMAPS_IN_MEMORY),
        )

    async def _begin_run(self, name: str) -> int:
        crawl_id = None
        if self._config.job_id is not None:
            crawl_id = (await self._db.call(crawls.get, self._config.job_id)).crawl_id
            if crawl_id is None:
                crawl_id, _ = await self._db.call(crawls.begin, self._config.job_id, reopen=True)
        return await self._db.call(runs.begin, worker=name, job_id=self._config.job_id, crawl_id=crawl_id)

    async def _end_run(self, run_id: int, error: str | None) -> None:
        try:
            ending = self._db.call(runs.end, run_id, error=error, counts=self._counters.counts())
            await asyncio.wait_for(ending, 5)
        except (StoppedWaiting, TimeoutError):
            log.warning("run %d could not be ended: the database is unavailable", run_id)
        except StoreRestored:
            log.warning("run %d is not of this generation of the store: it is left as it is there", run_id)

    def _mode(self) -> str:
        rollout = self._settings.rollout
        order = "by priority" if rollout.smart_scheduling else "in the order of their seeds"
        hold = "held by claims" if rollout.claim_protocol else "by this worker alone (claims are off)"
        return f"domains are chosen {order} and {hold}"

    # The work ---------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        self.context.batch_writer.start()
        self.context.batch_writer.on_failure(self._on_commits_ended)
        self._extraction.start()
        await self._look_at_disks()  # before the first fetch
        housekeeping = [
            asyncio.create_task(task)
            for task in (self._sweep(), self._watch_edits(), self._give_back_overdue(), self._watch_disks())
        ]
        for task in housekeeping:
            task.add_done_callback(self._on_task_done)
        try:
            await self._reclaim()
            while not self._stop.is_set():
                claimed = await self._claim() or (await self._next_round() and await self._claim())
                over = not claimed and not self._visits and await self._job_is_finished()
                if over and self._extraction.finished():
                    break
                await self._wait(self._settings.worker.idle.total_seconds())
        except StoppedWaiting:
            if not self._stop.is_set():
                raise
        finally:
            for task in housekeeping:
                task.cancel()
            await asyncio.gather(*housekeeping, return_exceptions=True)
            await self._shut_down()

    async def _reclaim(self) -> None:
        """Reclaim the domains of an earlier process of this name. Its last request may be unknown: a full delay passes first."""
        asked_at = self._clock.now()
        generation = self._generation.number
        taken = await self._db.call(
            claims.reclaim, worker=self.context.worker, lease=self._lease, generation=generation
        )
        if taken:
            log.info("reclaimed %d domains of an earlier process of this name", len(taken))
            self._leases.add(((claim.domain_id, claim.epoch) for claim in taken), asked_at)
            await self._start_visits(taken, await self._rotation.next_job())

    async def _claim(self) -> int:
        """Claim domains for the free slots; return how many were claimed."""
        room = self._settings.worker.domains - len(self._visits)
        count = min(room, self._settings.claims.batch)
        if self.context.batch_writer.problem is not None:
            return 0  # another machine may have room; domains that are held are given back to it as overdue
        # Without acknowledged heartbeats other workers may take domains over, and no request could start on new ones.
        job = await self._rotation.next_job() if count > 0 and self._leases.may_request else None
        count = 0 if job is None else await self._claim_share.claim_limit(job.id, count)
        if job is None or not count:
            return 0
        asked_at = self._clock.now()
        disconnects = self._db.disconnects
        taken = await self._db.call(
            claims.claim,
            worker=self.context.worker,
            job_id=job.id,
            count=count,
            lease=self._lease,
            by_priority=self._settings.rollout.smart_scheduling,
            generation=self._generation.number,
        )
        if self._db.disconnects != disconnects:
            # A claim may have been granted and its result lost: reclaim what is held under this name and not known here.
            mine = [domain_id for domain_id, _ in self._leases.tenures()] + [claim.domain_id for claim in taken]
            taken += await self._db.call(
                claims.reclaim,
                worker=self.context.worker,
                lease=self._lease,
                exclude=mine,
                generation=self._generation.number,
            )
        self._leases.add(((claim.domain_id, claim.epoch) for claim in taken), asked_at)
        await self._start_visits(taken, job)
        return len(taken)

    async def _start_visits(self, taken: list[Claim], job: Job | None) -> None:
        if not taken:
            return
        ids = {claim.domain_id for claim in taken}
        for before in [visit for visit in self._visits if visit.domain_id in ids]:
            before.lose_claim()  # its lease ended unnoticed, and the domain was claimed again
        states, job = await self._load_states(sorted(ids), job)
        for claim in taken:
            if job is None or claim.domain_id not in states:
                # Its last request may be unknown: no request to it before a delay has passed.
                delay = states[claim.domain_id].crawl_delay if claim.domain_id in states else None
                await self._release(VisitEnd(claim.domain_id, claim.epoch, crawled=False, wait=delay))
                continue
            state = states[claim.domain_id]
            try:
                secrets = headers_by_origin((secret, self._config.unseal(secret.sealed)) for secret in state.secrets)
            except SettingsError as problem:
                # Without them the site would return its login page, and be marked for it.
                log.warning(
                    "%s is not crawled: its headers, cookies or password cannot be opened. %s", claim.domain, problem
                )
                await self._release(VisitEnd(claim.domain_id, claim.epoch, crawled=False, wait=SEALED_RETRY_SECONDS))
                continue
            visit = Visit(self.context, claim, job, state, self._rotation.scope(job), secrets)
            task = asyncio.create_task(self._run_visit(visit), name=f"visit {claim.domain}")
            self._visits[visit] = task
            if self._stop.is_set():
                visit.stop()

    async def _load_states(
        self, domain_ids: list[int], job: Job | None
    ) -> tuple[dict[int, visit_state.VisitState], Job | None]:
        """Return the states of domains that are held now, and the job as it is now.

        A visit that begins after an edit goes by it, so whatever links of older rules are stored, the edit's wake finds them.
        """
        while True:
            edited_scope = job.spec.scope if job is not None and job.rules_version else None
            states = await self._db.call(
                visit_state.load,
                domain_ids,
                None if job is None else job.id,
                edited_scope=edited_scope,
                images=job is not None and job.spec.images,
                checks=job is not None and job.spec.check_external,
            )
            if job is None or all(state.job_version == job.settings_version for state in states.values()):
                return states, job
            try:
                job = await self._rotation.reload(job)
            except NotFound:  # deleted meanwhile
                return states, None

    async def _run_visit(self, visit: Visit) -> None:
        try:
            ending = await visit.run()
            if ending is not None:
                await self._release(ending)
        except StoppedWaiting:
            log.warning("%s: ended without a release, the database is unavailable", visit.domain)
        except StoreRestored as problem:
            self._fail(str(problem))
        except Exception:
            log.exception("%s: the visit failed", visit.domain)
            self._fail(f"The visit of {visit.domain} failed with an internal error.")
        finally:
            self._leases.drop(visit.tenure)
            self._visits.pop(visit, None)
            self._changed.set()

    async def _release(self, ending: VisitEnd) -> None:
        try:
            status = await self._db.call(
                release.release, worker=self.context.worker, ending=ending, cooldown=self._cooldown
            )
            log.debug("domain %d released: %s", ending.domain_id, status)
        except ClaimLost:
            self._counters.fenced_writes += 1
            log.info("domain %d was held by another worker at its release", ending.domain_id)
        finally:
            self._leases.drop((ending.domain_id, ending.epoch))

    async def _job_is_finished(self) -> bool:
        """Whether the job has nothing to do now, or within `crawl.patience`."""
        if self._config.job_id is None:
            return False
        job = await self._rotation.job(self._config.job_id)
        crawl_id = job.crawl_id or 0
        if await self._rotation.not_runnable([job.id]):
            return True
        standing = await self._db.call(crawls.status, job.id, crawl_id)
        patience = self._settings.crawl.patience.total_seconds()
        soon = standing.next_in is not None and standing.next_in <= patience
        if standing.wakes or (standing.next_in is not None and standing.next_in <= 0):
            self._sweep_soon.set()
        if standing.held or standing.ready or standing.wakes or standing.yielding or soon:
            return False
        return not await self._db.call(rounds.advance, job.id, crawl_id)

    async def _next_round(self) -> bool:
        """Advance domains of the job that wait for the next round; return whether one can be claimed. Before: nothing could be.

        A worker for all jobs has done this when it read which of them are runnable.
        """
        if self._config.job_id is None or len(self._visits) >= self._settings.worker.domains:
            return False
        job = await self._rotation.job(self._config.job_id)
        if job.crawl_id is None or not await self._db.call(rounds.has_waiting, job.id, job.crawl_id):
            return False
        return await self._db.call(rounds.advance, job.id, job.crawl_id)

    # Housekeeping -----------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Run the periodic sweep: wake, expire and cool down. Any worker may do it; one at a time does."""
        every = self._settings.claims.sweep_interval.total_seconds()
        while True:
            swept = await self._sweeper.call(
                sweeper.sweep,
                run_silence=max(4 * self._settings.worker.heartbeat, self._lease),
                refresh=self._settings.rollout.refresh_mode,
            )
            folded = await self._sweeper.call(stats.fold)
            for fault in (*swept.faults, *folded.faults):
                log.error("sweep: %s", fault)
            if swept.woken or swept.expired or swept.abandoned or swept.cooled or swept.delayed or swept.jobs:
                self._changed.set()
            await self._check_background()
            self._sweep_soon.clear()
            await wait_for_event(self._sweep_soon, every * self._rng.uniform(0.8, 1.2))

    async def _check_background(self) -> None:
        """Raise an alert if work is due that no background process does. A background resolves it."""
        if self._clock.now() < self._next_check:
            return
        self._next_check = self._clock.now() + CHECK_BACKGROUND_SECONDS
        try:
            await self._sweeper.call(self._config.check_background)
        except StoreError as problem:
            log.error("whether a background process runs is not known: %s", problem)  # noqa: TRY400 — no traceback

    async def _watch_disks(self) -> None:
        while True:
            await self._clock.sleep(DISK_SECONDS)
            await self._look_at_disks()

    async def _look_at_disks(self) -> None:
        """Pause fetching while a disk of this machine has too little room, and resume it by itself."""
        writer = self.context.batch_writer
        full = await asyncio.to_thread(self._disks.look)
        if self._stop.is_set():
            return  # `stop` has ended the pause
        if full is not None:
            if not self._paused_by_disk:
                log.error("%s; it goes on when there is more room", full.text)
            writer.pause(full)
        elif self._paused_by_disk:
            log.warning("there is room again: fetching goes on")
            writer.resume()
            self._changed.set()
        self._paused_by_disk = full is not None

    async def _watch_edits(self) -> None:
        """End visits whose job was paused, cancelled or deleted, whose domain must be retried now, and whose domain or job was edited: at
        once after a notification, else within a second or two."""
        proxies: tuple[int, int, int] | None = None
        while True:
            await wait_for_event(self._jobs_changed, JOB_POLL)
            self._jobs_changed.clear()
            visits = list(self._visits)
            job_ids = {visit.job.id for visit in visits} | ({self._config.job_id} if self._config.job_id else set())
            through_proxies = any(visit.uses_proxies for visit in visits)
            now = await self._db.call(
                edits.current_versions, [visit.domain_id for visit in visits], job_ids, proxies=through_proxies
            )
            await self._rotation.reload_edited(
                now.jobs
            )  # before their visits end: the next visits need the new settings
            for visit in visits:
                job, domain = now.jobs.get(visit.job.id), now.domains.get(visit.domain_id)
                if job is None or not job.runnable:
                    visit.pause_job()
                elif domain is not None and domain.retry:
                    visit.stop()  # its failures are out of date; its release makes the domain ready again
                elif domain is not None and (domain.settings_version, job.settings_version) != (
                    visit.settings_version,
                    visit.job.settings_version,
                ):
                    visit.settings_changed(domain.crawl_delay, self._rotation.current(visit.job))
            if through_proxies and now.proxies != proxies:
                proxies = now.proxies
                await self.context.proxies.refresh(since=self._clock.now())

    async def _give_back_overdue(self) -> None:
        """At each heartbeat interval, release domains that this worker is too busy to visit, if another worker is idle."""
        while True:
            await self._clock.sleep(self._settings.worker.heartbeat.total_seconds())
            for visit in await self._claim_share.visits_to_give_back(list(self._visits), self.context.worker):
                log.info("%s is given back: another worker is idle", visit.domain)
                visit.stop()

    def _on_notification(self) -> None:
        """Check jobs and claims at once: a notification says that jobs, domains or proxies have changed."""
        self._jobs_changed.set()
        self._changed.set()

    async def _wait(self, seconds: float) -> None:
        self._changed.clear()
        if self._stop.is_set():
            return
        await wait_for_event(self._changed, seconds)

    async def _shut_down(self) -> None:
        self._set_stop_deadline()
        for visit in self._visits:
            visit.stop()
        if self._visits:
            await asyncio.wait(
                list(self._visits.values()), timeout=self._settings.worker.drain.total_seconds() + 2 * STOP_GRACE
            )
        await self.context.proxies.close()
        await self.context.batch_writer.close()
        await self._extraction.close()
        await self.context.parser.aclose()
        await self.context.images.aclose()

    def _lose_claims(self, held: set[tuple[int, int]]) -> None:
        """End the visits of these tenures (domain id, epoch), and not that of a later one of the same domain."""
        for visit in [visit for visit in self._visits if visit.tenure in held]:
            visit.lose_claim()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if (
            not task.cancelled()
            and (problem := task.exception()) is not None
            and not isinstance(problem, StoppedWaiting)
        ):
            if isinstance(problem, StoreRestored):
                self._fail(str(problem))
                return
            log.error("%s ended", task, exc_info=problem)
            self._fail(f"Housekeeping ended with an internal error: {problem}")

    def _on_commits_ended(self, why: str) -> None:
        """Stop without waiting for visits: nothing that they have can be committed any more."""
        self._fail(why)
        for visit in list(self._visits):
            visit.lose_claim()

    def _fail(self, why: str) -> None:
        """Stop because of an internal error, or because another worker has this name; `run` raises the reason."""
        if self._failure is None:
            self._failure = why
            log.error("%s", why)
        self.stop()


def _from_thread(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(function)
