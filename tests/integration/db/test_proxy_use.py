"""What workers write of proxies: counted as the log has it, judged by the rules, limits never exceeded."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdfast.db import proxy_usage as proxy_use
from holdfast.db.connection import Database
from holdfast.errors import RolledBack
from holdfast.model.commit_batch import VisitPart
from holdfast.model.domain import Claim
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.proxy import Protocol as Speech
from holdfast.model.proxy import ProxyServer, ProxyUse, ProxyVerdict, UnclearFailure, make_server
from holdfast.proxies.queries import proxies
from holdfast.proxies.records import ProxyOptions
from tests.support.batches import Worker, links, outcome
from tests.support.factories import Store
from tests.support.invariants import assert_invariants, violations

VERDICTS = {
    Outcome.OK: ProxyVerdict.SUCCESS,
    Outcome.FORBIDDEN: ProxyVerdict.REFUSED,
    Outcome.SERVER_ERROR: ProxyVerdict.ERROR,
    Outcome.PROXY_FAILED: ProxyVerdict.FAILED,
}
HOLD = timedelta(seconds=30)


@pytest.fixture
def worker(store: Store, database: Database) -> Worker:
    store.domains(1)
    return Worker(database, store)


@pytest.fixture
def claim(store: Store, worker: Worker) -> Claim:
    """A domain with many URLs that wait."""
    claim = store.claim_one()
    worker.commit(worker.part(claim, [], links("d0.example", 60, store.job)))
    return claim


def place(number: int) -> ProxyServer:
    return make_server(Speech.HTTP, f"p{number}.example", 8080)


def new_proxy(store: Store, number: int = 1, limit: int | None = None) -> int:
    options = ProxyOptions(max_requests_per_hour=limit)
    made = proxies.add(store.connection, proxies.SealedProxy(place(number), None, options), actor="ann")
    assert made is not None
    return made


class Through:
    """A visit whose requests go through a proxy, one URL after the other."""

    def __init__(self, worker: Worker, claim: Claim, proxy_id: int) -> None:
        self.worker, self.claim, self.proxy_id = worker, claim, proxy_id
        self._next = 0

    def part(
        self, *kinds: Outcome, probe: bool = False, verdict: ProxyVerdict | None = None, **options: Any
    ) -> VisitPart:
        outcomes = []
        for kind in kinds:
            use = ProxyUse(
                self.proxy_id, verdict or VERDICTS[kind], float(self._next), error=str(kind), probe=probe, **options
            )
            state = UrlState.WAITING if kind is Outcome.PROXY_FAILED else None
            url = f"https://d0.example/{self._next}"
            outcomes.append(outcome(url, self.worker.store.job, kind, state=state, proxy=use, attempts=1))
            self._next += 1
        return self.worker.part(self.claim, outcomes)

    def go(self, *kinds: Outcome, probe: bool = False, verdict: ProxyVerdict | None = None, **options: Any) -> None:
        self.worker.commit(self.part(*kinds, probe=probe, verdict=verdict, **options))

    def health(self, proxy_id: int | None = None) -> tuple[Any, ...]:
        row = self.worker.store.connection.execute(
            "SELECT is_active, failure_count, disabled_by, next_try_at IS NOT NULL FROM proxies WHERE id = %s",
            (proxy_id or self.proxy_id,),
        ).fetchone()
        assert row is not None
        return row

    def mapping(self) -> dict[str, Any]:
        found = self.worker.store.value("SELECT to_jsonb(m) FROM domain_proxies m WHERE proxy_id = %s", self.proxy_id)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def through(store: Store, worker: Worker, claim: Claim) -> Through:
    return Through(worker, claim, new_proxy(store))


def test_what_goes_through_is_counted_with_what_came_of_it(store: Store, through: Through) -> None:
    through.go(Outcome.OK, Outcome.OK, Outcome.FORBIDDEN, Outcome.SERVER_ERROR, Outcome.PROXY_FAILED, response_ms=80.0)
    found = through.mapping()
    names = ("requests", "success_count", "total_failures", "proxy_failures", "other_requests", "bytes")
    assert [found[name] for name in names] == [5, 2, 1, 1, 0, 5000]
    assert (found["avg_response_time_ms"], found["assigned"], found["priority"]) == (80.0, False, 5)
    assert all(found[name] for name in ("last_used_at", "last_success_at", "last_failure_at", "last_error"))
    total = proxies.get(store.connection, through.proxy_id)
    assert (total.requests, total.success_count, total.total_failures, total.proxy_failures) == (5, 2, 1, 1)
    assert store.value("SELECT count(*) FROM crawl_log WHERE proxy_id = %s", through.proxy_id) == 5
    assert_invariants(store.connection)


def test_what_was_not_settled_is_not_counted(store: Store, through: Through) -> None:
    part = through.part(Outcome.OK)
    through.worker.commit(part)
    through.worker.commit(part)
    assert through.mapping()["requests"] == 1
    assert_invariants(store.connection)
    store.connection.execute("UPDATE domain_proxies SET requests = requests + 1")
    assert violations(store.connection), "a check that cannot fail proves nothing"


def test_a_domain_that_was_lost_says_nothing_of_its_proxies(store: Store, through: Through) -> None:
    store.expire(through.claim.domain_id)
    part = through.part(*[Outcome.PROXY_FAILED] * 9)
    assert through.worker.commit(part).refused == {through.claim.domain_id}
    assert through.health() == (True, 0, None, False)
    assert store.value("SELECT count(*) FROM domain_proxies") == 0


def test_robots_txt_is_counted_apart(store: Store, through: Through) -> None:
    part = through.worker.part(through.claim)
    part.other_uses = [
        ProxyUse(through.proxy_id, ProxyVerdict.SUCCESS, 0.0, bytes=70),
        ProxyUse(through.proxy_id, ProxyVerdict.FAILED, 1.0),
    ]
    through.worker.commit(part)
    found = through.mapping()
    assert [found[name] for name in ("requests", "other_requests", "bytes", "success_count")] == [0, 2, 70, 0]
    assert through.health()[1] == 1
    assert_invariants(store.connection)


def test_five_failures_are_a_rest_and_five_probes_more_the_end(through: Through) -> None:
    for times in range(1, 5):
        through.go(Outcome.PROXY_FAILED)
        assert through.health() == (True, times, None, False)
    through.go(*[Outcome.PROXY_FAILED] * 9)
    assert through.health() == (True, 5, None, True), "all that was under way is one incident"
    for times in range(6, 10):
        through.go(Outcome.PROXY_FAILED, probe=True)
        assert through.health() == (True, times, None, True)
    through.go(Outcome.PROXY_FAILED, probe=True)
    assert through.health() == (False, 10, "health", True)
    through.go(Outcome.SERVER_ERROR)
    assert through.health() == (True, 0, None, False), "whatever the site says, it got through"


def test_rests_double(store: Store, through: Through) -> None:
    rests = "SELECT round(extract(epoch FROM next_try_at - clock_timestamp()) / 10)::int * 10 FROM proxies"
    through.go(*[Outcome.PROXY_FAILED] * 5)
    seen = [store.value(rests)]
    for _ in range(8):
        through.go(Outcome.PROXY_FAILED, probe=True)
        seen.append(store.value(rests))
    assert seen == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_what_a_person_switched_off_stays_off(store: Store, through: Through) -> None:
    proxies.switch(store.connection, through.proxy_id, on=False, actor="ann")
    through.go(Outcome.OK, Outcome.PROXY_FAILED)
    assert through.health() == (False, 0, "operator", False)
    assert [row.id for row in proxy_use.usable_proxies(store.connection)] == []


def test_five_refusals_are_against_the_mapping_alone(store: Store, through: Through) -> None:
    through.go(*[Outcome.FORBIDDEN] * 4)
    through.go(Outcome.OK)
    assert (through.mapping()["failure_count"], through.mapping()["total_failures"]) == (0, 4)
    through.go(*[Outcome.FORBIDDEN] * 7)
    found = through.mapping()
    assert (found["failure_count"], found["total_failures"], found["is_active"], found["disabled_by"]) == (
        *(5, 11, False),
        "health",
    )
    first = found["next_try_at"]
    through.go(Outcome.FORBIDDEN)
    assert through.mapping()["next_try_at"] == first, "it was under way"
    through.go(Outcome.FORBIDDEN, probe=True)
    assert through.mapping()["failure_count"] == 6
    assert through.mapping()["next_try_at"] > first
    assert through.health() == (True, 0, None, False)
    through.go(Outcome.OK, probe=True)
    found = through.mapping()
    assert (found["failure_count"], found["is_active"], found["next_try_at"]) == (0, True, None)
    assert_invariants(store.connection)


def test_who_gets_through_blames_who_did_not(store: Store, through: Through) -> None:
    other = new_proxy(store, 2)
    through.go(Outcome.PROXY_FAILED, verdict=ProxyVerdict.UNCLEAR)
    assert through.health()[1] == 0, "nobody knows yet"
    through.go(Outcome.OK, blames=(UnclearFailure(other, probe=False), UnclearFailure(other, probe=False)))
    assert through.health(other)[1] == 2
    assert through.health()[1] == 0


def test_one_that_was_removed_meanwhile_is_only_in_the_log(store: Store, through: Through) -> None:
    part = through.part(Outcome.OK)
    proxies.remove(store.connection, through.proxy_id, actor="ann")
    assert through.worker.commit(part).refused == set()
    assert store.value("SELECT count(*) FROM domain_proxies") == 0
    assert store.value("SELECT count(*) FROM crawl_log WHERE proxy_id = %s", through.proxy_id) == 1
    assert_invariants(store.connection)


def test_a_proxy_that_is_removed_in_the_middle_of_a_commit_costs_nothing(
    store: Store, through: Through, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    part = through.part(Outcome.OK)
    gather = proxy_use._columns

    def meanwhile(sums: Any) -> Any:
        with database.connect() as other:
            proxies.remove(other, through.proxy_id, actor="ann")
        return gather(sums)

    monkeypatch.setattr(proxy_use, "_columns", meanwhile)
    with pytest.raises(RolledBack):
        through.worker.commit(part)
    monkeypatch.undo()
    assert through.worker.commit(part).refused == set(), "another time it succeeds"
    assert store.value("SELECT count(*) FROM crawl_log WHERE proxy_id = %s", through.proxy_id) == 1
    assert_invariants(store.connection)


# Limits and probes ----------------------------------------------------------------------------------------------------


def test_a_limit_is_given_away_in_parts_and_never_exceeded(store: Store, database: Database) -> None:
    proxy_id = new_proxy(store, limit=103)

    def take_all(_: int) -> int:
        taken = 0
        with database.connect() as connection:
            while block := proxy_use.take_block(connection, proxy_id, 20, hold=HOLD).requests:
                taken += block
        return taken

    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(take_all, range(8)))
    assert sum(taken) == 103
    assert proxy_use.take_block(store.connection, proxy_id, 20, hold=HOLD).wait > 3600


def test_what_is_given_back_can_be_taken_again(store: Store) -> None:
    proxy_id = new_proxy(store, limit=2)
    first, second = (proxy_use.take_block(store.connection, proxy_id, 20, hold=HOLD) for _ in range(2))
    assert (first.requests, second.requests) == (1, 1)
    assert proxy_use.take_block(store.connection, proxy_id, 20, hold=HOLD).requests == 0
    assert first.id is not None
    proxy_use.give_back(store.connection, {first.id: 0})
    assert proxy_use.take_block(store.connection, proxy_id, 20, hold=HOLD).requests == 1


def test_of_what_is_given_back_only_what_was_used_counts(store: Store) -> None:
    proxy_id = new_proxy(store, limit=400)
    blocks = [proxy_use.take_block(store.connection, proxy_id, 20, hold=HOLD).id for _ in range(3)]
    assert None not in blocks
    proxy_use.give_back(
        store.connection, {block: used for block, used in zip(blocks, (0, 7, 20), strict=True) if block}
    )
    assert store.value("SELECT array_agg(requests ORDER BY id) FROM proxy_blocks") == [7, 20]


def test_a_share_counts_until_an_hour_after_its_last_request_could_be_made(store: Store) -> None:
    proxy_id = new_proxy(store, limit=1)
    short, none = timedelta(milliseconds=80), timedelta()
    assert proxy_use.take_block(store.connection, proxy_id, 1, hold=short, hour=short).requests == 1
    refused = proxy_use.take_block(store.connection, proxy_id, 1, hold=none, hour=short)
    assert refused.requests == 0
    assert 0 < refused.wait <= 0.16
    store.connection.execute("SELECT pg_sleep(%s)", (refused.wait,))
    assert proxy_use.take_block(store.connection, proxy_id, 1, hold=none, hour=short).requests == 1


def test_without_a_limit_there_is_nothing_to_share(store: Store) -> None:
    assert proxy_use.take_block(store.connection, new_proxy(store), 20, hold=HOLD) == proxy_use.Block(None, None)
    assert proxy_use.take_block(store.connection, 999, 20, hold=HOLD).requests == 0, "and of none there is nothing"


def test_one_of_many_tries_a_proxy_that_rests(store: Store, database: Database) -> None:
    proxy_id = new_proxy(store)
    assert not proxy_use.reserve_probe(store.connection, proxy_id, HOLD), "it is well"
    store.connection.execute("UPDATE proxies SET failure_count = 5, next_try_at = clock_timestamp() + interval '1 h'")
    assert not proxy_use.reserve_probe(store.connection, proxy_id, HOLD), "not yet"
    store.connection.execute("UPDATE proxies SET next_try_at = clock_timestamp()")

    def ask(_: int) -> bool:
        with database.connect() as connection:
            return proxy_use.reserve_probe(connection, proxy_id, HOLD)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(ask, range(8))) == 1
