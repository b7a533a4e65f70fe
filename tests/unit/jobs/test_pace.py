"""The estimate of the time that a job still takes."""

from typing import Any

import pytest

from holdfast.jobs.live import estimate
from holdfast.jobs.queries.progress import JobFigures


def figures(**given: Any) -> JobFigures:
    values: dict[str, Any] = {"state": "processing", "max_pages": None, "waiting": 100, **given}
    names: Any = ("now", "job_id", "job", "schedule", "next_run_at", "crawl_id", "crawl", "started_at", "workers")
    return JobFigures(**{**dict.fromkeys(names), **values})


def test_the_time_left_is_what_waits_divided_by_the_urls_of_the_last_minute() -> None:
    pace = estimate(figures(), pages=30, urls=60, seconds=60)
    assert (pace.pages_per_second, pace.urls_per_second, pace.urls_left, pace.seconds_left) == (0.5, 1.0, 100, 100.0)
    assert pace.basis == "100 URLs wait. 1.0 URLs/s in the last 60 s. Links that are found meanwhile add to it."


def test_a_page_limit_ends_it_sooner() -> None:
    pace = estimate(figures(max_pages=50, pages=30), pages=60, urls=60, seconds=60)
    assert (pace.urls_left, pace.seconds_left) == (20, 20.0)
    assert "The crawl ends at 50 pages (max_pages), 20 from now." in pace.basis
    assert estimate(figures(max_pages=500, pages=30), 60, 60, 60).urls_left == 100


@pytest.mark.parametrize(
    ("given", "urls", "basis"),
    [
        ({"state": "paused"}, 60, "100 URLs wait. The job is paused."),
        ({"state": "cancelled"}, 60, "100 URLs wait. The job is cancelled."),
        ({"waiting": 1, "state": "paused"}, 60, "1 URL waits. The job is paused."),
        ({"waiting": 0}, 60, "Nothing waits to be fetched."),
        ({}, 0, "100 URLs wait. Nothing was fetched in the last 60 s, so the time left is not known."),
    ],
)
def test_without_a_rate_there_is_no_estimate_but_a_reason(given: dict[str, Any], urls: int, basis: str) -> None:
    pace = estimate(figures(**given), pages=0, urls=urls, seconds=60)
    assert (pace.seconds_left, pace.basis) == (None, basis)
