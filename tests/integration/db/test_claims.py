"""Claims: one holder a domain, epochs that grow, leases by the database's clock, and a fence that nobody passes twice."""

import random
from datetime import timedelta
from typing import Any

import pytest

from holdfast.db import claims, commit, sweeper
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.errors import ClaimLost
from holdfast.model.domain import Claim, Event, Status
from holdfast.model.visit_report import DomainProgress
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

HOUR = timedelta(hours=1)


def held(*claimed: Claim) -> list[tuple[int, int]]:
    return [(claim.domain_id, claim.epoch) for claim in claimed]


def lease_left(store: Store, claim: Claim) -> timedelta:
    left = store.value("SELECT claim_expires_at - clock_timestamp() FROM domains WHERE id = %s", claim.domain_id)
    assert isinstance(left, timedelta)
    return left


# Acquire ------------------------------------------------------------------------------------------------------------


def test_a_batch_is_held_by_its_worker_alone_and_logged(store: Store) -> None:
    store.domains(5)
    batch = store.claim("w1", 3)
    assert len({claim.domain_id for claim in batch}) == 3
    for claim in batch:
        row = store.row(claim.domain)
        assert (row["claimed_by"], row["claim_epoch"], claim.epoch, claim.clean) == ("w1", 1, 1, True)
        assert row["status"] == claim.status == Status.PENDING, "claiming is not crawling"
        assert timedelta() < LEASE - lease_left(store, claim) < timedelta(minutes=1)
        assert store.work(claim.domain)["ready"] is False
        (tenure,) = domains.tenures_of(store.connection, claim.domain_id)
        assert (tenure.worker, tenure.epoch, tenure.ended_at) == ("w1", 1, None)
    rest = store.claim("w2", 3)
    assert len(rest) == 2, "fewer than asked for: there is no more"
    assert not {c.domain_id for c in batch} & {c.domain_id for c in rest}
    assert store.claim("w3", 1) == []
    assert store.claim("w3", 0) == []
    assert_invariants(store.connection)


def test_the_epoch_grows_by_one_with_every_acquisition(store: Store) -> None:
    store.seed("a.example")
    for expected in (1, 2, 3):
        claim = store.claim_one(f"w{expected}")
        assert claim.epoch == expected
        store.release(claim, f"w{expected}")
    store.claim_one("w4")
    (again,) = claims.reclaim(store.connection, worker="w4", lease=LEASE)
    assert again.epoch == 5
    assert_invariants(store.connection)


def test_what_nobody_may_claim(store: Store) -> None:
    """Each case spoils one domain after it was ready; the row's own state is the proof, not the hint."""
    spoil = {
        "held.example": "UPDATE domains SET claimed_by = 'w9', claim_expires_at = now() + interval '1 h' WHERE domain = %s",
        "off.example": "UPDATE domains SET is_active = false WHERE domain = %s",
        "cooling.example": "UPDATE domains SET next_crawl_after = clock_timestamp() + interval '1 minute' WHERE domain = %s",
        "never.example": "UPDATE domains SET next_crawl_after = 'infinity' WHERE domain = %s",
        "unready.example": "UPDATE job_domains SET ready = false FROM domains WHERE id = domain_id AND domain = %s",
    }
    store.seed(*spoil, "good.example", "cooled.example")
    for name, statement in spoil.items():
        store.connection.execute(statement, (name,))
    # A cool-down is over when the sweep has said so, and changed the status with it.
    store.connection.execute("UPDATE domains SET next_crawl_after = clock_timestamp() WHERE domain = 'cooled.example'")
    assert {claim.domain for claim in store.claim("w1", 10)} == {"good.example"}
    sweeper.sweep(store.connection, run_silence=HOUR)
    assert {claim.domain for claim in store.claim("w1", 10)} == {"cooled.example"}
    assert {claim.domain for claim in store.claim("w2", 10)} == set()


def test_a_job_that_does_not_run_claims_nothing(store: Store) -> None:
    store.seed("a.example")
    for state in ("paused", "completed", "failed", "cancelled"):
        store.connection.execute("UPDATE crawl_jobs SET state = %s", (state,))
        assert store.claim("w1", 1) == [], state
    store.connection.execute("UPDATE crawl_jobs SET state = 'processing'")
    assert len(store.claim("w1", 1)) == 1


def test_a_job_claims_its_own_domains_and_a_shared_one_has_one_holder(store: Store) -> None:
    other = store.new_job("other")
    store.seed("mine.example", "both.example")
    store.seed("theirs.example", "both.example", job=other)
    sweeper.sweep(store.connection, run_silence=HOUR)
    assert {c.domain for c in store.claim("w1", 9, job=other)} == {"theirs.example", "both.example"}
    assert [store.work("both.example", job)["ready"] for job in (store.job, other)] == [False, False]
    assert {c.domain for c in store.claim("w2", 9)} == {"mine.example"}
    assert_invariants(store.connection)


