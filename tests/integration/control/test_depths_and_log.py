"""URLs of a job by depth, and the log of what happened to it."""

import time
from datetime import timedelta
from typing import Any

import pytest

from holdfast.control.scheduler import Scheduler
from holdfast.db import crawls, jobs
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.errors import NotFound, UsageError
from holdfast.frontier.service import FrontierService
from holdfast.jobs.queries import depths
from holdfast.jobs.records import JobEvent
from holdfast.jobs.seed_import import SeedImporter
from holdfast.jobs.service import JobService
from holdfast.model.url import DEFAULT_RULES
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store


@pytest.fixture
def service(database: Database) -> JobService:
    return JobService(database, "ann")


def fill(store: Store, urls: int) -> int:
    """A job with so many URLs on one domain, at depths 0 to 9: of ten at a depth one waits, one failed, two were denied; its id."""
    store.seed("big.example", job=(job := store.new_job("big")))
    domain = store.row("big.example")["id"]
    store.connection.execute("DELETE FROM url_frontier WHERE job_id = %s", (job,))
    store.connection.execute(
        """INSERT INTO url_frontier (domain_id, job_id, url_key, url, depth, state, reason)
        SELECT %s, %s, decode(md5(n::text), 'hex'), 'https://big.example/' || n, n %% 10,
               (CASE n / 10 %% 10 WHEN 0 THEN 'waiting' WHEN 1 THEN 'failed' WHEN 2 THEN 'denied' WHEN 3 THEN 'denied' ELSE 'done' END)
                   ::frontier_state,
               CASE n / 10 %% 10 WHEN 1 THEN 'timeout' WHEN 2 THEN 'too_deep' WHEN 3 THEN 'too_deep' WHEN 4 THEN 'redirect' END
        FROM generate_series(0, %s - 1) n""",
        (domain, job, urls),
    )
    store.connection.execute(
        """UPDATE job_domains SET discovered = s.n, waiting = s.waiting, done = s.done, denied = s.denied, failed = s.failed FROM (
            SELECT count(*) AS n, count(*) FILTER (WHERE state = 'waiting') AS waiting, count(*) FILTER (WHERE state = 'done') AS done,
                   count(*) FILTER (WHERE state = 'denied') AS denied, count(*) FILTER (WHERE state = 'failed') AS failed
            FROM url_frontier WHERE job_id = %(job)s) s WHERE job_id = %(job)s""",
        {"job": job},
    )
    return job


def test_urls_are_counted_by_depth_and_state(service: JobService, store: Store) -> None:
    fill(store, 1_000)
    found = service.depths("big")
    assert (found.job, found.estimated, found.waiting, found.done, found.denied, found.failed) == (
        "big",
        False,
        100,
        600,
        200,
        100,
    )
    assert [one.depth for one in found.depths] == list(range(10))
    assert {(one.waiting, one.done, one.pages, one.denied, one.failed) for one in found.depths} == {
        (10, 60, 50, 20, 10)
    }
    with pytest.raises(NotFound):
        service.depths("nothing")
    assert service.depths("default").depths == []


def test_many_urls_are_estimated_and_their_sums_are_exact(
    service: JobService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 20_000)
    monkeypatch.setattr(depths, "EXACT", 1_000)
    monkeypatch.setattr(depths, "SAMPLE", 5_000)
    store.connection.execute("ANALYZE url_frontier")
    found = service.depths("big")
    assert found.estimated
    for state in ("waiting", "done", "denied", "failed"):
        assert sum(getattr(one, state) for one in found.depths) == getattr(found, state)
    assert all(one.done == pytest.approx(1_200, rel=0.5) for one in found.depths)
    assert all(one.pages <= one.done for one in found.depths)


@pytest.mark.parametrize(
    ("sample", "total", "scaled"),
    [
        ({0: 1, 1: 1, 2: 1}, 100, {0: 34, 1: 33, 2: 33}),
        ({0: 3, 5: 1}, 4_000_000, {0: 3_000_000, 5: 1_000_000}),
        ({0: 5, 1: 5}, 3, {0: 2, 1: 1}),
        ({0: 0}, 7, {0: 0}),
    ],
)
def test_a_sample_is_scaled_to_its_total(sample: dict[int, int], total: int, scaled: dict[int, int]) -> None:
    assert depths.scale(sample, total) == scaled


