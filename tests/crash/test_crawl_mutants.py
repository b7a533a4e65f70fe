"""A proof that cannot fail proves nothing: with a guard taken out, the checks of the crash tests must turn red."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pytest

from holdfast.db import embedded
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from holdfast.testing.torture import checks
from holdfast.testing.torture import scenario as plans
from holdfast.testing.torture.experiment import expected_pages
from holdfast.testing.torture.process import CrawlProcess, send
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import LEASE, Scenario
from tests.crash.conftest import PAGES, SITES, new_database
from tests.prove.sandbox import ExternalSandbox, begin, mutant, worker

PATIENCE = 60.0
REFUSED = "were refused at a commit"
Kill = Callable[[CrawlProcess], CrawlProcess]


@pytest.fixture
def scenario() -> Scenario:
    """A web that lasts for a while."""
    made = plans.make_scenario(seed=5, pages=PAGES * plans.SITES, workers=1, kills=0)
    return replace(made, web=replace(made.web, sites=SITES, special={}), delay=0.3)


@pytest.fixture
def until_the_end() -> Iterator[Kill]:
    """Victims that do not outlive the test."""
    alive: list[CrawlProcess] = []

    def remember(victim: CrawlProcess) -> CrawlProcess:
        alive.append(victim)
        return victim

    yield remember
    for victim in alive:
        victim.kill()


def _wait(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"waited too long: {what}"
        time.sleep(0.05)


def _dies(victim: CrawlProcess) -> None:
    assert victim.wait(PATIENCE)
    assert victim.code == -signal.SIGKILL, "it did not get to its failpoint"


def _holders(sandbox: Sandbox) -> set[str]:
    with sandbox.database().session() as connection:
        rows = connection.execute("SELECT DISTINCT claimed_by FROM domains WHERE claimed_by IS NOT NULL")
        return {row[0] for row in rows}


def _end_leases(sandbox: Sandbox) -> None:
    """As they would have come to their end by themselves in a few seconds."""
    with sandbox.database().session() as connection:
        connection.execute("UPDATE domains SET claim_expires_at = clock_timestamp() WHERE claimed_by IS NOT NULL")


def _expired(sandbox: Sandbox) -> int:
    with sandbox.database().session() as connection:
        row = connection.execute("SELECT count(*) FROM claim_log WHERE why = 'expired'").fetchone()
        return int(row[0]) if row else 0


def _zombie_faults(scenario: Scenario, sandbox: Sandbox, name: str, keep: Kill) -> list[str]:
    """What is wrong after a worker froze in the middle of a commit, lost its leases, and woke up when another had its domains."""
    with WebProcess(scenario.web) as web, sandbox:
        begin(scenario, sandbox, web)
        first = keep(worker(scenario, sandbox, name="first", program=mutant(name)))
        _wait(lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED, "it has not frozen")
        _end_leases(sandbox)
        keep(worker(scenario, sandbox, name="second"))
        _wait(lambda: "first" not in _holders(sandbox), "nobody took over")
        tenures = checks.LateWriteCheck()
        assert tenures.late_writes(sandbox.database()) == []
        assert send(first.pid, signal.SIGCONT)
        faults: list[str] = []

        def told() -> bool:
            faults[:] = tenures.late_writes(sandbox.database())
            return bool(faults) or REFUSED in sandbox.logs()

        _wait(told, "it has neither written what it had nor been refused")
        return faults + checks.verify_store(sandbox)


def test_a_worker_that_freezes_in_a_commit_writes_nothing_afterwards(
    scenario: Scenario, sandbox: ExternalSandbox, until_the_end: Kill
) -> None:
    assert _zombie_faults(scenario, sandbox, "sleepy", until_the_end) == []


def test_without_the_fence_it_does(scenario: Scenario, sandbox: ExternalSandbox, until_the_end: Kill) -> None:
    faults = _zombie_faults(scenario, sandbox, "no_fence", until_the_end)
    assert any(fault.startswith("I5") for fault in faults), faults


def test_without_the_order_of_bytes_and_rows_pages_are_lost(
    scenario: Scenario, sandbox: ExternalSandbox, until_the_end: Kill
) -> None:
    with WebProcess(scenario.web) as web, sandbox:
        begin(scenario, sandbox, web)
        _dies(until_the_end(worker(scenario, sandbox, "--failpoint", "after_commit:2", program=mutant("no_order"))))
        assert any(fault.startswith("I11") for fault in checks.verify_store(sandbox))


def test_without_the_unique_key_the_crawl_ends_otherwise(
    scenario: Scenario, sandbox: ExternalSandbox, connection: psycopg.Connection, until_the_end: Kill
) -> None:
    """Links that two pages share come twice, and what hangs on a URL cannot be written for two of them."""
    scenario = replace(scenario, delay=0.0)
    with WebProcess(scenario.web) as web, sandbox:
        begin(scenario, sandbox, web)
        connection.execute("ALTER TABLE url_frontier DROP CONSTRAINT url_frontier_pkey")
        until_the_end(worker(scenario, sandbox, program=mutant("no_unique_key"))).wait(PATIENCE)
        assert checks.compare_expected(expected_pages(web), checks.read_results(sandbox.database()))


def test_without_the_heartbeat_a_patient_worker_loses_its_domains(
    server: embedded.Server, template: str, sandbox: ExternalSandbox, tmp_path: Path, until_the_end: Kill
) -> None:
    """The site asks for a pause that is longer than the lease; nobody is killed or frozen, so no claim may expire."""
    site = Site(3, 2, 1000, crawl_delay=LEASE * 3)
    scenario = Scenario(1, 1, Web(1, 1, site), (), 0.0)
    with new_database(server, template, "with_heartbeat") as database, WebProcess(scenario.web) as web:
        sound = ExternalSandbox(tmp_path / "sound", database)
        with sandbox, sound:
            for each in (sandbox, sound):
                begin(scenario, each, web)
            until_the_end(worker(scenario, sound))
            _wait(lambda: _holders(sound), "the sound one holds nothing")
            until_the_end(worker(scenario, sandbox, program=mutant("no_heartbeat")))
            _wait(lambda: _expired(sandbox), "the mutant keeps its domain without a heartbeat")
            assert _expired(sound) == 0
