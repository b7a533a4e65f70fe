"""The end of a visit: what a domain is afterwards, when it is looked at again, and that only its holder ends it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.db import claims, runs, sweeper
from holdfast.domains import queries as domains
from holdfast.domains.records import Tenure
from holdfast.errors import ClaimLost
from holdfast.model.domain import BLOCKING_EVENTS, UNREACHABLE_EVENTS, Claim, Event, Status
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

HOUR = timedelta(hours=1)
DAYS = {
    Event.LOGIN_REQUIRED: 30,
    Event.RATE_LIMITED: 7,
    Event.UNAVAILABLE: 7,
    Event.FORBIDDEN: 14,
    Event.ROBOTS_DENIED: 90,
    **dict.fromkeys(sorted(UNREACHABLE_EVENTS), 7),
}


def cooling(store: Store, domain: str) -> timedelta:
    """How long the domain is still left alone; a moment less than the cool-down that began just now."""
    left = store.value("SELECT next_crawl_after - clock_timestamp() FROM domains WHERE domain = %s", domain)
    assert isinstance(left, timedelta)
    return left


def assert_about(left: timedelta, base: timedelta) -> None:
    assert base - timedelta(minutes=1) < left <= base * 1.1, left


def block(store: Store, claim: Claim, event: Event = Event.FORBIDDEN, **how: object) -> Status:
    assert store.flush(claim, outcomes=1)
    return store.release(claim, "w1", event=event, **how)


def sweep_now(store: Store) -> sweeper.SweepResult:
    return sweeper.sweep(store.connection, run_silence=HOUR)


def tenure(store: Store, claim: Claim) -> Tenure:
    return domains.tenures_of(store.connection, claim.domain_id)[0]


# Stories ------------------------------------------------------------------------------------------------------------


def test_a_one_page_site_becomes_active_with_its_flush_and_exhausted_at_its_release(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    assert store.status("a.example") is Status.PENDING
    store.finish_urls(claim)
    store.flush(claim, outcomes=1, pages_crawled=1)
    assert store.status("a.example") is Status.ACTIVE
    assert store.release(claim) is Status.EXHAUSTED
    changes = [row.to_status for row in domains.transitions_of(store.connection, claim.domain_id)]
    assert changes == ["exhausted", "active"]
    row = store.row("a.example")
    assert (row["claimed_by"], row["claim_expires_at"], row["claim_epoch"]) == (None, None, claim.epoch)
    assert_about(cooling(store, "a.example"), timedelta(days=14))
    assert (tenure(store, claim).why, store.work("a.example")["state"]) == ("released", "done")
    assert store.claim() == []
    assert_invariants(store.connection)


def test_the_four_domains_of_a_graceful_stop(store: Store) -> None:
    """A is half done, B is done, C forbids, D was claimed and never begun."""
    store.seed("a.example", "a.example/2", "b.example", "c.example", "d.example")
    a, b, c, d = sorted(store.claim("w1", 4), key=lambda claim: claim.domain)
    store.flush(a, outcomes=1, pages_crawled=1)
    store.finish_urls(b)
    store.flush(b, outcomes=1, pages_crawled=1)
    store.flush(c, outcomes=10, errors=10, consecutive_errors=10)
    endings = [
        store.release(a),
        store.release(b),
        store.release(c, event=Event.FORBIDDEN, detail="10 times 403"),
        store.release(d, crawled=False),
    ]
    assert endings == [Status.ACTIVE, Status.EXHAUSTED, Status.BLOCKED, Status.PENDING]
    assert store.row("d.example")["last_crawled_at"] is None
    sweep_now(store)
    assert [claim.domain for claim in store.claim("w2", 1) + store.claim("w2", 9)] == ["a.example", "d.example"]
    assert_invariants(store.connection)


# Exhausted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "after"),
    [
        ("pending", Status.ACTIVE),
        ("paused", Status.ACTIVE),
        ("failed", Status.ACTIVE),
        ("cancelled", Status.EXHAUSTED),
    ],
)
def test_a_domain_is_exhausted_when_every_job_that_is_not_cancelled_is_done(
    store: Store, state: str, after: Status
) -> None:
    other = store.new_job("other")
    store.seed("a.example")
    store.seed("a.example/theirs", job=other)
    claim = store.claim_one()
    store.connection.execute("UPDATE crawl_jobs SET state = %s WHERE id = %s", (state, other))
    store.connection.execute("UPDATE url_frontier SET state = 'done' WHERE job_id = %s", (store.job,))
    store.connection.execute("UPDATE job_domains SET waiting = 0, done = 1; UPDATE domains SET frontier_size = 0")
    store.flush(claim, outcomes=1, pages_crawled=1)
    assert store.release(claim) is after
    assert store.work("a.example")["state"] == "done"
    assert store.work("a.example", other)["state"] == "open", "its wake was folded by the holder"
    assert store.work("a.example", other)["ready"] is (state == "pending")
    assert store.claim() == []
    assert_invariants(store.connection)


def test_a_spent_budget_leaves_the_domain_active_and_not_ready(store: Store) -> None:
    store.seed("a.example", "a.example/2")
    claim = store.claim_one()
    store.flush(claim, outcomes=1, pages_crawled=1)
    assert store.release(claim, spent_jobs=frozenset({store.job})) is Status.ACTIVE
    work = store.work("a.example")
    assert (work["state"], work["ready"], work["waiting"]) == ("spent", False, 2)
    assert store.row("a.example")["next_crawl_after"] is None
    assert store.claim() == []
    assert_invariants(store.connection)


def test_a_spent_budget_with_nothing_left_is_the_end(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    store.finish_urls(claim)
    store.flush(claim, outcomes=1, pages_crawled=1)
    assert store.release(claim, spent_jobs=frozenset({store.job})) is Status.EXHAUSTED
    assert store.work("a.example")["state"] == "done"


def test_work_that_waits_for_its_time_is_delayed_not_done(store: Store) -> None:
    store.seed("a.example", "a.example/2")
    claim = store.claim_one()
    store.connection.execute(
        "UPDATE url_frontier SET not_before = clock_timestamp() + CASE WHEN url LIKE '%/2' THEN interval '9 min' ELSE '1 h' END"
    )
    store.flush(claim, outcomes=1)
    assert store.release(claim) is Status.ACTIVE
    work = store.work("a.example")
    assert (work["ready"], work["state"]) == (False, "open")
    assert store.value("SELECT not_before = (SELECT min(not_before) FROM url_frontier) FROM job_domains") is True
    assert store.claim() == []
    sweep_now(store)
    assert store.claim() == [], "its time has not come"
    assert_invariants(store.connection)


def test_one_url_that_need_not_wait_makes_the_domain_ready(store: Store) -> None:
    store.seed("a.example", "a.example/2", "a.example/3")
    claim = store.claim_one()
    store.connection.execute(
        "UPDATE url_frontier SET not_before = clock_timestamp() + interval '1 h' WHERE url LIKE '%/2'"
    )
    store.connection.execute("UPDATE url_frontier SET not_before = clock_timestamp() WHERE url LIKE '%/3'")
    store.release(claim)
    assert (store.work("a.example")["ready"], store.work("a.example")["not_before"]) == (True, None)
    assert len(store.claim()) == 1


def test_an_empty_frontier_does_not_exhaust_a_domain_that_was_never_crawled(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    store.finish_urls(claim)
    assert store.release(claim, crawled=False) is Status.PENDING
    assert_invariants(store.connection)


def test_links_that_arrived_during_the_visit_are_counted_at_its_end(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    store.finish_urls(claim)
    store.flush(claim, outcomes=1, pages_crawled=1)
    store.insert_foreign(claim.domain_id, "https://a.example/late")
    assert store.release(claim) is Status.ACTIVE
    row, work = store.row("a.example"), store.work("a.example")
    assert (row["pages_discovered"], row["frontier_size"], work["waiting"], work["ready"]) == (2, 1, 1, True)
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert_invariants(store.connection)


def test_a_wrong_hint_gets_no_exhausted_domain_claimed(store: Store) -> None:
    store.seed("a.example")
    store.crawl_to_the_end()
    before = store.row("a.example")
    store.connection.execute("UPDATE job_domains SET ready = true, state = 'open'")
    assert store.claim() == []
    assert store.row("a.example") == before


def test_a_visit_that_had_nothing_to_do_changes_neither_status_nor_clock(store: Store) -> None:
    store.seed("a.example")
    store.finish_urls(store.claim_one())  # a visit whose pages were all counted elsewhere: nothing was fetched in it
    claim = claims.reclaim(store.connection, worker="w1", lease=LEASE)[0]
    before = store.row("a.example")
    assert store.release(claim, crawled=False) is Status.PENDING
    after = store.row("a.example")
    for column in ("status", "status_reason", "next_crawl_after", "last_crawled_at", "version", "retry_count"):
        assert after[column] == before[column], column
    assert store.work("a.example")["state"] == "done"
    assert_invariants(store.connection)


# Stops --------------------------------------------------------------------------------------------------------------


def test_each_stop_has_its_reason_and_its_cooldown(store: Store) -> None:
    store.domains(len(DAYS))
    for claim, (event, days) in zip(store.claim("w1", len(DAYS)), DAYS.items(), strict=True):
        after = block(store, claim, event, detail="seen in a test")
        row = store.row(claim.domain)
        assert row["status"] == after == (Status.BLOCKED if event in BLOCKING_EVENTS else Status.UNREACHABLE)
        assert (row["block_reason_code"], row["block_reason"]) == (event, "seen in a test")
        assert row["status_reason"] == f"{event}: seen in a test"
        assert row["retry_count"] == 1
        assert_about(cooling(store, claim.domain), timedelta(days=days))
        assert store.work(claim.domain)["ready"] is False
    assert store.claim("w1", 99) == []
    assert_invariants(store.connection)


def test_robots_may_block_a_domain_before_its_first_page(store: Store) -> None:
    store.seed("a.example")
    assert store.release(store.claim_one(), event=Event.ROBOTS_DENIED, crawled=False) is Status.BLOCKED
    row = store.row("a.example")
    assert (row["block_reason_code"], row["block_reason"], row["last_crawled_at"]) == ("robots_denied", None, None)


def test_retry_after_is_obeyed_when_it_is_longer(store: Store) -> None:
    for name, asked, days in (("long.example", timedelta(days=40), 40), ("short.example", timedelta(hours=1), 7)):
        store.seed(name)
        block(store, store.claim_one(), Event.RATE_LIMITED, retry_after=asked)
        assert_about(cooling(store, name), timedelta(days=days))


def test_the_fourth_block_lasts_until_a_person_resets_it(store: Store) -> None:
    store.seed("a.example")
    for blocks in (1, 2, 3):
        block(store, store.claim_one())
        assert store.row("a.example")["retry_count"] == blocks
        assert_about(cooling(store, "a.example"), timedelta(days=14))
        store.end_cooldowns()
        assert sweep_now(store).cooled == 1
    block(store, store.claim_one())
    row = store.row("a.example")
    assert (row["next_crawl_after"], row["retry_count"]) == ("infinity", 4)
    store.end_cooldowns()
    assert sweep_now(store).cooled == 0
    assert (store.status("a.example"), store.claim()) == (Status.BLOCKED, [])
    assert_invariants(store.connection)


def test_a_visit_that_ends_without_a_block_forgives_the_blocks_before(store: Store) -> None:
    """A huge site is never crawled to its end; it must not be lost for good at its fourth block in three years."""
    store.seed("a.example")
    block(store, store.claim_one())
    store.end_cooldowns()
    sweep_now(store)
    assert store.row("a.example")["retry_count"] == 1
    store.release(store.claim_one(), crawled=False)
    assert store.row("a.example")["retry_count"] == 1, "a visit that fetched nothing proves nothing"
    store.release(store.claim_one(), answered=False)
    assert store.row("a.example")["retry_count"] == 1, "nor does one that was only refused"
    claim = store.claim_one()
    assert store.flush(claim, outcomes=1, pages_crawled=1)
    store.release(claim)
    assert (store.status("a.example"), store.row("a.example")["retry_count"]) == (Status.ACTIVE, 0)


# Clocks and fence ---------------------------------------------------------------------------------------------------


def test_the_day_of_the_last_crawl_and_its_run_change_only_if_something_was_fetched(store: Store) -> None:
    store.seed("a.example", "a.example/2")
    run = runs.begin(store.connection, worker="w1")
    store.release(store.claim_one(), crawled=False)
    row = store.row("a.example")
    assert (row["last_crawled_at"], row["last_crawl_run_id"], row["last_visit_ended_at"]) == (None, None, None)
    claim = store.claim_one()
    store.flush(claim, run=run, outcomes=1)
    store.release(claim)
    crawled = store.row("a.example")
    assert crawled["last_visit_ended_at"] is not None
    assert crawled["last_crawl_run_id"] == run
    assert store.value("SELECT clock_timestamp() - last_crawled_at < interval '1 min' FROM domains") is True
    claim = store.claim_one()
    store.flush(claim, run=runs.begin(store.connection, worker="w2"), discovered=0)
    store.release(claim, crawled=False)
    after = store.row("a.example")
    assert (after["last_crawled_at"], after["last_crawl_run_id"]) == (crawled["last_crawled_at"], run)
    store.flush(claim := store.claim_one(), outcomes=1)
    store.release(claim)
    assert store.row("a.example")["last_crawl_run_id"] == run, "a visit without a run forgets none"


def test_who_does_not_hold_the_domain_changes_nothing_at_all(store: Store) -> None:
    store.seed("a.example", "b.example")
    ended, claim = store.claim("w1", 2)
    for mine in (ended, claim):
        store.finish_urls(mine)
        store.flush(mine, outcomes=1, pages_crawled=1)
        store.insert_foreign(mine.domain_id, f"https://{mine.domain}/late")  # there would be something to fold
    store.expire(ended.domain_id)
    released = replace(claim)
    cases = {
        "an ended lease": ("w1", ended),
        "another worker": ("w2", claim),
        "an old epoch": ("w1", replace(claim, epoch=claim.epoch - 1)),
        "no such domain": ("w1", replace(claim, domain_id=claim.domain_id + 1000)),
        "already released": ("w1", released),
    }
    for lost, (worker, former) in cases.items():
        if former is released:
            store.release(claim)
        before = store.everything()
        for event in (None, Event.FORBIDDEN):
            with pytest.raises(ClaimLost):
                store.release(former, worker, event=event)
        assert store.everything() == before, lost
    assert_invariants(store.connection)
