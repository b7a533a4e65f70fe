"""The live display: what a view looks like at 80 and 140 columns, and as a plain line."""

import json
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.text import Text

from holdfast.cli.progress import ProgressDisplay, ProgressView, render_block, render_line
from holdfast.cli.url_lines import PipeReader, PipeWriter, UrlLine, encode, render
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.jobs.live import LiveJob, LiveWait
from holdfast.jobs.queries.progress import JobFigures
from holdfast.model.activity import InFlightRequest
from holdfast.model.commit_batch import UrlOutcome
from holdfast.model.outcome import Outcome, UrlState

FIGURES = JobFigures(
    now=datetime(2026, 2, 5, 12, 30, tzinfo=UTC),
    job_id=3,
    job="docs",
    state="processing",
    schedule=None,
    next_run_at=None,
    crawl_id=7,
    crawl="running",
    started_at=None,
    max_pages=None,
    workers=2,
    domains={"active": 2, "blocked": 1},
    pages=1472,
    pages_in_all=1472,
    errors=3,
    bytes=12_300_000,
    discovered=2374,
    waiting=902,
    done=1472,
    held=2,
    open=3,
)
REFUSED = LiveWait("example.org does not answer (connection refused)", 12.0)
POLITE = LiveWait("slow.example: the delay between two requests", 4.0, meant=True)
FETCHING = (InFlightRequest("https://a.example/" + "x" * 200, 3, 6.2), InFlightRequest("https://a.example/b", 3, 0.2))
RUNNING = LiveJob(FIGURES, 32, FETCHING)


def view(job: LiveJob | None, **options: Any) -> ProgressView:
    values: dict[str, Any] = {"title": "Job docs", "elapsed": 80.4, "job": job, "speed": 45.25}
    return ProgressView(**values | options)


