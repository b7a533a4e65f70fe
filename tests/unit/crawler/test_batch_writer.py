"""The batch writer: what fills a batch, what is discarded, and which visit hears of a commit. The commit itself is stubbed."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast

import pytest

from holdfast.archive.warc import Exchange
from holdfast.archive.writer import ArchiveWriter
from holdfast.crawler import batch_writer as batch_writer_module
from holdfast.crawler.batch_writer import BatchWriter, WriteProblem
from holdfast.crawler.db_thread import Outage
from holdfast.crawler.leases import Leases
from holdfast.crawler.problems import DiskGuard, outage_problems, worker_problems
from holdfast.db import commit
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.model.activity import ProblemKind
from holdfast.model.commit_batch import CommitBatch, DiscoveredUrl, PolitenessClocks, UrlOutcome
from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyPauses
from holdfast.model.visit_report import NO_GROWTH, FrontierGrowth
from holdfast.settings import Flush
from holdfast.telemetry.clock import SystemClock
from holdfast.telemetry.disk_space import DiskWatch
from tests.support.batches import found, outcome

PATIENCE = 10.0
NO_DISKS = DiskWatch({}, min_free=0, warn_free=0)
LEASE = timedelta(seconds=60)


class NoDatabase:
    """As much of a database as a database thread reads."""

    closed = broken = False

    def with_application_name(self, _name: str) -> Self:
        return self

    def connect(self) -> Self:
        return self

    def close(self) -> None:
        """There is nothing to close."""


class Commits:
    """Stands for `commit.commit`; remembers what it was given, and waits while the gate is shut."""

    def __init__(self) -> None:
        self.batches: list[CommitBatch] = []
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, *_connections: object, batch: CommitBatch, **_options: object) -> commit.CommitResult:
        self.batches.append(batch)
        self.begun.set()
        assert self.gate.wait(PATIENCE)
        return commit.CommitResult()

    @property
    def urls(self) -> list[list[str]]:
        return [[row.url for part in batch.parts for row in part.outcomes] for batch in self.batches]


class Holder:
    """A visit that only listens."""

    streak = 0
    consecutive_errors = 0
    for_tasks = False
    keeps_status = False

    def __init__(self, domain_id: int, epoch: int = 1) -> None:
        self.domain_id, self.epoch = domain_id, epoch
        self.heard: list[tuple[list[str], bool]] = []
        self.told = asyncio.Event()

    def clocks(self) -> PolitenessClocks:
        return PolitenessClocks()

    def on_committed(self, outcomes: Sequence[UrlOutcome], growth: FrontierGrowth, *, clocks_saved: bool) -> None:
        assert growth == NO_GROWTH
        self.heard.append(([row.url for row in outcomes], clocks_saved))
        self.told.set()

    def lose_claim(self) -> None:
        raise AssertionError("nothing is refused here")

    async def hears(self) -> tuple[list[str], bool]:
        """The next commit that it is told of."""
        await asyncio.wait_for(self.told.wait(), PATIENCE)
        self.told.clear()
        return self.heard[-1]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    stub = Commits()
    monkeypatch.setattr(commit, "commit", stub)
    return stub


def writer(pages: int, **options: Any) -> BatchWriter:
    def archive(_: Callable[[str], None] | None) -> ArchiveWriter:
        raise AssertionError("nothing is left that would be archived")

    clock = SystemClock()
    return BatchWriter(
        cast("Database", NoDatabase()),
        Leases(clock, LEASE),
        clock,
        worker="w1",
        run_id=1,
        lease=LEASE,
        flush=Flush(pages=pages, seconds=timedelta(hours=1), **options),
        defaults=NewDomains(),
        proxy_pauses=ProxyPauses(),
        archive=archive,
    )


def page(url: str) -> tuple[UrlOutcome, Sequence[DiscoveredUrl], Exchange]:
    """An outcome whose bytes are to be kept."""
    result = FetchResult(url, Outcome.OK, status=200, body=b"x" * 1000)
    return outcome(url, 1), (), Exchange(url, result, datetime.now(UTC))


async def has_room(batch_writer: BatchWriter) -> bool:
    """Whether another page may be begun at this moment."""
    asked = asyncio.create_task(batch_writer.wait_for_room())
    await asyncio.sleep(0)
    asked.cancel()
    return asked.done()


def test_a_full_batch_whose_owners_are_all_lost_makes_room_again(commits: Commits) -> None:
    async def play() -> None:
        batch = writer(pages=2)
        lost, after = [Holder(1), Holder(2)], Holder(3)
        for holder in lost:
            batch.add(holder, *page(f"https://a.example/{holder.domain_id}"))
        assert not await has_room(batch)
        waits = asyncio.create_task(batch.wait_for_room())
        batch.start()
        for holder in lost:
            batch.discard(holder)
        await asyncio.wait_for(waits, PATIENCE)
        batch.add(after, outcome("https://b.example/1", 1))
        assert await has_room(batch)  # what is forgotten fills nothing
        batch.add(after, outcome("https://b.example/2", 1))
        assert await after.hears() == (["https://b.example/1", "https://b.example/2"], False)
        await batch.close()
        assert [holder.heard for holder in lost] == [[], []]

    asyncio.run(play())
    assert commits.urls == [["https://b.example/1", "https://b.example/2"]]


def test_one_that_is_lost_does_not_empty_the_batch_of_others(commits: Commits) -> None:
    async def play() -> None:
        batch = writer(pages=2)
        lost, kept = Holder(1), Holder(2)
        batch.add(lost, *page("https://a.example/"))
        batch.add(kept, outcome("https://b.example/1", 1))
        batch.discard(lost)
        assert await has_room(batch)
        batch.discard(Holder(2))  # an earlier tenure of the same domain has nothing here
        batch.add(kept, outcome("https://b.example/2", 1))
        assert not await has_room(batch)
        batch.start()
        await kept.hears()
        await batch.close()

    asyncio.run(play())
    assert commits.urls == [["https://b.example/1", "https://b.example/2"]]


def test_what_an_earlier_tenure_left_goes_when_the_domain_comes_back(commits: Commits) -> None:
    async def play() -> None:
        batch = writer(pages=2)
        before, after = Holder(1, epoch=1), Holder(1, epoch=2)
        batch.add(before, *page("https://a.example/1"))
        batch.add(before, *page("https://a.example/2"))
        batch.add(after, outcome("https://a.example/1", 1))
        assert await has_room(batch)
        batch.start()
        batch.commit_soon()
        await after.hears()
        await batch.close()
        assert before.heard == []

    asyncio.run(play())
    assert commits.urls == [["https://a.example/1"]]
    assert commits.batches[0].parts[0].epoch == 2


def test_a_note_is_kept_by_the_commit_after_it_and_not_by_the_one_under_way(commits: Commits) -> None:
    """A visit ends when its last clocks are in the store: those of the batch before are older."""

    async def play() -> None:
        batch = writer(pages=1)
        holder = Holder(1)
        commits.gate.clear()
        batch.start()
        batch.add(holder, outcome("https://a.example/", 1))
        await asyncio.to_thread(commits.begun.wait, PATIENCE)
        batch.save_clocks(holder)
        batch.commit_soon()
        commits.gate.set()
        assert await holder.hears() == (["https://a.example/"], False)
        assert await holder.hears() == ([], True)
        await batch.close()

    asyncio.run(play())
    assert len(commits.batches) == 2


@pytest.mark.parametrize("what", ["bodies", "links"])
def test_bytes_fill_a_batch_and_leave_it_with_their_owner(
    commits: Commits, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(batch_writer_module, "MAX_BATCH_BYTES", 3000)
    add: Callable[[BatchWriter, Holder, int], None] = {
        "bodies": lambda batch, holder, n: batch.add(holder, *page(f"https://a.example/{n}")),
        "links": lambda batch, holder, n: batch.add(
            holder,
            outcome(f"https://a.example/{n}", 1),
            [found(f"https://a.example/{n}/{'x' * 100}{i}", 1) for i in range(3)],
        ),
    }[what]

    async def play() -> None:
        batch, holder = writer(pages=100), Holder(1)
        for n in range(2):
            add(batch, holder, n)
        assert await has_room(batch)
        add(batch, holder, 2)
        assert not await has_room(batch)
        batch.discard(holder)
        assert await has_room(batch)
        add(batch, Holder(1, epoch=2), 0)
        assert await has_room(batch)

    asyncio.run(play())
    assert commits.batches == []


# What is waited for ---------------------------------------------------------------------------------------------------


PAUSE = WriteProblem("fetching is paused", "no room", datetime(2031, 12, 24, tzinfo=UTC), ProblemKind.DISK_FULL)


def test_a_pause_lets_nothing_begin_and_commits_what_is_there(commits: Commits) -> None:
    async def play() -> None:
        batch, holder = writer(pages=1), Holder(1)
        batch.start()
        batch.pause(PAUSE)
        assert (batch.problem, batch.is_full) == (PAUSE, True)
        batch.add(holder, outcome("https://a.example/1", 1))
        await holder.hears()
        assert not await has_room(batch), "also after a commit"
        batch.discard(holder)
        assert not await has_room(batch)
        batch.resume()
        assert (await has_room(batch), batch.problem) == (True, None)
        await batch.close()

    asyncio.run(play())
    assert commits.urls == [["https://a.example/1"]]


def test_the_end_of_a_pause_makes_no_room_in_a_full_batch(commits: Commits) -> None:
    async def play() -> None:
        batch = writer(pages=1)
        batch.add(Holder(1), outcome("https://a.example/1", 1))
        batch.pause(PAUSE)
        batch.resume()
        assert not await has_room(batch)

    asyncio.run(play())
    assert commits.urls == []


def test_a_database_that_refuses_is_a_problem_after_two_seconds() -> None:
    batch, now = writer(pages=1), datetime.now(UTC)
    batch._db.outage = Outage(now - timedelta(seconds=1), "disk full")
    assert not worker_problems(batch, DiskGuard(NO_DISKS), None)
    batch._db.outage = Outage(now - timedelta(seconds=3), "disk full")
    why = WriteProblem("the database cannot be written", "disk full", now - timedelta(seconds=3), ProblemKind.DATABASE)
    assert batch.problem == why
    (found,) = worker_problems(batch, DiskGuard(NO_DISKS), None)
    assert (found.kind, found.text) == (ProblemKind.DATABASE, why.text)
    assert found.value == pytest.approx(3, abs=1)
    batch._thread.shutdown()


@pytest.mark.parametrize(
    ("seconds", "slow"), [([3.0, 3.0], None), ([1.0, 1.0, 9.0], None), ([1.0, 3.0, 9.0], 3.0), ([], None)]
)
def test_commits_are_slow_if_half_of_the_last_ones_were(seconds: list[float], slow: float | None) -> None:
    batch, now = writer(pages=1), time.monotonic()
    batch._durations.extend((now - 120, 60.0) for _ in range(9))
    batch._durations.extend((now - 1, each) for each in seconds)
    assert batch.slow_commits() == slow
    found = [(one.kind, one.value) for one in worker_problems(batch, DiskGuard(NO_DISKS), None)]
    assert found == ([] if slow is None else [(ProblemKind.DATABASE_SLOW, slow)])
    batch._commit_began = now - 40
    assert batch.slow_commits() == pytest.approx(40, abs=5)
    batch._db.outage = Outage(datetime.now(UTC), "gone")
    assert batch.slow_commits() is None, "it is not slow but away"
    batch._thread.shutdown()


def test_an_outage_is_reported_for_a_minute_after_its_end() -> None:
    now = datetime.now(UTC)

    def kinds(began: float, ended: float | None) -> list[ProblemKind]:
        end = None if ended is None else now - timedelta(seconds=ended)
        return [one.kind for one in outage_problems(Outage(now - timedelta(seconds=began), "refused", end))]

    assert kinds(60, 17) == [ProblemKind.DATABASE_AWAY]
    assert (kinds(60, 57), kinds(160, 61), kinds(60, None), outage_problems(None)) == ([], [], [], [])
    (found,) = outage_problems(Outage(now - timedelta(seconds=60), "refused", now - timedelta(seconds=17)))
    assert found.text.startswith("it did not answer for 43 s since ")
    assert found.text.endswith(" UTC (refused)")
