"""The background process: event loop, signals, and reconnecting to an unavailable database.

The rule: it may be killed at any moment, and any number of them may run: due work is recorded in the database, which lets one process do
each piece of it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import procrastinate
import uvloop
from procrastinate import exceptions

from holdfast.background.daemon_thread import call_in_daemon_thread
from holdfast.background.queues import QueueHandlers, make_app
from holdfast.backups import follower
from holdfast.backups.service import BackupService
from holdfast.control.maintenance import Maintenance
from holdfast.control.parse_phase import ParsePhase
from holdfast.control.scheduler import Scheduler
from holdfast.crawler.db_thread import DbThread, StoppedWaiting
from holdfast.crawler.problems import DiskGuard, disk_problems, outage_problems
from holdfast.crawler.segment_uploader import SegmentUploader
from holdfast.crawler.worker_process import run_until_stopped
from holdfast.db import store_move
from holdfast.db.connection import Database
from holdfast.errors import HoldfastError, Refused, StoreError, UnderWay
from holdfast.model.activity import WorkerProblem
from holdfast.operations.service import OperationRunner
from holdfast.retention.service import RetentionService, Stopped
from holdfast.search.service import SearchService
from holdfast.telemetry.disk_space import DiskWatch
from holdfast.webhooks.sender import Sender

log: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""Seconds between attempts to reach an unavailable database, and between looks for a due operation."""
INDEX_SECONDS: Final = 5.0
"""Seconds between two updates of the search index."""
RETENTION_SECONDS: Final = 20.0
"""Seconds between two looks whether retention is due."""
BACKUP_SECONDS: Final = 10.0
"""Seconds between two looks whether a backup is due."""
FOLLOW_SECONDS: Final = 5.0
"""Seconds between attempts to follow the log of the server, and so for which more than `backup.wal_limit` may be kept."""
SHUTDOWN_SECONDS: Final = 5.0
"""Seconds that running jobs have to end after a stop."""
STALLED_AFTER_SECONDS: Final = 30.0
"""Seconds without a heartbeat after which a background process counts as dead."""


@dataclass(frozen=True, slots=True)
class BackgroundServices:
    """The services of a background process. Created in the event loop that runs them."""

    scheduler: Scheduler
    parsing: ParsePhase
    sender: Sender
    parse_concurrency: int
    """The number of tasks parsed at the same time."""
    maintenance: Maintenance = field(default_factory=Maintenance)
    disks: DiskWatch = field(default_factory=lambda: DiskWatch({}, min_free=0, warn_free=0))
    """The volumes of this machine."""
    operator: OperationRunner | None = None
    """Runs long operations; None: not in this process."""
    search: SearchService | None = None
    """Keeps the search index of this machine up to date; None: not in this process."""
    uploader: SegmentUploader | None = None
    """Uploads what workers of this machine left of the archive; None: there is no object store."""
    retention: RetentionService | None = None
    """Archives and deletes what is old, and vacuums, at the times of the settings; None: not in this process."""
    backups: BackupService | None = None
    """Makes a backup each day, and follows the log of the server between; None: not in this process."""


