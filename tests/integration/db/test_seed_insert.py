"""Seeds: inserts only. What is there already stays as it is, and hears of news by a wake."""

import math
import threading
from datetime import timedelta

import pytest

from holdfast.db import domain_removal, jobs, seed_insert, sweeper
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.db.seed_insert import SeedCounts
from holdfast.domains import queries as domains
from holdfast.errors import NotFound
from holdfast.model.domain import Event, Status
from holdfast.model.seed_lines import make_seed
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

HOUR = timedelta(hours=1)


def sweep_now(store: Store) -> sweeper.SweepResult:
    return sweeper.sweep(store.connection, run_silence=HOUR)


def wakes(store: Store) -> list[tuple[int, int, int]]:
    return store.connection.execute("SELECT domain_id, job_id, inserted FROM domain_wakes ORDER BY id").fetchall()


def test_new_domains_are_ready_at_once(store: Store) -> None:
    assert store.seed("https://a.example/x", "https://a.example/y", "b.example") == SeedCounts(domains=2, urls=3)
    a = store.row("a.example")
    assert (a["status"], a["source"], a["base_url"], a["parent_domain"]) == (
        Status.PENDING,
        "test",
        "https://a.example",
        "a.example",
    )
    assert (a["pages_discovered"], a["frontier_size"], a["version"], a["claim_epoch"]) == (2, 2, 0, 0)
    work = store.work("a.example")
    assert (work["ready"], work["state"], work["discovered"], work["waiting"]) == (True, "open", 2, 2)
    rows = store.connection.execute(
        "SELECT url, depth, priority, state::text, kind::text FROM url_frontier WHERE domain_id = %s ORDER BY url",
        (a["id"],),
    ).fetchall()
    assert rows == [(f"https://a.example/{path}", 0, 3, "waiting", "discovery") for path in "xy"]
    assert wakes(store) == []
    assert len(store.claim("w1", 9)) == 2
    assert_invariants(store.connection)


def test_nothing_to_seed_is_nothing_done(store: Store) -> None:
    assert store.seed() == SeedCounts()
    assert SeedCounts(1, 2) + SeedCounts(3, 4) == SeedCounts(4, 6)


def test_new_domains_are_treated_as_the_settings_say(store: Store) -> None:
    defaults = NewDomains(
        max_pages_per_run=5,
        parser="product",
        crawl_delay=0.5,
        max_concurrent_requests=2,
        crawl_frequency=timedelta(hours=3),
        user_agent="Test/1",
    )
    seed_insert.add(store.connection, [make_seed("a.example")], job_id=store.job, source="x", defaults=defaults)
    row = domains.get(store.connection, "a.example")
    assert (row.max_pages_per_run, row.parser_name, row.crawl_delay_seconds) == (5, "product", 0.5)
    assert (row.max_concurrent_requests, row.user_agent) == (2, "Test/1")
    assert row.default_crawl_frequency == timedelta(hours=3)


def test_seeds_of_a_paused_job_are_not_ready_but_not_lost(store: Store) -> None:
    store.connection.execute("UPDATE crawl_jobs SET state = 'paused'")
    assert store.seed("a.example") == SeedCounts(1, 1)
    assert store.work("a.example")["ready"] is False
    assert_invariants(store.connection)


def test_duplicates_inside_a_batch_are_one(store: Store) -> None:
    assert store.seed("a.example", "https://A.example/", "a.example/x", "a.example", "a.example/x#part") == SeedCounts(
        1, 2
    )
    assert store.row("a.example")["pages_discovered"] == 2
    assert store.seed("a.example/y", "a.example/y") == SeedCounts(0, 1)
    assert [wake[2] for wake in wakes(store)] == [1]
    assert_invariants(store.connection)


def test_seeding_the_same_again_adds_nothing(store: Store) -> None:
    store.seed("a.example", "a.example/x", rank=5)
    before = store.everything()
    assert store.seed("a.example", "a.example/x", rank=5) == SeedCounts()
    assert store.seed("a.example", rank=3) == SeedCounts()
    assert store.everything() == before


@pytest.mark.parametrize("how", ["held", "active", "exhausted", "blocked", "blocked for good"])
def test_a_known_domain_hears_of_new_urls_by_a_wake_and_its_row_is_untouched(store: Store, how: str) -> None:
    """Seeds never overwrite what a domain has learnt; its holder writes the row, nobody else."""
    store.seed("a.example", rank=7)
    if how == "exhausted":
        store.crawl_to_the_end()
    else:
        claim = store.claim_one()
        store.flush(claim, outcomes=1, pages_crawled=1, images_found=3, images_stored=2, errors=1)
        if how == "blocked for good":
            store.connection.execute("UPDATE domains SET retry_count = 3")
        if how != "held":
            store.release(claim, event=Event.FORBIDDEN if "blocked" in how else None)
    row, work = store.row("a.example"), store.work("a.example")
    assert store.seed("a.example", "a.example/new", "a.example/newer", rank=1) == SeedCounts(0, 2)
    assert (store.row("a.example"), store.work("a.example")) == (row, work)
    assert wakes(store) == [(row["id"], store.job, 2)]
    store.explain_images()
    assert_invariants(store.connection)
    sweep_now(store)
    claimable = how in {"active", "exhausted"}
    assert len(store.claim()) == claimable
    assert_invariants(store.connection)


