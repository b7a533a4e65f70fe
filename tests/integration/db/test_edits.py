"""Edits by people: each raises a version and sends a notice with its commit, and what workers write does neither."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from holdfast.db import crawls, edits, listen_notify, request_secrets, visit_state
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.proxy import Protocol, ProxyMode, ProxyServer
from holdfast.model.request_secrets import SealedSecret, SecretKind
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.proxies.records import ProxyOptions
from tests.support.factories import Store

NAME = "a.example"


def proxy(connection: psycopg.Connection, host: str = "p.example") -> int:
    new = proxies.SealedProxy(ProxyServer(Protocol.HTTP, host, 8080, None), None, ProxyOptions())
    made = proxies.add(connection, new, actor="ann")
    assert made is not None
    return made


def look(store: Store) -> edits.Versions:
    return edits.current_versions(store.connection, [1], [store.job], proxies=True)


def heard(listener: psycopg.Connection) -> bool:
    return listen_notify.wait(listener, 0.2)


def secret(sealed: str) -> SealedSecret:
    return SealedSecret(SecretKind.HEADERS, ["X-A"], [f"https://{NAME}"], sealed)


def _spec(store: Store) -> None:
    spec = crawls.get(store.connection, store.job).spec
    crawls.set_spec(store.connection, store.job, replace(spec, delay=2.0))


def _limits(store: Store) -> None:
    """The limits of the crawl that is open become those of the spec, which are others."""
    crawls.begin(store.connection, store.job)
    store.connection.execute("UPDATE crawls SET max_pages = 7")
    crawls.begin(store.connection, store.job)


def _secrets_of_job(store: Store) -> None:
    request_secrets.change_of_job(store.connection, store.job, [secret("x")], [])


def _secrets_of_domain(store: Store) -> None:
    with store.connection.transaction():
        request_secrets.change_of_domain(store.connection, 1, [secret("x")], [])


def _assign(store: Store) -> None:
    proxy_pools.assign(store.connection, NAME, [1], default=ProxyMode.POOL, actor="ann")


@pytest.mark.parametrize(
    ("act", "of_domain", "of_job"),
    [
        (lambda store: domains.edit(store.connection, NAME, {"is_active": False}), 1, 0),
        (lambda store: domains.edit(store.connection, NAME, {"crawl_delay_seconds": 9.0}), 1, 0),
        (lambda store: domains.edit(store.connection, NAME, {"maintenance_window": "10:00-11:00"}), 1, 0),
        (lambda store: domains.edit(store.connection, NAME, {"max_pages_per_run": 1000}), 1, 0),
        (_secrets_of_domain, 1, 0),
        (_assign, 1, 0),
        (_spec, 0, 1),
        (_limits, 0, 1),
        (_secrets_of_job, 0, 1),
    ],
)
def test_an_edit_raises_a_version_and_sends_a_notice(
    store: Store, database: Database, act: Callable[[Store], object], of_domain: int, of_job: int
) -> None:
    store.seed(NAME)
    proxy(store.connection)
    with database.connect() as listener:
        listen_notify.listen(listener)
        before = look(store)
        act(store)
        assert heard(listener)
    after = look(store)
    assert after.domains[1].settings_version - before.domains[1].settings_version == of_domain
    assert after.jobs[store.job].settings_version - before.jobs[store.job].settings_version == of_job
    assert visit_state.load(store.connection, [1])[1].settings_version == after.domains[1].settings_version
    assert crawls.get(store.connection, store.job).settings_version == after.jobs[store.job].settings_version


def test_an_edit_of_proxies_is_seen(store: Store, database: Database) -> None:
    store.seed(NAME)
    first = proxy(store.connection)
    seen = {look(store).proxies}
    with database.connect() as listener:
        listen_notify.listen(listener)
        for act in (
            lambda: proxies.switch(store.connection, first, on=False, actor="ann"),
            lambda: proxies.edit(store.connection, first, {"country_code": "DE"}, actor="ann"),
            lambda: proxy(store.connection, "q.example"),
            lambda: proxies.remove(store.connection, first, actor="ann"),
        ):
            act()
            assert heard(listener)
            assert look(store).proxies not in seen
            seen.add(look(store).proxies)
    assert edits.current_versions(store.connection, [], [], proxies=False) == edits.Versions({}, {}, (0, 0, 0))


def test_what_workers_write_and_what_says_the_same_again_is_no_edit(store: Store, database: Database) -> None:
    store.seed(NAME)
    spec = crawls.get(store.connection, store.job).spec
    crawls.set_spec(store.connection, store.job, spec)
    before = look(store)
    with database.connect() as listener:
        listen_notify.listen(listener)
        claim = store.claim_one()
        assert store.flush(
            claim, outcomes=1, pages_crawled=1, clocks=PolitenessClocks(2.0, delay=2.0, delay_source="robots")
        )
        store.release(claim)
        crawls.set_spec(store.connection, store.job, spec)
        assert not heard(listener)
    after = look(store)
    assert (after.domains, after.jobs) == (before.domains, before.jobs)


def test_a_wait_that_was_judged_by_settings_of_before_is_dropped_at_the_release(store: Store) -> None:
    store.seed(NAME)
    wait = "SELECT not_before > clock_timestamp() + interval '1 hour' FROM job_domains"
    for edited, kept in ((False, True), (True, None)):
        claim = store.claim_one()
        version = look(store).domains[1].settings_version
        if edited:
            domains.edit(store.connection, NAME, {"maintenance_window": "10:00-11:00"})
        store.release(claim, wait=7200.0, settings_version=version)
        row = store.connection.execute(wait).fetchone()
        assert row == (kept,)
        domains.edit(store.connection, NAME, {"maintenance_window": None})  # ends the wait
    claim = store.claim_one()
    domains.edit(store.connection, NAME, {"user_agent": "b"})
    store.release(claim, wait=7200.0)
    assert store.connection.execute(wait).fetchone() == (True,), "of the request before nobody knows: it holds anyway"


def test_the_delay_that_the_clock_was_computed_with_is_kept(store: Store) -> None:
    store.seed(NAME)
    claim = store.claim_one()
    assert store.flush(claim, outcomes=1, clocks=PolitenessClocks(30.0, delay=40.0, delay_source="robots"))
    clocks = visit_state.load(store.connection, [1])[1].clocks
    assert (clocks.delay, clocks.delay_source) == (40.0, "robots")
    assert timedelta(seconds=28) < timedelta(seconds=clocks.next_request_in) <= timedelta(seconds=30)
