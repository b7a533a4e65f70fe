"""A job that is paused again and again under eight workers, which are killed in every other pause; also one with a million domains."""

import random
import time
from collections.abc import Callable, Sequence

from holdfast.db.connection import Connection
from holdfast.jobs.service import JobService
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.torture import checks
from holdfast.testing.torture.fault_run import JOB, FaultRunResult, InjectedFault, OnProgress
from holdfast.testing.torture.process import CrawlProcess
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import Fault, Scenario, crawl_settings
from tests.prove.sandbox import begin

WORKERS = 8
WITHIN = 2.0
"""Seconds in which nothing of a paused job may be held any more."""
QUIET = 1.5
PATIENCE = 120.0

_HELD = "SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL"
_STATE = "SELECT state::text FROM crawl_jobs WHERE name = %s"

# Servers of one page each, all of them the simulated web's: it answers 404 for a host that it does not know.
_MILLION = """
WITH job AS (SELECT id FROM crawl_jobs WHERE name = %(job)s), made AS (
    INSERT INTO domains (domain, parent_domain, base_url, source, pages_discovered, frontier_size, priority_score, crawl_delay_seconds)
    SELECT host, host, 'http://' || host, 'proof', 1, 1, -1000000, 1 FROM (
        SELECT format('m%%s.localhost:%%s', n, %(port)s::int) AS host FROM generate_series(%(first)s::int, %(last)s::int - 1) AS n) hosts
    RETURNING id, base_url
), work AS (
    INSERT INTO job_domains (domain_id, job_id, ready, priority, discovered, waiting)
    SELECT made.id, job.id, true, -1000000, 1, 1 FROM made, job
)
INSERT INTO url_frontier (domain_id, job_id, url_key, url)
SELECT made.id, job.id, decode(md5(base_url), 'hex'), base_url || '/' FROM made, job
"""


def standing(scenario: Scenario, sandbox: Sandbox) -> list[CrawlProcess]:
    """Eight workers that serve all jobs."""
    settings = crawl_settings(scenario) | sandbox.settings() | {"crawl.patience": "3s"}
    return [
        CrawlProcess(
            ["--data", str(sandbox.data), "worker", "--name", f"victim-{number}"],
            settings=settings,
            folder=sandbox.folder,
            name=f"victim-{number}",
        )
        for number in range(WORKERS)
    ]


def pause(desk: JobService, connection: Connection, web: WebProcess, violations: list[str]) -> float:
    """Pause the job; seconds until nothing was held. What was fetched afterwards is a violation, and so is a long wait."""
    began = time.monotonic()
    desk.pause(JOB)
    _until(lambda: _value(connection, _HELD) == 0)
    took = time.monotonic() - began
    if took > WITHIN:
        violations.append(f"J2 domains were held for {took:.2f} s after the pause")
    before = asked(web)
    time.sleep(QUIET)
    after = asked(web)
    if after != before:
        violations.append(f"J2 {after - before} requests after the pause")
    return took


class Paused:
    """A crawl that is paused `rounds` times. Everything is killed in every other pause."""

    def __init__(self, rounds: int, seed: int) -> None:
        self.rounds = rounds
        self.took: list[float] = []
        self._dice = random.Random(seed)

    def __call__(
        self, scenario: Scenario, sandbox: Sandbox, web: WebProcess, on_progress: OnProgress
    ) -> FaultRunResult:
        begin(scenario, sandbox, web)
        desk = JobService(sandbox.database(), "proof")
        result = FaultRunResult(lives=1)
        victims = standing(scenario, sandbox)
        try:
            with sandbox.database().session() as connection:
                for number in range(self.rounds):
                    before = asked(web)
                    _until(lambda before=before: asked(web) > before or _completed(connection))  # type: ignore[misc]
                    time.sleep(self._dice.uniform(0.0, 1.0))
                    if _completed(connection):
                        break
                    held = _value(connection, _HELD)
                    self.took.append(pause(desk, connection, web, result.violations))
                    result.injected.append(InjectedFault(Fault.KILL_ALL, True, asked(web)))
                    if number % 2:
                        _kill(victims)
                        victims = standing(scenario, sandbox)
                        result.lives += 1
                    result.violations += checks.verify_store(sandbox)
                    desk.resume(JOB)
                    on_progress(
                        f"pause {number + 1}: {held} held, let go in {self.took[-1]:.2f} s {result.violations or ''}"
                    )
                _until(lambda: _completed(connection))
                result.completed = True
        finally:
            _kill(victims)
        return result


def a_million(
    scenario: Scenario, sandbox: Sandbox, web: WebProcess, domains: int, on_progress: OnProgress
) -> tuple[list[float], list[str]]:
    """Pause a job with so many domains under eight workers at full speed, kill them all, go on with others; three times.

    Seconds until each pause was kept, and what was violated.
    """
    begin(scenario, sandbox, web)
    desk = JobService(sandbox.database(), "proof")
    violations: list[str] = []
    took: list[float] = []
    with sandbox.database().session() as connection:
        for first in range(0, domains, 50_000):
            last = min(first + 50_000, domains)
            connection.execute(_MILLION, {"job": JOB, "port": web.address.ports[0], "first": first, "last": last})
        connection.execute("ANALYZE")
        on_progress(f"{domains:,} domains are there")
        victims = standing(scenario, sandbox)
        try:
            for _ in range(3):
                time.sleep(12)
                held = _value(connection, _HELD)
                took.append(pause(desk, connection, web, violations))
                _kill(victims)
                victims = standing(scenario, sandbox)
                began = time.monotonic()
                desk.resume(JOB)
                back = time.monotonic() - began
                before = asked(web)
                _until(lambda before=before: asked(web) > before)  # type: ignore[misc]
                on_progress(
                    f"{held} held: let go in {took[-1]:.2f} s; workers killed; resumed in {back:.2f} s, "
                    f"pages again after {time.monotonic() - began:.1f} s"
                )
        finally:
            _kill(victims)
    violations += checks.verify_store(sandbox)
    return took, violations


def asked(web: WebProcess) -> int:
    """Requests that ended until now, also of hosts that the web does not know."""
    web.control("flush")
    return web.log_path.read_bytes().count(b"\n")


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what was to come did not come")
        time.sleep(0.02)


def _completed(connection: Connection) -> bool:
    return _value(connection, _STATE, JOB) == "completed"


def _value(connection: Connection, query: str, *parameters: object) -> object:
    row = connection.execute(query.encode(), parameters).fetchone()
    return row[0] if row else None


def _kill(victims: Sequence[CrawlProcess]) -> None:
    for victim in victims:
        victim.kill()
