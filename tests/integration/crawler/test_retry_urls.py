"""URLs that were not crawled are retried: by name and by reason, whatever becomes of workers meanwhile, and nothing else is fetched."""

import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from holdfast.db import sweeper
from holdfast.db.url_reasons import CODE
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.frontier.records import Retried, UrlFilter
from holdfast.frontier.service import FrontierService
from holdfast.jobs.queries import retries as retry_queries
from holdfast.jobs.service import JobService
from holdfast.jobs.summary import summarize_job
from holdfast.model.outcome import UrlState
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import Page, Pages, html

HERE = "127.0.0.1"
WHO = "ann"
BROKEN = Page(b"no", 500)
GONE = Page(b"no", 404)
SITE = {
    "/": html("/a", "/broken1", "/broken2", "/gone", "/private", "http://elsewhere.example/"),
    "/a": html(),
    "/broken1": BROKEN,
    "/broken2": BROKEN,
    "/gone": GONE,
    "/private": html(),
    "/robots.txt": Page(b"User-agent: *\nDisallow: /private"),
}


def desk(crawls: Crawls) -> FrontierService:
    return FrontierService(crawls.database, crawls.desk.importer)


def retry(crawls: Crawls, **what: Any) -> Retried:
    return desk(crawls).retry("shop", actor=WHO, **what)


def crawl(crawls: Crawls, pages: Pages) -> None:
    crawls.set(politeness={"retries": 0})
    assert crawls.crawl(pages.url(host=HERE), job="shop").progress.pages == 2
    assert crawls.value("SELECT state::text FROM crawl_jobs WHERE name = 'shop'") == "completed"
    pages.asked.clear()


def serve(crawls: Crawls) -> None:
    """Let a worker of all jobs go on with what there is, until the job has ended."""
    with crawls.worker(None):
        wait_for(lambda: crawls.value("SELECT state = 'completed' FROM crawl_jobs WHERE name = 'shop'"), "the end")


def heal(pages: Pages) -> None:
    pages.answers |= dict.fromkeys(("/broken1", "/broken2", "/gone"), html())


def test_pages_that_failed_are_retried_and_the_job_is_reopened(crawls: Crawls) -> None:
    with Pages(SITE) as pages:
        crawl(crawls, pages)
        found = desk(crawls).count_retry("shop", reason="server_error")
        assert (found.urls, found.more, found.domains, found.by_reason) == (2, False, 1, {"server_error": 2})
        assert (found.dry_run, found.reopened) == (True, False)
        assert crawls.value("SELECT state::text FROM crawl_jobs WHERE name = 'shop'") == "completed", "only counted"
        heal(pages)
        done = retry(crawls, reason="server_error")
        assert (done.urls, done.reopened, done.finished, done.notes) == (2, True, True, [])
        job = JobService(crawls.database, WHO).show("shop")
        assert (job.state, job.state_reason) == ("pending", "2 URLs were retried")
        assert crawls.rows("SELECT attempts, state::text FROM url_frontier WHERE url LIKE '%%broken%%'") == [
            (0, "waiting"),
            (0, "waiting"),
        ]
        crawls.verify()
        serve(crawls)
        assert sorted(pages.paths(HERE)) == ["/broken1", "/broken2"]
        states = {state for state, _ in crawls.frontier("%broken%").values()}
        assert states == {"done"}
    assert crawls.value(
        "SELECT array_agg(what ORDER BY id) FROM (SELECT id, data->>'what' AS what FROM events WHERE kind = 'job' "
        "AND data->>'what' = 'reopened') e"
    ) == ["reopened"]
    audited = crawls.rows("SELECT actor, details->>'urls', details->>'reason' FROM audit_log WHERE action = 'retry'")
    assert audited == [(WHO, "2", "server_error")]
    crawls.verify()


