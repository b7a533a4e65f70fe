"""How a crawl ended: URLs not crawled by reason and option, what waits until when, the cause where there is no page."""

import shlex
from dataclasses import replace
from typing import Any

import pytest

from holdfast.db.connection import Database
from holdfast.db.crawls import LimitReached
from holdfast.jobs.records import CrawlSummary, Ending, Waiting
from holdfast.jobs.summary import lines, summarize, summarize_job
from holdfast.model.domain import Event
from holdfast.model.job import Job, JobSpec, Limit
from holdfast.model.outcome import Outcome, UrlState
from tests.support.crawled import HOME, Crawl, crawl_a_little
from tests.support.factories import Store


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    return crawl_a_little(database, store)


def summary_of(crawl: Crawl, **how: Any) -> CrawlSummary:
    job = Job(crawl.store.job, "default", JobSpec(), crawl.crawl_id)
    return summarize(crawl.store.connection, job, **how)


def test_urls_that_were_not_crawled_have_their_number_and_option(crawl: Crawl) -> None:
    found = summary_of(crawl, pages=3)
    assert {left.reason: (left.count, left.change) for left in found.not_crawled} == {
        "not_found": (1, None),
        "out_of_scope": (1, "`--scope domain` or `--scope any`"),
        "robots_denied": (1, "`--no-robots`, for your own sites only"),
    }
    assert (found.pages, found.pages_in_all, found.waiting, found.exit_code) == (3, 3, 2, 0)
    (example,) = [left.example for left in found.not_crawled if left.reason == "out_of_scope"]
    assert example == "https://outside.example/"


def test_traps_are_counted_by_kind_each_with_its_own_limit(crawl: Crawl) -> None:
    connection, job = crawl.store.connection, crawl.store.job
    connection.execute("UPDATE url_frontier SET reason = NULL WHERE job_id = %s", (job,))
    details = [f"it has {n} path segments, more than 20" for n in (21, 35)]
    details += [f"its path repeats {part} more than 3 times" for part in ("a", "b/c", "9")]
    details += ["10000 URLs of this pattern are known"]
    connection.execute(
        "INSERT INTO url_frontier (job_id, domain_id, url_key, url, depth, priority, state, reason)"
        " SELECT %(job)s, (SELECT min(domain_id) FROM job_domains WHERE job_id = %(job)s), substring(sha256(detail::bytea) FOR 16),"
        " 'https://h/', 1, 1, 'denied', 'trap: ' || detail FROM unnest(%(details)s::text[]) detail",
        {"job": job, "details": details},
    )
    told = [line for line in lines(summary_of(crawl, pages=3)) if line.startswith("  ")]
    assert told == [
        "  3  with a part of the path more than 3 times in a row: `crawl.max_repeats`",
        "  2  with more than 20 path segments: `crawl.max_segments`",
        "  1  of an endless pattern (more than 10,000 URLs that differ only in numbers): `crawl.template_cap`",
    ]


def test_the_lines_name_every_number(crawl: Crawl) -> None:
    told = list(lines(summary_of(crawl, pages=3)))
    assert told[0].startswith("Not crawled: 3 URLs")
    assert "  1  out of scope: `--scope domain` or `--scope any`" in told
    assert any("example.com waits for the next attempt on URLs that failed, until 20" in line for line in told)
    assert told[-1] == "`holdfast crawl --job default` continues where it was, and so does the same command."


def test_a_crawl_that_only_failed_is_not_called_one_without_work(crawl: Crawl) -> None:
    failed, idle = (summary_of(crawl, pages=0, errors=errors, completed=True).next_step for errors in (2, 0))
    assert failed.startswith("The same command retries")
    assert idle.startswith("Nothing was left to crawl")


def test_the_name_of_a_host_is_written_as_it_is(crawl: Crawl) -> None:
    waits = [Waiting("blocked", what, None, None, 1, 0) for what in ("localhost:80 is blocked", "all is blocked")]
    told = list(lines(replace(summary_of(crawl), waits=waits)))
    assert {"localhost:80 is blocked.", "All is blocked."} <= set(told)


def test_redirects_are_counted_apart(crawl: Crawl) -> None:
    (claim,) = crawl.store.claim(crawl.worker)
    crawl.commit(claim, [crawl.outcome("https://other.example/deep", Outcome.REDIRECT, reason="redirect: /x")])
    found = summary_of(crawl)
    assert found.redirects == 1
    assert "redirect" not in {left.reason for left in found.not_crawled}


def test_a_blocked_domain_says_until_when_and_why(crawl: Crawl) -> None:
    (claim,) = crawl.store.claim(crawl.worker)
    crawl.store.release(claim, crawl.worker, event=Event.FORBIDDEN)
    found = summary_of(crawl)
    (wait,) = [wait for wait in found.waits if wait.kind == "blocked"]
    assert wait.what == "other.example is blocked (it answers 403 Forbidden)"
    assert wait.until is not None
    assert wait.until > found.now
    assert wait.change == "`holdfast domains unblock other.example` ends that"
    assert (wait.domains, wait.urls) == (1, 1)


def test_many_domains_that_wait_for_the_same_are_one_line(crawl: Crawl) -> None:
    for number in range(3):
        crawl.store.seed(f"https://site{number}.example/")
    for claim in crawl.store.claim(crawl.worker, count=9):
        crawl.store.release(claim, crawl.worker, event=Event.CONNECTION_FAILED)
    (wait,) = [wait for wait in summary_of(crawl).waits if wait.kind == "unreachable"]
    assert wait.domains == 4
    assert wait.what == "other.example and 3 more is unreachable (it cannot be connected to)"


