"""Proxies as people make, change and look at them: known once, changed by version, told without their passwords."""

from dataclasses import asdict, replace
from decimal import Decimal

import psycopg
import pytest

from holdfast.db import audit
from holdfast.errors import NotFound, Refused
from holdfast.model.proxy import Protocol, ProxyServer
from holdfast.proxies.queries import proxies
from holdfast.proxies.queries.proxies import SealedProxy
from holdfast.proxies.records import ProxyFilter, ProxyOptions
from tests.support.factories import Store

SERVER = ProxyServer(Protocol.HTTP, "proxy.example", 8080)
TOKEN = "gAAAAA-a-sealed-password"
WHO = "test:me"


def add(connection: psycopg.Connection, port: int = 8080, token: str | None = None, **options: object) -> int:
    server = replace(SERVER, port=port, username="bob" if token else None)
    made = proxies.add(connection, SealedProxy(server, token, ProxyOptions(**options)), actor=WHO)  # type: ignore[arg-type]
    assert made is not None
    return made


def fail(connection: psycopg.Connection, proxy_id: int, times: int) -> None:
    """As workers write it."""
    connection.execute(
        "UPDATE proxies SET failure_count = %(n)s, is_active = %(n)s < 10, last_error = 'refused', last_failure_at = now(),"
        " disabled_by = CASE WHEN %(n)s >= 10 THEN 'health' END, next_try_at = now() + proxy_pause(%(n)s, '30 s', '1 h') WHERE id = %(id)s",
        {"n": times, "id": proxy_id},
    )


def deeds(connection: psycopg.Connection) -> list[tuple[str, str]]:
    return [(entry.action, entry.object_id) for entry in audit.listing(connection, kind=proxies.KIND)]


def test_a_proxy_is_known_once(connection: psycopg.Connection) -> None:
    options = ProxyOptions("DE", "Berlin", "acme", Decimal("12.50"), None, allow_private=True)
    made = proxies.add(connection, SealedProxy(SERVER, None, options), actor=WHO)
    assert made is not None
    assert proxies.add(connection, SealedProxy(SERVER, None, ProxyOptions()), actor=WHO) is None
    found = proxies.get(connection, made)
    assert (found.address, found.is_active, found.has_password, found.version) == (SERVER, True, False, 1)
    assert {name: getattr(found, name) for name in asdict(options)} == asdict(options)
    assert (found.requests, found.bytes, found.domains, found.avg_response_time_ms) == (0, 0, 0, None)
    assert deeds(connection) == [("add", str(made))]
    with pytest.raises(NotFound, match=r"^There is no proxy 815\.$"):
        proxies.get(connection, 815)


def test_users_tell_proxies_apart(connection: psycopg.Connection) -> None:
    users = [None, "bob", "eve"]
    ids = [
        proxies.add(connection, SealedProxy(replace(SERVER, username=u), None, ProxyOptions()), actor=WHO)
        for u in users
    ]
    assert proxies.find(connection, SERVER) == ids
    assert proxies.find(connection, SERVER, exactly=True) == ids[:1]
    assert proxies.find(connection, replace(SERVER, username="eve")) == ids[2:]
    assert proxies.find(connection, replace(SERVER, username="mallory")) == []
    assert proxies.find(connection, replace(SERVER, protocol=Protocol.HTTPS)) == []


def test_many_at_once(connection: psycopg.Connection) -> None:
    known = add(connection, 1)
    new = [SealedProxy(replace(SERVER, port=port), None, ProxyOptions(provider=f"p{port}")) for port in (1, 2, 3, 2)]
    assert proxies.add_many(connection, new, actor=WHO) == 2
    assert proxies.add_many(connection, new, actor=WHO) == 0
    found = proxies.page(connection, ProxyFilter()).rows
    assert [(one.port, one.provider) for one in found] == [(1, None), (2, "p2"), (3, "p3")]
    entry, first = audit.listing(connection, kind=proxies.KIND)
    assert (entry.object_id, first.object_id) == ("*", str(known))
    assert entry.details == {"proxies": 2, "from_id": found[1].id, "to_id": found[2].id}


def test_the_list_is_read_in_pages_and_parts(connection: psycopg.Connection) -> None:
    ids = [add(connection, port, provider="a" if port % 2 else "b", country_code="DE") for port in range(1, 8)]
    proxies.switch(connection, ids[0], on=False, actor=WHO)

    def listed(after: int = 0, limit: int = 100, **where: object) -> list[int]:
        chosen = ProxyFilter(**where)  # type: ignore[arg-type]
        return [one.id for one in proxies.page(connection, chosen, after=(after,), limit=limit).rows]

    assert listed(limit=3) == ids[:3]
    assert listed(after=ids[2], limit=3) == ids[3:6]
    assert listed(active=False) == ids[:1]
    assert listed(provider="b") == ids[1::2]
    assert listed(provider="a", active=True) == ids[2::2]
    assert listed(country="FR") == []
    assert proxies.ids(connection, provider="a", country="DE") == ids[::2]
    assert proxies.ids(connection) == ids


def test_what_is_said_of_a_proxy_changes_by_version(connection: psycopg.Connection) -> None:
    proxy = add(connection, city="Berlin")
    changed = proxies.edit(connection, proxy, {"max_requests_per_hour": None, "city": None}, actor=WHO, version=1)
    assert (changed.version, changed.max_requests_per_hour, changed.city) == (2, None, None)
    with pytest.raises(
        Refused, match=rf"^Proxy {proxy} was changed meanwhile \(version 2, not 1\); look at it again\.$"
    ):
        proxies.edit(connection, proxy, {"city": "Bonn"}, actor=WHO, version=1)
    assert proxies.edit(connection, proxy, {}, actor=WHO).version == 2
    assert [action for action, _ in deeds(connection)] == ["edit", "add"]
    with pytest.raises(NotFound):
        proxies.edit(connection, 815, {"city": "Bonn"}, actor=WHO)


