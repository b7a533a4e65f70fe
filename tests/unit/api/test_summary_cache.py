"""Summaries of jobs that many ask for: made once at a time, and no request waits long for those of others."""

import threading
from datetime import UTC, datetime

import pytest

from holdfast.control.background_cache import BackgroundCache
from holdfast.errors import TooMany
from holdfast.jobs.records import CrawlSummary, Ending
from holdfast.jobs.summary import SummaryCache


def summary(name: str) -> CrawlSummary:
    return CrawlSummary(datetime.now(UTC), name, Ending.COMPLETE, 1, 1, 0, 0, [], [], None, None, "")


def test_a_summary_that_took_long_serves_all_who_ask_soon() -> None:
    now, made = [0.0], []

    def make(job_id: int) -> CrawlSummary:
        made.append(job_id)
        now[0] += 2.0
        return summary(f"{job_id} {len(made)}")

    summaries = SummaryCache(make, clock=lambda: now[0])
    assert [summaries.of(1).job, summaries.of(1).job, summaries.of(2).job] == ["1 1", "1 1", "2 2"]
    now[0] += 19.0  # of the second one; the first is older than 20 s
    assert [summaries.of(2).job, summaries.of(1).job] == ["2 2", "1 3"]


def test_a_request_does_not_wait_for_the_summaries_of_others() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def make(job_id: int) -> CrawlSummary:
        begun.set()
        assert go_on.wait(30)
        return summary(str(job_id))

    summaries = SummaryCache(make, timeout=0.01)
    first = threading.Thread(target=summaries.of, args=(1,))
    first.start()
    try:
        assert begun.wait(30)
        with pytest.raises(TooMany, match="ask again in a few seconds"):
            summaries.of(2)
    finally:
        go_on.set()
        first.join()
    assert summaries.of(2).job == "2"


def test_what_goes_wrong_is_not_kept() -> None:
    asked: list[int] = []

    def make(job_id: int) -> CrawlSummary:
        asked.append(job_id)
        if len(asked) == 1:
            raise OSError("away")
        return summary("a")

    summaries = SummaryCache(make)
    with pytest.raises(OSError, match="away"):
        summaries.of(1)
    assert summaries.of(1).job == "a"


def test_a_page_gets_the_last_summary_and_never_waits_for_a_new_one() -> None:
    now, go_on, made = [0.0], threading.Event(), list[int]()

    def make(job_id: int) -> CrawlSummary:
        made.append(job_id)
        assert go_on.wait(30)
        now[0] += 1.0
        return summary(f"{job_id} {len(made)}")

    summaries = SummaryCache(make, clock=lambda: now[0])
    assert summaries.latest(1, wait=0.01) is None
    assert summaries.latest(1, wait=0.01) is None
    go_on.set()
    first = summaries.latest(1, wait=30)
    assert first is not None
    assert (first.job, made) == ("1 1", [1])  # one thread for all who asked
    go_on.clear()
    now[0] += 60.0
    assert summaries.latest(1, wait=0.01) is first  # too old, but better than nothing
    go_on.set()
    second = summaries.latest(1, wait=30)
    assert second is not None
    assert second.job == "1 2"


def test_a_page_that_asks_again_and_again_lets_a_result_be_valid_for_longer() -> None:
    made: list[int] = []
    now = 0.0

    def make(key: int) -> int:
        made.append(key)
        return len(made)

    cache: BackgroundCache[int, int] = BackgroundCache(make, "Counts", clock=lambda: now)
    assert cache.renewed(7) == 1
    now = 9.9
    assert cache.latest(7, wait=30, fresh_for=10.0) == 1
    now = 10.0
    assert cache.latest(7, wait=30, fresh_for=10.0) == 2
    assert cache.latest(7, wait=30) == 3, "it took no time, so without `fresh_for` it is valid for none"
    assert cache.renewed(7) == 4
