"""Crawls as tests drive them: workers in threads of this process, or `holdfast` as a program where processes matter.

The store, exit codes and the sites' own logs judge them; nothing here looks into a worker.
"""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from unittest import mock

import psycopg

from holdfast import factories
from holdfast.cli.app import run
from holdfast.crawler.worker import Worker
from holdfast.db.connection import Database
from holdfast.jobs.crawls import CrawlRequest, CrawlService, FinishedCrawl, StartedCrawl
from holdfast.jobs.seed_import import SeedImporter
from holdfast.model.job import Job
from holdfast.settings import Settings
from holdfast.testing.simweb.access_log import Hit, boot_ns
from holdfast.testing.simweb.process import WebProcess
from tests.support.cli import Answer, command
from tests.support.invariants import violations

FAST: Final[dict[str, dict[str, object]]] = {
    "claims": {"sweep_interval": 0.2},
    "worker": {"idle": 0.05, "heartbeat": 0.5},
    "flush": {"seconds": 0.1},
    "fetch": {"timeout": 4, "connect_timeout": 2, "allow_private": True},
    "politeness": {"retry_delay": 0.05},
    "domains": {"crawl_delay": 0},
    "crawl": {"patience": 3, "sitemaps": "no"},
}
"""Everything that a crawl waits for, made short; and no requests but those that a test is about."""

PATIENCE: Final = 60.0
_NOT_OURS: Final = ("HOLDFAST_", "ENABLE_", "DOMAIN_STATS_")


def wait_for(condition: Callable[[], object], what: str = "it", seconds: float = PATIENCE) -> None:
    """Return when `condition` holds; fail after a generous while."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.01)


def now() -> float:
    """This moment on the clock of the sites' logs."""
    return boot_ns() / 1e9


def hits(web: WebProcess, *sites: int, since: float = 0.0) -> list[Hit]:
    """What these sites (or all) were asked for, after `since` on their clock."""
    hosts = {web.address.host(site) for site in sites}
    return [hit for hit in web.log() if (not sites or hit.host in hosts) and hit.at >= since]


def pages(found: Iterable[Hit]) -> list[Hit]:
    """Without robots.txt."""
    return [hit for hit in found if not hit.path.startswith("/robots")]


def environment(database: Database, groups: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """The settings as variables, and nobody else's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    named = {
        f"HOLDFAST_{group}_{name}".upper(): _written(value)
        for group, values in groups.items()
        for name, value in values.items()
    }
    return kept | named | {"HOLDFAST_DATABASE_URL": database.url}


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value.total_seconds()}s" if isinstance(value, timedelta) else str(value)


class Program:
    """`holdfast` as a process of its own."""

    def __init__(self, arguments: Iterable[str], environ: dict[str, str], folder: Path) -> None:
        self._out, self._err = folder / f"out-{time.monotonic_ns()}", folder / f"err-{time.monotonic_ns()}"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command(*arguments), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ, cwd=folder
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        """Its standard error so far."""
        return self._err.read_text()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def end(self) -> Answer:
        """How it ended, when it has."""
        code = self._process.wait(PATIENCE)
        return Answer(code, self._out.read_text(), self._err.read_text())


class WorkerThread:
    """A worker in a thread of this process, with an event loop of its own."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self.problem: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the worker does not stop"

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._worker.run())
        except BaseException as problem:  # noqa: BLE001 — told to the thread that waits
            self.problem = problem
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def stop(self) -> None:
        """Ask it to stop."""
        if self._thread.is_alive() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._worker.stop)

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Wait until it has ended by itself, in order."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the worker does not end"
        if self.problem is not None:
            raise self.problem