def shown(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize(
    "job", [None, RUNNING, replace(RUNNING, waits=(REFUSED, POLITE) * 20, causes={"x": 9} | {"y" * 90: 1})]
)
def test_no_line_is_wider_than_the_terminal(job: LiveJob | None, width: int) -> None:
    lines = render_block(view(job, note="Stopping: " + "much " * 60, problem="The database " * 30), width)
    assert max(line.cell_len for line in lines) <= width
    assert len(lines) <= 20, "it leaves room on a small terminal"


def test_a_running_crawl_at_80_columns() -> None:
    lines = shown(render_block(view(RUNNING), 80)).split("\n")
    assert lines[0].startswith("Job docs  1m20s  ━━━")
    assert lines[0].endswith("62% of 2,374 URLs known so far")
    assert lines[1] == "  1,472 pages   45.2 pages/s   902 waiting   12.3 MB   3 errors"
    assert lines[2].startswith("  Fetching  https://a.example/xxx")
    assert lines[2].endswith("…  6 s"), "a slow request is shown with its age"
    assert lines[3:] == [
        "            https://a.example/b",
        "            and 30 more requests in flight",
        "  Domains   2 active, 1 blocked; 2 held; 2 workers",
        "",
    ]


def test_a_wider_terminal_is_used() -> None:
    job = replace(RUNNING, figures=replace(FIGURES, failed=4, denied=5, max_pages=2000))
    narrow, wide = shown(render_block(view(job), 80)), shown(render_block(view(job), 140))
    assert "74% of 2,000 pages" in narrow
    assert "4 failed   5 denied   about 12s left" in wide
    assert wide.count("x") > narrow.count("x"), "more of a long URL"


def test_a_limit_is_a_total_and_what_is_known_so_far_is_called_so() -> None:
    limited = replace(RUNNING, figures=replace(FIGURES, max_pages=1472))
    assert "100% of 1,472 pages" in shown(render_block(view(limited), 80))
    nearly = replace(RUNNING, figures=replace(FIGURES, waiting=1, done=100_000))
    assert "99% of 100,001 URLs known so far" in shown(render_block(view(nearly), 80)), "not 100% while something waits"
    nothing = replace(RUNNING, figures=replace(FIGURES, waiting=0, done=0))
    assert "%" not in shown(render_block(view(nothing), 80))


def test_a_wait_is_told_with_its_reason_and_counts_down() -> None:
    job = LiveJob(FIGURES, waits=(REFUSED, POLITE), causes={"without a connection": 7})
    text = shown(render_block(view(job, speed=0.0), 80))
    wrapped = "Waits     example.org does not answer (connection refused), next attempt\n            in 12 s\n"
    assert wrapped in text, "it is not cut: the time is what a person wants to know"
    assert "slow.example" not in text, "a delay is no trouble where there is trouble"
    assert "Errors    7 without a connection (last minute)" in text
    assert "next attempt in 9 s" in shown(render_block(view(job, speed=0.0, age=3.0), 140))
    assert "waits: example.org does not answer (connection refused), next attempt in 12 s" in render_line(
        view(job, speed=0.0)
    )


def test_a_delay_is_told_only_where_nothing_else_is_done() -> None:
    assert "slow.example: the delay" in shown(render_block(view(LiveJob(FIGURES, waits=(POLITE,)), speed=0.0), 80))
    assert "slow.example" not in shown(render_block(view(replace(RUNNING, waits=(POLITE,))), 80))


def test_where_nothing_is_fetched_and_nothing_is_known_it_says_so() -> None:
    idle = LiveJob(replace(FIGURES, held=0))
    assert "URLs wait for a worker" in shown(render_block(view(idle, speed=0.0), 80))
    assert "no request is in flight" in shown(render_block(view(LiveJob(FIGURES), speed=0.0), 80))
    assert "Waits" not in shown(render_block(view(LiveJob(replace(FIGURES, waiting=0)), speed=0.0), 80))
    begun = view(idle, speed=None, elapsed=1.0)
    assert "Waits" not in shown(render_block(begun, 80)), "it has only begun"
    assert "URLs wait for a worker" in shown(render_block(replace(begun, elapsed=3.0), 80))
    assert "Waits     worker processes are starting" in shown(
        render_block(replace(begun, elapsed=3.0, starting=True), 80)
    )
    assert "2 held; 32 requests in flight" in render_line(view(RUNNING))


def test_times_that_are_far_off_are_told_as_times() -> None:
    job = LiveJob(
        FIGURES, waits=(LiveWait("b.example is blocked (403)", 86_400.0, "`holdfast domains unblock b.example`"),)
    )
    assert "until 2026-02-06 12:30 UTC; `holdfast domains unblock b.example`" in shown(render_block(view(job), 140))


def test_what_came_from_the_web_steers_no_terminal() -> None:
    evil = replace(
        RUNNING,
        fetching=(InFlightRequest("https://a.example/\x1b[2J\x07", 3, 0.0),),
        waits=(LiveWait("\x1b]0;title\x07.example does not answer", 3.0),),
    )
    for text in (shown(render_block(view(evil), 80)), render_line(view(evil))):
        assert "\x1b" not in text
        assert "\x07" not in text


def test_while_the_database_is_away_it_says_so_and_shows_nothing_stale() -> None:
    looks: list[LiveJob | HoldfastError] = [
        replace(RUNNING, waits=(REFUSED,)),
        StoreUnavailable("It does not answer: a long story."),
    ]

    def look() -> LiveJob:
        found = looks.pop(0)
        if isinstance(found, HoldfastError):
            raise found
        return found

    display = ProgressDisplay(look, "Job docs")
    display._refresh()
    display._next_read = 0.0
    display._refresh()
    text = shown(render_block(display.view(), 140))
    assert "Waits     the database does not answer; nothing is lost, and workers continue when it is back" in text
    assert "Fetching" not in text
    assert "example.org" not in text
    assert "1,472 pages" in text


def test_the_first_figures_have_no_rate() -> None:
    assert "/s" not in shown(render_block(view(RUNNING, speed=None), 80))
    assert "/s" not in render_line(view(RUNNING, speed=None))
    assert render_line(view(None)) == "1m20s: starting"


def test_the_rate_needs_two_measurements_and_a_page() -> None:
    display = ProgressDisplay(lambda: RUNNING, "Job docs")
    none_yet = replace(RUNNING, figures=replace(FIGURES, pages_in_all=0))
    display._add_sample(100.0, none_yet)
    display._add_sample(101.0, none_yet)
    assert display.view().speed is None, "0.0/s would be the first thing that a person reads"
    display._add_sample(102.0, replace(RUNNING, figures=replace(FIGURES, pages_in_all=40)))
    assert display.speed == 20.0
    for second in range(103, 120):
        display._add_sample(float(second), replace(RUNNING, figures=replace(FIGURES, pages_in_all=40)))
    assert display.speed == 0.0, "the average is of the last seconds"


def test_images_and_sitemaps_after_the_last_page_are_no_standstill() -> None:
    display = ProgressDisplay(lambda: RUNNING, "Job docs")
    job = LiveJob(replace(FIGURES, pages_in_all=40, done=50))
    display._add_sample(100.0, job)
    display._add_sample(102.0, replace(job, figures=replace(job.figures, pages_in_all=60, done=75)))
    assert (display.speed, display.other_speed) == (10.0, 2.5), "pages are not counted as others, too"
    busy = view(job, speed=0.0, other_speed=2.5)
    for text in (shown(render_block(busy, 80)), render_line(busy)):
        assert "2.5 other URLs/s" in text
        assert "0.0" not in text
        assert "no request is in flight" not in text
    assert "other URLs" not in render_line(replace(busy, speed=0.5))


def test_ctrl_c_is_answered_with_what_follows() -> None:
    display = ProgressDisplay(lambda: RUNNING, "Job docs", drain=timedelta(seconds=20))
    display._refresh()
    assert display.view().note == ""
    display.on_stop_signal(1)
    assert display.view().note == "Stopping: 32 requests in flight, up to 20s; Ctrl-C again stops at once."
    assert "Stopping: 32 requests" in shown(render_block(display.view(), 80))


def test_a_note_is_shown_for_a_while_or_as_long_as_the_database_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = 0.0
    monkeypatch.setattr("holdfast.cli.progress.time.monotonic", lambda: seconds)
    display = ProgressDisplay(lambda: RUNNING, "Job docs")
    display.note("PostgreSQL had died and runs again.")
    assert display.view().note == "PostgreSQL had died and runs again."
    seconds = 60.0
    assert display.view().note == ""
    display._problem = "the database does not answer"
    assert display.view().note != "", "what was said last is why"


def test_news_is_printed_once_while_the_crawl_runs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["https://h/ does not answer TLS; crawling http://h/."]
    asked = threading.Event()

    def news() -> list[str]:
        asked.set()
        return [lines.pop()] if lines else []

    with ProgressDisplay(lambda: RUNNING, "Job docs", announcements=news):
        assert asked.wait(10)
    assert capsys.readouterr().err.splitlines() == ["https://h/ does not answer TLS; crawling http://h/."]


def test_a_url_with_its_outcome() -> None:
    outcome = UrlOutcome(3, b"k", "https://a.example/x", 1, Outcome.NOT_FOUND, UrlState.FAILED, "not_found: HTTP 404")
    outcome.status, outcome.duration_ms, outcome.bytes = 404, 120, 14_200
    assert (
        render(UrlLine.from_outcome(outcome)).plain
        == "404 not_found           0.12 s   14.2 kB  https://a.example/x  HTTP 404"
    )
    denied = UrlOutcome(3, b"k", "https://a.example/y", 1, Outcome.TOO_DEEP, UrlState.DENIED, fetched=False)
    assert render(UrlLine.from_outcome(denied)).plain == "  - too_deep                 -         -  https://a.example/y"


def test_lines_of_several_workers_arrive_whole_and_all() -> None:
    heard: list[UrlLine] = []
    reader = PipeReader(heard.extend)
    writers = [PipeWriter(os.dup(reader.write_end)) for _ in range(3)]
    for number in range(2000):  # more than the pipe holds
        url = f"https://a.example/{'ü' * (number % 900)}/{number}"
        writers[number % 3].report([UrlOutcome(3, b"k", url, 1, Outcome.OK, UrlState.DONE)])
    for writer in writers:
        writer.close()
        os.close(writer._file)
    reader.close()
    assert len({line.url for line in heard}) == 2000
    long = encode(UrlLine("https://a.example/" + "ü" * 5000, "ok", detail="\U0001f600" * 5000))
    assert len(long) <= 4096
    assert json.loads(long)["url"].startswith("https://a.example/ü")
