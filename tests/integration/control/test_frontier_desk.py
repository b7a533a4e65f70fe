"""The frontier as people handle it: fed, cleared and set right, while nobody and while somebody crawls it."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from holdfast.db import audit, crawls, jobs, sweeper
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.domains import queries as domains
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.frontier import queries
from holdfast.frontier.service import FrontierService
from holdfast.jobs.seed_import import SeedImporter
from holdfast.model.outcome import Outcome
from holdfast.model.url import DEFAULT_RULES
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawled import HOME, crawl_a_little
from tests.support.crawls import Crawls, wait_for
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.tasks import Tasks

WHO = "ann"


@pytest.fixture
def desk(database: Database) -> FrontierService:
    return desk_of(database)


def desk_of(database: Database) -> FrontierService:
    return FrontierService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()))


def deeds(connection: psycopg.Connection, kind: str = "frontier") -> list[tuple[str, str]]:
    return [(entry.action, entry.object_id) for entry in audit.listing(connection, kind=kind)]


def urls(store: Store) -> dict[str, str]:
    """State by URL."""
    return dict(store.connection.execute("SELECT url, state::text FROM url_frontier").fetchall())


# Feeding --------------------------------------------------------------------------------------------------------------


def test_seeds_go_into_the_standing_job_before_all_others(desk: FrontierService, store: Store) -> None:
    loaded = desk.seed(["a.example", "not a url", "https://a.example/x"], actor=WHO)
    assert (loaded.seen, loaded.urls, loaded.domains, loaded.bad) == (3, 2, 1, 1)
    assert loaded.bad_urls[0].line == 2
    assert store.value("SELECT array_agg(DISTINCT priority)::text FROM url_frontier") == "{3}"
    assert store.work("a.example")["ready"]
    assert deeds(store.connection) == [("seed", str(store.job))]
    assert_invariants(store.connection)


def test_urls_go_into_a_job_with_their_priority_and_known_ones_stay(desk: FrontierService, store: Store) -> None:
    job = store.new_job("news")
    desk.seed(["https://a.example/x"], "news", actor=WHO)
    desk.add(["https://a.example/x", "https://a.example/y"], job, actor=WHO, priority="low")
    found = store.connection.execute("SELECT url, priority FROM url_frontier WHERE job_id = %s ORDER BY url", (job,))
    assert found.fetchall() == [("https://a.example/x", 3), ("https://a.example/y", 1)]
    assert store.work("a.example", job)["waiting"] == 2, "a domain that is known hears of it at once"
    assert_invariants(store.connection)


def test_what_cannot_be_added_is_refused(desk: FrontierService, store: Store) -> None:
    store.connection.execute("INSERT INTO crawl_jobs (name, state) VALUES ('over', 'cancelled')")
    with pytest.raises(UsageError, match="high, medium, low, not 'soon'"):
        desk.add(["a.example"], actor=WHO, priority="soon")
    with pytest.raises(UsageError, match="1 to 10000 URLs are added at once, not 0"):
        desk.add([], actor=WHO)
    with pytest.raises(NotFound, match="no job called 'nothing'"):
        desk.add(["a.example"], "nothing", actor=WHO)
    with pytest.raises(Refused, match="add a task instead"):
        desk.add(["a.example"], jobs.TASKS, actor=WHO)
    with pytest.raises(Refused, match="cancelled: no worker would crawl"):
        desk.add(["a.example"], "over", actor=WHO)
    assert store.value("SELECT count(*) FROM domains") == 0
    assert deeds(store.connection) == []


# Setting right --------------------------------------------------------------------------------------------------------


def test_recover_frees_what_expired_and_folds_what_is_new(desk: FrontierService, store: Store) -> None:
    store.domains(2)
    claim = store.claim_one("dead")
    store.expire(claim.domain_id)
    store.insert_foreign(claim.domain_id, "https://d0.example/new")
    done = desk.recover(actor=WHO)
    assert (done.claims, done.domains, done.faults) == (1, 1, [])
    assert store.value("SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL") == 0
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert deeds(store.connection) == [("recover", "*")]
    assert deeds(store.connection, "claims") == [("release", "*")]
    assert desk.recover(actor=WHO).claims == 0
    assert deeds(store.connection) == [("recover", "*")], "what changed nothing leaves no line"
    assert_invariants(store.connection)


# Clearing -------------------------------------------------------------------------------------------------------------


def test_what_waits_goes_and_what_is_done_stays(desk: FrontierService, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    before = urls(store)
    assert list(before.values()).count("waiting") == 2
    cleared = desk.clear(actor=WHO).cleared
    assert (cleared.forgotten, cleared.put_back, cleared.taken_away) == (2, 0, 0)
    assert urls(store) == {url: state for url, state in before.items() if state != "waiting"}
    assert store.status("example.com") == "exhausted", "nothing is left to do"
    assert store.status("other.example") == "pending", "it was never crawled"
    assert store.value("SELECT sum(frontier_size) FROM domains") == 0
    assert store.value("SELECT count(*) FROM job_domains WHERE ready OR state <> 'done'") == 0
    assert deeds(store.connection) == [("clear", "*")]
    assert_invariants(store.connection)
    assert desk.clear(actor=WHO).cleared.urls == 0
    assert deeds(store.connection) == [("clear", "*")]


def test_what_went_may_be_met_again(desk: FrontierService, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    desk.clear(actor=WHO)
    desk.seed(["https://other.example/deep", f"{HOME}slow"], actor=WHO)
    assert [urls(store)[url] for url in ("https://other.example/deep", f"{HOME}slow")] == ["waiting"] * 2
    assert store.work("other.example")["ready"]
    assert store.status("example.com") == "pending"
    assert_invariants(store.connection)


def test_only_the_job_and_the_domain_that_are_meant_are_cleared(desk: FrontierService, store: Store) -> None:
    news = store.new_job("news")
    store.seed("a.example/1", "b.example/1")
    store.seed("a.example/1", "a.example/2", "b.example/1", job=news)
    sweeper.sweep(store.connection, run_silence=desk.run_silence)
    cleared = desk.clear(actor=WHO, job="news", domain="https://a.example/some/page").cleared
    assert cleared.forgotten == 2
    left = store.connection.execute(
        "SELECT d.domain, f.job_id FROM url_frontier f JOIN domains d ON d.id = f.domain_id ORDER BY 1, 2"
    )
    assert left.fetchall() == [("a.example", store.job), ("b.example", store.job), ("b.example", news)]
    assert jobs.state(store.connection, news) == "pending", "it has work elsewhere"
    assert_invariants(store.connection)
    assert desk.clear(actor=WHO, job=news).ended_jobs == [news]
    assert_invariants(store.connection)


def test_a_job_whose_frontier_was_cleared_is_completed_whether_it_was_begun_or_not(
    desk: FrontierService, store: Store
) -> None:
    for begun in (False, True):
        job = store.new_job(f"news {begun}")
        store.seed("a.example/1", f"b{begun}.example/".lower(), job=job)
        if begun:
            crawls.begin(store.connection, job)
            store.connection.execute("UPDATE crawls SET state = 'stopped'")
        assert desk.clear(actor=WHO, job=job).ended_jobs == [job]
        assert jobs.state(store.connection, job) == "completed"
        assert store.value("SELECT count(*) FROM crawls WHERE state <> 'finished'") == 0
    store.seed("c.example")
    bare = store.new_job("not begun, without a URL yet")
    assert desk.clear(actor=WHO).ended_jobs == []
    assert jobs.state(store.connection, bare) == "pending", "nothing of it was cleared"
    assert jobs.state(store.connection, store.job) == "pending", "the standing job never ends"


def test_pages_that_are_to_be_looked_at_again_stay_what_they_were(
    desk: FrontierService, database: Database, store: Store
) -> None:
    crawl = crawl_a_little(database, store)
    before = urls(store)
    domains.reset(store.connection, "example.com", why="test")
    sweeper.sweep(store.connection, run_silence=desk.run_silence)
    for claim in store.claim(crawl.worker, 2):
        if claim.domain == "example.com":
            crawl.commit(claim, [crawl.outcome(f"{HOME}gone", Outcome.SERVER_ERROR, page=None)])
        store.release(claim, crawl.worker)
    domains.reset(store.connection, "example.com", why="once more")  # now one that failed has a page from before
    sweeper.sweep(store.connection, run_silence=desk.run_silence)
    assert urls(store)[f"{HOME}gone"] == "waiting"
    cleared = desk.clear(actor=WHO, domain="example.com").cleared
    after = urls(store)
    pages = {url for url, state in before.items() if state == "done"}
    assert {after[url] for url in pages - {f"{HOME}gone"}} == {"done"}
    assert after[f"{HOME}gone"] == "failed"
    assert cleared.put_back == len(pages)
    assert store.status("example.com") == "exhausted", "it was crawled before, and has nothing to do"
    assert store.row("example.com")["next_crawl_after"] is not None, "its refresh has a date"
    assert_invariants(store.connection)


def test_news_that_nobody_has_counted_go_without_waking_anybody(desk: FrontierService, store: Store) -> None:
    store.domains(1)
    claim = store.crawl_to_the_end()
    due = store.row("d0.example")["next_crawl_after"]
    with store.connection.transaction():
        for path in ("new", "newer"):
            store.insert_foreign(claim.domain_id, f"https://d0.example/{path}")
    assert desk.clear(actor=WHO).cleared.forgotten == 2
    assert store.status("d0.example") == "exhausted"
    assert store.row("d0.example")["next_crawl_after"] == due
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert store.value("SELECT count(*) FROM domain_transitions WHERE to_status = 'pending'") == 0


def test_counters_are_right_after_every_step(
    desk: FrontierService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ROWS", 3)
    monkeypatch.setattr(queries, "CHUNK", 2)
    store.seed(*(f"d{i}.example/{n}" for i in range(5) for n in range(4)))
    claim = store.claim_one()
    with store.connection.transaction():
        for number in range(4):
            store.insert_foreign(claim.domain_id, f"https://{claim.domain}/new{number}")
    steps = []

    def watch(cleared: queries.Cleared) -> None:
        steps.append(cleared.urls)
        assert_invariants(store.connection)

    assert desk.clear(actor=WHO, watch=watch).cleared.forgotten == 24
    assert len(steps) > 5
    assert store.value("SELECT count(*) FROM url_frontier") == 0
    assert store.value("SELECT sum(pages_discovered) FROM domains") == 0


def test_no_domain_is_passed_over_where_jobs_share_domains(
    desk: FrontierService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of domains with the URLs of two jobs, and of those with many wakes, fewer fit into one look than of others."""
    monkeypatch.setattr(queries, "CHUNK", 4)
    other = store.new_job("other")
    for job in (store.job, other):
        store.seed(*(f"d{number}.example/" for number in range(10)), job=job)
    sweeper.sweep(store.connection, run_silence=desk.run_silence)  # the second job's are news to domains that are known
    late = store.row("d9.example")["id"]
    with store.connection.transaction():
        store.insert_foreign(late, "https://d9.example/late")
    assert desk.clear(actor=WHO).cleared.forgotten == 21
    for number in range(6):
        with store.connection.transaction():
            store.insert_foreign(store.row("d0.example")["id"], f"https://d0.example/{number}")
    with store.connection.transaction():
        store.insert_foreign(store.row("d1.example")["id"], "https://d1.example/new")
    store.seed("d8.example/new")
    sweeper.sweep(store.connection, run_silence=desk.run_silence)
    for number in range(6):
        with store.connection.transaction():
            store.insert_foreign(store.row("d0.example")["id"], f"https://d0.example/again{number}")
    assert desk.clear(actor=WHO).cleared.forgotten == 14
    assert urls(store) == {}
    assert_invariants(store.connection)


