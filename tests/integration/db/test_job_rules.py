"""Rules of jobs as versions: what becomes of stored URLs on free and on held domains, a chunk at a time."""

import threading

import psycopg
import pytest

from holdfast.db import claimable, crawls, job_rules, judging, sweeper, visit_state
from holdfast.db.connection import Database
from holdfast.db.job_rules import StoredVersion, undoes_to
from holdfast.jobs import edits
from holdfast.jobs.queries import scope_preview
from holdfast.jobs.service import JobService
from holdfast.model.job import Scope
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.scope import RuleSettings
from tests.support.batches import Worker, found, links, outcome
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants


@pytest.fixture
def worker(store: Store, database: Database) -> Worker:
    return Worker(database, store)


def edit(store: Store, **changes: object) -> None:
    edits.edit(store.connection, store.job, changes, None, actor="ann", settings=RuleSettings())


def judge_all(store: Store) -> None:
    edits.judge_all(store.connection, store.job)
    assert store.value("SELECT rules_after FROM crawl_jobs WHERE id = %s", store.job) is None


def counts(store: Store, domain: str = "d0.example") -> tuple[int, int]:
    work = store.work(domain)
    return work["waiting"], work["denied"]


def test_urls_of_a_free_domain_are_removed_and_returned_a_chunk_at_a_time(
    store: Store, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimable, "REOPEN_CHUNK", 3)
    monkeypatch.setattr(job_rules, "ROWS", 3)
    store.domains(3)
    claim = store.claim_one()
    trap = found("https://d0.example/trap", store.job, state=UrlState.DENIED, reason="trap: x")
    worker.commit(
        worker.part(claim, [outcome("https://d0.example/", store.job)], [*links("d0.example", 10, store.job), trap])
    )
    store.release(claim)
    edit(store, exclude=["/[0-6]$"])
    steps = 0
    while job_rules.judge_domains(store.connection, store.job) is not None:
        steps += 1
        assert_invariants(store.connection)
    assert steps > 4
    assert counts(store) == (3, 8)
    assert store.value("SELECT count(*) FROM url_frontier WHERE reason LIKE %s", "excluded: %(rules 1)") == 7
    edit(store, exclude=[])
    judge_all(store)
    assert counts(store) == (10, 1)
    assert store.work("d0.example")["ready"]
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert_invariants(store.connection)


def test_a_held_domain_is_judged_at_its_release_with_what_was_committed_under_older_rules(
    store: Store, worker: Worker
) -> None:
    store.domains(1)
    claim = store.claim_one()
    worker.commit(worker.part(claim, [outcome("https://d0.example/", store.job)], links("d0.example", 4, store.job)))
    edit(store, exclude=["/[01]$"], max_depth=20)
    judge_all(store)
    assert counts(store) == (4, 0), "what a worker holds is its own"
    deep = found(
        "https://d0.example/deep", store.job, depth=11, state=UrlState.DENIED, reason=f"{Outcome.TOO_DEEP}: 11"
    )
    worker.commit(worker.part(claim, [], [deep, found("https://d0.example/x/1", store.job)]))
    store.release(claim)
    assert counts(store) == (3, 3), "one that was too deep waits, three are excluded"
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert_invariants(store.connection)


