"""The rules of a job are edited while it is crawled: by the sites' own logs, by counters, and by what an undo brings back."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from holdfast.errors import Refused
from holdfast.jobs import edits as job_edits
from holdfast.jobs.records import EditedJob
from holdfast.jobs.service import JobService
from holdfast.model.job import Job
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for
from tests.support.pages import Pages, html, moved

PAGES = 60
TOPICS = "/(garden|harbor|market|museum|orchard)/"
EXCLUDED = re.compile(TOPICS)
STATE = "SELECT state::text FROM crawl_jobs WHERE id = %s"


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(41, 3, Site(PAGES, 6, 500))) as served:
        yield served


def desk(crawls: Crawls) -> JobService:
    return JobService(crawls.database, "ann")


def edit(crawls: Crawls, job: Job, *words: str) -> EditedJob:
    changes = job_edits.parse(words)
    edited = desk(crawls).edit(job.id, changes)
    job_edits.follow_up(crawls.desk, job.id, tuple(changes))
    return edited


def undo(crawls: Crawls, job: Job) -> EditedJob:
    undone = desk(crawls).undo_scope(job.id)
    job_edits.follow_up(crawls.desk, job.id, tuple(undone.changed))
    return undone


def complete(crawls: Crawls, job: Job) -> None:
    done = "SELECT state::text = 'completed' AND rules_after IS NULL FROM crawl_jobs WHERE id = %s"
    wait_for(lambda: crawls.value(done, job.id), "the job to complete")
    crawls.verify()


def removed(crawls: Crawls, version: int) -> set[str]:
    """URLs that this version of the rules denied."""
    like = f"%(rules {version})"
    return {
        row[0] for row in crawls.rows("SELECT url FROM url_frontier WHERE state = 'denied' AND reason LIKE %s", like)
    }


def fetched(web: WebProcess, since: float) -> list[str]:
    return [hit.path for hit in pages(hits(web, since=since))]


def test_excluded_urls_are_not_fetched_any_more_and_an_undo_brings_them_back(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    job = crawls.begin(*(web.url(site) for site in range(3)), job="news", delay=0.05).job
    with crawls.worker(None):
        wait_for(lambda: crawls.total() >= 15, "the first pages")
        edited = edit(crawls, job, f"exclude={TOPICS}")
        at = now()
        assert (edited.changed, edited.rules_version) == (["exclude"], 1)
        complete(crawls, job)
        late = [path for path in fetched(web, at + 2) if EXCLUDED.match(path)]
        assert late == []
        assert fetched(web, at), "the rest was crawled"
        out = removed(crawls, 1)
        assert out
        assert all(EXCLUDED.match(urlsplit(url).path) for url in out)
        before = crawls.total()
        assert before < 3 * PAGES
        undone = undo(crawls, job)
        assert (undone.changed, undone.rules_version, undone.spec["exclude"]) == (["exclude"], 2, [])
        complete(crawls, job)
    assert crawls.total() == 3 * PAGES == len(fetched(web, since)), "as without an edit, and nothing twice"
    assert not log_checks.count_refetches(hits(web, since=since))
    assert not [url for url, (state, _) in crawls.frontier().items() if state == "waiting"]
    assert removed(crawls, 1) == set()


def test_a_visit_under_way_judges_before_each_fetch_and_keeps_what_is_in_flight(crawls: Crawls) -> None:
    """Nothing but the worker applies the edit: its command died at once."""
    slow = {f"/{kind}/{name}": html() for kind in ("in", "out") for name in "abcdefgh"}
    with Pages({"/": html(*slow), **slow}) as site:
        job = crawls.begin(site.url(), job="news", delay=0.3).job
        with crawls.worker(job) as worker:
            wait_for(lambda: crawls.total() >= 2, "the first pages")
            desk(crawls).edit(job.id, {"exclude": ["/out/"]})
            asked = len(site.paths())
            worker.end()
        late = [path for path in site.paths()[asked + 7 :] if path.startswith("/out/")]  # two seconds at this delay
        assert late == []
        assert {path for path in site.paths() if path.startswith("/in/")} == {f"/in/{name}" for name in "abcdefgh"}
    crawls.verify()


def test_a_preview_counts_what_the_edit_does(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(web.url(0), web.url(1), job="news", max_pages=20, exclude=("/(castle|valley)/",)).job
    with crawls.worker(job) as worker:
        worker.end()
    counts = "SELECT sum(waiting)::int, sum(denied)::int FROM job_domains WHERE job_id = %s"
    (waiting, denied) = crawls.rows(counts, job.id)[0]
    assert (waiting > 0, denied > 0) == (True, True)
    for words in (
        [f"exclude={TOPICS}"],
        ["exclude=/castle/"],
        ["include=/garden/", "include=/valley/"],
        ["max_depth=1"],
    ):
        changes = job_edits.parse(words)
        seen = desk(crawls).preview_scope("news", changes)
        assert seen.exact
        assert crawls.rows(counts, job.id)[0] == (waiting, denied), "a preview changes nothing"
        edit(crawls, job, *words)
        (waits, denies) = crawls.rows(counts, job.id)[0]
        assert (waits - waiting, denies - denied) == (seen.returns - seen.removes, seen.removes - seen.returns)
        assert seen.removes + seen.returns > 0
        assert bool(seen.removed_urls) == bool(seen.removes)
        assert bool(seen.returned_urls) == bool(seen.returns)
        frontier = crawls.frontier()
        assert {frontier[url][0] for url in seen.removed_urls} <= {"denied"}
        assert {frontier[url][0] for url in seen.returned_urls} <= {"waiting"}
        waiting, denied = waits, denies
        crawls.verify()


def test_a_wider_include_reopens_a_job_that_was_completed(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    job = crawls.begin(web.url(2), job="news", include=("/(garden|harbor|castle)/",)).job
    with crawls.worker(None):
        complete(crawls, job)
        before = crawls.total()
        assert before < PAGES
        edit(crawls, job, "include=")
        complete(crawls, job)
    assert crawls.total() == PAGES == len(fetched(web, since))
    told = crawls.value("SELECT data ->> 'reason' FROM events WHERE kind = 'job' AND data ->> 'what' = 'reopened'")
    assert told == "it was edited: include"


HOST, SISTER, FOREIGN = "site.localhost", "shop.site.localhost", "other.localhost"


@pytest.fixture
def hosts() -> Iterator[Pages]:
    with Pages() as served:
        served.answers = {
            f"{HOST}/": html("/in", served.url("/sister", SISTER), served.url("/foreign", FOREIGN)),
            f"{HOST}/in": html(),
            f"{SISTER}/sister": html("/sister/more"),
            f"{SISTER}/sister/more": html(),
            f"{FOREIGN}/foreign": html("/foreign/more"),
            f"{FOREIGN}/foreign/more": html(),
        }
        yield served


def asked(site: Pages) -> set[str]:
    return {name for _, name in site.asked if not name.endswith("/robots.txt")}


def test_a_wider_scope_inserts_urls_of_other_hosts_on_their_own_domains(crawls: Crawls, hosts: Pages) -> None:
    job = crawls.begin(hosts.url("/", HOST), job="news").job
    with crawls.worker(None):
        complete(crawls, job)
        assert asked(hosts) == {f"{HOST}/", f"{HOST}/in"}
        assert desk(crawls).preview_scope(job.id, {"scope": "domain"}).returns == 1
        edit(crawls, job, "scope=domain")
        complete(crawls, job)
        assert asked(hosts) == {f"{HOST}/", f"{HOST}/in", f"{SISTER}/sister", f"{SISTER}/sister/more"}
        edit(crawls, job, "scope=any")
        complete(crawls, job)
    assert asked(hosts) >= {f"{FOREIGN}/foreign", f"{FOREIGN}/foreign/more"}
    own = "SELECT d.domain FROM url_frontier f JOIN domains d ON d.id = f.domain_id WHERE f.state = 'done' AND f.url LIKE %s"
    assert {row[0].partition(":")[0] for row in crawls.rows(own, "%/sister%")} == {SISTER}
    assert len(hosts.paths(SISTER)) == 2, "each once"


def test_a_narrower_scope_leaves_hosts_without_a_seed_and_its_undo_returns_to_them(
    crawls: Crawls, hosts: Pages
) -> None:
    crawls.set(worker={"domains": 1})
    job = crawls.begin(hosts.url("/", HOST), job="news", scope="any", max_pages=2).job
    with crawls.worker(job) as worker:
        worker.end()
    assert asked(hosts) == {f"{HOST}/", f"{HOST}/in"}
    edited = edit(crawls, job, "scope=host", "max_pages=")
    assert edited.changed == ["scope", "max_pages"]
    assert {urlsplit(url).hostname for url in removed(crawls, 1)} == {SISTER, FOREIGN}
    crawls.verify()
    with crawls.worker(None):
        complete(crawls, job)
        assert asked(hosts) == {f"{HOST}/", f"{HOST}/in"}
        undo(crawls, job)
        complete(crawls, job)
    assert asked(hosts) == set(hosts.answers)


def test_where_a_seed_was_redirected_to_is_in_its_scope(crawls: Crawls) -> None:
    with Pages() as site:
        site.answers = {
            "a.localhost/": moved(site.url("/", "b.localhost")),
            "b.localhost/": html("/x", "/y"),
            "b.localhost/x": html(),
            "b.localhost/y": html(),
        }
        job = crawls.begin(site.url("/", "a.localhost"), job="news", max_pages=1).job
        with crawls.worker(job) as worker:
            worker.end()
        edit(crawls, job, "exclude=/y", "max_pages=")
        assert {urlsplit(url).path for url in removed(crawls, 1)} == {"/y"}
        with crawls.worker(None):
            complete(crawls, job)
        assert asked(site) == {"a.localhost/", "b.localhost/", "b.localhost/x"}


def test_two_edits_are_undone_one_after_the_other(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(web.url(0), job="news", max_pages=20).job
    with crawls.worker(job) as worker:
        worker.end()
    first = crawls.frontier()
    edit(crawls, job, "exclude=/(garden|harbor|market)/")
    second = {url: state for url, (state, _) in crawls.frontier().items()}
    edit(crawls, job, "exclude=/(garden|harbor|market)/", "exclude=/(museum|orchard|railway)/", "max_depth=9")
    assert removed(crawls, 1)
    assert removed(crawls, 2)
    undo(crawls, job)
    assert {url: state for url, (state, _) in crawls.frontier().items()} == second
    undo(crawls, job)
    assert crawls.frontier() == first
    with pytest.raises(Refused, match="no edit to undo"):
        undo(crawls, job)
    history = desk(crawls).scope_history("news")
    assert [(one.version, one.restores, one.actor) for one in history] == [
        (0, None, None),
        (1, None, "ann"),
        (2, None, "ann"),
        (3, 1, "ann"),
        (4, 0, "ann"),
    ]
    assert history[4].rules == history[0].rules
    crawls.verify()


def test_a_worker_that_is_killed_after_the_edit_loses_nothing(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(claims={"lease": 10})
    since = now()
    job = crawls.begin(web.url(0), web.url(1), job="news", delay=0.05).job
    with crawls.start("worker", "--name", "w1") as worker:
        wait_for(lambda: crawls.total() >= 10, "the first pages")
        edit(crawls, job, f"exclude={TOPICS}")
        at = now()
        worker.kill()
    with crawls.start("worker", "--name", "w1") as worker:
        complete(crawls, job)
        assert not [path for path in fetched(web, at + 2) if EXCLUDED.match(path)]
        undo(crawls, job)
        worker.kill()
    with crawls.start("worker", "--name", "w1") as worker:
        complete(crawls, job)
        worker.send(signal.SIGTERM)
        worker.end()
    assert crawls.total() == 2 * PAGES
    assert {hit.url for hit in pages(hits(web, 0, 1, since=since))} >= {
        url for url, (state, _) in crawls.frontier().items() if state == "done"
    }
    crawls.verify()


_KILLED = """
import os, signal, sys
from holdfast.db import job_rules
from holdfast.db.connection import Database
from holdfast.jobs.service import JobService
url, job, changes, steps, inside = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "inside"
database = Database(url)
job_rules.ROWS = 5
JobService(database, "ann").edit(job, changes)
if inside:
    fold, left = job_rules._fold, steps
    def killed(*given):
        global left
        fold(*given)
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    job_rules._fold = killed
with database.session() as connection:
    for _ in range(steps + inside):
        job_rules.judge_domains(connection, job)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("steps", "inside"), [(0, False), (1, False), (1, True)])
