"""What open pages cost the database while workers crawl the simulated web: statements, and CPU time of its processes."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import psycopg
import pytest

from holdfast.api import sse
from holdfast.dashboard import live
from holdfast.dashboard.live import INTERVAL, SLOW_INTERVAL, VIEWS
from holdfast.dashboard.rendering import query
from holdfast.model.auth import Role
from holdfast.settings import Settings
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.api import serving, settings
from tests.support.browsing import Browser, log_in
from tests.support.crawls import Crawls, wait_for

WATCHERS = 10
SECONDS = SLOW_INTERVAL
"""Of each measurement: what is read slowly is read in it, too."""
SHARE = 0.05
"""Ten open dashboards send less than this part of the statements of the crawl."""
API = "holdfast api"
SESSIONS = 1 + SECONDS / sse.KEEPALIVE
"""Times at which the sessions of the watchers are looked at, which is once for all of them."""


@dataclass(frozen=True)
class Cost:
    """What was sent to the database in a while, and the seconds of CPU that its processes took, by the name of the application."""

    statements: Counter[str]
    cpu: dict[str, float]

    @property
    def share(self) -> float:
        """The statements of the API, as a part of those of the crawl."""
        return self.statements[API] / (self.statements.total() - self.statements[API])

    def said(self) -> str:
        api, all_cpu = self.statements[API], sum(self.cpu.values())
        rest = self.statements.total() - api
        return (
            f"{api / SECONDS:.1f} statements/s of the API and {rest / SECONDS:.1f} of the crawl ({self.share:.1%}), "
            f"{self.cpu.get(API, 0.0) / SECONDS:.1%} and {(all_cpu - self.cpu.get(API, 0.0)) / SECONDS:.1%} of a CPU in the database"
        )


class Meter:
    """Counts what this process sends to the database."""

    def __init__(self, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connection = connection
        self.counts: Counter[str] = Counter()
        execute, transaction = psycopg.Cursor.execute, psycopg.Connection.transaction

        def counting(cursor: Any, *given: Any, **more: Any) -> Any:
            self.counts[cursor.connection.info.parameter_status("application_name")] += 1
            return execute(cursor, *given, **more)

        def counting_both_ends(connection: Any, *given: Any, **more: Any) -> Any:
            self.counts[connection.info.parameter_status("application_name")] += 2
            return transaction(connection, *given, **more)

        monkeypatch.setattr(psycopg.Cursor, "execute", counting)
        monkeypatch.setattr(psycopg.Connection, "transaction", counting_both_ends)

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
def polite(crawls: Crawls) -> Iterator[int]:
    """A crawl of eight domains of the simulated web by two workers, with the intervals of the settings as they are: a request a second and
    domain. It goes on for longer than the test; the id of its job."""
    plain = Settings()
    crawls.groups["flush"] = {"seconds": plain.flush.seconds.total_seconds()}
    crawls.groups["claims"] = {"sweep_interval": plain.claims.sweep_interval.total_seconds()}
    crawls.groups["worker"] = {
        "idle": plain.worker.idle.total_seconds(),
        "heartbeat": plain.worker.heartbeat.total_seconds(),
    }
    crawls.groups["domains"] = {"crawl_delay": plain.domains.crawl_delay.total_seconds()}
    with WebProcess(Web(7, 8, Site(2000, 10, 500))) as web:
        job = crawls.begin(*(web.url(site) for site in range(8)), job="shop").job
        with crawls.worker(job, "w1"), crawls.worker(job, "w2"):
            wait_for(lambda: crawls.total() >= 16, "the first pages")
            yield job.id


def test_ten_open_dashboards_send_few_statements_beside_those_of_a_polite_crawl(
    crawls: Crawls, polite: int, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None], tmp_path: Path
) -> None:
    meter = Meter(crawls.connection, monkeypatch)
    with serving(crawls.database, settings(tmp_path)) as api:
        rita = log_in(api, "rita", Role.USER)
        none = meter.during(SECONDS)
        figure(f"dashboards open: none: {none.said()}")
        assert none.statements[API] == 0, "nothing is read for views that no one has open"
        for view, parameters in (("overview", {}), ("job", {"id": str(polite)})):
            loaded = meter.of(partial(rita.get, "/overview" if view == "overview" else "/jobs/shop"))
            read = meter.of(partial(VIEWS[view].read, api.services, parameters))
            assert read == 1, "what moves is one statement"
            with ExitStack() as watching:
                crowd = [watching.enter_context(Watcher(rita, query(view, **parameters))) for _ in range(WATCHERS)]
                ten = meter.during(SECONDS)
                assert all(watcher.updates > 1 for watcher in crowd)
            wait_for(lambda: not live.regions_of(api.services).is_watched, "the end of the streams")
            figure(f"dashboards open: ten of {view}: {ten.said()}")
            assert ten.statements[API] <= SECONDS / INTERVAL + 2 + loaded + SESSIONS, "ten cost what one costs"
            assert ten.statements[API] < SHARE * (none.statements.total() - none.statements[API])