def test_a_job_without_a_page_says_why(database: Database, store: Store) -> None:
    crawl = Crawl(database, store)
    store.seed(HOME)
    claim = store.claim_one(crawl.worker)
    crawl.commit(claim, [crawl.outcome(HOME, Outcome.NOT_FOUND, reason="not_found: HTTP 404", status=404)])
    store.release(claim, crawl.worker)
    found = summary_of(crawl, pages=0, completed=True)
    assert (found.ending, found.exit_code) == (Ending.NO_PAGE, 1)
    assert found.cause == f"the server has no page {HOME} (HTTP 404)"
    assert found.next_step == "Check the URL, or crawl another page of the site."


def test_a_robots_txt_that_cannot_be_fetched_is_the_cause(database: Database, store: Store) -> None:
    crawl = Crawl(database, store)
    store.seed(HOME)
    claim = store.claim_one(crawl.worker)
    robots = "robots_unavailable: asked again later"
    later = crawl.outcome(
        HOME, Outcome.ROBOTS_DENIED, state=UrlState.WAITING, reason=robots, retry_in=3600.0, attempts=0
    )
    crawl.commit(claim, [later])
    store.connection.execute(
        """INSERT INTO domain_robots (domain_id, robots_txt_url, reachable, problem, expires_at)
        VALUES (%s, 'https://example.com/robots.txt', false, 'connection_failed: Connection refused: x', now() + interval '1 h')""",
        (claim.domain_id,),
    )
    store.release(claim, crawl.worker)
    found = summary_of(crawl, pages=0)
    assert (found.ending, found.exit_code) == (Ending.NO_PAGE, 1)
    assert list(lines(found)) == [
        "No page could be fetched: example.com refused the connection (robots.txt).",
        "Start the server, then run the same command again.",
    ]
    assert [wait.kind for wait in found.waits] == ["robots"]


def test_a_job_that_has_a_page_from_before_is_no_failure(crawl: Crawl) -> None:
    found = summary_of(crawl, pages=0, completed=True)
    assert (found.ending, found.exit_code, found.pages_in_all) == (Ending.COMPLETE, 0, 3)
    assert found.next_step == "Nothing was left to crawl; `--again` crawls all of it again."


@pytest.mark.parametrize(
    ("reached", "told"),
    [
        (LimitReached(Limit.MAX_PAGES, 2000, 3, 9), "2,000 pages (`--max-pages 2000`)"),
        (
            LimitReached(Limit.MAX_PAGES_PER_DOMAIN, 100, 2, 9),
            "100 pages of 2 domains (`--max-pages-per-domain 100`)",
        ),
        (LimitReached(Limit.ROUNDS, 1, 1, 9), "1 round of a domain (`--rounds 1`)"),
        (LimitReached(Limit.DOMAIN_BUDGET, None, 2, 9), "pages of 2 domains (`holdfast domains set DOMAIN budget=`)"),
    ],
)
def test_the_limit_that_ended_a_crawl_is_named(crawl: Crawl, reached: LimitReached, told: str) -> None:
    found = summary_of(crawl, pages=3, limits=[reached])
    assert (found.ending, found.limit) == (Ending.LIMIT, told)
    assert f"Stopped at {told}; 2 URLs wait." in list(lines(found))


def test_an_interrupted_crawl_says_what_is_left_and_what_goes_on(crawl: Crawl) -> None:
    found = summary_of(crawl, pages=3, interrupted=True)
    assert (found.ending, found.exit_code) == (Ending.INTERRUPTED, 0)
    assert list(lines(found)) == [
        "2 URLs wait.",
        "`holdfast crawl --job default` continues where it was, and so does the same command.",
    ]


def test_a_job_without_urls(database: Database, store: Store) -> None:
    found = summary_of(Crawl(database, store), pages=0, completed=True)
    assert (found.cause, found.exit_code) == ("the job has no URLs", 1)


def test_a_job_that_nobody_has_begun_is_no_failure(database: Database, store: Store) -> None:
    """A look at a job is not the end of a crawl; its sentences name the command that goes on."""
    crawl = Crawl(database, store)
    store.seed(HOME)
    job = Job(store.job, "default", JobSpec(), crawl.crawl_id)
    found = summarize_job(store.connection, job)
    assert (found.ending, found.cause, found.exit_code) == (Ending.UNFINISHED, None, 0)
    assert list(lines(found)) == ["1 URL waits.", "`holdfast crawl --job default` continues where it was."]


def test_a_paused_job_goes_on_when_it_is_resumed(crawl: Crawl) -> None:
    crawl.store.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE id = %s", (crawl.store.job,))
    job = Job(crawl.store.job, "default", JobSpec(), crawl.crawl_id)
    found = summarize_job(crawl.store.connection, job)
    assert found.next_step == "The job is paused; `holdfast jobs resume default` resumes it."


@pytest.mark.parametrize("name", [r"C:\docs\1", "my shop", "x; reboot", "it's"])
def test_a_job_may_be_called_anything(crawl: Crawl, name: str) -> None:
    """The command that goes on can be copied as it is."""
    job = Job(crawl.store.job, name, JobSpec(), crawl.crawl_id)
    found = summarize_job(crawl.store.connection, job)
    command = found.next_step.removesuffix(" continues where it was.").strip("`")
    assert shlex.split(command) == ["holdfast", "crawl", "--job", name]
