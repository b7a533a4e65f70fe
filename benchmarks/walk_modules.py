"""Counts the modules of Holdfast that one URL passes between the claim of its domain and the release. Never a gate.

    python benchmarks/walk_modules.py

A worker crawls a page of the simulated web, in this process, with the bundled PostgreSQL in a folder of its own (removed at the end).
A profiler records the module of every Python function that begins between the end of the claim and the end of the release, on the
event loop, the database thread and the batch writer's thread. Heartbeat and sweeper are not recorded: no URL waits for them; and the
worker has room for one domain, so that it claims no other meanwhile.
"""

import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from holdfast import factories
from holdfast.crawler.worker import Worker
from holdfast.db import claims, embedded, migrate, release
from holdfast.db.connection import Database
from holdfast.jobs.crawls import CrawlRequest, CrawlService
from holdfast.settings import Settings
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web

NOT_ON_THE_WAY = ("heartbeat", "db-sweeper")
"""Threads (beginnings of their names) that no URL waits for."""


class Trace:
    """Records modules while a domain is held."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._held = False

    def start(self) -> None:
        """Record from the end of the first claim of a domain to the end of its release."""
        claims.claim = self._watched(claims.claim, held_after=True)
        release.release = self._watched(release.release, held_after=False)
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        """Record no more."""
        sys.setprofile(None)
        threading.setprofile(None)

    def _watched(self, function: Callable[..., Any], *, held_after: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            answer = function(*arguments, **options)
            if answer:
                self._held = held_after
            return answer

        return call

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not self._held or frame.f_code.co_name == "<module>":
            return
        name = frame.f_globals.get("__name__", "")
        if name.startswith("holdfast.") and not threading.current_thread().name.startswith(NOT_ON_THE_WAY):
            self.modules.add(name.removeprefix("holdfast."))


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    folder.chmod(0o755)
    try:
        with WebProcess(Web(1, 1, Site(pages=1, links=3))) as web:
            modules = crawl_traced(folder / "data", web.urls[0])
    finally:
        embedded.stop(folder / "data")
        shutil.rmtree(folder)
    print("\n".join(sorted(modules)))
    print(f"\n{len(modules)} modules between claim and release")


def crawl_traced(data: Path, url: str) -> set[str]:
    """Crawl a site of one page; return the modules that its URL passed."""
    settings = Settings.model_validate(
        {"data": data, "fetch": {"allow_private": True}, "flush": {"seconds": 0.1}, "worker": {"domains": 1}}
    )
    database = Database(embedded.ensure_running(data).url())
    migrate.upgrade(database)
    job = CrawlService(database, factories.seed_importer(settings, database)).begin(CrawlRequest((url,))).job
    worker = Worker(factories.worker_config(settings, database, "traced", job.id))
    trace = Trace()
    trace.start()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(worker.run())
    finally:
        trace.stop()
    return trace.modules


if __name__ == "__main__":
    main()