def test_a_domain_whose_row_is_locked_is_passed_over_not_waited_for(store: Store, database: Database) -> None:
    store.domains(2)
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM domains WHERE domain = 'd0.example' FOR NO KEY UPDATE")
        assert [claim.domain for claim in store.claim("w1", 2)] == ["d1.example"]
    assert [claim.domain for claim in store.claim("w1", 2)] == ["d0.example"]


def test_inserts_of_links_do_not_stop_a_claim(store: Store, database: Database) -> None:
    store.seed("a.example")
    with database.connect() as other, other.transaction():
        Store(other).insert_foreign(int(store.row("a.example")["id"]), "https://a.example/link")
        assert len(store.claim()) == 1


def test_whether_the_tenure_before_ended_cleanly(store: Store) -> None:
    """Without a release its last fetch may not be in the store: one full delay passes before the first request."""
    store.seed("a.example")
    first = store.claim_one()
    assert first.clean, "nobody was there before"
    store.release(first)
    second = store.claim_one()
    assert second.clean, "released"
    (third,) = claims.reclaim(store.connection, worker="w1", lease=LEASE)
    assert not third.clean, "reclaimed"
    store.release(third)
    fourth = store.claim_one()
    assert fourth.clean
    store.expire(fourth.domain_id)
    sweeper.release_expired(store.connection)
    fifth = store.claim_one()
    assert not fifth.clean, "expired"
    sweeper.force_release(store.connection, worker="w1")
    sixth = store.claim_one()
    assert not sixth.clean, "taken away"
    domains.reset(store.connection, "a.example", why="test")
    sweeper.fold_wakes_now(store.connection, sixth.domain_id)
    eighth = store.claim_one()
    assert (eighth.epoch, eighth.clean) == (8, False), "reset under its holder, which took an epoch itself"
    store.release(eighth)
    domains.reset(store.connection, "a.example", why="test")
    sweeper.fold_wakes_now(store.connection, sixth.domain_id)
    assert store.claim_one().clean, "reset while nobody held it"
    assert_invariants(store.connection)


def test_a_restarted_worker_takes_back_its_own_claims_and_no_others(store: Store) -> None:
    store.domains(4)
    mine, theirs = store.claim("w1", 3), store.claim_one("w2")
    store.expire(mine[0].domain_id)  # nobody freed it yet: still its own
    back = claims.reclaim(store.connection, worker="w1", lease=LEASE)
    assert {(c.domain_id, c.epoch) for c in back} == {(c.domain_id, c.epoch + 1) for c in mine}
    assert store.row(theirs.domain)["claim_epoch"] == theirs.epoch
    whys = store.connection.execute("SELECT why FROM claim_log WHERE epoch = 1 AND worker = 'w1'").fetchall()
    assert whys == [("reclaimed",)] * 3
    assert not store.flush(mine[0], "w1", outcomes=1), "the former life is fenced off"
    assert all(store.flush(claim, "w1", outcomes=1) for claim in back)
    assert claims.reclaim(store.connection, worker="w3", lease=LEASE) == []
    assert_invariants(store.connection)


