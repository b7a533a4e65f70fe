"""A state machine over the lifecycle of domains and their claims: several workers, one store, against a plain model.

The model knows nothing of SQL. After every step the store must agree with it on holder, epoch, status, cool-down and work, and every
invariant must hold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.db import claims, sweeper
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.errors import ClaimLost
from holdfast.model.domain import STOPPING_EVENTS, Claim, Event, Status, next_status
from tests.support.batches import Worker, found, outcome
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

NAMES = ["a.example", "b.example", "c.example"]
WORKERS = ["w1", "w2"]
TABLES = [
    "domain_wakes",
    "job_domains",
    "claim_log",
    "crawl_log",
    "crawled_pages",
    "page_versions",
    "url_frontier",
    "domain_transitions",
    "domains",
    "crawl_runs",
    "stats_fresh",
]


@dataclass
class Model:
    """A domain as a person would keep it on paper."""

    status: Status = Status.PENDING
    holder: str | None = None
    epoch: int = 0
    expired: bool = False
    waiting: int = 0
    done: int = 0
    news: int = 0
    again: bool = False
    cooling: bool = False
    for_ever: bool = False
    blocks: int = 0
    row_done: bool = False
    pages: int = 0
    active: bool = True
    urls: int = 0

    def fold_counts(self) -> None:
        if self.news:
            self.waiting += self.news
            self.row_done = False
            if self.status is Status.EXHAUSTED:
                self.status = Status.PENDING
                self.cooling = False
            self.news = 0

    def fold(self) -> None:
        self.fold_counts()
        if self.again:
            if self.done:
                self.row_done = False
            self.waiting += self.done
            self.done = 0
            self.again = False

    @property
    def claimable(self) -> bool:
        return self.holder is None and self.active and not self.cooling and not self.for_ever and not self.row_done


@dataclass
class Held:
    """A claim as its worker remembers it."""

    worker: str
    claim: Claim
    crawled: bool = field(default=False)


class Lifecycle(RuleBasedStateMachine):
    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.connection = self.database.connect()
        self.store = Store(self.connection)
        self.models: dict[str, Model] = {}
        self.held: list[Held] = []

    def teardown(self) -> None:
        self.connection.close()

    @initialize()
    def begin(self) -> None:
        for table in TABLES:  # far quicker than TRUNCATE, which makes new files
            self.connection.execute(f"DELETE FROM {table}")
        self.workers = {name: Worker(self.database, self.store, name) for name in WORKERS}

    # What people and other workers do

    @rule(name=st.sampled_from(NAMES))
    def seed(self, name: str) -> None:
        self.store.seed(self._new_url(name))
        self._heard_of(name)

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.models)))
        domain_id = domains.reset(self.connection, name, why="test")
        sweeper.fold_wakes_now(self.connection, domain_id)
        model = self.models[name]
        model.status, model.holder, model.expired, model.epoch = Status.PENDING, None, False, model.epoch + 1
        model.cooling = model.for_ever = False
        model.blocks = 0
        model.again = True
        model.fold()

    @precondition(lambda self: self.models)
    @rule(data=st.data(), on=st.booleans())
    def switch(self, data: st.DataObject, on: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.models)))
        domains.edit(self.connection, name, {"is_active": on})
        self.models[name].active = on

    @rule(worker=st.sampled_from([*WORKERS, None]))
    def force_release(self, worker: str | None) -> None:
        expected = [m for m in self.models.values() if m.holder and worker in (None, m.holder)]
        assert sweeper.force_release(self.connection, worker=worker) == len(expected)
        for model in expected:
            model.holder, model.expired = None, False

    # What workers do

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 3))
    def claim(self, worker: str, count: int) -> None:
        taken = self.store.claim(worker, count)
        claimable = {name for name, model in self.models.items() if model.claimable}
        assert {c.domain for c in taken} <= claimable
        assert len(taken) == min(count, len(claimable))
        for claim in taken:
            model = self.models[claim.domain]
            model.holder, model.epoch, model.expired = worker, model.epoch + 1, False
            assert claim.epoch == model.epoch
            self.held.append(Held(worker, claim))

    @rule(worker=st.sampled_from(WORKERS))
    def restart(self, worker: str) -> None:
        """The worker dies and comes back under its name; it has forgotten everything."""
        mine = {name for name, model in self.models.items() if model.holder == worker}
        taken = claims.reclaim(self.connection, worker=worker, lease=LEASE)
        assert {c.domain for c in taken} == mine
        for claim in taken:
            model = self.models[claim.domain]
            model.epoch, model.expired = model.epoch + 1, False
            assert not claim.clean
            self.held.append(Held(worker, claim))

    @rule(worker=st.sampled_from(WORKERS))
    def heartbeat(self, worker: str) -> None:
        mine = [h for h in self.held if h.worker == worker]
        newest = {h.claim.domain: h for h in mine}
        lost = claims.renew(
            self.connection,
            worker=worker,
            held=[(h.claim.domain_id, h.claim.epoch) for h in newest.values()],
            lease=LEASE,
        )
        assert lost.lost == {h.claim.domain_id for h in newest.values() if not self._really_held(h)}

    @precondition(lambda self: self.held)
    @rule(data=st.data(), pages=st.integers(0, 3), to=st.sampled_from([*NAMES, None]))
    def commit(self, data: st.DataObject, pages: int, to: str | None) -> None:
        """Some pages of a domain that the worker holds, or believes to hold, and perhaps a link."""
        held = data.draw(st.sampled_from(self.held))
        worker, job = self.workers[held.worker], self.store.job
        urls = worker.waiting(held.claim, pages) if pages else []
        links = [] if to is None else [found(self._new_url(to), job, domain=to)]
        part = worker.part(held.claim, [outcome(url, job) for url in urls], links)
        written = held.claim.domain_id not in worker.commit(part).refused
        assert written == self._really_held(held)
        if not written:
            return
        model = self.models[held.claim.domain]
        assert len(urls) == min(pages, model.waiting + model.news)
        model.fold_counts()
        model.pages += len(urls)
        model.waiting -= len(urls)
        model.done += len(urls)
        if urls:
            model.status = next_status(model.status, Event.OUTCOME)
            held.crawled = True
        if to == held.claim.domain:
            model.waiting += 1
            model.urls += 1
            model.row_done = False
        elif to is not None:
            self._heard_of(to)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), event=st.sampled_from([None, None, *sorted(STOPPING_EVENTS)]))
    def release(self, data: st.DataObject, event: Event | None) -> None:
        held = data.draw(st.sampled_from(self.held))
        model = self.models[held.claim.domain]
        really = self._really_held(held)
        with _expecting_loss(not really):
            status = self.store.release(held.claim, held.worker, event=event, crawled=held.crawled)
        self.held.remove(held)
        if not really:
            return
        model.fold()
        model.holder, model.expired = None, False
        model.row_done = model.waiting == 0
        if event is None and model.row_done:
            event = Event.FRONTIER_EMPTY
        if held.crawled and event not in STOPPING_EVENTS:
            model.blocks = 0
        before = model.status
        model.status = next_status(before, event) if event else before
        assert status is model.status
        if event and model.status is not before:
            model.cooling = True
            if event in STOPPING_EVENTS:
                model.for_ever = model.blocks >= 3
                model.blocks += 1

    # What time does

    @precondition(lambda self: any(m.holder for m in self.models.values()))
    @rule(data=st.data())
    def lease_ends(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(n for n, m in self.models.items() if m.holder)))
        self.store.expire(int(str(self.store.value("SELECT id FROM domains WHERE domain = %s", name))))
        self.models[name].expired = True

    @rule()
    def cooldowns_end(self) -> None:
        self.store.end_cooldowns()
        for model in self.models.values():
            if model.cooling and not model.for_ever:
                model.cooling = False  # ready after the sweep, which is what comes next
        self.sweep_now()

    @rule()
    def sweep_now(self) -> None:
        swept = sweeper.sweep(self.connection, run_silence=timedelta(hours=1))
        assert swept.faults == []
        for model in self.models.values():
            if model.expired:
                model.holder, model.expired = None, False
            thawed = not model.cooling and not model.for_ever and model.holder is None
            if thawed and model.status in (Status.BLOCKED, Status.UNREACHABLE):
                model.status = Status.PENDING  # URLs that wait are tried, never all pages
            elif thawed and model.status is Status.EXHAUSTED:
                model.status, model.again = Status.PENDING, True
            if model.holder is None:
                model.fold()

    # What must hold after every step

    @invariant()
    def store_and_model_agree(self) -> None:
        rows = self.connection.execute(
            "SELECT d.domain, d.status::text, d.claimed_by, d.claim_epoch, d.pages_crawled, jd.waiting, jd.done, jd.state = 'done',"
            " COALESCE((SELECT sum(inserted) FROM domain_wakes w WHERE w.domain_id = d.id), 0)::int"
            " FROM domains d JOIN job_domains jd ON jd.domain_id = d.id"
        ).fetchall()
        assert {row[0]: row[1:] for row in rows} == {
            name: (m.status, m.holder, m.epoch, m.pages, m.waiting, m.done, m.row_done, m.news)
            for name, m in self.models.items()
        }

    @invariant()
    def invariants_hold(self) -> None:
        assert_invariants(self.connection)

    def _really_held(self, held: Held) -> bool:
        model = self.models[held.claim.domain]
        return model.holder == held.worker and model.epoch == held.claim.epoch and not model.expired

    def _new_url(self, name: str) -> str:
        model = self.models.get(name)
        return f"https://{name}/p{model.urls if model else 0}"

    def _heard_of(self, name: str) -> None:
        """A URL was inserted by somebody who does not hold the domain."""
        model = self.models.get(name)
        if model is None:
            self.models[name] = Model(waiting=1, urls=1)
        else:
            model.urls += 1
            model.news += 1


@contextmanager
def _expecting_loss(lost: bool) -> Iterator[None]:
    if lost:
        with pytest.raises(ClaimLost):
            yield
    else:
        yield


def test_store_follows_the_model(database: Database) -> None:
    """Any order of what workers, people and time do leaves the store as the model says, with every invariant intact."""
    machine: Any = type("LifecycleHere", (Lifecycle,), {"database": database})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    with database.connect() as connection:
        assert isinstance(connection, psycopg.Connection)
        assert_invariants(connection)