@dataclass
class Crawls:
    """Crawls on a test's database."""

    database: Database
    connection: psycopg.Connection
    folder: Path
    groups: dict[str, dict[str, object]] = field(default_factory=lambda: {name: dict(of) for name, of in FAST.items()})

    def set(self, **groups: Mapping[str, object]) -> None:
        """Change settings for what follows."""
        for name, values in groups.items():
            self.groups.setdefault(name, {}).update(values)

    @property
    def settings(self) -> Settings:
        return Settings.model_validate({"data": self.folder / "data", **self.groups})

    @property
    def desk(self) -> CrawlService:
        settings = self.settings
        importer = SeedImporter(
            self.database, factories.url_rules(settings), factories.new_domains(settings), registrable=False
        )
        return CrawlService(self.database, importer)

    def begin(self, *urls: str, job: str | None = None, again: bool = False, **options: object) -> StartedCrawl:
        """What `holdfast crawl` does before it starts a worker; options are those of a JobSpec."""
        return self.desk.begin(CrawlRequest(urls, None, job, dict(options), again))

    def worker(self, job: Job | None, name: str = "w1") -> WorkerThread:
        """A worker that serves this job, or all of them; it begins with `with`."""
        job_id = job.id if job else None
        return WorkerThread(Worker(factories.worker_config(self.settings, self.database, name, job_id)))

    def crawl(self, *urls: str, workers: int = 1, **options: Any) -> FinishedCrawl:
        """A whole crawl, from its seeds to its end; its workers bear the names that `holdfast crawl` gives."""
        job = self.begin(*urls, **options).job
        threads = [self.worker(job, factories.worker_name(number)) for number in range(1, workers + 1)]
        for thread in threads:
            thread.__enter__()
        try:
            for thread in threads:
                thread.end()
        finally:
            for thread in threads:
                thread.__exit__(None, None, None)
        return self.desk.end(job)

    # as a program

    def environ(self, **variables: str) -> dict[str, str]:
        return environment(self.database, self.groups) | variables

    def start(self, *arguments: str, **variables: str) -> Program:
        """`holdfast` with these arguments, in the background."""
        return Program(["--data", str(self.folder / "data"), *arguments], self.environ(**variables), self.folder)

    def run(self, *arguments: str, **variables: str) -> Answer:
        """`holdfast` with these arguments, to its end."""
        with self.start(*arguments, **variables) as program:
            return program.end()

    def command(self, *arguments: str, **variables: str) -> int:
        """`holdfast` with these arguments in this process; its exit code."""
        with mock.patch.dict(os.environ, self.environ(**variables), clear=True):
            return run(["--data", str(self.folder / "data"), *arguments])

    # what the store says

    def value(self, query: str, *parameters: object) -> Any:
        row = self.connection.execute(query.encode(), parameters).fetchone()
        return row[0] if row else None

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode(), parameters).fetchall()

    def domain(self, name: str) -> dict[str, Any]:
        """A domain's row."""
        found = self.value("SELECT to_jsonb(d) FROM domains d WHERE domain = %s", name)
        assert found is not None, f"there is no domain {name}"
        return dict(found)

    def pages_of(self, name: str) -> int:
        """Pages of a domain so far, whether it is known yet or not."""
        return int(self.value("SELECT pages_crawled FROM domains WHERE domain = %s", name) or 0)

    def total(self) -> int:
        """Pages so far."""
        return int(self.value("SELECT COALESCE(sum(pages_crawled), 0) FROM domains"))

    def frontier(self, like: str = "%") -> dict[str, tuple[str, str | None]]:
        """State and reason of the URLs that look like that."""
        found = self.rows("SELECT url, state::text, reason FROM url_frontier WHERE url LIKE %s", like)
        return {url: (state, reason) for url, state, reason in found}

    def outcomes(self, like: str = "%") -> dict[str, list[str]]:
        """What came of URLs that look like that, attempt by attempt."""
        found = self.rows(
            "SELECT f.url, array_agg(l.outcome ORDER BY l.crawled_at) FROM crawl_log l JOIN url_frontier f "
            "USING (domain_id, job_id, url_key) WHERE f.url LIKE %s GROUP BY f.url",
            like,
        )
        return dict(found)

    def held(self) -> int:
        return int(self.value("SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL"))

    def verify(self) -> None:
        """Fail, naming every invariant that does not hold."""
        assert violations(self.connection) == {}


def figures(answer: Answer) -> dict[str, Any]:
    """What `crawl --json` answered."""
    found: dict[str, Any] = json.loads(answer.out)
    return found