def test_a_big_job_is_read_in_bounded_time(service: JobService, store: Store) -> None:
    fill(store, 300_000)
    store.connection.execute("ANALYZE url_frontier")
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        assert service.depths("big").estimated
        taken.append(time.perf_counter() - begun)
    assert min(taken) < 0.3, taken


# Log ------------------------------------------------------------------------------------------------------------------


def texts(events: list[JobEvent]) -> list[tuple[str, str, str | None]]:
    return [(one.kind, one.text, one.actor) for one in events]


def happen(service: JobService, database: Database, store: Store) -> None:
    """What may happen to a job, in this order."""
    crawl_a_little(database, store)
    service.edit("default", {"max_pages": 500})
    service.edit("default", {"max_pages": None, "text": True})
    service.schedule("default", "6h")
    service.pause("default")
    service.resume("default")
    frontier = FrontierService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()))
    frontier.add(["https://a.example/new"], "default", actor="bob")
    frontier.retry("default", actor="bob", reason="not_found")
    store.connection.execute("UPDATE crawls SET state = 'finished', ended_at = clock_timestamp()")
    store.connection.execute("UPDATE crawl_jobs SET state = 'completed' WHERE name = 'default'")
    with store.connection.transaction():
        jobs.reopen(store.connection, store.job, "its cool-down ended")


def test_the_log_says_what_happened_the_newest_first(service: JobService, database: Database, store: Store) -> None:
    happen(service, database, store)
    found = service.events("default").rows
    assert texts(found)[:9] == [
        ("state", "reopened: its cool-down ended", None),
        ("state", "pending → completed", None),
        ("crawl", "crawl 1 ended", None),
        ("urls", "1 URL retried (reason not_found)", "bob"),
        ("urls", "1 new URL added", "bob"),
        ("state", "resumed", "ann"),
        ("state", "paused", "ann"),
        ("edit", "scheduled: 6h", "ann"),
        ("edit", "edited: text yes, max_pages default", "ann"),
    ]
    assert texts(found)[9:] == [
        ("edit", "edited: max_pages 500", "ann"),
        ("worker", "worker w1 started", None),
        ("crawl", "crawl 1 began", None),
        ("state", "created", None),
    ]
    assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_pages_of_the_log_are_the_whole_log(service: JobService, database: Database, store: Store, limit: int) -> None:
    happen(service, database, store)
    whole, found, after = service.events("default").rows, list[JobEvent](), None
    for _ in range(50):
        page = service.events("default", after, limit)
        found += page.rows
        after = page.next
        if after is None:
            break
        assert len(page.rows) == limit
    assert found == whole


def test_cursors_of_other_lists_are_refused(service: JobService) -> None:
    for after in ((1,), (1, 2, 3, 4, "x"), (-1, 1, 1, 1, 1)):
        with pytest.raises(UsageError, match="another list"):
            service.events("default", after)
    with pytest.raises(UsageError, match="1 to 500 at once"):
        service.events("default", limit=501)
    with pytest.raises(NotFound):
        service.events("nothing")


def test_a_start_by_the_schedule_is_in_the_log(service: JobService, database: Database, store: Store) -> None:
    job = store.new_job("often")
    store.seed("a.example", job=job)
    store.connection.execute(
        "UPDATE crawl_jobs SET state = 'completed', schedule = '1h', next_run_at = now() - interval '1 min' WHERE id = %s",
        (job,),
    )
    with database.session() as connection:
        assert Scheduler(DEFAULT_RULES, NewDomains(), parse_lost_after=timedelta(minutes=2)).tick(connection).begun == 1
    assert ("state", "started by its schedule (1h)", "schedule") in texts(service.events("often").rows)
    crawls.begin(store.connection, job)
    assert texts(service.events("often").rows)[0][1] in {"crawl 1 began", "pending → processing"}


def test_a_job_made_by_a_person_says_who_made_it(service: JobService, store: Store) -> None:
    job = store.new_job("made")
    details: dict[str, Any] = {"seeds": 3}
    service._record(store.connection, "create", job, details)
    assert texts(service.events("made").rows) == [("state", "created with 3 seeds", "ann")]
