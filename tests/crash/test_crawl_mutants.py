"""A proof that cannot fail proves nothing: with a guard taken out, the checks of the crash tests must turn red."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pytest

from holdfast.control.torture import plan as plans
from holdfast.control.torture import proof
from holdfast.control.torture.ground import Ground
from holdfast.control.torture.plan import LEASE, Plan
from holdfast.control.torture.process import Victim, send
from holdfast.control.torture.trial import everything_expected
from holdfast.simweb.plan import Site, Web
from holdfast.simweb.process import WebProcess
from holdfast.store import embedded
from tests.crash.conftest import new_database
from tests.prove.ground import BorrowedGround, begin, mutant, worker

PATIENCE = 60.0
NOTICED = 2.0
"""Seconds in which a worker that woke up has written what it had, or was refused."""
Kill = Callable[[Victim], Victim]


@pytest.fixture
def plan() -> Plan:
    """A web that lasts for a while."""
    made = plans.make(seed=5, pages=240, workers=1, kills=10)
    return replace(made, web=replace(made.web, special={}))


@pytest.fixture
def until_the_end() -> Iterator[Kill]:
    """Victims that do not outlive the test."""
    alive: list[Victim] = []

    def remember(victim: Victim) -> Victim:
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


def _dies(victim: Victim) -> None:
    assert victim.wait(PATIENCE)
    assert victim.code == -signal.SIGKILL, "it did not get to its failpoint"


def _holders(ground: Ground) -> set[str]:
    with ground.database().session() as connection:
        rows = connection.execute("SELECT DISTINCT claimed_by FROM domains WHERE claimed_by IS NOT NULL")
        return {row[0] for row in rows}


def _expired(ground: Ground) -> int:
    with ground.database().session() as connection:
        row = connection.execute("SELECT count(*) FROM claim_log WHERE why = 'expired'").fetchone()
        return int(row[0]) if row else 0


def _zombie_faults(plan: Plan, ground: Ground, name: str, keep: Kill) -> list[str]:
    """What is wrong after a worker froze in the middle of a commit, past its lease, and woke up when another had its domains."""
    with WebProcess(plan.web) as web, ground:
        begin(plan, ground, web)
        first = keep(worker(plan, ground, name="first", program=mutant(name)))
        _wait(lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED, "it has not frozen")
        keep(worker(plan, ground, name="second"))
        _wait(lambda: "first" not in _holders(ground), "nobody took over")
        tenures = proof.Tenures()
        assert tenures.late_writes(ground.database()) == []
        assert send(first.pid, signal.SIGCONT)
        until = time.monotonic() + NOTICED
        while not (faults := tenures.late_writes(ground.database())) and time.monotonic() < until:
            time.sleep(0.05)
        return faults + proof.store_faults(ground)


def test_a_worker_that_freezes_in_a_commit_writes_nothing_afterwards(
    plan: Plan, ground: BorrowedGround, until_the_end: Kill
) -> None:
    assert _zombie_faults(plan, ground, "sleepy", until_the_end) == []


def test_without_the_fence_it_does(plan: Plan, ground: BorrowedGround, until_the_end: Kill) -> None:
    faults = _zombie_faults(plan, ground, "no_fence", until_the_end)
    assert any(fault.startswith("I5") for fault in faults), faults


def test_without_the_order_of_bytes_and_rows_pages_are_lost(
    plan: Plan, ground: BorrowedGround, until_the_end: Kill
) -> None:
    with WebProcess(plan.web) as web, ground:
        begin(plan, ground, web)
        _dies(until_the_end(worker(plan, ground, "--failpoint", "after_commit:2", program=mutant("no_order"))))
        assert any(fault.startswith("I11") for fault in proof.store_faults(ground))


def test_without_the_unique_key_the_crawl_ends_otherwise(
    plan: Plan, ground: BorrowedGround, connection: psycopg.Connection, until_the_end: Kill
) -> None:
    """Links that two pages share come twice, and what hangs on a URL cannot be written for two of them."""
    plan = replace(plan, delay=0.0)
    with WebProcess(plan.web) as web, ground:
        begin(plan, ground, web)
        connection.execute("ALTER TABLE url_frontier DROP CONSTRAINT url_frontier_pkey")
        until_the_end(worker(plan, ground, program=mutant("no_unique_key"))).wait(PATIENCE)
        assert proof.untrue(everything_expected(web), proof.ends(ground.database()))


def test_without_the_heartbeat_a_patient_worker_loses_its_domains(
    server: embedded.Server, template: str, ground: BorrowedGround, tmp_path: Path, until_the_end: Kill
) -> None:
    """The site asks for a pause that is longer than the lease; nobody is killed or frozen, so no claim may expire."""
    site = Site(3, 2, 1000, crawl_delay=LEASE * 3)
    plan = Plan(1, 1, Web(1, 1, site), (), 0.0)
    with new_database(server, template, "with_heartbeat") as database, WebProcess(plan.web) as web:
        sound = BorrowedGround(tmp_path / "sound", database)
        with ground, sound:
            for each in (ground, sound):
                begin(plan, each, web)
            until_the_end(worker(plan, sound))
            _wait(lambda: _holders(sound), "the sound one holds nothing")
            until_the_end(worker(plan, ground, program=mutant("no_heartbeat")))
            _wait(lambda: _expired(ground), "the mutant keeps its domain without a heartbeat")
            assert _expired(sound) == 0