class BackgroundProcess:
    """One background process: a queue worker and a thread for operations."""

    def __init__(self, database: Database, services: BackgroundServices) -> None:
        self._database = database
        self._db = DbThread(database, "background")
        self._disks = DiskGuard(services.disks)
        rules = replace(services.maintenance.rules, own=self._problems)
        self._services = replace(services, maintenance=replace(services.maintenance, rules=rules))
        self._stop = asyncio.Event()
        self._needs_backup = False

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Run until `stop`; `on_ready` is called when the queue is open. After: no child process or connection is left."""
        services = self._services
        app = make_app(
            self._database, QueueHandlers(self._tick, services.parsing.parse_task, services.sender.deliver_due)
        )
        stopped = asyncio.create_task(self._stop.wait())
        operations = asyncio.create_task(self._run_operations())
        indexing = asyncio.create_task(self._update_index())
        if services.uploader is not None:
            services.uploader.start()
        aging = asyncio.create_task(self._run_retention())
        backups = [asyncio.create_task(self._follow()), asyncio.create_task(self._make_backups())]
        try:
            while not self._stop.is_set():
                try:
                    async with app.open_async():
                        on_ready()
                        await self._run_worker(app, stopped)
                except (exceptions.ConnectorException, OSError) as problem:
                    log.warning("the database is away: %s", str(problem).strip().split("\n")[0])
                    await asyncio.to_thread(self._check_moved)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(stopped), RETRY_SECONDS)
        finally:
            self.stop()
            stopped.cancel()
            self._db.give_up()
            await operations
            await indexing
            if services.uploader is not None:
                await asyncio.to_thread(services.uploader.stop, SHUTDOWN_SECONDS)
            await aging
            await _end_backups(backups)
            await asyncio.to_thread(self._db.close)
            await services.parsing.aclose()
            await services.sender.aclose()

    def _check_moved(self) -> None:
        """Raise StoreMoved if another database is the store now: no attempt on this one would succeed."""
        with suppress(StoreError), self._database.session() as connection:
            store_move.check(connection)

    def _problems(self) -> list[WorkerProblem]:
        """Problems of this machine, for the rules of alerts. Called on the thread of the database."""
        self._disks.look()
        return [*disk_problems(self._disks), *outage_problems(self._db.last_outage)]

    def stop(self) -> None:
        """Start no more work; running jobs have SHUTDOWN_SECONDS to end."""
        self._stop.set()
        if self._services.operator is not None:
            self._services.operator.stop()

    async def _run_worker(self, app: procrastinate.App, stopped: asyncio.Task[bool]) -> None:
        await self._remove_stalled_jobs(app)
        worker = asyncio.create_task(
            app.run_worker_async(
                concurrency=self._services.parse_concurrency + 2,
                install_signal_handlers=False,
                shutdown_graceful_timeout=SHUTDOWN_SECONDS,
                delete_jobs="always",
                update_heartbeat_interval=STALLED_AFTER_SECONDS / 3,
                stalled_worker_timeout=STALLED_AFTER_SECONDS,
            )
        )
        try:
            await asyncio.wait({worker, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not worker.done():
                worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    async def _run_operations(self) -> None:
        """Run long operations one after the other, in a thread."""
        operator = self._services.operator
        while operator is not None and not self._stop.is_set():
            try:
                busy = await asyncio.to_thread(operator.work)
            except HoldfastError as problem:
                log.warning("operations wait for the database: %s", problem)
                busy = False
            except Exception:
                log.exception("operations: a fault of ours")
                busy = False
            if not busy:
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await self._stop.wait()

    async def _update_index(self) -> None:
        """Bring the search index of this machine up to the database, again and again, in a thread."""
        search, said = self._services.search, ""
        while search is not None and not self._stop.is_set():
            try:
                await asyncio.to_thread(search.update, stopped=self._stop.is_set)
                said = ""
            except UnderWay:
                pass  # a command of a person does it at the moment
            except HoldfastError as problem:
                if str(problem) != said:
                    said = str(problem)
                    log.warning("the search index stays as it is, and is tried again: %s", said)
            except Exception:
                log.exception("search index: a fault of ours")
            with suppress(TimeoutError):
                async with asyncio.timeout(INDEX_SECONDS):
                    await self._stop.wait()

    async def _run_retention(self) -> None:
        """Run retention and the vacuum of all tables when they are due, in a thread."""
        retention = self._services.retention
        while retention is not None and not self._stop.is_set():
            try:
                if await asyncio.to_thread(retention.is_due):
                    result = await asyncio.to_thread(retention.run, stopped=self._stop.is_set)
                    log.info("retention: %d archives written", sum(step.archives for step in result.steps))
                    for step in result.steps:
                        if step.problem is not None:
                            log.warning("retention: the step %s stopped: %s", step.step, step.problem)
                elif await asyncio.to_thread(retention.vacuum_if_due, self._stop.is_set):
                    log.info("all tables are vacuumed and analyzed")
            except Stopped:
                return
            except UnderWay:
                pass  # another machine, or a command of a person
            except HoldfastError as problem:
                log.warning("retention waits: %s", problem)
            except Exception:
                log.exception("retention: a fault of ours")
            with suppress(TimeoutError):
                async with asyncio.timeout(RETENTION_SECONDS):
                    await self._stop.wait()

    async def _follow(self) -> None:
        """Keep the log of the bundled server, in a daemon thread, while another process does not."""
        backups, ended, said = self._services.backups, threading.Event(), ""
        if backups is None or backups.shared:
            return
        if not backups.follows:
            try:
                if await call_in_daemon_thread(follower.abandon, backups):
                    log.info("the server keeps no log for backups any more: backup.daily is off")
            except (HoldfastError, OSError) as problem:
                log.warning("it is not known whether the server keeps log for backups: %s", problem)
            return
        stopping = asyncio.create_task(self._stop.wait())
        while not self._stop.is_set():
            try:
                following = asyncio.create_task(
                    call_in_daemon_thread(follower.follow, backups, self._stop.is_set, ended.wait, self._on_followed)
                )
                await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
                ended.set()
                await following
            except Refused:
                pass  # another process follows, or the log was given up, which is recorded
            except (HoldfastError, OSError) as problem:
                if str(problem) != said:
                    said = str(problem)
                    log.warning("%s It is tried again.", said)
            except Exception:
                log.exception("backups: a fault of ours")
            self._needs_backup = False
            ended.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_SECONDS):
                    await self._stop.wait()

    def _on_followed(self, reached: follower.Follow | None, needs_backup: bool) -> None:
        self._needs_backup = needs_backup and reached is not None

    def _check_stopped(self, _what: str, _bytes: int) -> None:
        """Give a backup up when the process is stopped: the next one begins anew."""
        if self._stop.is_set():
            raise Refused("The background was stopped before the backup was complete.")

    async def _make_backups(self) -> None:
        """Make the daily backup when it is due, and one that the log can continue if there is none, in a daemon thread."""
        backups = self._services.backups
        while backups is not None and backups.settings.daily and not self._stop.is_set():
            try:
                if await call_in_daemon_thread(backups.is_due, wanted=self._needs_backup):
                    made = await call_in_daemon_thread(backups.make_daily, self._check_stopped)
                    log.info("backup %s is complete", made.name)
            except Refused as problem:
                log.warning("%s", problem)
            except HoldfastError as problem:
                log.warning("the daily backup failed, and is tried again within an hour: %s", problem)
            except Exception:
                log.exception("backups: a fault of ours")
            with suppress(TimeoutError):
                async with asyncio.timeout(BACKUP_SECONDS):
                    await self._stop.wait()

    async def _remove_stalled_jobs(self, app: procrastinate.App) -> None:
        """Delete queue jobs whose worker died; the next tick queues their work again."""
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_AFTER_SECONDS):
            await app.job_manager.finish_job(job, status=procrastinate.jobs.Status.FAILED, delete_job=True)

    async def _tick(self) -> None:
        services = self._services
        for name, task in {"schedule": services.scheduler.tick, **services.maintenance.duties()}.items():
            try:
                await self._db.call(task)
            except StoppedWaiting:
                return
            except Exception:
                log.exception("%s: a fault of ours", name)  # the other tasks still run, and this one stays due


async def _end_backups(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until the follower and the backup under way have ended, unless the folder of backups does not answer."""
    _, left = await asyncio.wait(tasks, timeout=SHUTDOWN_SECONDS)
    if left:
        log.warning("the folder of backups does not answer: what is under way there is left, as by a kill")
    for task in left:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run_background(database: Database, services: Callable[[], BackgroundServices], *, supervised: bool = False) -> bool:
    """Run a background process in the main thread until it ends; returns whether a signal stopped it."""

    async def main() -> bool:
        background = BackgroundProcess(database, services())
        return await run_until_stopped(background.run(), background.stop, supervised=supervised)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
