"""What time brings about, and what a person takes away: each row once, whatever stands beside it."""

import re
from datetime import timedelta

import psycopg
import pytest

from holdfast.db import claimable, claims, runs, sweeper
from holdfast.db.connection import Database
from holdfast.domains.queries import tenures_of
from holdfast.errors import StoreError
from holdfast.model.domain import Event, Status
from holdfast.workers.queries import expired_claims
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

HOUR = timedelta(hours=1)


def sweep_now(store: Store, *, refresh: bool = True) -> sweeper.SweepResult:
    return sweeper.sweep(store.connection, run_silence=HOUR, refresh=refresh)


def make_unsweepable(store: Store, domain: str) -> int:
    """A row that no statement can change: a trigger of the test's own raises for it."""
    domain_id = int(store.row(domain)["id"])
    store.connection.execute(f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'this row is cursed' USING DETAIL = 'a second line'; END $$;
        CREATE TRIGGER cursed BEFORE UPDATE ON domains FOR EACH ROW WHEN (OLD.id = {domain_id}) EXECUTE FUNCTION refuse()
    """)
    return domain_id


def test_a_sweep_with_nothing_due_does_nothing(store: Store) -> None:
    store.domains(3)
    store.claim("w1", 1)
    before = store.everything()
    assert sweep_now(store) == sweeper.SweepResult()
    assert store.everything() == before


# Expired claims -----------------------------------------------------------------------------------------------------


def test_claims_whose_lease_ended_are_free_and_ready_again(store: Store) -> None:
    store.domains(3)
    dead, _, alive = store.claim("w1", 3)
    store.expire(dead.domain_id)
    store.flush(alive, outcomes=1)
    assert sweep_now(store).expired == 1
    assert store.row(dead.domain)["claimed_by"] is None
    assert store.row(alive.domain)["claimed_by"] == "w1"
    assert tenures_of(store.connection, dead.domain_id)[0].why == "expired"
    (again,) = store.claim("w2", 9)
    assert (again.domain, again.epoch) == (dead.domain, dead.epoch + 1)
    assert_invariants(store.connection)


def test_the_tail_of_an_expired_visit_keeps_its_place_before_fresh_domains(store: Store) -> None:
    store.domains(2)
    claim = store.claim_one()
    store.flush(claim, outcomes=1)
    store.expire(claim.domain_id)
    sweep_now(store)
    assert store.claim_one("w2").domain == claim.domain


def test_release_expired_frees_only_what_expired(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "CHUNK", 2)
    store.domains(7)
    batch = store.claim("w1", 7)
    store.expire(*(claim.domain_id for claim in batch[:5]))
    assert [len(expired_claims(store.connection, limit=n)) for n in (9, 3)] == [5, 3]
    assert sweeper.release_expired(store.connection) == 5
    assert sweeper.release_expired(store.connection) == 0
    assert {c.domain_id for c in store.claim("w2", 9)} == {claim.domain_id for claim in batch[:5]}
    assert_invariants(store.connection)


@pytest.mark.parametrize(("worker", "freed"), [("w1", 3), ("w2", 2), (None, 5), ("nobody", 0)])
def test_force_takes_living_claims_away_from_one_worker_or_all(
    store: Store, monkeypatch: pytest.MonkeyPatch, worker: str | None, freed: int
) -> None:
    monkeypatch.setattr(sweeper, "CHUNK", 2)
    store.domains(5)
    batches = {"w1": store.claim("w1", 3), "w2": store.claim("w2", 2)}
    assert sweeper.force_release(store.connection, worker=worker) == freed
    for name, batch in batches.items():
        mine = {claim.domain_id for claim in batch}
        lost = claims.renew(
            store.connection, worker=name, held=[(claim.domain_id, claim.epoch) for claim in batch], lease=LEASE
        )
        assert lost.lost == (mine if worker in {None, name} else set())
    assert store.value("SELECT count(*) FROM claim_log WHERE why = 'forced'") == freed
    assert len(store.claim("w3", 9)) == freed
    assert_invariants(store.connection)


# Cool-downs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [Event.FORBIDDEN, Event.TIMEOUT])
def test_a_stopped_domain_may_be_tried_again_when_its_cooldown_ended(store: Store, event: Event) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    store.finish_urls(claim)
    store.insert_foreign(claim.domain_id, "https://a.example/x")
    store.flush(claim, outcomes=1, errors=10, consecutive_errors=10, refusal_streak=10)
    store.release(claim, event=event)
    assert sweep_now(store).cooled == 0
    store.end_cooldowns()
    assert sweep_now(store).cooled == 1
    row = store.row("a.example")
    assert (row["status"], row["status_reason"]) == (Status.PENDING, Event.COOLDOWN_ENDED)
    assert (row["consecutive_error_count"], row["refusal_streak"]) == (0, 0)
    assert (row["next_crawl_after"], row["block_reason_code"]) == (None, None)
    assert row["total_error_count"] == 10
    states = store.connection.execute("SELECT url, state::text FROM url_frontier ORDER BY url").fetchall()
    assert states == [("https://a.example/", "done"), ("https://a.example/x", "waiting")], (
        "crawled pages are not crawled again"
    )
    assert store.claim_one().domain == "a.example"
    assert_invariants(store.connection)


def test_an_exhausted_domain_that_is_due_gets_its_pages_back_as_refresh(store: Store) -> None:
    store.seed("a.example", "a.example/denied", "a.example/failed")
    paused, ended = store.new_job("paused"), store.new_job("completed")
    store.seed("a.example/paused", job=paused)
    store.seed("a.example/ended", job=ended)
    sweep_now(store)
    store.crawl_to_the_end()
    store.connection.execute("UPDATE crawl_jobs SET state = name::job_state WHERE id = ANY(%s)", ([paused, ended],))
    store.connection.execute("UPDATE crawl_jobs SET spec = '{\"refresh\": true}' WHERE id = %s", (paused,))
    for state in ("denied", "failed"):
        store.connection.execute(
            "UPDATE url_frontier SET state = %s, reason = 'why', attempts = 3 WHERE url LIKE %s", (state, f"%/{state}")
        )
    store.connection.execute("UPDATE job_domains SET done = 1, denied = 1, failed = 1 WHERE done = 3")
    assert_invariants(store.connection)
    assert (sweep_now(store).cooled, store.status("a.example")) == (0, Status.EXHAUSTED)
    store.end_cooldowns()
    swept = sweep_now(store)
    assert (swept.cooled, swept.woken) == (1, 0)
    row = store.row("a.example")
    assert (row["status"], row["status_reason"], row["frontier_size"]) == (Status.PENDING, Event.REFRESH_DUE, 4)
    rows = store.connection.execute(
        "SELECT url, state::text, kind::text, attempts FROM url_frontier ORDER BY url"
    ).fetchall()
    assert rows == [
        ("https://a.example/", "waiting", "refresh", 0),
        ("https://a.example/denied", "waiting", "discovery", 0),
        ("https://a.example/ended", "done", "discovery", 0),
        ("https://a.example/failed", "waiting", "discovery", 0),
        ("https://a.example/paused", "waiting", "refresh", 0),
    ]
    assert store.work("a.example", paused)["ready"] is False
    assert store.claim_one().domain == "a.example"
    assert_invariants(store.connection)


def test_an_exhausted_domain_that_no_job_asks_for_stays_exhausted_without_a_date(store: Store) -> None:
    store.seed("a.example")
    store.crawl_to_the_end()
    store.connection.execute("UPDATE crawl_jobs SET state = 'completed', spec = '{}'")
    store.end_cooldowns()
    assert sweep_now(store).cooled == 1
    row = store.row("a.example")
    assert (row["status"], row["next_crawl_after"], store.work("a.example")["state"]) == (
        Status.EXHAUSTED,
        None,
        "done",
    )
    assert sweep_now(store).cooled == 0, "it is not looked at again and again"
    assert_invariants(store.connection)


def test_without_refresh_exhausted_domains_are_left_alone(store: Store) -> None:
    store.seed("a.example", "b.example")
    store.crawl_to_the_end()
    store.release(store.claim_one(), event=Event.TIMEOUT)
    store.end_cooldowns()
    assert sweep_now(store, refresh=False).cooled == 1
    assert {store.status("a.example"), store.status("b.example")} == {Status.EXHAUSTED, Status.PENDING}
    assert sweep_now(store).cooled == 1


def test_a_held_domain_is_never_thawed_under_its_holder(store: Store) -> None:
    store.seed("a.example")
    store.claim_one()
    store.connection.execute("UPDATE domains SET next_crawl_after = now() - interval '1 s'")
    before = store.everything()
    assert sweep_now(store).cooled == 0
    assert store.everything() == before


# Wakes --------------------------------------------------------------------------------------------------------------


def test_wakes_are_counted_and_take_an_exhausted_domain_back(store: Store) -> None:
    store.seed("a.example")
    claim = store.crawl_to_the_end()
    other = store.new_job("other")
    for path, job in (("x", store.job), ("y", store.job), ("y", store.job), ("z", other)):
        store.insert_foreign(claim.domain_id, f"https://a.example/{path}", job)
    assert_invariants(store.connection)
    assert sweep_now(store).woken == 1
    row = store.row("a.example")
    assert (row["pages_discovered"], row["frontier_size"], row["next_crawl_after"]) == (4, 3, None)
    assert (row["status"], row["status_reason"].split(":")[0]) == (Status.PENDING, Event.WOKEN)
    mine, theirs = store.work("a.example"), store.work("a.example", other)
    assert [mine[k] for k in ("state", "ready", "discovered", "waiting", "done")] == ["open", True, 3, 2, 1]
    assert [theirs[k] for k in ("state", "ready", "discovered", "waiting", "done")] == ["open", True, 1, 1, 0]
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert sweep_now(store).woken == 0
    assert_invariants(store.connection)


def test_a_wake_does_not_lift_a_block(store: Store) -> None:
    """a blocked domain that is seeded again is not crawled until its cool-down ends."""
    store.seed("a.example")
    claim = store.claim_one()
    store.release(claim, event=Event.FORBIDDEN)
    store.insert_foreign(claim.domain_id, "https://a.example/x")
    assert sweep_now(store).woken == 1
    assert (store.status("a.example"), store.row("a.example")["frontier_size"]) == (Status.BLOCKED, 2)
    assert store.claim() == []
    assert_invariants(store.connection)


def test_the_wakes_of_a_held_domain_are_left_to_its_holder(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    store.insert_foreign(claim.domain_id, "https://a.example/x")
    assert sweep_now(store).woken == 0
    sweeper.fold_wakes_now(store.connection, claim.domain_id)
    assert store.value("SELECT count(*) FROM domain_wakes") == 1
    store.release(claim)
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert store.work("a.example")["waiting"] == 2
    assert_invariants(store.connection)


def test_wakes_that_must_wait_for_a_holder_do_not_stand_before_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "CHUNK", 1)
    store.domains(3)
    held = {claim.domain for claim in store.claim("w1", 2)}
    store.seed(*(f"d{number}.example/new" for number in range(3)))
    assert sweep_now(store).woken == 1
    waiting = {f"d{number}.example": store.work(f"d{number}.example")["waiting"] for number in range(3)}
    assert waiting == {name: 1 if name in held else 2 for name in waiting}


def test_folding_is_done_for_the_domains_that_were_asked_for(store: Store) -> None:
    store.domains(2)
    first, second = store.claim("w1", 2)
    for claim in (first, second):
        store.insert_foreign(claim.domain_id, f"https://{claim.domain}/x")
    with store.connection.transaction():
        assert claimable.fold_wakes(store.connection, []) == 0
        assert claimable.fold_wakes(store.connection, [first.domain_id]) == 1
        assert claimable.fold_wakes(store.connection, [first.domain_id]) == 0
    assert store.value("SELECT array_agg(domain_id) FROM domain_wakes") == [second.domain_id]
    assert_invariants(store.connection)


def test_delayed_work_is_ready_when_its_time_has_come(store: Store) -> None:
    store.domains(2)
    due, later = store.claim("w1", 2)
    for claim, delay in ((due, "-1 s"), (later, "1 h")):
        store.connection.execute(
            "UPDATE url_frontier SET not_before = now() + interval '1 h' WHERE domain_id = %s", (claim.domain_id,)
        )
        store.release(claim)
        for table in ("url_frontier", "job_domains"):
            store.connection.execute(
                f"UPDATE {table} SET not_before = now() + %s::interval WHERE domain_id = %s", (delay, claim.domain_id)
            )
    assert sweep_now(store).delayed == 1
    assert [claim.domain for claim in store.claim("w1", 9)] == [due.domain]
    assert store.work(due.domain)["not_before"] is None
    assert_invariants(store.connection)


# The sweep itself ---------------------------------------------------------------------------------------------------


def test_silent_runs_are_marked_as_failed(store: Store) -> None:
    silent, alive = (runs.begin(store.connection, worker=name) for name in ("w1", "w2"))
    store.connection.execute("UPDATE crawl_runs SET heartbeat_at = now() - interval '61 min' WHERE id = %s", (silent,))
    assert sweep_now(store).runs == 1
    states = store.connection.execute("SELECT id, status::text, error_message FROM crawl_runs ORDER BY id").fetchall()
    assert states == [(silent, "failed", "No sign of life for a whole lease."), (alive, "running", None)]


@pytest.mark.parametrize("kind", ["expired", "cooled", "woken", "delayed"])
def test_one_bad_row_is_set_aside_and_reported_and_the_rest_is_swept(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(sweeper, "CHUNK", 3)  # the bad row's chunk, whole chunks before and after it, and a short one
    store.domains(10)
    if kind == "expired":
        store.expire(*(claim.domain_id for claim in store.claim("w1", 10)))
    elif kind == "cooled":
        for claim in store.claim("w1", 10):
            store.release(claim, event=Event.TIMEOUT)
        store.connection.execute("UPDATE domains SET next_crawl_after = now()")
    elif kind == "woken":
        store.seed(*(f"d{i}.example/new" for i in range(10)))
    else:
        store.connection.execute("UPDATE job_domains SET not_before = now(), ready = false")
    bad = make_unsweepable(store, "d4.example")
    if kind == "delayed":  # this one touches job_domains only
        store.connection.execute(f"""
            DROP TRIGGER cursed ON domains;
            CREATE TRIGGER cursed BEFORE UPDATE ON job_domains FOR EACH ROW WHEN (OLD.domain_id = {bad}) EXECUTE FUNCTION refuse()
        """)
    for mended in (9, 0):  # and it is reported each time
        swept = sweep_now(store)
        assert swept.faults == [f"domain {bad}: this row is cursed"]
        assert getattr(swept, kind) == mended
    left = store.connection.execute("SELECT domain_id FROM job_domains WHERE NOT ready").fetchall()
    assert left == ([] if kind == "woken" else [(bad,)])
    if kind == "woken":
        assert store.value("SELECT array_agg(domain_id) FROM domain_wakes") == [bad]


def test_a_claim_that_cannot_be_released_is_named_and_the_others_are_released(store: Store) -> None:
    store.domains(3)
    batch = store.claim("w1", 3)
    store.expire(batch[0].domain_id, batch[1].domain_id)
    bad = make_unsweepable(store, batch[0].domain)
    sentence = f"1 claims were released, but these could not be: domain {bad}: this row is cursed."
    with pytest.raises(StoreError, match=re.escape(sentence)):
        sweeper.release_expired(store.connection)
    with pytest.raises(StoreError, match=re.escape(sentence)):
        sweeper.force_release(store.connection, worker="w1")
    assert store.value("SELECT array_agg(id) FROM domains WHERE claimed_by IS NOT NULL") == [bad]
    assert_invariants(store.connection)


def test_a_second_sweeper_at_the_same_time_leaves_the_work_to_the_first(store: Store, database: Database) -> None:
    store.domains(2)
    claim = store.claim_one()
    store.expire(claim.domain_id)
    with database.connect() as first, first.transaction():
        assert sweeper._lock_sweep(first, wait=False)
        before = store.everything()
        assert sweep_now(store) == sweeper.SweepResult()
        assert store.everything() == before
    assert sweep_now(store).expired == 1


def test_rows_that_somebody_has_locked_are_left_for_another_time(store: Store, database: Database) -> None:
    store.domains(3)
    batch = store.claim("w1", 3)
    store.expire(*(claim.domain_id for claim in batch))
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM domains WHERE id = %s FOR NO KEY UPDATE", (batch[1].domain_id,))
        assert sweep_now(store).expired == 2
    assert sweep_now(store).expired == 1
    assert_invariants(store.connection)


def test_the_log_gets_its_partitions_even_if_rows_came_before_them(store: Store) -> None:
    """After weeks in which nobody swept, rows of this week lie in the default partition."""
    weeks = store.connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'crawl_log'::regclass"
    ).fetchall()
    for (name,) in weeks:
        if name != "crawl_log_default":
            store.connection.execute(f"DROP TABLE {name}")
    insert = """INSERT INTO crawl_log (domain_id, job_id, claim_epoch, crawled_at, url_key, outcome, page_url)
                SELECT 1, 1, 1, now() + %s::interval, 'key', 'ok', 'https://a.example/'"""
    for when in ("0", "1 week", "-1 year"):
        store.connection.execute(insert, (when,))
    assert sweep_now(store).faults == []
    assert store.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'crawl_log'::regclass") == len(weeks)
    assert store.value("SELECT count(*) FROM crawl_log") == 3
    assert store.value("SELECT count(*) FROM crawl_log_default") == 1
    store.connection.execute(insert, ("2 weeks",))
    assert store.value("SELECT count(*) FROM crawl_log_default") == 1
    assert sweep_now(store) == sweeper.SweepResult()


def test_partitions_that_cannot_be_made_do_not_stop_the_sweep(store: Store) -> None:
    store.connection.execute(
        "CREATE OR REPLACE FUNCTION ensure_crawl_log_partitions(weeks_ahead integer) RETURNS integer LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no room left'; END $$"
    )
    assert sweep_now(store).faults == ["partitions of crawl_log: no room left"]


def test_a_broken_connection_ends_the_sweep(store: Store, database: Database) -> None:
    with database.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s)", (store.connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        sweep_now(store)
