"""What time brings back: stopped domains with nothing left, and work that was delayed."""

from datetime import timedelta

import pytest

from holdfast.db import sweeper
from holdfast.model.domain import Event
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


def sweep_now(store: Store) -> sweeper.SweepResult:
    return sweeper.sweep(store.connection, run_silence=timedelta(hours=1))


@pytest.mark.parametrize("event", [Event.FORBIDDEN, Event.DNS_FAILURE])
def test_a_stopped_domain_with_nothing_left_to_try_is_tried_again_after_its_cooldown(
    store: Store, event: Event
) -> None:
    """Its only URL used up its attempts: without getting it back no worker would ever find the domain again."""
    store.seed("a.example")
    claim = store.claim_one()
    store.connection.execute("UPDATE url_frontier SET state = 'failed', reason = %s", (f"{event}: the last attempt",))
    store.connection.execute("UPDATE job_domains SET waiting = 0, failed = 1")
    store.connection.execute("UPDATE domains SET frontier_size = 0")
    assert store.flush(claim, outcomes=1)
    store.release(claim, event=event)
    store.end_cooldowns()
    sweep_now(store)
    assert store.claim_one().domain == "a.example"
    assert store.work("a.example")["waiting"] == 1
    assert_invariants(store.connection)


def test_a_new_url_ends_the_delay_of_the_others(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    store.connection.execute("UPDATE url_frontier SET attempts = 2, not_before = now() + interval '1 day'")
    store.release(claim)
    assert store.claim() == []
    store.seed("a.example/new")
    sweep_now(store)
    assert store.claim_one().domain == "a.example"


def test_delays_of_several_jobs_end_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "CHUNK", 2)
    other = store.new_job("other")
    store.domains(6)
    store.seed(*(f"d{i}.example/x" for i in range(6)), job=other)
    sweep_now(store)
    store.connection.execute("UPDATE job_domains SET ready = false, not_before = now() - interval '1 s'")
    assert sweep_now(store).delayed == 6
    assert store.value("SELECT count(*) FROM job_domains WHERE ready") == 12