def test_the_wake_of_a_dead_worker_is_folded_by_the_sweep(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    worker.commit(worker.part(claim, [outcome("https://d0.example/", store.job)], links("d0.example", 4, store.job)))
    edit(store, exclude=["/[01]$"])
    judge_all(store)
    edit(store, exclude=["/[012]$"])
    judge_all(store)
    assert store.value("SELECT count(*) FROM domain_wakes WHERE by_rules") == 1, "the later edit replaces the earlier"
    store.expire(claim.domain_id)
    sweeper.sweep(store.connection, run_silence=LEASE)
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert counts(store) == (1, 3)
    assert_invariants(store.connection)


def test_the_sweep_goes_on_with_an_edit_that_nobody_applied(store: Store, worker: Worker) -> None:
    store.domains(2)
    claim = store.claim_one()
    worker.commit(worker.part(claim, [outcome("https://d0.example/", store.job)], links("d0.example", 4, store.job)))
    store.release(claim)
    edit(store, exclude=["/[01]$"])
    assert job_rules.edited_jobs(store.connection) == [store.job]
    assert sweeper.sweep(store.connection, run_silence=LEASE).jobs > 0
    assert job_rules.edited_jobs(store.connection) == []
    assert counts(store) == (2, 2)


def test_a_scope_reaches_domains_from_seeds_and_forgets_that_none_is_there_when_urls_come(
    store: Store, worker: Worker
) -> None:
    edit(store, scope="any")
    store.seed("https://a.example/")
    claim = store.claim_one()
    sister = found("https://b.a.example/x", store.job, domain="b.a.example")._replace(parent_domain="a.example")
    far = found("https://c.example/x", store.job, domain="c.example")
    worker.commit(worker.part(claim, [outcome("https://a.example/", store.job)], [sister, far]))
    store.release(claim)
    names = ("a.example", "b.a.example", "c.example")
    ids = {name: int(str(store.value("SELECT id FROM domains WHERE domain = %s", name))) for name in names}

    def reached(scope: Scope) -> set[str]:
        found_ids = judging.reached(store.connection, store.job, ids.values(), scope)
        return {name for name, domain_id in ids.items() if domain_id in found_ids}

    for _ in range(2):  # before it is remembered, and after
        assert reached(Scope.HOST) == {"a.example"}
        assert reached(Scope.DOMAIN) == {"a.example", "b.a.example"}
        assert reached(Scope.ANY) == set(ids)
        edit(store, scope="host")
        judge_all(store)
    assert [store.work(name)["seeded"] for name in ids] == [True, False, False]
    assert (counts(store, "b.a.example"), counts(store, "c.example")) == ((0, 1), (0, 1))
    state = visit_state.load(store.connection, list(ids.values()), store.job, edited_scope=Scope.HOST)
    assert {one.domain: one.in_reach for one in state.values()} == {
        "a.example": True,
        "b.a.example": False,
        "c.example": False,
    }
    store.seed("https://c.example/seed")
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert store.work("c.example")["seeded"] is None
    assert reached(Scope.HOST) == {"a.example", "c.example"}
    assert_invariants(store.connection)


def test_processes_that_judge_the_same_job_at_once_do_it_once(store: Store, worker: Worker, database: Database) -> None:
    store.domains(20)
    for claim in store.claim("w1", 20):
        worker.commit(
            worker.part(claim, [outcome(f"https://{claim.domain}/", store.job)], links(claim.domain, 5, store.job))
        )
        store.release(claim)
    edit(store, exclude=["/[01]$"])

    def judge() -> None:
        with database.session() as connection:
            while job_rules.judge_domains(connection, store.job) is not None:
                pass

    threads = [threading.Thread(target=judge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.value("SELECT count(*) FROM url_frontier WHERE state = 'denied'") == 40
    assert store.value("SELECT sum(denied)::int FROM job_domains") == 40
    assert_invariants(store.connection)


@pytest.mark.parametrize(
    ("limit", "seconds", "exact"), [(1_000_000, 20.0, True), (200, 20.0, False), (1_000_000, 0.0, False)]
)
def test_a_preview_is_exact_or_an_estimate_that_says_so(
    store: Store,
    worker: Worker,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    seconds: float,
    exact: bool,
) -> None:
    monkeypatch.setattr(scope_preview, "EXACT_ROWS", limit)
    monkeypatch.setattr(scope_preview, "MAX_SECONDS", seconds)
    monkeypatch.setattr(scope_preview, "ROWS", 150)
    store.domains(2)
    for claim in store.claim("w1", 2):
        worker.commit(
            worker.part(claim, [outcome(f"https://{claim.domain}/", store.job)], links(claim.domain, 500, store.job))
        )
        store.release(claim)
    seen = JobService(database, "ann").preview_scope(store.job, {"exclude": ["[02468]$"]})
    assert seen.exact is exact
    if seconds:
        assert abs(seen.removes - 500) <= (0 if exact else 150)
    assert len(seen.removed_urls) <= 10
    assert seen.returns == 0


def test_the_statement_that_reads_a_chunk_uses_the_key(store: Store, connection: psycopg.Connection) -> None:
    store.domains(1)
    connection.execute(
        "INSERT INTO url_frontier (domain_id, job_id, url_key, url, depth) "
        "SELECT d.id, %s, decode(md5(n::text), 'hex'), 'https://d0.example/' || n, 1 FROM domains d, generate_series(1, 20000) n",
        (store.job,),
    )
    connection.execute("ANALYZE url_frontier")
    key = {"domain": 1, "job": store.job, "after": b"\x80", "denied": ["excluded"], "chunk": 100}
    plan = "\n".join(row[0] for row in connection.execute("EXPLAIN " + judging._CHUNK, key))
    assert "url_frontier_pkey" in plan
    assert "Sort" not in plan


def test_an_undo_restores_the_rules_before_the_last_edit_that_is_not_undone() -> None:
    def versions(*restores: int | None) -> list[StoredVersion]:
        return [StoredVersion(n, {"n": n}, None, None, at) for n, at in enumerate(restores)]  # type: ignore[arg-type]

    def target(*restores: int | None) -> int | None:
        found_version = undoes_to(versions(*restores))
        return None if found_version is None else found_version.version

    assert target() is None
    assert target(None) is None
    assert target(None, None) == 0
    assert target(None, None, None) == 1
    assert target(None, None, None, 1) == 0
    assert target(None, None, None, 1, 0) is None
    assert target(None, None, None, 1, None) == 1, "an edit after an undo"
    assert target(None, None, None, 1, None, 1) == 0


def test_an_edit_of_another_option_is_no_new_version(store: Store) -> None:
    edit(store, delay=2.0, scope="host", exclude=[])
    assert crawls.get(store.connection, store.job).rules_version == 0
    assert job_rules.history(store.connection, store.job) == []