def test_to_clear_a_frontier_brings_no_refresh_forward(database: Database, store: Store) -> None:
    desk = FrontierService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()), rest=timedelta(days=14))
    store.domains(1)
    store.crawl_to_the_end()
    store.connection.execute("UPDATE domains SET last_crawled_at = clock_timestamp() - interval '5 days'")
    store.seed("d0.example/new")
    sweeper.sweep(store.connection, run_silence=desk.run_silence)
    assert store.status("d0.example") == "pending"
    assert desk.clear(actor=WHO).cleared.forgotten == 1
    assert store.status("d0.example") == "exhausted"
    assert store.value("SELECT next_crawl_after > clock_timestamp() + interval '13 days' FROM domains")
    assert sweeper.sweep(store.connection, run_silence=desk.run_silence).faults == []
    assert store.status("d0.example") == "exhausted", "what was cleared would wait again, with everything else"
    assert set(urls(store).values()) == {"done"}


def test_tasks_are_not_cleared(desk: FrontierService, store: Store, connection: psycopg.Connection) -> None:
    tasks = Tasks(connection)
    task = tasks.one("a.example/x")
    assert tasks.due() == [task]
    connection.execute(
        "INSERT INTO url_frontier (domain_id, job_id, url_key, url, priority) SELECT domain_id, j.id, url_hash, url, 8"
        " FROM crawl_tasks, crawl_jobs j WHERE j.kind = 'tasks'"
    )
    connection.execute(
        "INSERT INTO domain_wakes (domain_id, job_id, inserted) SELECT domain_id, job_id, 1 FROM url_frontier"
    )
    sweeper.sweep(connection, run_silence=desk.run_silence)
    with pytest.raises(Refused, match="cancel or pause those instead"):
        desk.clear(actor=WHO, job=jobs.TASKS)
    assert desk.clear(actor=WHO).cleared.urls == 0
    assert store.value("SELECT count(*) FROM url_frontier") == 1
    assert_invariants(connection)


