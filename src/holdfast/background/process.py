"""The background as a process: its event loop, its signals, its patience with a database that is away.

The rule: it may be killed at any moment, and any number of them may run: what is due is in the store, and the store lets one of them do
each thing.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import procrastinate
import uvloop
from procrastinate import exceptions

from holdfast.background.app import Deeds, make
from holdfast.control.operations import Operator
from holdfast.control.parsing import ParsePhase
from holdfast.control.schedule import Scheduler
from holdfast.control.sending import Sender
from holdfast.control.upkeep import Upkeep
from holdfast.engine.desk import Away, Desk
from holdfast.engine.process import until_told
from holdfast.errors import HoldfastError
from holdfast.store.connect import Database

log: Final = logging.getLogger(__name__)

PAUSE: Final = 1.0
"""Seconds until a database that is away is tried again."""
GRACE: Final = 5.0
"""Seconds that what is under way has to end when it is told to stop."""
TIDY: Final = 30.0
"""Seconds without a heartbeat after which a background counts as dead."""


@dataclass(frozen=True, slots=True)
class Crew:
    """Who does the work. It is made in the event loop that it works in."""

    scheduler: Scheduler
    parsing: ParsePhase
    sender: Sender
    at_once: int
    """Tasks that are parsed at the same time."""
    upkeep: Upkeep = field(default_factory=Upkeep)
    operator: Operator | None = None
    """Who does long work; None: nobody here."""


class Background:
    """One background process at work."""

    def __init__(self, database: Database, crew: Crew) -> None:
        self._database = database
        self._crew = crew
        self._desk = Desk(database, "background")
        self._stop = asyncio.Event()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Work until told to stop; `ready` is called once when it begins. After: no process or connection of ours is left."""
        crew = self._crew
        app = make(self._database, Deeds(self._tick, crew.parsing.parse_task, crew.sender.deliver_due))
        stopped = asyncio.create_task(self._stop.wait())
        operating = asyncio.create_task(self._operate())
        try:
            while not self._stop.is_set():
                try:
                    async with app.open_async():
                        ready()
                        await self._work(app, stopped)
                except (exceptions.ConnectorException, OSError) as problem:
                    log.warning("the database is away: %s", str(problem).strip().split("\n")[0])
                    with suppress(TimeoutError):
                        await asyncio.wait_for(asyncio.shield(stopped), PAUSE)
        finally:
            self.stop()
            stopped.cancel()
            self._desk.give_up()
            await operating
            await asyncio.to_thread(self._desk.close)
            await crew.parsing.aclose()
            await crew.sender.aclose()

    def stop(self) -> None:
        """Begin nothing more; what is under way has a moment to end."""
        self._stop.set()
        if self._crew.operator is not None:
            self._crew.operator.stop()

    async def _work(self, app: procrastinate.App, stopped: asyncio.Task[bool]) -> None:
        await self._forget_the_dead(app)
        worker = asyncio.create_task(
            app.run_worker_async(
                concurrency=self._crew.at_once + 2,
                install_signal_handlers=False,
                shutdown_graceful_timeout=GRACE,
                delete_jobs="always",
                update_heartbeat_interval=TIDY / 3,
                stalled_worker_timeout=TIDY,
            )
        )
        try:
            await asyncio.wait({worker, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not worker.done():
                worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker

    async def _operate(self) -> None:
        """Do long work, one operation after the other, in a thread of its own."""
        operator = self._crew.operator
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
                    async with asyncio.timeout(PAUSE):
                        await self._stop.wait()

    async def _forget_the_dead(self, app: procrastinate.App) -> None:
        """Bells that somebody took and died with: what they were rung for is rung for again."""
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=TIDY):
            await app.job_manager.finish_job(job, status=procrastinate.jobs.Status.FAILED, delete_job=True)

    async def _tick(self) -> None:
        crew = self._crew
        for name, duty in {"schedule": crew.scheduler.tick, **crew.upkeep.duties()}.items():
            try:
                await self._desk.call(duty)
            except Away:
                return
            except Exception:
                log.exception("%s: a fault of ours", name)  # the others are done all the same, and it is due again


def run_background(database: Database, crew: Callable[[], Crew], *, supervised: bool = False) -> bool:
    """Run a background in this process, from its main thread, until it ends; True if it was told to stop."""

    async def main() -> bool:
        background = Background(database, crew())
        return await until_told(background.run(), background.stop, supervised=supervised)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
