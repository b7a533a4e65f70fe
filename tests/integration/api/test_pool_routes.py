"""The pools of domains over HTTP: filled, looked at, changed, emptied."""

import base64
import json
from typing import Any

import httpx
import pytest

from tests.support.accounts import deeds
from tests.support.api import Api, Shared
from tests.support.factories import Store
from tests.support.pools import Pools

ADMIN = "admin-1 (key test)"
SITE = "a.example"
POOL = f"/api/domains/{SITE}/proxies"
CHANGE = f"/api/admin/domains/{SITE}/proxies"
BEYOND = 2**63


@pytest.fixture
def pools(store: Store) -> Pools:
    store.seed(SITE)
    return Pools(store)


@pytest.fixture(scope="module")
def one_proxy(stage: Shared) -> None:
    """A site and a proxy that is in nobody's pool, for all tests that are about refusals."""
    store = Store(stage.connection)
    store.seed(SITE)
    Pools(store).add()


def walked(client: httpx.Client, path: str) -> list[list[int]]:
    """The proxies on all pages of a list, by their Link headers."""
    found, target = [], path
    while target:
        answer = client.get(target)
        assert answer.status_code == 200, answer.text
        found.append([item["proxy_id"] for item in answer.json()["items"]])
        target = answer.links.get("next", {}).get("url", "")
    return found


def cursor(*key: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).rstrip(b"=").decode()


def test_proxies_are_put_into_a_pool(api: Api, store: Store, pools: Pools) -> None:
    client = api.admin
    first, second = pools.add(2)
    answer = client.post(CHANGE, json={"proxy_ids": [second, first, first], "priority": 3})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "domain": SITE,
        "added": [first, second],
        "changed": [],
        "unchanged": [],
        "use": "pool",
        "now_uses_pool": True,
    }
    assert deeds(store.connection)[-1] == (ADMIN, "assign", "pool", SITE)
    again = client.post(CHANGE, json={"proxy_ids": [first], "priority": 7}).json()
    assert (again["added"], again["changed"], again["now_uses_pool"]) == ([], [first], False)
    assert client.post(CHANGE, json={"proxy_ids": [first, second]}).json()["unchanged"] == [first, second]
    rows = store.connection.execute("SELECT proxy_id, priority, assigned FROM domain_proxies ORDER BY 1").fetchall()
    assert rows == [(first, 7, True), (second, 3, True)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"proxy_ids": [815]}, 404),
        ({"proxy_ids": [BEYOND - 1]}, 404),
        ({"proxy_ids": []}, 422),
        ({"proxy_ids": [0]}, 422),
        ({"proxy_ids": [BEYOND]}, 422),
        ({"proxy_ids": ["x"]}, 422),
        ({"proxy_ids": list(range(1, 1002))}, 422),
        ({"proxy_ids": [1], "priority": 0}, 422),
        ({"proxy_ids": [1], "priority": 11}, 422),
        ({"proxy_ids": [1], "is_active": False}, 422),
        ({}, 422),
        ([], 422),
    ],
)
@pytest.mark.usefixtures("one_proxy")
def test_what_cannot_be_put_into_a_pool(shared: Shared, body: Any, status: int) -> None:
    answer = shared.admin.post(CHANGE, json=body)
    assert answer.status_code == status, answer.text
    assert shared.value("SELECT count(*) FROM domain_proxies") == 0


def test_the_pool_goes_on_to_its_end_in_the_order_of_use(api: Api, pools: Pools) -> None:
    client = api.reader
    assert walked(client, POOL) == [[]]
    first, fresh, late, early, same, alien = pools.add(6)
    pools.assign(SITE, first, priority=1)
    pools.assign(SITE, late, early, same, fresh)
    for proxy_id, ago in ((early, 2), (same, 2), (late, 1), (alien, 9)):
        pools.used(SITE, proxy_id, requests=1)
        pools.connection.execute(
            "UPDATE domain_proxies SET last_used_at = timestamptz '2026-01-01 00:00:00.123456Z' - %s * interval '1 h' WHERE proxy_id = %s",
            (ago, proxy_id),
        )
    order = [first, fresh, early, same, late, alien]
    assert walked(client, POOL) == [order]
    for limit in (1, 2, 4):
        pages = [order[start : start + limit] for start in range(0, len(order), limit)]
        assert walked(client, f"{POOL}?limit={limit}") == pages
    rows = client.get(POOL).json()["items"]
    assert [row["assigned"] for row in rows] == [True] * 5 + [False]
    assert (rows[4]["server"], rows[4]["requests"], rows[4]["can_not"]) == ("http://proxy.example:3", 1, None)
    assert rows[4]["last_used_at"] == "2025-12-31T23:00:00.123456Z"