def test_what_is_to_be_cleared_is_said_and_looked_up_first(desk: FrontierService, store: Store) -> None:
    store.domains(1)
    with pytest.raises(UsageError, match="confirm=all"):
        desk.check_clear()
    with pytest.raises(NotFound, match=r"no domain 'x\.example'"):
        desk.check_clear(domain="x.example")
    with pytest.raises(NotFound, match="no job 99 any more"):
        desk.check_clear(99)
    assert desk.check_clear("default", "https://d0.example/x") == {"job": store.job, "domain": "d0.example"}
    assert desk.check_clear(everything=True) == {"job": None, "domain": None}


# In figures -----------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_counters(
    desk: FrontierService, store: Store, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    crawl_a_little(database, store)
    desk.add(["https://other.example/x", "https://other.example/y"], actor=WHO, priority="low")
    news = store.new_job("news")
    store.seed("https://other.example/deep", job=news)
    found = desk.stats()
    states = [*urls(store).values(), "waiting"]  # the same URL waits in another job, too
    by_state = {"waiting": found.waiting + found.unfolded, "done": found.done, "denied": found.denied}
    assert by_state == {state: states.count(state) for state in by_state}
    assert found.discovered + found.unfolded == len(states)
    assert (found.by_kind, found.by_priority, found.estimated) == ({"discovery": 4}, {2: 2, 1: 2}, False)
    assert [one.job for one in found.jobs] == ["default"]
    assert desk.stats("news").unfolded == 1
    assert found.oldest_waiting_at == store.value("SELECT min(discovered_at) FROM url_frontier WHERE state = 'waiting'")
    monkeypatch.setattr(queries, "COUNTED", 0)
    estimated = desk.stats()
    assert estimated.estimated
    assert sum(estimated.by_kind.values()) == pytest.approx(found.waiting, abs=2)
    assert estimated.oldest_waiting_at == found.oldest_waiting_at


