"""Domains as people see and change them: priorities, configuration, starting over, reads."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.db import claimable, claims, sweeper
from holdfast.db.connection import Database
from holdfast.db.domains import counts
from holdfast.domains import queries as domains
from holdfast.domains.records import DomainColumns
from holdfast.errors import NotFound, Refused
from holdfast.model.domain import Event, Status
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC)


def learnt_points(
    *, seed_rank: int | None = None, discovered: int = 1, crawled: int = 0, stored: int = 0, errors: int = 0
) -> int:
    """a better rank scores higher."""
    rank = max(0, round(1000 - 150 * math.log10(seed_rank))) if seed_rank else 0
    image_yield = stored / crawled * 1000 if crawled else 0
    error_rate = errors / crawled * 500 if crawled else 0
    return rank + round(image_yield) + min(max(discovered - crawled, 0), 500) * 2 - round(error_rate)


def put(store: Store, domain: str, **columns: object) -> None:
    assignments = ", ".join(f"{name} = %s" for name in columns)
    store.connection.execute(f"UPDATE domains SET {assignments} WHERE domain = %s", (*columns.values(), domain))


def score(store: Store) -> list[tuple[int, int]]:
    return list(domains.recalculate(store.connection))


# Priorities ---------------------------------------------------------------------------------------------------------

SCORES: list[tuple[dict[str, int | None], timedelta | None]] = [
    ({"seed_rank": 1}, None),
    ({"seed_rank": 10}, None),
    ({"seed_rank": 1_000_000}, None),
    ({"seed_rank": 2_000_000_000}, None),
    ({"seed_rank": None}, None),
    ({"discovered": 100_000}, None),
    ({"discovered": 100, "crawled": 40, "stored": 80, "errors": 0}, timedelta()),
    ({"discovered": 100, "crawled": 100, "stored": 0, "errors": 50}, timedelta(days=30)),
    ({"discovered": 10, "crawled": 30, "stored": 1, "errors": 7}, timedelta(days=400)),
    ({"seed_rank": 250, "discovered": 900, "crawled": 3, "stored": 1000, "errors": 3}, timedelta(hours=7)),
    ({"seed_rank": 7, "discovered": 5, "crawled": 3, "stored": 0, "errors": 3_000}, timedelta(days=1)),
]


@pytest.mark.parametrize(("state", "woken"), [("completed", 1), ("paused", 1), ("cancelled", 0), ("failed", 1)])
def test_a_reset_means_every_job_that_may_go_on(store: Store, state: str, woken: int) -> None:
    other = store.new_job("other")
    store.seed("a.example")
    store.seed("a.example/x", job=other)
    sweeper.sweep(store.connection, run_silence=timedelta(hours=1))
    store.crawl_to_the_end()
    store.connection.execute("UPDATE crawl_jobs SET state = %s WHERE id = %s", (state, other))
    sweeper.fold_wakes_now(store.connection, domains.reset(store.connection, "a.example", why="test"))
    assert (store.work("a.example")["waiting"], store.work("a.example", other)["waiting"]) == (1, woken)
    assert_invariants(store.connection)


def test_a_clock_that_was_set_back_keeps_nobody_from_ending_a_tenure(store: Store) -> None:
    store.domains(4)
    held = store.claim("w1", 4)
    store.connection.execute("UPDATE claim_log SET claimed_at = claimed_at + interval '1 hour'")
    store.release(held[0])
    domains.reset(store.connection, held[1].domain, why="test")
    store.expire(held[2].domain_id)
    assert sweeper.sweep(store.connection, run_silence=timedelta(hours=1)).expired == 1
    claims.reclaim(store.connection, worker="w1", lease=LEASE)
    assert sweeper.force_release(store.connection, worker="w1") == 1
    assert len(store.claim("w2", 4)) == 4
    assert_invariants(store.connection)


def test_priorities_are_those_of_the_formula(store: Store) -> None:
    names = [f"d{number}.example" for number in range(len(SCORES))]
    store.seed(*names)
    for name, (facts, idle) in zip(names, SCORES, strict=True):
        put(
            store,
            name,
            seed_rank=facts.get("seed_rank"),
            pages_discovered=facts.get("discovered", 1),
            pages_crawled=facts.get("crawled", 0),
            images_stored=facts.get("stored", 0),
            total_error_count=facts.get("errors", 0),
            last_crawled_at=None if idle is None else NOW - idle,
            first_seen_at=NOW - timedelta(days=3),
        )
    score(store)
    for name, (facts, idle) in zip(names, SCORES, strict=True):
        # Never crawled counts as last crawled 30 days before it was first seen.
        idle = timedelta(days=33) if idle is None else idle
        stored = store.row(name)["priority_score"]
        points = learnt_points(**facts)  # type: ignore[arg-type]
        assert stored == points - round((NOW - idle).timestamp() / 86400 * 5), (name, facts)
        shown = domains.get(store.connection, name).priority
        assert shown == pytest.approx(points + idle / timedelta(days=1) * 5, abs=2), (name, facts)
        assert store.work(name)["priority"] == stored


def test_terms_that_ran_away_are_capped(store: Store) -> None:
    """A counter gone mad must not overflow the score."""
    store.seed("best.example", "worst.example")
    put(store, "best.example", pages_crawled=1, images_stored=10**15)
    put(store, "worst.example", pages_crawled=1, total_error_count=2**31 - 1)
    score(store)
    assert store.row("best.example")["priority_score"] - store.row("worst.example")["priority_score"] == 10_000_000


def test_the_points_of_a_rank(store: Store) -> None:
    for rank, points in ((1, 1000), (10, 850), (1_000_000, 100), (10_000_000, 0), (None, 0)):
        assert store.value("SELECT rank_points(%s::integer)", rank) == points, rank


def test_the_order_of_two_domains_does_not_change_with_time(store: Store) -> None:
    """Staleness grows alike for all, so the stored score leaves "now" out and is never rewritten for it."""
    store.seed("a.example", "b.example")
    before = {row.domain: row.priority_score for row in recent(store)}
    assert score(store) == [(2, 0)], "a seed is scored as any domain is"
    assert {row.domain: row.priority_score for row in recent(store)} == before


def test_claims_go_to_domains_under_way_then_by_score_then_by_id(store: Store) -> None:
    store.seed("tie-1.example", "tie-2.example")
    store.seed("worst.example", rank=900_000)
    store.seed("best.example", rank=1)
    store.seed("good.example", rank=1000)
    worst = store.claim("w1", 5)
    for claim in worst:
        if claim.domain == "worst.example":
            store.flush(claim, outcomes=1, pages_crawled=1, errors=1)
        store.release(claim, crawled=False)
    order = [store.claim_one().domain for _ in range(5)]
    assert order == ["worst.example", "best.example", "good.example", "tie-1.example", "tie-2.example"]
    assert (
        store.work("worst.example")["priority"]
        == store.row("worst.example")["priority_score"] + claimable.STARTED_BONUS
    )


def test_recalculating_goes_in_chunks_and_writes_only_what_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.db.domains.PRIORITY_CHUNK", 2)
    assert score(store) == []
    store.domains(5)
    put(store, "d1.example", images_stored=5, pages_crawled=1)
    put(store, "d4.example", images_stored=6, pages_crawled=1)
    untouched = store.row("d0.example")
    assert score(store) == [(2, 1), (2, 0), (1, 1)]
    assert score(store) == [(2, 0), (2, 0), (1, 0)]
    assert store.row("d0.example") == untouched
    assert [store.claim_one().domain for _ in range(2)] == ["d4.example", "d1.example"]
    store.seed("d5.example")
    assert score(store) == [(2, 0)] * 3, "a last chunk that is full"
    store.explain_images()
    assert_invariants(store.connection)


def test_recalculating_leaves_stopped_and_locked_domains_alone(store: Store, database: Database) -> None:
    names = ("blocked.example", "unreachable.example", "locked.example", "held.example")
    store.seed(*names)
    store.become("blocked.example", Status.BLOCKED)
    store.become("unreachable.example", Status.UNREACHABLE)
    for name in names:
        put(store, name, images_stored=5, pages_crawled=1)
    before = {name: store.row(name)["priority_score"] for name in names}
    store.connection.execute("UPDATE job_domains SET ready = false")
    put(store, "held.example", claimed_by="w1", claim_expires_at=NOW + HOUR)
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM domains WHERE domain = 'locked.example' FOR NO KEY UPDATE")
        assert score(store) == [(4, 1)]
    for name in names[:3]:
        assert store.row(name)["priority_score"] == before[name], name
    assert store.row("held.example")["priority_score"] > before["held.example"]
    assert store.work("held.example")["ready"] is False
    assert score(store) == [(4, 1)]


def test_a_release_scores_its_domain(store: Store) -> None:
    store.seed("a.example", "a.example/2")
    claim = store.claim_one()
    store.flush(claim, outcomes=1, pages_crawled=1, images_stored=3)
    store.release(claim)
    assert domains.get(store.connection, "a.example").priority == pytest.approx(3000 + 2, abs=1)
    assert score(store) == [(1, 0)]


# Starting over ------------------------------------------------------------------------------------------------------


def test_a_reset_starts_a_domain_over_from_every_status_held_or_free(store: Store) -> None:
    held = {f"held-{status}.example": status for status in Status}
    free = {f"free-{status}.example": status for status in Status}
    store.seed(*held)
    claimed = {claim.domain: claim for claim in store.claim("w1", 5)}
    store.seed(*free)
    for name, status in (held | free).items():
        store.become(name, status)
        store.connection.execute(
            "UPDATE domains SET retry_count = 4, consecutive_error_count = 9, refusal_streak = 9, "
            "next_crawl_after = CASE WHEN %s THEN 'infinity'::timestamptz END WHERE domain = %s",
            (name in free, name),
        )
        before = store.row(name)
        assert domains.reset(store.connection, name, why="a test") == before["id"]
        after = store.row(name)
        assert (after["status"], after["status_reason"]) == (Status.PENDING, "reset: a test")
        assert (after["claimed_by"], after["claim_epoch"]) == (None, before["claim_epoch"] + 1)
        assert (after["retry_count"], after["consecutive_error_count"], after["refusal_streak"]) == (0, 0, 0)
        assert (after["next_crawl_after"], after["first_blocked_at"], after["block_reason_code"]) == (None, None, None)
        assert after["version"] == before["version"] + 1
        changes = [
            row for row in domains.transitions_of(store.connection, after["id"]) if row.reason == "reset: a test"
        ]
        assert [row.from_status for row in changes] == ([] if status is Status.PENDING else [status])
    for name, claim in claimed.items():
        assert domains.tenures_of(store.connection, claim.domain_id)[0].why == "reset", name
        assert not store.flush(claim, outcomes=1), "its former holder is fenced off"
    assert_invariants(store.connection)
    sweeper.sweep(store.connection, run_silence=HOUR)
    assert {claim.domain for claim in store.claim("w2", 99)} == {*held, *free}
    assert_invariants(store.connection)


def test_a_reset_of_a_domain_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(NotFound, match=r"There is no domain 'a\.example'"):
        domains.reset(store.connection, "a.example", why="a test")


def test_after_a_reset_all_pages_of_all_jobs_but_the_cancelled_wait_again(store: Store) -> None:
    store.seed("a.example", "a.example/2")
    jobs = {state: store.new_job(state) for state in ("paused", "cancelled")}
    for job in jobs.values():
        store.seed("a.example/3", job=job)
    sweeper.sweep(store.connection, run_silence=HOUR)
    store.crawl_to_the_end()
    store.connection.execute("UPDATE job_domains SET budget_used = 7")
    for state, job in jobs.items():
        store.connection.execute("UPDATE crawl_jobs SET state = %s WHERE id = %s", (state, job))
    sweeper.fold_wakes_now(store.connection, domains.reset(store.connection, "a.example", why="a test"))
    work = {job: store.work("a.example", job) for job in (store.job, *jobs.values())}
    assert [(w["waiting"], w["done"], w["ready"]) for w in work.values()] == [
        (2, 0, True),
        (1, 0, False),
        (0, 1, False),
    ]
    assert work[store.job]["budget_used"] == 0
    assert store.row("a.example")["frontier_size"] == 3
    assert_invariants(store.connection)


@pytest.mark.parametrize(("urls", "visits"), [(5, [2, 2, 1]), (4, [2, 2])])
def test_a_reset_reopens_pages_in_chunks_and_each_of_them_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, urls: int, visits: list[int]
) -> None:
    """Pages of the first chunk are crawled again before the next one is reopened: they are not reopened twice."""
    monkeypatch.setattr(claimable, "REOPEN_CHUNK", 2)
    store.seed(*(f"a.example/{number}" for number in range(urls)))
    claim = store.crawl_to_the_end()
    domains.reset(store.connection, "a.example", why="a test")
    sweeper.fold_wakes_now(store.connection, claim.domain_id)
    for waiting in visits:
        assert store.work("a.example")["waiting"] == waiting
        assert_invariants(store.connection)
        store.crawl_to_the_end()
    assert (store.status("a.example"), store.work("a.example")["done"]) == (Status.EXHAUSTED, urls)
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert_invariants(store.connection)


# Configuration and reads --------------------------------------------------------------------------------------------


def test_an_edit_raises_the_version_and_refuses_to_overwrite_another(store: Store) -> None:
    store.seed("a.example")
    changes: dict[str, object] = {
        "base_url": "https://a.example:8443",
        "crawl_delay_seconds": 2.5,
        "max_concurrent_requests": 3,
        "parser_name": "product",
        "user_agent": "Test/1",
        "max_pages_per_run": 10,
        "default_crawl_frequency": timedelta(hours=6),
        "maintenance_window": "22:00-06:00",
        "strip_params": ["sid", "f_*"],
        "is_active": False,
        "proxy_use": "pool",
        "proxy_direct": True,
        "proxy_resolves": False,
        "proxy_country": "DE",
        "proxy_sticky": timedelta(minutes=10),
    }
    assert set(changes) == domains.EDITABLE
    row = domains.edit(store.connection, "a.example", changes, version=0)
    assert {name: getattr(row, name) for name in changes} == changes
    assert row.version == 1
    with pytest.raises(Refused, match=r"a\.example was changed meanwhile \(version 1, not 0\)"):
        domains.edit(store.connection, "a.example", {"user_agent": None}, version=0)
    assert domains.get(store.connection, "a.example").user_agent == "Test/1"
    assert domains.edit(store.connection, "a.example", {"user_agent": None}).version == 2
    with pytest.raises(NotFound):
        domains.edit(store.connection, "b.example", {"user_agent": None})
    with pytest.raises(AssertionError):
        domains.edit(store.connection, "a.example", {"status": "active"})


def test_a_domain_switched_off_is_not_claimed_and_one_switched_on_is(store: Store) -> None:
    store.seed("a.example")
    domains.edit(store.connection, "a.example", {"is_active": False})
    assert (store.work("a.example")["ready"], store.claim()) == (False, [])
    domains.edit(store.connection, "a.example", {"is_active": True})
    claim = store.claim_one()
    domains.edit(store.connection, "a.example", {"is_active": False})
    assert store.flush(claim, outcomes=1), "an edit does not take a claim away"
    store.release(claim)
    assert store.claim() == []
    assert_invariants(store.connection)


def recent(store: Store, status: Status | None = None, limit: int = 99) -> list[DomainColumns]:
    return domains.recent(store.connection, status=status, limit=limit)


def test_listings_show_what_was_asked_for_in_order(store: Store) -> None:
    store.seed("new.example", "old.example", "young.example", "barren.example")
    for name, day, stored in (("old.example", 3, 5), ("young.example", 1, 2), ("barren.example", 2, 0)):
        put(store, name, last_visit_ended_at=NOW - timedelta(days=day), pages_crawled=1, images_stored=stored)
    store.become("old.example", Status.ACTIVE)
    assert [row.domain for row in recent(store)] == [
        "young.example",
        "barren.example",
        "old.example",
        "new.example",
    ]
    assert [row.domain for row in recent(store, limit=1)] == ["young.example"]
    assert [row.domain for row in recent(store, Status.ACTIVE)] == ["old.example"]
    assert [row.domain for row in domains.by_yield(store.connection, limit=99)] == [
        "old.example",
        "young.example",
        "barren.example",
    ]
    assert counts(store.connection) == {"pending": 3, "active": 1}


def test_a_domain_blocked_for_good_can_be_looked_at(store: Store) -> None:
    """Infinity does not fit into a datetime."""
    store.seed("a.example", "b.example", "c.example")
    for name, retries in (("a.example", 3), ("b.example", 0)):
        put(store, name, retry_count=retries)
    for claim in store.claim("w1", 2):
        store.release(claim, event=Event.FORBIDDEN)
    shown = {row.domain: row for row in recent(store)}
    assert shown["a.example"] == domains.get(store.connection, "a.example")
    assert (shown["a.example"].next_crawl_after, shown["a.example"].stays_blocked) == (None, True)
    until = shown["b.example"].next_crawl_after
    assert isinstance(until, datetime)
    assert NOW + timedelta(days=14) < until < NOW + timedelta(days=16)
    assert (shown["b.example"].stays_blocked, shown["c.example"].next_crawl_after) == (False, None)
    with pytest.raises(NotFound, match="holdfast seeds add"):
        domains.get(store.connection, "d.example")
