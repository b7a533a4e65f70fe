"""A soak of the dashboard: two pages stay open in Chromium while their figures change twice a second, and must not grow.

The rule: what the first quarter of the time needs (caches, compiled code) does not count; the last quarter is compared with the second.
"""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import psutil
from playwright.sync_api import CDPSession, Error, Page

from holdfast.db.connection import Database
from holdfast.testing.torture.fault_run import OnProgress
from holdfast.testing.torture.sandbox import Sandbox
from tests.browser import chromium
from tests.prove.api_server import Served, wait_for
from tests.prove.growth import growth
from tests.prove.ledger import Entry
from tests.support import figures
from tests.support.factories import Store

CHANGE_EVERY: Final = 0.5
SAMPLE_EVERY: Final = 60.0
JOB: Final = "moves"
DOMAINS: Final = 30
SHOWN: Final = {"/overview": "#overview-now", f"/jobs/{JOB}": "#job-figures"}
"""The pages, and the region of each that shows the figure."""
LIMITS: Final = {
    "heap": (1.05, 250_000),
    "nodes": (1.0, 20),
    "listeners": (1.0, 2),
    "rss": (1.05, 5_000_000),
}
"""How much the last quarter may have of what the second had: this many times as much, and this much more."""
_METRICS: Final = {"heap": "JSHeapUsedSize", "nodes": "Nodes", "listeners": "JSEventListeners"}


def soak(minutes: int, sandbox: Sandbox, on_progress: OnProgress) -> Entry:
    """Watch two pages for so many minutes. Before: the sandbox is open, and its database has the schema."""
    if chromium.program() is None:
        return {"skipped": "there is no Chromium; `apt-get install chromium` brings it"}
    samples: dict[str, list[int]] = {}
    violations: list[str] = []
    with Served(sandbox, "--api-only") as served, chromium.browser() as browser, _moving(sandbox.database()) as moving:
        (front,) = served.fronts()
        tab = browser.new_context().new_page()
        _log_in(tab, served)
        pages = {path: tab if path == "/overview" else tab.context.new_page() for path in SHOWN}
        sessions = {path: _opened(page, served.url + path) for path, page in pages.items()}
        began = time.monotonic()
        for number in range(1, minutes + 1):
            tab.wait_for_timeout(max(0.0, began + number * SAMPLE_EVERY - time.monotonic()) * 1000)
            for path, page in pages.items():
                if not _is_live(page, SHOWN[path], moving):
                    violations.append(f"void: minute {number}, {path} does not move, or was loaded again")
                for name, value in _measured(sessions[path]).items():
                    samples.setdefault(f"{path} {name}", []).append(value)
            samples.setdefault("server rss", []).append(psutil.Process(front).memory_info().rss)
            on_progress(", ".join(f"{name} {values[-1]:,}" for name, values in samples.items()))
        violations += [f"after {moving.changes} changes, {fault}" for fault in growth(samples, LIMITS)]
    return {
        "planned": minutes,
        "landed": len(samples["server rss"]),
        "repeats": 0,
        "refused": 0,
        "changes": moving.changes,
        "samples": samples,
        "violations": violations,
    }


class _Moving:
    """Changes figures of the store until it is stopped."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopped = threading.Event()
        self.changes = 0
        self.thread = threading.Thread(target=self._run)

    def stop(self) -> None:
        self._stopped.set()
        self.thread.join()

    def _run(self) -> None:
        with self._database.connect() as connection:
            while not self._stopped.wait(CHANGE_EVERY):
                self.changes += 1
                connection.execute("UPDATE job_domains SET pages = %s, done = done + 1", (100_000 + self.changes,))
                figures.log(connection, count=10)
                if self.changes % 120 == 0:
                    figures.fold(connection)


@contextmanager
def _moving(database: Database) -> Iterator[_Moving]:
    with database.connect() as connection:
        store = Store(connection)
        store.seed(*(f"d{number}.example" for number in range(DOMAINS)), job=store.new_job(JOB))
    moving = _Moving(database)
    moving.thread.start()
    try:
        yield moving
    finally:
        moving.stop()


def _log_in(page: Page, served: Served) -> None:
    wait_for(lambda: "Password:" in served.said(), "it does not say its first password")
    password = re.search(r"Password: (\S+)", served.said())
    assert password is not None, served.said()
    page.goto(f"{served.url}/login")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(password[1])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/overview")


def _opened(page: Page, url: str) -> CDPSession:
    page.goto(url)
    page.evaluate("window.marker = 'not loaded again'")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    session.send("HeapProfiler.enable")
    return session


def _is_live(page: Page, region: str, moving: _Moving) -> bool:
    """Whether the page shows a figure that is at most a few changes old, and was not loaded again."""
    oldest = moving.changes
    with suppress(Error):  # its timeout
        page.wait_for_function(
            "([region, pages]) => (document.querySelector(region).textContent.match(/[\\d,]{7,}/g) || [])"
            ".some((shown) => Number(shown.replaceAll(',', '')) >= pages)",
            arg=[region, DOMAINS * (100_000 + oldest)],
        )
        return bool(page.evaluate("window.marker === 'not loaded again'"))
    return False


def _measured(session: CDPSession) -> dict[str, int]:
    for _ in range(2):  # what finalizers let go is collected by the second
        session.send("HeapProfiler.collectGarbage")
    found: Sequence[dict[str, float]] = session.send("Performance.getMetrics")["metrics"]
    values = {str(one["name"]): int(one["value"]) for one in found}
    return {name: values[metric] for name, metric in _METRICS.items()}