def test_a_new_job_wakes_an_exhausted_domain_and_the_same_job_does_not(store: Store) -> None:
    """an exhausted domain is not crawled again because it is in the seeds."""
    store.seed("a.example")
    store.crawl_to_the_end()
    assert store.seed("a.example") == SeedCounts()
    assert sweep_now(store).woken == 0
    assert (store.status("a.example"), store.claim()) == (Status.EXHAUSTED, [])
    other = store.new_job("other")
    assert store.seed("a.example", job=other) == SeedCounts(0, 1)
    assert sweep_now(store).woken == 1
    assert (store.status("a.example"), store.claim()) == (Status.PENDING, [])
    (claim,) = store.claim("w1", job=other)
    assert claim.domain == "a.example"
    assert (store.work("a.example")["waiting"], store.work("a.example", other)["waiting"]) == (0, 1)
    assert_invariants(store.connection)


def test_the_base_url_is_that_of_the_first_seed(store: Store) -> None:
    store.seed("https://a.example/x", "http://a.example/", "http://b.example/x", "https://b.example/")
    found = store.connection.execute("SELECT base_url FROM domains ORDER BY domain").fetchall()
    assert found == [("https://a.example",), ("http://b.example",)]
    store.seed("http://a.example/y")
    assert store.row("a.example")["base_url"] == "https://a.example", "what is known stays"


def test_a_rank_is_filled_in_where_it_is_missing_and_nowhere_else(store: Store, database: Database) -> None:
    store.seed("unranked.example", "locked.example")
    store.seed("ranked.example", rank=500)
    before = store.row("unranked.example")
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM domains WHERE domain = 'locked.example' FOR NO KEY UPDATE")
        assert store.seed("unranked.example", "locked.example", "ranked.example", rank=20) == SeedCounts()
    after = store.row("unranked.example")
    scored = {name: after[name] for name in ("priority_score", "priority_computed_at", "updated_at")}
    assert after == before | {"seed_rank": 20} | scored
    assert after["priority_score"] == before["priority_score"] + round(1000 - 150 * math.log10(20))
    assert store.work("unranked.example")["priority"] == after["priority_score"]
    assert store.row("ranked.example")["seed_rank"] == 500
    assert store.row("locked.example")["seed_rank"] is None, "in use: left for another time"
    store.seed("unranked.example/x", rank=3)
    assert store.row("unranked.example")["seed_rank"] == 20
    assert wakes(store) == [(before["id"], store.job, 1)]


def test_the_best_rank_in_a_batch_counts(store: Store) -> None:
    seeds = [make_seed(f"{name}.example/{rank}", rank=rank) for name in ("new", "old") for rank in (30, 20, 40)]
    store.seed("old.example")
    seed_insert.add(store.connection, seeds, job_id=store.job, source="test", defaults=NewDomains())
    assert [store.row(f"{name}.example")["seed_rank"] for name in ("new", "old")] == [20, 20]


def test_two_loaders_at_once_with_reversed_lists_do_not_deadlock(store: Store, database: Database) -> None:
    """Both insert the same new domains, and the same new URLs of known ones, from opposite ends."""
    store.seed(*(f"known{number}.example" for number in range(0, 200, 2)))
    texts = [f"{kind}{number}.example/{path}" for number in range(200) for kind in ("new", "known") for path in "xy"]
    start = threading.Barrier(2)
    totals: list[SeedCounts] = []
    problems: list[BaseException] = []

    def load(order: list[str]) -> None:
        try:
            with database.connect() as connection:
                mine, total = Store(connection), SeedCounts()
                start.wait()
                for i in range(0, len(order), 200):
                    total += mine.seed(*order[i : i + 200])
                totals.append(total)
        except BaseException as problem:  # noqa: BLE001 — handed to the test
            problems.append(problem)

    threads = [threading.Thread(target=load, args=(order,)) for order in (texts, texts[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert totals[0] + totals[1] == SeedCounts(domains=300, urls=800)
    sweep_now(store)
    assert store.value("SELECT sum(pages_discovered) FROM domains") == 900
    assert_invariants(store.connection)


def test_a_job_is_found_by_its_name(store: Store) -> None:
    assert jobs.find(store.connection, "default") == store.job
    with pytest.raises(NotFound, match="no job called 'other'"):
        jobs.find(store.connection, "other")


@pytest.mark.parametrize("moment", ["_add_to_known", "_update_ranks"])
def test_seeds_of_a_domain_that_is_removed_in_this_moment_are_not_lost(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before it is looked up, or after that and before it is shared: its name is free, and it is made known once more."""
    store.seed("https://a.example/old", "https://b.example/")
    old = store.row("a.example")["id"]
    real = getattr(seed_insert, moment)
    times: list[int] = []

    def late(*given: object) -> object:
        if not times:
            with database.connect() as other:
                domain_removal.remove(other, "a.example")
        times.append(1)
        return real(*given)

    monkeypatch.setattr(seed_insert, moment, late)
    assert store.seed("https://a.example/new", "https://b.example/", "https://b.example/new") == SeedCounts(
        domains=1, urls=2
    )
    assert store.row("a.example")["id"] != old
    query = (
        "SELECT f.url FROM url_frontier f JOIN domains d ON d.id = f.domain_id WHERE d.removed_at IS NULL ORDER BY 1"
    )
    assert [row[0] for row in store.connection.execute(query)] == [
        "https://a.example/new",
        "https://b.example/",
        "https://b.example/new",
    ]
    while domain_removal.delete_chunk(store.connection, old) is not None:
        pass
    assert store.value("SELECT count(*) FROM url_frontier WHERE domain_id = %s", old) == 0
    assert_invariants(store.connection)