def test_a_new_password_is_not_in_the_audit_log(connection: psycopg.Connection) -> None:
    proxy = add(connection, token=TOKEN)
    assert proxies.token(connection, proxy) == TOKEN
    proxies.edit(connection, proxy, {"proxy_password": "another"}, actor=WHO)
    assert proxies.token(connection, proxy) == "another"
    assert audit.listing(connection, kind=proxies.KIND)[0].details == {"proxy_password": "***"}
    assert not proxies.edit(connection, proxy, {"proxy_password": None}, actor=WHO).has_password
    assert proxies.token(connection, proxy) is None


def test_switching_on_forgets_failures_and_off_stays(connection: psycopg.Connection) -> None:
    proxy = add(connection)
    assert not proxies.switch(connection, proxy, on=True, actor=WHO), "it is on"
    fail(connection, proxy, 12)
    assert proxies.switch(connection, proxy, on=True, actor=WHO)
    found = proxies.get(connection, proxy)
    assert (found.is_active, found.disabled_by, found.failure_count, found.next_try_at) == (True, None, 0, None)
    assert proxies.switch(connection, proxy, on=False, actor=WHO)
    assert not proxies.switch(connection, proxy, on=False, actor=WHO)
    found = proxies.get(connection, proxy)
    assert (found.is_active, found.disabled_by) == (False, "operator")
    assert [action for action, _ in deeds(connection)] == ["disable", "enable", "add"]
    with pytest.raises(NotFound):
        proxies.switch(connection, 815, on=True, actor=WHO)


@pytest.mark.parametrize(("failures", "recovers"), [(0, False), (3, True), (5, True), (10, True)])
def test_one_that_was_seen_to_work_recovers(connection: psycopg.Connection, failures: int, recovers: bool) -> None:
    proxy = add(connection)
    fail(connection, proxy, failures)
    assert proxies.recover(connection, proxy, actor=WHO) is recovers
    found = proxies.get(connection, proxy)
    assert (found.is_active, found.failure_count, found.next_try_at) == (True, 0, None)


def test_one_that_a_person_switched_off_does_not_recover(connection: psycopg.Connection) -> None:
    proxy = add(connection)
    proxies.switch(connection, proxy, on=False, actor=WHO)
    assert not proxies.recover(connection, proxy, actor=WHO)
    assert proxies.get(connection, proxy).disabled_by == "operator"


def test_removed_with_its_places(store: Store) -> None:
    store.seed("example.com")
    proxy, other = add(store.connection, 1), add(store.connection, 2)
    store.connection.execute(
        "INSERT INTO domain_proxies (domain_id, proxy_id) SELECT d.id, p.id FROM domains d, proxies p"
    )
    proxies.remove(store.connection, proxy, actor=WHO)
    assert store.value("SELECT array_agg(proxy_id) FROM domain_proxies") == [other]
    entry = audit.listing(store.connection, kind=proxies.KIND)[0]
    assert (entry.action, entry.details) == ("remove", {"server": "http://proxy.example:1"})
    with pytest.raises(NotFound):
        proxies.remove(store.connection, proxy, actor=WHO)


def test_totals_are_of_all_domains(store: Store) -> None:
    store.domains(2)
    proxy = add(store.connection)
    store.connection.execute(
        "INSERT INTO domain_proxies (domain_id, proxy_id, assigned, requests, other_requests, success_count, total_failures,"
        " proxy_failures, bytes, avg_response_time_ms, last_used_at)"
        " SELECT id, %s, domain = 'd0.example', 10, 2, 6, 1, 1, 1000, CASE WHEN domain = 'd0.example' THEN 100 ELSE 300 END, now()"
        " FROM domains",
        (proxy,),
    )
    (found,) = proxies.page(store.connection, ProxyFilter()).rows
    assert (found.requests, found.other_requests, found.success_count, found.bytes) == (20, 4, 12, 2000)
    assert (found.total_failures, found.proxy_failures, found.avg_response_time_ms, found.domains) == (2, 2, 200, 1)


def test_passwords_are_sealed_anew_unless_they_changed(connection: psycopg.Connection) -> None:
    ids = [add(connection, port, f"old{port}") for port in range(1, 5)]
    add(connection, 9)
    assert proxies.tokens(connection, after=0, limit=2) == [(ids[0], "old1"), (ids[1], "old2")]
    assert proxies.tokens(connection, after=ids[1], limit=9) == [(ids[2], "old3"), (ids[3], "old4")]
    connection.execute("UPDATE proxies SET proxy_password = 'by somebody else' WHERE id = %s", (ids[1],))
    before = proxies.get(connection, ids[0]).version
    assert proxies.reseal(connection, [(one, f"old{n}", f"new{n}") for n, one in enumerate(ids, 1)], actor=WHO) == 3
    assert [token for _, token in proxies.tokens(connection, after=0, limit=9)] == [
        *("new1", "by somebody else", "new3", "new4")
    ]
    assert proxies.get(connection, ids[0]).version == before, "whoever looked at it before may still change it"
    assert deeds(connection)[0] == ("reseal", "*")
    assert proxies.reseal(connection, [], actor=WHO) == 0
    assert len(deeds(connection)) == 6