def test_an_edit_whose_command_is_killed_is_completed_by_a_worker(
    crawls: Crawls, web: WebProcess, steps: int, inside: bool
) -> None:
    since = now()
    job = crawls.begin(*(web.url(site) for site in range(3)), job="news", max_pages=30, delay=0).job
    with crawls.worker(job) as worker:
        worker.end()
    seen = desk(crawls).preview_scope("news", {"exclude": [TOPICS]})
    crawls.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE id = %s", (job.id,))
    arguments = [crawls.database.url, str(job.id), repr({"exclude": (TOPICS,)}), str(steps), "inside" if inside else ""]
    killed = subprocess.run([sys.executable, "-c", _KILLED, *arguments], check=False, env=crawls.environ())
    assert killed.returncode == -signal.SIGKILL
    assert len(removed(crawls, 1)) < seen.removes
    crawls.verify()
    with crawls.worker(None):  # paused: nothing is fetched, but its sweep goes on with the edit
        wait_for(lambda: crawls.value("SELECT rules_after IS NULL FROM crawl_jobs WHERE id = %s", job.id))
        assert len(removed(crawls, 1)) == seen.removes
    assert json.loads(json.dumps(crawls.value("SELECT spec FROM crawl_jobs WHERE id = %s", job.id)))["exclude"] == [
        TOPICS
    ]
    crawls.verify()
    desk(crawls).resume("news")
    edit(crawls, job, "max_pages=")
    undo(crawls, job)
    with crawls.worker(None):
        complete(crawls, job)
    assert crawls.total() == 3 * PAGES == len(fetched(web, since))