# With a worker --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(31, 2, Site(60, 8, 700, latency=0.01))) as served:
        yield served


def test_a_job_that_is_being_crawled_ends_by_itself_when_its_frontier_is_cleared(
    crawls: Crawls, web: WebProcess
) -> None:
    """The worker has URLs in memory and pages on their way: they are refused, and nothing is counted that is not there."""
    job = crawls.begin(*web.urls, job="news", delay=0.02).job
    desk = desk_of(crawls.database)
    with crawls.worker(job) as worker:
        wait_for(lambda: crawls.total() >= 10, "the first pages")
        cleared = desk.clear(actor=WHO, job="news").cleared
        assert cleared.forgotten > 0
        assert cleared.taken_away > 0, "its worker had them in memory"
        crawls.verify()
        worker.end()
    ended = crawls.desk.end(job)
    assert ended.completed
    assert crawls.total() < 2 * 60
    crawls.verify()


def test_clearing_again_and_again_under_two_workers_breaks_nothing(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(*web.urls, job="news", delay=0).job
    other = crawls.begin(*web.urls, job="other", delay=0).job
    desk = desk_of(crawls.database)
    with crawls.worker(job, "w1") as one, crawls.worker(other, "w2") as two:
        rounds = 0
        while one.lives and rounds < 30:
            desk.clear(actor=WHO, job="news")
            crawls.verify()
            rounds += 1
        one.end()
        two.end()
    assert rounds > 0
    assert crawls.desk.end(job).completed
    assert crawls.desk.end(other).completed
    assert crawls.value("SELECT count(*) FROM crawled_pages WHERE job_id = %s", other.id) == 2 * 60, (
        "the other job has all it wanted"
    )
    crawls.verify()