@pytest.mark.parametrize(
    "key",
    [
        (),
        (1,),
        (None, 1, None, 1),
        (0, None, None, 1),
        (0, 1, None, None),
        (0, 1, 2, 3),
        (0, 1, "x", 3),
        (0, BEYOND, None, 1),
    ],
)
@pytest.mark.usefixtures("one_proxy")
def test_a_cursor_of_another_list_is_refused(shared: Shared, key: tuple[object, ...]) -> None:
    answer = shared.reader.get(f"{POOL}?cursor={cursor(*key)}")
    assert answer.status_code == 422, answer.text


def test_odd_times_in_a_cursor_are_harmless(api: Api, pools: Pools) -> None:
    client = api.reader
    pools.assign(SITE, *pools.add(2))
    for moment in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        assert client.get(f"{POOL}?cursor={cursor(0, 5, moment, 1)}").json()["items"] == []
        assert len(client.get(f"{POOL}?cursor={cursor(0, 1, moment, 1)}").json()["items"]) == 2


def test_a_place_is_changed(api: Api, store: Store, pools: Pools) -> None:
    client = api.admin
    (proxy_id,) = pools.add()
    pools.assign(SITE, proxy_id)
    pools.is_refused(proxy_id, 5)
    version = client.get(POOL).json()["items"][0]["version"]
    path = f"{CHANGE}/{proxy_id}"
    answer = client.patch(path, json={"priority": 2, "is_active": True}, headers={"If-Match": f'"{version}"'})
    assert answer.status_code == 200, answer.text
    place = answer.json()
    assert (place["priority"], place["is_active"], place["failure_count"]) == (2, True, 0)
    assert place["version"] == version + 1
    assert answer.headers["ETag"] == f'"{version + 1}"'
    assert deeds(store.connection)[-1] == (ADMIN, "edit", "pool", SITE)

    stale = client.patch(path, json={"is_active": False}, headers={"If-Match": f'"{version}"'})
    assert stale.status_code == 412, stale.text
    off = client.patch(path, json={"is_active": False}).json()
    assert (off["is_active"], off["disabled_by"], off["can_not"]) == (False, "operator", "off_here")
    for odd in ({}, {"priority": 0}, {"priority": None}, {"is_active": "perhaps"}, {"assigned": True}, [1]):
        assert client.patch(path, json=odd).status_code == 422
    assert client.patch(f"{CHANGE}/815", json={"priority": 1}).status_code == 404
    assert client.patch(f"{CHANGE}/{BEYOND}", json={"priority": 1}).status_code == 422


def test_the_same_key_assigns_once(api: Api, store: Store, pools: Pools) -> None:
    client = api.admin
    ids = pools.add(2)
    answers = [client.post(CHANGE, json={"proxy_ids": ids}, headers={"Idempotency-Key": "a1"}) for _ in range(2)]
    assert [answer.json()["added"] for answer in answers] == [ids, ids]
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert [deed[1] for deed in deeds(store.connection)].count("assign") == 1
    pools.fails(ids[0], 10)
    enabled = client.post(f"/api/admin/proxies/{ids[0]}/enable", headers={"Idempotency-Key": "e1"})
    assert (enabled.status_code, enabled.json()["is_active"]) == (200, True)
    assert store.value("SELECT is_active FROM proxies ORDER BY id LIMIT 1") is True


