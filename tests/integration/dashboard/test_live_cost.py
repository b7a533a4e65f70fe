"""What open pages cost the database while a worker crawls the simulated web: statements, and CPU time of its processes."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import psycopg
import pytest

from holdfast.dashboard.live import INTERVAL, VIEWS
from holdfast.model.auth import Role
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.api import serving, settings
from tests.support.browsing import Browser, log_in
from tests.support.crawls import Crawls, wait_for

WATCHERS = 10
SECONDS = 3.0
API = "holdfast api"
WATCHED = (
    *("overview", "jobs", "job?id={job}", "domains", "domain?domain={domain}", "workers", "worker?name=w1"),
    *("tasks", "webhooks", "alerts"),
)
"""Ten pages."""


@dataclass(frozen=True)
class Cost:
    """What was sent to the database in a while, and the seconds of CPU that its processes took, by the name of the application."""

    statements: Counter[str]
    cpu: dict[str, float]

    def said(self) -> str:
        api, all_cpu = self.statements[API], sum(self.cpu.values())
        rest = self.statements.total() - api
        return (
            f"{api / SECONDS:.0f} statements/s of the API and {rest / SECONDS:.0f} of the crawl, "
            f"{self.cpu.get(API, 0.0) / SECONDS:.1%} and {(all_cpu - self.cpu.get(API, 0.0)) / SECONDS:.1%} of a CPU in the database"
        )


class Meter:
    """Counts what this process sends to the database."""

    def __init__(self, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connection = connection
        self.counts: Counter[str] = Counter()
        execute = psycopg.Cursor.execute

        def counting(cursor: Any, *given: Any, **more: Any) -> Any:
            self.counts[cursor.connection.info.parameter_status("application_name")] += 1
            return execute(cursor, *given, **more)

        monkeypatch.setattr(psycopg.Cursor, "execute", counting)

    def during(self, seconds: float) -> Cost:
        """What the next seconds cost."""
        cpu, counts = self._cpu(), Counter(self.counts)
        time.sleep(seconds)
        return Cost(self.counts - counts, {name: used - cpu.get(name, 0.0) for name, used in self._cpu().items()})

    def of(self, act: Callable[[], object]) -> int:
        """How many statements the API sends for this."""
        before = self.counts[API]
        act()
        return self.counts[API] - before

    def _cpu(self) -> dict[str, float]:
        """Seconds of CPU so far, by application."""
        found: dict[str, float] = {}
        for name, pid in self._connection.execute(
            "SELECT application_name, pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ):
            with suppress(psutil.Error):  # it has ended
                times = psutil.Process(pid).cpu_times()
                found[name] = found.get(name, 0.0) + times.user + times.system
        return found


class Watcher:
    """Somebody with a live page, who counts its updates."""

    def __init__(self, browser: Browser, view: str) -> None:
        self._client = browser.api.client()
        self._client.cookies.update(browser.client.cookies)
        self._view = view
        self.updates = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_for(lambda: self.updates, f"the first regions of {self._view}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True  # it ends with its next line, or with the server

    def _run(self) -> None:
        # Its client is closed with the server.
        with suppress(httpx.TransportError), self._client.stream("GET", f"/live/{self._view}") as answer:
            for line in answer.iter_lines():
                self.updates += line == "event: regions"
                if self._stopped:
                    return


@pytest.fixture
def busy(crawls: Crawls) -> Iterator[str]:
    """A crawl of the simulated web at a polite rate, which goes on for longer than the test; the name of one of its domains."""
    crawls.set(flush={"seconds": 1.0}, claims={"sweep_interval": 5.0}, worker={"heartbeat": 1.0})
    with WebProcess(Web(7, 8, Site(2000, 10, 500))) as web:
        job = crawls.begin(*(web.url(site) for site in range(8)), job="shop", delay=0.1).job
        with crawls.worker(job):
            wait_for(lambda: crawls.total() >= 40, "the first pages")
            yield web.address.host(0)


def test_ten_watchers_of_a_page_cost_the_database_what_one_costs(
    crawls: Crawls, busy: str, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None], tmp_path: Path
) -> None:
    meter = Meter(crawls.connection, monkeypatch)
    with serving(crawls.database, settings(tmp_path)) as api, ExitStack() as watching:
        rita = log_in(api, "rita", Role.USER)
        reads = [meter.of(lambda: VIEWS["overview"].render(api.services, {}, is_admin=False)) for _ in range(2)]
        found = {"none": meter.during(SECONDS)}
        watching.enter_context(Watcher(rita, "overview"))
        found["one"] = meter.during(SECONDS)
        crowd = [watching.enter_context(Watcher(rita, "overview")) for _ in range(WATCHERS - 1)]
        found["ten"] = meter.during(SECONDS)
        assert all(watcher.updates > 1 for watcher in crowd)
        watching.close()
        job = crawls.value("SELECT id FROM crawl_jobs WHERE name = 'shop'")
        for view in WATCHED:
            watching.enter_context(Watcher(rita, view.format(job=job, domain=busy)))
        found["ten different pages"] = meter.during(SECONDS)
    for name, cost in found.items():
        figure(f"dashboards open: {name}: {cost.said()}")
    most = max(reads) * (SECONDS / INTERVAL + 2)  # of any number of watchers
    assert found["ten"].statements[API] <= most + 2 * WATCHERS, "their sessions are looked at every 15 s"
