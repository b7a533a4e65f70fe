"""The state machine in the database: SQL written by hand meets the same matrix, and leaves the same history."""

from datetime import timedelta
from itertools import product

import psycopg
import pytest

from holdfast.db import sweeper
from holdfast.domains.queries import transitions_of
from holdfast.model.domain import ALLOWED_TRANSITIONS, STOPPING_EVENTS, Status
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

PAIRS = list(product(Status, Status))
HOUR = timedelta(hours=1)


def test_the_matrix_in_sql_is_the_one_in_python(store: Store) -> None:
    for old, new in PAIRS:
        allowed = store.value("SELECT domain_transition_allowed(%s, %s)", old, new)
        assert allowed is (new in ALLOWED_TRANSITIONS[old]), (old, new)


def test_an_update_by_hand_passes_if_and_only_if_the_matrix_allows_it(store: Store) -> None:
    names = {(old, new): f"{old}-{new}.example" for old, new in PAIRS}
    store.seed(*names.values())
    for (old, new), name in names.items():
        store.become(name, old)
        before = store.row(name)
        statement = "UPDATE domains SET status = %s WHERE domain = %s"
        if old is new:  # no change at all
            store.connection.execute(statement, (new, name))
            assert store.row(name) | {"updated_at": ""} == before | {"updated_at": ""}
        elif new in ALLOWED_TRANSITIONS[old]:
            store.connection.execute(statement, (new, name))
            after = store.row(name)
            assert (after["status"], after["version"]) == (new, before["version"] + 1), name
            last = transitions_of(store.connection, after["id"])[0]
            assert (last.from_status, last.to_status) == (old, new)
            assert last.reason == after["status_reason"] == "manual: changed in SQL as holdfast"
        else:
            with pytest.raises(psycopg.errors.CheckViolation, match=f"that is {old} cannot become {new}") as refusal:
                store.connection.execute(statement, (new, name))
            assert f"holdfast domain-reset {name}" in (refusal.value.diag.message_hint or "")
            assert store.row(name) == before, name