def test_a_proxy_is_taken_out(api: Api, store: Store, pools: Pools) -> None:
    client = api.admin
    used, unused = pools.add(2)
    pools.assign(SITE, used, unused)
    pools.used(SITE, used, requests=3)
    for proxy_id in (used, unused):
        assert client.delete(f"{CHANGE}/{proxy_id}").status_code == 204
        assert deeds(store.connection)[-1] == (ADMIN, "unassign", "pool", SITE)
    (left,) = client.get(POOL).json()["items"]
    assert (left["proxy_id"], left["assigned"], left["requests"]) == (used, False, 3)
    for missing in (used, unused, 815):
        gone = client.delete(f"{CHANGE}/{missing}")
        assert (gone.status_code, gone.json()["detail"]) == (404, f"Proxy {missing} is not in the pool of {SITE}.")


def test_the_health_of_one_pool(api: Api, pools: Pools) -> None:
    client = api.reader
    empty = client.get(f"{POOL}/health").json()
    assert (empty["domain"], empty["use"], empty["proxies"], empty["requests"]) == (SITE, "direct", 0, 0)
    assert empty["failure_percent"] is None
    good, refused = pools.add(2)
    pools.assign(SITE, good, refused)
    pools.used(SITE, good, requests=10, success_count=9, total_failures=1, bytes=2**40)
    pools.is_refused(refused, 5)
    full = client.get("/api/domains/www.A.example/proxies/health").json()
    assert (full["domain"], full["use"], full["proxies"]) == (SITE, "pool", 2)
    assert (full["active"], full["failing"], full["failure_percent"], full["bytes"]) == (1, 1, 10.0, 2**40)
    assert full == client.get("/api/proxies/health").json()["items"][0]


def test_which_proxy_comes_next(api: Api, store: Store, pools: Pools) -> None:
    client = api.admin
    direct = client.get(f"{POOL}/next").json()
    assert (direct["use"], direct["direct"], direct["proxy_id"]) == ("direct", True, None)
    first, second = pools.add(2, country_code="DE", provider="acme")
    pools.assign(SITE, first, second)
    pools.used(SITE, first, requests=1)
    before = store.value("SELECT md5(string_agg(m::text, ',' ORDER BY id)) FROM domain_proxies m")
    for _ in range(2):  # who looks does not use it up
        found = client.get(f"{POOL}/next").json()
        assert (found["proxy_id"], found["server"], found["usable"]) == (second, "http://proxy.example:2", 2)
        assert (found["country_code"], found["provider"], found["priority"]) == ("DE", "acme", 5)
        assert "used least recently" in found["why"]
    assert store.value("SELECT md5(string_agg(m::text, ',' ORDER BY id)) FROM domain_proxies m") == before
    client.patch(f"{CHANGE}/{first}", json={"priority": 1})
    assert client.get(f"{POOL}/next").json()["proxy_id"] == first
    client.post(f"/api/admin/proxies/{first}/disable")
    pools.used_up(second)
    waits = client.get(f"{POOL}/next").json()
    assert (waits["proxy_id"], waits["direct"], waits["usable"]) == (None, False, 0)
    assert waits["can_not"] == {"off": 1, "used_up": 1}
    assert waits["until"] is not None


@pytest.mark.parametrize(
    ("domain", "status"),
    [
        ("nobody.example", 404),
        ("%F0%9F%90%88.example", 404),
        ("a%20b", 422),
        ("%3F", 422),
        ("1.2.3.4.5", 422),
        ("x" * 256, 422),
        ("a%2Fb", 404),
        ("", 404),
    ],
)
@pytest.mark.usefixtures("one_proxy")
def test_domains_that_are_none(shared: Shared, domain: str, status: int) -> None:
    client = shared.admin
    write = f"/api/admin/domains/{domain}/proxies"
    for answer in (
        client.get(f"/api/domains/{domain}/proxies"),
        client.get(f"/api/domains/{domain}/proxies/health"),
        client.get(f"/api/domains/{domain}/proxies/next"),
        client.post(write, json={"proxy_ids": [1]}),
        client.patch(f"{write}/1", json={"priority": 1}),
        client.delete(f"{write}/1"),
    ):
        assert answer.status_code == status, (answer.request.url, answer.text)
        assert answer.headers["Content-Type"] == "application/problem+json"
