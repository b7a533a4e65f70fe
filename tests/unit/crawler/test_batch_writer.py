"""What fills a batch, what leaves it again, and who is told of a commit. The commit itself is stubbed: the store's tests try it."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast

import pytest

from holdfast.archive.segments import Segments
from holdfast.archive.warc import Exchange
from holdfast.engine import committer as committers
from holdfast.engine.committer import Committer
from holdfast.engine.lease import Leases
from holdfast.model.batch import Batch, Clocks, FoundUrl, UrlOutcome
from holdfast.model.outcome import Outcome
from holdfast.model.page import FetchResult
from holdfast.model.proxy import Rests
from holdfast.model.work import NO_GROWTH, Growth
from holdfast.settings import Flush
from holdfast.store import commit
from holdfast.store.connect import Database
from holdfast.store.domains import NewDomains
from holdfast.telemetry.clock import SystemClock
from tests.support.batches import found, outcome

PATIENCE = 10.0
LEASE = timedelta(seconds=60)


class NoDatabase:
    """As much of a database as a desk looks at."""

    closed = broken = False

    def named(self, _name: str) -> Self:
        return self

    def connect(self) -> Self:
        return self

    def close(self) -> None:
        """There is nothing to close."""


class Commits:
    """Stands for `commit.commit`; remembers what it was given, and waits while the gate is shut."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, *_connections: object, batch: Batch, **_options: object) -> commit.Committed:
        self.batches.append(batch)
        self.begun.set()
        assert self.gate.wait(PATIENCE)
        return commit.Committed()

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

    def clocks(self) -> Clocks:
        return Clocks()

    def committed(self, outcomes: Sequence[UrlOutcome], growth: Growth, *, noted: bool) -> None:
        assert growth == NO_GROWTH
        self.heard.append(([row.url for row in outcomes], noted))
        self.told.set()

    def lose(self) -> None:
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


def committer(pages: int, **options: Any) -> Committer:
    def archive() -> Segments:
        raise AssertionError("nothing is left that would be archived")

    clock = SystemClock()
    return Committer(
        cast("Database", NoDatabase()),
        Leases(clock, LEASE),
        clock,
        worker="w1",
        run_id=1,
        lease=LEASE,
        flush=Flush(pages=pages, seconds=timedelta(hours=1), **options),
        defaults=NewDomains(),
        rests=Rests(),
        archive=archive,
    )


def page(url: str) -> tuple[UrlOutcome, Sequence[FoundUrl], Exchange]:
    """An outcome whose bytes are to be kept."""
    result = FetchResult(url, Outcome.OK, status=200, body=b"x" * 1000)
    return outcome(url, 1), (), Exchange(url, result, datetime.now(UTC))


async def has_room(committer: Committer) -> bool:
    """Whether another page may be begun at this moment."""
    asked = asyncio.create_task(committer.room())
    await asyncio.sleep(0)
    asked.cancel()
    return asked.done()


def test_a_full_batch_whose_owners_are_all_lost_makes_room_again(commits: Commits) -> None:
    async def play() -> None:
        batch = committer(pages=2)
        lost, after = [Holder(1), Holder(2)], Holder(3)
        for holder in lost:
            batch.add(holder, *page(f"https://a.example/{holder.domain_id}"))
        assert not await has_room(batch)
        waits = asyncio.create_task(batch.room())
        batch.start()
        for holder in lost:
            batch.forget(holder)
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
        batch = committer(pages=2)
        lost, kept = Holder(1), Holder(2)
        batch.add(lost, *page("https://a.example/"))
        batch.add(kept, outcome("https://b.example/1", 1))
        batch.forget(lost)
        assert await has_room(batch)
        batch.forget(Holder(2))  # an earlier tenure of the same domain has nothing here
        batch.add(kept, outcome("https://b.example/2", 1))
        assert not await has_room(batch)
        batch.start()
        await kept.hears()
        await batch.close()

    asyncio.run(play())
    assert commits.urls == [["https://b.example/1", "https://b.example/2"]]


def test_what_an_earlier_tenure_left_goes_when_the_domain_comes_back(commits: Commits) -> None:
    async def play() -> None:
        batch = committer(pages=2)
        before, after = Holder(1, epoch=1), Holder(1, epoch=2)
        batch.add(before, *page("https://a.example/1"))
        batch.add(before, *page("https://a.example/2"))
        batch.add(after, outcome("https://a.example/1", 1))
        assert await has_room(batch)
        batch.start()
        batch.hurry()
        await after.hears()
        await batch.close()
        assert before.heard == []

    asyncio.run(play())
    assert commits.urls == [["https://a.example/1"]]
    assert commits.batches[0].parts[0].epoch == 2


def test_a_note_is_kept_by_the_commit_after_it_and_not_by_the_one_under_way(commits: Commits) -> None:
    """A visit ends when its last clocks are in the store: those of the batch before are older."""

    async def play() -> None:
        batch = committer(pages=1)
        holder = Holder(1)
        commits.gate.clear()
        batch.start()
        batch.add(holder, outcome("https://a.example/", 1))
        await asyncio.to_thread(commits.begun.wait, PATIENCE)
        batch.note(holder)
        batch.hurry()
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
    monkeypatch.setattr(committers, "MOST_BYTES", 3000)
    add: Callable[[Committer, Holder, int], None] = {
        "bodies": lambda batch, holder, n: batch.add(holder, *page(f"https://a.example/{n}")),
        "links": lambda batch, holder, n: batch.add(
            holder,
            outcome(f"https://a.example/{n}", 1),
            [found(f"https://a.example/{n}/{'x' * 100}{i}", 1) for i in range(3)],
        ),
    }[what]

    async def play() -> None:
        batch, holder = committer(pages=100), Holder(1)
        for n in range(2):
            add(batch, holder, n)
        assert await has_room(batch)
        add(batch, holder, 2)
        assert not await has_room(batch)
        batch.forget(holder)
        assert await has_room(batch)
        add(batch, Holder(1, epoch=2), 0)
        assert await has_room(batch)

    asyncio.run(play())
    assert commits.batches == []