def test_a_page_that_was_missing_is_retried_by_name_and_what_cannot_be_says_why(crawls: Crawls) -> None:
    with Pages(SITE) as pages:
        crawl(crawls, pages)
        heal(pages)
        names = [pages.url(path, HERE) for path in ("/gone", "/broken1", "/a", "/never")]
        done = retry(crawls, urls=names)
        assert (done.urls, done.by_reason) == (2, {"not_found": 1, "server_error": 1})
        assert {left.reason: (left.urls, left.example) for left in done.left_out} == {
            "ok": (1, names[2]),
            "unknown": (1, names[3]),
        }
        assert "`holdfast crawl URL --job shop` adds it" in next(
            left.why for left in done.left_out if left.reason == "unknown"
        )
        crawls.verify()
        again = desk(crawls).count_retry("shop", urls=names[:1])
        assert ([left.reason for left in again.left_out], again.urls) == (["waiting"], 0)
        serve(crawls)
        assert sorted(pages.paths(HERE)) == ["/broken1", "/gone"]
    crawls.verify()


def test_robots_txt_is_fetched_again_for_what_it_denied_and_still_decides(crawls: Crawls) -> None:
    with Pages(SITE) as pages:
        crawl(crawls, pages)
        assert retry(crawls, state=UrlState.DENIED).by_reason == {"robots_denied": 1}
        serve(crawls)
        assert [name for _, name in pages.asked] == [f"{HERE}/robots.txt"], (
            "it was denied once more, and nothing was asked for"
        )
        pages.answers.pop("/robots.txt")
        pages.asked.clear()
        retry(crawls, urls=[pages.url("/private", HERE)])
        serve(crawls)
        assert pages.paths(HERE) == ["/private"]
    crawls.verify()


def test_what_is_not_retried_says_what_to_do_instead(crawls: Crawls) -> None:
    with Pages(SITE) as pages:
        crawl(crawls, pages)
    with pytest.raises(Refused, match="out_of_scope are not retried: `holdfast jobs set shop scope="):
        retry(crawls, reason="out_of_scope")
    with pytest.raises(Refused, match=r"too_deep are not retried: `holdfast jobs set shop max_depth=N`"):
        retry(crawls, reason="too_deep")
    with pytest.raises(UsageError, match="There is no reason 'bad'"):
        retry(crawls, reason="bad")
    with pytest.raises(UsageError, match="server_error are failed, not denied"):
        retry(crawls, reason="server_error", state=UrlState.DENIED)
    with pytest.raises(UsageError, match="URLs that wait need no retry"):
        retry(crawls, state=UrlState.WAITING)
    with pytest.raises(UsageError, match="not both"):
        retry(crawls, urls=["http://a.example/"], reason="server_error")
    with pytest.raises(UsageError, match="1 to 1,000 URLs are retried at once, not 1,001"):
        retry(crawls, urls=[f"http://a.example/{number}" for number in range(1_001)])
    with pytest.raises(NotFound, match="no domain"):
        retry(crawls, domain="other.example")
    with pytest.raises(Refused, match="the one of all tasks"):
        desk(crawls).retry("tasks", actor=WHO)
    assert retry(crawls, reason="timeout").urls == 0
    assert crawls.value("SELECT state::text FROM crawl_jobs WHERE name = 'shop'") == "completed", "nothing to retry"
    assert crawls.value("SELECT count(*) FROM audit_log WHERE action = 'retry'") == 0


def test_a_cancelled_job_stays_cancelled_and_a_paused_one_paused(crawls: Crawls) -> None:
    with Pages(SITE) as pages:
        crawl(crawls, pages)
        crawls.connection.execute("UPDATE crawl_jobs SET state = 'cancelled' WHERE name = 'shop'")
        with pytest.raises(Refused, match="Job shop is cancelled; `holdfast crawl --job shop --again` starts it again"):
            retry(crawls)
        crawls.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE name = 'shop'")
        done = retry(crawls)
        assert (done.urls, done.reopened) == (2, False)
        assert done.notes == ["Job shop is paused: they wait; `holdfast jobs resume shop` goes on with it."]
        assert pages.asked == []
    assert crawls.value("SELECT waiting FROM job_domains") == 2
    crawls.verify()


