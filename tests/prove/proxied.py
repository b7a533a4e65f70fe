"""Crawls under faults whose requests go through proxies, which die, hang and come back all the while; one of them always works.

The rule: whatever befalls workers and proxies, nothing reaches a site but through a proxy, and the crawl ends like one without any of
it. A request that did not get through, or of which nobody knows whether it did, may have been made once more; the log has it.
"""

import random
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from holdfast.control.secret_box import SecretBox
from holdfast.db.connection import Connection
from holdfast.model.proxy import parse_proxy
from holdfast.proxies.queries import proxies
from holdfast.proxies.records import ProxyOptions
from holdfast.settings import Settings
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.proxy_process import ProxyProcess
from holdfast.testing.torture.experiment import Crawl
from holdfast.testing.torture.fault_run import FaultRun, FaultRunResult, OnProgress
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import Scenario
from tests.prove.sandbox import ExternalSandbox

COUNT: Final = 4
PERIOD: Final = 3.0
SOONEST, LATEST = 0.2, 0.8
"""Seconds between two deeds of the gremlin."""
BAD: Final = ("refuse", "drop", "hang", "status")
SETTINGS: Final = {
    "proxies.use": "any",
    "proxies.rest": "0.5s",
    "proxies.max_rest": "2s",
    "proxies.period": f"{PERIOD}s",
    "fetch.timeout": "1s",
    "fetch.connect_timeout": "0.5s",
}


class Through:
    """A way to crawl under faults, through proxies."""

    def __init__(
        self, seed: int, crawl: Crawl | None = None, bad: Sequence[str] = BAD, limit: int | None = None
    ) -> None:
        """`limit`: of each proxy within PERIOD; then all of them work all the time."""
        self._seed = seed
        self._limit = limit
        self._bad = (*bad, "kill")
        self._crawl = crawl or _by_signal
        self.deeds: Counter[str] = Counter()
        """What was done to proxies."""
        self.figures: list[tuple[int, ...]] = []
        """Of each proxy in the end: requests, successes, requests that did not get through."""

    def __call__(
        self, scenario: Scenario, sandbox: Sandbox, web: WebProcess, on_progress: OnProgress
    ) -> FaultRunResult:
        assert isinstance(sandbox, ExternalSandbox)
        with running(sandbox.folder) as processes, sandbox.database().session() as connection:
            register(connection, processes, sandbox.data, self._limit)
            sandbox.more = sandbox.more | SETTINGS
            with nullcontext() if self._limit else self._gremlin(processes):
                result = self._crawl(scenario, sandbox, web, on_progress)
            if self._limit:
                result.violations += too_many(processes, self._limit)
            result.allowed_repeats += _count(connection, "SELECT count(*) FROM crawl_log WHERE outcome LIKE 'proxy%%'")
            result.violations += past_the_proxies(web, processes)
            self.figures = connection.execute(
                "SELECT requests, success_count, proxy_failures FROM proxy_totals ORDER BY id"
            ).fetchall()
        on_progress(f"proxies: {dict(self.deeds)}; requests, successes, failures: {self.figures}")
        return result

    @contextmanager
    def _gremlin(self, processes: Sequence[ProxyProcess]) -> Iterator[None]:
        """Proxies misbehave and are killed meanwhile, all but one, and it is another one each time."""
        stop, dice = threading.Event(), random.Random(self._seed)

        def work() -> None:
            while not stop.wait(dice.uniform(SOONEST, LATEST)):
                good = dice.randrange(len(processes))
                self._heal(processes[good])
                for process in dice.sample(processes, dice.randint(1, 2)):
                    if process is not processes[good]:
                        self._harm(process, dice.choice(self._bad))
                for process in dice.sample(processes, 1):
                    self._heal(process)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _harm(self, process: ProxyProcess, how: str) -> None:
        self.deeds[how] += 1
        if how == "kill":
            process.kill()
        else:
            process.behave(how, status=407)

    def _heal(self, process: ProxyProcess) -> None:
        process.behave("work")
        if not process.pid:
            process.start()


@contextmanager
def running(folder: Path) -> Iterator[list[ProxyProcess]]:
    """The proxies of a crawl, each with a password."""
    place = folder / "proxies"
    place.mkdir(parents=True)
    with ExitStack() as stack:
        names = [f"proxy{number}" for number in range(COUNT)]
        yield [
            stack.enter_context(ProxyProcess(place, name=name, user="crawler", password=f"secret of {name}"))
            for name in names
        ]


def register(connection: Connection, processes: Sequence[ProxyProcess], data: Path, limit: int | None = None) -> None:
    """Make them known to the store of a crawl that has its key in *data*."""
    safe = SecretBox.of(Settings(data=data))
    for process in processes:
        written = parse_proxy(process.url)
        options = ProxyOptions(max_requests_per_hour=limit, allow_private=True)
        new = proxies.SealedProxy(written.server, safe.seal(written.password or ""), options)
        proxies.add(connection, new, actor="proof")


def too_many(processes: Sequence[ProxyProcess], limit: int) -> list[str]:
    """Which proxy was asked more often within any PERIOD than it may be, by its own log."""
    found = []
    for process in processes:
        times = sorted(entry["at"] for entry in process.log())
        most = max((place - bisect_left(times, at - PERIOD, 0, place) + 1 for place, at in enumerate(times)), default=0)
        if most > limit or len(times) <= limit:
            found.append(f"{process.name}: {most} requests within {PERIOD} s, {len(times)} in all; {limit} are allowed")
    return found


def past_the_proxies(web: WebProcess, processes: Sequence[ProxyProcess]) -> list[str]:
    """What sites were asked for and no proxy was."""
    asked = Counter(hit.url for hit in web.log())
    asked.subtract(str(entry["target"]) for process in processes for entry in process.log())
    return [f"{url} was asked for {count} times past the proxies" for url, count in asked.items() if count > 0][:5]


def _by_signal(scenario: Scenario, sandbox: Sandbox, web: WebProcess, on_progress: OnProgress) -> FaultRunResult:
    return FaultRun(scenario, sandbox, web, on_progress).run()


def _count(connection: Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0