def test_every_change_is_in_the_history_once_in_order_with_worker_and_epoch(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one("w1")
    store.finish_urls(claim)
    store.become("a.example", Status.EXHAUSTED)
    rows = store.connection.execute(
        "SELECT version, from_status::text, to_status::text, worker, claim_epoch FROM domain_transitions ORDER BY version"
    ).fetchall()
    assert rows == [(1, "pending", "active", "w1", claim.epoch), (2, "active", "exhausted", "w1", claim.epoch)]
    assert_invariants(store.connection)


def test_from_active_to_pending_takes_a_reset_that_takes_the_claim_away(store: Store) -> None:
    """As `holdfast domain-reset` does it; half of it is not enough."""
    store.seed("a.example")
    store.become("a.example", Status.ACTIVE)
    claim = store.claim_one()
    before = store.row("a.example")
    whole = {
        "status": "'pending'",
        "status_reason": "'reset: by hand'",
        "claim_epoch": "claim_epoch + 1",
        "claimed_by": "NULL",
        "claim_expires_at": "NULL",
    }
    for missing in (("status_reason",), ("claim_epoch",), ("claimed_by", "claim_expires_at")):
        half = ", ".join(f"{name} = {value}" for name, value in whole.items() if name not in missing)
        with pytest.raises(psycopg.errors.CheckViolation, match="cannot become pending"):
            store.connection.execute(f"UPDATE domains SET {half}")
        assert store.row("a.example") == before, missing
    store.connection.execute("UPDATE domains SET " + ", ".join(f"{name} = {value}" for name, value in whole.items()))
    after = store.row("a.example")
    assert (after["status"], after["claim_epoch"], after["claimed_by"]) == ("pending", claim.epoch + 1, None)
    assert transitions_of(store.connection, after["id"])[0].reason == "reset: by hand"


def test_a_stop_by_hand_is_called_manual_and_leaving_it_forgets_why(store: Store) -> None:
    store.seed("a.example")
    for status in (Status.BLOCKED, Status.UNREACHABLE):
        store.connection.execute(
            "UPDATE domains SET status = %s, block_reason = 'they wrote us', next_crawl_after = 'infinity', consecutive_error_count = 4",
            (status,),
        )
        stopped = store.row("a.example")
        assert (stopped["block_reason_code"], stopped["block_reason"]) == ("manual", "they wrote us")
        assert stopped["first_blocked_at"]
        store.connection.execute("UPDATE domains SET status = 'pending'")
        free = store.row("a.example")
        assert (free["block_reason_code"], free["block_reason"], free["next_crawl_after"]) == (None, None, None)
        assert free["consecutive_error_count"] == 0
        assert free["first_blocked_at"] == stopped["first_blocked_at"], "when it was first blocked is history"
    store.connection.execute("UPDATE domains SET status = 'blocked', block_reason_code = 'forbidden'")
    store.connection.execute("UPDATE domains SET status = 'active'")
    assert store.row("a.example")["block_reason_code"] is None


def test_exhausted_to_pending_by_hand_means_that_the_pages_are_crawled_again(store: Store) -> None:
    """The way to force a re-crawl in SQL: UPDATE domains SET status = 'pending'."""
    store.seed("a.example", "a.example/b", "other.example")
    for _ in range(2):
        store.crawl_to_the_end()
    assert (store.status("a.example"), store.claim()) == (Status.EXHAUSTED, [])
    store.connection.execute("UPDATE domains SET status = 'pending' WHERE domain = 'a.example'")
    assert_invariants(store.connection)
    assert sweeper.sweep(store.connection, run_silence=HOUR).woken == 1
    claim = store.claim_one()
    assert claim.domain == "a.example"
    assert store.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting' AND kind = 'refresh'") == 2
    assert store.work("a.example")["waiting"] == store.row("a.example")["frontier_size"] == 2
    assert store.claim() == []
    assert_invariants(store.connection)


@pytest.mark.parametrize("status", [Status.BLOCKED, Status.UNREACHABLE, Status.EXHAUSTED])
def test_a_stop_by_hand_with_a_reason_is_a_stop_too(store: Store, status: Status) -> None:
    store.seed("a.example")
    store.become("a.example", Status.ACTIVE)
    store.connection.execute("UPDATE domains SET status = %s, status_reason = 'legal asked us'", (status,))
    assert store.claim() == []
    sweeper.sweep(store.connection, run_silence=HOUR)
    assert (store.claim(), store.work("a.example")["ready"]) == ([], False)
    assert store.row("a.example")["status_reason"] == "legal asked us"


@pytest.mark.parametrize("again", [Status.PENDING, Status.ACTIVE])
@pytest.mark.parametrize("stop", [Status.BLOCKED, Status.UNREACHABLE])
def test_a_stop_lifted_by_hand_is_crawled_on_without_crawling_the_old_pages_again(
    store: Store, stop: Status, again: Status
) -> None:
    store.seed("a.example", "a.example/b")
    claim = store.claim_one()
    store.connection.execute(
        "UPDATE url_frontier SET state = 'done' WHERE url LIKE '%/b'; UPDATE domains SET frontier_size = 1;"
        "UPDATE job_domains SET waiting = 1, done = 1"
    )
    assert store.flush(claim, outcomes=1)
    store.release(claim)
    store.connection.execute("UPDATE domains SET status = %s", (stop,))
    assert store.claim() == [], "who stops a domain by hand means it, until a hand lifts the stop"
    sweeper.sweep(store.connection, run_silence=HOUR)
    assert not store.work("a.example")["ready"], "the claim does not meet it again and again"
    store.connection.execute("UPDATE domains SET status = %s", (again,))
    sweeper.sweep(store.connection, run_silence=HOUR)
    assert store.claim_one().domain == "a.example"
    assert (store.work("a.example")["waiting"], store.work("a.example")["done"]) == (1, 1)
    assert_invariants(store.connection)


FORBIDDEN_ROWS = {
    "a holder without an expiry": ("claim_is_whole", "claimed_by = 'w1'"),
    "an expiry without a holder": ("claim_is_whole", "claim_expires_at = now()"),
    "a reason without a stop": ("stopped_has_reason", "block_reason_code = 'forbidden'"),
    "a reason that nobody knows": ("block_reason_known", "status = 'blocked', block_reason_code = 'did not like it'"),
    "a name that is not canonical": ("domain_is_canonical", "domain = 'A.example'"),
    "no name": ("domain_is_canonical", "domain = ''"),
    "a negative delay": ("sane_configuration", "crawl_delay_seconds = -1"),
    "no requests at all": ("sane_configuration", "max_concurrent_requests = 0"),
    "a budget of nothing": ("sane_configuration", "max_pages_per_run = 0"),
    "a rank before the first": ("sane_configuration", "seed_rank = 0"),
    **{
        f"{column} below zero": ("counters_not_negative", f"{column} = -1")
        for column in (
            *("pages_discovered", "pages_crawled", "images_found", "images_stored", "frontier_size"),
            *("total_error_count", "consecutive_error_count", "retry_count"),
        )
    },
}


def test_the_database_refuses_rows_that_make_no_sense(store: Store) -> None:
    store.seed("a.example")
    before = store.row("a.example")
    for what, (constraint, change) in FORBIDDEN_ROWS.items():
        with pytest.raises(psycopg.errors.CheckViolation) as refusal:
            store.connection.execute(f"UPDATE domains SET {change}")
        assert refusal.value.diag.constraint_name == constraint, what
    store.become("a.example", Status.BLOCKED)
    with pytest.raises(psycopg.errors.CheckViolation, match="stopped_has_reason"):
        store.connection.execute("UPDATE domains SET block_reason_code = NULL")
    with pytest.raises(psycopg.errors.CheckViolation, match="job_domains_check"):
        store.connection.execute("UPDATE job_domains SET ready = true, state = 'parked'")
    assert store.row("a.example")["claim_epoch"] == before["claim_epoch"]


def test_every_stopping_event_is_a_reason_that_the_database_knows(store: Store) -> None:
    store.seed("a.example")
    for event in STOPPING_EVENTS:
        store.connection.execute("UPDATE domains SET status = 'blocked', block_reason_code = %s", (event,))
        assert store.row("a.example")["block_reason_code"] == event


def test_updated_at_moves_with_every_update(store: Store) -> None:
    store.seed("a.example")
    moments = [store.row("a.example")["updated_at"]]
    for change in ("user_agent = 'x'", "status = 'active'", "status = status"):
        store.connection.execute(f"UPDATE domains SET {change}, updated_at = '2000-01-01'")
        moments.append(store.row("a.example")["updated_at"])
    assert moments == sorted(set(moments))


def call(store: Store, *arguments: object) -> object:
    marks = ", ".join(["%s"] * len(arguments))
    return store.value(f"SELECT transition_domain_status({marks})", *arguments)


def test_the_function_of_the_seed_changes_what_is_still_as_expected(store: Store) -> None:
    """000 §7.2: domain, from, to, worker, version."""
    store.seed("a.example")
    claim = store.claim_one("w1")
    at = claim.domain_id
    assert call(store, at, "pending", "active", "w2", 0) is False, "held by another one"
    assert call(store, at, "pending", "active", "w1", 7) is False, "another version"
    assert call(store, at, "exhausted", "active", "w1", 0) is False, "in another status"
    assert store.row("a.example")["status"] == "pending"
    assert call(store, at, "pending", "active", "w1", 0) is True
    row = store.row("a.example")
    assert (row["status"], row["version"], row["claimed_by"]) == ("active", 1, "w1")
    assert call(store, at, "active", "active", "w1", 1) is True, "stays"
    assert store.row("a.example")["version"] == 1
    assert call(store, at, "active", "blocked", "w1", 1) is True
    row = store.row("a.example")
    assert (row["block_reason_code"], row["next_crawl_after"]) == ("manual", "infinity"), "nobody said until when"
    assert_invariants(store.connection)


def test_the_function_refuses_what_the_matrix_does_not_allow_whatever_the_row_is(store: Store) -> None:
    store.seed("a.example")
    at = store.value("SELECT id FROM domains")
    for old, new in PAIRS:
        if new not in ALLOWED_TRANSITIONS[old]:
            with pytest.raises(psycopg.errors.CheckViolation, match=f"Invalid transition: {old} -> {new}"):
                call(store, at, old, new)
    assert store.value("SELECT count(*) FROM domain_transitions") == 0


def test_a_reset_by_the_function_takes_the_claim_away(store: Store) -> None:
    store.seed("a.example")
    store.become("a.example", Status.ACTIVE)
    claim = store.claim_one()
    assert call(store, claim.domain_id, "active", "pending", None, None, "reset: by hand") is True
    row = store.row("a.example")
    assert (row["status"], row["claim_epoch"], row["claimed_by"]) == ("pending", claim.epoch + 1, None)