def test_a_blocked_domain_stays_blocked_and_is_named(crawls: Crawls) -> None:
    many = [f"/{number}" for number in range(12)]
    crawls.set(domains={"max_errors": 3}, politeness={"retries": 0})
    with Pages({"/": html(*many), **dict.fromkeys(many, Page(b"no", 403))}) as pages:
        crawls.crawl(pages.url(host=HERE), job="shop")
        name = f"{HERE}:{pages.port}"
        assert crawls.domain(name)["status"] == "blocked"
        crawls.connection.execute(
            "UPDATE url_frontier SET state = 'failed' WHERE url_key = ("
            "SELECT min(url_key) FROM url_frontier WHERE reason LIKE 'forbidden%')"
        )
        crawls.connection.execute("UPDATE job_domains SET waiting = waiting - 1, failed = failed + 1")
        crawls.connection.execute("UPDATE domains SET frontier_size = frontier_size - 1")
        (note,) = retry(crawls, reason="forbidden").notes
        assert note.startswith(f"{name} is blocked")
        assert f"`holdfast domains unblock {name}`" in note
        assert crawls.domain(name)["status"] == "blocked"
    crawls.verify()


def test_the_list_of_a_reason_has_as_many_urls_as_the_summary_counts(crawls: Crawls) -> None:
    with Pages(SITE) as pages:
        crawl(crawls, pages)
    fault = crawls.value("SELECT min(url) FROM url_frontier WHERE url LIKE '%%broken%%'")
    crawls.connection.execute(
        "UPDATE url_frontier SET reason = 'a fault of ours: KeyError: x' WHERE url = %s", (fault,)
    )
    summary = summarize_job(crawls.connection, crawls.desk.job("shop"))
    counts = {left.reason: left.count for left in summary.not_crawled}
    assert counts == {"server_error": 1, "fault": 1, "not_found": 1, "robots_denied": 1, "out_of_scope": 1}
    for reason, count in counts.items():
        listed = desk(crawls).page(UrlFilter(job="shop", reason=reason)).rows
        assert len(listed) == count, reason
        expected = crawls.rows(f"SELECT url FROM url_frontier f WHERE {CODE} = %s", reason)
        assert [(one.url,) for one in listed] == expected
    assert desk(crawls).page(UrlFilter(job="shop", reason="fault", state=UrlState.DENIED)).rows == []
    with pytest.raises(UsageError, match="There is no reason 'faults'"):
        desk(crawls).page(UrlFilter(job="shop", reason="faults"))
    assert retry(crawls, reason="fault").urls == 1
    assert crawls.frontier(fault)[fault] == ("waiting", None)


def test_a_retry_while_a_worker_holds_the_domain_is_done_by_its_holder(crawls: Crawls) -> None:
    slow = [f"/slow{number}" for number in range(40)]
    # Two retries of a domain are 5 s apart.
    crawls.set(politeness={"retries": 0}, domains={"crawl_delay": 0.2}, crawl={"patience": 10})
    site = {**SITE, "/": html("/broken1", "/broken2", "/gone", *slow), **dict.fromkeys(slow, html())}
    with Pages(site) as pages:
        job = crawls.begin(pages.url(host=HERE), job="shop").job
        with crawls.worker(job) as worker:
            wait_for(
                lambda: crawls.value("SELECT count(*) = 3 FROM url_frontier WHERE reason IS NOT NULL"), "the failures"
            )
            assert crawls.held() == 1
            heal(pages)
            done = retry(crawls, urls=[pages.url("/gone", HERE)])
            assert (done.urls, done.reopened) == (1, False)
            assert retry(crawls, reason="server_error").urls == 2
            worker.end()
        assert crawls.desk.end(job).completed
        assert [pages.paths(HERE).count(path) for path in ("/broken1", "/broken2", "/gone")] == [2, 2, 2]
        assert all(pages.paths(HERE).count(path) == 1 for path in slow), "no page was fetched twice"
    assert {state for state, _ in crawls.frontier().values()} == {"done"}
    assert crawls.rows("SELECT DISTINCT why FROM claim_log") == [("released",)], "no claim was taken away"
    crawls.verify()