def test_one_row_that_cannot_be_taken_back_does_not_keep_the_rest_from_it(store: Store) -> None:
    store.domains(3)
    bad, *good = store.claim("w1", 3)
    store.connection.execute(f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'this row is cursed'; END $$;
        CREATE TRIGGER cursed BEFORE UPDATE ON domains FOR EACH ROW WHEN (OLD.id = {bad.domain_id}) EXECUTE FUNCTION refuse()
    """)
    back = claims.reclaim(store.connection, worker="w1", lease=LEASE)
    assert sorted(held(*back)) == sorted((claim.domain_id, claim.epoch + 1) for claim in good)
    assert_invariants(store.connection)


# Renew and fence ----------------------------------------------------------------------------------------------------


def test_renewing_extends_what_is_held_and_names_what_is_lost(store: Store) -> None:
    store.domains(5)
    kept, expired, taken, forced, old = store.claim("w1", 5, timedelta(minutes=1))
    store.expire(expired.domain_id)
    store.connection.execute("UPDATE domains SET claimed_by = 'w2' WHERE id = %s", (taken.domain_id,))
    store.connection.execute(
        "UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL WHERE id = %s", (forced.domain_id,)
    )
    store.connection.execute("UPDATE domains SET claim_epoch = claim_epoch + 1 WHERE id = %s", (old.domain_id,))
    version = store.row(kept.domain)["version"]
    lost = claims.renew(store.connection, worker="w1", held=held(kept, expired, taken, forced, old), lease=LEASE).lost
    assert lost == {expired.domain_id, taken.domain_id, forced.domain_id, old.domain_id}
    assert timedelta() < LEASE - lease_left(store, kept) < timedelta(minutes=1)
    assert lease_left(store, taken) < timedelta(minutes=1)
    assert lease_left(store, expired) < timedelta(), "what has ended is not brought back to life"
    assert store.row(kept.domain)["version"] == version
    assert claims.renew(store.connection, worker="w1", held=[], lease=LEASE) == (set(), set())


def test_a_locked_row_is_left_to_who_locked_it_and_counts_as_held(store: Store, database: Database) -> None:
    """The committer of the same worker holds the lock; waiting for it made deadlocks."""
    store.domains(2)
    first, second = store.claim("w1", 2, timedelta(minutes=1))
    with database.connect() as committer, committer.transaction():
        assert claims.fence(committer, worker="w1", held=held(first)) == {first.domain_id}
        assert claims.renew(store.connection, worker="w1", held=held(first, second), lease=LEASE).lost == set()
    assert lease_left(store, first) < timedelta(minutes=1)
    assert lease_left(store, second) > timedelta(minutes=29)


def test_the_fence_opens_only_for_the_holder_under_the_present_epoch(store: Store) -> None:
    store.domains(2)
    claim, other = store.claim("w1", 2)
    cases = {
        "the holder": ("w1", claim.epoch, True),
        "another worker": ("w2", claim.epoch, False),
        "an old epoch": ("w1", claim.epoch - 1, False),
        "an epoch to come": ("w1", claim.epoch + 1, False),
    }
    for who, (worker, epoch, passes) in cases.items():
        with store.connection.transaction():
            allowed = claims.fence(store.connection, worker=worker, held=[(claim.domain_id, epoch)])
        assert allowed == ({claim.domain_id} if passes else set()), who
    store.expire(claim.domain_id)
    with store.connection.transaction():
        passed = claims.fence(store.connection, worker="w1", held=held(claim, other))
    assert passed == {other.domain_id}, "an ended lease leaves the batch, the rest goes on"


@pytest.mark.parametrize("how", ["expired and claimed by another", "forced", "reclaimed", "reset"])
def test_a_former_holder_writes_nothing_whatever_took_its_claim(store: Store, how: str) -> None:
    store.seed("a.example")
    claim = store.claim_one("w1")
    if how == "forced":
        sweeper.force_release(store.connection, worker=None)
    elif how == "reclaimed":
        claims.reclaim(store.connection, worker="w1", lease=LEASE)
    elif how == "reset":
        domains.reset(store.connection, "a.example", why="test")
    else:
        store.expire(claim.domain_id)
        sweeper.release_expired(store.connection)
        store.claim_one("w2")
    before = store.everything()
    assert not store.flush(claim, "w1", outcomes=1, pages_crawled=1)
    with pytest.raises(ClaimLost, match=r"no longer held by w1 under epoch 1"):
        store.release(claim, "w1")
    assert store.everything() == before
    assert_invariants(store.connection)


# Flush --------------------------------------------------------------------------------------------------------------


def test_the_first_outcome_makes_a_domain_active_and_progress_without_one_does_not(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    assert store.flush(claim, depth_reached=1)
    assert store.status("a.example") is Status.PENDING
    assert store.flush(claim, outcomes=1)
    assert store.flush(claim, outcomes=1)
    (change,) = domains.transitions_of(store.connection, claim.domain_id)
    assert (change.to_status, change.worker) == ("active", "w1")
    assert change.reason.startswith(Event.OUTCOME)
    assert_invariants(store.connection)


def test_a_page_that_still_arrives_does_not_overwrite_what_was_decided(store: Store) -> None:
    for status in (Status.EXHAUSTED, Status.BLOCKED, Status.UNREACHABLE):
        name = f"{status}.example"
        store.seed(name)
        claim = store.claim_one()
        store.become(name, status)
        assert store.flush(claim, outcomes=1, pages_crawled=1)
        assert (store.status(name), store.row(name)["pages_crawled"]) == (status, 1)


def test_after_every_flush_counters_and_signals_are_right(store: Store) -> None:
    """Signals come from integers: after any number of flushes they are exactly the quotients, without drift."""
    store.seed("a.example")
    claim = store.claim_one()
    for signal in ("image_yield_rate", "avg_images_per_page", "error_rate"):
        assert store.row("a.example")[signal] is None, "nothing was crawled: no number, and no division by zero"
    chance = random.Random(7)
    totals = dict.fromkeys(("pages_crawled", "images_found", "images_stored", "errors"), 0)
    deepest = 0
    for _ in range(30):
        change = {name: chance.randrange(8) for name in totals}
        depth = chance.randrange(10)
        assert store.flush(claim, "w1", outcomes=1, depth_reached=depth, **change)
        totals = {name: totals[name] + change[name] for name in totals}
        deepest = max(deepest, depth)
        row = store.row("a.example")
        assert {name: row[name if name != "errors" else "total_error_count"] for name in totals} == totals
        assert row["crawl_depth_reached"] == deepest
        if pages := totals["pages_crawled"]:
            assert row["image_yield_rate"] == totals["images_stored"] / pages
            assert row["avg_images_per_page"] == totals["images_found"] / pages
            assert row["error_rate"] == totals["errors"] / pages
    for streak, stored in ((3, 3), (None, 3), (0, 0)):
        store.flush(claim, consecutive_errors=streak, refusal_streak=streak)  # None is "unchanged"
        row = store.row("a.example")
        assert (row["consecutive_error_count"], row["refusal_streak"]) == (stored, stored)
    store.flush(claim, consecutive_errors=1_000_000)
    assert store.row("a.example")["consecutive_error_count"] == totals["errors"], "never more than all of them"
    store.explain_images()
    assert_invariants(store.connection)


def test_a_flush_renews_the_lease_moves_updated_at_and_leaves_the_version_to_people(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one(lease=timedelta(minutes=1))
    store.flush(claim, outcomes=1)
    assert lease_left(store, claim) > timedelta(minutes=29)
    before = store.row("a.example")
    store.flush(claim, outcomes=1, pages_crawled=1)
    claims.renew(store.connection, worker="w1", held=held(claim), lease=LEASE)
    after = store.row("a.example")
    assert after["version"] == before["version"] == 1, "the one change of status"
    assert after["updated_at"] > before["updated_at"]
    assert after["claim_expires_at"] > before["claim_expires_at"]
    assert domains.edit(store.connection, "a.example", {"crawl_delay_seconds": 2.0}, version=1).version == 2


def test_every_flush_and_renewal_of_an_active_domain_is_a_heap_only_update(store: Store) -> None:
    """No index names a column of the flush; with one, each page crawled would rewrite every index of the row."""
    store.domains(5)
    batch = store.claim("w1", 5)
    for claim in batch:
        store.flush(claim, outcomes=1)

    def updates() -> tuple[int, int]:
        store.connection.execute("SELECT pg_stat_force_next_flush()")
        row = store.connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'domains'"
        ).fetchone()
        assert row
        return row[0], row[1]

    updated, hot = updates()
    for claim in batch:
        for _ in range(20):
            errors: dict[str, Any] = {"errors": 1, "consecutive_errors": 2, "refusal_streak": 3}
            store.flush(claim, outcomes=1, pages_crawled=1, images_found=2, depth_reached=3, **errors)
    claims.renew(store.connection, worker="w1", held=held(*batch), lease=LEASE)
    updated_then, hot_then = updates()
    assert updated_then - updated == 105
    assert hot_then - hot == 105


def test_a_plan_of_the_flush_that_was_made_for_one_domain_does_not_read_all_later(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    store.connection.execute("ANALYZE domains")
    progress = [DomainProgress(claim.domain_id, outcomes=1)]

    def flush() -> None:
        with store.connection.transaction():
            store.connection.execute(commit._SETTINGS, {"versions": "20"})
            claims.flush(store.connection, progress=progress, lease=LEASE)

    def rows_read() -> int:
        store.connection.execute("SELECT pg_stat_force_next_flush()")
        row = store.connection.execute(
            "SELECT seq_tup_read + COALESCE(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'domains'"
        ).fetchone()
        assert row
        return int(row[0])

    for _ in range(10):  # prepared after some
        flush()
    store.domains(500)
    before = rows_read()
    flush()
    assert rows_read() - before < 50


def test_one_batch_flushes_many_domains(store: Store) -> None:
    store.domains(3)
    batch = store.claim("w1", 3)
    with store.connection.transaction():
        passed = claims.fence(store.connection, worker="w1", held=held(*batch))
        progress = [
            DomainProgress(claim.domain_id, outcomes=1, pages_crawled=number)
            for number, claim in enumerate(batch)
            if claim.domain_id in passed
        ]
        claims.flush(store.connection, progress=progress, lease=LEASE)
    for number, claim in enumerate(batch):
        assert store.row(claim.domain)["pages_crawled"] == number
    assert store.value("SELECT sum(pages_crawled) FROM domains") == 3
    assert_invariants(store.connection)


def test_without_priorities_domains_are_taken_in_the_order_in_which_they_were_met(store: Store) -> None:
    store.seed("first.example")
    store.seed("second.example", rank=1)
    store.seed("third.example", rank=1000)
    assert [claim.domain for claim in store.claim("w1", 1)] == ["second.example"], "by priority"
    sweeper.force_release(store.connection, worker="w1")
    taken = claims.claim(store.connection, worker="w1", job_id=store.job, count=2, lease=LEASE, by_priority=False)
    assert [claim.domain for claim in taken] == ["first.example", "second.example"]
