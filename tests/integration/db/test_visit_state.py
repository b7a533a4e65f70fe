"""What a visit finds of its domain, and the robots.txt that it keeps."""

from typing import Any

from holdfast.db import claims, domains, visit_state
from holdfast.domains import queries
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.domain import Claim, Status
from holdfast.model.proxy import ProxyOverrides
from tests.support.factories import LEASE, Store

URL = "https://a.example/robots.txt"


def save(store: Store, claim: Claim, url: str = URL, **facts: Any) -> bool:
    known: dict[str, Any] = {
        "status": 200,
        "content": "User-agent: *",
        "reachable": True,
        "problem": None,
        "ttl": 3600.0,
    } | facts
    return visit_state.save_robots(
        store.connection, worker="w1", domain_id=claim.domain_id, epoch=claim.epoch, url=url, **known
    )


def robots(store: Store, domain_id: int) -> dict[str, visit_state.StoredRobots]:
    return visit_state.load(store.connection, [domain_id])[domain_id].robots


def test_a_domain_as_its_holder_finds_it(store: Store) -> None:
    store.seed("a.example", "b.example")
    edited = {"crawl_delay_seconds": 2.5, "max_concurrent_requests": 3, "user_agent": "me", "max_pages_per_run": None}
    queries.edit(store.connection, "a.example", edited)
    ids = domains.ids(store.connection, ["a.example", "b.example"])
    found = visit_state.load(store.connection, [*ids, 999])
    assert sorted(found) == ids
    state = found[ids[0]]
    assert (state.domain, state.parent_domain, state.base_url) == ("a.example", "a.example", "https://a.example")
    assert (state.crawl_delay, state.max_concurrent, state.user_agent, state.page_limit) == (2.5, 3, "me", None)
    assert found[ids[1]].page_limit is None, "the default is a share, not a limit"
    queries.edit(store.connection, "b.example", {"max_pages_per_run": 1000})
    assert visit_state.load(store.connection, ids)[ids[1]].page_limit == 1000, "said by a person, it is one"
    assert (state.status, state.pages_crawled) == (Status.PENDING, 0)
    assert (state.consecutive_errors, state.refusal_streak) == (0, 0)
    assert state.clocks == PolitenessClocks()
    assert state.robots == {}
    assert visit_state.load(store.connection, []) == {}


def test_times_that_are_over_are_told_as_such(store: Store) -> None:
    store.seed("a.example")
    store.connection.execute(
        "UPDATE domains SET next_request_at = now() - interval '59 min', back_off_until = now() - interval '59 min',"
        " circuit_open_until = now() - interval '59 min'"
    )
    clocks = visit_state.load(store.connection, [1])[1].clocks
    assert clocks.back_off_in == 0.0
    assert clocks.next_request_in < -3500, "how long ago the last request was may still matter"
    assert clocks.circuit_open_in is not None
    assert clocks.circuit_open_in < -3500, "half-open is not closed"


def test_robots_are_kept_an_origin_and_a_copy_from_before_serves(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    assert save(store, claim)
    assert save(store, claim, "http://a.example/robots.txt", status=404, content=None)
    kept = robots(store, claim.domain_id)
    assert 3590 < kept[URL].fresh_for <= 3600
    assert kept["http://a.example/robots.txt"].content is None
    assert save(store, claim, status=503, content=None, reachable=False, problem="unavailable", ttl=60.0)
    again = robots(store, claim.domain_id)[URL]
    assert (again.status, again.content, again.reachable, again.problem) == (503, "User-agent: *", False, "unavailable")
    assert again.fresh_for <= 60
    assert save(store, claim, status=404, content=None)
    gone = robots(store, claim.domain_id)[URL]
    assert (gone.content, gone.reachable, gone.problem) == (None, True, None), "there is none any more"


def test_who_lost_the_domain_keeps_nothing(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    (newer,) = claims.reclaim(store.connection, worker="w1", lease=LEASE)
    assert not save(store, claim)
    assert robots(store, claim.domain_id) == {}
    assert save(store, newer)


def test_when_it_is_to_be_left_alone_by_the_database_s_clock(store: Store) -> None:
    store.seed("a.example")
    (domain_id,) = domains.ids(store.connection, ["a.example"])
    assert visit_state.live_settings(store.connection, domain_id).window is None
    queries.edit(store.connection, "a.example", {"maintenance_window": "22:00-06:00"})
    found = visit_state.live_settings(store.connection, domain_id)
    began = visit_state.load(store.connection, [domain_id])[domain_id].live_settings
    assert found.window == began.window == "22:00-06:00"
    assert store.value("SELECT %s <= %s AND %s <= clock_timestamp()", found.now, began.now, began.now)
    assert visit_state.live_settings(store.connection, 999)[0::2] == (None, ProxyOverrides())


def test_an_open_circuit_is_forgotten_an_hour_after_the_last_request(store: Store) -> None:
    """003 §19."""
    store.seed("a.example")
    at = domains.ids(store.connection, ["a.example"])[0]
    for minutes, failures, is_open in ((59, 7, True), (61, 0, False)):
        store.connection.execute(
            "UPDATE domains SET circuit_failures = 7, circuit_successes = 1, circuit_open_until = now() - %(ago)s::interval,"
            " next_request_at = now() - %(ago)s::interval",
            {"ago": f"{minutes} min"},
        )
        clocks = visit_state.load(store.connection, [at])[at].clocks
        assert (clocks.circuit_failures, clocks.circuit_successes) == (failures, int(is_open))
        assert (clocks.circuit_open_in is not None) is is_open
    store.connection.execute("UPDATE domains SET circuit_failures = 5, circuit_open_until = now() + interval '1 min'")
    assert visit_state.load(store.connection, [at])[at].clocks.circuit_open_in is not None, "not before it is over"