def test_a_crawl_of_retried_urls_that_is_killed_goes_on(crawls: Crawls) -> None:
    broken = [f"/broken{number}" for number in range(30)]
    crawls.set(politeness={"retries": 0})
    with Pages({"/": html(*broken), **dict.fromkeys(broken, Page(b"no", 400))}) as pages:
        crawls.crawl(pages.url(host=HERE), job="shop")
        pages.answers |= dict.fromkeys(broken, html())
        crawls.set(domains={"crawl_delay": 0.1})
        crawls.connection.execute("UPDATE domains SET crawl_delay_seconds = 0.1")
        assert retry(crawls).urls == 30
        with crawls.start("worker", "--job", "shop") as program:
            wait_for(lambda: crawls.value("SELECT done > 5 FROM job_domains"), "some pages")
            program.kill()
        crawls.verify()
        with crawls.start("worker", "--job", "shop") as program:
            assert program.end().code == 0
        assert {state for state, _ in crawls.frontier().values()} == {"done"}
        assert crawls.crawl(job="shop").completed
    crawls.verify()


KILLED = """
import os, signal, sys
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.jobs.queries import retries as retry_queries
from holdfast.frontier.service import FrontierService
from holdfast.jobs.seed_import import SeedImporter
from holdfast.jobs.queries import actions
from holdfast.model.url import DEFAULT_RULES

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

retry_queries.CHUNK = 1
database = Database(sys.argv[1])
service = FrontierService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()))
if sys.argv[2] == "in a chunk":
    actions.wake_for_retry = die
service.retry("shop", actor="ann", watch=die)
"""


@pytest.mark.parametrize(("moment", "retried"), [("in a chunk", 0), ("after a chunk", 2)])
def test_a_retry_that_is_killed_has_retried_whole_chunks_and_another_does_the_rest(
    crawls: Crawls, moment: str, retried: int
) -> None:
    with Pages(SITE) as pages:
        crawls.set(politeness={"retries": 0})
        crawls.crawl(pages.url(host=HERE), pages.url(host="localhost"), job="shop")
    total = int(crawls.value("SELECT sum(failed) FROM job_domains"))
    assert total == 4
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), crawls.database.url, moment], check=False)
    assert died.returncode == -signal.SIGKILL
    wait_for(
        lambda: crawls.value(
            "SELECT count(*) = 0 FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE d.datname = current_database() AND l.mode LIKE '%%Exclusive%%' AND l.pid <> pg_backend_pid()"
        ),
        "its end",
    )
    waiting = crawls.value("SELECT sum(waiting) FROM job_domains")
    assert waiting == retried
    state = crawls.value("SELECT state::text FROM crawl_jobs WHERE name = 'shop'")
    assert (state == "pending") == (retried > 0), "a job is open if and only if URLs of it wait"
    crawls.verify()
    assert retry(crawls).urls == total - waiting
    assert crawls.value("SELECT sum(waiting) FROM job_domains") == total
    crawls.verify()


def test_many_urls_are_retried_in_chunks_and_counted_up_to_a_limit(
    crawls: Crawls, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pages(SITE) as pages:
        crawl(crawls, pages)
    monkeypatch.setattr(retry_queries, "COUNTED", 1)
    monkeypatch.setattr("holdfast.frontier.retries.COUNTED", 1)
    monkeypatch.setattr("holdfast.frontier.service.RETRIED_AT_ONCE", 1)
    counted = desk(crawls).count_retry("shop")
    assert (counted.urls, counted.more) == (1, True)
    later: list[Any] = []
    done = retry(crawls, later=later.append)
    assert (done.finished, done.reopened, done.more) == (False, True, True)
    assert crawls.value("SELECT waiting FROM job_domains") == 0
    (rest,) = later
    rest()
    assert crawls.value("SELECT waiting FROM job_domains") == 2
    assert crawls.value("SELECT state_reason FROM crawl_jobs WHERE name = 'shop'") == "more than 1 URLs were retried"
    crawls.verify()


def test_a_domain_with_more_urls_than_a_fold_takes_is_finished_by_the_sweep(
    crawls: Crawls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.db.claimable.REOPEN_CHUNK", 1)
    with Pages(SITE) as pages:
        crawl(crawls, pages)
    assert retry(crawls).urls == 2
    assert crawls.value("SELECT waiting FROM job_domains") == 1
    for _ in range(2):
        sweeper.sweep(crawls.connection, run_silence=desk(crawls).run_silence)
    assert (crawls.value("SELECT waiting FROM job_domains"), crawls.value("SELECT count(*) FROM domain_wakes")) == (
        2,
        0,
    )
    crawls.verify()
